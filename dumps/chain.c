/* SPDX-License-Identifier: MIT */
/*
 * One thread is borrowed: its registers are set once, to a chain of signal frames that were written below its red zone. Each
 * rt_sigreturn makes one system call and goes on with the next frame: after mmap, copy the code there, clone
 * (CLONE_VM | CLONE_VFORK), unmap, reap, and last what the thread was doing. Nobody of ours is needed from there on: if we
 * are killed, the kernel lets the thread run, and the chain ends by itself. While we live, the result of the first call
 * is looked at, and the rest is passed over if it failed. A thread may read its own memory by process_vm_readv whatever
 * security modules say (__ptrace_may_access(), kernel/ptrace.c); that a kernel has that call is asked before.
 */
#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <linux/elf.h>
#include <time.h>
#include <unistd.h>
#include "chain.h"
#include "output.h"

#define ROOM (24 << 10)    /* of the stack, for the chain and a signal's frame */
#define LONGEST (20 << 10) /* chain */
#define RED_ZONE 128
#define STATE_MOST (16 << 10)
#define TO_STOP 200000      /* microseconds that a thread may take to stop, at most */
#define TO_LET_GO 2000000
#define TO_CHOOSE 2000000   /* until one is found */
#define TO_CALL 1000000     /* until the chain's first calls are made */
#define TO_END 5000000      /* beyond what the order allows */
#define FREE_AROUND (64UL << 20)
#define LOWEST 0x100000000000UL /* the kernel maps nothing there by itself */
#define SPREAD 0x200000000000UL
#define RESTART_SYS 512     /* include/linux/errno.h: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND */
#define RESTART_BLOCK 516
#define FUTEX_WAIT_UNTIL 9  /* FUTEX_WAIT_BITSET: its timeout is a moment, not a time */
#define TILES (3UL << 17)   /* AMX, in a mask of state components */
#define NOT_CLONED 0x7ffffff0
#define RSEQ 0x420f         /* PTRACE_GET_RSEQ_CONFIGURATION */
#define MAGIC1 0x46505853U  /* arch/x86/include/uapi/asm/sigcontext.h */
#define MAGIC2 0x46505845U

extern const char _binary_relocate_clone_bin_start[], _binary_relocate_clone_bin_end[];

#ifdef TESTED /* a build of the tests: dies where it is told to */
#define POINT(number)                                                                   \
	do                                                                              \
		if (getenv("PT_DIE_AT") && atoi(getenv("PT_DIE_AT")) == (number))       \
			kill(getpid(), SIGKILL);                                        \
	while (0)
#else
#define POINT(number)
#endif

/* the kernel's ucontext of x86-64, with rt_sigreturn's return address before it */
struct frame {
	uint64_t return_to, flags, link, stack;
	int32_t stack_flags, padding;
	uint64_t stack_size;
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15, di, si, bp, bx, dx, ax, cx, sp, ip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t error, trap, old_mask, cr2, state, reserved[8], mask;
};
_Static_assert(sizeof(struct frame) == 312, "ucontext");

struct thread {
	pid_t tid;
	struct user_regs_struct registers;
	uint64_t mask, features;
	size_t state_bytes;
	char state[STATE_MOST] __attribute__((aligned(64)));
	int64_t since;
};

enum frames { COPY, CLONE, UNMAP, REAP, FRAMES };

struct layout { /* of the chain in the target's stack, upwards */
	uint64_t frames, vectors, packed, last, state, end, place;
	size_t code, order;
};

int64_t microseconds_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

