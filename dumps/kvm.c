/* SPDX-License-Identifier: MIT */
/*
 * The VM behind a VMM: its kvm-vm and kvm-vcpu descriptors, copied with pidfd_getfd, so that nothing is freed under
 * us, and what struct kvm says. Which VMM it is does not matter.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kvm.h"
#include "output.h"
#include "ptdump.skel.h"

#define MOST_SLOTS 65536 /* KVM_MEM_SLOTS_NUM is below it */

/* What the name of /proc/PID/fd/NUMBER says (kvm_create_vm, create_vcpu_fd). */
static enum ptd_kvm_file kind_of(int directory, const char *number)
{
	char name[64];
	ssize_t length = readlinkat(directory, number, name, sizeof(name) - 1);

	name[length < 0 ? 0 : length] = 0;
	if (!strcmp(name, "anon_inode:kvm-vm"))
		return PTD_FILE_VM;
	return strncmp(name, "anon_inode:kvm-vcpu", 19) ? PTD_FILE_OTHER : PTD_FILE_VCPU;
}

static void add_file(struct vm *vm, int number, enum ptd_kvm_file kind, const struct process *process)
{
	int own = syscall(SYS_pidfd_getfd, process->pidfd, number, 0);

	if (own < 0 && errno == EBADF)
		return;
	if (own < 0 && errno == ESRCH)
		fail(EXIT_PARTIAL, "PID %d: ended while its VM was looked for", process->pid);
	if (own < 0 && errno == EPERM)
		fail(EXIT_WRONG_USE, "PID %d: not permitted to copy its descriptor %d of a VM: needs CAP_SYS_PTRACE, and "
		     "kernel.yama.ptrace_scope below 3", process->pid, number);
	if (own < 0)
		fail(EXIT_WRONG_USE, "PID %d: cannot copy its descriptor %d of a VM: %s", process->pid, number,
		     strerror(errno));
	vm->files = realloc(vm->files, (vm->count + 1) * sizeof(*vm->files));
	vm->files[vm->count++] = (struct vm_file){ .theirs = number, .own = own, .kind = kind };
}

void vm_find(struct vm *vm, const struct process *process)
{
	int fd = openat(process->directory, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *files = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!files && (errno == ESRCH || errno == ENOENT))
		fail(EXIT_PARTIAL, "PID %d: ended while its VM was looked for", process->pid);
	if (process->pidfd < 0 || !files)
		fail(EXIT_WRONG_USE, "PID %d: cannot list its files: %s", process->pid,
		     strerror(process->pidfd < 0 ? -process->pidfd : errno));
	while ((entry = readdir(files))) {
		enum ptd_kvm_file kind = kind_of(fd, entry->d_name);

		if (kind != PTD_FILE_OTHER)
			add_file(vm, atoi(entry->d_name), kind, process);
	}
	closedir(files);
	if (!vm->count)
		fail(EXIT_WRONG_USE, "PID %d (%s): not a VMM: it has no kvm-vm or kvm-vcpu file; a guest that QEMU "
		     "emulates without KVM has no nested tables: dump the process", process->pid, process->comm);
}

static void identify(struct vm *vm, struct bpf *bpf)
{
	for (size_t i = 0; i < vm->count; i++) {
		struct vm_file *file = &vm->files[i];

		bpf->object->bss->kvm_fd = file->own;
		bpf->object->bss->kvm_object.kind = file->kind;
		bpf_kvm(bpf, "kvm_file", 0);
		file->kind = bpf->object->bss->kvm_object.kind;
		file->object = bpf->object->bss->kvm_object.object;
		file->kvm = bpf->object->bss->kvm_object.kvm;
		vm->checked = bpf->object->bss->kvm_object.checked;
	}
}

static void refuse_choice(const struct vm *vm, const struct process *process, int wanted)
{
	char list[256] = "";

	for (size_t i = 0; i < vm->count; i++) {
		size_t used = strlen(list);

		if (vm->files[i].kind == PTD_FILE_VM && used < sizeof(list) - 16)
			snprintf(list + used, sizeof(list) - used, "%s%d", used ? ", " : "", vm->files[i].theirs);
	}
	if (!*list)
		fail(EXIT_WRONG_USE, "PID %d: not a VMM: its files bear KVM's names, but are not KVM's", process->pid);
	if (wanted >= 0)
		fail(EXIT_WRONG_USE, "PID %d: --vm %d is not a descriptor of a VM; they are: %s", process->pid, wanted, list);
	fail(EXIT_WRONG_USE, "PID %d: holds several VMs; choose one with --vm FD: %s", process->pid, list);
}

static int by_object(const void *a, const void *b)
{
	const struct vm_file *left = a, *right = b;

	return left->object < right->object ? -1 : left->object > right->object;
}

