/* SPDX-License-Identifier: MIT */
/*
 * NUMA nodes and their page frames: memory blocks of /sys/devices/system/node, and the zones of /proc/zoneinfo
 * for blocks that several nodes share or when there are no blocks. Frames that two nodes claim belong to none.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topology.h"

#define NODES "/sys/devices/system/node"

static void add_range(struct topology *topology, uint64_t start, uint64_t end, int node)
{
	if (start >= end)
		return;
	topology->ranges = realloc(topology->ranges, (topology->range_count + 1) * sizeof(*topology->ranges));
	topology->ranges[topology->range_count++] = (struct range){ start, end, node };
}

/* Calls back with each zone's frames; returns the end of the last. */
static uint64_t each_zone(struct topology *topology, uint64_t within, uint64_t until)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	unsigned long spanned = 0, start;
	char line[256];
	uint64_t last = 0;
	int node = 0;

	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "Node %d,", &node);
		sscanf(line, " spanned %lu", &spanned);
		if (sscanf(line, " start_pfn: %lu", &start) != 1 || !spanned)
			continue;
		if (start + spanned > last)
			last = start + spanned;
		if (topology)
			add_range(topology, start > within ? start : within, start + spanned < until ? start + spanned : until,
				  node);
	}
	if (file)
		fclose(file);
	return last;
}

uint64_t highest_address(void)
{
	return each_zone(NULL, 0, 0) * 4096 - 1;
}

static char *read_line(const char *format, int node)
{
	char path[128], *line = calloc(1, 65536);
	FILE *file;

	snprintf(path, sizeof(path), format, node);
	file = fopen(path, "r");
	if (file && fgets(line, 65536, file))
		line[strcspn(line, "\n")] = 0;
	if (file)
		fclose(file);
	return line;
}

static int by_start(const void *a, const void *b)
{
	const struct range *left = a, *right = b;

	return left->start < right->start ? -1 : left->start > right->start;
}

/* Sort, cut what two nodes claim out of both, join neighbours. */
static void tidy(struct topology *topology)
{
	struct range *ranges = topology->ranges;
	size_t kept = 0;

	qsort(ranges, topology->range_count, sizeof(*ranges), by_start);
	for (size_t i = 0; i < topology->range_count; i++) {
		struct range range = ranges[i], *last = kept ? &ranges[kept - 1] : NULL;

		if (last && last->node == range.node && last->end >= range.start) {
			last->end = last->end > range.end ? last->end : range.end;
			continue;
		}
		if (last && last->end > range.start) {
			uint64_t end = last->end;

			last->end = range.start;
			kept -= last->start == last->end;
			range.start = end;
		}
		if (range.start < range.end)
			ranges[kept++] = range;
	}
	topology->range_count = kept;
}

struct block {
	unsigned long number;
	int node;
};

static int by_number(const void *a, const void *b)
{
	const struct block *left = a, *right = b;

	return left->number < right->number ? -1 : left->number > right->number;
}

static size_t read_blocks(int node, struct block **blocks, size_t count)
{
	char path[128];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), NODES "/node%d", node);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		unsigned long number;

		if (sscanf(entry->d_name, "memory%lu", &number) != 1)
			continue;
		*blocks = realloc(*blocks, (count + 1) * sizeof(**blocks));
		(*blocks)[count++] = (struct block){ number, node };
	}
	if (directory)
		closedir(directory);
	return count;
}

static void add_blocks(struct topology *topology, struct block *blocks, size_t count)
{
	char *line = read_line("/sys/devices/system/memory/block_size_bytes", 0);
	uint64_t frames = strtoull(line, NULL, 16) / 4096;

	free(line);
	qsort(blocks, count, sizeof(*blocks), by_number);
	for (size_t i = 0, next; i < count; i = next) {
		uint64_t start = blocks[i].number * frames;

		for (next = i + 1; next < count && blocks[next].number == blocks[i].number; next++)
			;
		if (next == i + 1)
			add_range(topology, start, start + frames, blocks[i].node);
		else
			each_zone(topology, start, start + frames);
	}
}

static int compare_nodes(const void *a, const void *b)
{
	return ((const struct node *)a)->id - ((const struct node *)b)->id;
}

void topology_read(struct topology *topology)
{
	DIR *directory = opendir(NODES);
	struct block *blocks = NULL;
	struct dirent *entry;
	size_t count = 0;
	int id;

	memset(topology, 0, sizeof(*topology));
	while (directory && (entry = readdir(directory))) {
		if (sscanf(entry->d_name, "node%d", &id) != 1)
			continue;
		topology->nodes = realloc(topology->nodes, (topology->node_count + 1) * sizeof(*topology->nodes));
		topology->nodes[topology->node_count++] = (struct node){
			id, read_line(NODES "/node%d/cpulist", id), read_line(NODES "/node%d/distance", id)
		};
		count = read_blocks(id, &blocks, count);
	}
	if (directory)
		closedir(directory);
	if (!topology->node_count) {
		topology->nodes = calloc(1, sizeof(*topology->nodes));
		topology->nodes[topology->node_count++] =
			(struct node){ 0, read_line("/sys/devices/system/cpu/online", 0), strdup("10") };
	}
	qsort(topology->nodes, topology->node_count, sizeof(*topology->nodes), compare_nodes);
	topology->source = count ? "frame ranges of memory blocks" : "frame ranges of zones";
	if (count)
		add_blocks(topology, blocks, count);
	else
		each_zone(topology, 0, UINT64_MAX);
	free(blocks);
	tidy(topology);
}

int topology_node(const struct topology *topology, uint64_t frame)
{
	size_t low = 0, high = topology->range_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (frame >= topology->ranges[middle].end)
			low = middle + 1;
		else
			high = middle;
	}
	return low < topology->range_count && frame >= topology->ranges[low].start ? topology->ranges[low].node : -1;
}

/* The list of a node's CPUs is like "0-3,8". */
static bool list_holds(const char *list, int number)
{
	int first, last, used;

	for (; sscanf(list, "%d%n", &first, &used) == 1; list += *list == ',') {
		list += used;
		last = first;
		if (sscanf(list, "-%d%n", &last, &used) == 1)
			list += used;
		if (number >= first && number <= last)
			return true;
	}
	return false;
}

int topology_node_of_cpu(const struct topology *topology, int cpu)
{
	for (size_t i = 0; cpu >= 0 && i < topology->node_count; i++)
		if (list_holds(topology->nodes[i].cpus, cpu))
			return topology->nodes[i].id;
	return -1;
}

bool topology_has_memory(const struct topology *topology, long node)
{
	for (size_t i = 0; i < topology->range_count; i++)
		if (topology->ranges[i].node == node)
			return true;
	return false;
}

int topology_memory_near(const struct topology *topology, int node)
{
	const char *distances = "";
	long distance, least = 0;
	int near = -1;

	for (size_t i = 0; i < topology->node_count; i++)
		if (topology->nodes[i].id == node)
			distances = topology->nodes[i].distance;
	for (size_t i = 0; node >= 0 && i < topology->node_count; i++) {
		int other = topology->nodes[i].id;

		distance = strtol(distances, (char **)&distances, 10);
		if (topology_has_memory(topology, other) && (near < 0 || other == node || distance < least)) {
			near = other;
			least = other == node ? 0 : distance;
		}
	}
	return near < 0 ? node : near;
}