static void because(struct chain *chain, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void because(struct chain *chain, const char *format, ...)
{
	size_t used = strlen(chain->why);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(chain->why + used, sizeof(chain->why) - used, format, arguments);
	va_end(arguments);
}

static bool area_in_text(const struct process *process, uint64_t address, struct area *area)
{
	char *text = process_read(process, PROCESS_MAPS, NULL);
	const char *at = text;
	struct mapping one = { 0 };
	bool found = false;

	while (!found && next_mapping(&at, &one))
		found = one.end > address;
	area->start = one.start;
	area->end = one.end;
	area->inode = one.inode;
	area->flags = found && one.rights[1] == 'w' ? 2 : 0;
	free(text);
	return found;
}

bool area_at(const struct process *process, uint64_t address, struct area *area)
{
	*area = (struct area){ .size = sizeof(*area), .query = AREA_OR_NEXT, .address = address };
	if (!ioctl(process->files[PROCESS_MAPS], AREA_QUERY, area))
		return true;
	return errno == ENOTTY && area_in_text(process, address, area);
}

/* Of the target, now: exec would have given it other memory than the one whose areas were read. */
static int open_memory(const struct process *process)
{
	return openat(process->directory, "mem", O_RDWR | O_CLOEXEC);
}

static bool code_is(int memory, uint64_t at, const char *code, size_t length)
{
	char found[16];

	return pread(memory, found, length, at) == (ssize_t)length && !memcmp(found, code, length);
}

static const char call_code[] = "\x0f\x05\xc3";
static const char back_code[][10] = { "\x48\xc7\xc0\x0f\0\0\0\x0f\x05", "\xb8\x0f\0\0\0\x0f\x05" };
#define BACK_BYTES(i) ((i) ? 7UL : 9UL)

static bool is_back(int memory, uint64_t at)
{
	return code_is(memory, at, back_code[0], BACK_BYTES(0)) || code_is(memory, at, back_code[1], BACK_BYTES(1));
}

static void find_code_in(struct chain *chain, int memory, uint64_t start, uint64_t end)
{
	static char buffer[1 << 20];

	for (uint64_t at = start; at < end && !(chain->call && chain->back); at += sizeof(buffer) - 16) {
		size_t wanted = end - at < sizeof(buffer) ? end - at : sizeof(buffer);
		ssize_t got = pread(memory, buffer, wanted, at);

		for (ssize_t i = 0; i + 9 <= got; i++) {
			if (!chain->call && !memcmp(buffer + i, call_code, 3))
				chain->call = at + i;
			for (int k = 0; k < 2; k++)
				if (!chain->back && !memcmp(buffer + i, back_code[k], BACK_BYTES(k)))
					chain->back = at + i;
		}
		if (got <= 0)
			return;
	}
}

bool chain_find_code(struct chain *chain, const struct process *process)
{
	int memory = open_memory(process);
	char *text = process_read(process, PROCESS_MAPS, NULL);
	const char *at = text;
	struct mapping area;

	while (memory >= 0 && !(chain->call && chain->back) && next_mapping(&at, &area))
		if (area.rights[0] == 'r' && area.rights[2] == 'x' && area.end < 1UL << 56)
			find_code_in(chain, memory, area.start, area.end);
	free(text);
	if (memory >= 0)
		close(memory);
	return chain->call && chain->back;
}

enum asked { FOR_INTERRUPT, FOR_CALL, FOR_CLONE };

static bool is_asked(int status, enum asked asked)
{
	switch (asked) {
	case FOR_INTERRUPT:
		return status >> 16 == PTRACE_EVENT_STOP;
	case FOR_CALL:
		return WSTOPSIG(status) == (SIGTRAP | 0x80);
	default:
		return status >> 16 == PTRACE_EVENT_VFORK_DONE;
	}
}

/* Until a child's SIGCHLD, which is blocked, or a moment. */
static void wait_a_moment(void)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigtimedwait(&child, NULL, &moment);
}

/*
 * Until the thread stops as asked; signals are passed on, which drops a pending interrupt. NULL, or why it does not.
 * `place` ends the wait for a clone: where that is unmapped, there was none.
 */
