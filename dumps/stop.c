/* SPDX-License-Identifier: MIT */
/*
 * A guardian process continues what we stopped. It waits for its pipe to close, which the kernel does when we
 * end, however we end; it has left our session and ignores what can be ignored. Unless we are killed we continue
 * the process ourselves: the guardian may have been killed, or stopped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "output.h"
#include "stop.h"

#define WAIT_SECONDS 2.0

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

/* Also continues it after `most` milliseconds: we may be stopped ourselves then. */
static void guard(const struct process *process, int pipe, int dumper, unsigned long most)
{
	struct pollfd end = { .fd = pipe, .events = POLLIN };

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	setsid();
	close(dumper);
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
	int ends[2];

	stop->already = strchr("Tt", process_state(process->directory));
	stop->since = monotonic_seconds();
	stop->stopped = stop->already;
	if (stop->already)
		return;
	if (process->pidfd < 0 || pipe2(ends, O_CLOEXEC))
		fail(EXIT_WRONG_USE, "PID %d: cannot be stopped: %s", process->pid,
		     strerror(process->pidfd < 0 ? -process->pidfd : errno));
	stop->guardian = fork();
	if (stop->guardian < 0)
		fail(EXIT_WRONG_USE, "cannot start the guardian that continues PID %d: %s", process->pid, strerror(errno));
	if (stop->guardian == 0)
		guard(process, ends[0], ends[1], most);
	close(ends[0]);
	stop->pipe = ends[1];
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
	before_end(NULL);
	stop->gave_up = late;
	stop->stopped &= !late;
	kill(stop->guardian, SIGKILL);
	close(stop->pipe);
	waitpid(stop->guardian, NULL, 0);
	stop->guardian = 0;
}
