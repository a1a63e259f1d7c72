/* SPDX-License-Identifier: MIT */
/* ptdump: the page tables of a live process as files (see records.h), read by eBPF, no kernel module. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bpf.h"
#include "json.h"
#include "kernel.h"
#include "memory.h"
#include "options.h"
#include "output.h"
#include "pagemap.h"
#include "privileges.h"
#include "proc.h"
#include "tables.h"
#include "dump_common.h"
#include "topology.h"
#include "vcpus.h"
#include "verify.h"
#include "vm.h"
#include "walk.h"

#define DEFAULT_RETRIES 3
#define DEFAULT_MEMORY (4ULL << 30)
#define LEAST_MEMORY (2ULL << 20)

static const char usage[] =
	"Usage: ptdump process PID -o DIR [options]\n"
	"       ptdump vm PID -o DIR [options]\n"
	"       ptdump vcpus PID [--vm FD]\n"
	"process writes gpt.tables, gpt.entries, maps and snapshot.json to the new or empty directory DIR;\n"
	"vm, for the VM of the VMM PID, ept.tables, ept.entries, maps and vm.json;\n"
	"vcpus prints that VM's memory slots, then its vCPUs' control registers, a line of JSON each.\n"
	"  -o, --output DIR     where to\n"
	"      --stop           stop the process while it is read (always continued again); no terminal's foreground job\n"
	"      --max-stop MS    continue it after so many milliseconds, whatever was read (default: no limit)\n"
	"      --retries N      read again up to N times while it changes (default 3)\n"
	"      --verify         compare every leaf with /proc/PID/pagemap (process only; exit 1 if they differ)\n"
	"      --pagemap        read /proc/PID/pagemap alone, without BPF: no table frames (process only)\n"
	"      --vm FD          which VM, by its descriptor in the VMM, if it holds several\n"
	"      --memory MIB     collect up to this much before writing (default 4096, at most half of what is free)\n"
	"      --json-progress  one JSON object a line on standard output\n"
	"  -q, --quiet          print nothing but errors\n"
	"Exit codes: 0 ok, 1 verification failed, 2 wrong use or refused, 3 the process ended.\n"
	"Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN and a kernel with BTF; with --pagemap, CAP_SYS_ADMIN to\n"
	"see page frames, and CAP_SYS_PTRACE for what is not your own.\n";

static unsigned long number(const char *text, unsigned long most, const char *what)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value > most)
		fail(EXIT_WRONG_USE, "%s = %s: expected a number from 0 to %lu", what, text, most);
	return value;
}

/* At most half of what is free, and enough to write in pieces of a megabyte where nothing is. */
static size_t bounded(size_t wanted)
{
	size_t most = free_memory() / 2;

	most = most < LEAST_MEMORY ? LEAST_MEMORY : most;
	return wanted < most ? wanted : most;
}

static void parse(struct options *options, int count, char **arguments)
{
	static const struct option names[] = {
		{ "output", required_argument, NULL, 'o' },	  { "stop", no_argument, NULL, 's' },
		{ "retries", required_argument, NULL, 'r' },	  { "verify", no_argument, NULL, 'v' },
		{ "memory", required_argument, NULL, 'm' },	  { "quiet", no_argument, NULL, 'q' },
		{ "json-progress", no_argument, NULL, 'j' },	  { "help", no_argument, NULL, 'h' },
		{ "vm", required_argument, NULL, 'V' },	  { "max-stop", required_argument, NULL, 'M' },
		{ "pagemap", no_argument, NULL, 'p' },	  { 0 },
	};
	int option;

	opterr = 0; /* getopt() would print an argument as it is */
	*options = (struct options){ .vm_file = -1, .retries = DEFAULT_RETRIES, .memory = DEFAULT_MEMORY };
	while ((option = getopt_long(count, arguments, "o:qh", names, NULL)) != -1) {
		switch (option) {
		case 'o': options->directory = optarg; break;
		case 's': options->stop = true; break;
		case 'v': options->verify = true; break;
		case 'p': options->pagemap = true; break;
		case 'q': options->quiet = true; break;
		case 'j': options->json_progress = true; break;
		case 'r': options->retries = number(optarg, 1000, "--retries"); break;
		case 'm': options->memory = number(optarg, 1 << 30, "--memory") << 20; break;
		case 'M': options->max_stop = number(optarg, 1 << 30, "--max-stop"); break;
		case 'V': options->vm_file = number(optarg, INT_MAX, "--vm"); break;
		case 'h': fputs(usage, stdout); exit(EXIT_OK);
		default:
			say(stderr, "ptdump: %s: no such option, or its value is missing", arguments[optind - 1]);
			fputs(usage, stderr);
			exit(EXIT_WRONG_USE);
		}
	}
	options->vm = count - optind == 2 && !strcmp(arguments[optind], "vm");
	options->vcpus = count - optind == 2 && !strcmp(arguments[optind], "vcpus");
	if (count - optind != 2 || !(options->vm || options->vcpus || !strcmp(arguments[optind], "process")) ||
	    options->vcpus == !!options->directory ||
	    (options->vm || options->vcpus ? options->verify || options->pagemap : options->vm_file >= 0) ||
	    (options->pagemap && (options->verify || options->max_stop))) {
		fputs(usage, stderr);
		exit(EXIT_WRONG_USE);
	}
	options->pid = number(arguments[optind + 1], INT_MAX, "PID");
	options->memory = bounded(options->memory);
}

