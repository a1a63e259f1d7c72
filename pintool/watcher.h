/* SPDX-License-Identifier: MIT */
#ifndef PTT_WATCHER_H
#define PTT_WATCHER_H

/* Starts a process that outlives this one, keeps `fd` open, and then calls `after`. 0, or -errno. `meanwhile` is called
 * first, and again after so many ms as it returned, -1: not again. */
int watcher_start(int fd, int (*meanwhile)(), void (*after)());

#endif
