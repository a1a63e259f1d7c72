/* SPDX-License-Identifier: MIT */
/*
 * Areas of 8 MiB that a trial of page sizes may change (full) or must leave alone: half (every second page is there),
 * locked, nohuge, shared (with a child), given (back in part, MADV_FREE). Prints "ready NAME=ADDRESS ..."; after each byte on standard input it makes
 * 1,000 system calls and prints how many words of all areas are not as they were written, and how much was added since.
 * The byte f forks a child first, as a server that saves its memory does; e ends it.
 *
 * pages WRITERS            so many threads add to words of `full`, and count what they add
 * pages - MILLIONS         so many million accesses of `full`, and ends
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define BYTES (8UL << 20)
#define BLOCK (2UL << 20)
#define WORDS 512
#define WRITERS 8
enum { FULL, HALF, LOCKED, NOHUGE, SHARED, GIVEN, AREAS };
static const char *const names[AREAS] = { "full", "half", "locked", "nohuge", "shared", "given" };
static uint64_t *areas[AREAS], added[WRITERS];
static pthread_spinlock_t held[WRITERS]; /* without system calls: those are counted */

static uint64_t content(int area, uint64_t word) { return (word + 1) * 0x9e3779b97f4a7c15 + area; }

static uint64_t each(int area, int write)
{
	uint64_t wrong = 0;

	for (uint64_t page = 0; page < BYTES / 4096; page += area == HALF ? 2 : 1)
		for (uint64_t word = page * WORDS; word < (page + 1) * WORDS; word++) {
			if (write)
				areas[area][word] = content(area, word);
			wrong += areas[area][word] != content(area, word);
		}
	return wrong;
}

static void *add(void *argument)
{
	uint64_t self = (uintptr_t)argument, at = self + 1;

	for (;;) {
		pthread_spin_lock(&held[self]);
		for (int i = 0; i < 1000; i++, added[self]++, at = at * 6364136223846793005 + 1)
			areas[FULL][(at >> 33) % (BYTES / 8 / WRITERS) * WRITERS + self]++;
		pthread_spin_unlock(&held[self]);
	}
	return NULL;
}

/* Words of full that are not what was written and added, summed; the writers wait. */
static uint64_t sum_wrong(uint64_t *all)
{
	uint64_t sum = 0;

	*all = 0;
	for (int i = 0; i < WRITERS; i++)
		pthread_spin_lock(&held[i]);
	for (uint64_t word = 0; word < BYTES / 8; word++)
		sum += areas[FULL][word] - content(FULL, word);
	for (int i = 0; i < WRITERS; i++) {
		*all += added[i];
		pthread_spin_unlock(&held[i]);
	}
	return sum - *all;
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

int main(int count, char **arguments)
{
	for (int i = 0; i < AREAS; i++) {
		uintptr_t at = (uintptr_t)mmap(0, BYTES + 2 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		areas[i] = (uint64_t *)((at + BLOCK - 1) & ~(BLOCK - 1));
		if (mprotect(areas[i], BYTES, PROT_READ | PROT_WRITE) || (i == NOHUGE && madvise(areas[i], BYTES, MADV_NOHUGEPAGE)) ||
		    (i == LOCKED && mlock(areas[i], BYTES)))
			return 1;
		each(i, 1);
	}
	if (count > 2) {
		uint64_t sum = 0, at = 1;

		for (uint64_t i = atoi(arguments[2]) * 1000000UL; i--; at = at * 6364136223846793005 + 1)
			sum += areas[FULL][(at >> 33) % (BYTES / 8)];
		return sum == 1;
	}
	child();
	for (int i = 0; i < AREAS; i++)
		if (i != SHARED)
			each(i, 1);
	madvise(areas[GIVEN], BYTES / 2, MADV_FREE);
	for (int i = 0; i < WRITERS; i++)
		pthread_spin_init(&held[i], PTHREAD_PROCESS_PRIVATE);
	for (int i = 0; i < atoi(arguments[1]); i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, add, (void *)(uintptr_t)i);
	}
	printf("ready");
	for (int i = 0; i < AREAS; i++)
		printf(" %s=%#lx", names[i], (unsigned long)areas[i]);
	printf("\n");
	fflush(stdout);
	pid_t saving = 0;

	for (int said; (said = getchar()) != EOF;) {
		if (said == 'f')
			saving = child();
		if (said == 'e') {
			kill(saving, SIGKILL);
			waitpid(saving, NULL, 0);
		}
		uint64_t all, wrong = sum_wrong(&all);

		for (int i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		for (int i = FULL + 1; i < GIVEN; i++)
			wrong += each(i, 0);
		printf("wrong=%lu added=%lu\n", (unsigned long)wrong, (unsigned long)all);
		fflush(stdout);
	}
	return 0;
}
