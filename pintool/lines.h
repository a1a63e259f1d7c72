/* SPDX-License-Identifier: MIT
 *
 * How many cache lines of a page a program uses: of a sample of pages, which of their 64 lines.
 *
 * One page of PTT_ONE_IN is looked at, by a hash; of those that share a place of the table, the one with the least
 * hash, from its first access on, as it would have won then: any number of pages leaves a fair sample, at most one a
 * place. Lines are noted by halves of the chunks: those that both halves saw tell how many neither did (a short
 * trace of a random program has seen few lines of any page).
 */
#ifndef PTT_LINES_H
#define PTT_LINES_H

#include <stdint.h>

#define PTT_ONE_IN 64
#define PTT_LINE_PLACES 4096

struct ptt_page_lines {
    uint64_t hash; /* of the page, a bijection; 0: none yet */
    uint64_t half[2];
};

static inline int ptt_is_sampled(uint64_t page) {
    return (uint32_t)page * 0x9e3779b1u < (uint32_t)(((uint64_t)1 << 32) / PTT_ONE_IN);
}

/* Chunks in a row, and those that a loop comes back to, are in either half. */
static inline int ptt_half(uint32_t chunk) { return (int)(chunk * 0x9e3779b1u >> 31); }

/* Of a page that is sampled. Threads may meet in a place that changes its page, and mix up a line. */
static inline void ptt_use_line(struct ptt_page_lines *table, uint64_t address, int half) {
    uint64_t hash = (address >> 12) * 0xbf58476d1ce4e5b9u, bit = (uint64_t)1 << (address >> 6 & 63);
    hash = (hash ^ hash >> 32) * 0x94d049bb133111ebu;
    struct ptt_page_lines *at = &table[hash % PTT_LINE_PLACES];
    uint64_t holds = __atomic_load_n(&at->hash, __ATOMIC_RELAXED);
    if (holds && hash > holds) return;
    if (hash != holds) {
        at->half[0] = at->half[1] = 0;
        __atomic_store_n(&at->hash, hash, __ATOMIC_RELAXED);
    }
    if (!(at->half[half] & bit)) __atomic_fetch_or(&at->half[half], bit, __ATOMIC_RELAXED);
}

static inline uint32_t ptt_bits(uint64_t bits) {
    uint32_t n = 0;
    for (; bits; bits &= bits - 1) n++;
    return n;
}

/* Adds up ptt_header.lines. */
static inline void ptt_count_lines(const struct ptt_page_lines *table, uint32_t *counts) {
    for (int i = 0; i < PTT_LINE_PLACES; i++) {
        uint64_t one = table[i].half[0], other = table[i].half[1];
        if (!table[i].hash) continue;
        counts[0]++;
        counts[1] += one && other;
        counts[2] += ptt_bits(one | other);
        counts[3] += ptt_bits(one & other);
    }
}

#endif
