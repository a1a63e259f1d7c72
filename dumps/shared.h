/* SPDX-License-Identifier: MIT */
/* What the BPF half and the user half of ptdump share. Numbers: every level counts from 1 (4 KiB entries). */
#ifndef SHARED_H
#define SHARED_H

#define PTD_ENTRIES 512
#define PTD_USER_ENTRIES 256 /* of the root: the other half is the kernel's */
#define PTD_MAX_LEVELS 5
#define PTD_NODES 64
#define PTD_BATCH 256           /* tables a call: 1 MiB of them, about 0.2 ms */
#define PTD_STEPS (1 << 16)     /* entries looked at in a call; most are empty */
#define PTD_TYPED_LEVELS 2 /* older kernels give only PTE and PMD tables the type of a page table */
#define PTD_ENTRY_PRESENT 0x001ULL
#define PTD_ENTRY_USER 0x004ULL
#define PTD_ENTRY_HUGE 0x080ULL
#define PTD_ENTRY_PROTNONE 0x100ULL /* without PRESENT: mapped, but inaccessible; its frame is inverted */

struct ptd_page {
	unsigned long long entry[PTD_ENTRIES];
};

/* One table as it leaves the kernel; its entries are the ptd_page of the same index. */
struct ptd_table {
	unsigned long long base, address; /* first address mapped; physical address of the table */
	unsigned level, flags;            /* flags: enum pt_flags of records.h */
};

/* The walk's cursor: where it stands on each level. Lives in a map, so that the next call resumes it. */
struct ptd_walk {
	/* set by user space */
	unsigned long long direct_map;   /* page_offset_base: physical address 0 */
	unsigned long long address_mask; /* address bits of an entry that points to a table */
	unsigned long long vmemmap;      /* struct page of frame 0; 0: page types are not checked */
	unsigned long long present;      /* bits that are all set in an entry that points to a table or page */
	unsigned page_private, sp_spt;   /* of struct page and kvm_mmu_page: tables are KVM's; else 0 */
	unsigned levels, root_entries, capacity;
	/* cursor */
	unsigned level, done, count, error;
	unsigned next[8]; /* entry to look at next */
	unsigned long long base[8], address[8];
	unsigned long long tables[8][PTD_ENTRIES]; /* copies of the tables on the way down */
	/* counts */
	unsigned long long changed, torn, fault, bad_type, vanished;
};

/* Result of `locate`: the mm behind an open /proc/PID/pagemap, or our own; and facts of the kernel. */
struct ptd_mm {
	unsigned long long mm, pgd, pgtables_bytes, users;
	unsigned long long lock_seq, has_lock_seq;
	unsigned long long page_offset_base, vmemmap_base; /* 0: no such symbol */
	unsigned long long memfd_page;                     /* struct page of the page in `memfd` */
	unsigned long long page_bytes, table_type;         /* sizeof(struct page); PGTY_table, 0 unknown */
	unsigned long long replicas;                       /* roots of the mm, one per node; 0: no such kernel */
	unsigned long long replica[PTD_NODES];             /* some may be the same, some 0 */
};

/* An address range and the node whose tables are the owner's, on a kernel that replicates lazily. */
struct ptd_owner {
	unsigned long long start, end, node;
};

/* A count of the tables of an mm by level and node, without a look into its leaf tables. */
#define PTD_RANGES 64

struct ptd_range {
	unsigned long long start, end; /* physical addresses */
	unsigned node, unused;
};

struct ptd_count {
	/* set by user space */
	unsigned long long direct_map, address_mask;
	unsigned levels, ranges;
	struct ptd_range range[PTD_RANGES];
	/* cursor */
	unsigned level, done;
	unsigned next[8];
	unsigned long long tables[8][PTD_ENTRIES];
	/* counts */
	unsigned long long found[8][PTD_NODES + 1]; /* tables by level and node; the last: of no known node */
	unsigned long long huge[8];                 /* pages that entries of a level map, above level 1 */
	unsigned long long fault;                   /* tables that could not be read */
};

struct ptd_peek {
	unsigned long long address, value;
	long error;
};

#endif
