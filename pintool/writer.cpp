/* SPDX-License-Identifier: MIT */
#include "writer.h"

#include <asm/stat.h>
#include <linux/mman.h>
#include <linux/time.h>

#include "kernel.h"
#include "second.h"
#include "session_file.h"
#include "watcher.h"

uint64_t *ptt_touched;
struct ptt_seen *ptt_seen;
void (*ptt_on_time)(struct ptt_thread *thread);

int ptt_time_is_over(void) {
    struct ptt_session *s = ptt_session;
    if (!s->options.for_ns || s->options.every_ns) return 0;
    uint64_t now = session_time();
    if (!s->until) s->until = now + s->options.for_ns;
    return now >= s->until;
}

/* ---- chunks ---- */

static void empty(struct ptt_thread *thread) {
    ptt_strip_clear(&thread->strip);
    thread->instructions = 0;
    thread->outside.key[0] = thread->outside.key[1] = PTT_NO_PAGE;
    thread->outside.merged = thread->left_out = 0;
}

static void write_chunk(struct ptt_thread *thread) {
    if (!thread->strip.touches) return;
    size_t n = ptt_strip_collect(&thread->strip);
    struct ptt_session *s = ptt_session;
    if (s->options.twice && !ptt_second_spares(thread->index, thread->chunks)) n = ptt_second(thread->strip.record, n);
    thread->chunks++;
    ptt_frame frame = {};
    uint8_t *payload = thread->encoded + sizeof frame;
    frame.kind = PTT_CHUNK;
    frame.thread = thread->index;
    frame.cpu = thread->cpu;
    frame.time = thread->time;
    frame.instructions = thread->instructions;
    frame.records = (uint32_t)n;
    frame.bytes = (uint32_t)(ptt_encode(thread->strip.record, n, payload, &frame.accesses) - payload);
    frame.accesses += thread->left_out + (thread->outside.merged >> 1);
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
    if (!thread->strip.touches || (age && session_time() - thread->time < age)) return;
    spin_lock(&thread->lock);
    write_chunk(thread);
    spin_unlock(&thread->lock);
}

static void forget_all(const struct ptt_thread *thread) {
    kernel_call(__NR_madvise, thread->seen, sizeof *thread->seen, MADV_DONTNEED);
}

static void begin_part(struct ptt_thread *thread) {
    struct ptt_session *s = ptt_session;
    spin_lock(&s->lost.lock);
    thread->time = session_time();
    if (!ptt_seen_forget(thread->seen, &s->lost, thread->lost)) forget_all(thread);
    thread->lost = s->lost.count;
    spin_unlock(&s->lost.lock);
    if (!s->began) s->began = thread->time;
}

/* Begins a chunk; 0: recording is over. */
static int begin(struct ptt_thread *thread) {
    const struct ptt_options *options = &ptt_session->options;
    if (ptt_partial(options))
        begin_part(thread);
    else
        thread->time = session_time();
    if (ptt_time_is_over()) return ptt_on_time(thread), 0;
    thread->cpu = (int16_t)kernel_cpu();
    ptt_strip_begin(&thread->strip, options->whole);
    return 1;
}

/* Apart from ptt_push, so that this saves no registers for what it mostly does not do. */
[[gnu::noinline]] static void push_more(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (!ptt_session->recording) return;
    if (strip->touches == PTT_CHUNK_RECORDS && ptt_strip_begins(strip, page)) ptt_flush(thread, 0);
    if (!strip->touches && !begin(thread)) return;
    ptt_strip_more(strip, page, store);
}

void ptt_outside(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (!ptt_session->recording) return;
    if (strip->recent != &thread->outside && !ptt_strip_begins(strip, page)) return ptt_strip_more(strip, page, store);
    if (strip->touches == PTT_CHUNK_RECORDS) ptt_flush(thread, 0);
    if (!strip->touches && !begin(thread)) return;
    thread->left_out += thread->outside.merged >> 1;
    thread->outside.merged = 0;
    if (!ptt_seen_before(thread->seen, page)) {
        if (!thread->classes && thread->left_out > PTT_CHUNK_RECORDS) ptt_flush(thread, 0); /* its time is long ago */
        if (strip->touches || begin(thread)) ptt_strip_more(strip, page, store);
        return;
    }
    ptt_leave_out(thread, page);
    if (!strip->touches) strip->touches = 1;
}

static void turn(struct ptt_thread *thread) {
    uint32_t window = ptt_session->window, classes = ptt_session->options.classes;
    thread->window = window;
    ptt_record_event(thread, PTT_WINDOW, window & 1 ? (window + 1) / 2 : 0, 0, 0, 0, 0);
    thread->classes = window & 1 ? (classes ? classes : PTT_EVERY_CLASS) : 0;
}

/* Within a window what went is forgotten when the next chunk begins; between windows, where chunks are long, one begins. */
void ptt_hear(struct ptt_thread *thread) {
    struct ptt_session *s = ptt_session;
    thread->news = __atomic_load_n(&s->news, __ATOMIC_ACQUIRE);
    if (thread->window != s->window) return turn(thread);
    if (!thread->classes && thread->lost != s->lost.count) ptt_flush(thread, 0);
}

