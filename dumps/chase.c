/* SPDX-License-Identifier: MIT */
/*
 * ptchase: what a dependent read of a NUMA node's memory takes. For each line "CPU NODE LOAD" of standard input,
 * a thread pinned to CPU follows a random cycle through all lines of a buffer on NODE, and "CPU NODE HUGE NS..." is
 * written: the percentage of the buffer in huge pages (small ones add page walks), and ns a read of each of BURSTS, of
 * the thread's CPU time. LOAD is - or a list of CPUs such as 1,2 that stream through memory of NODE meanwhile, reading
 * and writing as STREAM does: bursts in which one of them does not run do not count, so there may be fewer. Or pages:
 * two ns each, of random reads with small and with huge pages, whose buffers stay until the next line. Or walk:TABLES:
 * each read then misses the TLBs, page tables of MEBIBYTES are on node TABLES, and the few data are on NODE and fit the
 * caches: ns of a page walk. They stay until the next line, too, for a dump that proves it.
 *
 * Usage: ptchase MEBIBYTES BURSTS    Exit: 0 end of input, 2 wrong usage, or a CPU or node that cannot be used
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE 64
#define BURST 20000
#define LOADED_BURST 2000 /* short, for all CPUs to run through it on a busy machine */
#define LOADED_TRIES 20
#define MOST_BURSTS 10000
#define MOST_MEBIBYTES 65536
#define STREAM_BYTES (64UL << 20)
#define WARM_UP_NS 50000000
#define SETTLE_NS 2000000
#define MOST_CPUS 8192  /* the largest NR_CPUS of x86, arch/x86/Kconfig */
#define MOST_NODES 1024 /* the largest MAX_NUMNODES of x86 */
#define HUGE (2UL << 20)
#define PAGE 4096UL
#define OF_A_LINE 8UL /* entries in a line of a page table */
#define MOST_TABLES 32768UL /* each takes a mapping, of which Linux allows 65,530 (vm.max_map_count) */
#define BIND 2 /* MPOL_BIND, linux/mempolicy.h */
#define NODE_OF_ADDRESS 3 /* MPOL_F_NODE | MPOL_F_ADDR */

struct line {
	struct line *next;
	char rest[LINE - sizeof(struct line *)];
};

struct stream {
	pthread_t thread;
	int cpu;
	char *buffer;
	atomic_int *stop, *running;
};

static void fail(const char *what, int number, const char *why)
{
	fprintf(stderr, "ptchase: %s %d: %s\n", what, number, why);
	exit(2);
}

static void fail_load(const char *cpu)
{
	fprintf(stderr, "ptchase: LOAD: %s: no CPU has this number\n", cpu);
	exit(2);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pin(int cpu)
{
	size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
	cpu_set_t *set = CPU_ALLOC(cpu + 1);

	if (!set)
		fail("CPU", cpu, strerror(ENOMEM));
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(cpu, bytes, set);
	if (sched_setaffinity(0, bytes, set))
		fail("CPU", cpu, strerror(errno));
	CPU_FREE(set);
}

/* A kernel without NUMA has one node, 0, and nothing to bind. */
static void bind_to(void *at, size_t bytes, int node)
{
	unsigned long mask[MOST_NODES / 64 + 1] = { 0 };

	mask[node / 64] = 1UL << node % 64;
	if (syscall(SYS_mbind, at, bytes, BIND, mask, MOST_NODES + 1, 0) && !(errno == ENOSYS && node == 0))
		fail("node", node, strerror(errno));
}

static void must_be_on(char *at, size_t bytes, int node)
{
	size_t offset;
	int found;

	for (offset = 0; offset < bytes; offset += bytes / 16) {
		if (syscall(SYS_get_mempolicy, &found, NULL, 0UL, at + offset, NODE_OF_ADDRESS)) {
			if (errno == ENOSYS)
				return;
			fail("node", node, strerror(errno));
		}
		if (found != node)
			fail("node", node, "its memory was given by another node: is it full?");
	}
}

static char *memory_on(int node, size_t bytes, int advice)
{
	char *raw = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((uintptr_t)raw + HUGE - 1) & ~(HUGE - 1));

	if (raw == MAP_FAILED)
		fail("node", node, strerror(errno));
	if (at > raw)
		munmap(raw, at - raw);
	if (raw + HUGE > at)
		munmap(at + bytes, raw + HUGE - at);
	madvise(at, bytes, advice);
	bind_to(at, bytes, node);
	memset(at, 1, bytes);
	must_be_on(at, bytes, node);
	return at;
}

