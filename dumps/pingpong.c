/* SPDX-License-Identifier: MIT */
/*
 * ptpingpong: how long a cache line takes from one CPU to another. For each line "A B" of standard input, two
 * CPU numbers, two threads pinned to A and B hand one line back and forth, and "A B NS" is written: nanoseconds
 * of a one-way transfer. After WARM_UP_NS (clocks rise, pages are there) ROUNDS round trips are timed in bursts
 * of BURST, too short for most interrupts; the mean of the fastest burst counts, as interference only slows.
 * The waiting thread only loads, without a pause instruction, whose 40 to 140 cycles would blur the latency.
 *
 * Usage: ptpingpong ROUNDS    Exit: 0 end of input, 2 wrong usage or a CPU that cannot be used (one line says)
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM_UP_NS 1000000
#define BURST 100
#define MOST_ROUNDS 10000000
#define MOST_CPUS 8192 /* the largest NR_CPUS of x86, arch/x86/Kconfig */
#define OVER UINT64_MAX

struct game {
	_Alignas(128) _Atomic uint64_t ball; /* alone in its pair of lines: the adjacent one is prefetched */
	_Alignas(128) uint64_t rounds;
	double ns;
	int cpus[2];
	atomic_int strayed;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stay(struct game *game, int side)
{
	if (sched_getcpu() != game->cpus[side])
		game->strayed = 1;
}

/* Serves odd numbers, waits for the even ones that come back; returns the last. */
static uint64_t rally(struct game *game, uint64_t at, uint64_t rounds)
{
	for (; rounds; rounds--) {
		atomic_store_explicit(&game->ball, at + 1, memory_order_release);
		at += 2;
		while (atomic_load_explicit(&game->ball, memory_order_acquire) != at)
			;
	}
	return at;
}

static void *serve(void *argument)
{
	struct game *game = argument;
	uint64_t at = rally(game, 0, 1), start = now_ns(); /* the other thread is there now */
	uint64_t left, burst;
	double ns;

	while (now_ns() - start < WARM_UP_NS)
		at = rally(game, at, BURST);
	for (left = game->rounds; left; left -= burst) {
		burst = left < BURST ? left : BURST;
		start = now_ns();
		at = rally(game, at, burst);
		ns = (now_ns() - start) / (2.0 * burst);
		if (left == game->rounds || ns < game->ns)
			game->ns = ns;
	}
	stay(game, 0);
	atomic_store_explicit(&game->ball, OVER, memory_order_release);
	return NULL;
}

static void *give_back(void *argument)
{
	struct game *game = argument;
	uint64_t seen;

	for (;;) {
		do
			seen = atomic_load_explicit(&game->ball, memory_order_acquire);
		while (!(seen & 1));
		if (seen == OVER)
			break;
		atomic_store_explicit(&game->ball, seen + 1, memory_order_release);
	}
	stay(game, 1);
	return NULL;
}

static void fail(int cpu, const char *why)
{
	fprintf(stderr, "ptpingpong: CPU %d: %s\n", cpu, why);
	exit(2);
}

static pthread_t start_on(int cpu, void *(*run)(void *), struct game *game)
{
	size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
	cpu_set_t *set = CPU_ALLOC(cpu + 1);
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	if (!set)
		fail(cpu, strerror(ENOMEM));
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(cpu, bytes, set);
	pthread_attr_init(&attributes);
	error = pthread_attr_setaffinity_np(&attributes, bytes, set);
	if (error)
		fail(cpu, strerror(error));
	error = pthread_create(&thread, &attributes, run, game);
	if (error)
		fail(cpu, strerror(error));
	pthread_attr_destroy(&attributes);
	CPU_FREE(set);
	return thread;
}

static double play(int a, int b, uint64_t rounds)
{
	struct game game = { .rounds = rounds, .cpus = { a, b } };
	pthread_t second = start_on(b, give_back, &game), first = start_on(a, serve, &game);

	pthread_join(first, NULL);
	pthread_join(second, NULL);
	if (game.strayed)
		fail(a, "its thread was moved to another CPU meanwhile");
	return game.ns;
}

int main(int count, char **words)
{
	char *end = "";
	unsigned long rounds = count == 2 ? strtoul(words[1], &end, 10) : 0;
	int a, b, read;

	if (*end || rounds < 1 || rounds > MOST_ROUNDS) {
		fprintf(stderr, "usage: ptpingpong ROUNDS, 1 to %d, with lines \"A B\" of CPUs on standard input\n",
			MOST_ROUNDS);
		return 2;
	}
	while ((read = scanf("%d %d", &a, &b)) == 2) {
		if (a < 0 || a >= MOST_CPUS || b < 0 || b >= MOST_CPUS)
			fail(a < 0 || a >= MOST_CPUS ? a : b, "no CPU has this number");
		if (a == b)
			fail(a, "a pair needs two CPUs");
		printf("%d %d %.2f\n", a, b, play(a, b, rounds));
		if (fflush(stdout))
			return 2;
	}
	if (read == EOF)
		return 0;
	fprintf(stderr, "ptpingpong: expected lines \"A B\" of CPU numbers\n");
	return 2;
}
