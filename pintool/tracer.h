/* SPDX-License-Identifier: MIT
 *
 * What every tracer does alike, over the writer: options, system calls to events, the region of interest, and
 * the hand-over of the stopped process to whoever snapshots its page tables. Free of any C library, too.
 */
#ifndef PTT_TRACER_H
#define PTT_TRACER_H

#include "writer.h"

struct tracer_options {
    struct ptt_options writer;
    char start_symbol[4096], end_symbol[4096]; /* functions whose entry starts, ends the region of interest */
    uint64_t start_access, accesses;         /* 0: no such bound */
    int marker;                              /* 1: PTT_ROI_BEGIN and PTT_ROI_END of roi.h bound it */
    int follow_fork;
    char control[108]; /* path of a listening Unix socket, "" for none */
    uint64_t control_timeout; /* seconds */
};

extern struct tracer_options tracer_options;

/* 1 when `key` is an option and `value` is one it can have. */
int tracer_option(const char *key, const char *value);

/* 0, or -errno; sets what follows from the options together. */
int tracer_start(const char *name);

/* NULL: not traced (any more). For the thread that calls it, when it is seen first. */
struct ptt_thread *tracer_thread(void);

/* A system call begins; arguments as the x86-64 kernel has them. Returns 1 when the thread is over. */
int tracer_call(struct ptt_thread *thread, int64_t number, const uint64_t *arguments);
void tracer_return(struct ptt_thread *thread, int64_t number, int64_t result);

/* The process is another one than the session's: a forked child. Its only thread must be asked for anew. */
int tracer_is_child(void);

void tracer_roi_start(struct ptt_thread *thread);
void tracer_roi_end(struct ptt_thread *thread);

/* Nothing more will come of this process. */
void tracer_exit(void);

/* Whether touches are counted one by one, to start or end the region of interest at a number. */
static inline int tracer_counts(void) { return tracer_options.start_access || tracer_options.accesses; }

void tracer_credit(struct ptt_thread *thread);

/* To be called before each access when tracer_counts(). Exact for one thread; several draw from the common
 * number by 1,024. */
static inline void tracer_count(struct ptt_thread *thread) {
    if (__builtin_expect(thread->credit == 0, 0)) tracer_credit(thread);
    thread->credit--;
}

static inline void tracer_access(struct ptt_thread *thread, uint64_t address, uint64_t bytes, uint64_t store) {
    uint64_t end = address + bytes - 1, page = address >> 12, last = end >> 12;
    ptt_touch(thread, page, store);
    if (ptt_is_sampled(page)) ptt_use_line(ptt_session->lines, address, ptt_half(thread->strip.chunk));
    if ((end ^ address) >> 6 && ptt_is_sampled(last)) ptt_use_line(ptt_session->lines, end, ptt_half(thread->strip.chunk));
    if (__builtin_expect(last != page, 0)) ptt_touch(thread, last, store);
}

/* While the session is waiting: whether tracer_first must look at an access, as it may be the first to a region. */
static inline int tracer_may_be_first(uint64_t address) {
    const uint64_t within = ((uint64_t)1 << PTT_REGION_SHIFT) - 1;
    return ptt_untouched(address >> PTT_REGION_SHIFT) || (address & within) > within - PTT_WIDEST;
}

void tracer_first(struct ptt_thread *thread, uint64_t address, uint64_t bytes);

#endif
