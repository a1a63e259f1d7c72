/* SPDX-License-Identifier: MIT */
/* The process as /proc shows it. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "output.h"
#include "privileges.h"
#include "proc.h"

#define STAT_STARTTIME 22 /* proc(5) */
#define STAT_PROCESSOR 39
#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

#define READ_AGAIN 100 /* times, of a list of areas that changed while it was read */

static const char *const file_names[PROCESS_FILES] = { "pagemap", "maps", "smaps", "pagemap" };

/* From its start; NULL and errno where it cannot be read, also if there is no such file. */
static char *read_open(int file, size_t *length)
{
	size_t used = 0, room = 1 << 16;
	char *text = malloc(room + 1), *more;
	ssize_t got = 0;

	while (text && (got = pread(file, text + used, room - used, used)) > 0) {
		used += got;
		if (used < room)
			continue;
		more = realloc(text, (room *= 2) + 1);
		if (!more)
			free(text);
		text = more;
	}
	if (text && got < 0) {
		free(text);
		text = NULL;
	}
	if (text)
		text[used] = 0;
	if (length)
		*length = used;
	return text;
}

static char *read_all(int directory, const char *name)
{
	int file = openat(directory, name, O_RDONLY | O_CLOEXEC);
	char *text = file < 0 ? NULL : read_open(file, NULL);
	int why = errno;

	if (file >= 0)
		close(file);
	errno = why;
	return text;
}

static void refuse_unread(const struct process *process, const char *name)
{
	fail(errno == ESRCH ? EXIT_PARTIAL : EXIT_WRONG_USE, "PID %d: cannot read %s: %s", process->pid, name,
	     strerror(errno));
}

static const char *next_line(const char *line)
{
	line = strchrnul(line, '\n');
	return line + (*line == '\n');
}

/* No word is longer than `size` - 1: the rest of it is left out. Returns what follows the word and the spaces behind it. */
static const char *take_word(const char *at, char *word, size_t size)
{
	size_t length = strcspn(at, " \n");

	snprintf(word, size, "%.*s", (int)length, at);
	return at + length + strspn(at + length, " ");
}

/* Lines of sizes and flags begin with a capital letter, those with addresses with a digit. */
bool next_mapping(const char **text, struct mapping *area)
{
	const char *at = *text;
	char *after, unused[32];

	*area = (struct mapping){ .start = strtoull(at, &after, 16) };
	if (!isxdigit((unsigned char)*at) || *after != '-' || !isxdigit((unsigned char)after[1]))
		return false;
	area->end = strtoull(after + 1, &after, 16);
	if (*after != ' ')
		return false;
	at = take_word(after + 1, area->rights, sizeof(area->rights));
	at = take_word(take_word(at, unused, sizeof(unused)), unused, sizeof(unused)); /* offset and device */
	if (strlen(area->rights) != 4 || !isdigit((unsigned char)*at))
		return false;
	area->inode = strtoull(at, &after, 10);
	take_word(after + strspn(after, " "), area->name, sizeof(area->name));
	for (at = next_line(after); isupper((unsigned char)*at); at = next_line(at))
		if (!strncmp(at, "Rss:", 4))
			area->resident = strtoull(at + 4, NULL, 10);
		else if (!strncmp(at, "AnonHugePages:", 14))
			area->huge = strtoull(at + 14, NULL, 10);
		else if (!strncmp(at, "VmFlags:", 8))
			area->flags = at + 8;
	*text = at;
	return true;
}

/* Each flag is two letters between spaces. */
bool mapping_has(const struct mapping *area, const char *flag)
{
	char between[] = { ' ', flag[0], flag[1], ' ' };

	return area->flags && memmem(area->flags, strcspn(area->flags, "\n"), between, sizeof(between));
}

/* In `order`, each area lies behind the one before it. */
static bool understood(const char *text, bool *order)
{
	struct mapping area;
	uint64_t end = 0;

	for (*order = true; next_mapping(&text, &area); end = area.end)
		*order &= area.start >= end;
	return !*text;
}

/* Since 6.17 the kernel lists areas without holding up changes between two. */
char *process_read(const struct process *process, enum process_file which, size_t *length)
{
	for (int again = READ_AGAIN;; again--) {
		char *text = read_open(process->files[which], length);
		bool order, whole = text && understood(text, &order);

		if (!text)
			refuse_unread(process, file_names[which]);
		if (whole && (order || which != PROCESS_MAPS || !again))
			return text;
		if (!again)
			fail(EXIT_WRONG_USE, "PID %d: its %s has a line that is not understood", process->pid, file_names[which]);
		free(text);
	}
}

