/* SPDX-License-Identifier: MIT */
/* The tables of one reading, in memory or, beyond the limit, in the file already. */
#ifndef TABLES_H
#define TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "records.h"
#include "shared.h"
#include "topology.h"

struct format {
	const char *encoding;
	uint64_t present; /* bits that are all set in a present entry */
	unsigned root_entries;
	bool hints;                    /* x86: entries that are not present may map a page, inverted */
	unsigned page_private, sp_spt; /* KVM's tables: offsets in struct page and kvm_mmu_page, or 0 */
};
extern const struct format format_x86;
struct tables {
	const struct format *format;
	struct pt_table *records;
	struct ptd_page *entries; /* of tables first .. count - 1; of all when collected or mapped */
	size_t count, room, first, limit;
	int32_t last[PTD_MAX_LEVELS + 2]; /* newest table of each level */
	int file;
	bool streamed, unsized; /* unsized: every leaf is taken for one of 4 KiB */
	unsigned levels;
	uint64_t changed, torn, fault, bad_type, dropped, huge_leaves;
};
/* Of several trees. */
struct tables_sum {
	size_t count, counted; /* counted: by the kernel, in mm->pgtables_bytes */
	uint64_t changed, torn, fault, bad_type, dropped, huge_leaves;
	bool streamed;
};
void tables_sum(struct tables_sum *sum, const struct tables *tables);
void tables_init(struct tables *tables, size_t limit, const struct format *format);
void tables_reset(struct tables *tables, int file);
void tables_add(struct tables *tables, const struct ptd_table *table, const struct ptd_page *page, uint64_t clear);
void tables_finish(struct tables *tables);
void tables_check_types(struct tables *tables);
void tables_place(struct tables *tables, const struct topology *topology);
void tables_write(struct tables *tables, int tables_file, int entries_file);

#endif
