/* SPDX-License-Identifier: MIT
 *
 * Programs of any size with one law of accesses each: "size PATTERN MIB ACCESSES THREADS". For the self-check of
 * --stands-for, the data are touched before the marked region, and half as many accesses again warm it. For trials of page
 * sizes, ACCESSES is 0: one thread goes on for ever, and prints a line for each batch of them.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "roi.h"

typedef uint64_t u64;
enum { PAGE = 512, FIXED = 4u << 20, MOST = 64, BATCH = 1 << 14 };

static u64 n, ops, *tab, *second;
static u64 threads, sink;
static pthread_barrier_t together;

static u64 next(u64 *s) { return *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17; }
static u64 mixed(u64 x) {
    x *= 0x9E3779B97F4A7C15ull, x ^= x >> 29, x *= 0xBF58476D1CE4E5B9ull;
    return x ^ (x >> 32);
}
static double part(u64 *s) { return (double)(next(s) >> 11) / 9007199254740992.0; }

/* A look-up of each pattern; t: the thread, i: its number, s: random numbers. */
static u64 hash(u64 t, u64 i, u64 *s) {
    u64 slot = mixed(next(s)) % (n / 2 - 8), sum = 0;
    for (u64 j = 0; j < 3; j++) sum += tab[2 * (slot + j)];
    return sum;
}
static u64 binary(u64 t, u64 i, u64 *s) {
    u64 lo = 0, hi = n, key = next(s) % n;
    while (lo < hi) {
        u64 m = (lo + hi) / 2;
        if (tab[m] < key) lo = m + 1;
        else hi = m;
    }
    return lo;
}
static u64 stream(u64 t, u64 i, u64 *s) { /* 16 of a sweep, then one anywhere */
    u64 each = n / threads, sum = 0;
    for (u64 j = 0; j < 16; j++) sum += second[t * each + (i * 16 + j) % each];
    return sum + tab[next(s) % n];
}
static u64 sweep(u64 t, u64 i, u64 *s) { return tab[i % n]; }
static u64 update(u64 t, u64 i, u64 *s) { return tab[next(s) % n] ^= i; } /* GUPS */
static u64 follow(u64 t, u64 i, u64 *s) { /* one random cycle through all lines: each read waits for the last */
    static u64 at;
    return at = tab[at];
}
static u64 fixed(u64 t, u64 i, u64 *s) { /* a table of 32 MiB beside one that grows */
    u64 sum = 0;
    for (int j = 0; j < 4; j++) sum += second[next(s) % FIXED];
    return sum + tab[next(s) % n];
}
static u64 zipf(u64 t, u64 i, u64 *s) { /* exponent 1, objects of a line, scattered */
    u64 rank = (u64)exp(part(s) * log((double)(n / 8)));
    return tab[mixed(rank) % (n / 8) * 8];
}
static u64 tree(u64 t, u64 i, u64 *s) { /* nodes of 512 bytes, 64 children, no two of a path near */
    u64 nodes = n / 64, at = 0, sum = 0, key = next(s);
    for (u64 span = 1; span < nodes; span *= 64) {
        at = (at * 64 + key % 64 + 1) % nodes, key = mixed(key);
        sum += tab[mixed(at) % nodes * 64 + key % 64];
    }
    return sum;
}
static u64 chase(u64 t, u64 i, u64 *s) { /* a list in random order, four cells of a page, then a jump */
    static __thread u64 at;
    if (i % 4 == 0) at = mixed(at * 2654435761u + i + (t << 40)) % (n / PAGE) * PAGE;
    return tab[at + next(s) % PAGE];
}
static u64 graph(u64 t, u64 i, u64 *s) { /* row of a vertex, a run of its edges, the state of each target */
    u64 vertices = n / 32, v = next(s) % vertices, sum = tab[v];
    u64 edge = vertices + mixed(v) % (n - 2 * vertices - 16);
    for (u64 j = 0; j < 8; j++) sum += tab[edge + j] + tab[n - vertices + mixed(v * 8 + j) % vertices];
    return sum;
}
static u64 join(u64 t, u64 i, u64 *s) { /* a relation is read in order, each key probes a table */
    u64 each = n / threads;
    return second[t * each + i % each] + tab[mixed(t << 40 | i) % n];
}
static u64 section(u64 t, u64 i, u64 *s) { /* a search of a grid of 1/16, then three rows anywhere */
    u64 grid = n / 16, lo = 0, hi = grid, key = next(s) % grid, sum = 0;
    while (hi - lo > 1) {
        u64 m = (lo + hi) / 2;
        if (tab[m] <= key) lo = m;
        else hi = m;
    }
    for (u64 j = 0; j < 3; j++) sum += tab[grid + mixed(lo * 3 + j) % (n - grid)];
    return sum;
}
static u64 swap(u64 t, u64 i, u64 *s) { /* two elements and four neighbours of each, half of them near */
    u64 sum = 0;
    for (int k = 0; k < 2; k++) {
        u64 at = next(s) % n;
        for (int j = 0; j < 4; j++) sum += tab[j & 1 ? next(s) % n : (at + next(s) % 4096) % n];
    }
    return sum;
}
static u64 own(u64 t, u64 i, u64 *s) { /* half in a part of the thread's own, half in what all share */
    u64 each = n / 2 / threads;
    return tab[t * each + next(s) % each] + tab[n / 2 + next(s) % (n / 2)];
}
static u64 window(u64 t, u64 i, u64 *s) { /* a window of a tenth moves through the data */
    u64 wide = n / 10, at = (u64)((double)i / (double)ops * (double)(n - wide));
    return tab[at + next(s) % wide];
}

