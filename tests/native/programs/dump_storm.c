/* What makes a process hard to read. Argument: forks, execs (of itself), vmas (30,000 of them), quiet. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)

static char *touched(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (size_t page = 0; page < bytes; page += 4096)
		at[page] = 1;
	return at;
}

/* Each child writes to what it shares with its parent, and forks once more. */
static void forks(void)
{
	char *area = touched(8 * MIB);

	for (;;) {
		for (int k = 0; k < 4; k++) {
			if (fork())
				continue;
			memset(area + k * MIB, 2, MIB);
			fork();
			usleep(3000);
			_exit(0);
		}
		while (waitpid(-1, NULL, 0) > 0)
			;
	}
}

static void execs(char **arguments)
{
	char *again[] = { arguments[0], arguments[1], "again", NULL };

	touched(64 * MIB);
	usleep(20000);
	execv("/proc/self/exe", again);
}

static void vmas(void)
{
	char *area = touched(30000 * 4096UL);

	for (size_t page = 0; page < 30000; page += 2)
		mprotect(area + page * 4096, 4096, PROT_READ);
}

int main(int count, char **arguments)
{
	if (!strcmp(arguments[1], "vmas"))
		vmas();
	if (count == 2) {
		puts("ready");
		fflush(stdout);
	}
	if (!strcmp(arguments[1], "forks"))
		forks();
	if (!strcmp(arguments[1], "execs"))
		execs(arguments);
	for (;;)
		pause();
}
