/* SPDX-License-Identifier: MIT */
/* Where this kernel keeps page tables. */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stdint.h>
#include "bpf.h"

struct kernel {
	uint64_t direct_map, address_mask, encryption_mask;
	uint64_t vmemmap; /* struct page of frame 0; 0 not found */
	unsigned levels;
	bool typed; /* struct page tells page tables apart */
};
void kernel_explore(struct kernel *kernel, struct bpf *bpf);

#endif
