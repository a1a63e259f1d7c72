/* SPDX-License-Identifier: MIT */
/* Readings of tables, each between two looks at what moves when they change. */
#ifndef WALK_H
#define WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bpf.h"
#include "kernel.h"
#include "options.h"
#include "proc.h"
#include "replicas.h"
#include "tables.h"

struct signature {
	unsigned count;
	const char *name[12];
	uint64_t value[12];
};
struct vm_view;
struct reading {
	struct tables tables; /* below mm->pgd, or all roots of a VM */
	struct tables replica[PTD_NODES];
	struct ptd_owner *owners; /* NULL: unknown */
	size_t owner_count;
	struct signature before, after;
	struct vm_view *vm; /* of a VM: its roots, slots and vCPUs */
	char *maps;         /* read together with the tables; NULL unless asked for */
	size_t maps_length;
	size_t outside;      /* mapped pages that lie in no area of `maps` */
	bool quiet, pending; /* pending: a change was under way all the time */
	double seconds;
};
struct reader {
	struct bpf *bpf; /* NULL: pagemap alone */
	const struct kernel *kernel;
	const struct process *process;
	const struct options *options;
	int file; /* for entries that do not fit in memory */
	struct format format;
	bool with_maps;
	struct replicas replicas; /* none but on kernels that replicate */
	bool (*read)(struct reader *reader, struct reading *reading); /* false when the address space is gone */
	struct vm *vm;
};
void sign(struct signature *signature, const char *name, uint64_t value);
uint64_t signed_value(const struct signature *signature, const char *name);
struct tables *tree(struct reading *reading, unsigned i);
struct tables_sum reading_sum(const struct reader *reader, const struct reading *reading);
void walk_tree(struct reader *reader, struct tables *tables, uint64_t root, unsigned levels, size_t most);
bool read_process(struct reader *reader, struct reading *reading);
unsigned read_best(struct reader *reader, struct reading *readings);

#endif
