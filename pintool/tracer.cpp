/* SPDX-License-Identifier: MIT */
#include "tracer.h"

#include <linux/mman.h>

#include "control.h"
#include "kernel.h"
#include "roi.h"
#include "session_file.h"

struct tracer_options tracer_options = {};

static const uint64_t CLONE_THREAD_FLAG = 0x10000;
static const uint64_t CREDIT = 1024;
static const uint64_t REGION = (uint64_t)1 << PTT_REGION_SHIFT;
static const uint64_t POPULATE_READ = 22, POPULATE_WRITE = 23; /* advice; newer than the headers of Pin kits */
static const uint64_t SET_THP_DISABLE = 41; /* PR_SET_THP_DISABLE, linux/prctl.h */
static const uint64_t CHUNK_AGE = 10000000; /* ns: a system call that may have slept this long ends a chunk */

static int following = 1;           /* 0 in forked children that are not followed */
static int recording_before_exec;
static enum { BEFORE, INSIDE, AFTER } counted = BEFORE;

/* ---- options ---- */

static bool same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static int text(char *to, size_t room, const char *from) {
    size_t i = 0;
    for (; from[i] && i + 1 < room; i++) to[i] = from[i];
    to[i] = 0;
    return !from[i] && i;
}

static int number(uint64_t *to, const char *from) {
    uint64_t value = 0;
    const char *at = from;
    for (; *at >= '0' && *at <= '9' && value < ~(uint64_t)0 / 20; at++) value = value * 10 + (uint64_t)(*at - '0');
    *to = value;
    return at != from && !*at;
}

static int onoff(int *to, const char *from) {
    *to = same(from, "on");
    return *to || same(from, "off");
}

static int milliseconds(uint64_t *to, const char *from) {
    int known = number(to, from) && *to < ~(uint64_t)0 / 1000000;
    *to *= 1000000;
    return known;
}

int tracer_option(const char *key, const char *value) {
    struct tracer_options *o = &tracer_options;
    if (same(key, "out")) return text(o->writer.path, sizeof o->writer.path, value);
    if (same(key, "command")) return text(o->writer.command, sizeof o->writer.command, value);
    if (same(key, "max_bytes")) return number(&o->writer.max_bytes, value);
    if (same(key, "for_ms")) return milliseconds(&o->writer.for_ns, value);
    if (same(key, "strip")) return onoff(&o->writer.strip, value);
    if (same(key, "instructions")) return onoff(&o->writer.instructions, value);
    if (same(key, "roi_start_symbol")) return text(o->start_symbol, sizeof o->start_symbol, value);
    if (same(key, "roi_end_symbol")) return text(o->end_symbol, sizeof o->end_symbol, value);
    if (same(key, "roi_marker")) return onoff(&o->marker, value);
    if (same(key, "roi_start_access")) return number(&o->start_access, value);
    if (same(key, "roi_accesses")) return number(&o->accesses, value);
    if (same(key, "follow_fork")) return onoff(&o->follow_fork, value);
    if (same(key, "control")) return text(o->control, sizeof o->control, value);
    if (same(key, "control_timeout")) return number(&o->control_timeout, value);
    return 0;
}

static void time_is_over(struct ptt_thread *thread) {
    if (!__atomic_exchange_n(&ptt_session->over, 1, __ATOMIC_RELAXED)) tracer_roi_end(thread);
}

int tracer_start(const char *name) {
    struct tracer_options *o = &tracer_options;
    if (!o->writer.path[0]) text(o->writer.path, sizeof o->writer.path, "trace.ptt");
    if (!o->control_timeout) o->control_timeout = 600;
    text(o->writer.tracer, sizeof o->writer.tracer, name);
    o->writer.recording = !o->start_symbol[0] && !o->marker && !o->start_access;
    ptt_on_time = time_is_over;
    int failed = ptt_open(&o->writer);
    if (failed) return failed;
    ptt_session->roi_credit = (int64_t)(o->start_access ? o->start_access : o->accesses);
    counted = o->start_access ? BEFORE : INSIDE;
    return 0;
}

