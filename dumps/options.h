/* SPDX-License-Identifier: MIT */
/* What the command line asks for. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct options {
	bool vm; /* dump the VM of this VMM, not its own address space */
	bool vcpus; /* print its slots and its vCPUs' control registers instead */
	int vm_file; /* --vm: descriptor of the VM meant, -1 any */
	pid_t pid;
	const char *directory;
	bool stop, verify, quiet, json_progress;
	bool pagemap; /* without BPF */
	unsigned retries;
	unsigned long max_stop; /* milliseconds after which a stopped process is continued, 0 without limit */
	size_t memory; /* bytes of tables collected before they go to the disk */
};

#endif
