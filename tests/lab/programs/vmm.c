/* SPDX-License-Identifier: MIT */
/*
 * vmm FILE              a process with a VM that never runs, FILE is made once it is there: what its descriptor is found by
 * vmm FILE MIB VCPUS    a VM whose vCPUs touch one page of each 2 MiB of their own share of its memory, again and again.
 *                       FILE: "hva=ADDRESS root=GPA", then "rounds=N" whenever each has made a further round.
 *
 * Guest-physical memory is by 2 MiB: page 0 of a block is touched, page 1 is the guest's leaf table that maps it; the last
 * block has the tables above, a page with the code and a stack. So a block's nested leaf table is one vCPU's alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK (2UL << 20)
#define VIRTUAL (1UL << 30) /* where the guest maps its block 0 */
#define TABLE 0x7           /* present, writable, user */
#define MOST 8

extern const char guest_code[], guest_end[];
asm(".pushsection .rodata\nguest_code:\n"
    "1: mov %rdi, %rax\n2: movq (%rax), %rcx\n add $0x200000, %rax\n cmp %rsi, %rax\n jb 2b\n out %al, $0x10\n jmp 1b\n"
    "guest_end:\n.popsection\n");

static char *memory;
static uint64_t blocks, top;
static int vm, vcpus, run_bytes;
static atomic_ulong rounds[MOST];

static int must(int result, const char *what)
{
	if (result < 0) {
		perror(what);
		exit(1);
	}
	return result;
}

static void fill(void)
{
	uint64_t *root = (uint64_t *)(memory + top), *pointers = root + 512, *directory = pointers + 512;

	root[0] = (top + 0x1000) | TABLE;
	pointers[0] = (top + 0x2000) | TABLE; /* the code and what it stands on: block `top`, 1:1 in its first pages */
	pointers[1] = (top + 0x3000) | TABLE;
	directory[0] = (top + 0x4000) | TABLE;
	for (int i = 0; i < 6; i++)
		((uint64_t *)(memory + top + 0x4000))[i] = (top + i * 4096UL) | TABLE;
	for (uint64_t i = 0; i < blocks; i++) {
		((uint64_t *)(memory + top + 0x3000))[i] = (i * BLOCK + 0x1000) | TABLE;
		*(uint64_t *)(memory + i * BLOCK + 0x1000) = i * BLOCK | TABLE;
	}
	memcpy(memory + top + 0x5000, guest_code, guest_end - guest_code);
}

static void *run(void *argument)
{
	long i = (long)argument;
	int vcpu = must(ioctl(vm, KVM_CREATE_VCPU, i), "KVM_CREATE_VCPU");
	struct kvm_run *shared = mmap(0, run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	struct kvm_segment code = { .limit = ~0U, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1 }, data = code;
	struct kvm_regs registers = { .rip = 0x5000, .rflags = 2, .rdi = VIRTUAL + blocks / vcpus * i * BLOCK,
				      .rsi = VIRTUAL + blocks / vcpus * (i + 1) * BLOCK };
	struct kvm_sregs special;
	char name[32];

	snprintf(name, sizeof(name), "CPU %ld/KVM", i);
	pthread_setname_np(pthread_self(), name);
	data.type = 3;
	data.selector = 16;
	data.l = 0;
	data.db = 1;
	must(ioctl(vcpu, KVM_GET_SREGS, &special), "KVM_GET_SREGS");
	special.cs = code;
	special.ds = special.es = special.fs = special.gs = special.ss = data;
	special.cr3 = top;
	special.cr4 |= 0x20;
	special.cr0 |= 0x80000001;
	special.efer |= 0x500;
	must(ioctl(vcpu, KVM_SET_SREGS, &special), "KVM_SET_SREGS");
	must(ioctl(vcpu, KVM_SET_REGS, &registers), "KVM_SET_REGS");
	for (;; rounds[i]++) {
		must(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
		if (shared->exit_reason != KVM_EXIT_IO) {
			fprintf(stderr, "vCPU %ld: exit %u\n", i, shared->exit_reason);
			exit(1);
		}
		usleep(20000);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int kvm = open("/dev/kvm", O_RDWR), file;

	vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);
	file = count < 2 || vm < 0 ? -1 : open(arguments[1], O_CREAT | O_WRONLY | O_APPEND, 0600);
	if (file < 0)
		return 1;
	if (count < 4) {
		pause();
		return 0;
	}
	struct kvm_userspace_memory_region slot = { .memory_size = strtoul(arguments[2], NULL, 10) << 20 };
	pthread_t threads[MOST];

	vcpus = atoi(arguments[3]);
	top = slot.memory_size - BLOCK;
	blocks = top / BLOCK / vcpus * vcpus;
	memory = mmap(0, slot.memory_size + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	memory = (char *)(((uintptr_t)memory + BLOCK - 1) & -BLOCK);
	madvise(memory, slot.memory_size, MADV_NOHUGEPAGE);
	slot.userspace_addr = (uintptr_t)memory;
	fill();
	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &slot), "KVM_SET_USER_MEMORY_REGION");
	run_bytes = must(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
	dprintf(file, "hva=%lx root=%lx\n", (uintptr_t)memory, top);
	for (long i = 0; i < vcpus; i++)
		pthread_create(&threads[i], NULL, run, (void *)i);
	for (uint64_t last = 0, least; last < ~0UL; last = least) {
		for (least = last; least == last; usleep(10000)) {
			least = ~0UL;
			for (int i = 0; i < vcpus; i++)
				least = rounds[i] < least ? rounds[i] : least;
		}
		dprintf(file, "rounds=%lu\n", least);
	}
	return 0;
}
