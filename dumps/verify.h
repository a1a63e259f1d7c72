/* SPDX-License-Identifier: MIT */
/* Leaves against /proc/PID/pagemap. */
#ifndef VERIFY_H
#define VERIFY_H

#include <stdint.h>
#include "proc.h"
#include "tables.h"

struct verified {
	uint64_t checked, mismatched, hidden;
	char examples[4][160];
};
void verify_tables(struct verified *verified, const struct tables *tables, const struct process *process);

#endif
