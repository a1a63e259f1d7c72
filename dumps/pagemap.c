/* SPDX-License-Identifier: MIT */
/*
 * A tree from /proc/PID/pagemap: leaf tables and huge leaves of one GiB are collected, then added below the tables
 * that must be above them. pagemap lacks frames and nodes of tables, flags of entries, tables that map nothing;
 * without the PAGEMAP_SCAN ioctl (Linux 6.7, admin-guide/mm/pagemap.rst) also the size of leaves.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "output.h"
#include "pagemap.h"

#define PAGE 4096ULL
#define REGION (PTD_ENTRIES * PAGE)
#define GIB (PTD_ENTRIES * REGION)
#define HOLE (2 * REGION) /* cheaper to read than another call */
#define USER_HALF (1ULL << 56)
#define ADDRESS_BITS 0x000ffffffffff000ULL
#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_FRAME ((1ULL << 55) - 1)
#define RANGES 4096 /* a call */
/* of include/uapi/linux/fs.h, which older headers lack */
#define SCAN _IOWR('f', 16, struct scan)
#define SCAN_PRESENT (1ULL << 3)
#define SCAN_HUGE (1ULL << 6)

struct scanned {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, ranges, count, max_pages;
	uint64_t inverted, all_of, any_of, returned;
};
struct pages {
	uint64_t start, end;
	bool huge;
};
struct builder {
	struct tables *tables;
	int pagemap;
	unsigned levels;
	bool accessible; /* the area that is read */
	uint64_t added[PTD_MAX_LEVELS + 1]; /* base of the newest table of each level above 2 */
	/* of one GiB */
	uint64_t base;
	bool some, used[PTD_ENTRIES];
	struct ptd_page middle, leaves[PTD_ENTRIES];
};

static void add_table(struct builder *builder, uint64_t base, unsigned level, const struct ptd_page *page)
{
	tables_add(builder->tables, &(struct ptd_table){ .base = base, .level = level, .flags = PT_INFERRED }, page, 0);
}

/* The root down to `lowest`, as far as they are of another address than before. */
static void add_above(struct builder *builder, unsigned lowest)
{
	static const struct ptd_page empty;

	for (unsigned level = builder->levels; level >= lowest; level--) {
		uint64_t base = level == builder->levels ? 0 : builder->base & -(1ULL << (12 + 9 * level));

		if (builder->added[level] == base)
			continue;
		add_table(builder, base, level, &empty);
		builder->added[level] = base;
	}
}

/* The GiB is complete. */
static void flush(struct builder *builder)
{
	if (!builder->some)
		return;
	add_above(builder, 3);
	add_table(builder, builder->base, 2, &builder->middle);
	for (unsigned slot = 0; slot < PTD_ENTRIES; slot++) {
		if (!builder->used[slot])
			continue;
		add_table(builder, builder->base + slot * REGION, 1, &builder->leaves[slot]);
		memset(&builder->leaves[slot], 0, sizeof(builder->leaves[slot]));
	}
	memset(&builder->middle, 0, sizeof(builder->middle));
	memset(builder->used, 0, sizeof(builder->used));
	builder->some = false;
}

/* An x86 entry; one of a PROT_NONE area is inverted and not present. */
static uint64_t to_entry(const struct builder *builder, uint64_t seen)
{
	uint64_t address = (seen & PAGEMAP_FRAME) << 12;

	if (!(seen & PAGEMAP_PRESENT))
		return 0;
	return builder->accessible ? address | PTD_ENTRY_PRESENT | PTD_ENTRY_USER :
				     (~address & ADDRESS_BITS) | PTD_ENTRY_PROTNONE;
}

/* A whole huge page, which has not been split since it was scanned. */
static bool is_huge(const uint64_t *seen, unsigned count)
{
	return count == PTD_ENTRIES && seen[0] & PAGEMAP_PRESENT && !(seen[0] & PAGEMAP_FRAME & (PTD_ENTRIES - 1));
}

