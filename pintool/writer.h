/* SPDX-License-Identifier: MIT
 *
 * The record writer behind every tracer. No C or C++ library, no exceptions, no allocation after ptt_open.
 *
 * One session a process. Touches are merged and stripped (strip.h) in a buffer per thread, which lives in memory shared with a
 * small watcher process: when the traced process dies without a last word (a signal, SIGKILL, a crash) the watcher
 * writes what the buffers hold and says so in the header. Both hold flock(2) on the file: who gets LOCK_EX
 * knows that nobody writes any more.
 */
#ifndef PTT_WRITER_H
#define PTT_WRITER_H

#include "session.h"

/* 0, or -errno. Forks the watcher, so call it before the traced program starts. */
int ptt_open(const struct ptt_options *options);

/* In a forked child: lets go of the parent's session, which stays intact; with `follow` opens "NAME.PID.ptt". */
int ptt_forked(int follow);

/* NULL when no session is open; and, counted as lost, when PTT_LIVE_THREADS live or 65,536 were. Not to be asked again
 * for a thread that was refused. `parent`: index or PTT_UNKNOWN_THREAD. */
struct ptt_thread *ptt_thread_start(uint64_t parent);
void ptt_thread_exit(struct ptt_thread *thread);
void ptt_thread_lost(void);

/* Writes the thread's open chunk, then the event. NULL: an event before the first thread is known. */
void ptt_record_event(struct ptt_thread *thread, uint32_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                      int64_t result);

/* What a thread calls that finds for_ns over; whether they are: they begin with the first question. */
extern void (*ptt_on_time)(struct ptt_thread *thread);
int ptt_time_is_over(void);

/* Starts or ends the region of interest; the second call with the same value does nothing. */
void ptt_roi(struct ptt_thread *thread, int inside);

/* Writes the thread's open chunk if it was begun more than `age` ns ago. */
void ptt_flush(struct ptt_thread *thread, uint64_t age);

/* Writes all open chunks and the header. Nothing is recorded afterwards until ptt_resume (a failed execve). */
void ptt_finish(int ended);
void ptt_resume(void);

/* The regions that lie in these bytes as a whole count as untouched again. */
void ptt_forget(uint64_t address, uint64_t bytes);

/* Slow halves of ptt_touch and of what is done with an untouched region. */
void ptt_push(struct ptt_thread *thread, uint64_t page, uint64_t store);
void ptt_first_touch(struct ptt_thread *thread, uint64_t region);

/* Whether a region is still untouched, while the session is waiting. */
static inline int ptt_untouched(uint64_t region) {
    return region < PTT_REGIONS && !(ptt_touched[region >> 6] >> (region & 63) & 1);
}

/* ptt_touch where only consecutive accesses are merged: 1 when that was all there is to do. */
static inline int ptt_touch_whole(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (ptt_strip_same(strip, page, store)) return 1;
    if (strip->touches - 1 >= PTT_CHUNK_RECORDS - 1) return 0;
    ptt_strip_next(strip, page, store);
    return 1;
}

static inline void ptt_touch(struct ptt_thread *thread, uint64_t page, uint64_t store) {
    struct ptt_strip *strip = &thread->strip;
    if (strip->whole ? ptt_strip_same(strip, page, store) : ptt_strip_known(strip, page, store)) return;
    ptt_push(thread, page, store);
}

#endif
