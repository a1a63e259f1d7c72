/* SPDX-License-Identifier: MIT */
/* What the two halves of ptdump share about KVM. Addresses of kernel objects stay in memory, never in a file. */
#ifndef KVM_SHARED_H
#define KVM_SHARED_H

/* SPTE_MMU_PRESENT_MASK, bit 11, and bit 0. MMIO and frozen SPTEs lack bit 11. */
#define PTD_KVM_PRESENT 0x801ULL
#define PTD_KVM_SPACES 2         /* KVM_MAX_NR_ADDRESS_SPACES on x86: ordinary and system management mode */
#define PTD_KVM_PREVIOUS 3       /* KVM_MMU_NUM_PREV_ROOTS */
#define PTD_NO_ROOT (~0ULL)      /* INVALID_PAGE */

enum ptd_kvm_file { PTD_FILE_OTHER, PTD_FILE_VM, PTD_FILE_VCPU };

/* Result of `kvm_file`: what one of our own descriptors is. */
struct ptd_kvm_object {
	unsigned long long object, kvm;
	unsigned kind, checked; /* enum ptd_kvm_file; checked: f_op said so, not the name alone */
};

/* Offsets in this kernel's structures, 0 where it has no such member; result of `kvm_layout`. */
struct ptd_kvm_layout {
	unsigned page_bytes, page_private, sp_spt, sp_link;
	unsigned roles, gfn_tree; /* whether it has them */
	unsigned spaces;
};

/* struct kvm; what may be absent is ~0. */
struct ptd_kvm {
	unsigned long long mm, roots; /* roots: list head of tdp_mmu_roots */
	unsigned long long slots[PTD_KVM_SPACES], generation[PTD_KVM_SPACES];
	unsigned slot_index[PTD_KVM_SPACES];
	unsigned long long first_slot[PTD_KVM_SPACES];
	unsigned long long invalidate_seq, invalidate_in_progress;
	unsigned long long pages_4k, pages_2m, pages_1g, shadow_tables, tdp_tables;
	long long vm_type;
	int owner, dead, bugged, sev, sev_es;
};

struct ptd_kvm_mmu {
	unsigned long long address, root, special[3]; /* special: pae_root, pml4_root, pml5_root */
	unsigned long long previous[PTD_KVM_PREVIOUS];
	unsigned level, direct, smm;
};

struct ptd_kvm_vcpu {
	unsigned long long faults, loaded; /* loaded: arch.mmu */
	unsigned long long cr0, cr3, cr4, efer; /* as KVM has them: cr3 may be older than the last exit (VMX) */
	int number, tid;
	struct ptd_kvm_mmu root_mmu, guest_mmu;
};

/* struct kvm_mmu_page of a root; `next` in the list of tdp_mmu_roots. */
struct ptd_kvm_page {
	unsigned long long table, next; /* address of the table page */
	unsigned level, direct, smm, invalid, guest_mode, tdp;
};

struct ptd_kvm_slot {
	unsigned long long left, right; /* rb_node of the gfn_tree */
	unsigned long long frame, pages, hva;
	unsigned flags;
};

#endif
