/* SPDX-License-Identifier: MIT */
/* `ptdump vm` */
#ifndef VM_H
#define VM_H

#include "options.h"
#include "proc.h"

void dump_vm(const struct options *options, const struct process *process);

#endif
