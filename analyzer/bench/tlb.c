/* The TLB of bench_others.py as one would write it in C: 64 entries, 4 ways, over 1,536, 12 ways, true LRU.
 * "tlb PAGES N ROUNDS": PAGES holds N page numbers (u32). Prints the walks and the fastest round's seconds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t level1[16][4], level2[128][12];

/* Whether the page is in the set; it is the most recent one (the first) afterwards. */
static inline int touch(uint32_t *set, int ways, uint32_t page) {
    int at = 0;
    while (at < ways - 1 && set[at] != page)
        at++;
    int hit = set[at] == page;
    memmove(set + 1, set, at * sizeof *set);
    set[0] = page;
    return hit;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    size_t n = strtoull(argv[2], 0, 10), walks = 0;
    uint32_t *pages = malloc(n * sizeof *pages), *walked = malloc(n * sizeof *walked);
    FILE *file = fopen(argv[1], "rb");
    if (!file || !pages || !walked || fread(pages, sizeof *pages, n, file) != n)
        return 1;
    double best = 1e9;
    for (int round = atoi(argv[3]); round > 0; round--) {
        memset(level1, 0xFF, sizeof level1);
        memset(level2, 0xFF, sizeof level2);
        double begun = now();
        walks = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t page = pages[i];
            if (touch(level1[page % 16], 4, page) || touch(level2[page % 128], 12, page))
                continue;
            walked[walks++] = page;
        }
        double took = now() - begun;
        best = took < best ? took : best;
    }
    printf("%zu %.9f\n", walks, best);
}
