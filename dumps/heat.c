/* SPDX-License-Identifier: MIT */
/*
 * ptheat: which pages a process uses, from the accessed bits of its page tables. For each sample the kernel is asked
 * to clear them (/proc/PID/clear_refs), and after a while they are read. Clearing flushes no TLB
 * (clear_refs_write(), fs/proc/task_mmu.c): a bit is set again when the page is walked for, not at each access.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "account.h"
#include "heat.h"
#include "output.h"
#include "privileges.h"
#include "walk.h"

#define ENTRY_ACCESSED 0x020ULL
#define ENTRY_SPECIAL 0x200ULL /* _PAGE_SPECIAL: zero page, device memory: clear_refs passes over these */
#define MOST_LENGTHS 16
#define MEMORY (1ULL << 30)

static const char usage[] =
	"Usage: ptheat [--account FD] PID SECONDS MILLISECONDS...\n"
	"Samples which pages are used, for SECONDS, in samples of these lengths in turn, until it is interrupted or the\n"
	"process ends. Writes records to standard output: see heat.h. Samplers with one account, 8 bytes of zeros in an open\n"
	"file, take a twentieth of all CPUs together; one by itself takes at most a twentieth of one.\n"
	"Exit codes: 0 ok, 2 wrong use or refused, 3 the process ended before a sample was complete.\n"
	"Needs CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYS_ADMIN and a kernel with BTF.\n";

static volatile sig_atomic_t enough;

static void stop_sampling(int signal)
{
	(void)signal;
	enough = 1;
}

static double cpu_seconds(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec + used.tv_nsec / 1e9;
}

static void wait_seconds(double seconds)
{
	struct timespec pause = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };

	if (seconds > 0 && !enough)
		nanosleep(&pause, NULL);
}

static void write_all(const void *data, size_t bytes)
{
	if (fwrite(data, bytes, 1, stdout) != 1)
		fail(EXIT_WRONG_USE, "cannot write: %s", strerror(errno));
}

static void write_header(void)
{
	struct heat_header header = { .version = HEAT_VERSION, .byte_order = PT_BYTE_ORDER,
				      .header_bytes = sizeof(header), .record_bytes = sizeof(struct heat_record) };

	memcpy(header.magic, HEAT_MAGIC, sizeof(header.magic));
	strcpy(header.words, HEAT_WORDS);
	write_all(&header, sizeof(header));
}

/* Seconds at which clearing begins and is over, and reading. */
struct moments {
	double clear, cleared, read, done;
};

static bool maps_page(uint64_t entry, unsigned level)
{
	return entry & PTD_ENTRY_PRESENT && !(entry & ENTRY_SPECIAL) && (level == 1 || entry & PTD_ENTRY_HUGE);
}

/* Pages that the entries of table `i` map: clearing passes over all else. */
static unsigned pages_of(const struct tables *tables, size_t i)
{
	unsigned pages = 0;

	for (unsigned slot = 0; slot < PTD_ENTRIES; slot++)
		pages += maps_page(tables->entries[i].entry[slot], tables->records[i].level);
	return pages;
}

/*
 * A record per table in which an entry that maps a page has been used. Clearing and reading go by address
 * (walk_page_range()): clearing is taken to last as long for each page, reading for each table.
 */
static void write_used(const struct tables *tables, const struct moments *at)
{
	double pages = 0, passed = 0;

	for (size_t i = 0; i < tables->count; i++)
		pages += pages_of(tables, i);
	for (size_t i = 0; i < tables->count; i++) {
		unsigned level = tables->records[i].level, here = pages_of(tables, i);
		double cleared = at->clear + (at->cleared - at->clear) * (passed + here / 2.0) / (pages ? pages : 1);
		double read = at->read + (at->done - at->read) * (i + 0.5) / tables->count;
		struct heat_record record = { .base = tables->records[i].base, .level = level,
					      .window = (read - cleared) * 1e9 };
		bool used = false;

		passed += here;
		for (unsigned slot = 0; slot < PTD_ENTRIES; slot++) {
			uint64_t entry = tables->entries[i].entry[slot];

			if (!maps_page(entry, level) || !(entry & ENTRY_ACCESSED))
				continue;
			record.word[slot / 64] |= 1ULL << slot % 64;
			used = true;
		}
		if (used)
			write_all(&record, sizeof(record));
	}
}

/* Clears all accessed bits; false if the process has ended. */
static bool clear(int file, int pid)
{
	if (pwrite(file, "1", 1, 0) == 1)
		return true;
	if (errno != ESRCH)
		fail(EXIT_WRONG_USE, "PID %d: clear_refs: %s: a kernel without CONFIG_PROC_PAGE_MONITOR, or not permitted",
		     pid, strerror(errno));
	return false;
}

