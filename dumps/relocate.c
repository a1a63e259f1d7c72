/* SPDX-License-Identifier: MIT */
/*
 * ptrelocate: rebuilds the leaf page tables of a live process on a node, from user space. Private anonymous memory is moved
 * away by one page more than a leaf table spans, and back, part by part, while all threads stand still for as long as
 * that takes: contents, addresses and areas stay, tables are new. chain.c has how; relocate_clone.c runs in the target.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "chain.h"
#include "output.h"
#include "topology.h"

#define PAUSE 2000            /* microseconds */
#define DEAR 8                /* microseconds for a MiB, until one was moved */
#define AROUND 800            /* microseconds of a pause that are no moves, until they were seen: stopping, looking again, chain */
#define TO_END 400            /* of them those behind the moves */
#define CHILDREN 32           /* of our own, which are stopped to see what a thread costs */
#define ROUNDS 8
#define PART (64UL << 20)     /* at most; what a third party's SIGKILL of the clone can hit is one part */
#define WHOLE (1UL << 30)     /* at most, without a limit to the pause */
#define WHOLE_STOP 1000000    /* microseconds to stop all threads, without a limit to the pause */
#define TO_RETURN 2000000     /* microseconds for a way back */
#define TO_EXEC 1500000       /* microseconds for a child of vfork to become another program, or for a forgotten keeper to end */
#define LOST_IN_A_ROW 50      /* attempts that moved nothing, before we give up */
#define AREAS_TO_SPARE 64     /* below vm.max_map_count */
#define SPARE (1UL << 20)     /* bytes below RLIMIT_AS and RLIMIT_DATA */
#define TRACES (1ULL << 19)   /* CAP_SYS_PTRACE */

static const char usage[] =
	"Usage: ptrelocate [--yes] [--to NODE] [--max-pause MICROSECONDS] PID\n"
	"Prints which private anonymous memory of the process can have its leaf page tables rebuilt, and why the rest cannot; with\n"
	"--yes rebuilds them on NODE, by default that of most of its threads. Each stop of its threads takes MICROSECONDS at most,\n"
	"2000 by default, 0: no limit. Lines of JSON.\n"
	"Exit codes: 0 ok, 1 memory was left at another address (the process is stopped), 2 wrong use or refused, 3 not all was moved.\n"
	"Needs CAP_SYS_PTRACE; run as root.\n";

struct span {
	uint64_t start, end, resident; /* KiB */
	const char *left; /* why it is left out; NULL: it is moved */
};
struct plan {
	struct span *spans;
	size_t count, threads, areas;
	int node; /* -1: the threads have none */
};
struct tally {
	uint64_t bytes, skipped;
	long stops, lost, longest, retries, moving;
	int last_error;
};

static volatile sig_atomic_t enough;
static struct chain chain;
static struct process process;

static void leave_nothing(void)
{
	before_end(NULL);
	chain_unmap(&chain, &process);
}

static void stop_moving(int number)
{
	(void)number;
	enough = 1;
}

static const char *without_relocation(const struct mapping *area)
{
	static const struct {
		const char *flag, *why;
	} kinds[] = {
		{ "io", "device memory" }, { "pf", "page frames of a device" }, { "ht", "hugetlb" },
		{ "lo", "locked" }, { "um", "userfaultfd" }, { "uw", "userfaultfd" }, { "ui", "userfaultfd" },
		{ "mg", "KSM" }, { "sl", "sealed" }, { "gd", "stack" }, { "de", "may not be moved" },
		{ "mm", "device memory" }, { "ss", "shadow stack" },
	};

	if (area->rights[3] != 'p')
		return "shared";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (mapping_has(area, kinds[i].flag))
			return kinds[i].why;
	if (area->inode || area->name[0] == '/')
		return "file";
	if (area->name[0] == '[' && strcmp(area->name, "[heap]") && strncmp(area->name, "[anon:", 6))
		return "the kernel's own";
	if (area->huge)
		return "huge pages";
	if (!area->resident)
		return "nothing in it";
	return area->end - area->start < TABLE_SPAN ? "smaller than a leaf table spans" : NULL;
}

