/* SPDX-License-Identifier: MIT
 *
 * The touches of a chunk, without those that change no TLB.
 *
 * A touch between two touches of the same page can be left out when fewer than k other pages were touched in between: an
 * LRU memory of k pages or more keeps the page all the time, so the touch hits, and it does not alter which page is the
 * oldest (Kaplan, Smaragdakis, Wilson, "Trace reduction for virtual memory simulations", SIGMETRICS 1999: Safely
 * Allowed Drop). Pages of one set of a first-level TLB are such a memory, with as many pages as it has ways; what hits
 * there is never seen by the second level.
 *
 * A page has a slot while that condition surely holds for every array of PTT_REACH; of its touches in that time the
 * first, the first store and the last become records (slots.h). Every chunk begins with empty slots, so that what happens
 * between chunks (shootdowns, changes of mappings, other threads on the CPU) needs no thought.
 */
#ifndef PTT_STRIP_H
#define PTT_STRIP_H

#include "slots.h"

/* 1 when the access was counted, as part of the last touch; 0: it is not that, or its count is full. */
static inline int ptt_strip_same(struct ptt_strip *strip, uint64_t page, uint64_t store) {
    struct ptt_slot *slot = strip->recent;
    if (slot->key[store] != page || slot->merged >= PTT_FULL) return 0;
    slot->merged = (slot->merged + 2) | store;
    return 1;
}

/* 1 when the access was counted: as part of the last touch, or as a touch to leave out; 0: ptt_strip_more, after making
 * room if that is needed. No branch on which of the two it is: nothing foretells. */
static inline int ptt_strip_known(struct ptt_strip *strip, uint64_t page, uint64_t store) {
    struct ptt_slot *slot = &strip->slot[strip->find[ptt_hash(page)]];
    __asm__("" : "+r"(slot)); /* one register for all that follows: GCC would work it out three times */
    if (strip->touches >= strip->room || slot->key[store] != page || slot->merged >= PTT_FULL) return 0;
    strip->touches += slot != strip->recent;
    slot->last = strip->touches - 1;
    slot->merged = (slot->merged + 2) | store;
    strip->recent = slot;
    return 1;
}

/* Its slot from the touch at the last place, a record, on. */
static inline void ptt_open_slot(struct ptt_strip *strip, struct ptt_slot *slot, uint64_t page, uint64_t store) {
    slot->key[0] = page;
    slot->key[1] = store ? page : PTT_NO_PAGE;
    slot->merged = 0;
    slot->first = slot->last = strip->touches - 1;
    slot->gone = slot->gone_own = slot->gone_beside = 0;
    strip->first[slot - strip->slot] = (int16_t)slot->first;
    strip->closed_at[slot - strip->slot] = strip->closed;
    strip->recent = slot;
}

static inline struct ptt_slot *ptt_slot_of(struct ptt_strip *strip, uint64_t page) {
    struct ptt_slot *set = &strip->slot[(page & 15) * PTT_WAYS];
    for (int i = 0; i < PTT_WAYS; i++)
        if (set[i].key[0] == page) return &set[i];
    return NULL;
}

/* For the rest of the chunk, and some more, only consecutive accesses are merged: too little else is left out. */
static inline void ptt_strip_rest(struct ptt_strip *strip) {
    PTT_EACH_BIT(i, strip->used) ptt_close(strip, i);
    strip->whole = 1;
    strip->room = 0;
    strip->rest = PTT_REST;
}

/* ptt_strip_more when only consecutive accesses are merged; slot 0 is that of the last one. */
static inline void ptt_strip_next(struct ptt_strip *strip, uint64_t page, uint64_t store) {
    struct ptt_slot *slot = strip->slot;
    uint64_t *before = &strip->record[slot->first]; /* no branch: which accesses repeat a page, nothing foretells */
    *before = (*before + (slot->merged & ~(uint64_t)1)) | (slot->merged & 1);
    slot->merged = 0;
    slot->key[0] = slot->key[1] = page;
    slot->first = slot->last = strip->touches;
    ptt_put_record(strip, strip->touches++, page << PTT_PAGE_SHIFT | 2 | store);
    strip->recent = slot;
}

/* An access that is not just counted. Needs a place, unless it is part of the last touch. */
static inline void ptt_strip_more(struct ptt_strip *strip, uint64_t page, uint64_t store) {
    if (strip->whole) return ptt_strip_next(strip, page, store);
    struct ptt_slot *slot = ptt_slot_of(strip, page);
    uint64_t touch = page << PTT_PAGE_SHIFT | 2 | store;
    if (slot && slot->merged >= PTT_FULL) ptt_close(strip, (uint64_t)(slot - strip->slot)), slot = NULL;
    if (slot && slot->key[store] == page) { /* it was not where ptt_strip_known looked */
        strip->find[ptt_hash(page)] = (uint8_t)(slot - strip->slot);
        ptt_strip_known(strip, page, store);
        return;
    }
    if (slot && slot == strip->recent) { /* the first store, part of the last touch */
        if (slot->last == slot->first) {
            slot->key[1] = page;
            strip->record[slot->first] = (strip->record[slot->first] + 2) | store;
            return;
        }
        ptt_put_record(strip, slot->last, touch + slot->merged);
    } else {
        if (!slot && strip->came == PTT_TRY && strip->touches <= 2 * PTT_TRY) {
            ptt_strip_rest(strip);
            return ptt_strip_next(strip, page, store);
        }
        if (slot)
            strip->record[slot->first] += slot->merged & ~(uint64_t)1;
        else
            slot = ptt_page_comes(strip, page);
        strip->find[ptt_hash(page)] = (uint8_t)(slot - strip->slot);
        ptt_put_record(strip, strip->touches++, touch);
    }
    ptt_open_slot(strip, slot, page, store);
}

/* Before the first access of a chunk. `whole`: nothing is to be stripped. */
static inline void ptt_strip_begin(struct ptt_strip *strip, int whole) {
    strip->whole = whole || strip->rest;
    strip->room = strip->whole ? 0 : PTT_CHUNK_RECORDS;
    if (strip->rest) strip->rest--;
}

/* Whether an access begins a touch of its own. */
static inline int ptt_strip_begins(const struct ptt_strip *strip, uint64_t page) {
    return strip->recent->key[0] != page || strip->recent->merged >= PTT_FULL;
}

/* Moves the chunk's records to the front of `record`; returns how many. Clear it afterwards. */
static inline size_t ptt_strip_collect(struct ptt_strip *strip) {
    size_t n = 0;
    for (int i = 0; i < PTT_SLOTS; i++) ptt_settle(strip, &strip->slot[i]);
    for (size_t i = 0; i < PTT_CHUNK_RECORDS / 64; i++)
        for (uint64_t left = strip->taken[i]; left; left &= left - 1)
            strip->record[n++] = strip->record[64 * i + (size_t)__builtin_ctzll(left)];
    return n;
}

#endif
