/* SPDX-License-Identifier: MIT */
/* Readings of page tables: each between two looks at what moves when they change, again until one is clean. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "output.h"
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

/* Its memory is still in use, and by itself: after exec or exit nobody uses the mm that our pagemap holds. */
bool process_alive(struct bpf *bpf, const struct process *process)
{
	return bpf_locate(bpf, process->pagemap, -1)->users > 0 && !strchr("ZX", process_state(process->directory));
}

static void sign_process(struct signature *signature, struct reader *reader)
{
	const struct ptd_mm *found = bpf_locate(reader->bpf, reader->process->pagemap, -1);
	uint64_t minor = 0, major = 0;

	memset(signature, 0, sizeof(*signature));
	process_faults(reader->process, &minor, &major);
	sign(signature, "minflt", minor);
	sign(signature, "majflt", major);
	sign(signature, "pgtables_bytes", found->pgtables_bytes);
	if (found->has_lock_seq)
		sign(signature, "mm_lock_seq", found->lock_seq);
}

static void set_up(struct reader *reader, struct reading *reading, uint64_t address, unsigned levels)
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
	tables_add(&reading->tables, &root, &used, kernel->encryption_mask);
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
void walk_tree(struct reader *reader, struct reading *reading, uint64_t root, unsigned levels, size_t most)
{
	struct ptd_walk *walk = reader->bpf->walk;
	double since = monotonic_seconds(), last = since;

	set_up(reader, reading, root, levels);
	while (!walk->done && !walk->error) {
		walk->count = 0;
		bpf_call(reader->bpf->walk_program, "walk");
		for (unsigned i = 0; i < walk->count; i++)
			tables_add(&reading->tables, &reader->bpf->tables[i], &reader->bpf->pages[i],
				   reader->kernel->encryption_mask);
		if (reading->tables.count > most)
			fail(EXIT_WRONG_USE, "more than %zu tables: they lead to one another too often for a tree", most);
		if (reader->options->json_progress)
			report(&reading->tables, since, &last);
	}
	if (walk->error)
		fail(EXIT_PARTIAL, "the walk lost its way (%u)", walk->error);
}

bool read_process(struct reader *reader, struct reading *reading)
{
	uint64_t pgd = bpf_locate(reader->bpf, reader->process->pagemap, -1)->pgd;

	sign_process(&reading->before, reader);
	if (!process_alive(reader->bpf, reader->process))
		return false;
	walk_tree(reader, reading, pgd - reader->kernel->direct_map, reader->kernel->levels, SIZE_MAX);
	sign_process(&reading->after, reader);
	return process_alive(reader->bpf, reader->process);
}

static bool read_once(struct reader *reader, struct reading *reading)
{
	double since = monotonic_seconds();

	tables_reset(&reading->tables, reader->file);
	if (!reader->read(reader, reading))
		return false;
	reading->seconds = monotonic_seconds() - since;
	reading->quiet = !reading->pending && reading->before.count == reading->after.count &&
			 !memcmp(reading->before.value, reading->after.value, sizeof(reading->before.value));
	tables_finish(&reading->tables);
	return true;
}

static uint64_t trouble(const struct reading *reading)
{
	const struct tables *tables = &reading->tables;

	return tables->changed + tables->torn + tables->fault + tables->bad_type + tables->dropped + !reading->quiet;
}

/* Read until nothing changed, at most retries + 1 times; `readings[0]` ends up the best. Returns the retries. */
unsigned read_best(struct reader *reader, struct reading *readings)
{
	unsigned retries = 0;
	size_t memory = reader->options->memory / (reader->options->retries ? 2 : 1); /* two readings are held */

	tables_init(&readings[0].tables, memory, &reader->format);
	for (;; retries++) {
		struct reading *reading = &readings[retries > 0];

		if (retries == 1)
			tables_init(&reading->tables, memory, &reader->format);
		if (!read_once(reader, reading))
			fail(EXIT_PARTIAL, "PID %d: ended or replaced its memory (exec) while it was read; nothing was kept",
			     reader->process->pid);
		if (retries && trouble(reading) < trouble(&readings[0])) {
			struct reading better = *reading;

			*reading = readings[0];
			readings[0] = better;
		}
		if (!trouble(&readings[0]) || retries == reader->options->retries || reading->tables.streamed)
			return retries;
	}
}