static void read_spans(struct plan *plan, const struct process *process)
{
	char *text = process_read(process, PROCESS_SMAPS, NULL);
	const char *at = text;
	struct mapping area;
	size_t room = 0;

	while (next_mapping(&at, &area)) {
		if (!area.flags)
			continue;
		if (plan->count == room) {
			plan->spans = reallocarray(plan->spans, room = room ? 2 * room : 256, sizeof(*plan->spans));
			if (!plan->spans)
				fail(EXIT_WRONG_USE, "not enough memory for the areas of PID %d", process->pid);
		}
		plan->spans[plan->count++] = (struct span){ .start = area.start, .end = area.end, .resident = area.resident,
							    .left = without_relocation(&area) };
	}
	free(text);
	plan->areas = plan->count;
}

static uint64_t number_in(const char *text, const char *key, int base)
{
	const char *line = text ? strstr(text, key) : NULL;

	return line ? strtoull(line + strlen(key), NULL, base) : 0;
}

static void refuse(const struct process *process, const char *why) __attribute__((noreturn));
static void refuse(const struct process *process, const char *why)
{
	fail(EXIT_WRONG_USE, "PID %d: not relocated: %s", process->pid, why);
}

/* A child of vfork is there until it calls exec. */
static void refuse_other_users(const struct process *process)
{
	int64_t until = microseconds_now() + TO_EXEC;
	pid_t other = 0;
	int count;

	while ((count = count_sharers(process, 0, INT64_MAX, &other)) > 0 && microseconds_now() < until)
		usleep(1000);
	if (count < 0)
		refuse(process, "this kernel has no kcmp, so whether others share its memory is not known");
	if (count)
		fail(EXIT_WRONG_USE, "PID %d: not relocated: PID %d shares its memory (a child of vfork, or CLONE_VM)",
		     process->pid, other);
}

/* Who reads or writes its memory by address and is no thread of it; NULL, or its name. */
static const char *device_of(const struct process *process, char descriptor[24], int64_t until)
{
	static const char *const kinds[][2] = {
		{ "anon_inode:[io_uring]", "io_uring" }, { "anon_inode:kvm", "KVM" }, { "/dev/kvm", "KVM" },
		{ "/dev/vhost", "vhost" }, { "anon_inode:[userfaultfd]", "userfaultfd" }, { "/dev/userfaultfd", "userfaultfd" },
		{ "/dev/nvidia", "a GPU" }, { "/dev/dri/", "a GPU" }, { "/dev/kfd", "a GPU" }, { "/dev/infiniband", "RDMA" },
		{ "/dev/vfio", "VFIO" }, { "anon_inode:[vfio", "VFIO" }, { "/dev/dsa", "an accelerator" }, { "/dev/iax", "an accelerator" },
	};
	int file = openat(process->directory, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = file < 0 ? NULL : fdopendir(file);
	const char *found = list ? NULL : "what cannot be read";
	struct dirent *entry;

	while (list && !found && (entry = readdir(list))) {
		char path[256];
		ssize_t length = readlinkat(file, entry->d_name, path, sizeof(path) - 1);

		path[length < 0 ? 0 : length] = 0;
		snprintf(descriptor, 24, "%.20s", entry->d_name);
		for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds) && !found; i++)
			if (!strncmp(path, kinds[i][0], strlen(kinds[i][0])))
				found = kinds[i][1];
		if (microseconds_now() > until)
			found = "too many";
	}
	if (list)
		closedir(list);
	return found;
}

static void refuse_devices(const struct process *process)
{
	char descriptor[24] = "";
	const char *device = device_of(process, descriptor, INT64_MAX);

	if (device)
		fail(EXIT_WRONG_USE, "PID %d: not relocated: descriptor %s is of %s, which may use its memory meanwhile",
		     process->pid, descriptor, device);
}

static void refuse_missing_node(const struct topology *topology, long node)
{
	if (!topology_has_memory(topology, node))
		fail(EXIT_WRONG_USE, "--to %ld: this machine has no memory on such a node", node);
}

static bool is_32_bit(const struct process *process)
{
	int file = openat(process->directory, "exe", O_RDONLY | O_CLOEXEC);
	unsigned char head[5] = "";
	bool is = file >= 0 && pread(file, head, 5, 0) == 5 && !memcmp(head, "\177ELF", 4) && head[4] == 1;

	if (file >= 0)
		close(file);
	return is;
}

