/* A program whose accesses are known exactly: "known MODE [NUMBER]". Prints the addresses the test needs. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../pintool/roi.h"

#define PAGES 64

static volatile uint64_t *page(volatile char *base, int i) { return (volatile uint64_t *)(base + 4096L * i); }

/* Where nothing was before: QEMU 10 would give us what the loader has used and unmapped. */
static char *map(size_t pages) {
    static char *next = (char *)0x200000000000;
    next += 1L << 30;
    return mmap(next, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

__attribute__((noinline)) void roi_begins(void) { __asm__ volatile(""); }
__attribute__((noinline)) void roi_ends(void) { __asm__ volatile(""); }

/* Page i: 8 stores, then the pages again: 3 loads each; then a load across the border of pages 0 and 1. */
__attribute__((noinline)) static void touch(volatile char *base) {
    for (int i = 0; i < PAGES; i++)
        for (int k = 0; k < 8; k++) page(base, i)[k] = 1;
    for (int i = 0; i < PAGES; i++)
        for (int k = 0; k < 3; k++) (void)page(base, i)[k];
    (void)*(volatile uint64_t *)(base + 4096 - 4);
}

/* Pages many times over, of each its first so many lines. */
static void lines(int pages, int n) {
    char *base = map(pages);
    PTT_ROI_BEGIN();
    for (int times = 0; times < 8; times++)
        for (int i = 0; i < pages; i++)
            for (int k = 0; k < n; k++) page(base, i)[8 * k] = 1;
    PTT_ROI_END();
}

static void memory_calls(void) {
    char *a = map(8), *b;
    printf("%p\n", (void *)a);
    mprotect(a, 8 * 4096, PROT_READ);
    madvise(a + 4096, 8192, MADV_DONTNEED);
    b = mremap(a, 8 * 4096, 16 * 4096, MREMAP_MAYMOVE);
    printf("%p\n", (void *)b);
    munmap(b, 16 * 4096);
    mmap((void *)1, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("%p\n", sbrk(65536));
}

static void *thread(void *base) {
    for (int k = 0; k < 1000; k++) page(base, k % PAGES)[0] = 1;
    return NULL;
}

static void threads(int n) {
    pthread_t id[64];
    char *base[64];
    for (int i = 0; i < n; i++) printf("%p\n", (void *)(base[i] = map(PAGES)));
    for (int i = 0; i < n; i++) pthread_create(&id[i], NULL, thread, base[i]);
    for (int i = 0; i < n; i++) pthread_join(id[i], NULL);
}

static volatile int ended;

static void child_ended(int number) { ended += number == SIGCHLD; }

/* A child that forks, too; none of them hears of a child that it did not start. */
static void forks(void) {
    char *base = map(PAGES);
    printf("%p\n", (void *)base);
    fflush(stdout);
    signal(SIGCHLD, child_ended);
    if (fork() == 0) {
        usleep(10000);
        if (ended) printf("a SIGCHLD too many\n"), fflush(stdout);
        if (fork() == 0) {
            touch(base);
            _exit(0);
        }
        while (wait(NULL) == -1 && errno == EINTR) {
        }
        touch(base);
        _exit(0);
    }
    while (wait(NULL) == -1 && errno == EINTR) {
    }
    touch(base);
    if (wait(NULL) != -1) printf("a child too many\n");
}

static void forever(void) {
    char *base = map(PAGES);
    printf("%p\n", (void *)base);
    fflush(stdout);
    touch(base);
    for (uint64_t k = 0;; k++) page(base, (int)(k * 7 % PAGES))[0] = k;
}

static volatile sig_atomic_t asked;

static void ask(int number) { asked = number; }

/* Ends by itself, with status 0, when it is asked to. */
static int handles(void) {
    char *base = map(PAGES);
    signal(SIGINT, ask);
    printf("%p\n", (void *)base);
    fflush(stdout);
    touch(base);
    while (!asked) page(base, 0)[0]++;
    return 0;
}

/* Its child lives on when it has ended, as daemons do. */
static int outlives(void) {
    pid_t parent = getpid();
    if (fork()) return 0;
    while (getppid() == parent) usleep(1000);
    return handles();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "touch")) {
        char *base = map(PAGES);
        printf("%p\n", (void *)base);
        fflush(stdout);
        page(base, PAGES - 1)[0] = 1;
        roi_begins();
        PTT_ROI_BEGIN();
        touch(base);
        PTT_ROI_END();
        roi_ends();
        page(base, PAGES - 1)[1] = 1;
    } else if (!strcmp(mode, "lines")) {
        lines(atoi(argv[2]), atoi(argv[3]));
    } else if (!strcmp(mode, "memory")) {
        memory_calls();
    } else if (!strcmp(mode, "threads")) {
        threads(atoi(argv[2]));
    } else if (!strcmp(mode, "fork")) {
        forks();
    } else if (!strcmp(mode, "forever")) {
        forever();
    } else if (!strcmp(mode, "handles")) {
        return handles();
    } else if (!strcmp(mode, "outlives")) {
        return outlives();
    } else if (!strcmp(mode, "crash")) {
        char *base = map(PAGES);
        printf("%p\n", (void *)base);
        fflush(stdout);
        touch(base);
        raise(SIGSEGV);
    } else if (!strcmp(mode, "exec")) {
        execl("/nowhere/at/all", "all", NULL);
        touch(map(PAGES));
        execl("/bin/true", "true", NULL);
    } else if (!strcmp(mode, "closefds")) {
        char *base = map(PAGES);
        for (int fd = 3; fd < 70000; fd++) close(fd);
        touch(base);
    }
    return 0;
}
