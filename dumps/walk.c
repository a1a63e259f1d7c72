/* SPDX-License-Identifier: MIT */
/* One reading of a process's page tables, between two looks at what moves when they change. */
#include <string.h>
#include "dump.h"

#define PROGRESS_SECONDS 0.2

/* Its memory is still in use, and by itself: after exec or exit nobody uses the mm that our pagemap holds. */
bool process_alive(struct bpf *bpf, const struct process *process)
{
	return bpf_locate(bpf, process->pagemap, -1)->users > 0 && !strchr("ZX", process_state(process->directory));
}

static bool sign(struct signature *signature, struct reading *reading, struct bpf *bpf, const struct process *process)
{
	const struct ptd_mm *found = bpf_locate(bpf, process->pagemap, -1);

	process_faults(process, signature);
	signature->lock_seq = found->lock_seq;
	signature->pgtables_bytes = found->pgtables_bytes;
	reading->has_lock_seq = found->has_lock_seq;
	return process_alive(bpf, process);
}

static void set_up(struct ptd_walk *walk, struct reading *reading, struct bpf *bpf, const struct kernel *kernel,
		   uint64_t pgd)
{
	struct ptd_table root = { .address = pgd - kernel->direct_map, .level = kernel->levels };
	const struct ptd_page *page = bpf_peek_page(bpf, pgd);
	struct ptd_page user_half = { 0 };

	if (!page)
		fail(EXIT_PARTIAL, "the root page table cannot be read");
	memcpy(&user_half, page, PTD_USER_ENTRIES * sizeof(*page->entry));
	memset(walk, 0, sizeof(*walk));
	walk->direct_map = kernel->direct_map;
	walk->address_mask = kernel->address_mask;
	walk->vmemmap = kernel->vmemmap;
	walk->levels = walk->level = kernel->levels;
	walk->capacity = PTD_BATCH;
	walk->address[walk->level] = root.address;
	memcpy(walk->tables[walk->level], &user_half, sizeof(user_half));
	tables_add(&reading->tables, &root, &user_half, kernel->encryption_mask);
}

static void report(const struct tables *tables, double since, double *last)
{
	double now = monotonic_seconds();

	if (now - *last < PROGRESS_SECONDS)
		return;
	*last = now;
	printf("{\"event\": \"walk\", \"tables\": %zu, \"seconds\": %.3f}\n", tables->count, now - since);
	fflush(stdout);
}

bool walk_process(struct reading *reading, struct bpf *bpf, const struct kernel *kernel, const struct process *process,
		  const struct options *options, int file)
{
	struct ptd_walk *walk = bpf->walk;
	double since = monotonic_seconds(), last = since;

	tables_reset(&reading->tables, kernel->levels, file);
	if (!sign(&reading->before, reading, bpf, process))
		return false;
	set_up(walk, reading, bpf, kernel, bpf_locate(bpf, process->pagemap, -1)->pgd);
	while (!walk->done && !walk->error) {
		walk->count = 0;
		bpf_call(bpf->walk_program, "walk");
		for (unsigned i = 0; i < walk->count; i++)
			tables_add(&reading->tables, &bpf->tables[i], &bpf->pages[i], kernel->encryption_mask);
		if (options->json_progress)
			report(&reading->tables, since, &last);
	}
	if (walk->error)
		fail(EXIT_PARTIAL, "the walk lost its way (%u)", walk->error);
	reading->seconds = monotonic_seconds() - since;
	if (!sign(&reading->after, reading, bpf, process))
		return false;
	reading->quiet = !memcmp(&reading->before, &reading->after, sizeof(reading->before));
	tables_finish(&reading->tables);
	return true;
}

uint64_t reading_trouble(const struct reading *reading)
{
	const struct tables *tables = &reading->tables;

	return tables->changed + tables->torn + tables->fault + tables->bad_type + tables->dropped + !reading->quiet;
}
