/* SPDX-License-Identifier: MIT */
/*
 * The tables of one reading, in the order they were read: depth first. Entries are collected in memory; a reading
 * that does not fit is appended to the entries file as it goes, and mapped from there when complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "output.h"
#include "tables.h"

#define ADDRESS_BITS 0x000ffffffffff000ULL
#define COUNTED_LEVELS 3 /* mm_inc_nr_ptes, _pmds, _puds; there is none for P4D tables */
#define KPF_PGTABLE 26 /* include/uapi/linux/kernel-page-flags.h */

struct open_table {
	struct ptd_page *page;
	unsigned next; /* entry not yet settled */
};

const struct format format_x86 = {
	.encoding = "x86", .present = PTD_ENTRY_PRESENT, .root_entries = PTD_USER_ENTRIES, .hints = true
};

void tables_init(struct tables *tables, size_t limit, const struct format *format)
{
	memset(tables, 0, sizeof(*tables));
	tables->format = format;
	tables->limit = limit / PT_TABLE_BYTES ? limit / PT_TABLE_BYTES : 1;
	tables->entries = mmap(NULL, tables->limit * PT_TABLE_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (tables->entries == MAP_FAILED)
		fail(EXIT_WRONG_USE, "cannot reserve %zu bytes to collect tables in", tables->limit * PT_TABLE_BYTES);
	madvise(tables->entries, tables->limit * PT_TABLE_BYTES, MADV_HUGEPAGE);
}

void tables_reset(struct tables *tables, int file)
{
	tables->count = tables->first = 0;
	tables->changed = tables->torn = tables->fault = tables->bad_type = 0;
	tables->dropped = tables->huge_leaves = 0;
	tables->levels = 0;
	tables->unsized = false;
	tables->file = file;
	for (unsigned level = 0; level < PTD_MAX_LEVELS + 2; level++)
		tables->last[level] = -1;
}

void tables_sum(struct tables_sum *sum, const struct tables *tables)
{
	sum->count += tables->count;
	for (size_t i = 0; i < tables->count; i++)
		sum->counted += tables->records[i].level <= COUNTED_LEVELS;
	sum->changed += tables->changed;
	sum->torn += tables->torn;
	sum->fault += tables->fault;
	sum->bad_type += tables->bad_type;
	sum->dropped += tables->dropped;
	sum->huge_leaves += tables->huge_leaves;
	sum->streamed |= tables->streamed;
}

static void spill(struct tables *tables)
{
	size_t bytes = (tables->count - tables->first) * PT_TABLE_BYTES;

	output_write(tables->file, tables->entries, bytes, PT_ENTRIES_HEADER + (off_t)tables->first * PT_TABLE_BYTES);
	tables->first = tables->count;
	tables->streamed = true;
}

static bool is_present(const struct format *format, uint64_t entry)
{
	return (entry & format->present) == format->present;
}

/* Inverted entries are cleared after inversion. */
static void clear_encryption(const struct format *format, unsigned long long *entry, uint64_t bit)
{
	if (is_present(format, *entry))
		*entry &= ~bit;
	else if (format->hints && *entry & (PTD_ENTRY_PROTNONE | PTD_ENTRY_HUGE))
		*entry |= bit;
}

void tables_add(struct tables *tables, const struct ptd_table *table, const struct ptd_page *page, uint64_t clear)
{
	struct pt_table *record;
	struct ptd_page *entries;

	if (tables->count == tables->room) {
		tables->room = tables->room ? tables->room * 2 : 4096;
		tables->records = realloc(tables->records, tables->room * sizeof(*record));
		if (!tables->records)
			fail(EXIT_WRONG_USE, "out of memory after %zu tables", tables->count);
	}
	if (tables->count - tables->first == tables->limit)
		spill(tables);
	record = &tables->records[tables->count];
	record->base = table->base;
	record->frame = table->flags & PT_INFERRED ? -1 : (int64_t)(table->address >> 12);
	if (!tables->count)
		tables->levels = table->level;
	record->parent = tables->last[table->level + 1];
	record->node = -1;
	record->level = table->level;
	record->flags = table->flags;
	entries = &tables->entries[tables->count - tables->first];
	if (table->flags & PT_BAD_TYPE) /* what the frame is used for now is nobody's business */
		memset(entries, 0, sizeof(*entries));
	else
		memcpy(entries, page, sizeof(*entries));
	for (int i = 0; clear && i < PTD_ENTRIES; i++)
		clear_encryption(tables->format, &entries->entry[i], clear);
	tables->last[table->level] = tables->count++;
	tables->changed += !!(table->flags & PT_CHANGED);
	tables->torn += !!(table->flags & PT_TORN);
	tables->fault += !!(table->flags & PT_FAULT);
	tables->bad_type += !!(table->flags & PT_BAD_TYPE);
}

/* Entries of `open` before `until` have no table below them in this reading: clear those that claim one. */
static void settle(struct tables *tables, struct open_table *open, unsigned until)
{
	for (; open->page && open->next < until; open->next++) {
		uint64_t entry = open->page->entry[open->next];

		bool present = is_present(tables->format, entry);

		if (entry & PTD_ENTRY_HUGE && (present || tables->format->hints)) {
			tables->huge_leaves++; /* also a PROT_NONE one, which is not present */
		} else if (present) {
			open->page->entry[open->next] = 0;
			tables->dropped++;
		}
	}
}

/* Make every pointer lead to the table that was read there, as the newer value the walk followed says. */
static void close_tree(struct tables *tables)
{
	struct open_table open[PTD_MAX_LEVELS + 2] = { 0 };

	for (size_t i = 0; i < tables->count; i++) {
		const struct pt_table *table = &tables->records[i];
		struct open_table *parent = &open[table->level + 1];

		for (unsigned level = 2; level <= table->level; level++)
			settle(tables, &open[level], PTD_ENTRIES);
		if (parent->page) {
			unsigned slot = table->base >> (3 + 9 * (table->level + 1)) & 511;
			unsigned long long *entry = &parent->page->entry[slot];

			settle(tables, parent, slot);
			parent->next = slot + 1;
			if (table->flags & PT_INFERRED)
				*entry = PTD_ENTRY_PRESENT | PTD_ENTRY_USER;
			else if ((*entry & ADDRESS_BITS) >> 12 != (uint64_t)table->frame)
				*entry = (*entry & ~ADDRESS_BITS) | (uint64_t)table->frame << 12;
		}
		if (table->level > 1)
			open[table->level] = (struct open_table){ &tables->entries[i], 0 };
	}
	for (unsigned level = 2; level <= tables->levels; level++)
		settle(tables, &open[level], PTD_ENTRIES);
}

void tables_finish(struct tables *tables)
{
	if (tables->streamed) {
		spill(tables);
		munmap(tables->entries, tables->limit * PT_TABLE_BYTES);
		tables->entries = mmap(NULL, tables->count * PT_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
				       tables->file, PT_ENTRIES_HEADER);
		if (tables->entries == MAP_FAILED)
			fail(EXIT_WRONG_USE, "cannot map the entries file: %s; write to another file system", strerror(errno));
		tables->first = 0;
	}
	close_tree(tables);
}

/* Where BPF cannot tell a page table by its struct page, the kernel's own export can, a little later. */
void tables_check_types(struct tables *tables)
{
	int file = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	uint64_t flags;

	for (size_t i = 0; file >= 0 && i < tables->count; i++) {
		if (tables->records[i].level > PTD_TYPED_LEVELS)
			continue;
		if (pread(file, &flags, 8, tables->records[i].frame * 8) != 8 || flags >> KPF_PGTABLE & 1)
			continue;
		tables->records[i].flags |= PT_BAD_TYPE;
		tables->bad_type++;
	}
	close(file);
}

void tables_place(struct tables *tables, const struct topology *topology)
{
	for (size_t i = 0; i < tables->count; i++)
		tables->records[i].node = topology->node_count == 1 && tables->records[i].frame < 0 ?
						  topology->nodes[0].id :
						  topology_node(topology, tables->records[i].frame);
}

static void write_header(const struct tables *tables, int file, bool entries)
{
	struct pt_header header = {
		.version = PT_VERSION,
		.byte_order = PT_BYTE_ORDER,
		.header_bytes = entries ? PT_ENTRIES_HEADER : sizeof(header),
		.record_bytes = entries ? PT_TABLE_BYTES : sizeof(struct pt_table),
		.count = tables->count,
		.levels = tables->levels,
	};
	char page[PT_ENTRIES_HEADER] = { 0 };

	strcpy(header.encoding, tables->format->encoding);
	memcpy(header.magic, entries ? PT_ENTRIES_MAGIC : PT_TABLES_MAGIC, sizeof(header.magic));
	strcpy(header.words, entries ? PT_ENTRIES_WORDS : PT_TABLES_WORDS);
	memcpy(page, &header, sizeof(header));
	output_write(file, page, header.header_bytes, 0);
}

void tables_write(struct tables *tables, int tables_file, int entries_file)
{
	write_header(tables, tables_file, false);
	output_write(tables_file, tables->records, tables->count * sizeof(*tables->records), sizeof(struct pt_header));
	write_header(tables, entries_file, true);
	if (!tables->streamed)
		output_write(entries_file, tables->entries, tables->count * PT_TABLE_BYTES, PT_ENTRIES_HEADER);
	if (ftruncate(entries_file, PT_ENTRIES_HEADER + (off_t)tables->count * PT_TABLE_BYTES)) /* a worse reading was longer */
		fail(EXIT_WRONG_USE, "cannot cut the entries file: %s; nothing was kept", strerror(errno));
}
