/* SPDX-License-Identifier: MIT */
/* The trees of a process beside mm->pgd, on a kernel that replicates page tables by node. */
#ifndef REPLICAS_H
#define REPLICAS_H

#include "shared.h"

#define NO_TREE -1

struct replica {
	unsigned node; /* the lowest that uses it */
	char name[24];
	int tables, entries; /* open files */
};
struct replicas {
	unsigned count, nodes;
	struct replica replica[PTD_NODES];
	int tree_of[PTD_NODES]; /* by node: 0 mm->pgd's, i + 1 replica[i]'s, NO_TREE */
};
void replicas_find(struct replicas *replicas, const struct ptd_mm *found);
void replicas_files(struct replicas *replicas);

#endif
