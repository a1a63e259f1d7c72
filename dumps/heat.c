/* SPDX-License-Identifier: MIT */
/*
 * ptheat: which pages a process uses, from the accessed bits of its page tables. In each round the kernel is asked to
 * clear them (/proc/PID/clear_refs), and tables are read after a while, and again, each so long after its own clearing:
 * bits are only added meanwhile. All tables are read at the end of a round, before that so many of them, by chance,
 * that short windows are met; tables are read while others are still being cleared. Clearing flushes no TLB
 * (clear_refs_write(), fs/proc/task_mmu.c): a bit is set again when the page is walked for, not at each access.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "account.h"
#include "heat.h"
#include "memory.h"
#include "output.h"
#include "privileges.h"
#include "walk.h"

#define ENTRY_ACCESSED 0x020ULL
#define ENTRY_SPECIAL 0x200ULL /* _PAGE_SPECIAL: zero page, device memory: clear_refs passes over these */
#define MOST_LENGTHS 16
#define MEMORY (1ULL << 30) /* for tables, of most processes */
#define MOST_READ 4096     /* tables read again and again in a round: of larger processes those that chance has it */
#define MOST_ROUNDS 128    /* in the whole time: more add records, and no knowledge to speak of */
#define POLL 50e-6         /* seconds between two looks at how far clearing is */
#define LONG_POLL 1e-3     /* once all is cleared */
#define TICK 12e-3         /* seconds in which the kernel brings CPU times up to date, or longer */
#define TRIED 8192         /* pages, more than TLBs hold */
#define LOOKED_AT 8        /* tables, each time */
#define TELLING 4          /* accessed bits of a table that tells by them that it was cleared */

static const char usage[] =
	"Usage: ptheat [--account FD] PID SECONDS MILLISECONDS...\n"
	"Samples which pages are used, for SECONDS, in rounds of one clearing and a reading after each of these times, until\n"
	"it is interrupted or the process ends. Writes records to standard output: see heat.h. Samplers with one account, 8 bytes of zeros in an open\n"
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

static void cannot_write(void)
{
	int error = errno;
	char name[4096];
	ssize_t bytes = readlink("/proc/self/fd/1", name, sizeof(name) - 1);

	name[bytes < 0 ? 0 : bytes] = 0;
	fail(EXIT_WRONG_USE, "%s: cannot write: %s", name, strerror(error));
}

static void write_all(const void *data, size_t bytes)
{
	if (fwrite(data, bytes, 1, stdout) != 1)
		cannot_write();
}

static void write_header(void)
{
	struct heat_header header = { .version = HEAT_VERSION, .byte_order = PT_BYTE_ORDER,
				      .header_bytes = sizeof(header), .record_bytes = sizeof(struct heat_record) };

	memcpy(header.magic, HEAT_MAGIC, sizeof(header.magic));
	strcpy(header.words, HEAT_WORDS);
	write_all(&header, sizeof(header));
}

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

/* A table that maps pages: read again and again in a round. */
struct chosen {
	uint64_t base, frame;
	unsigned level, accessed; /* bits, when it was last read */
	size_t place;             /* in the reading */
	double part;              /* of all pages those before its middle */
	double cleared, unsure;   /* when, 0: not known; by how much that may be wrong */
	bool kept, used;          /* still there at the end of the round; used by then */
};
struct moment {
	double at, cpu; /* monotonic seconds; CPU time of the process by then */
};
struct round {
	struct chosen *list; /* all tables that map pages, as last read; those read again and again first */
	size_t count, room, chosen, front; /* front: chosen ones whose clearing is known */
	unsigned lengths, number;
	const double *length;
	struct heat_record *records; /* [lengths - 1][MOST_READ] */
	double *read_at;             /* [lengths - 1][MOST_READ]; 0: not read */
	double reading[MOST_LENGTHS], done[MOST_LENGTHS]; /* seconds that it took; when it was over */
	clockid_t clock;             /* CPU time of the process */
	struct moment *moment;
	size_t moments, moments_room;
	double note_again; /* monotonic seconds: not before */
	double since;
	uint32_t price; /* ns that it takes a program to have a bit set again */
};
struct clearing {
	int file, pid;
	double began, ended; /* monotonic seconds; `ended` is known when `over` */
	atomic_bool over;
	bool gone; /* the process has ended */
	pthread_t thread;
};

