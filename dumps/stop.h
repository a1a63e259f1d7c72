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
	bool stopped, already, gave_up; /* gave_up: it was continued before all was read */
	double since, seconds;
};
/* most: milliseconds after which it is continued whatever happens, 0 without limit */
void stop_process(struct stop *stop, const struct process *process, unsigned long most);
void continue_process(struct stop *stop);

#endif
