/* Preloaded: the disk is full from the FULL_AT-th call on that writes, syncs or renames; how many there were goes to FULL_LOG. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int calls;

static int full(void)
{
	const char *at = getenv("FULL_AT");

	calls++;
	errno = ENOSPC;
	return at && calls >= atoi(at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at)
{
	return full() ? -1 : syscall(SYS_pwrite64, file, from, bytes, at);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off_t at)
{
	return pwrite(file, from, bytes, at);
}

int fsync(int file)
{
	return full() ? -1 : syscall(SYS_fsync, file);
}

int renameat(int from, const char *old, int to, const char *new)
{
	return full() ? -1 : syscall(SYS_renameat, from, old, to, new);
}

__attribute__((destructor)) static void tell(void)
{
	const char *log = getenv("FULL_LOG");
	int file = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;

	if (file >= 0)
		dprintf(file, "%d", calls);
	close(file);
}
