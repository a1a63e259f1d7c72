/* SPDX-License-Identifier: MIT */
#include "session_file.h"

#include <asm/stat.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/resource.h>
#include <linux/time.h>

#include "crc32.h"
#include "kernel.h"

struct ptt_session *ptt_session;

static crc32_tables tables;
static const ptt_array reach[] = PTT_REACH;
static_assert(sizeof reach <= sizeof ptt_header::stripped, "the header has room for them");

uint64_t session_time() { return kernel_clock(CLOCK_MONOTONIC) - ptt_session->start_clock; }

void copy_text(char *to, const char *from, size_t room) {
    size_t i = 0;
    for (; i + 1 < room && from[i]; i++) to[i] = from[i];
    for (; i < room; i++) to[i] = 0;
}

void say(const char *what, const char *consequence) {
    struct stat file = {};
    pollfd out = {2, POLLOUT, 0};
    char line[256];
    size_t n = 0;
    const char *const parts[] = {"ptanalyze: ", what, ": ", consequence, "\n"};
    for (const char *part : parts)
        for (; *part && n + 1 < sizeof line; part++) line[n++] = *part;
    if (kernel_call(__NR_fstat, 2, &file) == 0 && file.st_dev == ptt_session->said_device &&
        file.st_ino == ptt_session->said_inode && kernel_call(__NR_poll, &out, 1, 0) == 1 && out.revents == POLLOUT)
        kernel_call(__NR_write, 2, line, n);
}

bool enter(int *lock) {
    struct ptt_session *s = ptt_session;
    if (s->stuck) return false;
    if (spin_lock(lock)) return true;
    s->recording = 0;
    if (!__atomic_exchange_n(&s->stuck, 1, __ATOMIC_RELAXED))
        say("a lock of the tracer stays held", "the trace ends here, the program goes on");
    return false;
}

void write_header() {
    static ptt_header header; /* only ever written under file_lock */
    struct ptt_session *s = ptt_session;
    header = {};
    __builtin_memcpy(header.magic, PTT_MAGIC, 8);
    header.version = PTT_VERSION;
    header.byte_order = PTT_BYTE_ORDER;
    header.header_bytes = PTT_HEADER_BYTES;
    header.pid = s->pid;
    header.ended = (uint32_t)s->ended;
    header.detail = s->detail;
    header.flags = s->options.instructions ? PTT_INSTRUCTIONS : 0;
    header.start = s->start;
    header.end = session_time();
    header.bytes = s->bytes;
    header.records = s->records;
    header.accesses = s->accesses;
    header.dropped = s->dropped;
    header.lost_threads = s->lost_threads;
    ptt_count_lines(s->lines, header.lines);
    header.guest_base = s->guest_base;
    copy_text(header.arch, "x86_64", sizeof header.arch);
    copy_text(header.tracer, s->options.tracer, sizeof header.tracer);
    copy_text(header.command, s->options.command, sizeof header.command);
    copy_text(header.rules, PTT_RULES, sizeof header.rules);
    if (s->options.strip) __builtin_memcpy(header.stripped, reach, sizeof reach);
    header.crc = crc32_update(&tables, 0, &header, sizeof header);
    kernel_call(__NR_pwrite64, s->fd, &header, sizeof header, 0);
}

bool file_is_ours() {
    struct stat file = {};
    return kernel_call(__NR_fstat, ptt_session->fd, &file) == 0 && file.st_dev == ptt_session->device &&
           file.st_ino == ptt_session->inode;
}

static uint64_t size_limit() {
    rlimit64 allowed = {};
    kernel_call(__NR_prlimit64, 0, RLIMIT_FSIZE, 0, &allowed);
    uint64_t limit = ptt_session->options.max_bytes ? ptt_session->options.max_bytes : ~(uint64_t)0;
    return allowed.rlim_cur < limit ? allowed.rlim_cur : limit;
}

static void stop(int ended, int detail) {
    ptt_session->recording = 0;
    ptt_session->ended = ended;
    ptt_session->detail = detail;
    if (ended != PTT_FILE_LOST) write_header();
}

bool append(const uint8_t *data, size_t bytes) {
    struct ptt_session *s = ptt_session;
    if (s->ended) return false;
    if (!file_is_ours()) return stop(PTT_FILE_LOST, 0), false;
    if (s->bytes + bytes > size_limit()) return stop(PTT_SIZE_LIMIT, 0), false;
    size_t done = 0;
    while (done < bytes) {
        long wrote = kernel_call(__NR_pwrite64, s->fd, data + done, bytes - done, s->bytes + done);
        if (wrote == -EINTR) continue;
        if (wrote <= 0) {
            kernel_call(__NR_ftruncate, s->fd, s->bytes);
            return stop(PTT_DISK_FULL, wrote ? (int)-wrote : ENOSPC), false;
        }
        done += (size_t)wrote;
    }
    s->bytes += bytes;
    return true;
}

void seal_frame(uint8_t *data, ptt_frame *frame) {
    frame->magic = PTT_FRAME_MAGIC;
    __builtin_memcpy(data, frame, sizeof *frame);
    frame->crc = crc32_update(&tables, 0, data, sizeof *frame + frame->bytes);
    __builtin_memcpy(data, frame, sizeof *frame);
}

int open_file(const char *path) {
    crc32_prepare(&tables);
    long fd = kernel_call(__NR_open, path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return (int)fd;
    /* As high as allowed: out of the way of programs that close or count their descriptors. */
    rlimit64 files = {};
    kernel_call(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, &files);
    uint64_t lowest = files.rlim_cur > 65536 ? 65536 - 8 : files.rlim_cur > 16 ? files.rlim_cur - 8 : 3;
    long high = kernel_call(__NR_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
    if (high < 0) return (int)fd;
    kernel_call(__NR_close, fd);
    return (int)high;
}

void read_command(char *command, size_t room) {
    long fd = kernel_call(__NR_open, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    long n = fd < 0 ? 0 : kernel_call(__NR_read, fd, command, room - 1);
    for (long i = 0; i + 1 < n; i++)
        if (!command[i]) command[i] = ' ';
    if (fd >= 0) kernel_call(__NR_close, fd);
}
