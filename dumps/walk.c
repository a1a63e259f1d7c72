/* SPDX-License-Identifier: MIT */
/* Readings of page tables: each between two looks at what moves when they change, again until one is clean. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "output.h"
#include "pagemap.h"
#include "walk.h"

#define PROGRESS_SECONDS 0.2

void sign(struct signature *signature, const char *name, uint64_t value)
{
	signature->name[signature->count] = name;
	signature->value[signature->count++] = value;
}

uint64_t signed_value(const struct signature *signature, const char *name)
{
	for (unsigned i = 0; i < signature->count; i++)
		if (!strcmp(signature->name[i], name))
			return signature->value[i];
	return 0;
}

static void sign_process(struct signature *signature, struct reader *reader)
{
	const struct process *process = reader->process;
	const struct ptd_mm *found = reader->bpf ? bpf_locate(reader->bpf, process->pagemap, -1) : NULL;
	uint64_t minor = 0, major = 0;

	memset(signature, 0, sizeof(*signature));
	process_faults(process, &minor, &major);
	sign(signature, "minflt", minor);
	sign(signature, "majflt", major);
	sign(signature, "pgtables_bytes", found ? found->pgtables_bytes : process_table_bytes(process));
	if (found && found->has_lock_seq)
		sign(signature, "mm_lock_seq", found->lock_seq);
}

static void set_up(struct reader *reader, struct tables *tables, uint64_t address, unsigned levels)
{
	const struct kernel *kernel = reader->kernel;
	const struct format *format = &reader->format;
	struct ptd_walk *walk = reader->bpf->walk;
	struct ptd_table root = { .address = address, .level = levels };
	const struct ptd_page *page = bpf_peek_page(reader->bpf, kernel->direct_map + address);
	struct ptd_page used = { 0 };

	if (!page)
		fail(EXIT_PARTIAL, "the root page table cannot be read");
	memcpy(&used, page, format->root_entries * sizeof(*page->entry));
	memset(walk, 0, sizeof(*walk));
	walk->direct_map = kernel->direct_map;
	walk->address_mask = kernel->address_mask;
	walk->present = format->present;
	walk->vmemmap = format->page_private || kernel->typed ? kernel->vmemmap : 0;
	walk->page_private = format->page_private;
	walk->sp_spt = format->sp_spt;
	walk->root_entries = format->root_entries;
	walk->levels = walk->level = levels;
	walk->capacity = PTD_BATCH;
	walk->address[levels] = address;
	memcpy(walk->tables[levels], &used, sizeof(used));
	tables_add(tables, &root, &used, kernel->encryption_mask);
}

static void report(const struct tables *tables, double since, double *last)
{
	double now = monotonic_seconds();
	struct pollfd reader = { .fd = STDOUT_FILENO, .events = POLLOUT };

	if (now - *last < PROGRESS_SECONDS || poll(&reader, 1, 0) < 1)
		return; /* whoever does not read must not hold up the reading: a process may be stopped for it */
	*last = now;
	printf("{\"event\": \"walk\", \"tables\": %zu, \"seconds\": %.3f}\n", tables->count, now - since);
	fflush(stdout);
}

/* Appends the tree below `root`, a physical address. More than `most` tables in all are an error. */
void walk_tree(struct reader *reader, struct tables *tables, uint64_t root, unsigned levels, size_t most)
{
	struct ptd_walk *walk = reader->bpf->walk;
	double since = monotonic_seconds(), last = since;

	set_up(reader, tables, root, levels);
	while (!walk->done && !walk->error) {
		walk->count = 0;
		bpf_call(reader->bpf->walk_program, "walk");
		for (unsigned i = 0; i < walk->count; i++)
			tables_add(tables, &reader->bpf->tables[i], &reader->bpf->pages[i],
				   reader->kernel->encryption_mask);
		if (tables->count > most)
			fail(EXIT_WRONG_USE, "more than %zu tables: they lead to one another too often for a tree", most);
		if (reader->options->json_progress)
			report(tables, since, &last);
	}
	if (walk->error)
		fail(EXIT_PARTIAL, "the walk lost its way (%u)", walk->error);
}

static void walk_trees(struct reader *reader, struct reading *reading)
{
	const struct ptd_mm found = *bpf_locate(reader->bpf, reader->process->pagemap, -1);
	const struct replicas *replicas = &reader->replicas;

	walk_tree(reader, &reading->tables, found.pgd - reader->kernel->direct_map, reader->kernel->levels, SIZE_MAX);
	for (unsigned i = 0; i < replicas->count; i++) {
		uint64_t root = found.replica[replicas->replica[i].node];

		if (!root)
			fail(EXIT_PARTIAL, "PID %d: node %u's tree is gone; nothing was kept", reader->process->pid,
			     replicas->replica[i].node);
		walk_tree(reader, &reading->replica[i], root - reader->kernel->direct_map, reader->kernel->levels,
			  SIZE_MAX);
	}
	if (replicas->count)
		reading->owner_count = bpf_owners(reader->bpf, reader->process->pid, &reading->owners);
}

