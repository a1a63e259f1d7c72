/* SPDX-License-Identifier: MIT */
/*
 * The roots of a VM's tables: those its vCPUs have loaded or keep for later (prev_roots), and those of the TDP MMU
 * that no vCPU has. A root's kvm_mmu_page says what it is; special roots have none.
 */
#include <stdlib.h>
#include <string.h>
#include "roots.h"
#include "ptdump.skel.h"

#define MOST_ROOTS 4096

static struct root *find(struct vm_view *view, uint64_t address)
{
	for (size_t i = 0; i < view->root_count; i++)
		if (view->roots[i].address == address)
			return &view->roots[i];
	return NULL;
}

static void add(struct vm_view *view, struct root root)
{
	if (root.address == PTD_NO_ROOT || !root.address || find(view, root.address) || view->root_count == MOST_ROOTS)
		return;
	root.table = -1;
	view->roots = realloc(view->roots, (view->root_count + 1) * sizeof(*view->roots));
	view->roots[view->root_count++] = root;
}

static const char *kind_of(const struct vm *vm, bool tdp_mmu, bool direct)
{
	if (tdp_mmu)
		return "tdp_mmu";
	return direct && strcmp(vm->nested_paging, "none") ? "legacy" : "shadow";
}

static const struct ptd_kvm_page *read_page(struct bpf *bpf, uint64_t at)
{
	bpf_kvm(bpf, "kvm_read_page", at);
	return &bpf->object->bss->kvm_page;
}

/* The kvm_mmu_page of the table at physical `address`; NULL when it has none or nothing shows it. */
static const struct ptd_kvm_page *page_of(struct reader *reader, uint64_t address)
{
	const struct ptd_kvm_layout *layout = &reader->vm->layout;
	uint64_t described = reader->kernel->vmemmap + address / 4096 * layout->page_bytes, at = 0;
	const struct ptd_kvm_page *page;

	if (!reader->kernel->vmemmap || !layout->page_private)
		return NULL;
	if (bpf_peek(reader->bpf, described + layout->page_private, &at) || at >> 56 != 0xff)
		return NULL;
	page = read_page(reader->bpf, at);
	return page->table == reader->kernel->direct_map + address ? page : NULL;
}

/* PAE roots, and those above the root proper when it has fewer levels than the host's (mmu_alloc_special_roots) */
static bool is_special(struct reader *reader, const struct ptd_kvm_mmu *mmu, uint64_t address)
{
	for (int i = 0; i < 3; i++)
		if (mmu->special[i] && mmu->special[i] - reader->kernel->direct_map == address)
			return true;
	return false;
}

static void add_root(struct reader *reader, struct vm_view *view, const struct ptd_kvm_mmu *mmu, uint64_t address)
{
	struct root root = { .address = address & ~4095ULL, .level = mmu->level, .smm = mmu->smm };
	const struct ptd_kvm_page *page = address == PTD_NO_ROOT ? NULL : page_of(reader, root.address);

	if (address == PTD_NO_ROOT)
		return;
	root.kind = kind_of(reader->vm, page && page->tdp, page ? page->direct : mmu->direct);
	if (page) {
		root.level = page->level;
		root.smm = page->smm;
		root.guest_mode = page->guest_mode;
	}
	if (page && page->invalid)
		root.why = "KVM is taking it down";
	else if (is_special(reader, mmu, root.address))
		root.why = "the guest is not in 64-bit mode: try again when it has booted (32-bit guests have no such tables)";
	add(view, root);
}

static void add_roots_of(struct reader *reader, struct vm_view *view, const struct ptd_kvm_mmu *mmu)
{
	add_root(reader, view, mmu, mmu->root);
	for (int i = 0; i < PTD_KVM_PREVIOUS; i++)
		add_root(reader, view, mmu, mmu->previous[i]);
}

/* kvm->arch.tdp_mmu_roots: also the roots that no vCPU has loaded now. */
static void add_tdp_roots(struct reader *reader, struct vm_view *view)
{
	uint64_t head = view->state.roots, at = 0;

	if (!head || bpf_peek(reader->bpf, head, &at))
		return;
	for (int i = 0; i < MOST_ROOTS && at && at != head; i++) {
		const struct ptd_kvm_page *page = read_page(reader->bpf, at - reader->vm->layout.sp_link);
		struct root root = { .address = page->table - reader->kernel->direct_map, .level = page->level,
				     .smm = page->smm, .guest_mode = page->guest_mode, .kind = "tdp_mmu",
				     .why = page->invalid ? "KVM is taking it down" : NULL };

		if (root.address % 4096)
			return; /* the list changed under us */
		add(view, root);
		at = page->next;
	}
}

static int rank(const struct root *root)
{
	return (root->why != NULL) * 8 + !strcmp(root->kind, "shadow") * 4 + root->guest_mode * 2 + root->smm;
}

static int by_rank(const void *a, const void *b)
{
	const struct root *left = a, *right = b;

	if (rank(left) != rank(right))
		return rank(left) - rank(right);
	return left->address < right->address ? -1 : left->address > right->address;
}

static int by_number(const void *a, const void *b)
{
	return ((const struct vcpu *)a)->number - ((const struct vcpu *)b)->number;
}

static void add_vcpu(struct reader *reader, struct vm_view *view, const struct ptd_kvm_vcpu *state)
{
	const struct ptd_kvm_mmu *loaded = state->loaded == state->guest_mmu.address ? &state->guest_mmu : &state->root_mmu;
	struct vcpu *vcpu;

	view->vcpus = realloc(view->vcpus, (view->vcpu_count + 1) * sizeof(*view->vcpus));
	vcpu = &view->vcpus[view->vcpu_count++];
	*vcpu = (struct vcpu){ .number = state->number, .tid = state->tid, .root = loaded->root };
	vcpu->cpu = vcpu->tid ? thread_cpu(reader->process, vcpu->tid) : -1;
	if (vcpu->root != PTD_NO_ROOT)
		vcpu->root &= ~4095ULL;
}

/* Fills in vCPUs and roots; the roots that cannot be dumped stand last. */
void vm_roots(struct reader *reader, struct vm_view *view)
{
	view->root_count = view->vcpu_count = 0;
	for (size_t i = 0; i < reader->vm->count; i++) {
		struct ptd_kvm_vcpu state;

		if (reader->vm->files[i].kind != PTD_FILE_VCPU)
			continue;
		state = *vm_vcpu(reader->bpf, &reader->vm->files[i]);
		add_vcpu(reader, view, &state);
		add_roots_of(reader, view, &state.root_mmu);
		add_roots_of(reader, view, &state.guest_mmu);
	}
	add_tdp_roots(reader, view);
	for (size_t i = 0; i < view->root_count; i++)
		if (!view->roots[i].why && (view->roots[i].level < 4 || view->roots[i].level > PTD_MAX_LEVELS))
			view->roots[i].why = "neither 4 nor 5 levels (32-bit or PAE guest)";
	qsort(view->roots, view->root_count, sizeof(*view->roots), by_rank);
	qsort(view->vcpus, view->vcpu_count, sizeof(*view->vcpus), by_number);
	for (size_t i = 0; i < view->root_count; i++)
		if (!view->roots[i].why && view->roots[i].level != view->roots[0].level)
			view->roots[i].why = "other levels than the first root";
}
