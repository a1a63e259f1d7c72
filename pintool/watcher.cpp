/* SPDX-License-Identifier: MIT */
#include "watcher.h"

#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>

#include "kernel.h"
#include "session_file.h"

static const uint64_t CHILD_SECONDS = 5;

static void close_all_but(unsigned a, unsigned b) {
    unsigned low = a < b ? a : b, high = a < b ? b : a;
    if (low) kernel_call(__NR_close_range, 0, low - 1, 0);
    if (low + 1 < high) kernel_call(__NR_close_range, low + 1, high - 1, 0);
    kernel_call(__NR_close_range, high + 1, ~0u, 0);
}

[[noreturn]] static void watch(int process, int fd, void (*after)()) {
    uint64_t all = ~(uint64_t)0;
    kernel_call(__NR_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, 0, sizeof all);
    kernel_call(__NR_setsid);
    close_all_but((unsigned)process, (unsigned)fd);
    pollfd ended = {process, POLLIN, 0};
    while (kernel_call(__NR_poll, &ended, 1, -1) == -EINTR) {
    }
    after();
    for (;;) kernel_call(__NR_exit_group, 0);
}

/* Forked twice: the traced program must not find a child that it never started. A fork takes its name along, by
 * which those who list the program's children tell it from one of the program's own. */
int watcher_start(int fd, void (*after)()) {
    long process = kernel_call(__NR_pidfd_open, kernel_call(__NR_getpid), 0);
    if (process < 0) return (int)process;
    char name[16];
    kernel_call(__NR_prctl, PR_GET_NAME, name);
    kernel_call(__NR_prctl, PR_SET_NAME, "pt-watcher");
    long child = kernel_call(__NR_clone, 0); /* a fork whose end is no SIGCHLD to the program */
    if (child != 0) kernel_call(__NR_prctl, PR_SET_NAME, name);
    if (child == 0) {
        if (kernel_call(__NR_fork) == 0) watch((int)process, fd, after);
        for (;;) kernel_call(__NR_exit_group, 0);
    }
    kernel_call(__NR_close, process);
    if (child < 0) return (int)child;
    auto ended = [child] { return kernel_call(__NR_wait4, child, 0, 0x40000001 /* WNOHANG | __WALL */, 0) != 0; };
    if (wait_until(CHILD_SECONDS, ended)) return 0;
    kernel_call(__NR_kill, child, 9 /* stopped, or frozen */);
    wait_until(CHILD_SECONDS, ended);
    say("the process that would end the trace does not start", "a kill of the program leaves its trace without an end");
    return 0;
}
