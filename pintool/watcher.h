/* SPDX-License-Identifier: MIT */
#ifndef PTT_WATCHER_H
#define PTT_WATCHER_H

/* Starts a process that outlives this one, keeps `fd` open, and then calls `after`. 0, or -errno. */
int watcher_start(int fd, void (*after)());

#endif
