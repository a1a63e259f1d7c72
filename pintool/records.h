/* SPDX-License-Identifier: MIT
 *
 * trace.ptt, format version 2: what the threads of one process touched, page by page.
 *
 * Magic "PTTRACE\n"; version 2 (1 is the same, but never stripped; 3 and 4, of a part of the accesses and filtered twice,
 * are retired: readers refuse them); all numbers little endian (byte_order reads 0x01020304).
 * A header of 4,096 bytes, then frames. A frame is a 48-byte ptt_frame and its payload. Every frame has a
 * magic, its length and a CRC-32 (zlib's polynomial) over frame header (crc field 0) and payload, so a file
 * that was cut off is a shorter valid file up to its last whole frame. The header is rewritten in place when
 * the trace ends, which needs no new disk space; `ended` = PTT_UNFINISHED means that this never happened.
 *
 * PTT_CHUNK  a run of touches of one thread: `records` of them, standing for `accesses` loads and stores. Its time
 *            is that of its first touch. Frames of one thread are in time order; those of different threads are
 *            ordered by time, equal times by their position in the file.
 * PTT_EVENT  one ptt_event; it stands before all later chunks of its thread.
 *
 * A touch is a page (address >> 12, below 2^45), whether one of its accesses was a store, and the count (1 to
 * 2^18 - 1) of accesses merged into it. An access across a page border touches both pages. Merged are consecutive accesses
 * and, where `stripped` of the header names arrays, accesses since the page's record before (or after it, up to its next)
 * that hit in all such first-level TLB arrays without any effect on what they hold later.
 * Encoding of a touch, state reset at each chunk:
 *   byte 0: bit 0 store; bits 1-2 the count: 0 and 1 mean 1 and 2; 3: a LEB128 varint of count - 3 follows
 *           the page; 2: as the last such varint said, 3 before the first (loops repeat their counts);
 *           bits 3-4 class; bits 5-7 payload p
 *   class 0, p < 6   the p-th most recently used of the last six pages
 *   class 0, p = 6   the bases change places, then 4 bytes: zigzag(page - base), 32 bits
 *   class 0, p = 7   6 bytes: the page itself; the older base is forgotten
 *   class 1, 2, 3    1, 2, 3 more bytes: zigzag(page - base), 11, 19, 27 bits, the low 3 bits in p
 * After class 0, p < 6 the page moves to the front of the six; after any other it enters at the front, the
 * last one drops out, and base = page. At the start of a chunk the six pages and both bases are 0.
 */
#ifndef PTT_RECORDS_H
#define PTT_RECORDS_H

#include <stdint.h>

#define PTT_MAGIC "PTTRACE\n"
#define PTT_VERSION 2
#define PTT_BYTE_ORDER 0x01020304u
#define PTT_FRAME_MAGIC 0x46545450u /* "PTTF" */
#define PTT_HEADER_BYTES 4096
#define PTT_REACH_MOST 7
#define PTT_RECENT 6
#define PTT_COUNT_MAX ((1u << 18) - 1)
#define PTT_CHUNK_RECORDS 4096
#define PTT_RECORD_BYTES_MAX 10 /* byte 0, 6 of page, 3 of count */

/* The rules above, for whoever finds a file without this header. */
#define PTT_RULES                                                                                              \
    "Little endian. After this header of 4096 bytes: frames. Frame, 48 bytes: u32 magic PTTF, u32 crc, u32 "    \
    "payload bytes, u32 touches, u16 kind (1 chunk, 2 event), u16 thread, i16 cpu, u16 0, u64 time (ns since "  \
    "the start), u64 accesses, u64 instructions (0 unknown); crc: CRC-32 of frame (crc 0) and payload. "        \
    "Event: u32 kind (1 thread start, 2 thread exit, 3 mmap, 4 munmap, 5 mprotect, 6 mremap, 7 madvise, 8 brk, " \
    "9 roi start, 10 roi end, 11 data pages moved, 12 first touch of 2 MiB before the roi, 13 window a of the thread "    \
    "begins, 0: ends, 14 mapped by the tracer, 15 prctl PR_SET_THP_DISABLE a), u32 0, u64 a, b, c, " \
    "d, i64 result. Chunk: touches, state reset at its start. "                                                \
    "Touch: byte 0: bit 0 store, bits 1-2 count (0, 1: 1, 2; 3: LEB128 of count - 3 follows the page; 2: as "  \
    "the last LEB128 said, at first 3), bits 3-4 "                                                             \
    "class, bits 5-7 p. Class 0: p < 6 the p-th most recent page; p = 6 bases change places, 4 bytes of "       \
    "zigzag(page - base); p = 7 6 bytes of page, the older base is forgotten. Class 1, 2, 3: 1, 2, 3 bytes of " \
    "zigzag(page - base), its low 3 bits in p. The page becomes the most recent; unless it was one of the six, " \
    "base = page. Bases and the six start as 0. Page = address >> 12. If 7 times before the header's last 8 bytes (u16 page size 1, 2, 3: 4 KiB, 2 MiB, 1 GiB; " \
    "u16 sets, u16 ways, u16 0) are not all 0: stripped of touches that hit in every first-level array of a multiple of " \
    "so many sets and so many ways or more and change nothing there; exact for no others. Add guest_base to every address. " \
    "4 u32 at byte 4000: sampled pages, those that both halves of the chunks touched, cache lines of them, those that both did. " \
    "Version 3: of a part; of touches outside it each thread's first of a page; accesses of a chunk are all. " \
    "Version 4: the header's last 8 bytes are u16 sets, one_in, run, 0: touches of the page that was last in its set (page " \
    "mod sets) of the chunk are left out, too, and counted with it, but in run r of `run` chunks of a thread where r mod one_in " \
    "= h mod one_in: h = (r / one_in << 16 ^ thread) + 0x9e3779b9, h = (h ^ h >> 16) * 0x7feb352d, h = (h ^ h >> 15) * 0x846ca68b, " \
    "h ^= h >> 16, 32 bits each.\n"

