/* SPDX-License-Identifier: MIT */
/* What `process` and `vm` do alike. */
#ifndef TOGETHER_H
#define TOGETHER_H

#include <stdbool.h>
#include "json.h"

void read_together(struct reader *reader, struct description *about, struct verified *verified);
bool say_done(const struct description *about);

#endif
