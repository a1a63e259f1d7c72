/* SPDX-License-Identifier: MIT
 *
 * The pages that a chunk's touches can be left out of, and when that ends for a page: see strip.h for the rule.
 *
 * To know that a page has met few others, all other pages with a slot count as touched since its record, and each page
 * that lost its slot since, unless it came back.
 */
#ifndef PTT_SLOTS_H
#define PTT_SLOTS_H

#include "encode.h"

/* Arrays that a stripped trace is exact for: of this page size (1, 2, 3: 4 KiB, 2 MiB, 1 GiB), with a multiple of `sets`
 * sets and `ways` ways or more, true LRU. Others that a page may meet between two records: */
#define PTT_REACH {{1, 16, 4, 0}, {1, 1, 64, 0}, {2, 8, 4, 0}, {2, 4, 8, 0}, {2, 1, 64, 0}, {3, 1, 64, 0}}
#define PTT_MEET_SET 3    /* of its set of 16, below 4 */
#define PTT_MEET_ALL 63   /* of all, below 64 */
#define PTT_MEET_OWN 3    /* 2 MiB regions, of its set of 8: below 4; with 4 of the set beside it, which */
#define PTT_MEET_BESIDE 4 /* has the same low two bits, 7 of its set of 4: below 8 */

#define PTT_WAYS 4    /* slots per set of 16, places for regions per set of 8 */
#define PTT_SLOTS (16 * PTT_WAYS)
#define PTT_LIVE 40   /* slots in use at most */
#define PTT_LOOK 8    /* pages that come until PTT_MEET_ALL is looked at again */
#define PTT_FIND 256  /* hashes of pages: where the slot was last */
#define PTT_TRY 256   /* pages that come, until a chunk of which these are half the touches is no longer stripped */
#define PTT_REST 7    /* chunks after such a one that are not stripped either */
#define PTT_GONE_REGIONS 64 /* hashes of regions */
#define PTT_NO_PAGE (~(uint64_t)0)
#define PTT_FULL ((uint64_t)1 << 17) /* ptt_slot.merged of 2^16 accesses: well below PTT_COUNT_MAX */

struct ptt_slot {
    uint64_t key[2]; /* the page; for stores: PTT_NO_PAGE until one was recorded */
    uint64_t merged; /* count << 1 | store of the accesses since record `first` */
    uint32_t first;  /* place of its last record */
    uint32_t last;   /* place of its last touch */
    struct ptt_region *region;
    uint8_t gone;    /* pages of its set that were touched since `first` and lost their slots */
    uint8_t gone_own, gone_beside; /* regions, the same */
} __attribute__((aligned(64))); /* found by a shift */

struct ptt_region {
    uint64_t id;   /* address >> 21 */
    uint32_t last; /* place of its last touch through a slot that was closed */
    uint32_t slots;
};

/* What lost its slot or its place in this chunk: when it comes back, it is no longer among those that are gone. */
struct ptt_gone {
    uint64_t id; /* page or region */
    uint32_t last, chunk;
};

struct ptt_strip {
    struct ptt_slot *recent; /* of the last access */
    uint32_t touches; /* of this chunk so far, left out or not: the place of the next one */
    uint32_t room;    /* touches that ptt_strip_known may count up to: none in chunks that are `whole` */
    int whole;        /* only consecutive accesses are merged */
    int rest;         /* chunks until the next that is stripped */
    uint16_t came, closed; /* pages that were given a slot, that lost it */
    int live;
    uint64_t used;    /* a bit for each slot in use, `live` of them */
    int16_t first[PTT_SLOTS];   /* of slots, side by side: all are looked at together */
    uint16_t closed_at[PTT_SLOTS]; /* `closed` at that place, and one more for each that came back since */
    uint8_t find[PTT_FIND];
    uint32_t chunk;
    struct ptt_gone gone[PTT_FIND], gone_region[PTT_GONE_REGIONS];
    struct ptt_region region[8][PTT_WAYS];
    uint64_t taken[PTT_CHUNK_RECORDS / 64]; /* places that hold a record */
    uint64_t record[PTT_CHUNK_RECORDS];     /* by place */
    struct ptt_slot slot[PTT_SLOTS];
};

