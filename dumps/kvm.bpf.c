/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What ptdump reads of KVM: struct kvm, its vCPUs, memory slots and page-table roots. The types below name only what
 * is read; libbpf finds them in the BTF of the kernel or of the module kvm (the suffix after ___ does not count).
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "file.bpf.h"
#include "kvm_shared.h"
#include "symbol.bpf.h"

#define KNOWN __attribute__((preserve_access_index))
#define ABSENT (~0ULL)

union kvm_mmu_page_role___known {
	u32 word;
	struct {
		u32 level : 4, direct : 1, invalid : 1, guest_mode : 1, smm : 8;
	};
} KNOWN;
struct kvm_mmu_root_info___known {
	u64 pgd, hpa;
} KNOWN;
struct kvm_mmu___known {
	struct kvm_mmu_root_info___known root, prev_roots[PTD_KVM_PREVIOUS];
	union kvm_mmu_page_role___known root_role;
	u64 *pae_root, *pml4_root, *pml5_root;
} KNOWN;
struct kvm_mmu_page___known {
	struct list_head link;
	union kvm_mmu_page_role___known role;
	u64 *spt;
	bool tdp_mmu_page;
} KNOWN;
struct kvm_memslots___known {
	u64 generation;
	struct rb_root gfn_tree;
	int node_idx;
} KNOWN;
struct kvm_memory_slot___known {
	struct rb_node gfn_node[2];
	u64 base_gfn;
	unsigned long npages, userspace_addr;
	u32 flags;
} KNOWN;
struct kvm_vm_stat___known {
	atomic64_t pages_4k, pages_2m, pages_1g;
	u64 mmu_shadow_pages; /* since Linux 7.2, before it arch.n_used_mmu_pages */
} KNOWN;
struct kvm_arch___known {
	unsigned long n_used_mmu_pages;
	atomic64_t tdp_mmu_pages; /* a list of two words on some kernels */
	struct list_head tdp_mmu_roots;
	u8 vm_type;
} KNOWN;
struct kvm___known {
	struct mm_struct *mm;
	struct kvm_memslots___known *memslots[PTD_KVM_SPACES];
	unsigned long mmu_invalidate_seq, mmu_notifier_seq; /* renamed in Linux 6.1 */
	long mmu_invalidate_in_progress, mmu_notifier_count;
	bool vm_bugged, vm_dead;
	int userspace_pid;
	struct kvm_vm_stat___known stat;
	struct kvm_arch___known arch;
} KNOWN;
struct kvm_sev_info___known {
	bool active, es_active;
} KNOWN;
struct kvm_svm___known {
	struct kvm_sev_info___known sev_info;
} KNOWN;
struct kvm_vcpu_stat___known {
	u64 pf_fixed;
} KNOWN;
struct kvm_vcpu_arch___known {
	struct kvm_mmu___known *mmu, root_mmu, guest_mmu;
	unsigned long cr0, cr3, cr4;
	u64 efer;
} KNOWN;
struct kvm_vcpu___known {
	struct kvm___known *kvm;
	int vcpu_id;
	struct pid *pid;
	struct kvm_vcpu_stat___known stat;
	struct kvm_vcpu_arch___known arch;
} KNOWN;

int kvm_fd;
unsigned long long kvm_at;
unsigned long long vm_ioctl, vcpu_ioctl; /* addresses of KVM's functions */
unsigned kvm_index;
bool kvm_is_amd;
struct ptd_kvm_layout kvm_layout;
struct ptd_kvm_object kvm_object;
struct ptd_kvm kvm_state;
struct ptd_kvm_vcpu kvm_vcpu_state;
struct ptd_kvm_page kvm_page;
struct ptd_kvm_slot kvm_slot;

SEC("?syscall")
int kvm_symbols(void *ctx)
{
	vm_ioctl = ADDRESS_OF(kvm_vm_ioctl);
	vcpu_ioctl = ADDRESS_OF(kvm_vcpu_ioctl);
	return 0;
}

/* `kvm_fd` is a descriptor of ours whose name said `kvm_object.kind`: see whether its operations say so too. */
SEC("?syscall")
int kvm_file(void *ctx)
{
	struct file *file = own_file(kvm_fd);
	u64 expected = kvm_object.kind == PTD_FILE_VCPU ? vcpu_ioctl : vm_ioctl;
	struct kvm_vcpu___known *vcpu;

	if (!file)
		return -1;
	vcpu = BPF_CORE_READ(file, private_data);
	kvm_object.object = (u64)vcpu;
	kvm_object.kvm = kvm_object.kind == PTD_FILE_VCPU ? (u64)BPF_CORE_READ(vcpu, kvm) : (u64)vcpu;
	kvm_object.checked = expected != 0;
	if (expected && (u64)BPF_CORE_READ(file, f_op, unlocked_ioctl) != expected)
		kvm_object.kind = PTD_FILE_OTHER;
	return 0;
}

