/* SPDX-License-Identifier: MIT */
/* Every leaf against /proc/PID/pagemap, the kernel's own reading of the same tables. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "output.h"
#include "verify.h"

#define ADDRESS_BITS 0x000ffffffffff000ULL
#define PAGEMAP_PRESENT (1ULL << 63)
#define PAGEMAP_FRAME ((1ULL << 55) - 1)
#define PAGES 512

struct checker {
	struct verified *verified;
	const struct process *process;
	struct mapping *hidden; /* found when pagemap first shows nothing where we found a page */
	size_t count;
};

/* The VMAs that are VM_PFNMAP ("pf"), by address: walk_page_range skips them, so pagemap shows nothing there. */
static void find_hidden(struct checker *checker)
{
	char *smaps = process_read(checker->process, PROCESS_SMAPS, NULL);
	const char *at = smaps;
	struct mapping area;

	checker->hidden = malloc(sizeof(area));
	while (next_mapping(&at, &area)) {
		struct mapping *more;

		if (!mapping_has(&area, "pf"))
			continue;
		more = reallocarray(checker->hidden, checker->count + 1, sizeof(area));
		if (!more)
			fail(EXIT_WRONG_USE, "out of memory after %zu areas", checker->count);
		checker->hidden = more;
		checker->hidden[checker->count++] = area;
	}
	free(smaps);
}

static int beside(const void *key, const void *member)
{
	const unsigned long address = *(const unsigned long *)key;
	const struct mapping *area = member;

	return address < area->start ? -1 : address >= area->end;
}

static bool hidden_from_pagemap(struct checker *checker, unsigned long address)
{
	if (!checker->hidden)
		find_hidden(checker);
	return checker->count && bsearch(&address, checker->hidden, checker->count, sizeof(*checker->hidden), beside);
}

/* `mapped`: the kernel has a page here, at `frame`; `seen`: what pagemap says of the same page. */
static void compare(struct checker *checker, uint64_t address, bool mapped, uint64_t frame, uint64_t seen)
{
	struct verified *verified = checker->verified;
	bool present = seen & PAGEMAP_PRESENT;

	if (!mapped && !present)
		return;
	verified->checked++;
	if (mapped && present && (seen & PAGEMAP_FRAME) == frame)
		return;
	if (mapped && !present && hidden_from_pagemap(checker, address)) {
		verified->hidden++;
		return;
	}
	if (verified->mismatched < sizeof(verified->examples) / sizeof(*verified->examples))
		snprintf(verified->examples[verified->mismatched], sizeof(*verified->examples),
			 "address 0x%llx: %s frame 0x%llx, pagemap %s frame 0x%llx", (unsigned long long)address,
			 mapped ? "mapped" : "unmapped", (unsigned long long)(mapped ? frame : 0),
			 present ? "present" : "absent", (unsigned long long)(present ? seen & PAGEMAP_FRAME : 0));
	verified->mismatched++;
}

/* One entry that maps `pages` pages from `address` on. */
static void compare_entry(struct checker *checker, uint64_t address, uint64_t entry, uint64_t pages)
{
	uint64_t seen[PAGES], hints = PTD_ENTRY_PROTNONE | (pages > 1 ? PTD_ENTRY_HUGE : 0);
	bool mapped = entry & PTD_ENTRY_PRESENT || entry & hints;
	uint64_t decoded = entry & PTD_ENTRY_PRESENT ? entry : ~entry;
	uint64_t frame = (decoded & ADDRESS_BITS) / 4096 & ~(pages - 1);

	for (uint64_t at = 0; at < pages; at += PAGES) {
		uint64_t many = pages - at < PAGES ? pages - at : PAGES;

		if (pread(checker->process->pagemap, seen, many * 8, (address / 4096 + at) * 8) != (ssize_t)many * 8)
			memset(seen, 0, sizeof(seen));
		for (uint64_t i = 0; i < many; i++)
			compare(checker, address + (at + i) * 4096, mapped, frame + at + i, seen[i]);
	}
}

static void compare_leaf_table(struct checker *checker, uint64_t base, const struct ptd_page *page)
{
	uint64_t seen[PAGES] = { 0 };

	if (pread(checker->process->pagemap, seen, sizeof(seen), base / 4096 * 8) < 0)
		memset(seen, 0, sizeof(seen));
	for (int i = 0; i < PTD_ENTRIES; i++) {
		uint64_t entry = page->entry[i];
		bool present = entry & PTD_ENTRY_PRESENT;
		uint64_t frame = ((present ? entry : ~entry) & ADDRESS_BITS) / 4096;

		if (entry | seen[i])
			compare(checker, base + i * 4096ULL, present || entry & PTD_ENTRY_PROTNONE, frame, seen[i]);
	}
}

void verify_tables(struct verified *verified, const struct tables *tables, const struct process *process)
{
	struct checker checker = { .verified = verified, .process = process };

	memset(verified, 0, sizeof(*verified));
	for (size_t i = 0; i < tables->count; i++) {
		const struct pt_table *table = &tables->records[i];
		const struct ptd_page *page = &tables->entries[i];
		uint64_t span = 1ULL << (3 + 9 * table->level);

		if (table->level == 1)
			compare_leaf_table(&checker, table->base, page);
		for (unsigned k = 0; table->level > 1 && table->level < 4 && k < PTD_ENTRIES; k++)
			if (page->entry[k] & PTD_ENTRY_HUGE)
				compare_entry(&checker, table->base + k * span, page->entry[k], span / 4096);
	}
	free(checker.hidden);
}