enum ptt_frame_kind { PTT_CHUNK = 1, PTT_EVENT = 2 };

enum ptt_ended {
    PTT_UNFINISHED = 0,
    PTT_EXIT = 1,       /* exit_group, or the last thread's exit */
    PTT_SIGNAL = 2,     /* the process died without saying so: a signal, or it was killed */
    PTT_SIZE_LIMIT = 3, /* max_bytes or RLIMIT_FSIZE */
    PTT_DISK_FULL = 4,  /* detail = errno of the write that failed */
    PTT_EXEC = 5,       /* the process became another program */
    PTT_FILE_LOST = 6,  /* the program closed the tracer's file */
    PTT_IMPORTED = 7,   /* made from another tracer's output */
};

enum ptt_flags { PTT_INSTRUCTIONS = 1, PTT_SAMPLED = 2, PTT_WALKS = 4 };

enum ptt_event_kind {
    PTT_THREAD_START = 1, /* a = tid, b = parent's thread index, 2^64 - 1 unknown */
    PTT_THREAD_EXIT = 2,
    PTT_MMAP = 3,         /* a = address asked, b = length, c = prot, d = flags; result */
    PTT_MUNMAP = 4,       /* a = address, b = length */
    PTT_MPROTECT = 5,     /* a = address, b = length, c = prot */
    PTT_MREMAP = 6,       /* a = old address, b = old length, c = new length, d = flags; result */
    PTT_MADVISE = 7,      /* a = address, b = length, c = advice */
    PTT_BRK = 8,          /* a = asked end; result = new end */
    PTT_ROI_START = 9, /* touches are recorded from here */
    PTT_ROI_STOP = 10, /* ... to here */
    PTT_MOVE_PAGES = 11, /* a = address, b = length, c = NUMA node the data is on from now on */
    PTT_FIRST_TOUCH = 12, /* a = address of a 2 MiB region: the thread was the first to touch it, or had a call fill
                             it, before the region of interest; again after it was unmapped as a whole */
    PTT_WINDOW = 13, /* retired, of version 3 */
    PTT_TRACER_MAP = 14, /* a = address, b = length of memory that was the tracer's own before the program began; not
                            moved by guest_base */
    PTT_THP_DISABLE = 15, /* prctl(PR_SET_THP_DISABLE): a = 1, no transparent huge pages from now on, 0: again; b = flags */
};

/* First-level TLB arrays for pages of `size` (1, 2, 3: 4 KiB, 2 MiB, 1 GiB), true LRU, with a multiple of `sets` sets and
 * `ways` ways or more. */
struct ptt_array {
    uint16_t size, sets, ways, zero;
};

struct ptt_header {
    char magic[8];
    uint32_t version;
    uint32_t byte_order;
    uint32_t header_bytes;
    uint32_t crc; /* of the header's 4,096 bytes with this field 0 */
    uint32_t pid;
    uint32_t ended;  /* enum ptt_ended */
    int32_t detail;  /* errno of PTT_DISK_FULL */
    uint32_t flags;  /* PTT_INSTRUCTIONS: chunks carry counts; PTT_SAMPLED: not every access is here;
                        PTT_WALKS: each of them missed every TLB */
    uint64_t start;  /* CLOCK_REALTIME, ns: where times count from */
    uint64_t end;    /* ns since start */
    uint64_t bytes;  /* length of the file, valid once ended */
    uint64_t records;
    uint64_t accesses;
    uint64_t dropped; /* records lost: written after the limit */
    uint64_t guest_base; /* add to every page and address to get the process's own */
    char arch[16];
    char tracer[48];
    char command[1024];
    char rules[2808]; /* this comment in short */
    uint64_t lost_threads; /* not traced: beyond what can be traced at once, or in all */
    uint32_t lines[4]; /* sampled pages (lines.h), those that both halves of the chunks saw; their lines, the same. 0: not counted */
    char unused[16]; /* reserved, 0 */
    struct ptt_array stripped[PTT_REACH_MOST]; /* what a stripped trace is exact for; of size 0: no more. All 0: not
                                                  stripped, as version 1 never is */
    char more[8]; /* reserved, 0 */
};

struct ptt_frame {
    uint32_t magic;
    uint32_t crc;
    uint32_t bytes; /* of payload */
    uint32_t records;
    uint16_t kind;
    uint16_t thread;
    int16_t cpu; /* -1 unknown */
    uint16_t zero;
    uint64_t time; /* ns since the trace began */
    uint64_t accesses;
    uint64_t instructions; /* 0 unknown */
};

struct ptt_event {
    uint32_t kind;
    uint32_t zero;
    uint64_t a, b, c, d;
    int64_t result;
};

#ifdef __cplusplus
#define PTT_ASSERT static_assert
#else
#define PTT_ASSERT _Static_assert
#endif
PTT_ASSERT(sizeof(struct ptt_header) == PTT_HEADER_BYTES, "header is one page");
PTT_ASSERT(sizeof(struct ptt_frame) == 48, "frame header");
PTT_ASSERT(sizeof(struct ptt_event) == 48, "event");

#endif
