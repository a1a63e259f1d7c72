/*
 * A VMM in small. Its guest, 64-bit code in ring 3 on an identity map, writes one byte every STRIDE bytes of memory,
 * then spins. Prints READY once that is done, then sleeps; with "spin" the guest goes on spinning, with "churn" it
 * writes again and again while its memory is taken away, the slot too; with a number it has reached the same tables
 * from so many more entries of its root. Arguments: MiB of memory [64], stride [4096], number of VMs [1], the mode.
 * Exit code 3: no /dev/kvm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define GIB (1UL << 30)
#define LOW (16 * MIB)     /* slot 0: code and page tables */
#define HIGH (1 * GIB)     /* slot 1: what the guest writes to; the second starts at another place in the VMM */
#define CODE 0x10000
#define DIRECTORIES 0x100000 /* page directories, one a GiB */
#define SECONDS 30

static const unsigned char code[] = {
	0xc6, 0x03, 0x01,       /* write: movb $1, (%rbx) */
	0x48, 0x01, 0xd3,       /* add %rdx, %rbx */
	0x48, 0x39, 0xcb,       /* cmp %rcx, %rbx */
	0x72, 0xf5,             /* jb write */
	0xeb, 0xfe,             /* done: jmp done */
};
#define DONE (CODE + 11)

struct guest {
	int vm, cpu;
	unsigned char *low, *high;
	size_t bytes;
	unsigned long stride;
};

static void on_alarm(int number)
{
	(void)number;
}

static int must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "vm_guest: %s: %s\n", what, strerror(errno));
		exit(1);
	}
	return result;
}

static unsigned char *memory(size_t bytes)
{
	unsigned char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		exit(1);
	madvise(at, bytes, MADV_NOHUGEPAGE);
	return at;
}

static void add_slot(int vm, int slot, unsigned long address, size_t bytes, void *memory)
{
	struct kvm_userspace_memory_region region = { .slot = slot, .guest_phys_addr = address, .memory_size = bytes,
						      .userspace_addr = (unsigned long)memory };

	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "memory slot");
}

static void map_identity(unsigned char *low, size_t bytes)
{
	unsigned long *root = (void *)(low + 0x1000), *next = (void *)(low + 0x2000);

	for (int i = 0; i < 256; i++)
		root[i] = 0x2007;
	for (unsigned long gib = 0; gib * GIB < bytes; gib++) {
		unsigned long *directory = (void *)(low + DIRECTORIES + gib * 4096);

		next[gib] = (DIRECTORIES + gib * 4096) | 7;
		for (unsigned long i = 0; i < 512; i++)
			directory[i] = (gib * GIB + i * 2 * MIB) | 0x87;
	}
}

static void set_registers(int cpu, unsigned long from, unsigned long to, unsigned long stride)
{
	struct kvm_segment text = { .limit = 0xffffffff, .selector = 0x33, .type = 11, .present = 1, .dpl = 3, .s = 1,
				    .l = 1, .g = 1 };
	struct kvm_segment data = { .limit = 0xffffffff, .selector = 0x2b, .type = 3, .present = 1, .dpl = 3, .s = 1,
				    .db = 1, .g = 1 };
	struct kvm_regs registers = { .rip = CODE, .rsp = 0x8000, .rflags = 2, .rbx = from, .rcx = to, .rdx = stride };
	struct kvm_sregs system;

	must(ioctl(cpu, KVM_GET_SREGS, &system), "KVM_GET_SREGS");
	system.cr0 = 0x80050033;
	system.cr3 = 0x1000;
	system.cr4 = 0x6a0;
	system.efer = 0xd01;
	system.cs = text;
	system.ds = system.es = system.fs = system.gs = system.ss = data;
	system.tr.present = 1;
	system.tr.type = 11;
	must(ioctl(cpu, KVM_SET_SREGS, &system), "KVM_SET_SREGS");
	must(ioctl(cpu, KVM_SET_REGS, &registers), "KVM_SET_REGS");
}

