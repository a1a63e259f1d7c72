/* SPDX-License-Identifier: MIT */
/* Loads the BPF object and calls its programs. RLIMIT_MEMLOCK is left alone: Linux >= 5.11 charges the cgroup,
 * and libbpf raises it only on older kernels. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "bpf.h"
#include "kvm_shared.h"
#include "output.h"
#include "ptdump.skel.h"

#define LOG "PTDUMP_BPF_LOG" /* in the environment: what libbpf and the kernel's verifier say */

#define FILES 48

static int say_if_asked(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	return getenv(LOG) ? vfprintf(stderr, format, arguments) : 0;
}

/* libbpf takes what it cannot open for what the kernel does not have: its reason would be another one. */
static void require_files(void)
{
	int open_files[FILES], count = 0;

	while (count < FILES && (open_files[count] = dup(STDERR_FILENO)) >= 0)
		count++;
	int error = count < FILES ? errno : 0;
	for (int i = 0; i < count; i++)
		close(open_files[i]);
	if (error == EMFILE || error == ENFILE)
		fail(EXIT_WRONG_USE, "%s: the BPF programs take up to %d more, %d are left (ulimit -n)",
		     strerror(error), FILES, count);
}

static bool kernel_has(const struct btf *btf, const char *name, unsigned kind)
{
	return btf && btf__find_by_name_kind(btf, name, kind) > 0;
}

static bool has_member(const struct btf *btf, const char *structure, const char *name)
{
	int id = btf ? btf__find_by_name_kind(btf, structure, BTF_KIND_STRUCT) : -1;
	const struct btf_type *type = id < 0 ? NULL : btf__type_by_id(btf, id);

	for (int i = 0; type && i < btf_vlen(type); i++)
		if (!strcmp(btf__name_by_offset(btf, btf_members(type)[i].name_off), name))
			return true;
	return false;
}

/* KVM's types, in the kernel's BTF or in that of the module. */
static void require_kvm_types(const struct btf *btf)
{
	if (!kernel_has(btf, "kvm_mmu_page", BTF_KIND_STRUCT) && access("/sys/kernel/btf/kvm", R_OK))
		fail(EXIT_WRONG_USE, "no BTF of KVM (/sys/kernel/btf/kvm): this kernel was built without "
		     "CONFIG_DEBUG_INFO_BTF_MODULES");
}

static void *map_array(const struct bpf_map *map)
{
	size_t bytes = (size_t)bpf_map__max_entries(map) * ((bpf_map__value_size(map) + 7) & ~7U);
	void *at = mmap(NULL, (bytes + 4095) & ~4095UL, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (at == MAP_FAILED)
		fail(EXIT_WRONG_USE, "cannot map a BPF array: %s", strerror(errno));
	return at;
}

void bpf_open(struct bpf *bpf, bool kvm)
{
	struct bpf_program *program;
	struct btf *btf;
	int error;

	require_files();
	libbpf_set_print(say_if_asked);
	btf = btf__load_vmlinux_btf();
	bpf->object = ptdump_bpf__open();
	if (!bpf->object)
		fail(EXIT_WRONG_USE, "cannot open the BPF object: %s", strerror(errno));
	bpf->rcu = kernel_has(btf, "bpf_rcu_read_lock", BTF_KIND_FUNC);
	bpf->owned = has_member(btf, "vm_area_struct", "master_pgd_node");
	if (kvm)
		require_kvm_types(btf);
	btf__free(btf);
	bpf_object__for_each_program(program, bpf->object->obj)
		if (!strncmp(bpf_program__name(program), "kvm_", 4))
			bpf_program__set_autoload(program, kvm);
	bpf_program__set_autoload(bpf->object->progs.walk_rcu, bpf->rcu);
	bpf_program__set_autoload(bpf->object->progs.walk_plain, !bpf->rcu);
	bpf_program__set_autoload(bpf->object->progs.owners, bpf->owned);
	error = ptdump_bpf__load(bpf->object);
	if (error)
		fail(EXIT_WRONG_USE, "the kernel refuses the BPF programs: %s; " LOG "=1 in the environment shows why%s",
		     strerror(-error), kvm ? "" : "; `ptanalyze dump process --no-bpf` reads /proc/PID/pagemap alone");
	bpf_call(bpf_program__fd(bpf->object->progs.read_symbols), "read_symbols");
	if (kvm)
		bpf_kvm(bpf, "kvm_symbols", 0);
	bpf->walk = map_array(bpf->object->maps.walks);
	bpf->pages = map_array(bpf->object->maps.pages);
	bpf->tables = map_array(bpf->object->maps.tables);
	bpf->count = map_array(bpf->object->maps.counts);
	bpf->count_program = bpf_program__fd(bpf->object->progs.count_tables);
	bpf->walk_program = bpf_program__fd(bpf->rcu ? bpf->object->progs.walk_rcu : bpf->object->progs.walk_plain);
}

void bpf_call(int program, const char *what)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);
	int error = bpf_prog_test_run_opts(program, &options);

	if (error || (int)options.retval)
		fail(EXIT_WRONG_USE, "BPF program %s failed: %s", what, error ? strerror(-error) : "no address space");
}

