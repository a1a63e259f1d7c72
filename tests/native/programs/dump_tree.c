/* Processes that share memory: a parent, two children, a grandchild; READY with addresses and PIDs, then sleep. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define SHARED (8 * MIB)

static char *map(size_t bytes, int flags)
{
	char *raw = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((unsigned long)raw + 2 * MIB - 1) & ~(2 * MIB - 1));

	if (raw == MAP_FAILED || madvise(at, bytes, MADV_NOHUGEPAGE))
		exit(1);
	return at;
}

/* Touches `bytes` of the shared memory, and memory of its own; tells the others through the pipe; sleeps. */
static void member(char *shared, size_t bytes, int out)
{
	char *own = map(4 * MIB, MAP_PRIVATE);
	volatile char sink = 0;

	for (size_t at = 0; at < bytes; at += 4096)
		sink += shared[at];
	memset(own, 1, 4 * MIB);
	if (write(out, "r", 1) != 1)
		exit(1);
	for (;;)
		pause();
}

int main(void)
{
	char *shared = map(SHARED, MAP_SHARED), *before = map(2 * MIB, MAP_PRIVATE), byte;
	int ends[2], child[3] = { 0 };

	memset(before, 2, 2 * MIB); /* shared with the children until somebody writes */
	memset(shared, 3, SHARED);
	if (pipe(ends))
		return 1;
	for (int i = 0; i < 2; i++)
		if (!(child[i] = fork())) {
			if (i == 1 && !fork())
				member(shared, 2 * MIB, ends[1]);
			member(shared, i ? SHARED / 2 : SHARED, ends[1]);
		}
	for (int i = 0; i < 3; i++)
		if (read(ends[0], &byte, 1) != 1)
			return 1;
	printf("shared=%lu before=%lu first=%d second=%d\n", (unsigned long)shared, (unsigned long)before, child[0], child[1]);
	fflush(stdout);
	for (;;)
		pause();
}
