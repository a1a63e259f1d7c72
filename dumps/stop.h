/* SPDX-License-Identifier: MIT */
/* SIGSTOP now, SIGCONT whatever happens. */
#ifndef STOP_H
#define STOP_H

#include <stdbool.h>
#include <sys/types.h>
#include "proc.h"

struct stop {
	int pipe;
	pid_t guardian;
	bool stopped, already;
	double since, seconds;
};
void stop_process(struct stop *stop, const struct process *process);
void continue_process(struct stop *stop);

#endif
