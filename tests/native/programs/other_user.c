/* SPDX-License-Identifier: MIT */
/* Touches some memory as another user, or below another root. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	char *memory = malloc(1 << 20);
	int failed = !strcmp(arguments[count - 1], "chroot") ? chroot("/proc") : setuid(65534);

	memset(memory, 1, 1 << 20);
	return failed || !memory[12345];
}