const struct ptd_mm *bpf_locate(struct bpf *bpf, int pagemap, int memfd)
{
	bpf->object->data->pagemap_fd = pagemap;
	bpf->object->data->memfd = memfd;
	bpf_call(bpf_program__fd(bpf->object->progs.locate), "locate");
	return &bpf->object->bss->found;
}

const struct ptd_mm *bpf_try_locate(struct bpf *bpf, int pagemap)
{
	LIBBPF_OPTS(bpf_test_run_opts, options);

	bpf->object->data->pagemap_fd = pagemap;
	bpf->object->data->memfd = -1;
	if (bpf_prog_test_run_opts(bpf_program__fd(bpf->object->progs.locate), &options) || (int)options.retval)
		return NULL;
	return &bpf->object->bss->found;
}

static int open_owners(struct bpf *bpf, int pid, struct bpf_link **link)
{
	union bpf_iter_link_info about = { .task.tid = pid };
	struct bpf_iter_attach_opts options; /* LIBBPF_OPTS leaves its padding as it was, which libbpf refuses */

	memset(&options, 0, sizeof(options));
	options.sz = sizeof(options);
	options.link_info = &about;
	options.link_info_len = sizeof(about);
	*link = bpf_program__attach_iter(bpf->object->progs.owners, &options);
	return *link ? bpf_iter_create(bpf_link__fd(*link)) : -1;
}

size_t bpf_owners(struct bpf *bpf, int pid, struct ptd_owner **owners)
{
	struct bpf_link *link;
	size_t bytes = 0, room = 1 << 16;
	ssize_t got = 0;
	int file;

	if (!bpf->owned)
		return 0;
	file = open_owners(bpf, pid, &link);
	if (file < 0)
		fail(EXIT_WRONG_USE, "cannot list the areas of PID %d: %s", pid, strerror(errno));
	free(*owners);
	*owners = malloc(room);
	while (*owners && (got = read(file, (char *)*owners + bytes, room - bytes)) > 0) {
		bytes += got;
		if (bytes == room)
			*owners = realloc(*owners, room *= 2);
	}
	if (!*owners || got < 0)
		fail(EXIT_WRONG_USE, "cannot read the areas of PID %d: %s", pid, strerror(errno));
	close(file);
	bpf_link__destroy(link);
	return bytes / sizeof(**owners);
}

int bpf_peek(struct bpf *bpf, uint64_t address, uint64_t *value)
{
	bpf->object->bss->peeked.address = address;
	bpf_call(bpf_program__fd(bpf->object->progs.peek), "peek");
	*value = bpf->object->bss->peeked.value;
	return bpf->object->bss->peeked.error;
}

const struct ptd_page *bpf_peek_page(struct bpf *bpf, uint64_t address)
{
	bpf->object->bss->peeked.address = address;
	bpf_call(bpf_program__fd(bpf->object->progs.peek_page), "peek_page");
	return bpf->object->bss->peeked.error ? NULL : &bpf->object->bss->peeked_page;
}

/* Calls the KVM program of that name about the kernel object at `at`; the result is in the object's .bss. */
void bpf_kvm(struct bpf *bpf, const char *program, uint64_t at)
{
	bpf->object->bss->kvm_at = at;
	bpf_call(bpf_program__fd(bpf_object__find_program_by_name(bpf->object->obj, program)), program);
}