/* One sample of so many seconds; what it took of the process's time, negative when the process has ended. */
static double sample(struct reader *reader, struct reading *reading, int file, double length)
{
	struct moments at = { .clear = monotonic_seconds() };

	if (!clear(file, reader->process->pid))
		return -1;
	at.cleared = monotonic_seconds();
	wait_seconds(length);
	at.read = monotonic_seconds();
	tables_reset(&reading->tables, -1);
	memset(&reading->before, 0, sizeof(reading->before));
	if (!read_process(reader, reading))
		return -1;
	at.done = monotonic_seconds();
	tables_finish(&reading->tables);
	write_used(&reading->tables, &at);
	write_all(&(struct heat_record){ .word = { (at.read - at.cleared) * 1e9, (at.cleared - at.clear) * 1e9,
						   (at.done - at.read) * 1e9, reading->tables.count, length * 1e9 } },
		  sizeof(struct heat_record));
	return at.done - at.read + at.cleared - at.clear;
}

/* The process's clear_refs, which is ours alone: another sampler would clear what we are to see. */
static int cleared_by_us(const struct process *process)
{
	int file = openat(process->directory, "clear_refs", O_WRONLY | O_CLOEXEC);

	if (file < 0)
		fail(EXIT_WRONG_USE, "PID %d: cannot open clear_refs: %s", process->pid, strerror(errno));
	if (flock(file, LOCK_EX | LOCK_NB))
		fail(EXIT_WRONG_USE, "PID %d: is being sampled already, and two would hide uses from each other: wait for the end",
		     process->pid);
	return file;
}

static size_t most_tables(struct bpf *bpf, const struct process *process)
{
	size_t bytes = bpf_locate(bpf, process->pagemap, -1)->pgtables_bytes;

	if (bytes * 2 > MEMORY)
		fail(EXIT_WRONG_USE, "PID %d: %zu MiB of page tables: more than %llu MiB are not read again and again",
		     process->pid, bytes >> 20, MEMORY >> 21);
	return MEMORY;
}

static unsigned long number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || !value || value > 1 << 30) {
		fputs(usage, stderr);
		exit(EXIT_WRONG_USE);
	}
	return value;
}

int main(int count, char **arguments)
{
	struct options options = { .memory = MEMORY };
	struct kernel kernel = { 0 };
	struct bpf bpf = { 0 };
	struct process process;
	struct reading reading = { 0 };
	struct reader reader = { &bpf, &kernel, &process, &options, .read = read_process, .format = format_x86 };
	struct account account = { 0 };
	double length[MOST_LENGTHS], until, took, cpu, pause, left;
	unsigned lengths = 0, samples = 0;

	if (count > 3 && !strcmp(arguments[1], "--account")) {
		account_open(&account, number(arguments[2]));
		arguments += 2;
		count -= 2;
	}
	if (count < 4 || count - 3 > MOST_LENGTHS) {
		fputs(usage, count == 2 && !strcmp(arguments[1], "--help") ? stdout : stderr);
		return count == 2 && !strcmp(arguments[1], "--help") ? EXIT_OK : EXIT_WRONG_USE;
	}
	for (int i = 3; i < count; i++)
		length[lengths++] = number(arguments[i]) / 1e3;
	until = number(arguments[2]);
	require_capabilities();
	process_open(&process, number(arguments[1]));
	int file = cleared_by_us(&process);
	bpf_open(&bpf, false);
	kernel_explore(&kernel, &bpf);
	keep_capabilities(CAN(CAP_BPF) | CAN(CAP_SYS_PTRACE)); /* to call loaded programs, to look into the process */
	options.memory = most_tables(&bpf, &process);
	tables_init(&reading.tables, options.memory, &reader.format);
	signal(SIGINT, stop_sampling);
	signal(SIGTERM, stop_sampling);
	write_header();
	for (until += monotonic_seconds(); !enough && monotonic_seconds() < until; samples++) {
		cpu = cpu_seconds();
		took = sample(&reader, &reading, file, length[samples % lengths]);
		if (took < 0)
			break;
		pause = account_pause(&account, took, cpu_seconds() - cpu) - length[samples % lengths];
		left = until - monotonic_seconds();
		wait_seconds(pause < left ? pause : left);
	}
	if (fflush(stdout))
		fail(EXIT_WRONG_USE, "cannot write: %s", strerror(errno));
	if (!samples)
		fail(EXIT_PARTIAL, "PID %d: %s before a sample was complete", process.pid, enough ? "interrupted" : "ended");
	return EXIT_OK;
}
