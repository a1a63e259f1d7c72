/* SPDX-License-Identifier: MIT
 *
 * A key-value store: slots of 32 KiB, of which a lookup reads the head alone. The main thread fills in all heads, so
 * that the page tables of the store lie on its node; then four threads look up every key in two rounds, in orders
 * without locality, each from another key on, the second round in another order than the first.
 *
 * Heads are 8 pages apart: each has a page-table line of its own. Recorded by record_lookup.sh; README.md says why.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include "roi.h"

#define WORKERS 4
#define SLOT_BYTES 32768
#define SLOTS 340007 /* prime: key * step % SLOTS passes through all keys from 1 on, if step ... */

static const uint64_t steps[] = {97144, 283339}; /* ... is a primitive root of it; one per round */
#define ROUNDS (sizeof steps / sizeof *steps)
#define LOOKUPS ((uintmax_t)WORKERS * ROUNDS * (SLOTS - 1))

static char *store;
static pthread_barrier_t gate;

static uint64_t *head(uint64_t key) {
    return (uint64_t *)(store + key * SLOT_BYTES);
}

/* FNV-1a over the bytes of the key: what a head holds. */
static uint64_t hash(uint64_t key) {
    uint64_t sum = 0xcbf29ce484222325;
    for (int i = 0; i < 8; i++, key >>= 8) sum = (sum ^ (key & 0xff)) * 0x100000001b3;
    return sum;
}

static void *look_up_all(void *first) {
    uint64_t key = (uint64_t)(uintptr_t)first, found = 0;
    pthread_barrier_wait(&gate);
    for (size_t round = 0; round < ROUNDS; round++)
        for (int i = 1; i < SLOTS; i++) {
            found += *head(key) == hash(key);
            key = key * steps[round] % SLOTS;
        }
    pthread_barrier_wait(&gate); /* all have looked up */
    pthread_barrier_wait(&gate); /* the region has ended */
    return (void *)(uintptr_t)found;
}

int main(void) {
    store = mmap(NULL, (size_t)SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (store == MAP_FAILED) return perror("mmap"), 1;
    for (uint64_t key = 1; key < SLOTS; key++) *head(key) = hash(key);

    pthread_t workers[WORKERS];
    pthread_barrier_init(&gate, NULL, WORKERS + 1);
    for (uintptr_t i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, look_up_all, (void *)(1 + i * SLOTS / WORKERS))) return 1;

    PTT_ROI_BEGIN();
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    PTT_ROI_END();
    pthread_barrier_wait(&gate);

    uint64_t found = 0;
    for (int i = 0; i < WORKERS; i++) {
        void *own;
        pthread_join(workers[i], &own);
        found += (uintptr_t)own;
    }
    printf("%ju of %ju lookups found their key\n", (uintmax_t)found, LOOKUPS);
    return found != LOOKUPS;
}
