/* SPDX-License-Identifier: MIT */
/* What must be read together, for `process` and for `vm`, and the word at the end. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include "output.h"
#include "privileges.h"
#include "dump_common.h"

static const char *check_types(struct reading *reading, unsigned replicas, const struct kernel *kernel)
{
	if (kernel->typed)
		return "levels 1 and 2 checked as they were read (page_type)";
	if (access("/proc/kpageflags", R_OK))
		return "unknown: no page type in this kernel's BTF, no /proc/kpageflags";
	for (unsigned i = 0; i <= replicas; i++)
		tables_check_types(tree(reading, i));
	return "levels 1 and 2 checked after the walk (/proc/kpageflags)";
}

/*
 * All is open and loaded. What is left calls loaded programs and signals the process, and may have to look into a
 * /proc that hides processes (hidepid), or into the kernel's page types. Returns what the end needs: to write
 * to a directory that is another user's.
 */
static uint64_t give_up_privileges(const struct reader *reader)
{
	uint64_t needed = CAN(CAP_KILL), end = 0;

	if (reader->bpf)
		needed |= CAN(CAP_BPF);
	if (reader->bpf && !reader->kernel->typed)
		needed |= CAN(CAP_DAC_READ_SEARCH);
	use_capabilities(needed);
	if (!process_readable(reader->process))
		needed |= CAN(CAP_SYS_PTRACE);
	if (!output_writable())
		end = CAN(CAP_DAC_OVERRIDE);
	keep_capabilities(needed | end);
	return end;
}

static void require_one_memory(const struct reader *reader)
{
	const struct process *process = reader->process;
	uint64_t memory = bpf_locate(reader->bpf, process->pagemap, -1)->mm;

	if (bpf_locate(reader->bpf, process->files[PROCESS_PAGEMAP_AGAIN], -1)->mm != memory)
		fail(EXIT_PARTIAL, "PID %d: replaced its memory (exec) when it was opened; nothing was kept", process->pid);
}

/* What must be read together, with the process held still if asked for. `verified`: NULL if not asked for. */
void dump_quiescent(struct reader *reader, struct description *about, struct verified *verified)
{
	const struct options *options = reader->options;
	struct tables *tables = &about->reading->tables;
	uint64_t end = give_up_privileges(reader);

	if (reader->bpf)
		require_one_memory(reader);
	clock_gettime(CLOCK_REALTIME, &about->started);
	if (options->stop)
		stop_process(&about->stop, reader->process, options->max_stop);
	about->retries = read_best(reader, about->reading);
	if (!about->page_type)
		about->page_type = check_types(about->reading, reader->replicas.count, reader->kernel);
	if (!about->reading->maps)
		about->reading->maps = process_read(reader->process, PROCESS_MAPS, &about->reading->maps_length);
	if (verified)
		verify_tables(verified, tables, reader->process);
	if (!process_alive(reader->process))
		fail(EXIT_PARTIAL, "PID %d: ended while it was read; nothing was kept", reader->process->pid);
	if (options->stop)
		continue_process(&about->stop);
	keep_capabilities(end);
	if (about->stop.gave_up)
		say(stderr, "ptdump: PID %d: held for %lu ms and then continued, before all was read (--max-stop)",
		    reader->process->pid, options->max_stop);
}

/* The end, when it is not for people; false: say it to them. */
bool say_done(const struct description *about)
{
	const struct options *options = about->reader->options;

	if (options->json_progress && !options->quiet)
		printf("{\"event\": \"done\", \"tables\": %zu, \"seconds\": %.6f, \"quiet\": %s, \"retries\": %u}\n",
		       reading_sum(about->reader, about->reading).count, about->reading->seconds, truth(about->reading->quiet),
		       about->retries);
	return options->quiet || options->json_progress;
}
