/* SPDX-License-Identifier: MIT */
/*
 * Runs inside the target, in a process of its own with the target's memory (CLONE_VM | CLONE_VFORK): mapped as it is, so
 * no library, no globals, no constants outside the code. It stops the other threads as their tracer, so its end, however it
 * comes, is their continuation; moves parts of the memory away by one page more than a leaf table spans, and back, which
 * has the kernel build new leaf tables; and exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "order.h"

#define INSIDE __attribute__((section("inside"), used))
#define INLINE static inline __attribute__((always_inline))
#define PREFERRED 1        /* include/uapi/linux/mempolicy.h */
#define POLL 20            /* microseconds */
#define AREAS 8            /* areas that a way back may need, and more */
#define UPPER 8            /* pages that it may need beside leaf tables */
#define RETRY 1000         /* microseconds between two ways back */
#define PAGE 4096UL

INLINE long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

INLINE int64_t now(void)
{
	struct timespec time;

	call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&time, 0, 0, 0, 0);
	return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

INLINE void nap(long microseconds)
{
	struct timespec time;

	time.tv_sec = 0;
	time.tv_nsec = microseconds * 1000;
	call(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
}

INLINE bool failed(long result)
{
	return result < 0 && result > -4096;
}

/* The stack pointer is that of clone(): one word above the order's address. */
asm(".pushsection inside,\"ax\"\n.globl inside_entry\ninside_entry:\n"
    " mov %rsp,%rdi\n lea 0x20000-0x1008(%rdi),%rsp\n and $-16,%rsp\n call inside_main\n hlt\n.popsection\n");

struct held {
	int id[MOST_THREADS];
	int8_t state[MOST_THREADS]; /* 0 asked, 1 stopped, 2 gone */
	int count;
	char buffer[8192];
};

INLINE int number_of(const char *name)
{
	int number = 0;

	for (; *name >= '0' && *name <= '9'; name++)
		number = number * 10 + *name - '0';
	return number;
}

INLINE bool is_held(const struct held *held, int count, int thread)
{
	for (int i = 0; i < count; i++)
		if (held->id[i] == thread)
			return true;
	return false;
}

/* Seizes the threads that are not held yet; their number, -1 and an outcome if one cannot be. A list has each once, old ones first. */
INLINE int seize_new(struct order *order, struct held *held, int64_t until)
{
	int before = held->count, next = 0;
	long list = call(SYS_open, (long)order->tasks, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0, 0, 0), got, result;
	int found = 0;

	if (failed(list)) {
		order->outcome = NO_THREAD_LIST;
		order->error = -list;
		return -1;
	}
	while ((got = call(SYS_getdents64, list, (long)held->buffer, sizeof(held->buffer), 0, 0, 0)) > 0)
		for (long at = 0; at < got; at += *(uint16_t *)(held->buffer + at + 16)) {
			int thread = number_of(held->buffer + at + 19);

			if (!thread || thread == order->waiting || thread == order->ended_main)
				continue;
			if (next < before && held->id[next] == thread) {
				next++;
				continue;
			}
			if (is_held(held, before, thread))
				continue;
			if (now() > until) {
				order->outcome = NOT_STOPPING;
				order->thread = thread;
				return -1;
			}
			if (held->count == MOST_THREADS) {
				order->outcome = TOO_MANY;
				return -1;
			}
			result = call(SYS_ptrace, PTRACE_SEIZE, thread, 0, 0, 0, 0);
			if (result == -ESRCH)
				continue; /* it has ended */
			if (failed(result)) {
				order->outcome = NOT_OURS;
				order->error = -result;
				order->thread = thread;
				return -1;
			}
			call(SYS_ptrace, PTRACE_INTERRUPT, thread, 0, 0, 0, 0);
			held->id[held->count] = thread;
			held->state[held->count++] = 0;
			found++;
		}
	call(SYS_close, list, 0, 0, 0, 0, 0);
	return found;
}

/*
 * Waits until one has stopped. A signal that it is about to take is passed on, or our end would lose it; that drops the
 * interrupt, which is sent again.
 */
INLINE bool wait_for(struct order *order, struct held *held, int i, int64_t until)
{
	int status;

	while (!held->state[i]) {
		long result = call(SYS_wait4, held->id[i], (long)&status, __WALL | WNOHANG, 0, 0, 0);

		if (failed(result) || (result && !WIFSTOPPED(status))) {
			held->state[i] = 2;
		} else if (result && status >> 16) {
			held->state[i] = 1;
		} else if (result) {
			call(SYS_ptrace, PTRACE_CONT, held->id[i], 0, WSTOPSIG(status), 0, 0);
			call(SYS_ptrace, PTRACE_INTERRUPT, held->id[i], 0, 0, 0, 0);
		} else if (now() > until) {
			order->outcome = NOT_STOPPING;
			order->thread = held->id[i];
			return false;
		} else {
			nap(POLL);
		}
	}
	return true;
}

INLINE bool stop_all(struct order *order, struct held *held)
{
	int64_t until = order->began + order->to_stop;
	int found, from = 0;

	if (until > order->until)
		until = order->until;
	held->count = 0;
	while ((found = seize_new(order, held, until)) > 0)
		for (; from < held->count; from++)
			if (!wait_for(order, held, from, until))
				return false;
	order->stopped = held->count;
	return !found;
}

/* Since Linux 6.17 mremap moves several areas, and may fail between two of them. A kernel that knows no ioctl moves one. */
INLINE bool is_one_area(long maps, const struct part *part)
{
	struct area area;
	long result;

	for (unsigned i = 0; i < sizeof(area) / 8; i++)
		((volatile uint64_t *)&area)[i] = 0;
	area.size = sizeof(area);
	area.address = part->start;
	result = call(SYS_ioctl, maps, AREA_QUERY, (long)&area, 0, 0, 0);
	if (result == -ENOTTY)
		return true;
	return !failed(result) && !area.inode && !(area.flags & AREA_SHARED) && area.start <= part->start &&
	       area.end >= part->start + part->length;
}

INLINE long map(uint64_t length, int protection, int flags)
{
	return call(SYS_mmap, 0, length, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

INLINE long move(uint64_t from, uint64_t to, uint64_t length)
{
	return call(SYS_mremap, from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to, 0);
}

/* Tables and areas that the way back may need are held until then: areas too many, or memory too little, fail here. */
struct reserve {
	long areas, pages;
	uint64_t bytes;
};

INLINE long reserve(struct reserve *kept, const struct part *part)
{
	long result = 0;

	kept->bytes = (part->length / TABLE_SPAN + 2 + UPPER) * PAGE;
	kept->areas = map(AREAS * PAGE, PROT_NONE, MAP_NORESERVE);
	kept->pages = map(kept->bytes, PROT_READ | PROT_WRITE, MAP_POPULATE);
	if (failed(kept->areas))
		return kept->areas;
	for (int i = 1; i < AREAS && !result; i += 2)
		result = call(SYS_mprotect, kept->areas + i * PAGE, PAGE, PROT_READ, 0, 0, 0);
	return failed(kept->pages) ? kept->pages : result;
}

INLINE void release(const struct reserve *kept)
{
	if (!failed(kept->areas))
		call(SYS_munmap, kept->areas, AREAS * PAGE, 0, 0, 0, 0);
	if (!failed(kept->pages))
		call(SYS_munmap, kept->pages, kept->bytes, 0, 0, 0, 0);
}

/* False where the part stays away, after `to_return`. */
INLINE bool move_both_ways(struct order *order, struct part *part)
{
	struct reserve kept;
	int64_t until;
	long result = reserve(&kept, part), place = map(part->length + 2 * TABLE_SPAN, PROT_NONE, MAP_NORESERVE);
	uint64_t away;

	if (failed(result) || failed(place)) {
		part->away = failed(result) ? -result : -place;
		if (!failed(place))
			call(SYS_munmap, place, part->length + 2 * TABLE_SPAN, 0, 0, 0, 0);
		release(&kept);
		return true;
	}
	/* all others stand still, so the place stays free; one page off, tables cannot be moved as they are */
	call(SYS_munmap, place, part->length + 2 * TABLE_SPAN, 0, 0, 0, 0);
	away = ((place + TABLE_SPAN - 1) & -TABLE_SPAN) + (part->start & (TABLE_SPAN - 1)) + PAGE;
	result = move(part->start, away, part->length);
	if (failed(result)) { /* the kernel has undone it */
		part->away = -result;
		release(&kept);
		return true;
	}
	if (order->gap)
		nap(order->gap);
	release(&kept);
	until = now() + order->to_return;
	while (part->tries < order->refusals || failed(result = move(away, part->start, part->length))) {
		part->tries++;
		if (now() > until) {
			part->back = result < 0 ? -result : ENOMEM;
			order->away_at = away;
			order->outcome = LEFT_AWAY;
			return false;
		}
		nap(RETRY);
	}
	return true;
}

INLINE void move_parts(struct order *order)
{
	long maps = call(SYS_open, (long)order->maps, O_RDONLY | O_CLOEXEC, 0, 0, 0, 0);
	uint64_t mask = 1UL << (order->node & 63);
	long dearest = order->dear;

	if (failed(maps)) {
		order->outcome = NO_THREAD_LIST;
		order->error = -maps;
		return;
	}
	if (order->node >= 0) {
		long result = call(SYS_set_mempolicy, PREFERRED, (long)&mask, 65, 0, 0, 0);

		if (failed(result)) {
			order->outcome = NO_POLICY;
			order->error = -result;
			return;
		}
	}
	for (int i = 0; i < order->count; i++) {
		struct part *part = &order->parts[i];
		long mebibytes = (part->length >> 20) + 1;
		int64_t since = now();

		if (since + dearest * mebibytes > order->until)
			return;
		if (!is_one_area(maps, part)) {
			part->away = EFAULT;
		} else if (!move_both_ways(order, part)) {
			return;
		}
		part->microseconds = now() - since;
		if (part->microseconds / mebibytes + 1 > dearest)
			dearest = part->microseconds / mebibytes + 1;
		order->done = i + 1;
	}
}

/* Whether ptrelocate still finds nothing against it: it sees what a process of this user may not. */
INLINE bool may_go_on(struct order *order)
{
	__atomic_store_n(&order->standing, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&order->leave, __ATOMIC_ACQUIRE) == UNDECIDED && now() < order->until)
		nap(POLL);
	if (order->leave == GO_ON)
		return true;
	order->outcome = FORBIDDEN;
	return false;
}

/* A process that shares the memory, and ends by itself if nobody makes it do something else. It uses no stack. */
INLINE int start_keeper(struct order *order)
{
	register long r10 asm("r10") = 0, r8 asm("r8") = 0, time asm("r12") = (long)&order->patience;
	long result;

	asm volatile("syscall; test %%eax,%%eax; jnz 1f;"
		     "mov %[nanosleep],%%eax; mov %%r12,%%rdi; xor %%esi,%%esi; syscall;"
		     "mov %[exit],%%eax; xor %%edi,%%edi; syscall; 1:"
		     : "=a"(result)
		     : "a"(SYS_clone), "D"(CLONE_VM), "S"((char *)order + CLONE_BYTES / 2), "d"(0), "r"(r10), "r"(r8), "r"(time),
		       [nanosleep] "i"(SYS_nanosleep), [exit] "i"(SYS_exit_group)
		     : "rcx", "r11", "memory");
	return result;
}

INSIDE __attribute__((visibility("hidden"))) void inside_main(struct order *order)
{
	struct held *held = (struct held *)((char *)order + sizeof(*order));

	order->began = now();
	if (!order->count) {
		if (order->gap)
			nap(order->gap);
		order->keeper = start_keeper(order);
	} else if (stop_all(order, held) && may_go_on(order)) {
		order->held = now();
		move_parts(order);
	}
	order->ended = now();
	if (order->outcome == LEFT_AWAY) /* better stopped, its memory whole, than dead */
		call(SYS_kill, call(SYS_getppid, 0, 0, 0, 0, 0, 0), SIGSTOP, 0, 0, 0, 0);
	call(SYS_exit_group, 0, 0, 0, 0, 0, 0);
}