static struct {
	char *at;
	size_t bytes;
	uint64_t reads;
} walked;

/* Reads that walk: one small file mapped over and over, each time over a leaf table of its own, with one page of
 * each line of entries touched. Data go by the policy of the file, tables by that of the task (mm/mempolicy.c,
 * alloc_pages). */
static void walks_over(int node, int tables, size_t bytes)
{
	unsigned long mask[MOST_NODES / 64 + 1] = { 0 };
	int file = memfd_create("ptchase", MFD_CLOEXEC);
	size_t count = 1, i, page;
	char *data, *raw;

	while (2 * count <= bytes / PAGE && 2 * count <= MOST_TABLES)
		count *= 2;
	if (file < 0 || ftruncate(file, HUGE))
		fail("node", node, strerror(errno));
	data = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	raw = mmap(NULL, (count + 1) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (data == MAP_FAILED || raw == MAP_FAILED)
		fail("node", node, strerror(errno));
	madvise(data, HUGE, MADV_NOHUGEPAGE);
	bind_to(data, HUGE, node);
	memset(data, 0, HUGE);
	must_be_on(data, HUGE, node);
	mask[tables / 64] = 1UL << tables % 64;
	if (syscall(SYS_set_mempolicy, BIND, mask, MOST_NODES + 1) && !(errno == ENOSYS && tables == 0))
		fail("node", tables, strerror(errno));
	walked.at = (char *)(((uintptr_t)raw + HUGE - 1) & ~(HUGE - 1));
	walked.bytes = count * HUGE;
	walked.reads = count * (HUGE / PAGE / OF_A_LINE);
	for (i = 0; i < count; i++) {
		char *at = mmap(walked.at + i * HUGE, HUGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);

		if (at == MAP_FAILED)
			fail("node", tables, strerror(errno));
		madvise(at, HUGE, MADV_NOHUGEPAGE);
		for (page = 0; page < HUGE / PAGE; page += OF_A_LINE)
			*(volatile char *)(at + page * PAGE);
	}
	syscall(SYS_set_mempolicy, 0, NULL, 0UL);
	munmap(data, HUGE);
	close(file);
}

/* A full period of all pages touched, each address waiting for the read before it (which gives 0). */
static uint64_t walk_along(uint64_t at, int reads)
{
	uint64_t tables = walked.bytes / HUGE;

	while (reads--) {
		char *table = walked.at + at % tables * HUGE;

		at = (at * 6364136223846793005 + 1442695040888963407 + *(volatile char *)(
			table + at / tables * OF_A_LINE * PAGE + at % (PAGE / LINE) * LINE)) % walked.reads;
	}
	return at;
}

static uint64_t random_below(uint64_t *state, uint64_t limit)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15; /* splitmix64 */

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (z ^ z >> 31) % limit;
}

/* One cycle through all lines (Sattolo): a permutation swapped only with earlier elements. */
static void link_up(struct line *lines, uint64_t count)
{
	uint64_t state = 1, i, j;
	struct line *kept;

	for (i = 0; i < count; i++)
		lines[i].next = &lines[i];
	for (i = count - 1; i > 0; i--) {
		j = random_below(&state, i);
		kept = lines[i].next;
		lines[i].next = lines[j].next;
		lines[j].next = kept;
	}
}

static int huge_percent(char *at, size_t bytes)
{
	unsigned long low, high, kib, huge = 0;
	char text[512];
	int ours = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");

	while (maps && fgets(text, sizeof(text), maps)) {
		if (sscanf(text, "%lx-%lx ", &low, &high) == 2)
			ours = low < (uintptr_t)at + bytes && high > (uintptr_t)at;
		else if (ours && sscanf(text, "AnonHugePages: %lu kB", &kib) == 1)
			huge += kib << 10;
	}
	if (maps)
		fclose(maps);
	return huge >= bytes ? 100 : huge * 100 / bytes;
}