static bool same_maps(struct reader *reader, const struct reading *reading)
{
	size_t length;
	char *again = process_read(reader->process, PROCESS_MAPS, &length);
	bool same = length == reading->maps_length && !memcmp(again, reading->maps, length);

	free(again);
	return same;
}

bool read_process(struct reader *reader, struct reading *reading)
{
	sign_process(&reading->before, reader);
	if (!process_alive(reader->process))
		return false;
	if (reader->with_maps) {
		free(reading->maps);
		reading->maps = process_read(reader->process, PROCESS_MAPS, &reading->maps_length);
	}
	if (reader->bpf)
		walk_trees(reader, reading);
	else if (!pagemap_read(&reading->tables, reader->process, reading->maps, reader->kernel->levels))
		return false;
	reading->pending = reader->with_maps && !same_maps(reader, reading);
	sign_process(&reading->after, reader);
	return process_alive(reader->process);
}

/* Tree `i` of a reading; 0 is mm->pgd's. */
struct tables *tree(struct reading *reading, unsigned i)
{
	return i ? &reading->replica[i - 1] : &reading->tables;
}

struct tables_sum reading_sum(const struct reader *reader, const struct reading *reading)
{
	struct tables_sum sum = { 0 };

	for (unsigned i = 0; i <= reader->replicas.count; i++)
		tables_sum(&sum, i ? &reading->replica[i - 1] : &reading->tables);
	return sum;
}

/* The end of the area of `maps` that `address` lies in, or 0; `at` is where to look on, for addresses that grow. */
static uint64_t area_end(const char **at, uint64_t address)
{
	struct mapping area;

	for (const char *next = *at; next_mapping(&next, &area); *at = next)
		if (address < area.end)
			return address >= area.start ? area.end : 0;
	return 0;
}

/* munmap() takes an area away before its pages: one that waits in between changes nothing that is signed. */
static size_t pages_outside(const struct tables *tables, const char *maps)
{
	size_t outside = 0;

	for (unsigned level = 1; level <= 3; level++) {
		const char *at = maps;
		uint64_t size = 1ULL << (3 + 9 * level), end;

		for (size_t i = 0; i < tables->count; i++) {
			uint64_t base = tables->records[i].base;

			if (tables->records[i].level != level)
				continue;
			end = 0;
			for (unsigned slot = 0; slot < PTD_ENTRIES; slot++) {
				uint64_t entry = tables->entries[i].entry[slot], address = base + slot * size;
				bool huge = entry & PTD_ENTRY_HUGE;

				if (level == 1 ? !(entry & (PTD_ENTRY_PRESENT | PTD_ENTRY_PROTNONE)) : !huge)
					continue;
				if (address >= end)
					end = area_end(&at, address);
				outside += !end;
			}
		}
	}
	return outside;
}

static bool read_once(struct reader *reader, struct reading *reading)
{
	double since = monotonic_seconds();

	for (unsigned i = 0; i <= reader->replicas.count; i++)
		tables_reset(tree(reading, i), i ? reader->replicas.replica[i - 1].entries : reader->file);
	if (!reader->read(reader, reading))
		return false;
	reading->seconds = monotonic_seconds() - since;
	for (unsigned i = 0; i <= reader->replicas.count; i++)
		tables_finish(tree(reading, i));
	reading->outside = reading->maps ? pages_outside(&reading->tables, reading->maps) : 0;
	reading->quiet = !reading->pending && !reading->outside && reading->before.count == reading->after.count &&
			 !memcmp(reading->before.value, reading->after.value, sizeof(reading->before.value));
	return true;
}

static uint64_t trouble(const struct reader *reader, const struct reading *reading)
{
	struct tables_sum sum = reading_sum(reader, reading);

	return sum.changed + sum.torn + sum.fault + sum.bad_type + sum.dropped + reading->outside + !reading->quiet;
}

static void init_trees(const struct reader *reader, struct reading *reading)
{
	size_t memory = reader->options->memory / (reader->options->retries ? 2 : 1); /* two readings are held */

	for (unsigned i = 0; i <= reader->replicas.count; i++)
		tables_init(tree(reading, i), memory / (reader->replicas.count + 1), &reader->format);
}

/* Read until nothing changed, at most retries + 1 times; `readings[0]` ends up the best. Returns the retries. */
unsigned read_best(struct reader *reader, struct reading *readings)
{
	unsigned retries = 0;

	init_trees(reader, &readings[0]);
	for (;; retries++) {
		struct reading *reading = &readings[retries > 0];

		if (retries == 1)
			init_trees(reader, reading);
		if (!read_once(reader, reading))
			fail(EXIT_PARTIAL, "PID %d: ended or replaced its memory (exec) while it was read; nothing was kept",
			     reader->process->pid);
		if (retries && trouble(reader, reading) < trouble(reader, &readings[0])) {
			struct reading better = *reading;

			*reading = readings[0];
			readings[0] = better;
		}
		if (!trouble(reader, &readings[0]) || retries == reader->options->retries ||
		    reading_sum(reader, reading).streamed)
			return retries;
	}
}
