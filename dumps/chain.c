/* SPDX-License-Identifier: MIT */
/*
 * One thread is borrowed, and nothing of its memory: code, stack and all else lie in a System V segment that we fill and it
 * attaches. Its registers are set once: to shmat, whose return finds a chain of signal frames where the segment is by then.
 * Each rt_sigreturn makes one system call and goes on with the next frame: clone (CLONE_VM | CLONE_VFORK), reap, take the
 * segment's name away, unmap all but the chain's own end, and last what the thread was doing. Nobody of ours is needed from
 * there on: if we are killed, the kernel lets the thread run, and the chain ends by itself; 12 KiB of the segment stay
 * mapped then. While we live, the next chain unmaps them, and the last ones a process that is made for that alone, for
 * nobody can unmap what he returns from: chain_unmap().
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
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <linux/elf.h>
#include <time.h>
#include <unistd.h>
#include "chain.h"
#include "output.h"

#define STATE_MOST (16 << 10)
#define TO_STOP 200000      /* microseconds that a thread may take to stop, at most */
#define TO_LET_GO 2000000
#define TO_CHOOSE 2000000   /* until one is found */
#define TO_CALL 1000000     /* until the chain's first calls are made */
#define TO_END 5000000      /* beyond what the order allows */
#define KEEPER_WAITS 1      /* second for us to make it unmap the segment */
#define FREE_AROUND (64UL << 20)
#define LOWEST 0x100000000000UL /* the kernel maps nothing there by itself */
#define SPREAD 0x200000000000UL
#define RESTART_SYS 512     /* include/linux/errno.h: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND */
#define RESTART_BLOCK 516
#define FUTEX_WAIT_UNTIL 9  /* FUTEX_WAIT_BITSET: its timeout is a moment, not a time */
#define TILES (3UL << 17)   /* AMX, in a mask of state components */
#define NOT_CLONED 0x7ffffff0
#define KCMP_VM 1
#define RSEQ 0x420f         /* PTRACE_GET_RSEQ_CONFIGURATION */
#define DISPATCH 0x4211     /* PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, since Linux 6.4 */
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
	struct priority {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t real_time;
		uint64_t runtime, deadline, period;
		uint32_t least, most;
	} priority; /* struct sched_attr */
	bool hurried;
	uint64_t mask, features;
	size_t state_bytes, state_all;
	char state[STATE_MOST] __attribute__((aligned(64)));
	int64_t since;
};

enum frames { CLONE, REAP, FORGET, DROP, UNMAP, CALM, LAST, FRAMES };

struct end { /* of the segment, from CLONE_BYTES on: all of it is what a chain returns from */
	struct frame frames[FRAMES];
	struct priority priority;
	char state[] __attribute__((aligned(64)));
};

int64_t microseconds_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

void because(struct chain *chain, const char *format, ...)
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

enum asked { FOR_INTERRUPT, FOR_CALL };

static bool is_asked(int status, enum asked asked)
{
	return asked == FOR_CALL ? WSTOPSIG(status) == (SIGTRAP | 0x80) : status >> 16 == PTRACE_EVENT_STOP;
}

static struct order *order_of(const struct chain *chain)
{
	return (struct order *)(chain->shared + CODE_MOST + 8);
}

