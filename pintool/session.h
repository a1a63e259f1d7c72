/* SPDX-License-Identifier: MIT
 *
 * The one session of a process: its options, its threads' buffers, how much the file holds.
 */
#ifndef PTT_SESSION_H
#define PTT_SESSION_H

#include "lines.h"
#include "strip.h"

#define PTT_LIVE_THREADS 2048
#define PTT_UNKNOWN_THREAD (~(uint64_t)0)
#define PTT_REGION_SHIFT 21 /* a region is 2 MiB, the range of one leaf table */
#define PTT_WIDEST 64         /* bytes of an access */
#define PTT_REGIONS ((uint64_t)1 << 26) /* of the 47-bit addresses of a program */

struct ptt_options {
    char path[1024];
    char tracer[48];
    char command[1024]; /* "": as /proc/self/cmdline has it, the tracer's own words included */
    uint64_t max_bytes; /* 0: no limit */
    uint64_t for_ns;    /* recording ends so long after the first touch; 0: no limit */
    int instructions;   /* 1: ptt_thread.instructions is counted */
    int recording;      /* 1: touches count from the start, 0: from ptt_roi(1, ...) on */
    int strip = 1;      /* 1: touches that change no TLB are left out (strip.h), 0: only consecutive ones are merged */
};

struct ptt_thread {
    uint64_t instructions;
    uint64_t time;
    uint64_t credit; /* accesses this thread may count before it looks at the session again */
    int lock, live;
    int16_t cpu;
    uint16_t index;
    int pending; /* system call whose arguments are in `arguments`, -1 none */
    uint64_t arguments[4];
    struct ptt_strip strip;
    uint8_t encoded[sizeof(struct ptt_frame) + PTT_CHUNK_RECORDS * PTT_RECORD_BYTES_MAX];
};

/* Shared with the watcher. `recording` is what every touch looks at. */
struct ptt_session {
    int recording;
    int waiting; /* the region of interest has not begun: first touches are noted */
    int ended; /* enum ptt_ended */
    int detail;
    int fd, file_lock, thread_lock;
    int finished;    /* the header says so, or the file is lost */
    int over;        /* for_ns are over: recording does not begin again */
    int stuck;       /* a lock is held by nobody who lives: no more is traced */
    int handed_over; /* the controller was told to take its snapshot */
    uint32_t pid;
    uint32_t threads;  /* indices given out */
    uint32_t starting; /* clones entered whose thread has not been seen yet */
    uint32_t starter;  /* index of the thread that entered the newest */
    uint64_t start_clock, start, bytes, device, inode;
    uint64_t said_device, said_inode; /* of standard error */
    uint64_t until; /* session time at which recording ends, 0: nothing was recorded yet, or none */
    uint64_t records, accesses, dropped, lost_threads, guest_base;
    int64_t roi_credit; /* accesses until an access-counted region of interest starts or ends */
    struct ptt_options options;
    struct ptt_page_lines lines[PTT_LINE_PLACES];
    struct ptt_thread thread[PTT_LIVE_THREADS];
};

extern __attribute__((visibility("hidden"))) struct ptt_session *ptt_session;

/* A bit for each region that was touched while `waiting`. Private memory: a forked child has a copy of its own, as it
 * has copies of the tables, which fork made. */
extern uint64_t *ptt_touched;

#endif
