/* SPDX-License-Identifier: MIT */
/*
 * What we stopped is continued three times over. By us, unless we are killed. By the kernel, whoever is killed:
 * we hold both ends of a connection, each of which sends SIGCONT when the other is closed, as the kernel does
 * with the files of whatever ends. By a guardian process, which waits for its pipe to close or for the time to be
 * over: we may be stopped ourselves, and the kernel sends nothing to another user's process unless we are root.
 * It has left our session, ignores what can be ignored, and may do nothing but send signals.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "output.h"
#include "privileges.h"
#include "stop.h"

#define WAIT_SECONDS 2.0

static int ends[2] = { -1, -1 };
static const struct process *held; /* the process that we stopped */
static volatile sig_atomic_t late;

static void let_go(void)
{
	process_signal(held, SIGCONT);
}

static void too_long(int number)
{
	(void)number;
	let_go();
	late = true;
}

static void alarm_after(unsigned long milliseconds)
{
	struct itimerval when = { .it_value = { milliseconds / 1000, milliseconds % 1000 * 1000 } };

	signal(SIGALRM, too_long);
	setitimer(ITIMER_REAL, &when, NULL);
}

/* The owner is named by its number: the pidfd says afterwards that it is still its own. */
static void tie(const struct process *process)
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return; /* there is the guardian */
	for (int i = 0; i < 2; i++)
		if (fcntl(ends[i], F_SETOWN, process->pid) || fcntl(ends[i], F_SETSIG, SIGCONT) ||
		    fcntl(ends[i], F_SETFL, O_RDWR | (process_signal(process, 0) ? 0 : O_ASYNC)))
			break;
}

static void untie(void)
{
	for (int i = 0; i < 2; i++)
		fcntl(ends[i], F_SETFL, O_RDWR);
	for (int i = 0; i < 2; i++)
		close(ends[i]);
}

static void close_all_but(int one, int other)
{
	unsigned low = one < other ? one : other, high = one < other ? other : one;

	close_range(0, low - 1, 0);
	if (high > low + 1)
		close_range(low + 1, high - 1, 0);
	close_range(high + 1, ~0U, 0);
}

/* Also continues it after `most` milliseconds: we may be stopped ourselves then. */
static void guard(const struct process *process, int pipe, unsigned long most)
{
	struct pollfd end = { .fd = pipe, .events = POLLIN };

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	setsid();
	close_all_but(process->pidfd, pipe);
	keep_capabilities(CAN(CAP_KILL));
	while (poll(&end, 1, most ? (int)most : -1) < 0 && errno == EINTR)
		;
	process_signal(process, SIGCONT);
	_exit(0);
}

static bool every_thread_stopped(const struct process *process)
{
	int file = openat(process->directory, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *threads = file < 0 ? NULL : fdopendir(file);
	struct dirent *thread;
	bool all = threads;

	while (threads && (thread = readdir(threads))) {
		int task = thread->d_name[0] == '.' ? -1 : openat(file, thread->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (task < 0)
			continue;
		all &= !!strchr("TtZX", process_state(task));
		close(task);
	}
	if (threads)
		closedir(threads);
	return all;
}

void stop_process(struct stop *stop, const struct process *process, unsigned long most)
{
	int pipe[2];

	stop->already = strchr("Tt", process_state(process->directory));
	stop->since = monotonic_seconds();
	stop->stopped = stop->already;
	if (stop->already)
		return;
	if (process_has_terminal(process))
		fail(EXIT_WRONG_USE, "PID %d: not stopped: it is the foreground job of a terminal, which its shell would take from it; "
		     "leave out --stop, or start it with setsid", process->pid);
	if (process->pidfd < 0 || pipe2(pipe, O_CLOEXEC))
		fail(EXIT_WRONG_USE, "PID %d: cannot be stopped: %s", process->pid,
		     strerror(process->pidfd < 0 ? -process->pidfd : errno));
	stop->guardian = fork();
	if (stop->guardian < 0)
		fail(EXIT_WRONG_USE, "cannot start the guardian that continues PID %d: %s", process->pid, strerror(errno));
	if (stop->guardian == 0)
		guard(process, pipe[0], most);
	close(pipe[0]);
	stop->pipe = pipe[1];
	tie(process);
	held = process;
	before_end(let_go);
	if (most)
		alarm_after(most);
	if (process_signal(process, SIGSTOP)) {
		if (errno == ESRCH)
			fail(EXIT_PARTIAL, "PID %d: ended before it could be stopped; nothing was kept", process->pid);
		fail(EXIT_WRONG_USE, "PID %d: cannot be stopped: %s", process->pid, strerror(errno));
	}
	while (!(stop->stopped = every_thread_stopped(process)) && !late &&
	       monotonic_seconds() - stop->since < WAIT_SECONDS)
		usleep(200);
}

void continue_process(struct stop *stop)
{
	stop->seconds = monotonic_seconds() - stop->since;
	if (!stop->guardian)
		return;
	alarm_after(0);
	let_go();
	untie();
	before_end(NULL);
	stop->gave_up = late;
	stop->stopped &= !late;
	kill(stop->guardian, SIGKILL);
	close(stop->pipe);
	waitpid(stop->guardian, NULL, 0);
	stop->guardian = 0;
}
