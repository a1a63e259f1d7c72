/* Two threads that map, touch, protect and unmap without end: table pages come and go beside 16 GiB of still ones. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define AREA (64 * MIB)
#define STILL (16384 * MIB)

static void *churn(void *argument)
{
	unsigned seed = (unsigned long)argument;
	char *area = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (;;) {
		size_t bytes = (rand_r(&seed) % 8 + 1) * 2 * MIB, at = rand_r(&seed) % ((AREA - bytes) / 4096) * 4096;

		for (size_t page = 0; page < bytes; page += 16 * 4096)
			area[at + page] = 1;
		mprotect(area + at, bytes / 2 & ~4095UL, PROT_READ);
		munmap(area + at, bytes);
		mmap(area + at, bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		     0);
	}
	return NULL;
}

int main(void)
{
	char *still = mmap(NULL, STILL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	volatile char sink = 0;
	pthread_t thread;

	madvise(still, STILL, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < STILL; at += 2 * MIB)
		sink += still[at];
	pthread_create(&thread, NULL, churn, (void *)1L);
	puts("churning");
	fflush(stdout);
	churn((void *)2L);
}