/* Fields of /proc/PID/stat from the third (state) on; NULL when the process is gone. */
static char *read_stat(int directory)
{
	char *text = read_all(directory, "stat"), *end = text ? strrchr(text, ')') : NULL, *fields;

	fields = end ? strdup(end + 2) : NULL;
	free(text);
	return fields;
}

char process_state(int directory)
{
	char *fields = read_stat(directory), state = fields ? fields[0] : 'X';

	free(fields);
	return state;
}

/* Whoever started it and waits, a shell, sudo or script(1), takes the terminal from a foreground job that stops, and keeps it. */
bool process_has_terminal(const struct process *process)
{
	char *fields = read_stat(process->directory);
	int group = 0, terminal = 0, foreground = 0;

	if (fields)
		sscanf(fields, "%*c %*d %d %*d %d %d", &group, &terminal, &foreground);
	free(fields);
	return terminal && foreground == group;
}

/*
 * Its memory is still in use, and by itself: after exec or exit nobody uses the mm that our pagemap holds, which then
 * reads as empty.
 */
bool process_alive(const struct process *process)
{
	uint64_t word;

	return pread(process->pagemap, &word, sizeof(word), 0) == sizeof(word) &&
	       !strchr("ZX", process_state(process->directory));
}

void process_faults(const struct process *process, uint64_t *minor, uint64_t *major)
{
	char *fields = read_stat(process->directory);

	if (fields)
		sscanf(fields, "%*c %*d %*d %*d %*d %*d %*u %lu %*u %lu", minor, major);
	free(fields);
}

/* mm->pgtables_bytes, as "VmPTE" shows it; 0 when the process is gone. */
uint64_t process_table_bytes(const struct process *process)
{
	char *status = read_all(process->directory, "status"), *line = status ? strstr(status, "\nVmPTE:") : NULL;
	uint64_t bytes = line ? strtoull(line + 7, NULL, 10) * 1024 : 0;

	free(status);
	return bytes;
}

static long long stat_field(char *fields, int wanted, long long otherwise)
{
	int number = 3; /* `fields` starts with the third */

	for (char *field = fields; field; field = strchr(field + 1, ' '), number++)
		if (number == wanted)
			return atoll(field);
	return otherwise;
}

