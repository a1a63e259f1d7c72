/* SPDX-License-Identifier: MIT */
/* `ptdump vm`: the tables that translate a VM's memory, read like a process's, from its roots in KVM. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "json.h"
#include "kvm.h"
#include "output.h"
#include "roots.h"
#include "dump_common.h"
#include "vm.h"
#include "vm_json.h"

#define TRIES 50  /* to find a root, 0.1 s */
#define SHARED 16 /* how often a shadow table may on average be reached; a hostile guest could make it 512^3 */

static void sign_vm(struct signature *signature, struct reader *reader, struct vm_view *view)
{
	struct vm *vm = reader->vm;
	struct ptd_kvm *state = &view->state;
	uint64_t faults = 0;

	*state = *vm_state(vm, reader->bpf);
	for (size_t i = 0; i < vm->count; i++)
		if (vm->files[i].kind == PTD_FILE_VCPU)
			faults += vm_vcpu(reader->bpf, &vm->files[i])->faults;
	memset(signature, 0, sizeof(*signature));
	sign(signature, "mmu_invalidate_seq", state->invalidate_seq);
	sign(signature, "pf_fixed", faults);
	sign(signature, "slots_generation", state->generation[0] + state->generation[1]);
	if (state->shadow_tables != ~0ULL)
		sign(signature, "n_used_mmu_pages", state->shadow_tables);
	if (state->tdp_tables != ~0ULL)
		sign(signature, "tdp_mmu_pages", state->tdp_tables);
	if (state->pages_4k == ~0ULL)
		return;
	sign(signature, "pages_4k", state->pages_4k);
	sign(signature, "pages_2m", state->pages_2m);
	sign(signature, "pages_1g", state->pages_1g);
}

static void refuse_no_root(const struct reader *reader, const struct vm_view *view)
{
	if (view->root_count)
		fail(EXIT_WRONG_USE, "PID %d: none of the VM's %zu roots can be dumped: %s", reader->process->pid,
		     view->root_count, view->roots[0].why);
	fail(EXIT_WRONG_USE, "PID %d: its VM has no tables now: no vCPU has run since it was made, reset or reconfigured; "
	     "try again when the guest runs", reader->process->pid);
}

/* A VM is for moments without roots when its slots change. */
static bool find_roots(struct reader *reader, struct reading *reading)
{
	sign_vm(&reading->before, reader, reading->vm);
	vm_roots(reader, reading->vm);
	if (reading->vm->root_count && !reading->vm->roots[0].why)
		return true;
	usleep(2000);
	return false;
}

static bool read_vm(struct reader *reader, struct reading *reading)
{
	struct vm_view *view = reading->vm;

	for (int tries = 0; !find_roots(reader, reading); tries++) {
		if (!process_alive(reader->process))
			return false;
		if (tries == TRIES)
			refuse_no_root(reader, view);
	}
	for (size_t i = 0; i < view->root_count && !view->roots[i].why; i++) {
		bool shadow = !strcmp(view->roots[i].kind, "shadow");
		size_t counted = view->state.shadow_tables == ~0ULL ? 0 : view->state.shadow_tables;
		size_t most = reading->tables.count + SHARED * (counted + 4096);

		view->roots[i].table = reading->tables.count;
		walk_tree(reader, &reading->tables, view->roots[i].address, view->roots[i].level, shadow ? most : SIZE_MAX);
	}
	vm_slots(reader->vm, reader->bpf, view);
	sign_vm(&reading->after, reader, view);
	reading->pending = view->state.invalidate_in_progress;
	return process_alive(reader->process);
}

static struct format format_of(const struct vm *vm, const struct kernel *kernel)
{
	struct format format = { .encoding = "kvm", .present = PTD_KVM_PRESENT, .root_entries = PTD_ENTRIES };

	if (kernel->vmemmap && vm->layout.page_private) {
		format.page_private = vm->layout.page_private;
		format.sp_spt = vm->layout.sp_spt;
	}
	return format;
}

static void summarize(const struct description *about)
{
	const struct reading *reading = about->reading;
	const struct vm_view *view = reading->vm;
	double bytes = (double)reading->tables.count * PT_TABLE_BYTES;
	const char *secret = vm_confidential(&view->state);

	if (secret)
		say(stderr, "ptdump: a confidential guest (%s): these are its nested tables; its memory and page tables are "
		    "encrypted and cannot be read", secret);
	if (say_done(about))
		return;
	say(stdout, "%zu tables below %zu roots (%s) of the VM of PID %d (%s) read in %.1f ms, %.2f GB/s%s",
	    reading->tables.count, view->root_count, view->roots[0].kind, about->reader->process->pid,
	    about->reader->process->comm, reading->seconds * 1e3, bytes / reading->seconds / 1e9,
	    reading->quiet ? "" : "; they changed meanwhile (--stop holds the VM still)");
}

/* Writes ept.tables, ept.entries, maps and vm.json. */
void dump_vm(const struct options *options, const struct process *process)
{
	struct vm vm = { 0 };
	struct vm_view views[2] = { 0 };
	struct reading readings[2] = { { .vm = &views[0] }, { .vm = &views[1] } };
	struct bpf bpf = { 0 };
	struct kernel kernel = { 0 };
	struct topology topology;
	struct reader reader = { &bpf, &kernel, process, options, .vm = &vm, .read = read_vm };
	struct description about = { .reader = &reader, .topology = &topology, .reading = readings };

	vm_find(&vm, process);
	output_begin(options->directory);
	reader.file = output_file("ept.entries");
	int tables = output_file("ept.tables"), maps = output_file("maps"), json = output_file("vm.json");
	topology_read(&topology);
	bpf_open(&bpf, true);
	vm_choose(&vm, &bpf, process, options->vm_file);
	kernel_explore(&kernel, &bpf);
	reader.format = format_of(&vm, &kernel);
	about.page_type = reader.format.page_private ? "every table checked as it was read (kvm_mmu_page.spt)" :
						       "unknown: no way to a table's kvm_mmu_page";
	dump_quiescent(&reader, &about, NULL);
	tables_place(&about.reading->tables, &topology);
	tables_write(&about.reading->tables, tables, reader.file);
	output_write(maps, about.reading->maps, about.reading->maps_length, 0);
	vm_json_write(json, &about);
	output_commit();
	summarize(&about);
}