static void list_unknown(struct description *about, bool frames)
{
	static const char *const always[] = { "table frame", "entry flags", "empty tables", "leaves of 1 GiB (shown as 2 MiB)" };
	const char **unknown = mempcpy(about->unknown, always, sizeof(always));

	if (about->topology->node_count > 1)
		*unknown++ = "table node";
	if (about->reading->tables.unsized)
		*unknown++ = "leaf size (4 KiB assumed)";
	if (!frames)
		*unknown = "page frame (zero without CAP_SYS_ADMIN)";
}

static void summarize_pagemap(const struct description *about)
{
	printf("%zu tables of PID %d inferred from /proc/PID/pagemap%s\nunknown: ", about->reading->tables.count,
	       about->reader->process->pid, about->reading->quiet ? "" : "; it changed meanwhile (--stop holds it still)");
	for (const char *const *what = about->unknown; *what; what++)
		printf("%s%s", what == about->unknown ? "" : ", ", *what);
	putchar('\n');
}

static void summarize(const struct description *about)
{
	size_t count = reading_sum(about->reader, about->reading).count;
	double bytes = (double)count * PT_TABLE_BYTES;
	char trees[32] = "";

	if (say_done(about))
		return;
	if (!about->reader->bpf) {
		summarize_pagemap(about);
		return;
	}
	if (about->reader->replicas.count)
		snprintf(trees, sizeof(trees), "in %u trees ", about->reader->replicas.count + 1);
	say(stdout, "%zu tables %sof PID %d (%s) read in %.1f ms, %.2f GB/s%s", count, trees,
	    about->reader->process->pid, about->reader->process->comm, about->reading->seconds * 1e3, bytes / about->reading->seconds / 1e9,
	    about->reading->quiet ? "" : "; it changed meanwhile (--stop holds it still)");
	if (about->verified)
		printf("%llu pages compared with pagemap: %llu differ, %llu hidden by pagemap\n",
		       (unsigned long long)about->verified->checked, (unsigned long long)about->verified->mismatched,
		       (unsigned long long)about->verified->hidden);
}

static bool ksm_runs(void)
{
	FILE *file = fopen("/sys/kernel/mm/ksm/run", "r");
	bool runs = file && fgetc(file) == '1';

	if (file)
		fclose(file);
	return runs;
}

static void refuse_differences(const struct description *about)
{
	const char *why = "";

	if (!about->verified || !about->verified->mismatched)
		return;
	if (!about->stop.stopped)
		why = "; the process ran meanwhile, --stop holds it still";
	else if (ksm_runs())
		why = "; KSM is running and moves pages of stopped processes too, `echo 0 > /sys/kernel/mm/ksm/run` halts it";
	else
		why = "; compaction may have moved them, of stopped processes too: dump again";
	fail(EXIT_VERIFY, "%llu pages differ from pagemap, e.g. %s%s", (unsigned long long)about->verified->mismatched,
	     about->verified->examples[0], why);
}

static void write_trees(const struct description *about, int gpt_tables)
{
	const struct reader *reader = about->reader;

	for (unsigned i = 0; i <= reader->replicas.count; i++) {
		const struct replica *replica = i ? &reader->replicas.replica[i - 1] : NULL;
		struct tables *tables = tree(about->reading, i);

		tables_place(tables, about->topology);
		tables_write(tables, i ? replica->tables : gpt_tables, i ? replica->entries : reader->file);
	}
}

/* Writes gpt.tables, gpt.entries, those of each replica, maps and snapshot.json. */
static void dump_process(const struct options *options, const struct process *process)
{
	struct topology topology;
	struct verified verified;
	struct kernel kernel = { 0 };
	struct bpf bpf = { 0 };
	bool frames = true;
	struct reading readings[2] = { 0 };
	struct reader reader = { options->pagemap ? NULL : &bpf, &kernel, process, options, .read = read_process,
				 .format = format_x86, .with_maps = true };
	struct description about = { .reader = &reader, .topology = &topology, .reading = readings };

	output_begin(options->directory);
	reader.file = output_file("gpt.entries");
	int tables = output_file("gpt.tables"), maps = output_file("maps"), json = output_file("snapshot.json");
	topology_read(&topology);
	if (options->pagemap) {
		kernel.levels = pagemap_levels();
		frames = frame_of_own_page(&kernel);
		about.page_type = "unknown: table pages were not read";
	} else {
		bpf_open(&bpf, false);
		kernel_explore(&kernel, &bpf);
		replicas_find(&reader.replicas, bpf_locate(&bpf, process->pagemap, -1));
		replicas_files(&reader.replicas);
	}
	about.verified = options->verify ? &verified : NULL;
	dump_quiescent(&reader, &about, options->verify ? &verified : NULL);
	if (options->pagemap)
		list_unknown(&about, frames);
	write_trees(&about, tables);
	output_write(maps, about.reading->maps, about.reading->maps_length, 0);
	json_write(json, &about);
	output_commit();
	summarize(&about);
	refuse_differences(&about);
}

int main(int count, char **arguments)
{
	struct options options;
	struct process process;

	parse(&options, count, arguments);
	if (!options.pagemap)
		require_capabilities();
	process_open(&process, options.pid);
	if (options.vm)
		dump_vm(&options, &process);
	else if (options.vcpus)
		show_vcpus(&options, &process);
	else
		dump_process(&options, &process);
	return EXIT_OK;
}
