/* SPDX-License-Identifier: MIT */
/* The capture directory: everything is written to NAME.tmp and renamed at the end, or removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "output.h"

#define MAX_FILES 136 /* four, and two for each of up to 64 nodes */
#define LINE 4096

static struct {
	const char *path;
	int directory, count, files[MAX_FILES];
	char names[MAX_FILES][32], temporary[MAX_FILES][40];
	bool made;
} output = { .directory = -1 };

static void (*last_call)(void);

double monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Async-signal-safe. */
static void remove_everything(void)
{
	for (int i = 0; i < output.count; i++) {
		unlinkat(output.directory, output.temporary[i], 0);
		unlinkat(output.directory, output.names[i], 0);
	}
	if (output.made)
		rmdir(output.path);
	output.count = 0;
	output.made = false;
}

void before_end(void (*last)(void))
{
	last_call = last;
}

/* Async-signal-safe. */
static void clean_up(void)
{
	if (last_call)
		last_call();
	remove_everything();
}

static void put_line(FILE *to, const char *format, va_list arguments)
{
	char line[LINE];

	vsnprintf(line, sizeof(line), format, arguments);
	for (const unsigned char *c = (const unsigned char *)line; *c; c++)
		fprintf(to, *c < 32 || *c > 126 ? "\\x%02x" : "%c", *c);
	fputc('\n', to);
}

void say(FILE *to, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	put_line(to, format, arguments);
	va_end(arguments);
}

void fail(int code, const char *format, ...)
{
	va_list arguments;

	if (last_call)
		last_call(); /* before anything waits for whoever reads what we say */
	fflush(stdout);
	fputs("ptdump: ", stderr);
	va_start(arguments, format);
	put_line(stderr, format, arguments);
	va_end(arguments);
	clean_up();
	exit(code);
}

static void on_signal(int number)
{
	clean_up();
	_exit(128 + number);
}

/* What we were started to ignore stays ignored: SIGINT in the background of a script, SIGHUP under nohup. */
void on_signals(void (*handler)(int))
{
	struct sigaction now;

	for (const int *number = (const int[]){ SIGINT, SIGTERM, SIGHUP, 0 }; *number; number++)
		if (!sigaction(*number, NULL, &now) && now.sa_handler != SIG_IGN)
			signal(*number, handler);
}

static bool is_empty(int directory)
{
	DIR *entries = fdopendir(dup(directory));
	struct dirent *entry;
	bool empty = true;

	while (entries && (entry = readdir(entries)))
		empty &= !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	if (entries)
		closedir(entries);
	return empty;
}

void output_begin(const char *path)
{
	output.path = path;
	output.made = mkdir(path, 0700) == 0;
	if (!output.made && errno != EEXIST)
		fail(EXIT_WRONG_USE, "%s: cannot make this directory: %s", path, strerror(errno));
	output.directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (output.directory < 0)
		fail(EXIT_WRONG_USE, "%s: cannot be opened as a directory: %s", path, strerror(errno));
	if (!is_empty(output.directory))
		fail(EXIT_WRONG_USE, "%s: not empty; give a new directory", path);
	on_signals(on_signal);
	signal(SIGXFSZ, SIG_IGN); /* beyond RLIMIT_FSIZE write() then fails with EFBIG */
}

/* The name counts from when the file is ours: fail() must not remove what another ptdump made. */
int output_file(const char *name)
{
	int i = output.count;

	snprintf(output.names[i], sizeof(output.names[i]), "%s", name);
	snprintf(output.temporary[i], sizeof(output.temporary[i]), "%s.tmp", name);
	output.files[i] = openat(output.directory, output.temporary[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (output.files[i] < 0)
		fail(EXIT_WRONG_USE, "%s/%s: %s", output.path, name, strerror(errno));
	output.count = i + 1;
	return output.files[i];
}

void output_write(int file, const void *data, size_t bytes, off_t offset)
{
	const char *from = data;

	while (bytes) {
		ssize_t written = pwrite(file, from, bytes, offset);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			fail(EXIT_WRONG_USE, "%s: cannot write: %s; nothing was kept", output.path, strerror(errno));
		from += written;
		offset += written;
		bytes -= written;
	}
}

bool output_writable(void)
{
	return !faccessat(output.directory, ".", W_OK | X_OK, AT_EACCESS) &&
	       (!output.made || !faccessat(output.directory, "..", W_OK | X_OK, AT_EACCESS));
}

void output_commit(void)
{
	for (int i = 0; i < output.count; i++)
		if (fsync(output.files[i]))
			fail(EXIT_WRONG_USE, "%s/%s: %s", output.path, output.names[i], strerror(errno));
	for (int i = 0; i < output.count; i++)
		if (renameat(output.directory, output.temporary[i], output.directory, output.names[i]))
			fail(EXIT_WRONG_USE, "%s/%s: %s", output.path, output.names[i], strerror(errno));
	fsync(output.directory);
	output.count = 0;
	output.made = false;
}
