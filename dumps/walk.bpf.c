/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Kernel half of ptdump: finds an mm, reads kernel memory, and walks the page tables of an mm depth first.
 *
 * Everything runs from BPF_PROG_TEST_RUN of SEC("syscall") programs. A walk call fills up to PTD_BATCH slots of
 * an mmapable array and returns; the cursor stays in a map. Reads are bpf_probe_read_kernel: a table freed under
 * us can be stale, never fatal. What changed while it was read is flagged, see shared.h.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "file.bpf.h"
#include "shared.h"
#include "symbol.bpf.h"

#define PT_CHANGED 1 /* enum pt_flags of records.h, which includes a libc header */
#define PT_TORN 2
#define PT_FAULT 4
#define PT_BAD_TYPE 8

char LICENSE[] SEC("license") = "Dual MIT/GPL";

extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/* mm_lock_seq: seqcount_t since Linux 6.14, int before; absent without CONFIG_PER_VMA_LOCK */
struct mm_struct___int {
	int mm_lock_seq;
} __attribute__((preserve_access_index));
struct mm_struct___seqcount {
	struct {
		unsigned int sequence;
	} mm_lock_seq;
} __attribute__((preserve_access_index));

/* A root per node: Linux 7.0 with Hydra (repl_pgd) or with Mitosis as WASP has it (pgd_replicas) */
struct mm_struct___hydra {
	void *repl_pgd[PTD_NODES];
} __attribute__((preserve_access_index));
struct mm_struct___wasp {
	void *pgd_replicas[PTD_NODES];
} __attribute__((preserve_access_index));

/* Hydra: the node whose tables have every entry of the area */
struct vm_area_struct___hydra {
	unsigned long master_pgd_node;
} __attribute__((preserve_access_index));

/* enum pagetype { PGTY_table = ... } since Linux 6.12: the top byte of page->page_type */
enum pagetype___known {
	PGTY_table___known = 242,
};
struct page___typed {
	unsigned int page_type;
} __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PTD_BATCH);
	__type(key, u32);
	__type(value, struct ptd_page);
} pages SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PTD_BATCH);
	__type(key, u32);
	__type(value, struct ptd_table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ptd_walk);
} walks SEC(".maps");

struct ptd_mm found;
int pagemap_fd = -1, memfd = -1;
struct ptd_peek peeked;
struct ptd_page peeked_page;

static __always_inline u64 value_at(u64 address)
{
	u64 value = 0;

	if (address)
		bpf_probe_read_kernel(&value, sizeof(value), (void *)address);
	return value;
}

/* Called once, before we give up what the kernel shows addresses for. */
SEC("syscall")
int read_symbols(void *ctx)
{
	found.page_offset_base = value_at(ADDRESS_OF(page_offset_base));
	found.vmemmap_base = value_at(ADDRESS_OF(vmemmap_base));
	return 0;
}

static __always_inline void read_lock_seq(struct mm_struct *mm)
{
	struct mm_struct___int *plain = (void *)mm;
	struct mm_struct___seqcount *counted = (void *)mm;

	if (bpf_core_field_exists(plain->mm_lock_seq))
		bpf_probe_read_kernel(&found.lock_seq, 4, &plain->mm_lock_seq);
	else if (bpf_core_field_exists(counted->mm_lock_seq))
		bpf_probe_read_kernel(&found.lock_seq, 4, &counted->mm_lock_seq);
	else
		return;
	found.has_lock_seq = 1;
}

static __always_inline void read_replicas(struct mm_struct *mm)
{
	struct mm_struct___hydra *hydra = (void *)mm;
	struct mm_struct___wasp *wasp = (void *)mm;
	u64 bytes = 0;

	if (bpf_core_field_exists(hydra->repl_pgd)) {
		bytes = bpf_core_field_size(hydra->repl_pgd);
		if (bytes <= sizeof(found.replica))
			bpf_probe_read_kernel(found.replica, bytes, &hydra->repl_pgd);
	} else if (bpf_core_field_exists(wasp->pgd_replicas)) {
		bytes = bpf_core_field_size(wasp->pgd_replicas);
		if (bytes <= sizeof(found.replica))
			bpf_probe_read_kernel(found.replica, bytes, &wasp->pgd_replicas);
	}
	found.replicas = bytes / sizeof(found.replica[0]);
}

