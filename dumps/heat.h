/* SPDX-License-Identifier: MIT */
/*
 * What ptheat writes, little endian: a header, then records of one sample after another. A record of level 0 ends its
 * sample. analyzer/ptanalyze/formats/heat.py mirrors these structures; a test holds them equal.
 */
#ifndef HEAT_H
#define HEAT_H

#include <stdint.h>
#include "records.h"

#define HEAT_MAGIC "PTHEATBS"
#define HEAT_VERSION 2
#define HEAT_WORDS                                                                                    \
	"88-byte records, little endian: u64 first address that the table maps, u64 level of the table (1 = 4 KiB " \
	"entries), u64 nanoseconds from clearing of this table to reading of it, u64[8] bit per entry: it maps a page " \
	"whose accessed bit was set. Level 0 ends a sample: u64[8] nanoseconds from the end of clearing to the " \
	"beginning of reading, of clearing, of reading; tables read; nanoseconds asked for.\n"

struct heat_header {
	char magic[8];
	uint32_t version, byte_order, header_bytes, record_bytes;
	char words[488];
};
struct heat_record {
	uint64_t base, level, window, word[8];
};

_Static_assert(sizeof(struct heat_header) == 512, "header is 512 bytes");
_Static_assert(sizeof(struct heat_record) == 88, "record is 88 bytes");

#endif