static const char *wait_for(pid_t thread, enum asked asked, int64_t until, int memory, uint64_t place)
{
	char byte;

	for (;;) {
		int status;
		pid_t got = waitpid(thread, &status, __WALL | WNOHANG);

		if (got == thread && !WIFSTOPPED(status))
			return "has ended";
		if (got < 0)
			return "is gone";
		if (!got) {
			if (microseconds_now() > until)
				return "does not stop";
			if (asked == FOR_CLONE && pread(memory, &byte, 1, place) != 1)
				return "could not be cloned (a limit of processes)";
			wait_a_moment();
			continue;
		}
		if (is_asked(status, asked))
			return asked != FOR_INTERRUPT || WSTOPSIG(status) == SIGTRAP ? NULL : "is stopped by a signal";
		if (ptrace(asked == FOR_CALL ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, status >> 16 ? 0 : WSTOPSIG(status)))
			return "is gone";
		if (asked == FOR_INTERRUPT)
			ptrace(PTRACE_INTERRUPT, thread, 0, 0);
	}
}

/* A thread that does not stop cannot be detached but by our end. */
static void let_go(const struct process *process, pid_t thread)
{
	const char *why;

	if (!ptrace(PTRACE_DETACH, thread, 0, 0))
		return;
	ptrace(PTRACE_INTERRUPT, thread, 0, 0);
	why = wait_for(thread, FOR_INTERRUPT, microseconds_now() + TO_LET_GO, -1, 0);
	if (!ptrace(PTRACE_DETACH, thread, 0, 0) || !why || strcmp(why, "does not stop"))
		return;
	fail(EXIT_PARTIAL, "PID %d: thread %d has not stopped for %d s: it waits for a child of vfork, or for a device; it goes on",
	     process->pid, thread, TO_LET_GO / 1000000);
}

static bool in_restartable_sequence(pid_t thread, int memory, uint64_t ip)
{
	struct {
		uint64_t address;
		uint32_t size, signature, flags, padding;
	} where = { 0 };
	uint64_t section = 0, is[4] = { 0 };

	return ptrace(RSEQ, thread, sizeof(where), &where) > 0 && where.address &&
	       pread(memory, &section, 8, where.address + 8) == 8 && section &&
	       pread(memory, is, sizeof(is), section) == sizeof(is) && ip - is[1] < is[2];
}

/* Vector registers as a signal frame holds them: without AMX, whose room the frame has only once it was used. */
static const char *take_state(struct thread *thread)
{
	struct iovec vector = { thread->state, sizeof(thread->state) };
	uint64_t in_use;
	unsigned a, b, c, d;

	if (ptrace(PTRACE_GETREGSET, thread->tid, NT_X86_XSTATE, &vector) || vector.iov_len < 576)
		return "has registers unknown to us";
	memcpy(&thread->features, thread->state + 464, 8);
	memcpy(&in_use, thread->state + 512, 8);
	if (in_use & TILES)
		return "uses AMX";
	thread->features &= ~TILES;
	thread->state_bytes = 576;
	for (int i = 2; i < 63; i++) {
		if (!(thread->features >> i & 1) || !__get_cpuid_count(0xd, i, &a, &b, &c, &d) || !a)
			continue;
		if (a + b > thread->state_bytes)
			thread->state_bytes = a + b;
	}
	if (thread->state_bytes > vector.iov_len || thread->state_bytes > LONGEST / 3)
		return "has registers unknown to us";
	return NULL;
}

/* A system call that was interrupted begins again; one with a relative timeout cannot (`cut`: ends with EINTR). */
static const char *resume_call(struct user_regs_struct *registers, bool cut)
{
	long result = (long)registers->rax;

	if ((long)registers->orig_rax < 0)
		return NULL;
	if (result == -RESTART_BLOCK) {
		if (registers->orig_rax != SYS_futex || (registers->rsi & 0x7f) != FUTEX_WAIT_UNTIL) {
			if (!cut)
				return "waits for a time";
			registers->rax = -EINTR;
			return NULL;
		}
	} else if (result > -RESTART_SYS || result < -RESTART_SYS - 2) {
		return NULL;
	}
	registers->rax = registers->orig_rax;
	registers->rip -= 2;
	return NULL;
}

