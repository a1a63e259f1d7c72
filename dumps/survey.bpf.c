/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Kernel half of ptsurvey: counts the page tables of an mm by level and node. Leaf tables are counted by the
 * entries that point to them and never read: 1 TiB of 4 KiB pages takes 1,024 reads of a table.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "shared.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ptd_count);
} counts SEC(".maps");

static __always_inline u32 node_of(struct ptd_count *count, u64 address)
{
	for (u32 i = 0; i < PTD_RANGES && i < count->ranges; i++)
		if (address >= count->range[i].start && address < count->range[i].end)
			return count->range[i].node < PTD_NODES ? count->range[i].node : PTD_NODES;
	return PTD_NODES;
}

/* Look at one entry: go up at a table's end, count what it points to, go down where tables of tables follow. */
static long look(u64 iteration, struct ptd_count **context)
{
	struct ptd_count *count = *context;
	u32 level = count->level, index, below, node;
	u64 entry, address;

	if (level < 2 || level > PTD_MAX_LEVELS) {
		count->done = 1;
		return 1;
	}
	index = count->next[level];
	if (index >= (level == count->levels ? PTD_USER_ENTRIES : PTD_ENTRIES)) {
		count->level = level == count->levels ? 0 : level + 1;
		return 0;
	}
	count->next[level] = index + 1;
	entry = count->tables[level][index & 511];
	if (!(entry & PTD_ENTRY_PRESENT))
		return 0;
	if (entry & PTD_ENTRY_HUGE) {
		count->huge[level]++;
		return 0;
	}
	below = level - 1;
	address = entry & count->address_mask;
	node = node_of(count, address);
	if (node <= PTD_NODES)
		count->found[below & 7][node]++;
	if (below < 2)
		return 0;
	if (bpf_probe_read_kernel(count->tables[below & 7], sizeof(count->tables[0]),
				  (void *)(count->direct_map + address))) {
		count->fault++;
		return 0;
	}
	count->next[below & 7] = 0;
	count->level = below;
	return 0;
}

SEC("syscall")
int count_tables(void *ctx)
{
	u32 zero = 0;
	struct ptd_count *count = bpf_map_lookup_elem(&counts, &zero);

	if (!count)
		return -1;
	bpf_loop(PTD_STEPS, look, &count, 0);
	return 0;
}
