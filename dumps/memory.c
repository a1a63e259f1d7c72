/* SPDX-License-Identifier: MIT */
/* How much memory we may still take: of the machine's, and of that of each control group that we are in. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "memory.h"

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t available(void)
{
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	if (file)
		fclose(file);
	return kib ? kib * 1024 : SIZE_MAX;
}

/* SIZE_MAX where there is no number: "max", or no such file. */
static size_t number_in(const char *directory, const char *name)
{
	unsigned long long value;
	char path[5000];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "r");
	found = file && fscanf(file, "%llu", &value) == 1;
	if (file)
		fclose(file);
	return found ? value : SIZE_MAX;
}

/* What a group and those above it leave; `path` is cut short. */
static size_t left_in(const char *mount, char *path, const char *limit, const char *usage)
{
	char directory[4700];
	size_t left = SIZE_MAX, most, used;

	for (char *end;; *end = 0) {
		snprintf(directory, sizeof(directory), "%s%s", mount, path);
		most = number_in(directory, limit);
		used = number_in(directory, usage);
		if (most != SIZE_MAX && used != SIZE_MAX)
			left = least(left, used < most ? most - used : 0);
		end = strrchr(path, '/');
		if (!end)
			return left;
	}
}

size_t free_memory(void)
{
	FILE *groups = fopen("/proc/self/cgroup", "r");
	size_t left = available();
	char line[4608], *path;

	while (groups && fgets(line, sizeof(line), groups)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "0::", 3))
			left = least(left, left_in(V2, line + 3, "memory.max", "memory.current"));
		else if ((path = strstr(line, ":memory:")))
			left = least(left, left_in(V1, path + 8, "memory.limit_in_bytes", "memory.usage_in_bytes"));
	}
	if (groups)
		fclose(groups);
	return left;
}