static void *stream(void *argument)
{
	struct stream *self = argument;
	uint64_t *from = (uint64_t *)self->buffer, *to = from + STREAM_BYTES / 2 / sizeof(*from), i;

	pin(self->cpu);
	atomic_fetch_add(self->running, 1);
	while (!atomic_load_explicit(self->stop, memory_order_relaxed))
		for (i = 0; i < STREAM_BYTES / 2 / sizeof(*from); i++)
			to[i] = from[i] + 1;
	return NULL;
}

static struct line *run_along(struct line *at, int reads)
{
	while (reads--)
		at = at->next;
	return at;
}

static struct {
	char *small, *huge;
	size_t bytes;
	int node, percent;
} paired;

/* Random lines, each address waiting for the read before it (which gives 1). */
static uint64_t read_along(const char *buffer, uint64_t at, int reads)
{
	int shift = 64 - __builtin_ctzll(paired.bytes / LINE);

	while (reads--)
		at = at * 6364136223846793005 + 1442695040888963406 + *(const volatile char *)(buffer + (at >> shift) * LINE);
	return at;
}

enum kind { LINES, WALKS, SMALL, LARGE };

static union {
	struct line *line;
	uint64_t at;
} place;

/* ns a read, of this thread's CPU time: what other programs take of its CPU is no latency. */
static double burst_of(enum kind kind, int reads)
{
	uint64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);

	if (kind == LINES)
		place.line = run_along(place.line, reads);
	else if (kind == WALKS)
		place.at = walk_along(place.at, reads);
	else
		place.at = read_along(kind == SMALL ? paired.small : paired.huge, place.at, reads);
	return (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - start) / reads;
}

static void warm_up(enum kind kind, uint64_t ns)
{
	uint64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);

	while (now_ns(CLOCK_THREAD_CPUTIME_ID) - start < ns)
		burst_of(kind, BURST);
}

/* CPU time of the one that had the least, since *before. */
static uint64_t least_streamed(const struct stream *streams, int count, uint64_t *before)
{
	uint64_t least = UINT64_MAX;
	clockid_t clock;
	int i;

	for (i = 0; i < count; i++) {
		uint64_t now = pthread_getcpuclockid(streams[i].thread, &clock) ? 0 : now_ns(clock);

		least = now - before[i] < least ? now - before[i] : least;
		before[i] = now;
	}
	return least;
}

static void print_loaded(const struct stream *streams, int count, int bursts)
{
	static uint64_t before[MOST_CPUS];
	int left = bursts * LOADED_TRIES;

	while (bursts && left--) {
		double ns;

		least_streamed(streams, count, before);
		ns = burst_of(LINES, LOADED_BURST);
		if (least_streamed(streams, count, before) > ns * LOADED_BURST * 0.9) {
			printf(" %.2f", ns);
			bursts--;
		}
	}
}

static int parse_load(char *text, struct stream *streams)
{
	char *word, *end;
	int count = 0;

	if (!strcmp(text, "-"))
		return 0;
	for (word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		long cpu = strtol(word, &end, 10);

		if (*end || cpu < 0 || cpu >= MOST_CPUS || count == MOST_CPUS)
			fail_load(word);
		streams[count++].cpu = cpu;
	}
	return count;
}

/* N of "walk:N", -1 of another LOAD. */
static int tables_of(const char *load)
{
	char *end;
	long node;

	if (strncmp(load, "walk:", 5))
		return -1;
	node = strtol(load + 5, &end, 10);
	if (*end || end == load + 5 || node < 0 || node >= MOST_NODES) {
		fprintf(stderr, "ptchase: %s: no node has this number\n", load);
		exit(2);
	}
	return node;
}

static void forget(void)
{
	if (walked.at)
		munmap(walked.at, walked.bytes);
	walked.at = NULL;
	if (paired.small) {
		munmap(paired.small, paired.bytes);
		munmap(paired.huge, paired.bytes);
	}
	paired.small = NULL;
}