void ptt_push(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (strip->whole && strip->touches - 1 < PTT_CHUNK_RECORDS - 1)
        ptt_strip_next(strip, page, store);
    else
        push_more(thread, page, store);
}

/* ---- events and threads ---- */

static void news() { __atomic_add_fetch(&ptt_session->news, 1, __ATOMIC_RELEASE); }

static void write_event(uint16_t thread, const ptt_event *event) {
    uint8_t data[sizeof(ptt_frame) + sizeof *event];
    ptt_frame frame = {};
    frame.kind = PTT_EVENT;
    frame.thread = thread;
    frame.cpu = (int16_t)kernel_cpu();
    frame.bytes = sizeof *event;
    spin_lock(&ptt_session->lost.lock);
    if (ptt_lose_by(&ptt_session->lost, event)) news();
    frame.time = session_time();
    spin_unlock(&ptt_session->lost.lock);
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
    if (!s) return NULL;
    spin_lock(&s->thread_lock);
    for (int i = 0; i < PTT_LIVE_THREADS && !thread && s->threads <= 0xFFFF; i++)
        if (!s->thread[i].live) thread = &s->thread[i];
    if (thread) {
        thread->live = 1;
        thread->index = (uint16_t)s->threads++;
        thread->pending = -1;
        thread->credit = 0;
        thread->strip.rest = 0;
        thread->chunks = 0;
        thread->window = s->options.every_ns ? 0 : s->window;
        thread->news = ~(uint64_t)0;
        thread->classes = s->options.classes;
        thread->lost = s->lost.count;
        if (ptt_seen) {
            thread->seen = ptt_seen + (thread - s->thread);
            forget_all(thread);
        }
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

/* ---- windows ---- */

/* In the watcher, the only one that turns windows; returns ms until it should look again, -1: never. */
static int turn_window() {
    struct ptt_session *s = ptt_session;
    const uint64_t every = s->options.every_ns, most = 50;
    if (!every) return -1;
    if (!s->began) return 1;
    uint64_t since = session_time() - s->began, within = since % every;
    bool inside = within < s->options.for_ns;
    uint64_t left = (inside ? s->options.for_ns : every) - within;
    uint32_t window = (uint32_t)(since / every * 2 + (inside ? 1 : 2));
    if (s->window != window) {
        s->window = window;
        news();
    }
    return (int)(left / 1000000 < most ? left / 1000000 + 1 : most);
}

/* 0, or -errno: no memory for what threads touch outside a part. */
static long begin_part_memory(const struct ptt_options *options) {
    if (!ptt_partial(options) || ptt_seen) return 0;
    long memory = kernel_call(__NR_mmap, 0, PTT_LIVE_THREADS * sizeof *ptt_seen, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 && memory > -4096) return memory;
    ptt_seen = (struct ptt_seen *)memory;
    return 0;
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

/* In the watcher, when the traced process is gone, and with it whoever held a lock. */
static void write_what_is_left() {
    struct ptt_session *s = ptt_session;
    s->file_lock = 0;
    s->lost.lock = 0;
    for (ptt_thread &thread : s->thread) thread.lock = 0;
    if (s->ended == PTT_FILE_LOST) s->finished = 0; /* to the program, not to us */
    ptt_finish(PTT_SIGNAL);
}

int ptt_open(const struct ptt_options *options) {
    long failed = begin_part_memory(options);
    if (failed) return (int)failed;
    long memory = kernel_call(__NR_mmap, 0, sizeof *ptt_session, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory < 0 && memory > -4096) return (int)memory;
    int fd = open_file(options->path);
    if (fd < 0) return kernel_call(__NR_munmap, memory, sizeof *ptt_session), fd;
    struct ptt_session *s = ptt_session = (struct ptt_session *)memory;
    struct stat file = {};
    kernel_call(__NR_fstat, fd, &file);
    kernel_call(__NR_flock, fd, 2 /* LOCK_EX */);
    s->fd = fd;
    s->device = file.st_dev;
    s->inode = file.st_ino;
    s->options = *options;
    s->window = 1;
    s->recording = options->recording;
    s->waiting = !options->recording && begin_waiting();
    s->pid = (uint32_t)kernel_call(__NR_getpid);
    s->start_clock = kernel_clock(CLOCK_MONOTONIC);
    s->start = kernel_clock(CLOCK_REALTIME);
    s->bytes = PTT_HEADER_BYTES;
    if (!s->options.command[0]) read_command(s->options.command, sizeof s->options.command);
    kernel_call(__NR_ftruncate, fd, PTT_HEADER_BYTES);
    write_header();
    return watcher_start(s->fd, turn_window, write_what_is_left);
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
    int waiting = ptt_session->waiting;
    uint64_t guest_base = ptt_session->guest_base;
    if (file_is_ours()) kernel_call(__NR_close, ptt_session->fd);
    kernel_call(__NR_munmap, ptt_session, sizeof *ptt_session);
    ptt_session = NULL;
    if (!follow) return 0;
    child_path(options.path, sizeof options.path, (uint32_t)kernel_call(__NR_getpid));
    int failed = ptt_open(&options);
    if (ptt_session) {
        ptt_session->guest_base = guest_base;
        ptt_session->waiting &= waiting;
    }
    return failed;
}
