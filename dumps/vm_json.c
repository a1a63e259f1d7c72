/* SPDX-License-Identifier: MIT */
/* vm.json, as analyzer/ptanalyze/formats/snapshot.py reads it. */
#include <stdio.h>
#include <string.h>
#include "kvm.h"
#include "vm_json.h"

typedef unsigned long long ull;

static const char *const parameters[] = {
	"kvm/parameters/tdp_mmu",   "kvm/parameters/nx_huge_pages",	 "kvm/parameters/mmio_caching",
	"kvm_amd/parameters/npt",   "kvm_intel/parameters/ept",		 "kvm_intel/parameters/eptad",
	"kvm_amd/parameters/nested", "kvm_intel/parameters/nested",
};

static void put_number(FILE *out, const char *name, bool known, long long value)
{
	if (known)
		fprintf(out, ", \"%s\": %lld", name, value);
	else
		fprintf(out, ", \"%s\": null", name);
}

static void put_slots(FILE *out, const struct vm_view *view)
{
	fputs(" \"slots\": [", out);
	for (size_t i = 0; i < view->slot_count; i++) {
		const struct slot *slot = &view->slots[i];

		fprintf(out, "%s\n  {\"gpa\": %llu, \"bytes\": %llu, \"hva\": %llu, \"flags\": %u, \"space\": %u}",
			i ? "," : "", (ull)slot->address, (ull)slot->bytes, (ull)slot->hva, slot->flags, slot->space);
	}
	fputs("\n ],\n", out);
}

static void put_vcpus(FILE *out, const struct vm_view *view, const struct topology *topology)
{
	fputs(" \"vcpus\": [", out);
	for (size_t i = 0; i < view->vcpu_count; i++) {
		const struct vcpu *vcpu = &view->vcpus[i];
		int node = topology_node_of_cpu(topology, vcpu->cpu);

		fprintf(out, "%s\n  {\"tid\": %d", i ? "," : "", vcpu->tid);
		put_number(out, "cpu", vcpu->cpu >= 0, vcpu->cpu);
		put_number(out, "node", node >= 0, node);
		put_number(out, "root", vcpu->root != PTD_NO_ROOT, vcpu->root / 4096);
		fputc('}', out);
	}
	fputs("\n ],\n", out);
}

static void put_roots(FILE *out, const struct vm_view *view)
{
	fputs(" \"roots\": [", out);
	for (size_t i = 0; i < view->root_count; i++) {
		const struct root *root = &view->roots[i];

		fprintf(out, "%s\n  {\"frame\": %llu, \"kind\": \"%s\"", i ? "," : "", (ull)root->address / 4096, root->kind);
		put_number(out, "table", root->table >= 0, root->table);
		put_number(out, "levels", true, root->level);
		fprintf(out, ", \"smm\": %s, \"why\": \"%s\"}", truth(root->smm), root->why ? root->why : "");
	}
	fputs("\n ],\n", out);
}

static void put_parameters(FILE *out)
{
	const char *separator = "";

	fputs("  \"parameters\": {", out);
	for (size_t i = 0; i < sizeof(parameters) / sizeof(*parameters); i++) {
		char path[96], value[32] = "", name[32];
		FILE *file;

		snprintf(path, sizeof(path), "/sys/module/%s", parameters[i]);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(value, sizeof(value), file))
			value[strcspn(value, "\n")] = 0;
		fclose(file);
		snprintf(name, sizeof(name), "%.*s.%s", (int)strcspn(parameters[i], "/"), parameters[i],
			 strrchr(parameters[i], '/') + 1);
		fprintf(out, "%s\"%s\": ", separator, name);
		json_string(out, value);
		separator = ", ";
	}
	fputs("},\n", out);
}

static bool logs_dirty_pages(const struct vm_view *view)
{
	bool logs = false;

	for (size_t i = 0; i < view->slot_count; i++)
		logs |= view->slots[i].flags & 1; /* KVM_MEM_LOG_DIRTY_PAGES */
	return logs;
}

void vm_json_write(int file, const struct description *about)
{
	const struct vm_view *view = about->reading->vm;
	const struct vm *vm = about->reader->vm;
	const char *secret = vm_confidential(&view->state);
	FILE *out = json_begin(file, "vm.json", "ptanalyze-vm", about);

	put_slots(out, view);
	put_vcpus(out, view, about->topology);
	put_roots(out, view);
	fputs(" \"facts\": {\n", out);
	json_origin(out, about);
	put_parameters(out);
	fprintf(out, "  \"nested_paging\": \"%s\",\n  \"files_checked\": %s,\n", vm->nested_paging, truth(vm->checked));
	fprintf(out, "  \"dirty_logging\": %s,\n  \"confidential\": ", truth(logs_dirty_pages(view)));
	json_string(out, secret ? secret : "");
	fputs(",\n", out);
	json_reading(out, about);
	json_end(out, "vm.json");
}