/* Seconds from the machine's boot to the start of the process; below 0 when it is gone. */
double process_began(const struct process *process)
{
	char *fields = read_stat(process->directory);
	long long ticks = stat_field(fields, STAT_STARTTIME, -1);

	free(fields);
	return ticks < 0 ? -1 : (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

char *thread_text(const struct process *process, int tid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", tid, name);
	return read_all(process->directory, path);
}

int number_in_own_namespace(const char *status)
{
	const char *line = strstr(status, "\nNSpid:"), *last = line;

	for (; line && *line && (line == last || *line != '\n'); line++)
		if (*line == '\t')
			last = line;
	return last ? atoi(last + 1) : 0;
}

/* The CPU that thread `tid` runs on, or ran on last; -1 when it is gone. */
int thread_cpu(const struct process *process, int tid)
{
	char *text = thread_text(process, tid, "stat"), *end = text ? strrchr(text, ')') : NULL;
	int cpu = (int)stat_field(end ? end + 2 : NULL, STAT_PROCESSOR, -1);

	free(text);
	return cpu;
}

/* For 2 MiB the file of that size counts, where there is one (Linux 6.8) that does not say "inherit". */
static void read_huge_pages(char *chosen, size_t size)
{
	static const char *const files[] = { "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
					     "/sys/kernel/mm/transparent_hugepage/enabled" };

	for (size_t i = 0; i < sizeof(files) / sizeof(*files) && !*chosen; i++) {
		char *text = read_all(AT_FDCWD, files[i]), *word = text ? strchr(text, '[') : NULL;

		if (word && strncmp(word, "[inherit]", 9))
			snprintf(chosen, size, "%.*s", (int)strcspn(word + 1, "]"), word + 1);
		free(text);
	}
}

static void describe(struct process *process)
{
	char *status = read_all(process->directory, "status"), *line, *end;

	if (!status)
		refuse_unread(process, "status");
	if ((line = strstr(status, "\nUid:")))
		process->uid = strtoul(line + 5, NULL, 10);
	if (strstr(status, "\nTHP_enabled:\t0")) /* prctl(PR_SET_THP_DISABLE) */
		snprintf(process->huge_pages, sizeof(process->huge_pages), "forbidden");
	else
		read_huge_pages(process->huge_pages, sizeof(process->huge_pages));
	free(status);
	status = read_all(process->directory, "comm");
	if (!status)
		refuse_unread(process, "comm");
	if ((end = strrchr(status, '\n'))) /* a name may hold others */
		*end = 0;
	snprintf(process->comm, sizeof(process->comm), "%s", status);
	free(status);
}

/* What is read while tables are read can be read with what we may do now. */
bool process_readable(const struct process *process)
{
	return !faccessat(process->directory, "stat", R_OK, AT_EACCESS) &&
	       !faccessat(process->directory, "task", R_OK | X_OK, AT_EACCESS);
}

/* Async-signal-safe; -1 and errno like kill(), but never another process that got the number. */
int process_signal(const struct process *process, int number)
{
	return syscall(SYS_pidfd_send_signal, process->pidfd, number, NULL, 0);
}

static void not_permitted(const struct process *process)
{
	if (have_capability(CAP_SYS_PTRACE) && have_capability(CAP_DAC_READ_SEARCH))
		fail(EXIT_WRONG_USE, "PID %d: the kernel does not let us read it, though we have CAP_SYS_PTRACE: it may have "
		     "more capabilities than we have, or a security module or a container protects it", process->pid);
	fail(EXIT_WRONG_USE, "PID %d: not permitted: needs CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH if it is not your own; "
	     "run as root", process->pid);
}

/* What is read later is opened now, while we may; all of it shows the memory that the process has now. */
static void open_files(struct process *process)
{
	for (int i = 0; i < PROCESS_FILES; i++) {
		process->files[i] = openat(process->directory, file_names[i], O_RDONLY | O_CLOEXEC);
		if (process->files[i] >= 0)
			continue;
		if (errno == EACCES || errno == EPERM)
			not_permitted(process);
		if (errno == ESRCH)
			fail(EXIT_WRONG_USE, "PID %d: has exited", process->pid);
		fail(EXIT_WRONG_USE, "PID %d: cannot open its %s: %s", process->pid, file_names[i], strerror(errno));
	}
	process->pagemap = process->files[PROCESS_PAGEMAP];
}

pid_t living_thread(pid_t pid)
{
	char path[64];
	pid_t living = 0;
	DIR *threads;
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	threads = opendir(path);
	while (threads && !living && (entry = readdir(threads))) {
		int thread = entry->d_name[0] == '.' ? -1 : openat(dirfd(threads), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (thread < 0)
			continue;
		if (!strchr("ZX", process_state(thread)))
			living = atoi(entry->d_name);
		close(thread);
	}
	if (threads)
		closedir(threads);
	return living ? living : pid;
}

static pid_t process_of(int directory)
{
	char *status = read_all(directory, "status"), *line = status ? strstr(status, "\nTgid:\t") : NULL;
	pid_t pid = line ? atoi(line + 7) : 0;

	free(status);
	return pid;
}

/* The pidfd comes first: if its process has not been reaped when /proc/PID is open, both are the same. */
void process_open(struct process *process, pid_t pid)
{
	char path[64], *stat;
	unsigned flags = 0;

	process->pid = pid;
	process->tid = living_thread(pid);
	process->pidfd = syscall(SYS_pidfd_open, pid, 0);
	if (process->pidfd < 0)
		process->pidfd = -errno;
	snprintf(path, sizeof(path), "/proc/%d", process->tid);
	process->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (process->directory < 0 && errno != ENOENT && errno != ESRCH)
		fail(EXIT_WRONG_USE, "PID %d: cannot be looked at: %s", pid, strerror(errno));
	stat = process->directory < 0 ? NULL : read_stat(process->directory);
	if (!stat && errno == EMFILE)
		fail(EXIT_WRONG_USE, "PID %d: cannot be looked at: %s", pid, strerror(errno));
	if (!stat || process->pidfd == -ESRCH || (process->tid != pid && process_of(process->directory) != pid) || (process->pidfd >= 0 && process_signal(process, 0) && errno == ESRCH))
		fail(EXIT_WRONG_USE, "PID %d: no such process", pid);
	sscanf(stat, "%*c %*d %*d %*d %*d %*d %u", &flags);
	if (stat[0] == 'Z' || stat[0] == 'X')
		fail(EXIT_WRONG_USE, "PID %d: has exited (a zombie has no page tables)", pid);
	if (flags & PF_KTHREAD)
		fail(EXIT_WRONG_USE, "PID %d: a kernel thread, it has no page tables of its own", pid);
	free(stat);
	describe(process);
	open_files(process);
}

uint64_t frame_of_own_page(const void *page)
{
	int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (file < 0)
		fail(EXIT_WRONG_USE, "/proc/self/pagemap: cannot be opened: %s", strerror(errno));
	if (pread(file, &entry, 8, (uintptr_t)page / 4096 * 8) != 8)
		entry = 0;
	close(file);
	return entry >> 63 ? entry & ((1ULL << 55) - 1) : 0;
}