#define NOT_BY_ITS_USER "a thread may not be traced by its own user (it is not dumpable, or a security module forbids it)"

/* Whether the kernel keeps its files from its own user, as after setuid() or prctl(PR_SET_DUMPABLE, 0). */
static bool is_private(const struct process *process)
{
	struct stat whole, file;

	return !fstat(process->directory, &whole) && !fstatat(process->directory, "status", &file, 0) &&
	       file.st_uid != whole.st_uid;
}

static int yama(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "r");
	int scope = 0;

	if (file && fscanf(file, "%d", &scope) != 1)
		scope = 0;
	if (file)
		fclose(file);
	return scope;
}

/* Threads by their state, and the node of most of them. */
static void look_at_threads(struct plan *plan, const struct process *process, const struct topology *topology)
{
	DIR *list;
	struct dirent *entry;
	size_t on[1024] = { 0 }, filtered = 0, shadowed = 0;
	int file = openat(process->directory, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool may_trace = true;

	plan->node = -1;
	list = file < 0 ? NULL : fdopendir(file);
	while (list && (entry = readdir(list))) {
		int tid = atoi(entry->d_name), cpu, node;
		char *status = tid > 0 ? thread_text(process, tid, "status") : NULL, *line;

		if (!status)
			continue;
		line = strstr(status, "\nState:\t");
		if (line && strchr("Tt", line[8]))
			refuse(process, line[8] == 'T' ? "it is stopped; continue it first" : "it is being traced");
		if (number_in(status, "\nTracerPid:\t", 10))
			refuse(process, "it is being traced");
		filtered += number_in(status, "\nSeccomp:\t", 10) != 0;
		line = strstr(status, "\nx86_Thread_features:\t");
		shadowed += line && memmem(line, strcspn(line + 1, "\n"), "shstk", 5);
		may_trace &= (number_in(status, "\nCapEff:\t", 16) & TRACES) != 0;
		free(status);
		cpu = thread_cpu(process, tid);
		node = topology_memory_near(topology, topology_node_of_cpu(topology, cpu));
		if (node >= 0 && node < 1024 && ++on[node] > (plan->node < 0 ? 0 : on[plan->node]))
			plan->node = node;
		plan->threads++;
	}
	if (list)
		closedir(list);
	if (filtered && filtered == plan->threads)
		refuse(process, "seccomp filters its system calls");
	if (shadowed)
		refuse(process, "it has a shadow stack");
	if (plan->threads > MOST_THREADS)
		refuse(process, "it has more than 4096 threads");
	if (!may_trace && plan->threads > 1 && is_private(process))
		refuse(process, NOT_BY_ITS_USER);
	if (yama() > (may_trace ? 2 : 0) && plan->threads > 1)
		refuse(process, "kernel.yama.ptrace_scope keeps its threads from being stopped by a process of its own user; 0 allows it");
}

static bool is_near_limits(const struct process *process)
{
	char *limits = thread_text(process, process->tid, "limits"), *status = thread_text(process, process->tid, "status");
	uint64_t space = number_in(limits, "\nMax address space", 10), data = number_in(limits, "\nMax data size", 10);
	bool near = (space && space < (number_in(status, "\nVmSize:", 10) << 10) + PART + SPARE) ||
		    (data && data < (number_in(status, "\nVmData:", 10) << 10) + PART + SPARE);

	free(limits);
	free(status);
	return near;
}

/* What the clone needs for a moment; the way back must not be the first to meet a limit. */
static void refuse_near_limits(const struct plan *plan, const struct process *process)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	size_t most = 65530;

	if (file && fscanf(file, "%zu", &most) != 1)
		most = 65530;
	if (file)
		fclose(file);
	if (plan->areas + AREAS_TO_SPARE > most)
		refuse(process, "it is within 64 areas of vm.max_map_count");
	if (is_near_limits(process))
		refuse(process, "it is close to its RLIMIT_AS or RLIMIT_DATA");
}

