/* SPDX-License-Identifier: MIT */
#include "writer.h"

#include <asm/stat.h>
#include <linux/errno.h>
#include <linux/mman.h>
#include <linux/time.h>

#include "kernel.h"
#include "session_file.h"
#include "watcher.h"

static const uint64_t FILE_SECONDS = 5;

uint64_t *ptt_touched;
void (*ptt_on_time)(struct ptt_thread *thread);

int ptt_time_is_over(void) {
    struct ptt_session *s = ptt_session;
    if (!s->options.for_ns) return 0;
    uint64_t now = session_time();
    if (!s->until) s->until = now + s->options.for_ns;
    return now >= s->until;
}

/* ---- chunks ---- */

static void empty(struct ptt_thread *thread) {
    ptt_strip_clear(&thread->strip);
    thread->instructions = 0;
}

static void write_chunk(struct ptt_thread *thread) {
    if (!thread->strip.touches) return;
    size_t n = ptt_strip_collect(&thread->strip);
    struct ptt_session *s = ptt_session;
    ptt_frame frame = {};
    uint8_t *payload = thread->encoded + sizeof frame;
    frame.kind = PTT_CHUNK;
    frame.thread = thread->index;
    frame.cpu = thread->cpu;
    frame.time = thread->time;
    frame.instructions = thread->instructions;
    frame.records = (uint32_t)n;
    frame.bytes = (uint32_t)(ptt_encode(thread->strip.record, n, payload, &frame.accesses) - payload);
    seal_frame(thread->encoded, &frame);
    if (!enter(&s->file_lock)) return empty(thread);
    bool written = append(thread->encoded, sizeof frame + frame.bytes);
    s->records += written ? n : 0;
    s->accesses += written ? frame.accesses : 0;
    s->dropped += written ? 0 : n;
    spin_unlock(&s->file_lock);
    empty(thread);
}

void ptt_flush(struct ptt_thread *thread, uint64_t age) {
    if (!thread->strip.touches || (age && session_time() - thread->time < age)) return;
    if (!enter(&thread->lock)) return;
    write_chunk(thread);
    spin_unlock(&thread->lock);
}

/* Apart from ptt_push, so that this saves no registers for what it mostly does not do. */
[[gnu::noinline]] static void push_more(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (!ptt_session->recording || ptt_strip_same(strip, page, store)) return;
    if (strip->touches == PTT_CHUNK_RECORDS && ptt_strip_begins(strip, page)) ptt_flush(thread, 0);
    if (!strip->touches) {
        thread->time = session_time();
        if (ptt_time_is_over()) return ptt_on_time(thread);
        thread->cpu = (int16_t)kernel_cpu();
        ptt_strip_begin(strip, !ptt_session->options.strip);
    }
    ptt_strip_more(strip, page, store);
}

void ptt_push(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (strip->whole && strip->touches - 1 < PTT_CHUNK_RECORDS - 1)
        ptt_strip_next(strip, page, store);
    else
        push_more(thread, page, store);
}

/* ---- events and threads ---- */

static void write_event(uint16_t thread, const ptt_event *event) {
    uint8_t data[sizeof(ptt_frame) + sizeof *event];
    ptt_frame frame = {};
    frame.kind = PTT_EVENT;
    frame.thread = thread;
    frame.cpu = (int16_t)kernel_cpu();
    frame.bytes = sizeof *event;
    frame.time = session_time();
    __builtin_memcpy(data + sizeof frame, event, sizeof *event);
    seal_frame(data, &frame);
    if (!enter(&ptt_session->file_lock)) return;
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
    if (!s || !enter(&s->thread_lock)) return NULL;
    for (int i = 0; i < PTT_LIVE_THREADS && !thread && s->threads <= 0xFFFF; i++)
        if (!s->thread[i].live) thread = &s->thread[i];
    if (thread) {
        thread->live = 1;
        thread->index = (uint16_t)s->threads++;
        thread->pending = -1;
        thread->credit = 0;
        thread->strip.rest = 0;
        empty(thread);
    }
    spin_unlock(&s->thread_lock);
    if (!thread) ptt_thread_lost();
    if (thread) ptt_record_event(thread, PTT_THREAD_START, (uint64_t)kernel_call(__NR_gettid), parent, 0, 0, 0);
    return thread;
}

void ptt_thread_lost(void) {
    struct ptt_session *s = ptt_session;
    if (s && !s->ended) __atomic_add_fetch(&s->lost_threads, 1, __ATOMIC_RELAXED);
}

void ptt_thread_exit(struct ptt_thread *thread) {
    ptt_record_event(thread, PTT_THREAD_EXIT, 0, 0, 0, 0, 0);
    thread->live = 0;
}

void ptt_roi(struct ptt_thread *thread, int inside) {
    struct ptt_session *s = ptt_session;
    if (s->recording == inside || s->ended) return;
    s->waiting = 0;
    if (inside) ptt_record_event(thread, PTT_ROI_START, 0, 0, 0, 0, 0); /* no other thread's touch is earlier */
    s->recording = inside;
    if (!inside) ptt_record_event(thread, PTT_ROI_STOP, 0, 0, 0, 0, 0);
}

/* ---- first touches before the region of interest ---- */

