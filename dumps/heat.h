/* SPDX-License-Identifier: MIT */
/*
 * What ptheat writes, little endian: a header, then records of one reading after another. A record of level 0 ends its
 * reading. analyzer/ptanalyze/formats/heat.py mirrors these structures; a test holds them equal.
 */
#ifndef HEAT_H
#define HEAT_H

#include <stdint.h>
#include "records.h"

#define HEAT_MAGIC "PTHEATBS"
#define HEAT_VERSION 3
#define HEAT_WORDS                                                                                    \
	"88-byte records, little endian: u64 first address that the table maps, u32 its level (1 = 4 KiB entries), u32 " \
	"CPU time of the process and u64 ns from clearing to reading of it, both 0 if not known, u64[8] bit per entry: " \
	"it maps a page whose accessed bit was set. Level 0 ends a reading: u64 tables that map pages; u32 0; u32 ns a bit costs; u64 " \
	"ns from shortest to longest window; u64[8] ns of the shortest, of clearing, of reading; tables read; ns asked " \
	"for; round; CPU ns; ns.\n"
#define HEAT_CPU_NS 100 /* unit of a record's CPU time */

struct heat_header {
	char magic[8];
	uint32_t version, byte_order, header_bytes, record_bytes;
	char words[488];
};
struct heat_record {
	uint64_t base;
	uint32_t level, cpu;
	uint64_t window, word[8];
};

_Static_assert(sizeof(struct heat_header) == 512, "header is 512 bytes");
_Static_assert(sizeof(struct heat_record) == 88, "record is 88 bytes");

#endif
