/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Address of a kernel symbol; 0: there is none, or addresses are hidden from us. Asked for by name (Linux 5.16): for an
 * extern without a type libbpf reads all of /proc/kallsyms, which takes longer than to dump a small process.
 */
#ifndef SYMBOL_BPF_H
#define SYMBOL_BPF_H

#define ADDRESS_OF(symbol)                                                 \
	({                                                                 \
		char name[] = #symbol;                                     \
		u64 address = 0;                                           \
		bpf_kallsyms_lookup_name(name, sizeof(name), 0, &address); \
		address;                                                   \
	})

#endif