void ptt_first_touch(struct ptt_thread *thread, uint64_t region) {
    uint64_t bit = (uint64_t)1 << (region & 63);
    if (!ptt_session->waiting || ptt_session->finished || !ptt_untouched(region)) return;
    if (__atomic_fetch_or(&ptt_touched[region >> 6], bit, __ATOMIC_RELAXED) & bit) return;
    ptt_record_event(thread, PTT_FIRST_TOUCH, region << PTT_REGION_SHIFT, 0, 0, 0, 0);
}

void ptt_forget(uint64_t address, uint64_t bytes) {
    uint64_t first = (address + ((uint64_t)1 << PTT_REGION_SHIFT) - 1) >> PTT_REGION_SHIFT;
    uint64_t end = (address + bytes) >> PTT_REGION_SHIFT;
    if (!ptt_session->waiting || address + bytes < address) return;
    for (uint64_t region = first; region < end && region < PTT_REGIONS; region++)
        if (ptt_touched[region >> 6])
            __atomic_fetch_and(&ptt_touched[region >> 6], ~((uint64_t)1 << (region & 63)), __ATOMIC_RELAXED);
}

/* Whether the session waits for its region of interest, and has memory for what happens until then. */
static int begin_waiting() {
    long memory = (long)ptt_touched;
    if (!memory)
        memory = kernel_call(__NR_mmap, 0, PTT_REGIONS / 8, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 && memory > -4096) return 0;
    ptt_touched = (uint64_t *)memory;
    return 1;
}

/* ---- beginning and end ---- */

void ptt_finish(int ended) {
    struct ptt_session *s = ptt_session;
    if (!s || s->finished) return;
    s->finished = 1;
    s->recording = 0;
    if (ended != PTT_SIGNAL) { /* other threads may be inside ptt_touch: let them leave */
        kernel_nap(1000000);
    }
    for (int i = 0; i < PTT_LIVE_THREADS; i++)
        if (s->thread[i].live) ptt_flush(&s->thread[i], 0);
    if (!enter(&s->file_lock)) return; /* the watcher ends it */
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
    if (!enter(&s->file_lock)) return;
    s->ended = s->finished = PTT_UNFINISHED;
    write_header();
    spin_unlock(&s->file_lock);
}

/* In the watcher, when the traced process is gone, and with it whoever held a lock. */
static void write_what_is_left() {
    struct ptt_session *s = ptt_session;
    if (s->stuck) s->finished = 0;
    s->file_lock = s->stuck = 0;
    for (ptt_thread &thread : s->thread) thread.lock = 0;
    if (s->ended == PTT_FILE_LOST) s->finished = 0; /* to the program, not to us */
    ptt_finish(PTT_SIGNAL);
}

int ptt_open(const struct ptt_options *options) {
    long memory = kernel_call(__NR_mmap, 0, sizeof *ptt_session, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 && memory > -4096) return (int)memory;
    int fd = open_file(options->path);
    if (fd < 0) return kernel_call(__NR_munmap, memory, sizeof *ptt_session), fd;
    struct ptt_session *s = ptt_session = (struct ptt_session *)memory;
    struct stat file = {}, said = {};
    kernel_call(__NR_fstat, fd, &file);
    if (kernel_call(__NR_fstat, 2, &said) == 0) s->said_device = said.st_dev, s->said_inode = said.st_ino;
    if (!wait_until(FILE_SECONDS, [fd] { return kernel_call(__NR_flock, fd, 6 /* LOCK_EX | LOCK_NB */) != -EAGAIN; }))
        say("another process holds a lock on the trace's file", "its readers do not wait for this run");
    s->fd = fd;
    s->device = file.st_dev;
    s->inode = file.st_ino;
    s->options = *options;
    s->recording = options->recording;
    s->waiting = !options->recording && begin_waiting();
    s->pid = (uint32_t)kernel_call(__NR_getpid);
    s->start_clock = kernel_clock(CLOCK_MONOTONIC);
    s->start = kernel_clock(CLOCK_REALTIME);
    s->bytes = PTT_HEADER_BYTES;
    if (!s->options.command[0]) read_command(s->options.command, sizeof s->options.command);
    kernel_call(__NR_ftruncate, fd, PTT_HEADER_BYTES);
    write_header();
    return watcher_start(s->fd, write_what_is_left);
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
    static char first[sizeof ptt_session->options.path]; /* of who was traced first: a grandchild's is no longer */
    if (!ptt_session) return 0;
    struct ptt_options options = ptt_session->options;
    if (!first[0]) copy_text(first, options.path, sizeof first);
    copy_text(options.path, first, sizeof options.path);
    options.recording = ptt_session->recording;
    int waiting = ptt_session->waiting;
    uint64_t guest_base = ptt_session->guest_base;
    int64_t credit = ptt_session->roi_credit;
    if (file_is_ours()) kernel_call(__NR_close, ptt_session->fd);
    kernel_call(__NR_munmap, ptt_session, sizeof *ptt_session);
    ptt_session = NULL;
    if (!follow) return 0;
    child_path(options.path, sizeof options.path, (uint32_t)kernel_call(__NR_getpid));
    int failed = ptt_open(&options);
    if (ptt_session) {
        ptt_session->guest_base = guest_base;
        ptt_session->roi_credit = credit;
        ptt_session->waiting &= waiting;
    }
    return failed;
}