static inline void ptt_strip_clear(struct ptt_strip *strip) {
    strip->recent = strip->slot;
    strip->touches = 0;
    strip->chunk++;
    strip->came = strip->closed = 0;
    strip->used = 0;
    strip->live = 0;
    for (int i = 0; i < 8 * PTT_WAYS; i++) {
        strip->region[i / PTT_WAYS][i % PTT_WAYS].id = PTT_NO_PAGE;
        strip->region[i / PTT_WAYS][i % PTT_WAYS].last = 0;
    }
    for (int i = 0; i < PTT_CHUNK_RECORDS / 64; i++) strip->taken[i] = 0;
    for (int i = 0; i < PTT_SLOTS; i++) {
        strip->slot[i].key[0] = strip->slot[i].key[1] = PTT_NO_PAGE;
        strip->slot[i].merged = 0;
    }
}

static inline void ptt_put_record(struct ptt_strip *strip, uint32_t place, uint64_t touch) {
    strip->record[place] = touch;
    strip->taken[place >> 6] |= (uint64_t)1 << (place & 63);
}

static inline unsigned ptt_hash(uint64_t page) { return (unsigned)(page ^ page >> 9) % PTT_FIND; }

/* The last touch becomes a record, unless the last record is of the same touch. */
static inline void ptt_settle(struct ptt_strip *strip, struct ptt_slot *slot) {
    uint64_t merged = slot->merged;
    slot->merged = 0;
    if (!merged) return;
    if (slot->last == slot->first)
        strip->record[slot->first] = (strip->record[slot->first] + (merged & ~(uint64_t)1)) | (merged & 1);
    else
        ptt_put_record(strip, slot->last, slot->key[0] << PTT_PAGE_SHIFT | merged);
}

#define PTT_EACH_BIT(i, bits) \
    for (uint64_t ptt_bits = (bits), i; ptt_bits && (i = (uint64_t)__builtin_ctzll(ptt_bits), 1); ptt_bits &= ptt_bits - 1)

/* Of the lowest four; the compiler's own would be a call into its library. */
static inline int ptt_bits_of_4(uint64_t bits) { return (int)(0x4332322132212110u >> (bits & 15) * 4 & 15); }

static inline void ptt_close(struct ptt_strip *strip, uint64_t number) {
    struct ptt_slot *slot = &strip->slot[number], *set = &strip->slot[number & ~(uint64_t)(PTT_WAYS - 1)];
    strip->gone[ptt_hash(slot->key[0])] = {slot->key[0], slot->last, strip->chunk};
    ptt_settle(strip, slot);
    slot->key[0] = slot->key[1] = PTT_NO_PAGE;
    for (int i = 0; i < PTT_WAYS; i++) set[i].gone += slot->last > set[i].first;
    if (slot->region->last < slot->last) slot->region->last = slot->last;
    strip->closed++;
    strip->used &= ~((uint64_t)1 << number);
    strip->live--;
}

/* If the page had a slot before in this chunk, those that met it then do not count it twice. */
static inline void ptt_page_is_back(struct ptt_strip *strip, uint64_t page) {
    const struct ptt_gone *gone = &strip->gone[ptt_hash(page)];
    struct ptt_slot *set = &strip->slot[(page & 15) * PTT_WAYS];
    if (gone->id != page || gone->chunk != strip->chunk) return;
    int16_t last = (int16_t)gone->last;
    for (int i = 0; i < PTT_SLOTS; i++) strip->closed_at[i] = (uint16_t)(strip->closed_at[i] + (last > strip->first[i]));
    for (int i = 0; i < PTT_WAYS; i++) set[i].gone -= gone->last > set[i].first;
}

static inline void ptt_region_is_back(struct ptt_strip *strip, uint64_t id) {
    const struct ptt_gone *gone = &strip->gone_region[(id ^ id >> 6) % PTT_GONE_REGIONS];
    if (gone->id != id || gone->chunk != strip->chunk) return;
    PTT_EACH_BIT(i, strip->used) {
        struct ptt_slot *slot = &strip->slot[i];
        if ((slot->region->id & 3) != (id & 3) || gone->last <= slot->first) continue;
        slot->gone_own -= (slot->region->id & 7) == (id & 7);
        slot->gone_beside -= (slot->region->id & 7) != (id & 7);
    }
}

