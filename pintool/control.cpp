/* SPDX-License-Identifier: MIT */
#include "control.h"

#include <linux/errno.h>
#include <linux/poll.h>
#include <linux/time.h>

#include "kernel.h"

static const int UNIX = 1, STREAM = 1 | 02000000 /* SOCK_STREAM | SOCK_CLOEXEC */, NO_SIGNAL = 0x4000;

struct unix_address {
    uint16_t family;
    char path[108];
};

static long wait_readable(long fd, uint64_t seconds) {
    uint64_t deadline = kernel_clock(CLOCK_MONOTONIC) + seconds * 1000000000u;
    for (;;) {
        uint64_t now = kernel_clock(CLOCK_MONOTONIC);
        if (now >= deadline) return 0;
        pollfd answer = {(int)fd, POLLIN, 0};
        long ready = kernel_call(__NR_poll, &answer, 1, (deadline - now) / 1000000 + 1);
        if (ready != -EINTR) return ready;
    }
}

void control_wait(const char *path, const char *why, uint64_t seconds) {
    unix_address address = {};
    char line[64], answer[16];
    size_t n = 0;
    for (; path[n] && n + 1 < sizeof address.path; n++) address.path[n] = path[n];
    address.family = UNIX;
    for (n = 0; why[n]; n++) line[n] = why[n];
    line[n++] = ' ';
    char digits[12];
    int d = 0;
    for (long pid = kernel_call(__NR_getpid); pid; pid /= 10) digits[d++] = (char)('0' + pid % 10);
    while (d) line[n++] = digits[--d];
    line[n++] = '\n';
    long fd = kernel_call(__NR_socket, UNIX, STREAM, 0);
    if (fd < 0) return;
    kernel_time most = {(int64_t)seconds, seconds ? 0 : 1000};
    kernel_call(__NR_setsockopt, fd, 1 /* SOL_SOCKET */, 21 /* SO_SNDTIMEO: of connect, too */, &most, sizeof most);
    if (kernel_call(__NR_connect, fd, &address, sizeof address) == 0 &&
        kernel_call(__NR_sendto, fd, line, n, NO_SIGNAL) == (long)n && wait_readable(fd, seconds) > 0)
        kernel_call(__NR_read, fd, answer, sizeof answer);
    kernel_call(__NR_close, fd);
}
