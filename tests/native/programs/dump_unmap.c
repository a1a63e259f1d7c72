/* Four threads that map, touch, move and unmap areas of up to 8 MiB without end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static void *churn(void *argument)
{
	unsigned seed = (unsigned long)argument;

	for (;;) {
		size_t bytes = (1 + rand_r(&seed) % 2048) * 4096;
		char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t at = 0; at < bytes; at += 4096)
			area[at] = 1;
		if (rand_r(&seed) % 2) {
			area = mremap(area, bytes, bytes * 2, MREMAP_MAYMOVE);
			bytes *= 2;
		}
		munmap(area, bytes);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;

	puts("churning");
	fflush(stdout);
	for (long i = 1; i < 4; i++)
		pthread_create(&thread, NULL, churn, (void *)i);
	churn((void *)4L);
}
