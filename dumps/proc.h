/* SPDX-License-Identifier: MIT */
/* The process, what /proc says about it, and the capabilities we hold. */
#ifndef PROC_H
#define PROC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process {
	pid_t pid;
	uid_t uid;
	char comm[64];
	int pidfd; /* of the process that /proc/PID showed when it was opened; -errno of a thread's number */
	int directory, pagemap; /* /proc/PID, /proc/PID/pagemap */
};
void process_open(struct process *process, pid_t pid);
int process_signal(const struct process *process, int number);
char process_state(int directory);
void process_faults(const struct process *process, uint64_t *minor, uint64_t *major);
int thread_cpu(const struct process *process, int tid);
char *process_read(const struct process *process, const char *name, size_t *length);
void require_capabilities(void);
uint64_t frame_of_own_page(const void *page);

#endif
