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
#include "ptdump.h"
#include "records.h"

enum exit_code { EXIT_OK = 0, EXIT_VERIFY = 1, EXIT_WRONG_USE = 2, EXIT_PARTIAL = 3 };

struct options {
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
struct signature {
	uint64_t minflt, majflt, lock_seq, pgtables_bytes;
};
void process_open(struct process *process, pid_t pid);
char process_state(int directory);
void process_faults(const struct process *process, struct signature *signature);
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
void bpf_open(struct bpf *bpf);
void bpf_call(int program, const char *what);
const struct ptd_mm *bpf_locate(struct bpf *bpf, int pagemap, int memfd);
int bpf_peek(struct bpf *bpf, uint64_t address, uint64_t *value);
const struct ptd_page *bpf_peek_page(struct bpf *bpf, uint64_t address);

/* kernel.c: where this kernel keeps page tables */
struct kernel {
	uint64_t direct_map, address_mask, encryption_mask, vmemmap;
	unsigned levels;
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
uint64_t highest_address(void);

/* tables.c: the tables of one reading, in memory or, beyond the limit, in the file already */
struct tables {
	struct pt_table *records;
	struct ptd_page *entries; /* of tables first .. count - 1; of all when collected or mapped */
	size_t count, room, first, limit;
	int32_t last[PTD_MAX_LEVELS + 2]; /* newest table of each level */
	int file;
	bool streamed;
	unsigned levels;
	uint64_t changed, torn, fault, bad_type, dropped, huge_leaves;
};
void tables_init(struct tables *tables, size_t limit);
void tables_reset(struct tables *tables, unsigned levels, int file);
void tables_add(struct tables *tables, const struct ptd_table *table, const struct ptd_page *page, uint64_t clear);
void tables_finish(struct tables *tables);
void tables_check_types(struct tables *tables);
void tables_place(struct tables *tables, const struct topology *topology);
void tables_write(struct tables *tables, int tables_file, int entries_file);

/* walk.c: one reading of a process's tables; false when its address space is gone */
struct reading {
	struct tables tables;
	struct signature before, after;
	bool quiet, has_lock_seq;
	double seconds;
};
bool walk_process(struct reading *reading, struct bpf *bpf, const struct kernel *kernel,
		  const struct process *process, const struct options *options, int file);
bool process_alive(struct bpf *bpf, const struct process *process);
uint64_t reading_trouble(const struct reading *reading);

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

/* json.c: snapshot.json */
struct description {
	const struct options *options;
	const struct process *process;
	const struct kernel *kernel;
	const struct topology *topology;
	struct reading *reading;
	struct stop stop;
	const struct verified *verified; /* NULL: not asked for */
	const char *page_type;
	unsigned retries;
	struct timespec started;
};
void json_write(int file, const struct description *description);

#endif
