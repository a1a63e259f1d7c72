/* SPDX-License-Identifier: MIT */
#ifndef PTT_ELF_SYMBOL_H
#define PTT_ELF_SYMBOL_H

#include <stdint.h>

/* Address of function `name` in the 64-bit ELF file `path`, and of the lowest page that is loaded, both as the file
 * has them. 0 when there is no such function or no such file. */
uint64_t elf_symbol(const char *path, const char *name, uint64_t *lowest_page);

#endif
