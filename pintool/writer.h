/* SPDX-License-Identifier: MIT
 *
 * The record writer behind every tracer. No C or C++ library, no exceptions, no allocation after ptt_open.
 *
 * One session a process. Touches are merged into a buffer per thread, which lives in memory shared with a
 * small watcher process: when the traced process dies without a last word (a signal, SIGKILL, a crash) the watcher
 * writes what the buffers hold and says so in the header. Both hold flock(2) on the file: who gets LOCK_EX
 * knows that nobody writes any more.
 */
#ifndef PTT_WRITER_H
#define PTT_WRITER_H

#include "encode.h"
#include "records.h"

#define PTT_LIVE_THREADS 2048
#define PTT_UNKNOWN_THREAD (~(uint64_t)0)

struct ptt_options {
    char path[1024];
    char tracer[48];
    char command[1024]; /* "": as /proc/self/cmdline has it, the tracer's own words included */
    uint64_t max_bytes; /* 0: no limit */
    int instructions;   /* 1: ptt_thread.instructions is counted */
    int recording;      /* 1: touches count from the start, 0: from ptt_roi(1, ...) on */
};

struct ptt_thread {
    uint64_t *top;   /* the touch being merged into; touches[0] is no touch */
    uint64_t *limit; /* when top reaches it, ptt_push goes the slow way */
    uint64_t instructions;
    uint64_t time;
    uint64_t credit; /* accesses this thread may count before it looks at the session again */
    int lock, live;
    int16_t cpu;
    uint16_t index;
    int pending; /* system call whose arguments are in `arguments`, -1 none */
    uint64_t arguments[4];
    uint64_t touches[1 + PTT_CHUNK_RECORDS];
    uint8_t encoded[sizeof(struct ptt_frame) + PTT_CHUNK_RECORDS * PTT_RECORD_BYTES_MAX];
};

/* Shared with the watcher. `recording` is what every touch looks at. */
struct ptt_session {
    int recording;
    int ended; /* enum ptt_ended */
    int detail;
    int fd, file_lock, thread_lock;
    int finished;    /* the header says so, or the file is lost */
    int handed_over; /* the controller was told to take its snapshot */
    uint32_t pid;
    uint32_t threads;  /* indices given out */
    uint32_t starting; /* clones entered whose thread has not been seen yet */
    uint32_t starter;  /* index of the thread that entered the newest */
    uint64_t start_clock, start, bytes, device, inode;
    uint64_t records, accesses, dropped, guest_base;
    int64_t roi_credit; /* accesses until an access-counted region of interest starts or ends */
    struct ptt_options options;
    struct ptt_thread thread[PTT_LIVE_THREADS];
};

extern struct ptt_session *ptt_session;

/* 0, or -errno. Forks the watcher, so call it before the traced program starts. */
int ptt_open(const struct ptt_options *options);

/* In a forked child: lets go of the parent's session, which stays intact; with `follow` opens "NAME.PID.ptt". */
int ptt_forked(int follow);

/* NULL when no session is open, or more than PTT_LIVE_THREADS live. `parent`: index or PTT_UNKNOWN_THREAD. */
struct ptt_thread *ptt_thread_start(uint64_t parent);
void ptt_thread_exit(struct ptt_thread *thread);

/* Writes the thread's open chunk, then the event. NULL: an event before the first thread is known. */
void ptt_record_event(struct ptt_thread *thread, uint32_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                      int64_t result);

/* Starts or ends the region of interest; the second call with the same value does nothing. */
void ptt_roi(struct ptt_thread *thread, int inside);

/* Writes the thread's open chunk if it was begun more than `age` ns ago. */
void ptt_flush(struct ptt_thread *thread, uint64_t age);

/* Writes all open chunks and the header. Nothing is recorded afterwards until ptt_resume (a failed execve). */
void ptt_finish(int ended);
void ptt_resume(void);

/* Slow half of ptt_touch. */
void ptt_push(struct ptt_thread *thread, uint64_t touch);

static inline void ptt_touch(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    uint64_t top = *thread->top;
    if (top >> PTT_PAGE_SHIFT == page && (top & PTT_COUNT_FIELD) != PTT_COUNT_FIELD) {
        *thread->top = (top + 2) | store;
        return;
    }
    uint64_t touch = page << PTT_PAGE_SHIFT | 2 | store;
    if (__builtin_expect(thread->top == thread->limit, 0))
        ptt_push(thread, touch);
    else
        *++thread->top = touch;
}

#endif
