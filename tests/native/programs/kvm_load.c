/* Loads ptdump's KVM programs as if the kernel had the types of the BTF file that is given. */
#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "kvm_shared.h"
#include "shared.h"
#include "ptdump.skel.h"

int main(int count, char **arguments)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .btf_custom_path = count > 1 ? arguments[1] : NULL);
	struct ptdump_bpf *object = ptdump_bpf__open_opts(&options);
	struct bpf_program *program;

	if (!object)
		return 2;
	bpf_object__for_each_program(program, object->obj)
		bpf_program__set_autoload(program, !strncmp(bpf_program__name(program), "kvm_", 4));
	return ptdump_bpf__load(object) ? 1 : 0;
}