/* Inside a stop: all threads stand still, so what is not there now cannot come before they go on. The clone is a sharer. */
static bool may_be_moved(struct chain *chain, const struct process *process, int64_t until)
{
	char descriptor[24] = "";
	pid_t last = 0;
	int sharers = count_sharers(process, 0, until, &last);
	const char *device = sharers == 1 ? device_of(process, descriptor, until) : NULL;

	if (sharers < 0)
		because(chain, "there was no time to look who shares its memory");
	else if (sharers != 1)
		because(chain, "PID %d shares its memory (a child of vfork, or CLONE_VM)", last);
	else if (device)
		because(chain, "descriptor %s is of %s", descriptor, device);
	else if (is_near_limits(process))
		because(chain, "it is close to its RLIMIT_AS or RLIMIT_DATA");
	else
		return true;
	return false;
}

/* Microseconds to stop a thread among many and to let it go, now: the least of ROUNDS with children that wait. */
static double cost_of_a_thread(void)
{
	pid_t children[CHILDREN], own = getpid();
	int64_t least = INT64_MAX;
	int count = 0, status;

	for (pid_t child; count < CHILDREN && (child = fork()) >= 0; children[count++] = child)
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (getppid() == own)
				pause();
			_exit(EXIT_OK);
		}
	hurry_ourselves(SCHED_FIFO); /* as the clone is */
	for (int i = 0; i < ROUNDS; i++) {
		int64_t since = microseconds_now();

		for (int k = 0; k < count; k++)
			if (ptrace(PTRACE_SEIZE, children[k], 0, 0) || ptrace(PTRACE_INTERRUPT, children[k], 0, 0))
				least = 0;
		for (int k = 0; k < count && least; k++)
			waitpid(children[k], &status, __WALL);
		for (int k = 0; k < count && least; k++)
			ptrace(PTRACE_DETACH, children[k], 0, 0);
		if (microseconds_now() - since < least)
			least = microseconds_now() - since;
	}
	hurry_ourselves(SCHED_OTHER);
	for (int k = 0; k < count; k++)
		kill(children[k], SIGKILL);
	for (int k = 0; k < count; k++)
		waitpid(children[k], &status, __WALL);
	return count ? (double)least / count : 0;
}

/* Nobody is held for what cannot be done: the clone has half of a pause to stop all. */
static void refuse_too_short(const struct plan *plan, const struct process *process, long most)
{
	double stopping = most && plan->threads > CHILDREN ? (double)plan->threads * cost_of_a_thread() : 0;

	if (stopping > most / 2)
		fail(EXIT_WRONG_USE, "PID %d: not relocated: to stop its %zu threads takes %.1f ms: give a --max-pause of %ld or more",
		     process->pid, plan->threads, stopping / 1e3, ((long)(2 * stopping + AROUND) / 1000 + 1) * 1000);
}

static void print_plan(const struct plan *plan, const struct process *process)
{
	printf("{\"pid\": %d, \"node\": %d, \"threads\": %zu, \"ranges\": [", process->pid, plan->node, plan->threads);
	for (size_t i = 0, more = 0; i < plan->count; i++) {
		const struct span *span = &plan->spans[i];

		printf("%s[%lu, %lu, %lu, ", more++ ? ", " : "", span->start, span->end, span->resident);
		printf(span->left ? "\"%s\"]" : "null]", span->left);
	}
	printf("]}\n");
	fflush(stdout);
}

