/* SPDX-License-Identifier: MIT */
/*
 * Finds out how this kernel lays out what we read, from pages of our own whose frames /proc/self/pagemap tells:
 * the direct map (randomized, page_offset_base), the number of levels, a memory-encryption bit, vmemmap.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include "kernel.h"
#include "output.h"
#include "proc.h"
#include "topology.h"

#define GIB (1ULL << 30)
#define ADDRESS_BITS 0x000ffffffffff000ULL

static uint64_t *own_page(void)
{
	uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (page == MAP_FAILED || getrandom(page, 4096, 0) != 4096)
		fail(EXIT_WRONG_USE, "cannot get a page of memory: %s", strerror(errno));
	mlock(page, 4096);
	return page;
}

/* `page` shows at direct_map + frame: eight words agree, and follow when the page changes. */
static bool mirrors(struct bpf *bpf, uint64_t address, uint64_t *page)
{
	uint64_t value;

	for (int i = 0; i < 8; i++)
		if (bpf_peek(bpf, address + i * 512, &value) || value != page[i * 64])
			return false;
	page[7] ^= 0x5a5a;
	return !bpf_peek(bpf, address + 56, &value) && value == page[7];
}

/* page_offset_base is 1 GiB aligned and at most one memory size below any address in the direct map. */
static uint64_t find_direct_map(struct bpf *bpf, uint64_t within, uint64_t *page, uint64_t frame)
{
	uint64_t top = within & ~(GIB - 1), found = 0, limit = highest_address() + GIB;

	for (uint64_t base = top; top - base <= limit; base -= GIB) {
		if (!mirrors(bpf, base + frame * 4096, page))
			continue;
		if (found)
			fail(EXIT_WRONG_USE, "the direct map is ambiguous: 0x%llx and another", (unsigned long long)found);
		found = base;
	}
	if (!found)
		fail(EXIT_WRONG_USE, "cannot find the kernel's direct map of memory");
	return found;
}

/* The leaf entry of our own `page` when the tree below `root` has `levels` levels; 0 when that cannot be. */
static uint64_t own_entry(struct kernel *kernel, struct bpf *bpf, uint64_t root, unsigned levels, const void *page)
{
	uint64_t address = root, entry = 0;

	for (unsigned level = levels; level >= 1; level--) {
		uint64_t index = (uintptr_t)page >> (3 + 9 * level) & 511;

		if (bpf_peek(bpf, kernel->direct_map + address + index * 8, &entry) || !(entry & PTD_ENTRY_PRESENT))
			return 0;
		if (level > 1 && entry & PTD_ENTRY_HUGE)
			return 0;
		address = entry & kernel->address_mask;
	}
	return entry;
}

/* On a kernel that replicates lazily, only the tree of the node that we mapped it on is sure to have it. */
static uint64_t own_entry_anywhere(struct kernel *kernel, struct bpf *bpf, const struct ptd_mm *own, unsigned levels,
				   const void *page)
{
	uint64_t entry = own_entry(kernel, bpf, own->pgd - kernel->direct_map, levels, page);

	for (unsigned node = 0; !entry && node < own->replicas && node < PTD_NODES; node++)
		if (own->replica[node])
			entry = own_entry(kernel, bpf, own->replica[node] - kernel->direct_map, levels, page);
	return entry;
}

static void find_levels(struct kernel *kernel, struct bpf *bpf, const struct ptd_mm *own, const void *page,
			uint64_t frame)
{
	kernel->levels = 0;
	for (unsigned levels = 4; levels <= PTD_MAX_LEVELS; levels++) {
		uint64_t entry = own_entry_anywhere(kernel, bpf, own, levels, page);

		if ((entry & kernel->address_mask) >> 12 != frame)
			continue;
		if (kernel->levels)
			fail(EXIT_WRONG_USE, "cannot tell 4 from 5 levels of page tables");
		kernel->levels = levels;
		kernel->encryption_mask = entry & ADDRESS_BITS & ~kernel->address_mask;
	}
	if (!kernel->levels)
		fail(EXIT_WRONG_USE, "our own page tables do not read as 4 or 5 levels of x86-64");
}

/* struct page of a page whose frame we know, minus that many of them; 0 when the result makes no sense. */
static uint64_t find_vmemmap(struct bpf *bpf)
{
	int memfd = memfd_create("ptdump", MFD_CLOEXEC);
	uint64_t *page, base = 0;
	const struct ptd_mm *found;

	if (memfd < 0 || ftruncate(memfd, 4096))
		return 0;
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memfd, 0);
	if (page != MAP_FAILED) {
		mlock(page, 4096);
		*page = 1;
		found = bpf_locate(bpf, -1, memfd);
		base = found->memfd_page - frame_of_own_page(page) * found->page_bytes;
		munmap(page, 4096);
	}
	close(memfd);
	return base % GIB == 0 && base >> 56 == 0xff ? base : 0;
}

void kernel_explore(struct kernel *kernel, struct bpf *bpf)
{
	const struct ptd_mm *own = bpf_locate(bpf, -1, -1);
	uint64_t *page = own_page(), frame = frame_of_own_page(page), memory = highest_address();

	if (!frame)
		fail(EXIT_WRONG_USE, "/proc/self/pagemap hides page frames: missing capability CAP_SYS_ADMIN");
	kernel->address_mask = ((2ULL << (63 - __builtin_clzll(memory))) - 1) & ~4095ULL;
	kernel->direct_map = own->page_offset_base;
	if (!kernel->direct_map)
		kernel->direct_map = find_direct_map(bpf, own->pgd, page, frame);
	find_levels(kernel, bpf, own, page, frame);
	kernel->typed = own->table_type;
	kernel->vmemmap = own->vmemmap_base;
	if (!kernel->vmemmap)
		kernel->vmemmap = find_vmemmap(bpf);
	kernel->typed &= kernel->vmemmap != 0;
	munmap(page, 4096);
}
