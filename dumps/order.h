/* SPDX-License-Identifier: MIT */
/*
 * What ptrelocate asks of its clone inside the target, and what that answers, in memory that both share: CODE_MOST bytes of
 * code, the clone's return address, this, and its stack; from CLONE_BYTES on the borrowed thread's chain.
 */
#ifndef ORDER_H
#define ORDER_H

#include <stddef.h>
#include <stdint.h>

#define MOST_PARTS 64
#define MOST_THREADS 4096
#define CODE_MOST 4096
#define CLONE_BYTES (128UL << 10)
#define CHAIN_BYTES (12UL << 10)
#define SHARED_BYTES (CLONE_BYTES + CHAIN_BYTES)
#define TABLE_SPAN (2UL << 20) /* of a leaf table */

struct part {
	uint64_t start, length;
	int32_t away, back; /* errno of each way, 0: done */
	uint32_t tries;     /* of the way back that failed before it was made */
	uint32_t microseconds;
};

enum outcome {
	ALL_STOPPED,
	NO_THREAD_LIST, /* no /proc, or no descriptor */
	NOT_OURS,       /* a thread may not be traced by a process of its own user */
	NOT_STOPPING,   /* in time: it waits for a child of vfork, or for a device */
	TOO_MANY,
	NO_POLICY, /* set_mempolicy: not a node that the target may use */
	FORBIDDEN, /* by ptrelocate, which looked again while all stood still */
	LEFT_AWAY,
};
enum leave { UNDECIDED, GO_ON, GIVE_UP };

struct order {
	int32_t waiting, ended_main; /* in the target's namespace: the thread in vfork; the main one if it has ended */
	int32_t count, node;         /* parts; node of the tables, -1: any */
	int64_t until; /* CLOCK_MONOTONIC, microseconds: no part is begun that may end later */
	uint32_t to_stop, to_return, dear; /* microseconds to stop the threads, for one way back, for a MiB of parts */
	uint32_t gap, refusals; /* of tests: microseconds between both ways, or before the keeper, ways back that fail */
	char tasks[40], maps[40];
	int32_t outcome, error, thread, stopped, done;
	int32_t attaching;       /* a thread is set to attach this memory, and would return into nothing without it */
	int32_t standing, leave; /* all threads stand still; what ptrelocate says to that */
	int32_t keeper; /* of an order without parts: a process that waits to unmap this memory */
	struct { int64_t seconds, nanoseconds; } patience; /* of the keeper */
	int64_t began, held, ended; /* microseconds */
	uint64_t away_at;
	struct part parts[MOST_PARTS];
};

#define ORDER_BYTES(count) (offsetof(struct order, parts) + (count) * sizeof(struct part))

/* ioctl of /proc/PID/maps since Linux 6.11 (include/uapi/linux/fs.h) */
struct area {
	uint64_t size, query, address, start, end, flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};
#define AREA_QUERY 0xC0686611UL
#define AREA_OR_NEXT 0x10
#define AREA_SHARED 0x08
_Static_assert(sizeof(struct area) == 104, "PROCMAP_QUERY");

#endif