/* Keep the files of one VM, each object once. */
static void keep(struct vm *vm)
{
	size_t kept = 0;

	qsort(vm->files, vm->count, sizeof(*vm->files), by_object);
	for (size_t i = 0; i < vm->count; i++) {
		struct vm_file *file = &vm->files[i];

		if (file->kind == PTD_FILE_OTHER || file->kvm != vm->kvm ||
		    (kept && vm->files[kept - 1].object == file->object))
			close(file->own);
		else
			vm->files[kept++] = *file;
	}
	vm->count = kept;
}

static bool parameter(const char *path)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	char value = 'N';
	ssize_t got = file < 0 ? 0 : read(file, &value, 1);

	close(file);
	return got == 1 && (value == 'Y' || value == '1');
}

static void refuse_what_cannot_be_read(struct vm *vm, struct bpf *bpf, const struct process *process)
{
	const struct ptd_kvm *state = vm_state(vm, bpf);
	const char *secret = vm_confidential(state);

	if (state->mm != bpf_locate(bpf, process->pagemap, -1)->mm)
		fail(EXIT_WRONG_USE, "PID %d: holds a VM of another process; dump PID %d, which made it", process->pid,
		     state->owner);
	if (state->dead || state->bugged)
		fail(EXIT_WRONG_USE, "PID %d: its VM is shutting down", process->pid);
	if (secret && !strcmp(secret, "TDX"))
		fail(EXIT_WRONG_USE, "PID %d: a TDX guest: the TDX module keeps the tables of its private memory, "
		     "where no host can read them", process->pid);
	if (!vm->layout.roles || !vm->layout.gfn_tree)
		fail(EXIT_WRONG_USE, "this kernel's KVM is too old: no %s",
		     vm->layout.roles ? "kvm_memslots.gfn_tree (Linux 5.17)" : "kvm_mmu.root_role (Linux 5.19)");
}

/* Which of the VMs found; `wanted` is a descriptor of the VMM, or -1. */
void vm_choose(struct vm *vm, struct bpf *bpf, const struct process *process, int wanted)
{
	bool amd = parameter("/sys/module/kvm_amd/parameters/npt");

	bpf->object->bss->kvm_is_amd = amd;
	vm->nested_paging = amd ? "npt" : parameter("/sys/module/kvm_intel/parameters/ept") ? "ept" : "none";
	bpf_kvm(bpf, "kvm_lay_out", 0);
	vm->layout = bpf->object->bss->kvm_layout;
	identify(vm, bpf);
	for (size_t i = 0; i < vm->count; i++) {
		const struct vm_file *file = &vm->files[i];

		if (file->kind == PTD_FILE_OTHER || (wanted >= 0 && file->theirs != wanted))
			continue;
		if (vm->kvm && vm->kvm != file->kvm)
			refuse_choice(vm, process, wanted);
		vm->kvm = file->kvm;
	}
	if (!vm->kvm)
		refuse_choice(vm, process, wanted);
	keep(vm);
	refuse_what_cannot_be_read(vm, bpf, process);
}

const struct ptd_kvm *vm_state(struct vm *vm, struct bpf *bpf)
{
	bpf_kvm(bpf, "kvm_read", vm->kvm);
	return &bpf->object->bss->kvm_state;
}

const struct ptd_kvm_vcpu *vm_vcpu(struct bpf *bpf, const struct vm_file *file)
{
	bpf_kvm(bpf, "kvm_read_vcpu", file->object);
	return &bpf->object->bss->kvm_vcpu_state;
}

/* KVM_X86_*_VM of asm/kvm.h; NULL: the host can read all of it. */
const char *vm_confidential(const struct ptd_kvm *state)
{
	static const char *const types[] = { NULL, NULL, "SEV", "SEV-ES", "SEV-SNP", "TDX" };

	if (state->vm_type >= 2 && state->vm_type < 6)
		return types[state->vm_type];
	return state->sev_es ? "SEV-ES" : state->sev ? "SEV" : NULL;
}

/* In order of addresses: all to the left of `node`, it, all to its right. */
static void add_slots(struct vm_view *view, struct bpf *bpf, uint64_t node, unsigned space, unsigned depth)
{
	struct ptd_kvm_slot slot;

	if (!node || depth > 64 || view->slot_count >= MOST_SLOTS)
		return;
	bpf_kvm(bpf, "kvm_read_slot", node);
	slot = bpf->object->bss->kvm_slot;
	add_slots(view, bpf, slot.left, space, depth + 1);
	if (slot.pages) {
		view->slots = realloc(view->slots, (view->slot_count + 1) * sizeof(*view->slots));
		view->slots[view->slot_count++] =
			(struct slot){ slot.frame * 4096, slot.pages * 4096, slot.hva, slot.flags, space };
	}
	add_slots(view, bpf, slot.right, space, depth + 1);
}

void vm_slots(struct vm *vm, struct bpf *bpf, struct vm_view *view)
{
	view->slot_count = 0;
	for (unsigned space = 0; space < vm->layout.spaces && space < PTD_KVM_SPACES; space++) {
		bpf->object->bss->kvm_index = view->state.slot_index[space];
		add_slots(view, bpf, view->state.first_slot[space], space, 0);
	}
}
