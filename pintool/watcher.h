/* SPDX-License-Identifier: MIT */
#ifndef PTT_WATCHER_H
#define PTT_WATCHER_H

/* Starts a process that outlives this one and writes what it left in its buffers. 0, or -errno. */
int watcher_start(int trace_fd);

#endif
