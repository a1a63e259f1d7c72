/* SPDX-License-Identifier: MIT
 *
 * A trace of a part: some sets of the TLBs, or windows of time. Of accesses outside it the first of each thread to a page
 * stays, again after a call took the page's translation away: it may be a fault, or fill a copy of a table. All others
 * are counted in their chunk and not written.
 */
#ifndef PTT_PART_H
#define PTT_PART_H

#include "strip.h"

#define PTT_EVERY_CLASS 0xFFFF /* of page numbers modulo 16 */
#define PTT_SEEN 16384         /* places for regions of 2 MiB: two that share one take turns */
#define PTT_LOST 64            /* ranges that threads may be behind; one that is further behind forgets all */

/* Pages that a thread touched outside the part; forgetting one too many writes a touch too many, and nothing else. */
struct ptt_seen {
    uint64_t id[PTT_SEEN]; /* region + 1 */
    uint64_t pages[PTT_SEEN][8];
};

/* Ranges of regions whose translations events took away; `count` so far, the newest are kept. */
struct ptt_lost {
    int lock; /* a chunk's begin and an event see each other's time in the order of their times */
    uint64_t count;
    uint64_t brk;
    struct {
        uint64_t first, end;
    } range[PTT_LOST];
};

static inline uint64_t ptt_seen_place(uint64_t region) { return (region ^ region >> 14) % PTT_SEEN; }

/* Whether a page was touched before; it is from now on. */
static inline int ptt_seen_before(struct ptt_seen *seen, uint64_t page) {
    uint64_t region = page >> 9, at = ptt_seen_place(region), bit = (uint64_t)1 << (page & 63);
    if (seen->id[at] != region + 1) {
        seen->id[at] = region + 1;
        for (int i = 0; i < 8; i++) seen->pages[at][i] = 0;
    }
    uint64_t *pages = &seen->pages[at][page >> 6 & 7];
    int before = (*pages & bit) != 0;
    *pages |= bit;
    return before;
}

/* The same of a page that is in the table, which stays as it is. */
static inline int ptt_seen_surely(const struct ptt_seen *seen, uint64_t page) {
    uint64_t region = page >> 9, at = ptt_seen_place(region);
    return seen->id[at] == region + 1 && (seen->pages[at][page >> 6 & 7] >> (page & 63) & 1);
}

/* Forgets what a thread that knows of `done` ranges does not know of; 0: all must be forgotten. */
static inline int ptt_seen_forget(struct ptt_seen *seen, const struct ptt_lost *lost, uint64_t done) {
    if (lost->count - done > PTT_LOST) return 0;
    for (; done < lost->count; done++) {
        uint64_t first = lost->range[done % PTT_LOST].first, end = lost->range[done % PTT_LOST].end;
        if (end - first > PTT_SEEN) return 0;
        for (uint64_t region = first; region < end; region++)
            if (seen->id[ptt_seen_place(region)] == region + 1) seen->id[ptt_seen_place(region)] = 0;
    }
    return 1;
}

static inline void ptt_lose(struct ptt_lost *lost, uint64_t address, uint64_t bytes) {
    if (!bytes || address + bytes < address) return;
    lost->range[lost->count % PTT_LOST].first = address >> 21;
    lost->range[lost->count % PTT_LOST].end = ((address + bytes - 1) >> 21) + 1;
    lost->count++;
}

/* Regions as a whole, and whatever changes or advises: more than the analysis forgets, never less. 1: there were any. */
static inline int ptt_lose_by(struct ptt_lost *lost, const struct ptt_event *event) {
    uint64_t result = (uint64_t)event->result;
    uint64_t before = lost->count;
    if (event->result < 0) return 0;
    switch (event->kind) {
        case PTT_MUNMAP:
        case PTT_MPROTECT:
        case PTT_MADVISE: ptt_lose(lost, event->a, event->b); break;
        case PTT_MMAP: ptt_lose(lost, result, event->b); break;
        case PTT_MREMAP:
            ptt_lose(lost, event->a, event->b);
            ptt_lose(lost, result, event->c);
            break;
        case PTT_BRK:
            if (result < lost->brk) ptt_lose(lost, result, lost->brk - result);
            lost->brk = result;
    }
    return lost->count != before;
}

/* Whether an access is in a part of so many classes, by its page's number or by that of its 2 MiB page. */
static inline int ptt_in_classes(uint32_t classes, uint64_t page) {
    return (int)((classes >> (page & 15) | classes >> (page >> 9 & 15)) & 1);
}

#endif