static const char *unfit(struct chain *chain, const struct process *process, struct thread *thread, int memory, bool cut)
{
	struct user_regs_struct *registers = &thread->registers;
	struct area stack;
	const char *why;

	if (ptrace(PTRACE_GETREGS, thread->tid, 0, registers) ||
	    ptrace(PTRACE_GETSIGMASK, thread->tid, 8, &thread->mask))
		return "is gone";
	if (registers->cs != 0x33)
		return "runs 32-bit code";
	if (!code_is(memory, chain->call, call_code, 3) || !is_back(memory, chain->back))
		return "has called exec";
	if (in_restartable_sequence(thread->tid, memory, registers->rip))
		return "is in a restartable sequence";
	if (!area_at(process, registers->rsp, &stack) || stack.start > registers->rsp || !(stack.flags & 2) ||
	    registers->rsp - stack.start < ROOM)
		return "has too little stack";
	if (!(stack.start <= chain->main_stack && chain->main_stack < stack.end) &&
	    !(stack.start <= registers->fs_base && registers->fs_base < stack.end &&
	      registers->rsp < registers->fs_base))
		return "is not on its own stack";
	if ((why = take_state(thread)))
		return why;
	return resume_call(registers, cut);
}

/* What makes every system call of a thread something else than we think. */
static const char *filtered(const struct process *process, pid_t tid)
{
	char *status = thread_text(process, tid, "status"), *line;
	const char *why = NULL;

	if (!status)
		return "is gone";
	if ((line = strstr(status, "\nSeccomp:\t")) && line[10] != '0')
		why = "has a seccomp filter";
	else if ((line = strstr(status, "\nx86_Thread_features:\t")) &&
		 memmem(line, strcspn(line + 1, "\n"), "shstk", 5))
		why = "has a shadow stack";
	free(status);
	return why;
}

static const char *try_thread(struct chain *chain, const struct process *process, struct thread *thread, int *memory,
			      bool cut)
{
	const char *why = filtered(process, thread->tid);

	if (why)
		return why;
	if (ptrace(PTRACE_SEIZE, thread->tid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEVFORKDONE))
		return errno == ESRCH ? "is gone" : "may not be traced";
	POINT(1);
	ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0);
	POINT(2);
	why = wait_for(thread->tid, FOR_INTERRUPT, microseconds_now() + TO_STOP, -1, 0);
	thread->since = microseconds_now();
	if (!why && (*memory = open_memory(process)) < 0)
		why = "has memory that we may not write";
	if (!why && (why = unfit(chain, process, thread, *memory, cut)))
		close(*memory);
	if (why)
		let_go(process, thread->tid);
	return why;
}

