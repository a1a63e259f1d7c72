/* SPDX-License-Identifier: MIT
 *
 * A key-value store: slots of 32 KiB, of which a lookup reads the head alone. The main thread fills in all heads, so
 * that the page tables of the store lie on its node; then four threads look up every key in two rounds, in orders
 * without locality, each from another key on, the second round in another order than the first.
 *
 * Heads are 8 pages apart: each has a page-table line of its own. Recorded by record_lookup.sh; README.md says why.
 *
 * With -DIN_GUEST, for record_vm.py: a smaller store whose slots are filled in whole, one word per page, so that each
 * head has a line of its own in the nested table too. Thread i runs on CPU i and fills a quarter of the store. The
 * process stays for its dump until its input ends.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include "roi.h"

#define WORKERS 4
#define SLOT_BYTES 32768
#define PAGE_BYTES 4096
/* SLOTS is a prime: key * step % SLOTS passes through all keys from 1 on, if step is a primitive root of it */
#ifdef IN_GUEST
enum { SLOTS = 12281, FILLED = SLOT_BYTES, EACH_FILLS = 1, STAYS = 1 };
static const uint64_t steps[] = {3509, 10235};
#else
enum { SLOTS = 340007, FILLED = PAGE_BYTES, EACH_FILLS = 0, STAYS = 0 };
static const uint64_t steps[] = {97144, 283339};
#endif
#define ROUNDS (sizeof steps / sizeof *steps) /* a step for each */
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

static uint64_t first_key(uint64_t worker) {
    return 1 + worker * SLOTS / WORKERS;
}

static void fill(uint64_t key, uint64_t end) {
    for (; key < end && key < SLOTS; key++)
        for (size_t at = 0; at < FILLED; at += PAGE_BYTES) *(uint64_t *)((char *)head(key) + at) = hash(key);
}

static void fill_part(uint64_t worker) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(worker, &cpu);
    if (sched_setaffinity(0, sizeof cpu, &cpu)) perror("sched_setaffinity");
    fill(first_key(worker), first_key(worker + 1));
}

static void *look_up_all(void *worker) {
    uint64_t key = first_key((uintptr_t)worker), found = 0;
    if (EACH_FILLS) {
        fill_part((uintptr_t)worker);
        pthread_barrier_wait(&gate); /* all have filled in theirs */
    }
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
    if (!EACH_FILLS) fill(1, SLOTS);

    pthread_t workers[WORKERS];
    pthread_barrier_init(&gate, NULL, WORKERS + 1);
    for (uintptr_t i = 0; i < WORKERS; i++)
        if (pthread_create(&workers[i], NULL, look_up_all, (void *)i)) return 1;
    if (EACH_FILLS) pthread_barrier_wait(&gate);

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
    fflush(stdout);
    if (STAYS) getchar();
    return found != LOOKUPS;
}
