/* SPDX-License-Identifier: MIT */
/* NUMA nodes and which frames they own. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include <stdbool.h>
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
bool topology_has_memory(const struct topology *topology, long node);
/* `node` itself if it has memory, else the nearest that has some; -1 unknown. */
int topology_memory_near(const struct topology *topology, int node);
uint64_t highest_address(void);

#endif
