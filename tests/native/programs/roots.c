/* roots PID...: the kernel address of each process's mm->pgd. */
#include <fcntl.h>
#include <stdio.h>
#include "bpf.h"

int main(int count, char **arguments)
{
	struct bpf bpf = { 0 };
	char path[64];

	bpf_open(&bpf, false);
	for (int i = 1; i < count; i++) {
		snprintf(path, sizeof(path), "/proc/%s/pagemap", arguments[i]);
		printf("%llx ", bpf_locate(&bpf, open(path, O_RDONLY), -1)->pgd);
	}
	return 0;
}
