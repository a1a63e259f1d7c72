/* SPDX-License-Identifier: MIT */
/* NUMA nodes and which frames they own. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t start, end;
	int node;
};
struct node {
	int id;
	char *cpus, *distance; /* as in /sys/devices/system/node */
};
struct topology {
	struct node *nodes;
	struct range *ranges; /* disjoint, by start */
	size_t node_count, range_count;
	const char *source;
};
void topology_read(struct topology *topology);
int topology_node(const struct topology *topology, uint64_t frame);
int topology_node_of_cpu(const struct topology *topology, int cpu);
uint64_t highest_address(void);

#endif
