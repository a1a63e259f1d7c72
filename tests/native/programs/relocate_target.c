/* SPDX-License-Identifier: MIT */
/*
 * Targets of ptrelocate: relocate_target MODE [MIB [THREADS]]. All print "ready pid=N" and the addresses of their areas.
 *
 * write    threads add to words and count what they add; one keeps vector registers and its red zone and looks at them.
 *          After a byte on standard input: a line with what was added and what is found, and what was damaged.
 * areas    one area of every kind; after a byte: how many bytes of them are not as they were
 * others   as MODE says, what must be refused: seccomp vfork shared stopped traced iouring userfaultfd near private;
 *          a path: a descriptor of that file
 * zombie   the main thread has ended, another waits
 * waits    one thread waits for a child of its own memory that vfork's flag holds it for (state D), one writes
 * kernel   what the kernel knows of it by address: membarrier, restartable sequences, a robust mutex; after a byte, whether all work
 * count    one thread writes; every 10 ms "count" in the working directory says how much it has added, up to THREADS
 * sleep    one thread, in nanosleep: says how often it ended early
 * spawn    two threads start programs all the time, the others write
 * churn    two threads map, divide and unmap memory all the time, the others write
 * signals  two threads send signals to the others all the time, which write; handlers run on the stack they find
 * share    two threads start processes that share the memory all the time (CLONE_VM), the others write
 * stacks   threads on stacks of 16 and 32 KiB side by side, coroutines, handlers on small alternate stacks: each fills
 *          what lies below its stack pointer, and looks at it
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST 64
#define AREA (4UL << 20)

extern char **environ;
static uint64_t *words, per_thread, added[MOST], spawned, spoiled;
static volatile bool end, hold;
static atomic_int held, damaged;

static void nap(long microseconds)
{
	struct timespec time = { microseconds / 1000000, microseconds % 1000000 * 1000 };

	while (nanosleep(&time, &time))
		;
}

static void *area(uint64_t bytes)
{
	char *at = mmap(0, bytes + (4UL << 20), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	at = (char *)(((uintptr_t)at + (2UL << 20)) & -(2UL << 20)); /* whole leaf tables, with nothing beside it */
	at = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static void *filled(uint64_t bytes)
{
	return memset(area(bytes), 1, bytes);
}

static void *write_words(void *argument)
{
	long number = (long)argument;
	uint64_t state = number + 1, *own = words + number * per_thread;

	while (!end) {
		state = state * 6364136223846793005UL + 1442695040888963407UL;
		own[(state >> 20) % per_thread]++;
		added[number]++;
		if (added[number] % 4096 == 0)
			nap(300);
		if (hold) {
			held++;
			while (hold && !end)
				nap(100);
			held--;
		}
	}
	return NULL;
}

/* What a signal frame must give back: vector registers, flags, others, 128 bytes below the stack. */
static void *keep_registers(void *argument)
{
	static const uint64_t pattern[2] = { 0x1111222233334444, 0xddddeeeeffff0123 };

	while (!end) {
		long bad = 0;

		asm volatile("movdqu (%1), %%xmm1; movdqu (%1), %%xmm15; movq $0x77, -8(%%rsp); movq $0x99, -120(%%rsp);"
			     "mov $0xabcdef, %%r12; mov $0x1357, %%r10; stc; mov $100000, %%ecx; 1: loop 1b; jc 2f; inc %0; 2:"
			     "cmp $0xabcdef, %%r12; je 3f; inc %0; 3: cmp $0x1357, %%r10; je 4f; inc %0; 4:"
			     "cmpq $0x77, -8(%%rsp); je 5f; inc %0; 5: cmpq $0x99, -120(%%rsp); je 6f; inc %0; 6:"
			     "movdqu (%1), %%xmm2; pcmpeqd %%xmm2, %%xmm1; pmovmskb %%xmm1, %%ecx; cmp $0xffff, %%ecx;"
			     "je 7f; inc %0; 7: pcmpeqd %%xmm2, %%xmm15; pmovmskb %%xmm15, %%ecx; cmp $0xffff, %%ecx; je 8f;"
			     "inc %0; 8:"
			     : "+&r"(bad)
			     : "r"(pattern)
			     : "rcx", "r10", "r12", "xmm1", "xmm2", "xmm15", "memory", "cc");
		damaged += bad;
		nap(1000);
	}
	return argument;
}

static void *spawn(void *argument)
{
	char *words[] = { "true", NULL };

	while (!end) {
		pid_t child;
		int status = 1;

		spoiled += posix_spawnp(&child, "true", NULL, NULL, words, environ) || waitpid(child, &status, 0) != child ||
			   status;
		spawned++;
		while (hold && !end)
			nap(100);
	}
	return argument;
}