SEC("?syscall")
int kvm_lay_out(void *ctx)
{
	struct page *page = 0;
	struct kvm___known *kvm = 0;
	struct kvm_mmu___known *mmu = 0;
	struct kvm_memslots___known *slots = 0;

	kvm_layout.page_bytes = bpf_core_type_size(struct page);
	if (bpf_core_field_exists(page->private))
		kvm_layout.page_private = bpf_core_field_offset(page->private);
	kvm_layout.sp_spt = bpf_core_field_offset(struct kvm_mmu_page___known, spt);
	kvm_layout.sp_link = bpf_core_field_offset(struct kvm_mmu_page___known, link);
	kvm_layout.roles = bpf_core_field_exists(mmu->root_role) && bpf_core_field_exists(mmu->root);
	kvm_layout.gfn_tree = bpf_core_field_exists(slots->gfn_tree);
	kvm_layout.spaces = bpf_core_field_size(kvm->memslots) / sizeof(void *);
	return 0;
}

static __always_inline void read_slots(struct kvm___known *kvm, u32 space)
{
	struct kvm_memslots___known **all, *slots = 0;

	all = (void *)kvm + bpf_core_field_offset(kvm->memslots);
	bpf_probe_read_kernel(&slots, sizeof(slots), all + space);
	kvm_state.slots[space] = (u64)slots;
	kvm_state.generation[space] = BPF_CORE_READ(slots, generation);
	kvm_state.slot_index[space] = BPF_CORE_READ(slots, node_idx);
	kvm_state.first_slot[space] = (u64)BPF_CORE_READ(slots, gfn_tree.rb_node);
}

static __always_inline void read_notifier(struct kvm___known *kvm)
{
	if (bpf_core_field_exists(kvm->mmu_invalidate_seq)) {
		kvm_state.invalidate_seq = BPF_CORE_READ(kvm, mmu_invalidate_seq);
		kvm_state.invalidate_in_progress = BPF_CORE_READ(kvm, mmu_invalidate_in_progress);
	} else if (bpf_core_field_exists(kvm->mmu_notifier_seq)) {
		kvm_state.invalidate_seq = BPF_CORE_READ(kvm, mmu_notifier_seq);
		kvm_state.invalidate_in_progress = BPF_CORE_READ(kvm, mmu_notifier_count);
	}
}

static __always_inline void read_counters(struct kvm___known *kvm)
{
	kvm_state.shadow_tables = ABSENT;
	if (bpf_core_field_exists(kvm->arch.n_used_mmu_pages))
		kvm_state.shadow_tables = BPF_CORE_READ(kvm, arch.n_used_mmu_pages);
	else if (bpf_core_field_exists(kvm->stat.mmu_shadow_pages))
		kvm_state.shadow_tables = BPF_CORE_READ(kvm, stat.mmu_shadow_pages);
	kvm_state.tdp_tables = kvm_state.pages_4k = kvm_state.pages_2m = kvm_state.pages_1g = ABSENT;
	if (bpf_core_field_exists(kvm->arch.tdp_mmu_pages) && bpf_core_field_size(kvm->arch.tdp_mmu_pages) == 8)
		kvm_state.tdp_tables = BPF_CORE_READ(kvm, arch.tdp_mmu_pages.counter);
	if (bpf_core_field_exists(kvm->stat.pages_4k)) {
		kvm_state.pages_4k = BPF_CORE_READ(kvm, stat.pages_4k.counter);
		kvm_state.pages_2m = BPF_CORE_READ(kvm, stat.pages_2m.counter);
		kvm_state.pages_1g = BPF_CORE_READ(kvm, stat.pages_1g.counter);
	}
}

/* SEV has no vm_type before Linux 6.10; struct kvm is the first member of struct kvm_svm. */
static __always_inline void read_confidential(struct kvm___known *kvm)
{
	struct kvm_svm___known *svm = (void *)kvm;

	kvm_state.vm_type = bpf_core_field_exists(kvm->arch.vm_type) ? BPF_CORE_READ(kvm, arch.vm_type) : 0;
	if (kvm_is_amd && bpf_core_field_exists(svm->sev_info.active)) {
		kvm_state.sev = BPF_CORE_READ(svm, sev_info.active);
		kvm_state.sev_es = BPF_CORE_READ(svm, sev_info.es_active);
	}
}

/* `kvm_at` is a struct kvm. */
SEC("?syscall")
int kvm_read(void *ctx)
{
	struct kvm___known *kvm = (void *)kvm_at;

	kvm_state.mm = (u64)BPF_CORE_READ(kvm, mm);
	kvm_state.roots = 0;
	if (bpf_core_field_exists(kvm->arch.tdp_mmu_roots))
		kvm_state.roots = kvm_at + bpf_core_field_offset(kvm->arch) +
				  bpf_core_field_offset(struct kvm_arch___known, tdp_mmu_roots);
	if (bpf_core_field_exists(kvm->vm_dead))
		kvm_state.dead = BPF_CORE_READ(kvm, vm_dead);
	if (bpf_core_field_exists(kvm->vm_bugged))
		kvm_state.bugged = BPF_CORE_READ(kvm, vm_bugged);
	kvm_state.owner = BPF_CORE_READ(kvm, userspace_pid);
	read_slots(kvm, 0);
	if (bpf_core_field_size(kvm->memslots) >= 2 * sizeof(void *))
		read_slots(kvm, 1);
	read_notifier(kvm);
	read_counters(kvm);
	read_confidential(kvm);
	return 0;
}