static bool settle(struct tally *tally, const struct process *process, const struct order *order)
{
	static const char *const outcomes[] = {
		[NO_THREAD_LIST] = "its /proc cannot be read inside it, or it has no descriptor left",
		[NOT_OURS] = NOT_BY_ITS_USER,
		[NOT_STOPPING] = "a thread did not stop in time",
		[FORBIDDEN] = "it has changed",
		[TOO_MANY] = "it has too many threads",
		[NO_POLICY] = "it may not use memory of that node (its cpuset)",
	};
	long took = order->ended - order->began;

	tally->stops++;
	tally->longest = took > tally->longest ? took : tally->longest;
	for (int i = 0; i < order->done; i++) {
		const struct part *part = &order->parts[i];

		tally->moving += part->microseconds;
		tally->retries += part->tries;
		if (part->away)
			tally->skipped += part->length, tally->last_error = part->away;
		else
			tally->bytes += part->length;
	}
	if (order->outcome == LEFT_AWAY)
		fail(EXIT_VERIFY, "PID %d: the memory at %lx could not be moved back from %lx for %d s: %s; the process is stopped "
		     "(SIGSTOP), no byte is lost; it cannot go on by itself: save what you need of it", process->pid,
		     order->parts[order->done].start, order->away_at, TO_RETURN / 1000000,
		     strerror(order->parts[order->done].back));
	if (chain.unseen)
		refuse(process, "the /proc that it sees is of another PID namespace (unshare --pid without --mount-proc)");
	if (order->outcome == NO_POLICY || order->outcome == TOO_MANY || order->outcome == NOT_OURS ||
	    order->outcome == NO_THREAD_LIST)
		refuse(process, outcomes[order->outcome]);
	return order->outcome == ALL_STOPPED && order->done > 0;
}

/* Fills the order with parts from (*span, *at) on, at most `longest` bytes each, `budget` microseconds together. */
static void fill(struct order *order, const struct plan *plan, size_t span, uint64_t at, double dear, double around, long most)
{
	double budget = most ? most - around : 1e12;
	uint64_t longest = most ? PART : WHOLE;

	while (longest > TABLE_SPAN && dear * (double)(longest >> 20) > budget / 2)
		longest /= 2;
	for (double spent = 0; order->count < MOST_PARTS && span < plan->count;) {
		uint64_t from = at ? at : plan->spans[span].start, to;

		if (plan->spans[span].left || from >= plan->spans[span].end) {
			span++;
			at = 0;
			continue;
		}
		to = (from & -TABLE_SPAN) + longest;
		to = to < plan->spans[span].end ? to : plan->spans[span].end;
		spent += dear * (double)((to - from) >> 20);
		if (order->count && spent > budget)
			return;
		order->parts[order->count++] = (struct part){ .start = from, .length = to - from };
		at = to;
	}
}

static void move_all(struct plan *plan, long most, struct tally *tally)
{
	double dear = DEAR, around = AROUND;
	uint64_t at = 0;
	int in_a_row = 0;

	for (size_t span = 0; !enough && in_a_row < LOST_IN_A_ROW;) {
		struct order order = { .node = plan->node, .to_stop = most ? most / 2 : WHOLE_STOP, .to_return = TO_RETURN, .dear = dear + 1,
				       .tasks = "/proc/", .maps = "/proc/self/maps" };
		const struct part *last;

		snprintf(order.tasks, sizeof(order.tasks), "/proc/%d/task", chain.own);
		fill(&order, plan, span, at, dear, around, most);
		if (!order.count)
			return;
		long moving = tally->moving;
		enum stop_result result = chain_carry_out(&chain, &process, &order, most ? most - TO_END : 10000000);

		if (result != CARRIED_OUT || !settle(tally, &process, &order)) {
			if (!process_alive(&process))
				fail(EXIT_PARTIAL, "PID %d: ended while it was relocated", process.pid);
			if (result == CARRIED_OUT && order.outcome == NOT_STOPPING)
				snprintf(chain.why, sizeof(chain.why), "thread %d did not stop in time", order.thread);
			if (result == CARRIED_OUT && order.outcome == ALL_STOPPED) {
				snprintf(chain.why, sizeof(chain.why), "no time was left for a part: give a longer --max-pause");
				around += (most - around) / 2; /* smaller ones */
			}
			tally->lost++;
			in_a_row++;
			usleep(2000 * in_a_row);
			continue;
		}
		around += (chain.held - tally->moving + moving - around) / 4;
		in_a_row = 0;
		last = &order.parts[order.done - 1];
		for (int i = 0; i < order.done; i++) {
			double each = order.parts[i].microseconds / ((order.parts[i].length >> 20) + 1.0);

			dear = each > dear ? each : dear + (each - dear) / 8;
		}
		at = last->start + last->length;
		while (span < plan->count && plan->spans[span].end < at)
			span++;
		usleep(200);
	}
}

