/* SPDX-License-Identifier: MIT
 *
 * The session's file: header, whole frames, and what ends it.
 */
#ifndef PTT_SESSION_FILE_H
#define PTT_SESSION_FILE_H

#include <stddef.h>

#include "session.h"

/* ns since the session began */
uint64_t session_time();

void copy_text(char *to, const char *from, size_t room);

/* `ptanalyze: WHAT: CONSEQUENCE`, where standard error is still the one of the beginning and has room now. */
void say(const char *what, const char *consequence);

/* Enters a section of the session; false: never again, and said. */
bool enter(int *lock);

/* A new private file, its descriptor out of the program's way; or -errno. */
int open_file(const char *path);

/* The command line of this process, words separated by spaces. */
void read_command(char *command, size_t room);

/* False when the program closed our descriptor: the number may mean its own file now. */
bool file_is_ours();

/* The rest under file_lock. */
void write_header();

/* Completes `frame`, whose payload stands behind its place in `data`, and puts it there. */
void seal_frame(uint8_t *data, ptt_frame *frame);

/* Appends a whole frame or nothing; false when the trace has ended, or ends with it. */
bool append(const uint8_t *data, size_t bytes);

#endif
