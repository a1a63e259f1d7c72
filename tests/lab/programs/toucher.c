/* SPDX-License-Identifier: MIT */
/*
 * toucher LOG BASE SPIN_MS REGION...: touch memory whose pages and page tables have asked-for nodes, then wait.
 * REGION is KIND,DATA,TABLES,CPU,MIB,STEP: 4k, thp or 1g pages; DATA is the policy of the region (mbind), TABLES
 * that of the task while it touches, which places page tables; CPU to touch on; a magic value every STEP bytes.
 * Region i begins at BASE + i * 512 GiB, so it has tables of its own up to level 3. LOG appears when all is
 * touched: "region KIND ADDRESS BYTES STEP" lines, then "pid PID".
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include "policy.h"

#define MAGIC 0x5ea1d00dc0de0000ULL
#ifndef MAP_HUGE_1GB
#define MAP_HUGE_1GB (30 << 26)
#endif

static uint64_t magic_of(uint64_t address)
{
	return MAGIC ^ address * 0x9e3779b97f4a7c15ULL;
}

static char *map_region(const char *kind, char *at, size_t bytes)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE;

	if (!strcmp(kind, "1g"))
		flags |= MAP_HUGETLB | MAP_HUGE_1GB;
	at = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	check(at == MAP_FAILED ? -1 : 0, "mmap");
	if (!strcmp(kind, "thp"))
		check(madvise(at, bytes, MADV_HUGEPAGE), "MADV_HUGEPAGE");
	if (!strcmp(kind, "4k"))
		check(madvise(at, bytes, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	return at;
}

static void pin(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	check(sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
}

static void touch(FILE *log, char *base, char *region)
{
	char kind[8], data[32], tables[32];
	size_t mib, step;
	int cpu;

	if (sscanf(region, "%7[^,],%31[^,],%31[^,],%d,%zu,%zu", kind, data, tables, &cpu, &mib, &step) != 6)
		exit(2);
	pin(cpu);
	char *start = map_region(kind, base, mib << 20);
	struct policy policy = parse_policy(data);
	if (policy.mode)
		check(syscall(SYS_mbind, start, mib << 20, policy.mode, &policy.nodes, 64UL, 0), "mbind");
	set_task_policy(parse_policy(tables));
	for (char *at = start; at < start + (mib << 20); at += step)
		*(volatile uint64_t *)at = magic_of((uintptr_t)at);
	set_task_policy((struct policy){ 0, 0 });
	fprintf(log, "region %s %p %zu %zu\n", kind, start, mib << 20, step);
}

/* Uses CPU time, so that the kernel scans for NUMA hints (task_numa_work), without touching the regions. */
static void spin(long ms)
{
	struct timespec now, since;

	clock_gettime(CLOCK_MONOTONIC, &since);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000 < ms);
}

int main(int count, char **arguments)
{
	char unfinished[256];

	if (count < 5)
		return 2;
	snprintf(unfinished, sizeof(unfinished), "%s.tmp", arguments[1]);
	FILE *log = fopen(unfinished, "w");
	char *base = (char *)strtoul(arguments[2], NULL, 16);
	if (!log)
		return 1;
	for (int i = 4; i < count; i++)
		touch(log, base + ((uintptr_t)(i - 4) << 39), arguments[i]);
	pin(0);
	spin(atol(arguments[3]));
	fprintf(log, "pid %d\n", getpid());
	fclose(log);
	check(rename(unfinished, arguments[1]), "rename");
	for (;;)
		pause();
}
