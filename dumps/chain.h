/* SPDX-License-Identifier: MIT */
/* One stop of a process: an order carried out inside it by a clone of one of its threads. */
#ifndef CHAIN_H
#define CHAIN_H

#include <stdbool.h>
#include "proc.h"
#include "order.h"

enum stop_result {
	CARRIED_OUT, /* the order has its outcome */
	NO_THREAD,   /* none can carry it: `why` names each */
	NO_CLONE,    /* no memory for it, or no process: `why` */
};
struct chain {
	uint64_t call, back; /* addresses of code of the target: `syscall; ret`, and rt_sigreturn */
	pid_t own; /* its number in its own namespace */
	int segment;    /* of memory that the target maps, too */
	char *shared;   /* where we have it; NULL: not made yet */
	uint64_t place; /* where the target has what is left of it; 0: nowhere */
	/* Asked in each stop: whether nothing is against it; otherwise `why`. */
	bool (*may)(struct chain *chain, const struct process *process, int64_t until);
	unsigned seed, interrupted; /* threads that had a timeout cut short */
	int64_t most; /* microseconds that a thread is to be held; 0: no limit */
	int64_t held, longest_held; /* microseconds that the last thread was, and any: borrowed, or tried and let go */
	long late; /* longer than `most` */
	bool unseen; /* of its threads, one was not stopped: the clone's /proc is another */
	char why[512];
};
bool chain_find_code(struct chain *chain, const struct process *process);
/* NULL, or why no memory can be shared with it. */
const char *chain_share_memory(const struct process *process);
/* most: microseconds that a thread may be held. */
enum stop_result chain_carry_out(struct chain *chain, const struct process *process, struct order *order, int64_t most);
/* Leaves nothing of ours in the target's memory; false: 12 KiB are left. */
bool chain_unmap(struct chain *chain, const struct process *process);
void because(struct chain *chain, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Processes other than `process` that have its memory, and this number in their namespace, 0: any; -1: this kernel does not
 * tell, or the time was over.
 */
int count_sharers(const struct process *process, int number, int64_t until, pid_t *last);
/* The area that holds an address, or the next one; false: none, or the process is gone. */
bool area_at(const struct process *process, uint64_t address, struct area *area);
int64_t microseconds_now(void);
void hurry_ourselves(int policy);

#endif
