/* SPDX-License-Identifier: MIT */
/* `ptdump vcpus` */
#ifndef VCPUS_H
#define VCPUS_H

#include "options.h"
#include "proc.h"

void show_vcpus(const struct options *options, const struct process *process);

#endif
