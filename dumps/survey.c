/* SPDX-License-Identifier: MIT */
/* ptsurvey: counts the page tables of every process by level and node; nothing is stopped, no entry is kept. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bpf.h"
#include "kernel.h"
#include "output.h"
#include "privileges.h"
#include "proc.h"
#include "topology.h"

static const char usage[] =
	"Usage: ptsurvey [PID...]\n"
	"Counts the page-table pages of all processes, or of some, by level and NUMA node: a line of JSON per process.\n"
	"Exit codes: 0 ok, 2 wrong use or refused.\n"
	"Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN and a kernel with BTF.\n";

/* Processes whose tables are kept from us although we may read those of all users. */
static struct { int named[8]; unsigned count; } kept;

static void set_up(struct ptd_count *count, const struct kernel *kernel, const struct topology *topology)
{
	if (topology->range_count > PTD_RANGES)
		fail(EXIT_WRONG_USE, "%zu ranges of frames change between nodes, at most %d", topology->range_count, PTD_RANGES);
	count->direct_map = kernel->direct_map;
	count->address_mask = kernel->address_mask;
	count->levels = kernel->levels;
	count->ranges = topology->range_count;
	for (size_t i = 0; i < topology->range_count; i++) {
		const struct range *range = &topology->ranges[i];

		count->range[i] = (struct ptd_range){ range->start << 12, range->end << 12, range->node, 0 };
	}
}

/* A table that was freed and used for something else meanwhile leads anywhere: stop at twice what there can be. */
static bool lost(struct ptd_count *count, unsigned long long bytes)
{
	unsigned long long tables = 0;

	for (unsigned level = 1; level < count->levels; level++)
		for (unsigned node = 0; node <= PTD_NODES; node++)
			tables += count->found[level][node];
	if (tables < 1024 + bytes / 2048)
		return false;
	count->fault++;
	return true;
}

/* Counts the tables of the mm behind an open pagemap; false without one: a kernel thread, or it has ended. */
static bool count_process(struct bpf *bpf, const struct kernel *kernel, const struct topology *topology, int pagemap)
{
	const struct ptd_mm *found = bpf_try_locate(bpf, pagemap);
	struct ptd_count *count = bpf->count;
	const struct ptd_page *root;

	if (!found || !found->users || !(root = bpf_peek_page(bpf, found->pgd)))
		return false;
	memset(count->next, 0, sizeof(count->next));
	memset(count->found, 0, sizeof(count->found));
	memset(count->huge, 0, sizeof(count->huge));
	memcpy(count->tables[count->levels], root, sizeof(*root));
	count->level = count->levels;
	count->done = count->fault = 0;
	int node = topology_node(topology, (found->pgd - kernel->direct_map) >> 12);
	count->found[count->levels][node < 0 || node >= PTD_NODES ? PTD_NODES : node] = 1;
	while (!count->done && !lost(count, found->pgtables_bytes))
		bpf_call(bpf->count_program, "count_tables");
	return true;
}

static void print_counts(const struct ptd_count *count, int pid, unsigned long long bytes)
{
	printf("{\"pid\": %d, \"pgtables_bytes\": %llu, \"tables\": [", pid, bytes);
	for (unsigned level = 1; level <= count->levels; level++) {
		printf("%s{", level > 1 ? ", " : "");
		bool more = false;
		for (unsigned node = 0; node <= PTD_NODES; node++) {
			if (!count->found[level][node])
				continue;
			printf("%s\"%d\": %llu", more ? ", " : "", node == PTD_NODES ? -1 : (int)node,
			       count->found[level][node]);
			more = true;
		}
		printf("}");
	}
	printf("], \"huge\": [0");
	for (unsigned level = 2; level <= count->levels; level++)
		printf(", %llu", count->huge[level]);
	printf("], \"unread\": %llu}\n", count->fault);
}

static void survey(struct bpf *bpf, const struct kernel *kernel, const struct topology *topology, int pid)
{
	char path[64];
	int pagemap;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", living_thread(pid));
	pagemap = open(path, O_RDONLY | O_CLOEXEC);
	if (pagemap < 0 && (errno == EACCES || errno == EPERM) && !have_capability(CAP_DAC_READ_SEARCH))
		fail(EXIT_WRONG_USE, "PID %d: not permitted: needs CAP_DAC_READ_SEARCH, as do all of other users; run as root", pid);
	if (pagemap < 0 && (errno == EACCES || errno == EPERM) && kept.count++ < 8)
		kept.named[kept.count - 1] = pid;
	if (pagemap < 0)
		return; /* or it has ended */
	if (count_process(bpf, kernel, topology, pagemap))
		print_counts(bpf->count, pid, bpf_try_locate(bpf, pagemap)->pgtables_bytes);
	close(pagemap);
}

static void tell_kept(void)
{
	if (!kept.count)
		return;
	fprintf(stderr, "ptsurvey: left out PID %d", kept.named[0]);
	for (unsigned i = 1; i < kept.count && i < 8; i++)
		fprintf(stderr, ", %d", kept.named[i]);
	if (kept.count > 8)
		fprintf(stderr, " and %u more", kept.count - 8);
	fputs(": a security module or the container keeps page tables from us\n", stderr);
}

int main(int count, char **arguments)
{
	struct topology topology;
	struct kernel kernel = { 0 };
	struct bpf bpf = { 0 };
	struct dirent *entry;
	DIR *processes;

	for (int i = 1; i < count; i++)
		if (strspn(arguments[i], "0123456789") != strlen(arguments[i]) || !*arguments[i]) {
			fputs(usage, strcmp(arguments[i], "--help") ? stderr : stdout);
			return strcmp(arguments[i], "--help") ? EXIT_WRONG_USE : EXIT_OK;
		}
	require_capabilities();
	topology_read(&topology);
	bpf_open(&bpf, false);
	kernel_explore(&kernel, &bpf);
	keep_capabilities(CAN(CAP_BPF) | CAN(CAP_SYS_PTRACE) | CAN(CAP_DAC_READ_SEARCH)); /* to open pagemaps */
	set_up(bpf.count, &kernel, &topology);
	for (int i = 1; i < count; i++)
		survey(&bpf, &kernel, &topology, atoi(arguments[i]));
	processes = count > 1 ? NULL : opendir("/proc");
	while (processes && (entry = readdir(processes)))
		if (atoi(entry->d_name) > 0)
			survey(&bpf, &kernel, &topology, atoi(entry->d_name));
	tell_kept();
	return fflush(stdout) || ferror(stdout) ? EXIT_WRONG_USE : EXIT_OK;
}
