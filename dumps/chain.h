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
	uint64_t main_stack;
	pid_t own; /* its number in its own namespace */
	unsigned seed, interrupted; /* threads that had a timeout cut short */
	int64_t held; /* microseconds that the thread was not its own */
	char why[512];
};
bool chain_find_code(struct chain *chain, const struct process *process);
enum stop_result chain_carry_out(struct chain *chain, const struct process *process, struct order *order, int64_t until);
/* The area that holds an address, or the next one; false: none, or the process is gone. */
bool area_at(const struct process *process, uint64_t address, struct area *area);
int64_t microseconds_now(void);

#endif
