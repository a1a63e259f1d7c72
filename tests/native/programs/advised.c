/* Maps 8 regions of 2 MiB, asks huge pages for the first four and uses all; so it does with as much from malloc.
 * With an argument it first forbids itself huge pages. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define REGION (2L << 20)
#define REGIONS 8

static void use(volatile char *from) {
    for (long at = 0; at < REGIONS * REGION; at += 4096) from[at] = 1;
}

int main(int words, char **word) {
    char *any = mmap(NULL, (REGIONS + 1) * REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *base = (char *)(((uintptr_t)any + REGION - 1) & -REGION);
    (void)word;
    if (words > 1) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    madvise(base, REGIONS / 2 * REGION, MADV_HUGEPAGE);
    use(base);
    use(malloc(REGIONS * REGION));
    return 0;
}
