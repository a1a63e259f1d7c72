/* SPDX-License-Identifier: MIT */
/* The VM behind a process's descriptors. */
#ifndef KVM_H
#define KVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "bpf.h"
#include "kvm_shared.h"
#include "proc.h"

struct vm_file {
	int theirs, own; /* descriptor in the VMM, and our copy, which keeps the VM alive while we read */
	uint64_t object, kvm;
	enum ptd_kvm_file kind;
};

struct vm {
	struct vm_file *files; /* of the VM chosen: its vCPUs, and the VM itself if the VMM kept that open */
	size_t count;
	uint64_t kvm;
	bool checked; /* the files' operations are KVM's; else their names said so */
	const char *nested_paging; /* "ept", "npt", or "none": this kernel uses shadow tables */
	struct ptd_kvm_layout layout;
};

struct root {
	uint64_t address;
	unsigned level;
	bool smm, guest_mode;
	const char *kind, *why; /* "tdp_mmu", "legacy", "shadow"; why it was not dumped */
	long table;
};

struct vcpu {
	int number, tid, cpu;
	uint64_t root;
};

struct slot {
	uint64_t address, bytes, hva;
	unsigned flags, space;
};

/* What belongs to one reading. */
struct vm_view {
	struct root *roots;
	struct vcpu *vcpus;
	struct slot *slots;
	size_t root_count, vcpu_count, slot_count;
	struct ptd_kvm state;
};

void vm_find(struct vm *vm, const struct process *process);
void vm_choose(struct vm *vm, struct bpf *bpf, const struct process *process, int wanted);
const struct ptd_kvm *vm_state(struct vm *vm, struct bpf *bpf);
const struct ptd_kvm_vcpu *vm_vcpu(struct bpf *bpf, const struct vm_file *file);
const char *vm_confidential(const struct ptd_kvm *state);
void vm_slots(struct vm *vm, struct bpf *bpf, struct vm_view *view);

#endif