static size_t list_threads(const struct process *process, pid_t *threads)
{
	int file = openat(process->directory, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = file < 0 ? NULL : fdopendir(file);
	struct dirent *entry;
	size_t count = 0;

	while (list && (entry = readdir(list)) && count < MOST_THREADS)
		if (atoi(entry->d_name) > 0)
			threads[count++] = atoi(entry->d_name);
	if (list)
		closedir(list);
	return count;
}

/* Threads that wait for a time only where there is no other. */
static bool choose(struct chain *chain, const struct process *process, struct thread *thread, int *memory)
{
	static pid_t threads[MOST_THREADS];
	size_t count = list_threads(process, threads), first = count ? rand_r(&chain->seed) % count : 0;
	int64_t until = microseconds_now() + TO_CHOOSE;

	chain->why[0] = 0;
	for (int cut = 0; cut < 2; cut++)
		for (size_t i = 0; i < count && microseconds_now() < until; i++) {
			const char *why;

			thread->tid = threads[(first + i) % count];
			why = try_thread(chain, process, thread, memory, cut);
			if (!why) {
				chain->interrupted += cut;
				return true;
			}
			if (!cut && i < 6)
				because(chain, "%sthread %d %s", i ? ", " : "", thread->tid, why);
		}
	if (!count)
		because(chain, "it has ended");
	return false;
}

static struct frame calling(const struct chain *chain, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
			    uint64_t e, uint64_t f, uint64_t next)
{
	return (struct frame){
		.return_to = chain->back,
		.flags = 6,             /* UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS */
		.stack_flags = 0x7770,  /* not valid, so its alternate stack stays as it is */
		.mask = ~0UL, .cs = 0x33, .ss = 0x2b, .eflags = 0x202,
		.ip = chain->call, .ax = number, .di = a, .si = b, .dx = c, .r10 = d, .r8 = e, .r9 = f, .sp = next,
	};
}

static struct frame as_it_was(const struct chain *chain, const struct thread *thread, uint64_t state)
{
	const struct user_regs_struct *r = &thread->registers;

	return (struct frame){
		.return_to = chain->back, .flags = 7, .stack_flags = 0x7770, .mask = thread->mask, .state = state,
		.r8 = r->r8, .r9 = r->r9, .r10 = r->r10, .r11 = r->r11, .r12 = r->r12, .r13 = r->r13, .r14 = r->r14,
		.r15 = r->r15, .di = r->rdi, .si = r->rsi, .bp = r->rbp, .bx = r->rbx, .dx = r->rdx, .ax = r->rax,
		.cx = r->rcx, .sp = r->rsp, .ip = r->rip, .eflags = r->eflags, .cs = r->cs, .ss = r->ss, .fs = r->fs,
		.gs = r->gs,
	};
}

static uint64_t frame_at(const struct layout *layout, int number)
{
	return layout->frames + number * sizeof(struct frame);
}

/* A free place far from all others; 0: none was found, so the process is gone. */
static uint64_t free_place(struct chain *chain, const struct process *process)
{
	struct area next;

	for (int i = 0; i < 100; i++) {
		uint64_t random = (uint64_t)rand_r(&chain->seed) << 31 ^ (uint64_t)rand_r(&chain->seed);
		uint64_t place = LOWEST + (random << 12) % SPREAD;

		if (area_at(process, place - FREE_AROUND, &next) && next.start > place + FREE_AROUND)
			return place;
	}
	return 0;
}

static bool lay_out(struct layout *layout, const struct thread *thread, const struct order *order)
{
	uint64_t top = thread->registers.rsp - RED_ZONE;

	layout->code = _binary_relocate_clone_bin_end - _binary_relocate_clone_bin_start;
	layout->order = ORDER_BYTES(order->count);
	layout->state = (top - thread->state_bytes - 4) & ~63UL;
	layout->end = layout->state + thread->state_bytes + 4;
	layout->last = (layout->state - sizeof(struct frame)) & ~15UL;
	layout->packed = (layout->last - layout->code - 8 - layout->order) & ~15UL;
	layout->vectors = layout->packed - 3 * sizeof(struct iovec);
	layout->frames = (layout->vectors - FRAMES * sizeof(struct frame)) & ~15UL;
	return layout->code <= CODE_MOST && thread->registers.rsp - layout->frames <= LONGEST;
}

/* The clone starts at `call`, whose `ret` takes the code's address from its stack: the word before the order. */
static bool write_chain(const struct chain *chain, const struct thread *thread, const struct order *order, int memory,
			const struct layout *at)
{
	static char image[LONGEST];
	size_t bytes = at->end - at->frames;
	uint64_t base = at->frames, stack = at->place + CODE_MOST;
	struct iovec vectors[3] = {
		{ (void *)at->place, at->code },
		{ (void *)stack, 8 + at->order },
		{ (void *)at->packed, at->code + 8 + at->order },
	};
	struct frame frames[FRAMES], last = as_it_was(chain, thread, at->state);
	uint32_t words[2] = { MAGIC1, thread->state_bytes + 4 };
	uint32_t size = thread->state_bytes, end = MAGIC2;
	char *state;

	frames[COPY] = calling(chain, SYS_process_vm_readv, chain->own, at->vectors, 2,
			       at->vectors + 2 * sizeof(struct iovec), 1, 0, frame_at(at, CLONE));
	/* the clone's number is put where frame REAP has its first argument */
	frames[CLONE] = calling(chain, SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID, stack,
				frame_at(at, REAP) + offsetof(struct frame, di), 0, 0, 0, frame_at(at, UNMAP));
	frames[UNMAP] = calling(chain, SYS_munmap, at->place, MAPPED, 0, 0, 0, 0, frame_at(at, REAP));
	frames[REAP] = calling(chain, SYS_wait4, NOT_CLONED, 0, __WALL, 0, 0, 0, at->last);
	memset(image, 0, bytes);
	memcpy(image, frames, sizeof(frames));
	memcpy(image + (at->vectors - base), vectors, sizeof(vectors));
	memcpy(image + (at->packed - base), _binary_relocate_clone_bin_start, at->code);
	memcpy(image + (at->packed - base) + at->code, &at->place, 8);
	memcpy(image + (at->packed - base) + at->code + 8, order, at->order);
	memcpy(image + (at->last - base), &last, sizeof(last));
	state = image + (at->state - base);
	memcpy(state, thread->state, thread->state_bytes);
	memcpy(state + 464, words, sizeof(words));
	memcpy(state + 472, &thread->features, 8);
	memcpy(state + 480, &size, 4);
	memcpy(state + thread->state_bytes, &end, 4);
	return pwrite(memory, image, bytes, base) == (ssize_t)bytes;
}

/* The chain's first call, which returns to frame COPY. */
static int begin(const struct chain *chain, const struct thread *thread, const struct layout *at)
{
	struct user_regs_struct registers = thread->registers;

	registers.rip = chain->call;
	registers.rsp = frame_at(at, COPY);
	registers.orig_rax = -1;
	registers.rax = SYS_mmap;
	registers.rdi = at->place;
	registers.rsi = MAPPED;
	registers.rdx = PROT_READ | PROT_WRITE | PROT_EXEC;
	registers.r10 = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	registers.r8 = -1;
	registers.r9 = 0;
	registers.eflags &= ~0x500UL; /* direction, trap */
	return ptrace(PTRACE_SETREGS, thread->tid, 0, &registers);
}

/* The rest is passed over, but for this frame and what follows it. */
static int go_to(const struct chain *chain, const struct thread *thread, uint64_t frame)
{
	struct user_regs_struct registers = thread->registers;

	registers.rip = chain->back;
	registers.rsp = frame + 8;
	registers.orig_rax = -1;
	registers.rax = 0;
	registers.eflags &= ~0x500UL; /* direction, trap */
	return ptrace(PTRACE_SETREGS, thread->tid, 0, &registers);
}

/* Until the chain has made a call; its result, or LONG_MIN and why it has not. */
static long result_of(struct chain *chain, const struct thread *thread, long number, uint64_t first, int64_t until)
{
	for (;;) {
		struct user_regs_struct registers;
		struct __ptrace_syscall_info info;
		const char *why;

		if (ptrace(PTRACE_SYSCALL, thread->tid, 0, 0))
			why = "is gone";
		else
			why = wait_for(thread->tid, FOR_CALL, until, -1, 0);
		if (why) {
			because(chain, "thread %d %s in the chain", thread->tid, why);
			return LONG_MIN;
		}
		if (ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, sizeof(info), &info) > 0 &&
		    info.op == PTRACE_SYSCALL_INFO_EXIT && !ptrace(PTRACE_GETREGS, thread->tid, 0, &registers) &&
		    (long)registers.orig_rax == number && registers.rdi == first && registers.rip == chain->call + 2)
			return (long)registers.rax;
	}
}

