/* SPDX-License-Identifier: MIT */
/*
 * What samplers take of a host is paid for by pauses. Those that share an account pay one after the other, so that
 * together they take no more of all CPUs than one by itself takes of one.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdatomic.h>
#include <stdint.h>

#define PART 20 /* clearing and reading may take one part in so many of the time */

struct account {
	_Atomic uint64_t *paid_until; /* monotonic ns, in memory that the samplers share; NULL: none is shared */
	double cpus;
};

/* An account in the first 8 bytes of an open file, which are 0 at first. */
void account_open(struct account *account, int file);
/* Seconds of pause after a sample that took so many seconds and, of them, so many of a CPU. */
double account_pause(struct account *account, double took, double cpu);

#endif