/* `count` words of pagemap, of the pages of one region or less from `start` on. */
static void add_pages(struct builder *builder, uint64_t start, const uint64_t *seen, unsigned count, bool huge)
{
	unsigned slot = start / REGION % PTD_ENTRIES, first = start / PAGE % PTD_ENTRIES;
	bool whole = huge && is_huge(seen, count);

	for (unsigned i = 0; i < count; i++) {
		uint64_t entry = to_entry(builder, seen[i]);

		if (!entry)
			continue;
		if (builder->base != (start & -GIB))
			flush(builder);
		builder->base = start & -GIB;
		builder->some = true;
		if (whole) {
			builder->middle.entry[slot] = entry | PTD_ENTRY_HUGE;
			return;
		}
		builder->used[slot] = true;
		builder->leaves[slot].entry[first + i] = entry;
	}
}

/* False when the address space is gone. */
static bool add_range(struct builder *builder, const struct pages *range)
{
	uint64_t seen[PTD_ENTRIES], end;

	for (uint64_t at = range->start; at < range->end; at = end) {
		ssize_t bytes;

		end = (at & -REGION) + REGION;
		end = end < range->end ? end : range->end;
		bytes = (end - at) / PAGE * 8;
		if (pread(builder->pagemap, seen, bytes, at / PAGE * 8) != bytes)
			return false;
		add_pages(builder, at, seen, (end - at) / PAGE, range->huge);
	}
	return true;
}

/* Adds the range before, unless the next continues it. */
static bool add_joined(struct builder *builder, struct pages *last, const struct pages *next)
{
	bool joined = !last->huge && !next->huge && next->start - last->end <= HOLE;

	if (!joined && !add_range(builder, last))
		return false;
	*last = (struct pages){ joined ? last->start : next->start, next->end, next->huge };
	return true;
}

/* The pages in [start, end); false when the address space is gone. */
static bool read_area(struct builder *builder, uint64_t start, uint64_t end)
{
	static struct scanned ranges[RANGES];
	struct pages last = { start, start, false };
	int count = RANGES;

	while (start < end && count == RANGES) {
		struct scan scan = { .size = sizeof(scan), .start = start, .end = end, .ranges = (uintptr_t)ranges,
				     .count = RANGES, .all_of = SCAN_PRESENT, .returned = SCAN_PRESENT | SCAN_HUGE };

		count = ioctl(builder->pagemap, SCAN, &scan);
		if (count < 0 && errno == ESRCH)
			return false;
		if (count < 0 && errno != ENOTTY && errno != EINVAL)
			fail(EXIT_WRONG_USE, "cannot scan pagemap: %s", strerror(errno));
		if (count < 0) {
			builder->tables->unsized = true;
			return add_range(builder, &(struct pages){ start, end, false });
		}
		for (int i = 0; i < count; i++)
			if (!add_joined(builder, &last,
					&(struct pages){ ranges[i].start, ranges[i].end, ranges[i].categories & SCAN_HUGE }))
				return false;
		if (count)
			start = ranges[count - 1].end; /* walk_end has been seen to lie before it (Linux 6.18) */
	}
	return add_range(builder, &last);
}

/* The kernel shows the CPU's la57 flag only while it runs on 5 levels. */
unsigned pagemap_levels(void)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	unsigned levels = 4;
	char *line = NULL;
	size_t room = 0;

	while (file && getline(&line, &room, file) >= 0)
		if (!strncmp(line, "flags", 5)) {
			levels += !!strstr(line, " la57");
			break;
		}
	free(line);
	if (file)
		fclose(file);
	return levels;
}

bool pagemap_read(struct tables *tables, const struct process *process, const char *maps, unsigned levels)
{
	struct builder *builder = calloc(1, sizeof(*builder));
	struct mapping area;
	bool there = true;

	if (!builder)
		fail(EXIT_WRONG_USE, "out of memory to read pagemap with");
	builder->tables = tables;
	builder->pagemap = process->pagemap;
	builder->levels = levels;
	memset(builder->added, -1, sizeof(builder->added));
	add_above(builder, levels); /* a process without pages has a root, too */
	while (there && next_mapping(&maps, &area)) {
		if (area.end > USER_HALF)
			continue;
		builder->accessible = strncmp(area.rights, "---", 3);
		there = read_area(builder, area.start, area.end);
	}
	if (there)
		flush(builder);
	free(builder);
	return there;
}
