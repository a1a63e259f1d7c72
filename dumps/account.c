/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "account.h"
#include "output.h"

void account_open(struct account *account, int file)
{
	struct stat status;
	cpu_set_t mine;
	void *memory;

	if (fstat(file, &status))
		fail(EXIT_WRONG_USE, "--account %d: %s", file, strerror(errno));
	if (status.st_size < (off_t)sizeof(*account->paid_until))
		fail(EXIT_WRONG_USE, "--account %d: not a file of 8 bytes", file);
	memory = mmap(NULL, sizeof(*account->paid_until), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED)
		fail(EXIT_WRONG_USE, "--account %d: %s", file, strerror(errno));
	account->paid_until = memory;
	account->cpus = sched_getaffinity(0, sizeof(mine), &mine) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&mine);
}

double account_pause(struct account *account, double took, double cpu)
{
	double alone = took * PART, together;
	uint64_t now = monotonic_seconds() * 1e9, was, until;

	if (!account->paid_until)
		return alone;
	was = atomic_load(account->paid_until);
	do
		until = (was > now ? was : now) + (uint64_t)(cpu * PART / account->cpus * 1e9);
	while (!atomic_compare_exchange_weak(account->paid_until, &was, until));
	together = (until - now) / 1e9;
	return together > alone ? together : alone;
}
