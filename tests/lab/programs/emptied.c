/* kB of page tables with 64 MiB touched page by page, and as each way to give them up leaves them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (64UL << 20)

static void tell(const char *when)
{
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	int kib = -1;

	while (status && fgets(line, sizeof(line), status) && sscanf(line, "VmPTE: %d", &kib) != 1)
		;
	if (status)
		fclose(status);
	printf("%s %d\n", when, kib);
}

int main(void)
{
	char *raw = mmap(NULL, 2 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((unsigned long)raw + (2UL << 20)) & ~((2UL << 20) - 1));
	unsigned long i;

	mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	madvise(at, BYTES, MADV_NOHUGEPAGE);
	for (i = 0; i < BYTES; i += 4096)
		at[i] = 1;
	tell("touched");
	madvise(at, BYTES, MADV_FREE);
	tell("MADV_FREE");
	madvise(at, BYTES, MADV_DONTNEED);
	tell("MADV_DONTNEED");
	for (i = 0; i < BYTES; i += 4096)
		at[i] = 1;
	tell("again");
	return 0;
}
