/* SPDX-License-Identifier: MIT */
/* What `process` and `vm` do alike. */
#ifndef DUMP_COMMON_H
#define DUMP_COMMON_H

#include <stdbool.h>
#include "json.h"

void dump_quiescent(struct reader *reader, struct description *about, struct verified *verified);
bool say_done(const struct description *about);

#endif
