/* SPDX-License-Identifier: MIT */
/* The user half of ptdump: what its files share. Any of them may end the program with fail(). */
#ifndef DUMP_H
#define DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>
#include "kvm.h"
#include "ptdump.h"
#include "records.h"

enum exit_code { EXIT_OK = 0, EXIT_VERIFY = 1, EXIT_WRONG_USE = 2, EXIT_PARTIAL = 3 };

struct options {
	bool vm; /* dump the VM of this VMM, not its own address space */
	int vm_file; /* --vm: descriptor of the VM meant, -1 any */
	pid_t pid;
	const char *directory;
	bool stop, verify, quiet, json_progress;
	unsigned retries;
	size_t memory; /* bytes of tables collected before they go to the disk */
};

/* proc.c: the process and what /proc says about it */
struct process {
	pid_t pid;
	uid_t uid;
	char comm[64];
	int directory, pagemap; /* /proc/PID, /proc/PID/pagemap */
};
void process_open(struct process *process, pid_t pid);
char process_state(int directory);
void process_faults(const struct process *process, uint64_t *minor, uint64_t *major);
int thread_cpu(const struct process *process, int tid);
char *process_read(const struct process *process, const char *name, size_t *length);
void require_capabilities(void);
uint64_t frame_of_own_page(const void *page);

/* bpf.c: the loaded BPF object */
struct ptdump_bpf;
struct bpf {
	struct ptdump_bpf *object;
	struct ptd_walk *walk;
	const struct ptd_page *pages;
	const struct ptd_table *tables;
	int walk_program;
	bool rcu;
};
void bpf_open(struct bpf *bpf, bool kvm);
void bpf_call(int program, const char *what);
void bpf_kvm(struct bpf *bpf, const char *program, uint64_t at);
const struct ptd_mm *bpf_locate(struct bpf *bpf, int pagemap, int memfd);
int bpf_peek(struct bpf *bpf, uint64_t address, uint64_t *value);
const struct ptd_page *bpf_peek_page(struct bpf *bpf, uint64_t address);

/* kernel.c: where this kernel keeps page tables */
struct kernel {
	uint64_t direct_map, address_mask, encryption_mask;
	uint64_t vmemmap; /* struct page of frame 0; 0 not found */
	unsigned levels;
	bool typed; /* struct page tells page tables apart */
};
void kernel_explore(struct kernel *kernel, struct bpf *bpf);

/* topology.c: NUMA nodes and which frames they own */
struct range {
	uint64_t start, end;
	int node;
};
struct node {
	int id;
	char *cpus, *distance; /* as in /sys/devices/system/node */
};
struct topology {
	struct node *nodes;
	struct range *ranges; /* disjoint, by start */
	size_t node_count, range_count;
	const char *source;
};
void topology_read(struct topology *topology);
int topology_node(const struct topology *topology, uint64_t frame);
int topology_node_of_cpu(const struct topology *topology, int cpu);
uint64_t highest_address(void);

/* tables.c: the tables of one reading, in memory or, beyond the limit, in the file already */
struct format {
	const char *encoding;
	uint64_t present; /* bits that are all set in a present entry */
	unsigned root_entries;
	bool hints;                    /* x86: entries that are not present may map a page, inverted */
	unsigned page_private, sp_spt; /* KVM's tables: offsets in struct page and kvm_mmu_page, or 0 */
};
extern const struct format format_x86;
struct tables {
	const struct format *format;
	struct pt_table *records;
	struct ptd_page *entries; /* of tables first .. count - 1; of all when collected or mapped */
	size_t count, room, first, limit;
	int32_t last[PTD_MAX_LEVELS + 2]; /* newest table of each level */
	int file;
	bool streamed;
	unsigned levels;
	uint64_t changed, torn, fault, bad_type, dropped, huge_leaves;
};
void tables_init(struct tables *tables, size_t limit, const struct format *format);
void tables_reset(struct tables *tables, int file);
void tables_add(struct tables *tables, const struct ptd_table *table, const struct ptd_page *page, uint64_t clear);
void tables_finish(struct tables *tables);
void tables_check_types(struct tables *tables);
void tables_place(struct tables *tables, const struct topology *topology);
void tables_write(struct tables *tables, int tables_file, int entries_file);

/* walk.c: readings of tables, each between two looks at what moves when they change */
struct signature {
	unsigned count;
	const char *name[12];
	uint64_t value[12];
};
struct vm_view;
struct reading {
	struct tables tables;
	struct signature before, after;
	struct vm_view *vm; /* of a VM: its roots, slots and vCPUs */
	bool quiet, pending; /* pending: a change was under way all the time */
	double seconds;
};
struct reader {
	struct bpf *bpf;
	const struct kernel *kernel;
	const struct process *process;
	const struct options *options;
	int file; /* for entries that do not fit in memory */
	struct format format;
	bool (*read)(struct reader *reader, struct reading *reading); /* false when the address space is gone */
	struct vm *vm;
};
void sign(struct signature *signature, const char *name, uint64_t value);
uint64_t signed_value(const struct signature *signature, const char *name);
void walk_tree(struct reader *reader, struct reading *reading, uint64_t root, unsigned levels, size_t most);
bool read_process(struct reader *reader, struct reading *reading);
unsigned read_best(struct reader *reader, struct reading *readings);
bool process_alive(struct bpf *bpf, const struct process *process);

/* stop.c: SIGSTOP now, SIGCONT whatever happens */
struct stop {
	int pipe;
	pid_t guardian;
	bool stopped, already;
	double since, seconds;
};
void stop_process(struct stop *stop, const struct process *process);
void continue_process(struct stop *stop);

/* verify.c: leaves against /proc/PID/pagemap */
struct verified {
	uint64_t checked, mismatched, hidden;
	char examples[4][160];
};
void verify_tables(struct verified *verified, const struct tables *tables, const struct process *process);

/* output.c: files that appear together or not at all */
void fail(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
void output_begin(const char *directory);
int output_file(const char *name);
void output_write(int file, const void *data, size_t bytes, off_t offset);
void output_commit(void);
double monotonic_seconds(void);

/* json.c: snapshot.json, and what it shares with vm.json */
struct description {
	const struct reader *reader;
	const struct topology *topology;
	struct reading *reading;
	struct stop stop;
	const struct verified *verified; /* NULL: not asked for */
	const char *page_type;
	char *maps;
	size_t maps_length;
	unsigned retries;
	struct timespec started;
};
const char *truth(bool value);
FILE *json_begin(int file, const char *name, const char *format, const struct description *about);
void json_string(FILE *out, const char *text);
void json_origin(FILE *out, const struct description *about);
void json_reading(FILE *out, const struct description *about);
void json_end(FILE *out, const char *name);
void json_write(int file, const struct description *about);

/* ptdump.c, vm.c: what the program does */
void read_together(struct reader *reader, struct description *about, struct verified *verified);
bool say_done(const struct description *about);
void dump_vm(const struct options *options, const struct process *process);

#endif
