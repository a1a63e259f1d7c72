/* SPDX-License-Identifier: MIT */
/* The process, and what /proc says about it. */
#ifndef PROC_H
#define PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The last is the first once more: both show the same memory if those between them do. */
enum process_file { PROCESS_PAGEMAP, PROCESS_MAPS, PROCESS_SMAPS, PROCESS_PAGEMAP_AGAIN, PROCESS_FILES };
struct process {
	pid_t pid, tid; /* tid: a thread that has its memory: the main one, unless that has ended */
	uid_t uid;
	char comm[64];
	char huge_pages[16]; /* transparent ones it may have: "always", "madvise", "never", "forbidden"; "" unknown */
	int pidfd; /* of the process that /proc/PID showed when it was opened; -errno of a thread's number */
	int directory, pagemap, files[PROCESS_FILES]; /* /proc/TID, /proc/PID/pagemap, and all that is read of it */
};
void process_open(struct process *process, pid_t pid);
/* The main thread, or another where that has ended: /proc/PID shows no memory then. */
pid_t living_thread(pid_t pid);
int process_signal(const struct process *process, int number);
bool process_alive(const struct process *process);
bool process_readable(const struct process *process);
char process_state(int directory);
/* Whether it is in a terminal's foreground job. */
bool process_has_terminal(const struct process *process);
void process_faults(const struct process *process, uint64_t *minor, uint64_t *major);
uint64_t process_table_bytes(const struct process *process);
double process_began(const struct process *process);
int thread_cpu(const struct process *process, int tid);
/* A file of /proc/PID/task/TID, to be freed; NULL when the thread is gone. */
char *thread_text(const struct process *process, int tid, const char *name);
/* The last number of NSpid in such a status; 0 without one. */
int number_in_own_namespace(const char *status);
char *process_read(const struct process *process, enum process_file which, size_t *length);
uint64_t frame_of_own_page(const void *page);
/* An area as maps and smaps list it; of smaps alone: KiB, and its VmFlags (NULL: none), which are part of the text. */
struct mapping {
	uint64_t start, end, inode, resident, huge;
	char rights[5], name[64]; /* the name up to a space */
	const char *flags;
};
/* Reads the area that `text` begins with, and moves `text` behind it; false at the end, and where it is not understood. */
bool next_mapping(const char **text, struct mapping *area);
bool mapping_has(const struct mapping *area, const char *flag);

#endif