/* A slot for a page that comes to a set of 16; closes pages that have met enough others. */
static inline struct ptt_slot *ptt_free_slot(struct ptt_strip *strip, uint64_t page) {
    uint64_t first = (page & 15) * PTT_WAYS, mask = (uint64_t)((1 << PTT_WAYS) - 1) << first, oldest = first;
    if ((strip->used & mask) == mask) {
        for (uint64_t i = first + 1; i < first + PTT_WAYS; i++)
            if (strip->slot[i].last < strip->slot[oldest].last) oldest = i;
        ptt_close(strip, oldest);
    }
    PTT_EACH_BIT(i, strip->used & mask)
        if (strip->slot[i].gone + ptt_bits_of_4(strip->used >> first) > PTT_MEET_SET) ptt_close(strip, i);
    return &strip->slot[__builtin_ctzll(~strip->used & mask)];
}

/* A place for a region that comes to its set of 8; closes pages whose regions have met enough others. */
static inline struct ptt_region *ptt_free_region(struct ptt_strip *strip, uint64_t id) {
    struct ptt_region *set = strip->region[id & 7], *oldest = set;
    int residents = 0;
    PTT_EACH_BIT(i, strip->used)
        if (strip->slot[i].region->last < strip->slot[i].last) strip->slot[i].region->last = strip->slot[i].last;
    for (int i = 0; i < PTT_WAYS; i++) {
        residents += set[i].id != PTT_NO_PAGE;
        if (set[i].id == PTT_NO_PAGE || (oldest->id != PTT_NO_PAGE && set[i].last < oldest->last)) oldest = &set[i];
    }
    int full = residents == PTT_WAYS;
    residents += !full;
    ptt_region_is_back(strip, id);
    if (full) strip->gone_region[(oldest->id ^ oldest->id >> 6) % PTT_GONE_REGIONS] = {oldest->id, oldest->last, strip->chunk};
    PTT_EACH_BIT(i, strip->used) {
        struct ptt_slot *slot = &strip->slot[i];
        uint64_t its = slot->region->id;
        int gone = full && oldest->last > slot->first;
        if ((its & 3) != (id & 3)) continue;
        if ((its & 7) == (id & 7)) {
            slot->gone_own += gone;
            if (slot->region == oldest || slot->gone_own + residents - 1 > PTT_MEET_OWN) ptt_close(strip, i);
        } else {
            slot->gone_beside += gone;
            if (slot->gone_beside + residents > PTT_MEET_BESIDE) ptt_close(strip, i);
        }
    }
    oldest->id = id;
    return oldest;
}

static inline struct ptt_region *ptt_region_of(struct ptt_strip *strip, uint64_t id) {
    struct ptt_region *set = strip->region[id & 7];
    for (int i = 0; i < PTT_WAYS; i++)
        if (set[i].id == id) return &set[i];
    return ptt_free_region(strip, id);
}

/* Closes the pages that were not touched for longest. */
static inline void ptt_make_room(struct ptt_strip *strip) {
    uint32_t oldest = ~(uint32_t)0;
    PTT_EACH_BIT(i, strip->used) if (strip->slot[i].last < oldest) oldest = strip->slot[i].last;
    uint32_t until = oldest + (strip->touches - oldest) / 4;
    PTT_EACH_BIT(i, strip->used) if (strip->slot[i].last <= until) ptt_close(strip, i);
}

static inline struct ptt_slot *ptt_page_comes(struct ptt_strip *strip, uint64_t page) {
    if (strip->live == PTT_LIVE) ptt_make_room(strip);
    struct ptt_region *region = ptt_region_of(strip, page >> 9);
    ptt_page_is_back(strip, page);
    struct ptt_slot *slot = ptt_free_slot(strip, page);
    region->last = strip->touches;
    slot->region = region;
    if (++strip->came % PTT_LOOK == 0) {
        int most = PTT_MEET_ALL - PTT_LOOK - strip->live;
        PTT_EACH_BIT(i, strip->used) if ((uint16_t)(strip->closed - strip->closed_at[i]) > most) ptt_close(strip, i);
    }
    strip->used |= (uint64_t)1 << (slot - strip->slot);
    strip->live++;
    return slot;
}

#endif
