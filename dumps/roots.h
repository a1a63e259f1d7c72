/* SPDX-License-Identifier: MIT */
/* The roots of a VM's tables. */
#ifndef ROOTS_H
#define ROOTS_H

#include "kvm.h"
#include "walk.h"

void vm_roots(struct reader *reader, struct vm_view *view);

#endif
