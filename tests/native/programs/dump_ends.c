/*
 * dump_ends PAGES SPAN: two areas of so many pages used alike, 20,000 random pages of each a second, at both ends of
 * SPAN MiB that are mapped and never used: one file of 64 MiB over and over. Prints where they are, then, at each
 * line on standard input, how many accesses there have been.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define FILE_BYTES (64 * MIB)
#define A_SECOND 20000

static char *area(char *at, size_t bytes)
{
	char *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	madvise(mapped, bytes, MADV_NOHUGEPAGE);
	return memset(mapped, 1, bytes);
}

static double now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

int main(int count, char **arguments)
{
	size_t pages = count > 1 ? atol(arguments[1]) : 4096, span = (count > 2 ? atol(arguments[2]) : 1024) * MIB;
	size_t bytes = pages * 4096, between = (bytes + 2 * MIB - 1) & -(2 * MIB);
	char *start = mmap(NULL, span + 2 * between + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *first = (char *)(((uintptr_t)start + 2 * MIB - 1) & -(2 * MIB)), *last = first + between + span;
	int file = memfd_create("between", 0);
	volatile char *used[2] = { area(first, bytes), area(last, bytes) };
	struct pollfd asked = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t state = 88172645463325252ULL, done = 0;
	char line[16], sum = 0;

	if (ftruncate(file, FILE_BYTES))
		return 1;
	for (size_t at = 0; at < span; at += FILE_BYTES)
		mmap(first + between + at, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0);
	printf("first=%lu last=%lu\n", (unsigned long)first, (unsigned long)last);
	fflush(stdout);
	for (double since = now();;) {
		for (uint64_t due = (now() - since) * 2 * A_SECOND; done < due; done++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			sum += used[state >> 60 & 1][(state >> 8) % pages * 4096];
		}
		if (poll(&asked, 1, 1) > 0) {
			if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
				return sum;
			printf("%.6f %lu\n", now() - since, done);
			fflush(stdout);
		}
	}
}
