/* SPDX-License-Identifier: MIT */
/* ptdump: the page tables of a live process as files (see records.h), read by eBPF, no kernel module. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "dump.h"

#define DEFAULT_RETRIES 3
#define DEFAULT_MEMORY (4ULL << 30)

static const char usage[] =
	"Usage: ptdump process PID -o DIR [options]\n"
	"Writes gpt.tables, gpt.entries, maps and snapshot.json to the new or empty directory DIR.\n"
	"  -o, --output DIR     where to\n"
	"      --stop           stop the process while it is read (always continued again)\n"
	"      --retries N      read again up to N times while it changes (default 3)\n"
	"      --verify         compare every leaf with /proc/PID/pagemap (exit 1 if they differ)\n"
	"      --memory MIB     collect up to this much before writing (default 4096, at most a quarter of what is free)\n"
	"      --json-progress  one JSON object a line on standard output\n"
	"  -q, --quiet          print nothing but errors\n"
	"Exit codes: 0 ok, 1 verification failed, 2 wrong use or refused, 3 the process ended.\n"
	"Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN and a kernel with BTF.\n";

static unsigned long number(const char *text, unsigned long most, const char *what)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value > most)
		fail(EXIT_WRONG_USE, "%s = %s: expected a number from 0 to %lu", what, text, most);
	return value;
}

static size_t quarter_of_free_memory(void)
{
	unsigned long kib = 0;
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "MemAvailable: %lu", &kib) != 1)
		;
	if (file)
		fclose(file);
	return kib ? kib * 256 : SIZE_MAX; /* two readings may be held */
}