static __always_inline void read_mmu(struct ptd_kvm_mmu *out, struct kvm_mmu___known *mmu)
{
	out->address = (u64)mmu;
	out->root = BPF_CORE_READ(mmu, root.hpa);
	out->special[0] = (u64)BPF_CORE_READ(mmu, pae_root);
	out->special[1] = (u64)BPF_CORE_READ(mmu, pml4_root);
	if (bpf_core_field_exists(mmu->pml5_root))
		out->special[2] = (u64)BPF_CORE_READ(mmu, pml5_root);
	out->previous[0] = BPF_CORE_READ(mmu, prev_roots[0].hpa);
	out->previous[1] = BPF_CORE_READ(mmu, prev_roots[1].hpa);
	out->previous[2] = BPF_CORE_READ(mmu, prev_roots[2].hpa);
	out->level = BPF_CORE_READ_BITFIELD_PROBED(mmu, root_role.level);
	out->direct = BPF_CORE_READ_BITFIELD_PROBED(mmu, root_role.direct);
	out->smm = BPF_CORE_READ_BITFIELD_PROBED(mmu, root_role.smm);
}

/* The thread that last ran the vCPU, as numbered where we live. */
static __always_inline int own_number(struct pid *pid)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	u32 level = BPF_CORE_READ(task, thread_pid, level);
	struct upid *upid = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			    level * bpf_core_type_size(struct upid);

	return pid && level <= BPF_CORE_READ(pid, level) ? BPF_CORE_READ(upid, nr) : 0;
}

/* `kvm_at` is a struct kvm_vcpu. */
SEC("?syscall")
int kvm_read_vcpu(void *ctx)
{
	struct kvm_vcpu___known *vcpu = (void *)kvm_at;

	kvm_vcpu_state.number = BPF_CORE_READ(vcpu, vcpu_id);
	kvm_vcpu_state.tid = own_number(BPF_CORE_READ(vcpu, pid));
	kvm_vcpu_state.loaded = (u64)BPF_CORE_READ(vcpu, arch.mmu);
	kvm_vcpu_state.faults = 0;
	if (bpf_core_field_exists(vcpu->stat.pf_fixed))
		kvm_vcpu_state.faults = BPF_CORE_READ(vcpu, stat.pf_fixed);
	kvm_vcpu_state.cr0 = BPF_CORE_READ(vcpu, arch.cr0);
	kvm_vcpu_state.cr3 = BPF_CORE_READ(vcpu, arch.cr3);
	kvm_vcpu_state.cr4 = BPF_CORE_READ(vcpu, arch.cr4);
	kvm_vcpu_state.efer = BPF_CORE_READ(vcpu, arch.efer);
	read_mmu(&kvm_vcpu_state.root_mmu, &vcpu->arch.root_mmu);
	read_mmu(&kvm_vcpu_state.guest_mmu, &vcpu->arch.guest_mmu);
	return 0;
}

/* `kvm_at` is a struct kvm_mmu_page. */
SEC("?syscall")
int kvm_read_page(void *ctx)
{
	struct kvm_mmu_page___known *page = (void *)kvm_at;

	kvm_page.table = (u64)BPF_CORE_READ(page, spt);
	kvm_page.next = (u64)BPF_CORE_READ(page, link.next);
	kvm_page.level = BPF_CORE_READ_BITFIELD_PROBED(page, role.level);
	kvm_page.direct = BPF_CORE_READ_BITFIELD_PROBED(page, role.direct);
	kvm_page.smm = BPF_CORE_READ_BITFIELD_PROBED(page, role.smm);
	kvm_page.invalid = BPF_CORE_READ_BITFIELD_PROBED(page, role.invalid);
	kvm_page.guest_mode = BPF_CORE_READ_BITFIELD_PROBED(page, role.guest_mode);
	if (bpf_core_field_exists(page->tdp_mmu_page))
		kvm_page.tdp = BPF_CORE_READ(page, tdp_mmu_page);
	return 0;
}

/* `kvm_at` is a struct rb_node of the slots' tree, the slot's node number `kvm_index`. */
SEC("?syscall")
int kvm_read_slot(void *ctx)
{
	struct rb_node *node = (void *)kvm_at;
	struct kvm_memory_slot___known *slot = (void *)kvm_at -
		bpf_core_field_offset(struct kvm_memory_slot___known, gfn_node) -
		kvm_index * bpf_core_type_size(struct rb_node);

	kvm_slot.left = (u64)BPF_CORE_READ(node, rb_left);
	kvm_slot.right = (u64)BPF_CORE_READ(node, rb_right);
	kvm_slot.frame = BPF_CORE_READ(slot, base_gfn);
	kvm_slot.pages = BPF_CORE_READ(slot, npages);
	kvm_slot.hva = BPF_CORE_READ(slot, userspace_addr);
	kvm_slot.flags = BPF_CORE_READ(slot, flags);
	return 0;
}
