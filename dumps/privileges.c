/* SPDX-License-Identifier: MIT */
/* Capabilities by raw system calls: libcap would be one more library for three calls. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "output.h"
#include "privileges.h"

#define WORDS 2 /* of 32 bits, in version 3 */

static struct __user_cap_header_struct header(void)
{
	return (struct __user_cap_header_struct){ .version = _LINUX_CAPABILITY_VERSION_3 };
}

static void get(struct __user_cap_data_struct *data)
{
	struct __user_cap_header_struct own = header();

	if (syscall(SYS_capget, &own, data))
		fail(EXIT_WRONG_USE, "cannot ask for our capabilities: %s", strerror(errno));
}

static void set(uint64_t wanted, bool for_good)
{
	struct __user_cap_header_struct own = header();
	struct __user_cap_data_struct data[WORDS];

	get(data);
	for (int i = 0; i < WORDS; i++) {
		uint32_t word = wanted >> 32 * i;

		data[i].effective = data[i].permitted & word;
		if (for_good)
			data[i].permitted &= word;
		data[i].inheritable = 0;
	}
	if (syscall(SYS_capset, &own, data))
		fail(EXIT_WRONG_USE, "cannot give up capabilities: %s", strerror(errno));
}

bool have_capability(int number)
{
	struct __user_cap_data_struct data[WORDS];

	get(data);
	return data[number / 32].effective >> number % 32 & 1;
}

void use_capabilities(uint64_t wanted)
{
	set(wanted, false);
}

void keep_capabilities(uint64_t wanted)
{
	set(wanted, true);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

void require_capabilities(void)
{
	static const struct {
		int number;
		const char *name, *why;
	} needed[] = {
		{ CAP_BPF, "CAP_BPF", "to load the BPF programs" },
		{ CAP_PERFMON, "CAP_PERFMON", "to read kernel memory from BPF" },
		{ CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "to see page frame numbers" },
		{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "to open another process's pagemap" },
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (!have_capability(needed[i].number))
			fail(EXIT_WRONG_USE, "missing capability %s %s; run as root", needed[i].name, needed[i].why);
}