/* ---- threads and forks ---- */

struct ptt_thread *tracer_thread(void) {
    struct ptt_session *s = ptt_session;
    if (!s || !following) return NULL;
    uint64_t parent = PTT_UNKNOWN_THREAD;
    uint32_t starting = __atomic_load_n(&s->starting, __ATOMIC_ACQUIRE);
    if (starting == 1) parent = s->starter;
    if (starting) __atomic_sub_fetch(&s->starting, 1, __ATOMIC_RELEASE);
    return ptt_thread_start(parent);
}

int tracer_is_child(void) {
    if (!ptt_session || (uint32_t)kernel_call(__NR_getpid) == ptt_session->pid) return 0;
    following = tracer_options.follow_fork;
    if (!following) tracer_options.control[0] = 0;
    ptt_forked(following);
    return 1;
}

/* ---- region of interest ---- */

static void hand_over(const char *why) {
    if (!tracer_options.control[0] || ptt_session->handed_over) return;
    ptt_session->handed_over = 1;
    control_wait(tracer_options.control, why, tracer_options.control_timeout);
}

void tracer_roi_start(struct ptt_thread *thread) {
    if (!ptt_session->over) ptt_roi(thread, 1);
}

void tracer_roi_end(struct ptt_thread *thread) {
    if (!ptt_session->recording) return;
    ptt_roi(thread, 0);
    hand_over("roi_end");
}

void tracer_credit(struct ptt_thread *thread) {
    struct ptt_session *s = ptt_session;
    if (!enter(&s->thread_lock)) return (void)(thread->credit = ~(uint64_t)0 >> 1);
    int64_t left = s->roi_credit, drawn = left < (int64_t)CREDIT ? left : (int64_t)CREDIT;
    bool start = left == 0 && counted == BEFORE, end = left == 0 && counted == INSIDE && tracer_options.accesses;
    if (start) {
        counted = INSIDE;
        s->roi_credit = (int64_t)tracer_options.accesses;
    } else if (end) {
        counted = AFTER;
    }
    if (left) s->roi_credit -= drawn;
    spin_unlock(&s->thread_lock);
    if (start) tracer_roi_start(thread);
    if (end) tracer_roi_end(thread);
    if (start && tracer_options.accesses) return tracer_credit(thread);
    thread->credit = left ? (uint64_t)drawn : ~(uint64_t)0 >> 1;
}

/* ---- system calls ---- */

struct event_kind {
    uint32_t kind;
    int arguments;
};

static event_kind event_of(int64_t call) {
    switch (call) {
        case __NR_mmap: return {PTT_MMAP, 4};
        case __NR_munmap: return {PTT_MUNMAP, 2};
        case __NR_mprotect: return {PTT_MPROTECT, 3};
        case __NR_mremap: return {PTT_MREMAP, 4};
        case __NR_madvise: return {PTT_MADVISE, 3};
        case __NR_brk: return {PTT_BRK, 1};
        default: return {0, 0};
    }
}

static void record_call(struct ptt_thread *thread, event_kind event, int64_t result) {
    uint64_t a[4] = {0, 0, 0, 0};
    for (int i = 0; i < event.arguments; i++) a[i] = thread->arguments[i];
    ptt_record_event(thread, event.kind, a[0], a[1], a[2], a[3], result);
}

void tracer_first(struct ptt_thread *thread, uint64_t address, uint64_t bytes) {
    ptt_first_touch(thread, address >> PTT_REGION_SHIFT);
    ptt_first_touch(thread, (address + bytes - 1) >> PTT_REGION_SHIFT);
}

/* Page tables that a call itself fills (mm_populate) or moves entries into (move_page_tables) are this thread's. */
static void fill(struct ptt_thread *thread, uint64_t start, uint64_t bytes) {
    for (uint64_t at = start; ptt_session->waiting && at < start + bytes; at = (at | (REGION - 1)) + 1)
        ptt_first_touch(thread, at >> PTT_REGION_SHIFT);
}