static double pass_over(volatile char *area)
{
	double began = cpu_seconds();

	for (size_t page = 0; page < TRIED; page++)
		area[page * 40503 % TRIED * 4096];
	return cpu_seconds() - began;
}

/* What an access takes longer after clearing, of our own pages: an exit of the VM where there is no nested paging. */
static uint32_t price_of_a_bit(void)
{
	char *area = mmap(NULL, TRIED * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	double least = 1, more;

	if (area == MAP_FAILED || file < 0)
		fail(EXIT_WRONG_USE, "cannot try what clearing costs: %s", strerror(errno));
	madvise(area, TRIED * 4096, MADV_NOHUGEPAGE);
	memset(area, 1, TRIED * 4096);
	for (int i = 0; i < 5; i++) {
		more = -pass_over(area);
		if (pwrite(file, "1", 1, 0) != 1)
			fail(EXIT_WRONG_USE, "clear_refs: %s", strerror(errno));
		more += pass_over(area);
		least = more < least ? more : least;
	}
	close(file);
	munmap(area, TRIED * 4096);
	return least > 0 ? least / TRIED * 1e9 : 0;
}

static void *clear(void *context)
{
	struct clearing *clearing = context;

	clearing->began = monotonic_seconds();
	if (pwrite(clearing->file, "1", 1, 0) != 1) {
		if (errno != ESRCH)
			fail(EXIT_WRONG_USE,
			     "PID %d: clear_refs: %s: a kernel without CONFIG_PROC_PAGE_MONITOR, or not permitted",
			     clearing->pid, strerror(errno));
		clearing->gone = true;
	}
	clearing->ended = monotonic_seconds();
	atomic_store(&clearing->over, true);
	return NULL;
}

static void clearing_begin(struct clearing *clearing)
{
	int error;

	clearing->began = clearing->ended = monotonic_seconds();
	clearing->over = clearing->gone = false;
	error = pthread_create(&clearing->thread, NULL, clear, clearing);
	if (error)
		fail(EXIT_WRONG_USE, "cannot start a thread: %s", strerror(error));
}

/*
 * Of another process the kernel brings the CPU time up to date at ticks: it goes on evenly between two changes. It adds
 * up the times of all threads, which takes longer than a sample where there are tens of thousands.
 */
static void note_moment(struct round *round)
{
	struct timespec used = { 0 };
	double began = monotonic_seconds(), cpu;

	if (round->moments == round->moments_room) {
		round->moments_room = round->moments_room ? round->moments_room * 2 : 4096;
		round->moment = realloc(round->moment, round->moments_room * sizeof(*round->moment));
		if (!round->moment)
			fail(EXIT_WRONG_USE, "out of memory after %zu moments", round->moments);
	}
	clock_gettime(round->clock, &used);
	cpu = used.tv_sec + used.tv_nsec / 1e9;
	if (!round->moments || cpu != round->moment[round->moments - 1].cpu)
		round->moment[round->moments++] = (struct moment){ monotonic_seconds(), cpu };
	round->note_again = monotonic_seconds() + (monotonic_seconds() - began) * PART;
}

/* CPU time of the process at a moment. */
static double cpu_at(const struct round *round, double at)
{
	size_t low = 0, high = round->moments - 1;
	const struct moment *noted = round->moment;

	if (at <= noted[low].at)
		return noted[low].cpu;
	if (at >= noted[high].at)
		return noted[high].cpu;
	while (high - low > 1) {
		size_t middle = (low + high) / 2;

		if (noted[middle].at <= at)
			low = middle;
		else
			high = middle;
	}
	return noted[low].cpu +
	       (noted[high].cpu - noted[low].cpu) * (at - noted[low].at) / (noted[high].at - noted[low].at);
}

static unsigned bits_of(struct heat_record *record, const struct ptd_page *page, unsigned level)
{
	unsigned count = 0;

	memset(record->word, 0, sizeof(record->word));
	for (unsigned slot = 0; slot < PTD_ENTRIES; slot++)
		if (maps_page(page->entry[slot], level) && page->entry[slot] & ENTRY_ACCESSED) {
			record->word[slot / 64] |= 1ULL << slot % 64;
			count++;
		}
	return count;
}

static unsigned accessed_of(const struct tables *tables, size_t i)
{
	struct heat_record record;

	return bits_of(&record, &tables->entries[i], tables->records[i].level);
}

static void list_tables(struct round *round, const struct tables *tables)
{
	double pages = 0, passed = 0;

	for (size_t i = 0; i < tables->count; i++)
		pages += pages_of(tables, i);
	round->count = 0;
	for (size_t i = 0; i < tables->count; i++) {
		const struct pt_table *table = &tables->records[i];
		unsigned here = pages_of(tables, i);

		if (!here)
			continue;
		if (round->count == round->room) {
			round->room = round->room ? round->room * 2 : 4096;
			round->list = realloc(round->list, round->room * sizeof(*round->list));
			if (!round->list)
				fail(EXIT_WRONG_USE, "out of memory after %zu tables", round->count);
		}
		round->list[round->count++] = (struct chosen){ .base = table->base, .frame = table->frame,
							       .level = table->level, .place = i,
							       .accessed = accessed_of(tables, i),
							       .part = (passed + here / 2.0) / pages };
		passed += here;
	}
}

/* MOST_READ of the tables at most, each with equal chance, in their order (Knuth, 3.4.2, algorithm S). */
static void choose(struct round *round)
{
	size_t wanted = round->count < MOST_READ ? round->count : MOST_READ;

	round->chosen = 0;
	for (size_t i = 0; i < round->count && round->chosen < wanted; i++)
		if (drand48() * (round->count - i) < wanted - round->chosen)
			round->list[round->chosen++] = round->list[i];
}

static const struct ptd_page *peek_table(struct reader *reader, const struct chosen *table)
{
	return bpf_peek_page(reader->bpf, reader->kernel->direct_map + (table->frame << 12));
}

static void read_chosen(struct reader *reader, struct round *round, unsigned k, size_t i)
{
	struct heat_record *record = &round->records[k * MOST_READ + i];
	struct chosen *table = &round->list[i];
	double before = monotonic_seconds();
	const struct ptd_page *page = peek_table(reader, table);

	round->reading[k] += monotonic_seconds() - before;
	*record = (struct heat_record){ .base = table->base, .level = table->level };
	round->read_at[k * MOST_READ + i] = before;
	table->used |= page && bits_of(record, page, table->level);
}

/* Gives tables from the front to `until` times in proportion to their pages, up to `at`, when `part` was cleared. */
static void pass(struct round *round, size_t until, double *last, double *last_part, double at, double part)
{
	for (; round->front < until; round->front++) {
		struct chosen *table = &round->list[round->front];
		double share = part > *last_part ? (table->part - *last_part) / (part - *last_part) : 1;

		table->cleared = *last + (at - *last) * (share < 0 ? 0 : share > 1 ? 1 : share);
		table->unsure = (at - *last) / 4;
	}
	*last = at;
	*last_part = part;
}

/*
 * How far clearing is, by address: behind the last table that has lost half of its accessed bits or more. Tables that
 * had few may have them again at once, so some are looked at.
 */
static void follow(struct reader *reader, struct round *round, struct clearing *clearing, double *last, double *part)
{
	bool over = atomic_load(&clearing->over);
	size_t front = round->front;
	double now = monotonic_seconds();

	if (over) {
		pass(round, round->chosen, last, part, clearing->ended, 1);
		return;
	}
	for (size_t i = front, looked = 0; i < round->chosen && looked < LOOKED_AT; i++) {
		struct chosen *table = &round->list[i];
		struct heat_record bits;
		const struct ptd_page *page;

		if (table->accessed < TELLING)
			continue;
		looked++;
		page = peek_table(reader, table);
		if (page && bits_of(&bits, page, table->level) * 2 < table->accessed) {
			front = i + 1;
			looked = 0;
		}
	}
	if (front > round->front && front < round->chosen)
		pass(round, front, last, part, now, (round->list[front - 1].part + round->list[front].part) / 2);
}

/* The reading that is due next: of which length, and when, 0 not known; false when all is read. */
static bool next_reading(const struct round *round, const size_t *place, unsigned *next, double *due)
{
	bool more = false;

	*due = 0;
	for (unsigned k = 0; k < round->lengths - 1; k++) {
		double at = place[k] < round->front ? round->list[place[k]].cleared + round->length[k] : 0;

		more |= place[k] < round->chosen;
		if (at && (!*due || at < *due)) {
			*next = k;
			*due = at;
		}
	}
	return more;
}

/* All lengths but the last, of tables that are still being cleared or are; false when it is enough. */
static bool read_again_and_again(struct reader *reader, struct round *round, struct clearing *clearing)
{
	double due, now, noted = 0, pause = POLL, last = clearing->began, part = 0;
	size_t place[MOST_LENGTHS] = { 0 };
	unsigned next = 0;

	for (round->front = 0; next_reading(round, place, &next, &due);) {
		now = monotonic_seconds();
		if (enough)
			return false;
		if (now - noted > pause) {
			if (now >= round->note_again)
				note_moment(round);
			if (round->front < round->chosen)
				follow(reader, round, clearing, &last, &part);
			pause = round->front < round->chosen ? POLL : LONG_POLL;
			noted = monotonic_seconds(); /* some are read between two looks, however long these take */
		} else if (due && due <= now) {
			read_chosen(reader, round, next, place[next]);
			if (++place[next] == round->chosen)
				round->done[next] = now;
		} else {
			wait_seconds(due && due - now < pause ? due - now : pause);
		}
	}
	return true;
}

/* Tables that are not where they were are not to be counted; how many are left. */
static size_t keep_same(struct round *round, const struct tables *tables)
{
	size_t kept = 0, i = 0;

	for (size_t j = 0; j < round->chosen; j++) {
		struct chosen *table = &round->list[j];

		while (i < tables->count && (tables->records[i].base < table->base ||
					     (tables->records[i].base == table->base && tables->records[i].level > table->level)))
			i++;
		table->kept = i < tables->count && tables->records[i].base == table->base &&
			      tables->records[i].level == table->level &&
			      (uint64_t)tables->records[i].frame == table->frame && pages_of(tables, i);
		kept += table->kept;
	}
	return kept;
}

/* Window and CPU time of a record, 0 where the time of clearing is not known as well. */
static void set_window(const struct round *round, struct heat_record *record, double cleared, double unsure, double read)
{
	double window = read - cleared;

	if (!read || window <= unsure)
		return;
	record->window = window * 1e9;
	record->cpu = (cpu_at(round, read) - cpu_at(round, cleared)) * 1e9 / HEAT_CPU_NS;
}

struct spread {
	uint64_t least, most;
};

static void write_record(const struct heat_record *record, struct spread *spread)
{
	write_all(record, sizeof(*record));
	if (!record->window)
		return;
	spread->least = !spread->most || record->window < spread->least ? record->window : spread->least;
	spread->most = record->window > spread->most ? record->window : spread->most;
}

static void write_end(const struct round *round, const struct clearing *clearing, unsigned k, struct spread spread,
		      size_t tables, size_t read)
{
	uint64_t asked = round->length[k] * 1e9;

	write_all(&(struct heat_record){ .base = tables, .cpu = round->price, .window = spread.most - spread.least,
					 .word = { spread.most ? spread.least : asked,
						   (clearing->ended - clearing->began) * 1e9, round->reading[k] * 1e9,
						   read, asked, round->number, cpu_at(round, round->done[k]) * 1e9,
						   (round->done[k] - round->since) * 1e9 } },
		  sizeof(struct heat_record));
}

static void write_chosen(const struct round *round, const struct clearing *clearing, size_t tables, size_t kept)
{
	for (unsigned k = 0; k < round->lengths - 1; k++) {
		struct spread spread = { 0 };

		for (size_t i = 0; i < round->chosen; i++) {
			struct heat_record *record = &round->records[k * MOST_READ + i];
			const struct chosen *table = &round->list[i];

			if (!table->kept || !table->used)
				continue;
			set_window(round, record, table->cleared, table->unsure, round->read_at[k * MOST_READ + i]);
			write_record(record, &spread);
		}
		write_end(round, clearing, k, spread, tables, kept);
	}
}

/* The last reading: by address, each table taken to last as long; those used, by now or before in this round. */
static void write_last(struct round *round, const struct clearing *clearing, const struct tables *tables, double read)
{
	unsigned last = round->lengths - 1;
	double done = round->done[last], length = clearing->ended - clearing->began;
	struct round now = *round;
	struct spread spread = { 0 };
	size_t j = 0;

	now.list = NULL;
	now.room = 0;
	list_tables(&now, tables);
	for (size_t i = 0; i < now.count; i++) {
		const struct chosen *table = &now.list[i], *known = NULL;
		struct heat_record record = { .base = table->base, .level = table->level };
		bool used = bits_of(&record, &tables->entries[table->place], table->level);
		double at = read + (done - read) * (table->place + 0.5) / tables->count;

		while (j < round->chosen && (round->list[j].base < table->base ||
					     (round->list[j].base == table->base && round->list[j].level > table->level)))
			j++;
		if (j < round->chosen && round->list[j].base == table->base && round->list[j].level == table->level &&
		    round->list[j].kept && last)
			known = &round->list[j];
		set_window(round, &record, known ? known->cleared : clearing->began + length * table->part, 0, at);
		if (used || (known && known->used))
			write_record(&record, &spread);
	}
	write_end(round, clearing, last, spread, now.count, now.count);
	free(round->list);
	round->list = now.list;
	round->count = now.count;
	round->room = now.room;
}

/* One clearing, and what is read after it; what it took of the process's time, negative when nothing came of it. */
static double play(struct reader *reader, struct reading *reading, struct round *round, struct clearing *clearing)
{
	unsigned last = round->lengths - 1;
	double read, took = 0;
	bool whole;

	memset(round->reading, 0, sizeof(round->reading));
	memset(round->read_at, 0, last * MOST_READ * sizeof(*round->read_at));
	round->moments = 0;
	choose(round);
	for (double begin = monotonic_seconds() + (last ? TICK : 0); !enough && monotonic_seconds() < begin; wait_seconds(LONG_POLL))
		note_moment(round);
	clearing_begin(clearing);
	whole = !last || read_again_and_again(reader, round, clearing);
	pthread_join(clearing->thread, NULL);
	if (clearing->gone || !whole)
		return -1;
	note_moment(round);
	wait_seconds(clearing->ended + round->length[last] - monotonic_seconds());
	if (enough && last)
		return -1;
	note_moment(round);
	read = monotonic_seconds();
	tables_reset(&reading->tables, -1);
	memset(&reading->before, 0, sizeof(reading->before));
	if (!read_process(reader, reading))
		return -1;
	note_moment(round);
	round->done[last] = monotonic_seconds();
	tables_finish(&reading->tables);
	round->reading[last] = round->done[last] - read;
	if (last)
		write_chosen(round, clearing, round->count, keep_same(round, &reading->tables));
	write_last(round, clearing, &reading->tables, read);
	if (fflush(stdout))
		cannot_write();
	for (unsigned k = 0; k < round->lengths; k++)
		took += round->reading[k];
	round->number++;
	return took + clearing->ended - clearing->began;
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
	size_t wanted = 2 * bpf_locate(bpf, process->pagemap, -1)->pgtables_bytes, most = free_memory() / 2;

	if (wanted <= MEMORY)
		return MEMORY;
	if (wanted > most)
		fail(EXIT_WRONG_USE, "PID %d: %zu MiB of page tables: twice that is needed to read them, half of the free memory is %zu MiB",
		     process->pid, wanted >> 21, most >> 20);
	return wanted;
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

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* Rounds until the time is over; how many there were. */
static unsigned play_all(struct reader *reader, struct reading *reading, struct round *round, struct clearing *clearing,
			 struct account *account, double seconds)
{
	double until = round->since + seconds, began, cpu, took, pause, left;

	if (!read_process(reader, reading))
		return 0;
	tables_finish(&reading->tables);
	list_tables(round, &reading->tables);
	while (!enough && (began = monotonic_seconds()) < until) {
		cpu = cpu_seconds();
		took = play(reader, reading, round, clearing);
		if (took < 0)
			break;
		cpu = cpu_seconds() - cpu;
		took = took > cpu ? took : cpu;
		pause = account_pause(account, took, cpu) - (monotonic_seconds() - began - took);
		left = began + seconds / MOST_ROUNDS - monotonic_seconds();
		pause = pause > left ? pause : left;
		pause = (pause > 0 ? pause : 0) + drand48() * round->length[round->lengths - 1] / 3; /* in step with no period */
		left = until - monotonic_seconds();
		wait_seconds(pause < left ? pause : left);
	}
	return round->number;
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
	struct clearing clearing = { 0 };
	struct round round = { 0 };
	double length[MOST_LENGTHS];
	unsigned rounds;
	int paid = -1;

	if (count > 3 && !strcmp(arguments[1], "--account")) {
		paid = number(arguments[2]);
		account_open(&account, paid);
		arguments += 2;
		count -= 2;
	}
	if (count < 4 || count - 3 > MOST_LENGTHS) {
		fputs(usage, count == 2 && !strcmp(arguments[1], "--help") ? stdout : stderr);
		return count == 2 && !strcmp(arguments[1], "--help") ? EXIT_OK : EXIT_WRONG_USE;
	}
	for (int i = 3; i < count; i++)
		length[round.lengths++] = number(arguments[i]) / 1e3;
	qsort(length, round.lengths, sizeof(*length), ascending);
	double seconds = number(arguments[2]);
	require_capabilities();
	process_open(&process, number(arguments[1]));
	clearing.file = cleared_by_us(&process);
	clearing.pid = process.pid;
	bpf_open(&bpf, false);
	kernel_explore(&kernel, &bpf);
	keep_capabilities(CAN(CAP_BPF) | CAN(CAP_SYS_PTRACE)); /* to call loaded programs, to look into the process */
	options.memory = most_tables(&bpf, &process);
	tables_init(&reading.tables, options.memory, &reader.format);
	tables_reset(&reading.tables, -1);
	on_signals(stop_sampling);
	write_header();
	round.length = length;
	round.records = calloc(round.lengths, MOST_READ * sizeof(*round.records));
	round.read_at = calloc(round.lengths, MOST_READ * sizeof(*round.read_at));
	if (paid >= 0)
		lockf(paid, F_LOCK, 8); /* one sampler after the other: it takes memory */
	round.price = price_of_a_bit();
	if (paid >= 0)
		lockf(paid, F_ULOCK, 8);
	round.since = monotonic_seconds();
	srand48((long)(round.since * 1e9));
	if (!round.records || !round.read_at)
		fail(EXIT_WRONG_USE, "out of memory for %u lengths", round.lengths);
	if (clock_getcpuclockid(process.pid, &round.clock))
		fail(EXIT_PARTIAL, "PID %d: ended before a sample was complete", process.pid);
	rounds = play_all(&reader, &reading, &round, &clearing, &account, seconds);
	if (!rounds)
		fail(EXIT_PARTIAL, "PID %d: %s before a sample was complete", process.pid, enough ? "interrupted" : "ended");
	return EXIT_OK;
}