static int touch(void *argument)
{
	volatile char *own = argument;

	for (int i = 0; i < 3000; i++) {
		own[i % 1024 * 4096]++;
		if (i % 100 == 0)
			nap(20);
	}
	_exit(0);
}

/* Processes with this memory that are no threads: whoever moves it under them kills them. */
static void *interrupt(void *argument)
{
	for (int own = gettid(), k = 0; !end; nap(100), k++)
		syscall(SYS_tgkill, getpid(), own - 1 - k % 4, SIGUSR2);
	return argument;
}

static void *share(void *argument)
{
	char *own = filled(AREA), *stack = malloc(1 << 16);

	while (!end) {
		pid_t child = clone(touch, stack + (1 << 16), CLONE_VM | SIGCHLD, own);
		int status = 1;

		spoiled += child < 0 || waitpid(child, &status, 0) != child || status;
		spawned++;
		nap(500);
		while (hold && !end)
			nap(100);
	}
	return argument;
}

static void *churn(void *argument)
{
	while (!end) {
		char *at = mmap(0, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *second = at + (2UL << 20);

		memset(at, 1, AREA);
		mprotect(second, 2UL << 20, PROT_READ);
		nap(500);
		for (uint64_t i = 0; i < AREA; i += 4096)
			spoiled += at[i] != 1;
		munmap(at + (1UL << 20), 2UL << 20);
		spoiled += *at != 1 || at[AREA - 1] != 1;
		munmap(at, AREA);
		while (hold && !end)
			nap(100);
	}
	return argument;
}

static void *forever(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static void count_signal(int number)
{
	(void)number;
}

static void start(pthread_t *thread, void *(*function)(void *), long argument)
{
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 20);
	if (pthread_create(thread, &small, function, (void *)argument))
		exit(1);
}

static void ready(void)
{
	printf("ready pid=%d\n", getpid());
	fflush(stdout);
}

/* Standard input's next byte; false at its end. */
static bool asked(void)
{
	char byte;
	ssize_t got;

	while ((got = read(0, &byte, 1)) < 0 && errno == EINTR)
		;
	return got == 1;
}

/* Full but for 1 KiB, as its own data: nothing of others may be written there. */
static void fill_stack(uint64_t seed, uint64_t bytes, bool naps)
{
	volatile unsigned char own[bytes];

	for (uint64_t i = 0; i < bytes; i++)
		own[i] = seed * 31 + i;
	for (int round = 0; round < 50; round++) {
		if (naps)
			nap(200);
		for (uint64_t i = 0; i < bytes; i++)
			damaged += own[i] != (unsigned char)(seed * 31 + i);
	}
	spawned++;
}

static const uint64_t stack_bytes = 16384;

static void *use_small_stack(void *argument)
{
	while (!end)
		fill_stack((uint64_t)argument, (uint64_t)argument % 2 ? 32768 - 8192 : 16384 - 8192, (uint64_t)argument % 4 > 1);
	return argument;
}

static ucontext_t routines[8], whoever;

static void be_routine(int number)
{
	for (;;) {
		volatile unsigned char own[12000];

		for (int i = 0; i < 12000; i++)
			own[i] = number + i;
		swapcontext(&routines[number], end ? &whoever : &routines[(number + 1) % 8]);
		for (int round = 0; round < 20; round++)
			for (int i = 0; i < 12000; i++)
				damaged += own[i] != (unsigned char)(number + i);
	}
}

static void *run_routines(void *argument)
{
	char *stacks = mmap(0, 8 * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 8; i++) {
		getcontext(&routines[i]);
		routines[i].uc_stack.ss_sp = stacks + i * stack_bytes;
		routines[i].uc_stack.ss_size = stack_bytes;
		makecontext(&routines[i], (void (*)(void))be_routine, 1, i);
	}
	swapcontext(&whoever, &routines[0]);
	return argument;
}

static void handle(int number)
{
	fill_stack(number, 6000, false);
}

static void *take_signals(void *argument)
{
	char *own = mmap(0, 2 * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t other = { .ss_sp = own + stack_bytes, .ss_size = stack_bytes };

	memset(own, 0x5a, stack_bytes);
	sigaltstack(&other, NULL);
	while (!end) {
		raise(SIGUSR1);
		for (uint64_t i = 0; i < stack_bytes; i++)
			damaged += own[i] != 0x5a;
	}
	return argument;
}

static void use_stacks(uint64_t bytes)
{
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART };
	char *stacks = mmap(0, 8 * 24576, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *data = filled(bytes);
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	for (uint64_t i = 0; i < 8; i++) {
		pthread_attr_t small;

		pthread_attr_init(&small);
		pthread_attr_setstack(&small, stacks, i % 2 ? 32768 : 16384);
		stacks += i % 2 ? 32768 : 16384;
		if (pthread_create(&thread, &small, use_small_stack, (void *)i))
			exit(1);
	}
	start(&thread, run_routines, 0);
	start(&thread, take_signals, 0);
	ready();
	while (asked()) {
		uint64_t wrong = 0;

		for (uint64_t i = 0; i < bytes; i++)
			wrong += data[i] != 1;
		printf("rounds=%lu damaged=%d wrong=%lu\n", spawned, damaged, wrong);
		fflush(stdout);
	}
	_exit(0);
}

static void write_and_count(uint64_t bytes, int writers, void *(*other)(void *))
{
	struct sigaction action = { .sa_handler = count_signal, .sa_flags = SA_RESTART };
	pthread_t threads[MOST + 3];
	int count = 0;

	sigaction(SIGUSR2, &action, NULL);
	words = filled(bytes);
	memset(words, 0, bytes);
	mprotect((char *)words + bytes / 2, bytes / 8, PROT_READ); /* an area that was three */
	mprotect((char *)words + bytes / 2, bytes / 8, PROT_READ | PROT_WRITE);
	per_thread = bytes / 8 / writers;
	for (; count < writers; count++)
		start(&threads[count], write_words, count);
	start(&threads[count++], keep_registers, 0);
	for (int i = 0; i < 2 && other; i++)
		start(&threads[count++], other, 0);
	ready();
	while (asked()) {
		uint64_t all = 0, found = 0;

		hold = true;
		while (held < writers)
			nap(50);
		for (int i = 0; i < writers; i++)
			all += added[i];
		for (uint64_t i = 0; i < bytes / 8; i++)
			found += words[i];
		printf("added=%lu found=%lu damaged=%d spawned=%lu spoiled=%lu\n", all, found, damaged, spawned, spoiled);
		fflush(stdout);
		hold = false;
		while (held)
			nap(50);
	}
	end = true;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void hold_areas(void)
{
	static const char *const names[] = { "plain", "wiped", "alone", "named", "readable", "guarded", "locked", "mergeable",
					     "sealed", "shared", "file", "huge", "onfault", "hugetlb" };
	char *at[sizeof(names) / sizeof(*names)];
	int file = memfd_create("file", 0);
	uint64_t wrong = 0;

	for (int i = 0; i < 9; i++)
		at[i] = filled(AREA);
	madvise(at[1], AREA, MADV_WIPEONFORK);
	madvise(at[2], AREA, MADV_DONTFORK);
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at[3], AREA, "a name");
	mprotect(at[4], AREA, PROT_READ);
	madvise(at[5] + (1 << 20), 4096, 102 /* MADV_GUARD_INSTALL */);
	mlock(at[6], AREA);
	madvise(at[7], AREA, MADV_MERGEABLE);
	syscall(462 /* mseal */, at[8], AREA, 0);
	at[9] = mmap(0, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ftruncate(file, AREA))
		exit(1);
	at[10] = mmap(0, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	at[11] = (char *)(((uintptr_t)mmap(0, 2 * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + AREA - 1) &
			  -AREA);
	madvise(at[11], AREA, MADV_HUGEPAGE);
	for (int i = 9; i < 12; i++)
		memset(at[i], 1, AREA);
	at[12] = area(AREA);
	syscall(SYS_mlock2, at[12], AREA, 1 /* MLOCK_ONFAULT */);
	memset(at[12], 1, AREA / 2);
	at[13] = mmap(0, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
	printf("ready pid=%d", getpid());
	for (int i = 0; i < 14; i++)
		printf(" %s=%lx", names[i], (uintptr_t)at[i]);
	printf("\n");
	fflush(stdout);
	while (asked()) {
		wrong = 0;
		for (int i = 0; i < 12; i++)
			for (uint64_t k = 0; k < AREA; k++)
				wrong += (i != 5 || k >> 12 != 256) && at[i][k] != 1;
		pid_t child = fork();
		int status = 0;
		if (!child) {
			at[5][1 << 20] = 1;
			_exit(0);
		}
		waitpid(child, &status, 0);
		printf("wrong=%lu guards=%d\n", wrong, WIFSIGNALED(status));
		fflush(stdout);
	}
}

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static pthread_mutex_t robust;

static void *die_with_it(void *argument)
{
	pthread_mutex_lock(&robust);
	while (!end)
		nap(1000);
	return argument;
}

static void use_the_kernel(void)
{
	pthread_mutexattr_t kind;
	pthread_t owner;

	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &kind);
	membarrier(16 /* REGISTER_PRIVATE_EXPEDITED */);
	start(&owner, die_with_it, 0);
	while (pthread_mutex_trylock(&robust) == 0) {
		pthread_mutex_unlock(&robust);
		nap(1000);
	}
	ready();
	while (asked()) {
		int held = pthread_mutex_trylock(&robust), wrong_cpu = 0;

		for (int i = 0; i < 1000; i++)
			wrong_cpu += sched_getcpu() < 0;
		end = true;
		pthread_join(owner, NULL);
		printf("held=%d barrier=%ld wrong=%d died=%d\n", held == EBUSY, membarrier(8 /* PRIVATE_EXPEDITED */), wrong_cpu,
		       pthread_mutex_lock(&robust) == EOWNERDEAD);
		fflush(stdout);
	}
}

static int sleep_here(void *argument)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	nap(600000000);
	return argument != NULL;
}

static void be_refused(const char *mode)
{
	static char stack[1 << 16];
	pthread_t thread;

	if (!strcmp(mode, "seccomp")) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		ready();
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
		for (char byte; syscall(SYS_read, 0, &byte, 1);)
			;
	}
	if (!strcmp(mode, "dispatch")) { /* as Wine: any system call is a SIGSYS from here on */
		static volatile char selector;

		if (prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0L, 0L, &selector))
			exit(1);
		ready();
		for (selector = 1;;)
			;
	}
	if (!strcmp(mode, "shared"))
		clone(sleep_here, stack + sizeof(stack), CLONE_VM, NULL);
	if (!strcmp(mode, "iouring") && syscall(425, 4, (char[120]){ 0 }) < 0)
		exit(1);
	if (mode[0] == '/' && open(mode, O_RDONLY) < 0)
		exit(1);
	if (!strcmp(mode, "near")) {
		struct rlimit most = { 60UL << 20, 60UL << 20 };

		setrlimit(RLIMIT_AS, &most);
	}
	if (!strcmp(mode, "userfaultfd") && syscall(SYS_userfaultfd, 0) < 0)
		exit(1);
	start(&thread, forever, 0);
	if (!strcmp(mode, "private") && setresuid(65534, 65534, 65534))
		exit(1);
	if (!strcmp(mode, "traced") && !fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (ptrace(PTRACE_SEIZE, getppid(), 0, 0)) /* the tool under test may hold it first */
			usleep(1000);
		pause();
	}
	ready();
	if (!strcmp(mode, "zombie"))
		pthread_exit(NULL);
	if (!strcmp(mode, "vfork") && !vfork())
		sleep_here(NULL);
	if (!strcmp(mode, "stopped"))
		raise(SIGSTOP);
	pause();
}

int main(int count, char **arguments)
{
	uint64_t mebibytes = count > 2 ? strtoul(arguments[2], NULL, 10) : 16;
	int writers = count > 3 ? atoi(arguments[3]) : 2;

	if (!strcmp(arguments[1], "write")) {
		write_and_count(mebibytes << 20, writers, NULL);
	} else if (!strcmp(arguments[1], "spawn") || !strcmp(arguments[1], "churn") || !strcmp(arguments[1], "share")) {
		write_and_count(mebibytes << 20, writers,
				arguments[1][0] == 'c' ? churn : arguments[1][1] == 'p' ? spawn : share);
	} else if (!strcmp(arguments[1], "signals")) {
		write_and_count(mebibytes << 20, writers, interrupt);
	} else if (!strcmp(arguments[1], "count")) {
		pthread_t thread;

		words = filled(mebibytes << 20);
		per_thread = mebibytes << 17;
		start(&thread, write_words, 0);
		for (int file = open("count", O_WRONLY | O_CREAT, 0600); count < 4 || added[0] < (uint64_t)writers; nap(10000))
			dprintf(file, "%lu\n", added[0]);
	} else if (!strcmp(arguments[1], "stacks")) {
		use_stacks(mebibytes << 20);
	} else if (!strcmp(arguments[1], "areas")) {
		hold_areas();
	} else if (!strcmp(arguments[1], "kernel")) {
		filled(mebibytes << 20);
		use_the_kernel();
	} else if (!strcmp(arguments[1], "waits")) {
		static char stack[1 << 16];
		pthread_t thread;

		words = filled(mebibytes << 20);
		per_thread = mebibytes << 17;
		start(&thread, write_words, 0);
		ready();
		clone(sleep_here, stack + sizeof(stack), CLONE_VFORK | SIGCHLD, NULL);
	} else if (!strcmp(arguments[1], "sleep")) {
		struct timespec time = { 600, 0 };

		filled(mebibytes << 20);
		ready();
		for (int early = 1; nanosleep(&time, &time); early++) {
			printf("early=%d\n", early);
			fflush(stdout);
		}
	} else {
		filled(AREA);
		be_refused(arguments[1]);
	}
	return 0;
}
