/* SPDX-License-Identifier: MIT */
/* Files that appear together or not at all, and how the program ends: any file may call fail(). */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

enum exit_code { EXIT_OK = 0, EXIT_VERIFY = 1, EXIT_WRONG_USE = 2, EXIT_PARTIAL = 3 };

/* A line, what is no printable ASCII in it as \xNN: names are of the process that is dumped. */
void say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fail(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
/* `last` is called before the program ends by fail() or a signal: async-signal-safe, or NULL. */
void before_end(void (*last)(void));
/* Of SIGINT, SIGTERM and SIGHUP, those that are not ignored. */
void on_signals(void (*handler)(int));
void output_begin(const char *directory);
int output_file(const char *name);
void output_write(int file, const void *data, size_t bytes, off_t offset);
void output_commit(void);
/* What we may do now is enough to rename files there and to remove all that we made. */
bool output_writable(void);
double monotonic_seconds(void);

#endif
