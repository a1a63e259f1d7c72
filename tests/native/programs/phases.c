/* A hash table that the main thread fills, and four threads look up: phases KEYS LOOKUPS [TAIL].
 * KEYS are inserted at random places of an open table of 2 * KEYS slots, each thread looks up LOOKUPS of them
 * in work(), abreast however busy the machine is; with TAIL the main thread goes over the table that often in
 * the end, and unmaps it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define THREADS 4
#define ABREAST 1000 /* lookups */

static pthread_barrier_t abreast;
static uint64_t *table, slots;
static uint64_t keys, lookups, found[THREADS];

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static void insert(uint64_t key) {
    uint64_t at = mixed(key) % slots;
    while (table[at])
        at = (at + 1) % slots;
    table[at] = key;
}

static int there(uint64_t key) {
    uint64_t at = mixed(key) % slots;
    while (table[at] && table[at] != key)
        at = (at + 1) % slots;
    return table[at] == key;
}

__attribute__((noinline)) void *work(void *argument) {
    uint64_t me = (uint64_t)argument, state = me + 1;
    for (uint64_t k = 0; k < lookups; k++) {
        if (k % ABREAST == 0)
            pthread_barrier_wait(&abreast);
        state = mixed(state + k);
        found[me] += there(1 + state % keys);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    if (argc < 3)
        return 2;
    keys = strtoull(argv[1], NULL, 10), lookups = strtoull(argv[2], NULL, 10), slots = 2 * keys;
    table = mmap(NULL, slots * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t key = 1; key <= keys; key++)
        insert(key);
    pthread_barrier_init(&abreast, NULL, THREADS);
    for (uint64_t k = 0; k < THREADS; k++)
        pthread_create(&threads[k], NULL, work, (void *)k);
    for (uint64_t k = 0; k < THREADS; k++) {
        pthread_join(threads[k], NULL);
        sum += found[k];
    }
    if (argc > 3) {
        for (long k = strtol(argv[3], NULL, 10); k; k--)
            for (uint64_t at = 0; at < slots; at += 512)
                sum += table[at] & k;
        munmap(table, slots * 8);
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
