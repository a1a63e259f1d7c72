/* SPDX-License-Identifier: MIT */
/*
 * A radix page table on disk: NAME.tables and NAME.entries, little endian.
 *
 * NAME.tables   struct pt_header, then one struct pt_table a table page.
 * NAME.entries  struct pt_header padded with zeros to PT_ENTRIES_HEADER bytes, so that entries are page
 *               aligned; then 512 raw 64-bit entries a table page, in the order of NAME.tables.
 *
 * Table pages are in depth-first order: the root first, a parent before its children, children by address.
 * analyzer/ptanalyze/formats/snapshot.py mirrors these structures; a test holds them equal.
 */
#ifndef PT_RECORDS_H
#define PT_RECORDS_H

#include <stdint.h>

#define PT_TABLES_MAGIC "PTTABLES"
#define PT_ENTRIES_MAGIC "PTENTRYS"
#define PT_VERSION 1
#define PT_BYTE_ORDER 0x01020304u
#define PT_ENTRIES_HEADER 4096
#define PT_ENTRIES_PER_TABLE 512
#define PT_TABLE_BYTES 4096

#define PT_TABLES_WORDS                                                                          \
	"One 24-byte record a table page, little endian, depth first, root first: "              \
	"u64 first address mapped, i64 page frame (-1 unknown), i32 index of the parent (-1 root), " \
	"i16 NUMA node (-1 unknown), u8 level (1 = table of 4 KiB entries), u8 flags (1 changed, " \
	"2 torn, 4 fault, 8 bad type, 16 inferred).\n"
#define PT_ENTRIES_WORDS                                                                         \
	"512 raw u64 page-table entries a table page, little endian, in the order of the tables " \
	"file, from byte 4096 on. Encodings: x86 = x86-64, a memory-encryption bit cleared; ept = " \
	"Intel EPT; kvm = KVM SPTE, present when bits 0 and 11 are set.\n"

enum pt_flags {
	PT_CHANGED = 1,  /* the parent's entry changed between reading parent and child; newer value used */
	PT_TORN = 2,     /* the parent's entry changed while the child was copied */
	PT_FAULT = 4,    /* the table could not be read: its entries are zero */
	PT_BAD_TYPE = 8, /* the frame was no longer a page table when it was read */
	PT_INFERRED = 16 /* rebuilt from /proc/PID/pagemap: frame and node of the table are unknown */
};

struct pt_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
	uint32_t header_bytes; /* where the first record starts */
	uint32_t record_bytes;
	uint64_t count;
	uint32_t levels;   /* level of the root: 4 or 5 */
	char encoding[12]; /* "x86", "ept" or "kvm", zero padded */
	char words[464];   /* the rules above, for whoever finds the file without this header */
};

struct pt_table {
	uint64_t base;
	int64_t frame;
	int32_t parent;
	int16_t node;
	uint8_t level;
	uint8_t flags;
};

_Static_assert(sizeof(struct pt_header) == 512, "header is 512 bytes");
_Static_assert(sizeof(struct pt_table) == 24, "record is 24 bytes");

#endif
