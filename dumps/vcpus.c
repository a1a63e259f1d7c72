/* SPDX-License-Identifier: MIT */
/* `ptdump vcpus`: where a VMM has its guest's memory, and the guest's control registers as KVM has them. No table is read. */
#include <stdio.h>
#include "json.h"
#include "kvm.h"
#include "output.h"
#include "privileges.h"
#include "vcpus.h"

typedef unsigned long long ull;

static void show_memory(struct vm *vm, struct bpf *bpf)
{
	struct vm_view view = { .state = *vm_state(vm, bpf) };
	const char *secret = vm_confidential(&view.state);

	vm_slots(vm, bpf, &view);
	printf("{\"confidential\": \"%s\", \"nested_paging\": \"%s\", \"slots\": [", secret ? secret : "", vm->nested_paging);
	for (size_t i = 0; i < view.slot_count; i++) {
		const struct slot *slot = &view.slots[i];

		printf("%s{\"gpa\": %llu, \"bytes\": %llu, \"hva\": %llu, \"flags\": %u, \"space\": %u}", i ? ", " : "",
		       (ull)slot->address, (ull)slot->bytes, (ull)slot->hva, slot->flags, slot->space);
	}
	puts("]}");
}

static void show_registers(const struct vm *vm, struct bpf *bpf)
{
	const char *separator = "";

	printf("{\"vcpus\": [");
	for (size_t i = 0; i < vm->count; i++) {
		struct ptd_kvm_vcpu vcpu;

		if (vm->files[i].kind != PTD_FILE_VCPU)
			continue;
		vcpu = *vm_vcpu(bpf, &vm->files[i]);
		printf("%s{\"vcpu\": %d, \"tid\": %d, \"cr0\": %llu, \"cr3\": %llu, \"cr4\": %llu, \"efer\": %llu}", separator,
		       vcpu.number, vcpu.tid, vcpu.cr0, vcpu.cr3, vcpu.cr4, vcpu.efer);
		separator = ", ";
	}
	puts("]}");
}

void show_vcpus(const struct options *options, const struct process *process)
{
	struct vm vm = { 0 };
	struct bpf bpf = { 0 };

	vm_find(&vm, process);
	bpf_open(&bpf, true);
	vm_choose(&vm, &bpf, process, options->vm_file);
	keep_capabilities(CAN(CAP_BPF));
	show_memory(&vm, &bpf);
	if (!process_alive(process))
		fail(EXIT_PARTIAL, "PID %d: ended while its vCPUs were looked at", process->pid);
	show_registers(&vm, &bpf);
	if (fflush(stdout) || ferror(stdout))
		fail(EXIT_WRONG_USE, "cannot write to standard output");
}
