/* SPDX-License-Identifier: MIT */
/* Which nodes have a tree of their own, and the files for it. */
#include <stdio.h>
#include "output.h"
#include "replicas.h"

/* The tree with the root of node `node`; nodes may share one. */
static int tree_of(const struct replicas *replicas, const struct ptd_mm *found, unsigned node)
{
	if (!found->replica[node])
		return NO_TREE;
	if (found->replica[node] == found->pgd)
		return 0;
	for (unsigned i = 0; i < replicas->count; i++)
		if (found->replica[replicas->replica[i].node] == found->replica[node])
			return i + 1;
	return replicas->count + 1;
}

void replicas_find(struct replicas *replicas, const struct ptd_mm *found)
{
	if (found->replicas > PTD_NODES)
		fail(EXIT_WRONG_USE, "this kernel replicates page tables on up to %llu nodes: ptdump reads at most %d",
		     found->replicas, PTD_NODES);
	replicas->nodes = found->replicas;
	for (unsigned node = 0; node < replicas->nodes; node++) {
		int tree = replicas->tree_of[node] = tree_of(replicas, found, node);

		if (tree > (int)replicas->count) {
			struct replica *replica = &replicas->replica[replicas->count++];

			replica->node = node;
			snprintf(replica->name, sizeof(replica->name), "gpt-node%u", node);
		}
	}
}

void replicas_files(struct replicas *replicas)
{
	char file[32];

	for (unsigned i = 0; i < replicas->count; i++) {
		struct replica *replica = &replicas->replica[i];

		snprintf(file, sizeof(file), "%s.entries", replica->name);
		replica->entries = output_file(file);
		snprintf(file, sizeof(file), "%s.tables", replica->name);
		replica->tables = output_file(file);
	}
}
