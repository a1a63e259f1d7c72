/*
 * A process and three forked ones over one shared mapping: four trees with the same pages. Child k writes every
 * (k + 1)-th page, drops all other memory and waits, so that its tree is a partial copy of the parent's. Commands on
 * standard input: "roots A B C D" (hexadecimal) become the process's auxiliary vector in the kernel, mm->saved_auxv;
 * "unmap PAGE" and "protect PAGE" change the parent alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGES 1024UL
#define PAGE 4096UL
static char *const shared = (char *)0x200000000000, *const code = (char *)0x200040000000;

/* Runs in the page `code`, the only memory that is left but `shared`; needs no stack. */
extern const char leave[], leave_end[];
__asm__(".text\n"
	"leave:\n"
	"mov $11, %eax\n xor %edi, %edi\n mov $0x200000000000, %rsi\n syscall\n"
	"mov $11, %eax\n mov $0x200040001000, %rdi\n mov $0x5fffbfffe000, %rsi\n syscall\n"
	"1: mov $34, %eax\n syscall\n jmp 1b\n"
	"leave_end:\n");

static pid_t child(unsigned long step)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, 9, 0L, 0L, 0L);
	for (unsigned long i = 0; i < PAGES; i += step)
		shared[i * PAGE] = 2;
	((void (*)(void))code)();
	return 0;
}

/* What the kernel has of us, with another auxiliary vector: needs no privilege (CONFIG_CHECKPOINT_RESTORE). */
static int set_auxv(char *roots)
{
	unsigned long vector[8] = { 0 }, field[64] = { 0 };
	char stat[2048] = "", *at;
	FILE *file = fopen("/proc/self/stat", "r");
	int number = 3;

	for (int i = 0; i < 4; i++)
		vector[i] = strtoul(roots, &roots, 16);
	if (!file || !fgets(stat, sizeof(stat), file) || !strrchr(stat, ')'))
		return -1;
	fclose(file);
	for (at = strtok(strrchr(stat, ')') + 2, " "); at && number < 64; at = strtok(NULL, " "))
		field[number++] = strtoul(at, NULL, 10);
	struct prctl_mm_map map = {
		.start_code = field[26], .end_code = field[27], .start_data = field[45], .end_data = field[46],
		.start_brk = field[47], .brk = (unsigned long)sbrk(0), .start_stack = field[28], .arg_start = field[48],
		.arg_end = field[49], .env_start = field[50], .env_end = field[51], .auxv = (void *)vector,
		.auxv_size = sizeof(vector), .exe_fd = -1
	};
	return prctl(PR_SET_MM, (long)PR_SET_MM_MAP, &map, sizeof(map), 0L);
}

static int change(char *command)
{
	char *page = shared + PAGE * strtoul(strchr(command, ' '), NULL, 10);

	if (!strncmp(command, "roots ", 6))
		return set_auxv(command + 6);
	return command[0] == 'u' ? munmap(page, PAGE) : mprotect(page, PAGE, PROT_READ);
}

static void *map_shared(char *at, size_t bytes, int protection)
{
	return mmap(at, bytes, protection, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

int main(void)
{
	char command[256];

	if (map_shared(shared, PAGES * PAGE, PROT_READ | PROT_WRITE) != shared ||
	    map_shared(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != code)
		return 1;
	memcpy(code, leave, leave_end - leave);
	for (unsigned long i = 0; i < PAGES; i++)
		shared[i * PAGE] = 1;
	printf("pids=%d,%d,%d,%d\n", getpid(), child(1), child(2), child(3));
	fflush(stdout);
	while (fgets(command, sizeof(command), stdin)) {
		printf("%d\n", change(command));
		fflush(stdout);
	}
	return 0;
}