/* What a clone answered is the target's word: it is only shown. */
static void read_answer(int memory, uint64_t at, struct order *order)
{
	struct order answer = *order;
	bool whole = pread(memory, &answer, ORDER_BYTES(order->count), at) == (ssize_t)ORDER_BYTES(order->count);

	if (!whole || answer.done < 0 || answer.done > order->count || answer.outcome < 0 ||
	    answer.outcome > LEFT_AWAY) {
		order->outcome = NO_THREAD_LIST;
		order->error = EIO;
		return;
	}
	for (int i = 0; i < order->count; i++) {
		answer.parts[i].start = order->parts[i].start;
		answer.parts[i].length = order->parts[i].length;
	}
	answer.count = order->count;
	*order = answer;
}

/* The chain goes on by itself; its memory is gone when it is nearly over. */
static void wait_for_end(int memory, uint64_t place)
{
	char byte;

	for (int i = 0; i < 2000 && pread(memory, &byte, 1, place) == 1; i++)
		usleep(100);
}

static void hurry(pid_t who, int policy)
{
	struct sched_param priority = { .sched_priority = policy == SCHED_OTHER ? 0 : 1 };

	sched_setscheduler(who, policy, &priority);
}

/* The number was read from the target's memory: only a child of its own gets our priority. */
static bool is_child(const struct process *process, pid_t child)
{
	char path[64], text[512] = "", *name;
	int parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", child);
	file = fopen(path, "r");
	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	name = strrchr(text, ')');
	return name && sscanf(name + 1, " %*c %d", &parent) == 1 && parent == process->pid;
}

