/* SPDX-License-Identifier: MIT */
/* The loaded BPF object. */
#ifndef PTDUMP_BPF_H
#define PTDUMP_BPF_H

#include <stdbool.h>
#include <stdint.h>
#include "shared.h"

struct ptdump_bpf;
struct bpf {
	struct ptdump_bpf *object;
	struct ptd_walk *walk;
	const struct ptd_page *pages;
	const struct ptd_table *tables;
	struct ptd_count *count;
	int walk_program, count_program;
	bool rcu, owned; /* owned: areas have a node that owns their tables */
};
void bpf_open(struct bpf *bpf, bool kvm);
void bpf_call(int program, const char *what);
void bpf_kvm(struct bpf *bpf, const char *program, uint64_t at);
const struct ptd_mm *bpf_locate(struct bpf *bpf, int pagemap, int memfd);
const struct ptd_mm *bpf_try_locate(struct bpf *bpf, int pagemap); /* NULL without an address space */
/* The areas of a process, in *owners, which is freed first; 0 where none has an owner. */
size_t bpf_owners(struct bpf *bpf, int pid, struct ptd_owner **owners);
int bpf_peek(struct bpf *bpf, uint64_t address, uint64_t *value);
const struct ptd_page *bpf_peek_page(struct bpf *bpf, uint64_t address);

#endif
