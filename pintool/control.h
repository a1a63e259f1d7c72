/* SPDX-License-Identifier: MIT */
#ifndef PTT_CONTROL_H
#define PTT_CONTROL_H

#include <stdint.h>

/* Says "WHY PID\n" on the Unix socket at `path` and waits for an answer of at least a byte, `seconds` at most. Goes on at
 * once when nobody listens or the listener goes away. The connection exists only that long, so that the
 * traced program never meets, closes or inherits it. */
void control_wait(const char *path, const char *why, uint64_t seconds);

#endif
