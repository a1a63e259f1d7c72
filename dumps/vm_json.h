/* SPDX-License-Identifier: MIT */
/* vm.json */
#ifndef VM_JSON_H
#define VM_JSON_H

#include "json.h"

void vm_json_write(int file, const struct description *about);

#endif