static const struct {
    const char *name;
    u64 (*look)(u64, u64, u64 *);
    int two; /* 1: a second array as large, 2: a fixed one */
} PATTERNS[] = {{"hash", hash, 0},   {"binary", binary, 0},   {"stream", stream, 1}, {"fixed", fixed, 2},
                {"zipf", zipf, 0},   {"tree", tree, 0},       {"chase", chase, 0},   {"graph", graph, 0},
                {"join", join, 1},   {"section", section, 0}, {"swap", swap, 0},     {"own", own, 0},
                {"window", window, 0}, {"sweep", sweep, 0},     {"update", update, 0}, {"follow", follow, 0}};
static u64 (*look)(u64, u64, u64 *);

static void *worker(void *number) {
    u64 t = (u64)number, s = mixed(t + 1) | 1, sum = 0;
    for (int region = 0; region < 2; region++) {
        pthread_barrier_wait(&together);
        if (region && !t) PTT_ROI_BEGIN();
        pthread_barrier_wait(&together);
        for (u64 i = 0; i < (region ? ops : ops / 8); i++) sum += look(t, i, &s);
    }
    pthread_barrier_wait(&together);
    if (!t) PTT_ROI_END();
    __atomic_add_fetch(&sink, sum, __ATOMIC_RELAXED);
    return 0;
}

static u64 *array(u64 words) {
    u64 *at = mmap(0, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) exit(2);
    if (ops) madvise(at, words * 8, MADV_NOHUGEPAGE);
    for (u64 i = 0; i < words; i += PAGE) at[i] = i;
    return at;
}

static void chain(void) {
    u64 s = 1;
    for (u64 i = 0; i < n; i += 8) tab[i] = i;
    for (u64 i = n / 8 - 1; i; i--) {
        u64 j = next(&s) % i * 8, was = tab[i * 8];
        tab[i * 8] = tab[j], tab[j] = was;
    }
}

static void for_ever(void) {
    u64 s = 1, sum = 0;
    puts("ready");
    for (u64 i = 0;; i++) {
        sum += look(0, i, &s);
        if (i % BATCH == 0) puts(sum ? "on" : "of"), fflush(stdout);
    }
}

int main(int argc, char **argv) {
    pthread_t other[MOST];
    int two = 0;
    if (argc < 5) return 2;
    n = strtoull(argv[2], 0, 10) << 17, threads = strtoull(argv[4], 0, 10), ops = strtoull(argv[3], 0, 10) / threads;
    for (size_t k = 0; k < sizeof PATTERNS / sizeof *PATTERNS; k++)
        if (!strcmp(argv[1], PATTERNS[k].name)) look = PATTERNS[k].look, two = PATTERNS[k].two;
    if (!look || threads > MOST) return 2;
    tab = array(n);
    if (look == binary || look == section)
        for (u64 i = 0; i < n; i++) tab[i] = i;
    mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* else two arrays may be one VMA */
    if (look == follow) chain();
    if (two) second = array(two == 1 ? n : FIXED);
    if (!ops) for_ever();
    pthread_barrier_init(&together, 0, (unsigned)threads);
    for (u64 t = 1; t < threads; t++) pthread_create(&other[t], 0, worker, (void *)t);
    worker(0);
    for (u64 t = 1; t < threads; t++) pthread_join(other[t], 0);
    return sink == 1;
}
