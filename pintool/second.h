/* SPDX-License-Identifier: MIT
 *
 * The second filter: a chunk's records without those of the page that was last in its set of a direct-mapped array,
 * empty when the chunk begins. Most of what it leaves out hits in a second-level TLB; as not all does, some runs of chunks
 * are kept from it, in which an analysis measures how wrong the number of walks is.
 */
#ifndef PTT_SECOND_H
#define PTT_SECOND_H

#include "encode.h"

#define PTT_SECOND_SETS 128
#define PTT_SECOND_ONE_IN 16
#define PTT_SECOND_RUN 64

/* Moves the records that are kept to the front; returns how many. The others' accesses are counted with their page's. A
 * page's first store is kept. */
static inline size_t ptt_second(uint64_t *record, size_t n) {
    uint16_t last[PTT_SECOND_SETS] = {}; /* place of the set's record, 1 the first; 0: none */
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t page = record[i] >> PTT_PAGE_SHIFT, store = record[i] & 1;
        uint32_t count = (uint32_t)(record[i] >> 1) & PTT_COUNT_MAX;
        uint16_t *set = &last[page % PTT_SECOND_SETS];
        uint64_t *before = *set ? &record[*set - 1] : NULL;
        if (before && *before >> PTT_PAGE_SHIFT == page && (*before & 1) >= store &&
            ((uint32_t)(*before >> 1) & PTT_COUNT_MAX) + count <= PTT_COUNT_MAX) {
            *before += (uint64_t)count << 1;
        } else {
            record[kept++] = record[i];
            *set = (uint16_t)kept;
        }
    }
    return kept;
}

/* Whether chunk `number` of a thread, from 0 on, is kept from the filter: one run of each PTT_SECOND_ONE_IN, by a hash. */
static inline int ptt_second_spares(uint16_t thread, uint32_t number) {
    uint32_t run = number / PTT_SECOND_RUN, hash = (run / PTT_SECOND_ONE_IN << 16 ^ thread) + 0x9e3779b9;
    hash = (hash ^ hash >> 16) * 0x7feb352d;
    hash = (hash ^ hash >> 15) * 0x846ca68b;
    return run % PTT_SECOND_ONE_IN == (hash ^ hash >> 16) % PTT_SECOND_ONE_IN;
}

#endif