static struct guest make(int kvm, size_t bytes, unsigned long stride)
{
	struct { struct kvm_cpuid2 head; struct kvm_cpuid_entry2 entries[256]; } cpuid = { .head.nent = 256 };
	struct guest guest = { .bytes = bytes, .stride = stride };

	guest.vm = must(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
	ioctl(guest.vm, KVM_SET_TSS_ADDR, 0xfffbd000UL);
	guest.low = memory(LOW);
	guest.high = memory(bytes);
	add_slot(guest.vm, 0, 0, LOW, guest.low);
	add_slot(guest.vm, 1, HIGH, bytes, guest.high);
	guest.cpu = must(ioctl(guest.vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
	must(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &cpuid), "KVM_GET_SUPPORTED_CPUID");
	must(ioctl(guest.cpu, KVM_SET_CPUID2, &cpuid), "KVM_SET_CPUID2");
	map_identity(guest.low, HIGH + bytes);
	memcpy(guest.low + CODE, code, sizeof(code));
	set_registers(guest.cpu, HIGH, HIGH + bytes, stride);
	return guest;
}

/* Let the guest run until it is done, or for ever. */
static void run(const struct guest *guest, int for_ever)
{
	struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
	struct kvm_regs registers;

	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; for_ever || i < SECONDS * 500; i++) {
		int result = ioctl(guest->cpu, KVM_RUN, 0);

		must(ioctl(guest->cpu, KVM_GET_REGS, &registers), "KVM_GET_REGS");
		if (!for_ever && registers.rip == DONE)
			break;
		if (result == 0 || errno != EINTR) {
			fprintf(stderr, "vm_guest: the guest left at 0x%llx\n", registers.rip);
			exit(1);
		}
	}
	every = (struct itimerval){ 0 };
	setitimer(ITIMER_REAL, &every, NULL);
	if (registers.rip != DONE)
		exit(1);
}

static void *take_memory_away(void *argument)
{
	const struct guest *guest = argument;

	for (unsigned i = 0;; i++) {
		usleep(1000);
		madvise(guest->high, guest->bytes, MADV_DONTNEED);
		if (i % 8)
			continue;
		add_slot(guest->vm, 1, HIGH, 0, guest->high);
		add_slot(guest->vm, 1, HIGH, guest->bytes, guest->high);
	}
	return NULL;
}

/* What the guest left for does not matter: it may have written where no slot was. */
static void churn(struct guest *guest)
{
	struct itimerval every = { { 0, 5000 }, { 0, 5000 } };
	pthread_t thread;

	pthread_create(&thread, NULL, take_memory_away, guest);
	setitimer(ITIMER_REAL, &every, NULL);
	for (;;) {
		ioctl(guest->cpu, KVM_RUN, 0);
		set_registers(guest->cpu, HIGH, HIGH + guest->bytes, guest->stride);
	}
}

int main(int count, char **arguments)
{
	size_t bytes = (count > 1 ? strtoul(arguments[1], NULL, 10) : 64) * MIB;
	unsigned long stride = count > 2 ? strtoul(arguments[2], NULL, 10) : 4096;
	int vms = count > 3 ? atoi(arguments[3]) : 1, kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct sigaction action = { .sa_handler = on_alarm };
	struct guest guest;

	if (kvm < 0)
		return 3;
	sigaction(SIGALRM, &action, NULL);
	for (int i = 0; i < vms; i++) {
		guest = make(kvm, bytes, stride);
		run(&guest, 0);
	}
	for (unsigned long alias = 1; alias <= (count > 4 ? strtoul(arguments[4], NULL, 10) : 0); alias++) {
		set_registers(guest.cpu, HIGH + alias * 512 * GIB, HIGH + alias * 512 * GIB + 4096, stride);
		run(&guest, 0);
	}
	printf("READY vm=%d cpu=%d low=%lu high=%lu\n", guest.vm, guest.cpu, (unsigned long)guest.low,
	       (unsigned long)guest.high);
	fflush(stdout);
	if (count > 4 && !strcmp(arguments[4], "churn"))
		churn(&guest);
	if (count > 4 && !strcmp(arguments[4], "spin"))
		run(&guest, 1);
	for (;;)
		pause();
}