/* private_data of an open /proc/PID/pagemap is the process's mm, and keeps it allocated (fs/proc/task_mmu.c) */
SEC("syscall")
int locate(void *ctx)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = 0;
	struct file *file;

	if (pagemap_fd >= 0) {
		file = own_file(pagemap_fd);
		mm = file ? BPF_CORE_READ(file, private_data) : 0;
	} else {
		mm = BPF_CORE_READ(task, mm);
	}
	if (!mm)
		return -1;
	found.mm = (u64)mm;
	found.pgd = (u64)BPF_CORE_READ(mm, pgd);
	found.pgtables_bytes = BPF_CORE_READ(mm, pgtables_bytes.counter);
	found.users = BPF_CORE_READ(mm, mm_users.counter);
	read_lock_seq(mm);
	read_replicas(mm);
	found.page_bytes = bpf_core_type_size(struct page);
	struct page___typed *page = 0;
	if (bpf_core_enum_value_exists(enum pagetype___known, PGTY_table___known) &&
	    bpf_core_field_exists(page->page_type))
		found.table_type = bpf_core_enum_value(enum pagetype___known, PGTY_table___known);
	file = own_file(memfd);
	if (file)
		found.memfd_page = (u64)BPF_CORE_READ(file, f_mapping, i_pages.xa_head);
	return 0;
}

/* The areas of a process, with their owners: loaded only where they have one. */
SEC("?iter/task_vma")
int owners(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *area = ctx->vma; /* checked once, so read once */
	struct vm_area_struct___hydra *owned = (void *)area;
	struct ptd_owner owner = { 0 };

	if (!area)
		return 0;
	owner.start = BPF_CORE_READ(area, vm_start);
	owner.end = BPF_CORE_READ(area, vm_end);
	bpf_probe_read_kernel(&owner.node, sizeof(owner.node), &owned->master_pgd_node);
	bpf_seq_write(ctx->meta->seq, &owner, sizeof(owner));
	return 0;
}

SEC("syscall")
int peek(void *ctx)
{
	peeked.value = 0;
	peeked.error = bpf_probe_read_kernel(&peeked.value, 8, (void *)peeked.address);
	return 0;
}

SEC("syscall")
int peek_page(void *ctx)
{
	peeked.error = bpf_probe_read_kernel(&peeked_page, sizeof(peeked_page), (void *)peeked.address);
	return 0;
}

static __always_inline u64 live_entry(struct ptd_walk *walk, u32 level, u32 index)
{
	u64 entry = 0;

	bpf_probe_read_kernel(&entry, 8, (void *)(walk->direct_map + walk->address[level & 7] + (index & 511) * 8));
	return entry;
}

static __always_inline int points_to_table(struct ptd_walk *walk, u64 entry)
{
	return (entry & (walk->present | PTD_ENTRY_HUGE)) == walk->present;
}

/* The table below `level` on the way down is still linked; next[] already stands one further. */
static __always_inline int linked(struct ptd_walk *walk, u32 level)
{
	u64 entry = live_entry(walk, level, walk->next[level & 7] - 1);

	return points_to_table(walk, entry) && (entry & walk->address_mask) == walk->address[(level - 1) & 7];
}

/* Between calls anything can happen: leave the first table, seen from the root, that is linked no more. */
static __always_inline void revalidate(struct ptd_walk *walk)
{
	u32 level;

	for (level = PTD_MAX_LEVELS; level > 2; level--) {
		if (level <= walk->levels && level > walk->level && !linked(walk, level)) {
			walk->vanished++;
			walk->level = level;
			return;
		}
	}
}

/* struct page says that this is a page table: its type, since Linux 6.12. */
static __always_inline int has_table_type(u64 page)
{
	struct page___typed *described = (void *)page;
	u32 type = 0;

	if (!bpf_core_field_exists(described->page_type) ||
	    !bpf_core_enum_value_exists(enum pagetype___known, PGTY_table___known))
		return 1;
	bpf_probe_read_kernel(&type, 4, &described->page_type);
	return type >> 24 == bpf_core_enum_value(enum pagetype___known, PGTY_table___known);
}

