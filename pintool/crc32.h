/* SPDX-License-Identifier: MIT
 *
 * zlib's CRC-32 (reflected 0xEDB88320), eight bytes at a time (Kounavis and Berry, "A systematic approach to
 * building high performance software-based CRC generators", ISCC 2005).
 */
#ifndef PTT_CRC32_H
#define PTT_CRC32_H

#include <stddef.h>
#include <stdint.h>

struct crc32_tables {
    uint32_t at[8][256];
};

static inline void crc32_prepare(crc32_tables *tables) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
        tables->at[0][byte] = value;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables->at[row - 1][byte];
            tables->at[row][byte] = before >> 8 ^ tables->at[0][before & 255];
        }
}

/* Continues `crc`, 0 at the start. */
static inline uint32_t crc32_update(const crc32_tables *tables, uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *p = (const uint8_t *)data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t word;
        __builtin_memcpy(&word, p, 8);
        word ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++) crc ^= tables->at[7 - i][word >> (8 * i) & 255];
    }
    for (; bytes; bytes--, p++) crc = crc >> 8 ^ tables->at[0][(crc ^ *p) & 255];
    return ~crc;
}

#endif
