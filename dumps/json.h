/* SPDX-License-Identifier: MIT */
/* snapshot.json, and what it shares with vm.json. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include "stop.h"
#include "topology.h"
#include "verify.h"
#include "walk.h"

struct description {
	const struct reader *reader;
	const struct topology *topology;
	struct reading *reading;
	struct stop stop;
	const struct verified *verified; /* NULL: not asked for */
	const char *page_type;
	const char *unknown[8]; /* what this way to read does not show, then NULL */
	unsigned retries;
	struct timespec started;
};
const char *truth(bool value);
FILE *json_begin(int file, const char *name, const char *format, const struct description *about);
void json_string(FILE *out, const char *text);
void json_origin(FILE *out, const struct description *about);
void json_reading(FILE *out, const struct description *about);
void json_end(FILE *out, const char *name);
void json_write(int file, const struct description *about);

#endif
