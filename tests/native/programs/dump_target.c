/* Memory of every kind a dumper can meet, then READY with its addresses, then sleep. Arguments: GiB of sparse tables. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

static char *map(size_t bytes, int advice)
{
	char *raw = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at = (char *)(((unsigned long)raw + 2 * MIB - 1) & ~(2 * MIB - 1));

	if (raw == MAP_FAILED || madvise(at, bytes, advice))
		exit(1);
	return at;
}

int main(int count, char **arguments)
{
	size_t sparse_bytes = (count > 1 ? strtoul(arguments[1], NULL, 10) : 1) << 30;
	char *small = map(8 * MIB, MADV_NOHUGEPAGE), *huge = map(8 * MIB, MADV_HUGEPAGE);
	char *none = map(4 * MIB, MADV_NOHUGEPAGE), *huge_none = map(4 * MIB, MADV_HUGEPAGE);
	char *zero = map(4 * MIB, MADV_NOHUGEPAGE), *emptied = map(4 * MIB, MADV_NOHUGEPAGE);
	char *sparse = map(sparse_bytes, MADV_NOHUGEPAGE), *file;
	volatile char sink = 0;
	struct timespec now;
	int self = open("/proc/self/exe", O_RDONLY);

	memset(small, 1, 8 * MIB);
	memset(huge, 2, 8 * MIB);
	memset(none, 3, 4 * MIB);
	mprotect(none, 2 * MIB, PROT_NONE);
	memset(huge_none, 4, 4 * MIB);
	mprotect(huge_none, 2 * MIB, PROT_NONE);
	for (size_t at = 0; at < 4 * MIB; at += 4096)
		sink += zero[at];
	memset(emptied, 5, 4 * MIB);
	for (size_t at = 0; at < 4 * MIB; at += MIB) /* by halves: Linux 6.14 frees tables emptied at once */
		madvise(emptied + at, MIB, MADV_DONTNEED);
	clock_gettime(CLOCK_MONOTONIC, &now); /* reads [vvar] */
	for (size_t at = 0; at < sparse_bytes; at += 2 * MIB)
		sink += sparse[at + (at >> 9 & 0x1ff000)];
	file = mmap(NULL, 8192, PROT_READ, MAP_SHARED | MAP_POPULATE, self, 0);
	printf("small=%lu huge=%lu none=%lu huge_none=%lu zero=%lu emptied=%lu sparse=%lu file=%lu\n", (long)small,
	       (long)huge, (long)none, (long)huge_none, (long)zero, (long)emptied, (long)sparse, (long)file);
	fflush(stdout);
	for (;;)
		pause();
}
