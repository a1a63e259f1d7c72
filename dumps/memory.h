/* SPDX-License-Identifier: MIT */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that we may still take, as the machine and our control groups (v1, v2) say. */
size_t free_memory(void);

#endif
