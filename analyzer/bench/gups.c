/* Random updates of a table, as HPCC RandomAccess: "gups MIB UPDATES". One load and one store each. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    uint64_t bytes = argc > 2 ? strtoull(argv[1], 0, 10) << 20 : 1 << 20;
    uint64_t n = argc > 2 ? strtoull(argv[2], 0, 10) : 1, x = 88172645463325252u;
    uint64_t *table = aligned_alloc(4096, bytes);
    for (uint64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        table[x & (bytes / 8 - 1)] ^= x;
    }
    printf("%lx\n", table[0]);
}