static void fill_by_call(struct ptt_thread *thread, uint32_t kind, int64_t result) {
    const uint64_t *a = thread->arguments;
    bool advised = kind == PTT_MADVISE && (a[2] == POPULATE_READ || a[2] == POPULATE_WRITE);
    if (kind == PTT_MREMAP && (uint64_t)result != a[0]) {
        ptt_forget(a[0], a[1]);
        fill(thread, (uint64_t)result, a[1] < a[2] ? a[1] : a[2]);
    } else if (advised || (kind == PTT_MMAP && a[3] & (MAP_POPULATE | MAP_LOCKED))) {
        fill(thread, advised ? a[0] : (uint64_t)result, a[1]);
    }
}

void tracer_exit(void) {
    if (!ptt_session || ptt_session->finished) return;
    hand_over("exit");
    ptt_finish(PTT_EXIT);
}

int tracer_call(struct ptt_thread *thread, int64_t call, const uint64_t *arguments) {
    thread->pending = (int)call;
    for (int i = 0; i < 4; i++) thread->arguments[i] = arguments[i];
    switch (call) {
        case __NR_munmap: /* before the call: afterwards others may have mapped and touched the same */
            ptt_forget(arguments[0], arguments[1]);
            break;
        case __NR_mmap:
            if (arguments[3] & MAP_FIXED) ptt_forget(arguments[0], arguments[1]);
            break;
        case PTT_ROI_BEGIN_CALL:
            if (tracer_options.marker) tracer_roi_start(thread);
            break;
        case PTT_ROI_END_CALL:
            if (tracer_options.marker) tracer_roi_end(thread);
            break;
        case __NR_clone:
        case __NR_clone3:
            if (!(arguments[0] & CLONE_THREAD_FLAG)) break;
            ptt_session->starter = thread->index;
            __atomic_add_fetch(&ptt_session->starting, 1, __ATOMIC_RELEASE);
            break;
        case __NR_execve:
        case __NR_execveat:
            recording_before_exec = ptt_session->recording;
            ptt_finish(PTT_EXEC);
            break;
        case __NR_exit:
            ptt_thread_exit(thread);
            return 1;
        case __NR_exit_group:
            tracer_exit();
            break;
    }
    return 0;
}

void tracer_return(struct ptt_thread *thread, int64_t call, int64_t result) {
    event_kind event = event_of(call);
    if (thread->pending == (int)call && event.kind) {
        record_call(thread, event, result);
        if (result >= 0) fill_by_call(thread, event.kind, result);
    }
    if (thread->pending == (int)call && call == __NR_prctl && thread->arguments[0] == SET_THP_DISABLE)
        ptt_record_event(thread, PTT_THP_DISABLE, thread->arguments[1], thread->arguments[2], 0, 0, result);
    bool failed_clone = (call == __NR_clone || call == __NR_clone3) && result < 0;
    if (failed_clone && (thread->arguments[0] & CLONE_THREAD_FLAG))
        __atomic_sub_fetch(&ptt_session->starting, 1, __ATOMIC_RELEASE);
    if (call == __NR_execve || call == __NR_execveat) {
        ptt_resume();
        if (!ptt_session->finished) ptt_session->recording = recording_before_exec;
    }
    thread->pending = -1;
    ptt_flush(thread, CHUNK_AGE);
    if (ptt_session->recording && ptt_time_is_over()) time_is_over(thread);
    bool full = ptt_session->ended == PTT_SIZE_LIMIT || ptt_session->ended == PTT_DISK_FULL;
    const struct tracer_options *o = &tracer_options;
    if (full && (o->writer.for_ns || o->accesses || o->end_symbol[0] || o->marker)) hand_over("roi_end"); /* no more comes */
}