static void pair_up(int node, size_t bytes)
{
	while (bytes & (bytes - 1))
		bytes &= bytes - 1;
	if (paired.small && paired.node == node && paired.bytes == bytes)
		return;
	forget();
	paired.node = node;
	paired.bytes = bytes;
	paired.small = memory_on(node, bytes, MADV_NOHUGEPAGE);
	paired.huge = memory_on(node, bytes, MADV_HUGEPAGE);
	paired.percent = huge_percent(paired.huge, bytes);
}

static void measure(int cpu, int node, char *load, size_t bytes, int bursts)
{
	static struct stream streams[MOST_CPUS];
	atomic_int stop = 0, running = 0;
	int tables = tables_of(load), pages = !strcmp(load, "pages"), count, i, error;
	struct line *lines;

	pin(cpu);
	if (!pages)
		forget();
	if (pages) {
		pair_up(node, bytes);
		printf("%d %d %d", cpu, node, paired.percent);
		for (i = 0; i < bursts; i++) {
			warm_up(SMALL, SETTLE_NS);
			printf(" %.2f", burst_of(SMALL, BURST));
			warm_up(LARGE, SETTLE_NS);
			printf(" %.2f", burst_of(LARGE, BURST));
		}
	} else if (tables >= 0) {
		walks_over(node, tables, bytes);
		place.at = 0;
		warm_up(WALKS, WARM_UP_NS);
		printf("%d %d 0", cpu, node);
		for (i = 0; i < bursts; i++)
			printf(" %.2f", burst_of(WALKS, BURST));
	} else {
		count = parse_load(load, streams);
		lines = (struct line *)memory_on(node, bytes, MADV_HUGEPAGE);
		link_up(lines, bytes / LINE);
		printf("%d %d %d", cpu, node, huge_percent((char *)lines, bytes));
		for (i = 0; i < count; i++) {
			streams[i].buffer = memory_on(node, STREAM_BYTES, MADV_HUGEPAGE);
			streams[i].stop = &stop;
			streams[i].running = &running;
			error = pthread_create(&streams[i].thread, NULL, stream, &streams[i]);
			if (error)
				fail("CPU", streams[i].cpu, strerror(error));
		}
		while (atomic_load(&running) < count)
			sched_yield();
		place.line = lines;
		warm_up(LINES, WARM_UP_NS);
		for (i = 0; i < bursts && !count; i++)
			printf(" %.2f", burst_of(LINES, BURST));
		print_loaded(streams, count, count ? bursts : 0);
		stop = 1;
		for (i = 0; i < count; i++) {
			pthread_join(streams[i].thread, NULL);
			munmap(streams[i].buffer, STREAM_BYTES);
		}
		munmap(lines, bytes);
	}
	if (sched_getcpu() != cpu)
		fail("CPU", cpu, "the thread was moved to another CPU meanwhile");
	printf("\n");
}

static long argument(const char *text, long most)
{
	char *end;
	long value = strtol(text, &end, 10);

	return *end || value < 1 || value > most ? 0 : value;
}

int main(int count, char **words)
{
	long mebibytes = count == 3 ? argument(words[1], MOST_MEBIBYTES) : 0;
	long bursts = count == 3 ? argument(words[2], MOST_BURSTS) : 0;
	static char load[1 << 16];
	int cpu, node, read;

	if (!mebibytes || !bursts) {
		fprintf(stderr, "usage: ptchase MEBIBYTES BURSTS, with lines \"CPU NODE LOAD\" on standard input\n");
		return 2;
	}
	while ((read = scanf("%d %d %65535s", &cpu, &node, load)) == 3) {
		if (cpu < 0 || cpu >= MOST_CPUS)
			fail("CPU", cpu, "no CPU has this number");
		if (node < 0 || node >= MOST_NODES)
			fail("node", node, "no node has this number");
		measure(cpu, node, load, (size_t)mebibytes << 20, bursts);
		if (fflush(stdout))
			return 2;
	}
	if (read == EOF)
		return 0;
	fprintf(stderr, "ptchase: expected lines \"CPU NODE LOAD\"\n");
	return 2;
}