/* page->private of one of KVM's tables is its kvm_mmu_page, whose spt is the table (tdp_mmu_init_sp). */
static __always_inline int is_kvm_table(struct ptd_walk *walk, u64 page, u64 address)
{
	u64 shadow_page = 0, table = 0;

	bpf_probe_read_kernel(&shadow_page, 8, (void *)(page + walk->page_private));
	bpf_probe_read_kernel(&table, 8, (void *)(shadow_page + walk->sp_spt));
	return table == walk->direct_map + address;
}

static __always_inline u32 copy_table(struct ptd_walk *walk, struct ptd_page *to, u64 address, u32 level)
{
	u64 page = walk->vmemmap + (address >> 12) * bpf_core_type_size(struct page);
	int good = 1;

	if (bpf_probe_read_kernel(to, sizeof(*to), (void *)(walk->direct_map + address))) {
		walk->fault++; /* the helper has zeroed the page */
		return PT_FAULT;
	}
	if (walk->vmemmap && walk->page_private)
		good = is_kvm_table(walk, page, address);
	else if (walk->vmemmap && level <= PTD_TYPED_LEVELS)
		good = has_table_type(page);
	walk->bad_type += !good;
	return good ? 0 : PT_BAD_TYPE;
}

static __always_inline void descend(struct ptd_walk *walk, struct ptd_page *page, u64 base, u64 address, u32 level)
{
	bpf_probe_read_kernel(walk->tables[level & 7], sizeof(*page), page);
	walk->base[level & 7] = base;
	walk->address[level & 7] = address;
	walk->next[level & 7] = 0;
	walk->level = level;
}

/* Look at one entry: go up at a table's end, skip what is no table, else copy the table and go down. */
static long step(u64 iteration, struct ptd_walk **context)
{
	struct ptd_walk *walk = *context;
	u32 level = walk->level, slot = walk->count, index, flags = 0;
	u64 entry, live, changeable = walk->address_mask | walk->present | PTD_ENTRY_HUGE;

	if (level < 2 || level > PTD_MAX_LEVELS) {
		walk->error = 1;
		return 1;
	}
	index = walk->next[level];
	if (index >= PTD_ENTRIES || (level == walk->levels && index >= walk->root_entries)) {
		if (level >= walk->levels) {
			walk->done = 1;
			return 1;
		}
		walk->level = level + 1;
		return 0;
	}
	entry = walk->tables[level][index];
	if (!points_to_table(walk, entry)) {
		walk->next[level] = index + 1;
		return 0;
	}
	if (slot >= walk->capacity)
		return 1; /* full: resume at this very entry */
	walk->next[level] = index + 1;
	live = live_entry(walk, level, index);
	if ((live ^ entry) & changeable) {
		walk->changed++;
		flags |= PT_CHANGED;
		if (!points_to_table(walk, live))
			return 0;
		entry = live;
	}
	struct ptd_page *page = bpf_map_lookup_elem(&pages, &slot);
	struct ptd_table *table = bpf_map_lookup_elem(&tables, &slot);
	if (!page || !table) {
		walk->error = 2;
		return 1;
	}
	table->address = entry & walk->address_mask;
	table->base = walk->base[level] + ((u64)index << (3 + 9 * level));
	table->level = level - 1;
	flags |= copy_table(walk, page, table->address, level - 1);
	if ((live_entry(walk, level, index) ^ entry) & changeable) {
		walk->torn++;
		flags |= PT_TORN;
	}
	table->flags = flags;
	walk->count = slot + 1;
	if (level > 2 && !(flags & (PT_FAULT | PT_BAD_TYPE)))
		descend(walk, page, table->base, table->address, level - 1);
	return 0;
}

static __always_inline int walk_on(void)
{
	u32 zero = 0;
	struct ptd_walk *walk = bpf_map_lookup_elem(&walks, &zero);

	if (!walk)
		return -1;
	revalidate(walk);
	bpf_loop(PTD_STEPS, step, &walk, 0);
	return 0;
}

SEC("syscall")
int walk_plain(void *ctx)
{
	return walk_on();
}

/* Tables are freed after an RCU grace period (MMU_GATHER_RCU_TABLE_FREE): none is reused within this call. */
SEC("?syscall")
int walk_rcu(void *ctx)
{
	int result;

	bpf_rcu_read_lock();
	result = walk_on();
	bpf_rcu_read_unlock();
	return result;
}
