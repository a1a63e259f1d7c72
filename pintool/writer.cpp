/* SPDX-License-Identifier: MIT */
#include "writer.h"

#include <asm/stat.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/mman.h>
#include <linux/resource.h>
#include <linux/time.h>

#include "crc32.h"
#include "kernel.h"
#include "watcher.h"

struct ptt_session *ptt_session;

static crc32_tables tables;
static const uint64_t NO_TOUCH = ~(uint64_t)0;

static void copy_text(char *to, const char *from, size_t room) {
    size_t i = 0;
    for (; i + 1 < room && from[i]; i++) to[i] = from[i];
    for (; i < room; i++) to[i] = 0;
}

static uint64_t now() { return kernel_clock(CLOCK_MONOTONIC) - ptt_session->start_clock; }

/* ---- the file ---- */

static void write_header() {
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
    header.end = now();
    header.bytes = s->bytes;
    header.records = s->records;
    header.accesses = s->accesses;
    header.dropped = s->dropped;
    header.guest_base = s->guest_base;
    copy_text(header.arch, "x86_64", sizeof header.arch);
    copy_text(header.tracer, s->options.tracer, sizeof header.tracer);
    copy_text(header.command, s->options.command, sizeof header.command);
    copy_text(header.rules, PTT_RULES, sizeof header.rules);
    header.crc = crc32_update(&tables, 0, &header, sizeof header);
    kernel_call(__NR_pwrite64, s->fd, &header, sizeof header, 0);
}

