/* Threads that touch known 2 MiB regions before, inside and after the region of interest, one thread after the other.
 * Prints the address of the first region. Region 0 is the main thread's; the helper of each touch is the next thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include "../../../pintool/roi.h"

#define REGION (2L << 20)
#define REGIONS 16
#define MAPPED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)

static volatile char *base;

static void *store(void *address) {
    *(volatile uint64_t *)address = 1;
    return NULL;
}

static void *load(void *address) {
    (void)*(volatile char *)address;
    return NULL;
}

static void helper(void *(*how)(void *), long offset) {
    pthread_t thread;
    pthread_create(&thread, NULL, how, (void *)(base + offset));
    pthread_join(thread, NULL);
}

static void map(long offset, long bytes, int flags) {
    mmap((void *)(base + offset), bytes, PROT_READ | PROT_WRITE, MAPPED | flags, -1, 0);
}

int main(void) {
    char *any = mmap(NULL, (REGIONS + 1) * REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = (char *)(((uintptr_t)any + REGION - 1) & -REGION);
    map(0, REGIONS * REGION, 0);
    base[5] = 1;
    helper(store, REGION);               /* thread 1 */
    helper(load, 2 * REGION + 4096 * 9); /* thread 2 */
    helper(store, 2 * REGION);
    helper(store, 4 * REGION - 4); /* thread 4: regions 3 and 4 */
    helper(store, 5 * REGION);
    munmap((void *)(base + 5 * REGION), REGION);
    map(5 * REGION, REGION, 0);
    helper(store, 5 * REGION); /* thread 6 */
    map(5 * REGION, REGION, 0);
    helper(store, 5 * REGION); /* thread 7 */
    helper(store, 6 * REGION); /* thread 8 */
    munmap((void *)(base + 6 * REGION), REGION / 2);
    map(6 * REGION, REGION / 2, 0);
    helper(store, 6 * REGION);
    map(7 * REGION, REGION, MAP_POPULATE);
    helper(store, 7 * REGION);
    helper(store, 8 * REGION); /* thread 11 */
    mremap((void *)(base + 8 * REGION), REGION, REGION, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(base + 9 * REGION));
    helper(store, 9 * REGION);
    map(8 * REGION, REGION, 0);
    helper(store, 8 * REGION); /* thread 13 */
    PTT_ROI_BEGIN();
    helper(store, 10 * REGION);
    PTT_ROI_END();
    helper(store, 11 * REGION);
    PTT_ROI_BEGIN();
    helper(store, 12 * REGION);
    PTT_ROI_END();
    helper(store, 13 * REGION);
    printf("%p\n", (void *)base);
    return 0;
}
