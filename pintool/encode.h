/* SPDX-License-Identifier: MIT
 *
 * Touches to bytes, as records.h says.
 */
#ifndef PTT_ENCODE_H
#define PTT_ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "records.h"

/* A touch in a buffer: page << 19 | count << 1 | store. */
#define PTT_PAGE_SHIFT 19

struct ptt_coder {
    uint64_t recent[PTT_RECENT];
    uint64_t base, other;
    uint32_t spelled; /* the last count that a varint spelled out */
};

static inline uint64_t ptt_zigzag(uint64_t page, uint64_t base) {
    int64_t delta = (int64_t)(page - base);
    return ((uint64_t)delta << 1) ^ (uint64_t)(delta >> 63);
}

static inline uint8_t *ptt_put(uint8_t *out, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) *out++ = (uint8_t)(value >> (8 * i));
    return out;
}

/* Moves `page` to the front of the recent pages; returns where it was, PTT_RECENT if it is new. */
static inline unsigned ptt_recent(struct ptt_coder *coder, uint64_t page) {
    unsigned slot = 0;
    while (slot < PTT_RECENT && coder->recent[slot] != page) slot++;
    for (unsigned i = slot < PTT_RECENT ? slot : PTT_RECENT - 1; i; i--) coder->recent[i] = coder->recent[i - 1];
    coder->recent[0] = page;
    return slot;
}

/* Page of a touch that is not recent, after byte 0, whose class and payload bits it sets in `*first`. */
static inline uint8_t *ptt_put_page(struct ptt_coder *coder, uint64_t page, uint8_t *first, uint8_t *out) {
    uint64_t delta = ptt_zigzag(page, coder->base);
    for (unsigned bytes = 1; bytes <= 3; bytes++)
        if (delta >> (3 + 8 * bytes) == 0) {
            *first |= (uint8_t)(bytes << 3 | (delta & 7) << 5);
            coder->base = page;
            return ptt_put(out, delta >> 3, bytes);
        }
    uint64_t other = coder->other;
    coder->other = coder->base;
    coder->base = page;
    delta = ptt_zigzag(page, other);
    *first |= delta >> 32 == 0 ? 6 << 5 : 7 << 5;
    return delta >> 32 == 0 ? ptt_put(out, delta, 4) : ptt_put(out, page, 6);
}

/* 0, 1: that count - 1; 2: the count spelled out last; 3: a varint follows. */
static inline unsigned ptt_count_code(const struct ptt_coder *coder, uint32_t count) {
    if (count < 3) return count - 1;
    return count == coder->spelled ? 2 : 3;
}

/* Encodes `n` touches (at most PTT_RECORD_BYTES_MAX bytes each); returns the end, adds up the accesses. */
static inline uint8_t *ptt_encode(const uint64_t *touches, size_t n, uint8_t *out, uint64_t *accesses) {
    struct ptt_coder coder = {};
    coder.spelled = 3;
    for (size_t i = 0; i < n; i++) {
        uint64_t page = touches[i] >> PTT_PAGE_SHIFT;
        uint32_t count = (uint32_t)(touches[i] >> 1) & PTT_COUNT_MAX;
        uint8_t *first = out++;
        *accesses += count;
        *first = (uint8_t)((touches[i] & 1) | ptt_count_code(&coder, count) << 1);
        unsigned slot = ptt_recent(&coder, page);
        if (slot < PTT_RECENT)
            *first |= (uint8_t)(slot << 5);
        else
            out = ptt_put_page(&coder, page, first, out);
        if ((*first >> 1 & 3) < 3) continue;
        coder.spelled = count;
        for (count -= 3; count >= 128; count >>= 7) *out++ = (uint8_t)(count | 128);
        *out++ = (uint8_t)count;
    }
    return out;
}

#endif