static bool file_is_ours() {
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

/* Appends a whole frame or nothing, under file_lock. */
static bool append(const uint8_t *data, size_t bytes) {
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

static void seal_frame(uint8_t *data, ptt_frame *frame) {
    frame->magic = PTT_FRAME_MAGIC;
    __builtin_memcpy(data, frame, sizeof *frame);
    frame->crc = crc32_update(&tables, 0, data, sizeof *frame + frame->bytes);
    __builtin_memcpy(data, frame, sizeof *frame);
}

/* ---- chunks ---- */

static void empty(struct ptt_thread *thread) {
    thread->top = thread->limit = thread->touches;
    thread->touches[0] = NO_TOUCH;
    thread->instructions = 0;
}

static void write_chunk(struct ptt_thread *thread) {
    size_t n = (size_t)(thread->top - thread->touches);
    if (!n) return;
    struct ptt_session *s = ptt_session;
    ptt_frame frame = {};
    uint8_t *payload = thread->encoded + sizeof frame;
    frame.kind = PTT_CHUNK;
    frame.thread = thread->index;
    frame.cpu = thread->cpu;
    frame.time = thread->time;
    frame.instructions = thread->instructions;
    frame.records = (uint32_t)n;
    frame.bytes = (uint32_t)(ptt_encode(thread->touches + 1, n, payload, &frame.accesses) - payload);
    seal_frame(thread->encoded, &frame);
    spin_lock(&s->file_lock);
    bool written = append(thread->encoded, sizeof frame + frame.bytes);
    s->records += written ? n : 0;
    s->accesses += written ? frame.accesses : 0;
    s->dropped += written ? 0 : n;
    spin_unlock(&s->file_lock);
    empty(thread);
}

void ptt_flush(struct ptt_thread *thread, uint64_t age) {
    if (thread->top == thread->touches || (age && now() - thread->time < age)) return;
    spin_lock(&thread->lock);
    write_chunk(thread);
    spin_unlock(&thread->lock);
}

void ptt_push(struct ptt_thread *thread, uint64_t touch) {
    if (!ptt_session->recording) return;
    ptt_flush(thread, 0);
    thread->time = now();
    thread->cpu = (int16_t)kernel_cpu();
    thread->limit = thread->touches + PTT_CHUNK_RECORDS;
    *++thread->top = touch;
}

/* ---- events and threads ---- */

static void write_event(uint16_t thread, const ptt_event *event) {
    uint8_t data[sizeof(ptt_frame) + sizeof *event];
    ptt_frame frame = {};
    frame.kind = PTT_EVENT;
    frame.thread = thread;
    frame.cpu = (int16_t)kernel_cpu();
    frame.bytes = sizeof *event;
    frame.time = now();
    __builtin_memcpy(data + sizeof frame, event, sizeof *event);
    seal_frame(data, &frame);
    spin_lock(&ptt_session->file_lock);
    append(data, sizeof data);
    spin_unlock(&ptt_session->file_lock);
}

void ptt_record_event(struct ptt_thread *thread, uint32_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
               int64_t result) {
    struct ptt_event event = {kind, 0, a, b, c, d, result};
    if (thread) ptt_flush(thread, 0);
    write_event(thread ? thread->index : 0, &event);
}

struct ptt_thread *ptt_thread_start(uint64_t parent) {
    struct ptt_session *s = ptt_session;
    struct ptt_thread *thread = NULL;
    if (!s || s->threads > 0xFFFF) return NULL;
    spin_lock(&s->thread_lock);
    for (int i = 0; i < PTT_LIVE_THREADS && !thread; i++)
        if (!s->thread[i].live) thread = &s->thread[i];
    if (thread) {
        thread->live = 1;
        thread->index = (uint16_t)s->threads++;
        thread->pending = -1;
        thread->credit = 0;
        empty(thread);
    }
    spin_unlock(&s->thread_lock);
    if (thread) ptt_record_event(thread, PTT_THREAD_START, (uint64_t)kernel_call(__NR_gettid), parent, 0, 0, 0);
    return thread;
}

void ptt_thread_exit(struct ptt_thread *thread) {
    ptt_record_event(thread, PTT_THREAD_EXIT, 0, 0, 0, 0, 0);
    thread->live = 0;
}

void ptt_roi(struct ptt_thread *thread, int inside) {
    struct ptt_session *s = ptt_session;
    if (s->recording == inside || s->ended) return;
    s->recording = inside;
    ptt_record_event(thread, inside ? PTT_ROI_START : PTT_ROI_STOP, 0, 0, 0, 0, 0);
}

/* ---- beginning and end ---- */

void ptt_finish(int ended) {
    struct ptt_session *s = ptt_session;
    if (!s || s->finished) return;
    s->finished = 1;
    s->recording = 0;
    if (ended != PTT_SIGNAL) { /* other threads may be inside ptt_touch: let them leave */
        kernel_time wait = {0, 1000000};
        kernel_call(__NR_nanosleep, &wait);
    }
    for (int i = 0; i < PTT_LIVE_THREADS; i++)
        if (s->thread[i].live) ptt_flush(&s->thread[i], 0);
    spin_lock(&s->file_lock);
    if (!s->ended) s->ended = ended;
    if (file_is_ours()) {
        write_header();
        kernel_call(__NR_fdatasync, s->fd);
    }
    spin_unlock(&s->file_lock);
}

void ptt_resume(void) {
    struct ptt_session *s = ptt_session;
    if (!s || s->ended != PTT_EXEC) return;
    spin_lock(&s->file_lock);
    s->ended = s->finished = PTT_UNFINISHED;
    write_header();
    spin_unlock(&s->file_lock);
}

static int open_file(const char *path) {
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

static void read_command(char *command, size_t room) {
    long fd = kernel_call(__NR_open, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    long n = fd < 0 ? 0 : kernel_call(__NR_read, fd, command, room - 1);
    for (long i = 0; i + 1 < n; i++)
        if (!command[i]) command[i] = ' ';
    if (fd >= 0) kernel_call(__NR_close, fd);
}

int ptt_open(const struct ptt_options *options) {
    long memory = kernel_call(__NR_mmap, 0, sizeof *ptt_session, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 && memory > -4096) return (int)memory;
    int fd = open_file(options->path);
    if (fd < 0) return kernel_call(__NR_munmap, memory, sizeof *ptt_session), fd;
    struct ptt_session *s = ptt_session = (struct ptt_session *)memory;
    struct stat file = {};
    kernel_call(__NR_fstat, fd, &file);
    kernel_call(__NR_flock, fd, 2 /* LOCK_EX */);
    crc32_prepare(&tables);
    s->fd = fd;
    s->device = file.st_dev;
    s->inode = file.st_ino;
    s->options = *options;
    s->recording = options->recording;
    s->pid = (uint32_t)kernel_call(__NR_getpid);
    s->start_clock = kernel_clock(CLOCK_MONOTONIC);
    s->start = kernel_clock(CLOCK_REALTIME);
    s->bytes = PTT_HEADER_BYTES;
    if (!s->options.command[0]) read_command(s->options.command, sizeof s->options.command);
    kernel_call(__NR_ftruncate, fd, PTT_HEADER_BYTES);
    write_header();
    return watcher_start(s->fd);
}

/* "DIR/NAME.ptt" and 17 -> "DIR/NAME.17.ptt" */
static void child_path(char *path, size_t room, uint32_t pid) {
    char digits[12];
    int n = 0;
    for (; pid || !n; pid /= 10) digits[n++] = (char)('0' + pid % 10);
    size_t length = 0;
    while (path[length]) length++;
    if (length >= 4 && path[length - 4] == '.' && path[length - 1] == 't') length -= 4;
    if (length + (size_t)n + 6 > room) return;
    path[length++] = '.';
    while (n) path[length++] = digits[--n];
    copy_text(path + length, ".ptt", room - length);
}

int ptt_forked(int follow) {
    if (!ptt_session) return 0;
    struct ptt_options options = ptt_session->options;
    options.recording = ptt_session->recording;
    uint64_t guest_base = ptt_session->guest_base;
    if (file_is_ours()) kernel_call(__NR_close, ptt_session->fd);
    kernel_call(__NR_munmap, ptt_session, sizeof *ptt_session);
    ptt_session = NULL;
    if (!follow) return 0;
    child_path(options.path, sizeof options.path, (uint32_t)kernel_call(__NR_getpid));
    int failed = ptt_open(&options);
    if (ptt_session) ptt_session->guest_base = guest_base;
    return failed;
}