static void parse(struct options *options, int count, char **arguments)
{
	static const struct option names[] = {
		{ "output", required_argument, NULL, 'o' },	  { "stop", no_argument, NULL, 's' },
		{ "retries", required_argument, NULL, 'r' },	  { "verify", no_argument, NULL, 'v' },
		{ "memory", required_argument, NULL, 'm' },	  { "quiet", no_argument, NULL, 'q' },
		{ "json-progress", no_argument, NULL, 'j' },	  { "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	size_t most = quarter_of_free_memory();
	int option;

	*options = (struct options){ .retries = DEFAULT_RETRIES, .memory = DEFAULT_MEMORY };
	while ((option = getopt_long(count, arguments, "o:qh", names, NULL)) != -1) {
		switch (option) {
		case 'o': options->directory = optarg; break;
		case 's': options->stop = true; break;
		case 'v': options->verify = true; break;
		case 'q': options->quiet = true; break;
		case 'j': options->json_progress = true; break;
		case 'r': options->retries = number(optarg, 1000, "--retries"); break;
		case 'm': options->memory = number(optarg, 1 << 30, "--memory") << 20; break;
		case 'h': fputs(usage, stdout); exit(EXIT_OK);
		default: fputs(usage, stderr); exit(EXIT_WRONG_USE);
		}
	}
	if (count - optind != 2 || strcmp(arguments[optind], "process") || !options->directory) {
		fputs(usage, stderr);
		exit(EXIT_WRONG_USE);
	}
	options->pid = number(arguments[optind + 1], INT_MAX, "PID");
	options->memory = options->memory < most ? options->memory : most;
}

/* Read until the process held still, at most retries + 1 times; `readings[0]` ends up the best. */
static unsigned read_best(struct reading *readings, struct bpf *bpf, const struct kernel *kernel,
			  const struct process *process, const struct options *options, int file)
{
	unsigned retries = 0;

	tables_init(&readings[0].tables, options->memory);
	for (;; retries++) {
		struct reading *reading = &readings[retries > 0];

		if (retries == 1)
			tables_init(&reading->tables, options->memory);
		if (!walk_process(reading, bpf, kernel, process, options, file))
			fail(EXIT_PARTIAL, "PID %d: ended or replaced its memory (exec) while it was read; nothing was kept",
			     process->pid);
		if (retries && reading_trouble(reading) < reading_trouble(&readings[0])) {
			struct reading better = *reading;

			*reading = readings[0];
			readings[0] = better;
		}
		if (!reading_trouble(&readings[0]) || retries == options->retries || reading->tables.streamed)
			return retries;
	}
}

static void summarize(const struct description *about)
{
	const struct tables *tables = &about->reading->tables;
	double bytes = (double)tables->count * PT_TABLE_BYTES;

	if (about->options->quiet)
		return;
	if (about->options->json_progress) {
		printf("{\"event\": \"done\", \"tables\": %zu, \"seconds\": %.6f, \"quiet\": %s, \"retries\": %u}\n",
		       tables->count, about->reading->seconds, about->reading->quiet ? "true" : "false", about->retries);
		return;
	}
	printf("%zu tables of PID %d (%s) read in %.1f ms, %.2f GB/s%s\n", tables->count, about->process->pid,
	       about->process->comm, about->reading->seconds * 1e3, bytes / about->reading->seconds / 1e9,
	       about->reading->quiet ? "" : "; it changed meanwhile (--stop holds it still)");
	if (about->verified)
		printf("%llu pages compared with pagemap: %llu differ, %llu hidden by pagemap\n",
		       (unsigned long long)about->verified->checked, (unsigned long long)about->verified->mismatched,
		       (unsigned long long)about->verified->hidden);
}

static const char *check_types(struct tables *tables, const struct kernel *kernel)
{
	if (kernel->vmemmap)
		return "levels 1 and 2 checked as they were read (page_type)";
	if (access("/proc/kpageflags", R_OK))
		return "unknown: no page type in this kernel's BTF, no /proc/kpageflags";
	tables_check_types(tables);
	return "levels 1 and 2 checked after the walk (/proc/kpageflags)";
}

/* What must be read together, with the process held still if asked for. */
static void read_process(struct description *about, struct verified *verified, struct bpf *bpf, char **maps,
			 size_t *maps_length, int entries)
{
	static struct reading readings[2];
	const struct options *options = about->options;
	const struct process *process = about->process;

	clock_gettime(CLOCK_REALTIME, &about->started);
	if (options->stop)
		stop_process(&about->stop, process);
	about->retries = read_best(readings, bpf, about->kernel, process, options, entries);
	about->reading = &readings[0];
	about->page_type = check_types(&readings[0].tables, about->kernel);
	*maps = process_read(process, "maps", maps_length);
	if (options->verify)
		verify_tables(verified, &readings[0].tables, process);
	if (!process_alive(bpf, process))
		fail(EXIT_PARTIAL, "PID %d: ended while it was read; nothing was kept", process->pid);
	if (options->stop)
		continue_process(&about->stop);
}

int main(int count, char **arguments)
{
	struct options options;
	struct process process;
	struct topology topology;
	struct verified verified;
	struct kernel kernel = { 0 };
	struct bpf bpf = { 0 };
	struct description about = { .options = &options, .process = &process, .kernel = &kernel, .topology = &topology };
	size_t maps_length;
	char *maps;

	parse(&options, count, arguments);
	require_capabilities();
	process_open(&process, options.pid);
	output_begin(options.directory);
	int entries = output_file("gpt.entries"), tables = output_file("gpt.tables");
	int maps_file = output_file("maps"), json = output_file("snapshot.json");
	topology_read(&topology);
	bpf_open(&bpf);
	kernel_explore(&kernel, &bpf);
	about.verified = options.verify ? &verified : NULL;
	read_process(&about, &verified, &bpf, &maps, &maps_length, entries);
	tables_place(&about.reading->tables, &topology);
	tables_write(&about.reading->tables, tables, entries);
	output_write(maps_file, maps, maps_length, 0);
	json_write(json, &about);
	output_commit();
	summarize(&about);
	if (options.verify && verified.mismatched)
		fail(EXIT_VERIFY, "%llu pages differ from pagemap, e.g. %s%s", (unsigned long long)verified.mismatched,
		     verified.examples[0], about.reading->quiet ? "" : "; the process changed, --stop holds it still");
	return EXIT_OK;
}