/* The clone cannot be reaped, nor its number reused, before the borrowed thread goes on, which waits for us then. */
static void hurry_clone(const struct chain *chain, const struct process *process, int memory, const struct layout *at)
{
	int32_t clone = NOT_CLONED;

	if (chain->own != process->pid) /* numbers in another namespace are not ours */
		return;
	for (int i = 0; i < 100 && clone == NOT_CLONED; i++)
		if (pread(memory, &clone, sizeof(clone), frame_at(at, REAP) + offsetof(struct frame, di)) != sizeof(clone))
			return;
	if (clone != NOT_CLONED && clone > 1 && is_child(process, clone))
		hurry(clone, SCHED_FIFO);
}

static enum stop_result follow(struct chain *chain, const struct process *process, const struct thread *thread, struct order *order, int memory,
			       const struct layout *at)
{
	int64_t now = microseconds_now();
	const char *why;
	long result = result_of(chain, thread, SYS_mmap, at->place, now + TO_CALL);

	if (result == LONG_MIN)
		return NO_CLONE;
	POINT(6);
	if (result != (long)at->place) {
		because(chain, "mmap in it: %s", strerror(-result));
		go_to(chain, thread, at->last);
		return NO_CLONE;
	}
	if (ptrace(PTRACE_CONT, thread->tid, 0, 0))
		why = "is gone";
	else {
		POINT(7);
		hurry_clone(chain, process, memory, at);
		why = wait_for(thread->tid, FOR_CLONE, now + order->most + order->to_stop + order->to_return + TO_END,
			       memory, at->place);
	}
	POINT(8);
	if (why) {
		because(chain, "thread %d %s", thread->tid, why);
		return NO_CLONE;
	}
	read_answer(memory, at->place + CODE_MOST + 8, order);
	return CARRIED_OUT;
}

enum stop_result chain_carry_out(struct chain *chain, const struct process *process, struct order *order, int64_t until)
{
	static struct thread thread;
	struct layout layout = { 0 };
	enum stop_result result = NO_THREAD;
	char *status;
	int memory = -1;

	hurry(0, SCHED_FIFO);
	if (!choose(chain, process, &thread, &memory)) {
		hurry(0, SCHED_OTHER);
		return NO_THREAD;
	}
	POINT(3);
	chain->why[0] = 0;
	status = thread_text(process, thread.tid, "status");
	order->waiting = status ? number_in_own_namespace(status) : 0;
	free(status);
	until += thread.since;
	order->most = until > microseconds_now() ? until - microseconds_now() : 0;
	layout.place = free_place(chain, process);
	if (!order->waiting || !layout.place)
		because(chain, "thread %d is gone", thread.tid);
	else if (!lay_out(&layout, &thread, order))
		because(chain, "the chain does not fit below thread %d's stack", thread.tid);
	else if (!write_chain(chain, &thread, order, memory, &layout))
		because(chain, "thread %d's stack cannot be written", thread.tid);
	else {
		POINT(4);
		if (begin(chain, &thread, &layout))
			because(chain, "thread %d is gone", thread.tid);
		else {
			POINT(5);
			result = follow(chain, process, &thread, order, memory, &layout);
		}
	}
	let_go(process, thread.tid);
	chain->held = microseconds_now() - thread.since;
	hurry(0, SCHED_OTHER);
	POINT(9);
	wait_for_end(memory, layout.place);
	close(memory);
	return result;
}