static void print_tally(const struct tally *tally, const struct chain *chain, const char *gave_up)
{
	printf("{\"stops\": %ld, \"bytes\": %lu, \"skipped\": %lu, \"error\": \"%s\", \"longest_us\": %ld, \"longest_held_us\": %ld, "
	       "\"late\": %ld, \"moving_us\": %ld, \"retries\": %ld, \"lost\": %ld, \"interrupted\": %u, \"gave_up\": \"%s\"}\n",
	       tally->stops, tally->bytes, tally->skipped, tally->last_error ? strerror(tally->last_error) : "",
	       tally->longest, chain->longest_held, chain->late, tally->moving, tally->retries, tally->lost,
	       chain->interrupted, enough ? "interrupted" : gave_up);
	fflush(stdout);
}

static uint64_t bytes_of(const struct plan *plan)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < plan->count; i++)
		if (!plan->spans[i].left)
			bytes += plan->spans[i].end - plan->spans[i].start;
	return bytes;
}

static long number_of(const char *text, long most)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end || number > most)
		fail(EXIT_WRONG_USE, "%s: not a number up to %ld", text, most);
	return number;
}

int main(int count, char **arguments)
{
	struct topology topology;
	struct plan plan = { 0 };
	struct tally tally = { 0 };
	long most = PAUSE, node = -1;
	bool yes = false;
	char *status, why_not_all[sizeof(chain.why)] = "";
	const char *why;
	sigset_t child;
	int i = 1;

	for (; i < count && arguments[i][0] == '-'; i++) {
		if (!strcmp(arguments[i], "--yes"))
			yes = true;
		else if (!strcmp(arguments[i], "--to") && i + 1 < count)
			node = number_of(arguments[++i], 63);
		else if (!strcmp(arguments[i], "--max-pause") && i + 1 < count)
			most = number_of(arguments[++i], 10000000);
		else
			break;
	}
	if (i + 1 != count || arguments[i][0] == '-') {
		bool help = count == 2 && !strcmp(arguments[1], "--help");

		fputs(usage, help ? stdout : stderr);
		return help ? EXIT_OK : EXIT_WRONG_USE;
	}
	process.pid = number_of(arguments[i], 1 << 30);
	chain.seed = (unsigned)getpid() ^ (unsigned)microseconds_now();
	topology_read(&topology);
	if (node >= 0)
		refuse_missing_node(&topology, node);
	process_open(&process, process.pid);
	if (process.pidfd < 0)
		fail(EXIT_WRONG_USE, "PID %d: a thread's number, not a process's", process.pid);
	if (process.pid == getpid())
		refuse(&process, "it is ptrelocate itself");
	look_at_threads(&plan, &process, &topology);
	if (is_32_bit(&process))
		refuse(&process, "it is a 32-bit program");
	if (process_vm_readv(getpid(), NULL, 0, NULL, 0, 0))
		refuse(&process, "this kernel has no process_vm_readv");
	refuse_devices(&process);
	refuse_other_users(&process);
	read_spans(&plan, &process);
	refuse_near_limits(&plan, &process);
	if (!chain_find_code(&chain, &process))
		refuse(&process, "its code has no system call and signal return of a usual form");
	if (node >= 0)
		plan.node = node;
	print_plan(&plan, &process);
	if (!yes)
		return EXIT_OK;
	refuse_too_short(&plan, &process, most);
	status = thread_text(&process, process.pid, "status");
	chain.own = status ? number_in_own_namespace(status) : 0;
	chain.may = may_be_moved;
	chain.most = most;
	free(status);
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL);
	on_signals(stop_moving);
	for (const int *number = (const int[]){ SIGTSTP, SIGTTIN, SIGTTOU, 0 }; *number; number++)
		signal(*number, SIG_IGN); /* a thread may be in our hands */
	if ((why = chain_share_memory(&process)))
		refuse(&process, why);
	before_end(leave_nothing);
	move_all(&plan, most, &tally);
	bool whole = tally.bytes + tally.skipped >= bytes_of(&plan);

	if (!whole)
		memcpy(why_not_all, chain.why, sizeof(chain.why));
	leave_nothing();
	print_tally(&tally, &chain, why_not_all);
	return whole && !tally.skipped ? EXIT_OK : EXIT_PARTIAL;
}
