/* SPDX-License-Identifier: MIT */
/* A process with a VM that never runs: what is found by its descriptor. Argument: the file to make once it is there. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int kvm = open("/dev/kvm", O_RDWR), vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);

	if (argc < 2 || vm < 0 || open(argv[1], O_CREAT | O_WRONLY, 0600) < 0)
		return 1;
	pause();
	return 0;
}
