/* SPDX-License-Identifier: MIT */
/* Page tables without BPF: leaves as /proc/PID/pagemap shows them, the tables above them inferred. */
#ifndef PAGEMAP_H
#define PAGEMAP_H

#include <stdbool.h>
#include "proc.h"
#include "tables.h"

/* Levels of the kernel's page tables, by /proc/cpuinfo. */
unsigned pagemap_levels(void);
/* Adds the tree of the areas in `maps`; false when the address space is gone. */
bool pagemap_read(struct tables *tables, const struct process *process, const char *maps, unsigned levels);

#endif