/* As we see them: the clone's /proc may be that of another PID namespace, where its threads are others or none. */
static bool all_stand_still(struct chain *chain, const struct process *process, pid_t borrowed, int64_t until)
{
	int file = openat(process->directory, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *threads = file < 0 ? NULL : fdopendir(file);
	struct dirent *entry;
	bool all = threads;

	while (all && (entry = readdir(threads))) {
		pid_t thread = atoi(entry->d_name);
		char *text = thread > 0 && thread != borrowed ? thread_text(process, thread, "stat") : NULL;
		char *name_end = text ? strrchr(text, ')') : NULL;

		all = !name_end || strchr("tZX", name_end[2]);
		free(text);
		chain->unseen |= !all;
		if (microseconds_now() > until) {
			because(chain, "there was no time to look whether all threads stand still");
			all = false;
		}
	}
	if (threads)
		closedir(threads);
	return all;
}

/* The clone waits for an answer while all others stand still. */
static void answer(struct chain *chain, const struct process *process, pid_t borrowed)
{
	struct order *order = order_of(chain);
	bool may;

	if (!__atomic_load_n(&order->standing, __ATOMIC_ACQUIRE) || order->leave != UNDECIDED)
		return;
	may = all_stand_still(chain, process, borrowed, order->until) && chain->may(chain, process, order->until);
	__atomic_store_n(&order->leave, may ? GO_ON : GIVE_UP, __ATOMIC_RELEASE);
}

/* Until a child's SIGCHLD, which is blocked, or a moment. */
static void wait_a_moment(long nanoseconds)
{
	struct timespec moment = { .tv_nsec = nanoseconds };
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigtimedwait(&child, NULL, &moment);
}

static int64_t seen_running; /* the moment before the last look at a thread that had not stopped */

/* Until the thread stops as asked; signals are passed on, which drops a pending interrupt. NULL, or why it does not. */
static const char *wait_for(pid_t thread, enum asked asked, int64_t until, struct chain *chain, const struct process *process)
{
	for (;;) {
		int64_t now = microseconds_now();
		int status;
		pid_t got = waitpid(thread, &status, __WALL | WNOHANG);

		if (got == thread && !WIFSTOPPED(status))
			return "has ended";
		if (got < 0)
			return "is gone";
		if (!got) {
			seen_running = now;
			if (now > until)
				return "does not stop";
			if (chain)
				answer(chain, process, thread);
			wait_a_moment(chain && order_of(chain)->leave == UNDECIDED ? 20000 : asked == FOR_INTERRUPT ? 100000 : 1000000);
			continue;
		}
		if (is_asked(status, asked))
			return asked != FOR_INTERRUPT || WSTOPSIG(status) == SIGTRAP ? NULL : "is stopped by a signal";
		if (asked == FOR_CALL && status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP)
			return "is stopped by a signal";
		if (ptrace(asked == FOR_CALL ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, status >> 16 ? 0 : WSTOPSIG(status)))
			return "is gone";
		if (asked == FOR_INTERRUPT)
			ptrace(PTRACE_INTERRUPT, thread, 0, 0);
	}
}

/* A thread that does not stop cannot be detached but by our end. The moment from which on it may have stood still. */
static int64_t let_go(const struct process *process, pid_t thread, int64_t since)
{
	const char *why;

	if (!ptrace(PTRACE_DETACH, thread, 0, 0))
		return since;
	ptrace(PTRACE_INTERRUPT, thread, 0, 0);
	why = wait_for(thread, FOR_INTERRUPT, microseconds_now() + TO_LET_GO, NULL, NULL);
	if (!ptrace(PTRACE_DETACH, thread, 0, 0) || !why || strcmp(why, "does not stop"))
		return seen_running;
	fail(EXIT_PARTIAL, "PID %d: thread %d has not stopped for %d s: it waits for a child of vfork, or for a device; it goes on",
	     process->pid, thread, TO_LET_GO / 1000000);
}

static void release(struct chain *chain, const struct process *process, const struct thread *thread)
{
	int64_t since = let_go(process, thread->tid, thread->since);

	chain->held = microseconds_now() - since;
	chain->longest_held = chain->held > chain->longest_held ? chain->held : chain->longest_held;
	chain->late += chain->most && chain->held > chain->most;
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

/* A call of ours would be none then, but a SIGSYS that we have blocked, which kills. Linux 5.11 to 6.3 do not tell. */
static bool dispatches_calls(pid_t thread)
{
	struct {
		uint64_t mode, selector, offset, length;
	} how = { 0 };

	return !ptrace(DISPATCH, thread, sizeof(how), &how) && how.mode;
}

/* Vector registers as a signal frame holds them: without AMX, whose room the frame has only once it was used. */
static const char *take_state(struct thread *thread)
{
	struct iovec vector = { thread->state, sizeof(thread->state) };
	uint64_t in_use;
	unsigned a, b, c, d;

	if (ptrace(PTRACE_GETREGSET, thread->tid, NT_X86_XSTATE, &vector) || vector.iov_len < 576)
		return "has registers unknown to us";
	thread->state_all = vector.iov_len;
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
	if (thread->state_bytes > vector.iov_len || offsetof(struct end, state) + thread->state_bytes + 4 > CHAIN_BYTES)
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

static const char *unfit(const struct chain *chain, struct thread *thread, int memory, bool cut)
{
	struct user_regs_struct *registers = &thread->registers;
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
	if (dispatches_calls(thread->tid))
		return "has syscall user dispatch";
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

static const char *try_thread(struct chain *chain, const struct process *process, struct thread *thread, bool cut)
{
	const char *why = filtered(process, thread->tid);
	int memory = -1;

	if (why)
		return why;
	if (ptrace(PTRACE_SEIZE, thread->tid, 0, PTRACE_O_TRACESYSGOOD))
		return errno == ESRCH ? "is gone" : "may not be traced";
	POINT(1);
	seen_running = microseconds_now();
	ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0);
	POINT(2);
	why = wait_for(thread->tid, FOR_INTERRUPT, seen_running + TO_STOP, NULL, NULL);
	thread->since = seen_running;
	if (!why && (memory = open_memory(process)) < 0)
		why = "has memory that we may not read";
	if (!why)
		why = unfit(chain, thread, memory, cut);
	if (!why) /* another thread may have changed that meanwhile */
		why = filtered(process, thread->tid);
	if (memory >= 0)
		close(memory);
	if (why)
		release(chain, process, thread);
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
static bool choose(struct chain *chain, const struct process *process, struct thread *thread)
{
	static pid_t threads[MOST_THREADS];
	size_t count = list_threads(process, threads), first = count ? rand_r(&chain->seed) % count : 0;
	int64_t until = microseconds_now() + TO_CHOOSE;

	chain->why[0] = 0;
	for (int cut = 0; cut < 2; cut++)
		for (size_t i = 0; i < count && microseconds_now() < until; i++) {
			const char *why;

			thread->tid = threads[(first + i) % count];
			why = try_thread(chain, process, thread, cut);
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

static uint64_t in_place(uint64_t place, size_t offset)
{
	return place + CLONE_BYTES + offset;
}

/* The clone starts at `call`, whose `ret` takes the code's address from its stack: the word before the order. */
static void write_chain(const struct chain *chain, const struct thread *thread, uint64_t place)
{
	struct end *end = (struct end *)(chain->shared + CLONE_BYTES);
	uint64_t stack = place + CODE_MOST, clone = in_place(place, offsetof(struct end, frames[REAP].di));
	uint32_t words[2] = { MAGIC1, thread->state_bytes + 4 };
	uint32_t size = thread->state_bytes, after = MAGIC2;
#define NEXT(frame) in_place(place, offsetof(struct end, frames[frame]))

	memcpy(chain->shared + CODE_MOST, &place, 8);
	/* the clone's number is put where frame REAP has its first argument */
	end->frames[CLONE] = calling(chain, SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID, stack, clone, 0, 0, 0,
				     NEXT(REAP));
	end->frames[REAP] = calling(chain, SYS_wait4, NOT_CLONED, 0, __WALL, 0, 0, 0, NEXT(chain->place ? DROP : FORGET));
	end->frames[FORGET] = calling(chain, SYS_shmctl, chain->segment, IPC_RMID, 0, 0, 0, 0, NEXT(UNMAP));
	end->frames[DROP] = calling(chain, SYS_munmap, chain->place, SHARED_BYTES, 0, 0, 0, 0, NEXT(UNMAP));
	/* a keeper needs it all, and unmaps it */
	end->frames[UNMAP] = calling(chain, SYS_munmap, place, order_of(chain)->count ? CLONE_BYTES : 0, 0, 0, 0, 0, NEXT(CALM));
	end->frames[CALM] = calling(chain, SYS_sched_setattr, 0, in_place(place, offsetof(struct end, priority)), 0, 0, 0, 0,
				    NEXT(LAST));
	end->frames[LAST] = as_it_was(chain, thread, in_place(place, offsetof(struct end, state)));
	end->priority = thread->priority;
	memcpy(end->state, thread->state, thread->state_bytes);
	memcpy(end->state + 464, words, sizeof(words));
	memcpy(end->state + 472, &thread->features, 8);
	memcpy(end->state + 480, &size, 4);
	memcpy(end->state + thread->state_bytes, &after, 4);
#undef NEXT
}

/* A system call of a thread that is stopped, which returns to `stack`. */
static int set_call(const struct chain *chain, pid_t tid, struct user_regs_struct registers, long number, uint64_t a,
		    uint64_t b, uint64_t c, uint64_t stack)
{
	registers.rip = chain->call;
	registers.rsp = stack;
	registers.orig_rax = -1;
	registers.rax = number;
	registers.rdi = a;
	registers.rsi = b;
	registers.rdx = c;
	registers.eflags &= ~0x500UL; /* direction, trap */
	return ptrace(PTRACE_SETREGS, tid, 0, &registers);
}

/* Until a thread has made another call; NULL, or why it has not. */
static const char *to_next_exit(struct chain *chain, const struct process *process, pid_t tid,
				struct user_regs_struct *registers, int64_t until)
{
	for (;;) {
		struct __ptrace_syscall_info info;
		const char *why = "is gone";

		if (ptrace(PTRACE_SYSCALL, tid, 0, 0) || (why = wait_for(tid, FOR_CALL, until, chain, process)))
			return why;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 && info.op == PTRACE_SYSCALL_INFO_EXIT &&
		    !ptrace(PTRACE_GETREGS, tid, 0, registers))
			return NULL;
	}
}

/* The result of a call of the chain, or LONG_MIN and why it was not made. */
static long result_of(struct chain *chain, const struct process *process, const struct thread *thread, long number,
		      int64_t until)
{
	struct user_regs_struct registers;
	const char *why;

	while (!(why = to_next_exit(chain, process, thread->tid, &registers, until)))
		if ((long)registers.orig_rax == number)
			return (long)registers.rax;
	because(chain, "thread %d %s in the chain", thread->tid, why);
	return LONG_MIN;
}

/* What a clone answered is the target's word: it is only shown. */
static void read_answer(const struct chain *chain, struct order *order)
{
	struct order answer = *order_of(chain);

	if (answer.done < 0 || answer.done > order->count || answer.outcome < 0 || answer.outcome > LEFT_AWAY) {
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

/* Nothing else is held up by a thread at real-time priority than for a chain's length: its end undoes that. */
static void hurry(struct thread *thread, bool hurried)
{
	struct sched_param first = { .sched_priority = 1 };

	if (hurried && !sched_setscheduler(thread->tid, SCHED_FIFO, &first))
		return;
	if (thread->hurried)
		syscall(SYS_sched_setattr, thread->tid, &thread->priority, 0);
}

/* While a thread is traced and stopped, its number is its own. */
static void read_priority(struct thread *thread)
{
	thread->hurried = !syscall(SYS_sched_getattr, thread->tid, &thread->priority, sizeof(thread->priority), 0) &&
			  thread->priority.policy == SCHED_OTHER && !thread->priority.flags;
}

/* A call of a frame at once, without the sigreturn to it. */
static const char *make_call(struct chain *chain, const struct process *process, pid_t tid, const struct frame *frame,
			     int64_t until)
{
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, tid, 0, &registers))
		return "is gone";
	registers.r10 = frame->r10;
	registers.r8 = frame->r8;
	registers.r9 = frame->r9;
	if (set_call(chain, tid, registers, frame->ax, frame->di, frame->si, frame->dx, frame->sp))
		return "is gone";
	return to_next_exit(chain, process, tid, &registers, until);
}

/*
 * Once all is done, the thread gets back what the chain's end would give it, without having to wait for a CPU: a busy machine has
 * it wait long at its own priority. The registers come last, so the chain ends by itself if we die before.
 */
static bool follow_to_end(struct chain *chain, const struct process *process, struct thread *thread)
{
	const struct frame *frames = ((struct end *)(chain->shared + CLONE_BYTES))->frames;
	const enum frames calls[] = { REAP, chain->place ? DROP : FORGET, UNMAP };
	struct iovec state = { thread->state, thread->state_all };
	const char *why = NULL;
	int64_t until = microseconds_now() + TO_END;

	for (int i = 0; i < 3 && !why; i++)
		why = make_call(chain, process, thread->tid, &frames[calls[i]], until);
	hurry(thread, false);
	thread->registers.orig_rax = -1;
	if (!why && (ptrace(PTRACE_SETREGSET, thread->tid, NT_X86_XSTATE, &state) ||
		     ptrace(PTRACE_SETSIGMASK, thread->tid, 8, &thread->mask) ||
		     ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->registers)))
		why = "is gone";
	if (why)
		because(chain, "thread %d %s in the chain", thread->tid, why);
	return !why;
}

/* Regains what the thread had before it was set to its chain. */
static bool take_back(struct thread *thread)
{
	thread->registers.orig_rax = -1;
	hurry(thread, false);
	return !ptrace(PTRACE_SETREGS, thread->tid, 0, &thread->registers) &&
	       !ptrace(PTRACE_SETSIGMASK, thread->tid, 8, &thread->mask);
}

/* The thread goes through its chain without us, sooner or later: no other chain is written there. */
static void leave_segment(struct chain *chain)
{
	shmdt(chain->shared);
	chain->shared = NULL;
	chain->place = 0; /* it is not known how far the chain has come */
}

/*
 * It has not run since it was set, as in a frozen control group: it is taken back. If it does not stop for that, or has begun,
 * the segment is left with its name, which its chain takes away, unless the thread has ended.
 */
static void give_up(struct chain *chain, struct thread *thread, uint64_t place)
{
	struct user_regs_struct registers;
	const char *why;

	ptrace(PTRACE_INTERRUPT, thread->tid, 0, 0);
	why = wait_for(thread->tid, FOR_INTERRUPT, microseconds_now() + TO_LET_GO, NULL, NULL);
	if (why || ptrace(PTRACE_GETREGS, thread->tid, 0, &registers) || registers.rip != chain->call ||
	    registers.rsp != in_place(place, offsetof(struct end, frames[CLONE])) || (long)registers.orig_rax >= 0 ||
	    !take_back(thread)) {
		if (why && (!strcmp(why, "has ended") || !strcmp(why, "is gone")))
			shmctl(chain->segment, IPC_RMID, NULL);
		leave_segment(chain);
	}
}

static enum stop_result follow(struct chain *chain, const struct process *process, struct thread *thread,
			       struct order *order, uint64_t place)
{
	int64_t now = microseconds_now();
	long result = result_of(chain, process, thread, SYS_shmat, now + TO_CALL);

	if (result == LONG_MIN) {
		give_up(chain, thread, place);
		return NO_CLONE;
	}
	POINT(6);
	if (result != (long)place) {
		because(chain, "shmat in it: %s", strerror(-result));
		take_back(thread);
		return NO_CLONE;
	}
	result = result_of(chain, process, thread, SYS_clone, order->until + order->to_stop + order->to_return + TO_END);
	POINT(7);
	if (result > 0)
		read_answer(chain, order);
	else if (result != LONG_MIN)
		because(chain, "thread %d could not be cloned: %s", thread->tid, strerror(-result));
	if (result == LONG_MIN || !follow_to_end(chain, process, thread)) {
		shmctl(chain->segment, IPC_RMID, NULL);
		leave_segment(chain);
		return result > 0 ? CARRIED_OUT : NO_CLONE;
	}
	POINT(8);
	chain->place = place;
	return result > 0 ? CARRIED_OUT : NO_CLONE;
}

void hurry_ourselves(int policy)
{
	struct sched_param priority = { .sched_priority = policy == SCHED_OTHER ? 0 : 1 };

	sched_setscheduler(0, policy, &priority);
}

/*
 * Late, and its name stays until the target has attached it: if we are killed, a thread that is set to attach a segment without a
 * name would return into nothing, and one that was never set would leave the segment for good.
 */
static bool create_segment(struct chain *chain)
{
	char *at;

	if (chain->shared)
		return true;
	chain->segment = shmget(IPC_PRIVATE, SHARED_BYTES, 0700);
	if (chain->segment < 0)
		return false;
	at = shmat(chain->segment, NULL, 0);
	if (at == (char *)-1) {
		shmctl(chain->segment, IPC_RMID, NULL);
		return false;
	}
	memcpy(at, _binary_relocate_clone_bin_start, _binary_relocate_clone_bin_end - _binary_relocate_clone_bin_start);
	chain->shared = at;
	return true;
}

/* The thread may attach the segment as its user. */
static bool may_attach(const struct chain *chain, const char *status)
{
	struct shmid_ds segment;
	unsigned user, group;
	const char *users = strstr(status, "\nUid:"), *groups = strstr(status, "\nGid:");

	if (!users || !groups || sscanf(users, "\nUid: %*u %u", &user) != 1 || sscanf(groups, "\nGid: %*u %u", &group) != 1 ||
	    shmctl(chain->segment, IPC_STAT, &segment))
		return false;
	if (segment.shm_perm.uid == user && segment.shm_perm.gid == group)
		return true;
	segment.shm_perm.uid = user;
	segment.shm_perm.gid = group;
	return !shmctl(chain->segment, IPC_SET, &segment);
}

static bool has_ended(const struct process *process)
{
	char *status = thread_text(process, process->pid, "status");
	bool ended = status && strstr(status, "\nState:\tZ");

	free(status);
	return ended;
}

enum stop_result chain_carry_out(struct chain *chain, const struct process *process, struct order *order, int64_t most)
{
	static struct thread thread;
	enum stop_result result = NO_THREAD;
	uint64_t place;
	char *status;

	hurry_ourselves(SCHED_FIFO);
	if (!choose(chain, process, &thread)) {
		hurry_ourselves(SCHED_OTHER);
		return NO_THREAD;
	}
	POINT(3);
	chain->why[0] = 0;
	status = thread_text(process, thread.tid, "status");
	order->waiting = status ? number_in_own_namespace(status) : 0;
	order->ended_main = has_ended(process) ? chain->own : 0;
	order->until = thread.since + most;
#ifdef TESTED
	order->gap = getenv("PT_GAP") ? atoi(getenv("PT_GAP")) : 0;
	order->refusals = getenv("PT_REFUSALS") ? atoi(getenv("PT_REFUSALS")) : 0;
#endif
	place = free_place(chain, process);
	if (!order->waiting || !place)
		because(chain, "thread %d is gone", thread.tid);
	else if (!create_segment(chain) || !may_attach(chain, status))
		because(chain, "thread %d cannot be given memory: %s", thread.tid, strerror(errno));
	else {
		read_priority(&thread);
		memcpy(order_of(chain), order, ORDER_BYTES(order->count));
		write_chain(chain, &thread, place);
		POINT(4);
		order_of(chain)->attaching = 1;
		/* no signal finds a handler's room at a stack pointer where nothing is yet; the chain's end gives the mask back */
		if (set_call(chain, thread.tid, thread.registers, SYS_shmat, chain->segment, place, SHM_EXEC,
			     in_place(place, offsetof(struct end, frames[CLONE]))) ||
		    ptrace(PTRACE_SETSIGMASK, thread.tid, 8, &(uint64_t){ ~0UL }))
			because(chain, "thread %d is gone", thread.tid);
		else {
			POINT(5);
			hurry(&thread, true);
			result = follow(chain, process, &thread, order, place);
		}
	}
	free(status);
	release(chain, process, &thread);
	hurry_ourselves(SCHED_OTHER);
	POINT(9);
	return result;
}

static int number_of(pid_t pid)
{
	struct process process = { .pid = pid };
	char path[64], *status;
	int number = 0;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	process.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (process.directory < 0)
		return 0;
	if ((status = thread_text(&process, pid, "status")))
		number = number_in_own_namespace(status);
	free(status);
	close(process.directory);
	return number;
}

int count_sharers(const struct process *process, int number, int64_t until, pid_t *last)
{
	DIR *all = opendir("/proc");
	struct dirent *entry;
	int found = 0;

	while (all && (entry = readdir(all))) {
		int other = atoi(entry->d_name);
		long differ = other > 0 && other != process->pid ? syscall(SYS_kcmp, process->tid, other, KCMP_VM, 0, 0) : 1;

		if ((differ < 0 && errno == ENOSYS) || microseconds_now() > until) {
			found = -1;
			break;
		}
		if (!differ && (!number || number_of(other) == number)) {
			*last = other;
			found++;
		}
	}
	if (all)
		closedir(all);
	return found;
}

/* A process that shares the memory, and of the number that the clone gives: ours from now on, and dies with us. */
static pid_t seize_keeper(const struct process *process, const struct order *order)
{
	pid_t pid = 0;

	if (order->keeper <= 0 || count_sharers(process, order->keeper, INT64_MAX, &pid) != 1 ||
	    ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD))
		return 0;
	if (number_of(pid) == order->keeper && !syscall(SYS_kcmp, process->tid, pid, KCMP_VM, 0, 0) &&
	    !ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		return pid;
	let_go(process, pid, 0); /* another has got its number */
	return 0;
}

/* It needs no memory for that: nothing but registers, which we set between the two calls. */
static bool unmap_by(const struct chain *chain, pid_t keeper, uint64_t place)
{
	int64_t until = microseconds_now() + TO_CALL;
	struct user_regs_struct registers;
	bool done;
	int status;

	done = !wait_for(keeper, FOR_INTERRUPT, until, NULL, NULL) && !ptrace(PTRACE_SETOPTIONS, keeper, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) && !ptrace(PTRACE_GETREGS, keeper, 0, &registers) &&
	       !set_call(chain, keeper, registers, SYS_munmap, place, SHARED_BYTES, 0, 0) &&
	       !to_next_exit(NULL, NULL, keeper, &registers, until) && !registers.rax;
	if (done)
		set_call(chain, keeper, registers, SYS_exit_group, 0, 0, 0, 0);
	if (!done || ptrace(PTRACE_CONT, keeper, 0, 0))
		kill(keeper, SIGKILL);
	waitpid(keeper, &status, __WALL);
	return done;
}

bool chain_unmap(struct chain *chain, const struct process *process)
{
	bool clean = !chain->place;

	for (int i = 0; i < 10 && !clean && process_alive(process); i++) {
		struct order order = { .patience.seconds = KEEPER_WAITS };
		pid_t keeper, other;

		chain_carry_out(chain, process, &order, TO_CALL);
		keeper = seize_keeper(process, &order);
		if (keeper)
			clean = unmap_by(chain, keeper, chain->place);
		else
			usleep(2000 << i);
		/* its memory is not to be unmapped by others while it waits there */
		for (int k = 0; order.keeper > 0 && !keeper && k < 1000 && count_sharers(process, order.keeper, INT64_MAX, &other) > 0; k++)
			usleep(10000);
	}
	if (chain->shared)
		shmctl(chain->segment, IPC_RMID, NULL);
	return clean;
}

/* What one of us left who was killed before a thread was set to attach it: one that is set may be about to, however late. */
static void remove_forgotten(void)
{
	struct shm_info all;
	int last = shmctl(0, SHM_INFO, (struct shmid_ds *)&all);

	for (int i = 0; i <= last; i++) {
		struct shmid_ds one;
		int segment = shmctl(i, SHM_STAT, &one);
		char *at;

		if (segment < 0 || one.shm_segsz != SHARED_BYTES || one.shm_nattch || one.shm_perm.cuid != geteuid() ||
		    !kill(one.shm_cpid, 0) || (at = shmat(segment, NULL, SHM_RDONLY)) == (char *)-1)
			continue;
		if (!memcmp(at, _binary_relocate_clone_bin_start, _binary_relocate_clone_bin_end - _binary_relocate_clone_bin_start) &&
		    !((struct order *)(at + CODE_MOST + 8))->attaching)
			shmctl(segment, IPC_RMID, NULL);
		shmdt(at);
	}
}

static bool same_namespace(const struct process *process, const char *name)
{
	char own[64], other[64], path[32];
	ssize_t length, others;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	length = readlink(path, own, sizeof(own));
	others = readlinkat(process->directory, name, other, sizeof(other));
	return length == others && (length < 0 || !memcmp(own, other, length));
}

const char *chain_share_memory(const struct process *process)
{
	int space = openat(process->directory, "ns/ipc", O_RDONLY | O_CLOEXEC);
	bool inside = same_namespace(process, "ns/ipc") || !setns(space, CLONE_NEWIPC);

	if (space >= 0)
		close(space);
	if (!inside)
		return "its IPC namespace cannot be entered (needs CAP_SYS_ADMIN)";
	if (!same_namespace(process, "ns/time"))
		return "it is in another time namespace";
	remove_forgotten();
	if (shmctl(shmget(IPC_PRIVATE, SHARED_BYTES, 0700), IPC_RMID, NULL))
		return "no System V memory can be shared with it";
	return NULL;
}
