/* SPDX-License-Identifier: MIT */
/* "default", "bind:3", "interleave:f": a NUMA memory policy and its nodes as a hexadecimal mask. */
#ifndef POLICY_H
#define POLICY_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct policy {
	int mode;            /* MPOL_DEFAULT 0, MPOL_BIND 2, MPOL_INTERLEAVE 3 (uapi/linux/mempolicy.h) */
	unsigned long nodes;
};

static inline void check(long result, const char *what)
{
	if (result == -1) {
		perror(what);
		exit(1);
	}
}

static inline struct policy parse_policy(const char *text)
{
	const char *colon = strchr(text, ':');
	struct policy policy = { 0, colon ? strtoul(colon + 1, NULL, 16) : 0 };

	if (!strncmp(text, "bind:", 5))
		policy.mode = 2;
	else if (!strncmp(text, "interleave:", 11))
		policy.mode = 3;
	else if (strcmp(text, "default")) {
		fprintf(stderr, "%s: no memory policy\n", text);
		exit(2);
	}
	return policy;
}

static inline void set_task_policy(struct policy policy)
{
	check(syscall(SYS_set_mempolicy, policy.mode, policy.nodes ? &policy.nodes : NULL, 64UL), "set_mempolicy");
}

#endif
