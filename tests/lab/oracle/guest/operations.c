// What an actor can be asked to do with the region.
#include "oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int child(void *actor) {
    serve((long)actor);
    _exit(0);
}

static long done_or_errno(long failed) { return failed ? -errno : 0; }

static long mapped(void *found, void *wanted) { return done_or_errno(found != wanted); }

// A new file as long as the mapping; a filled one has all its pages in the page cache.
static int file_of(unsigned long pages, int filled) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, pages << 12)) return -1;
    for (unsigned long i = 0; filled && i < pages; i++)
        if (pwrite(fd, "x", 1, i << 12) != 1) return -1;
    return fd;
}

static long map(char *at, struct op *o) {
    int prot = o->flags & WRITABLE ? PROT_READ | PROT_WRITE : PROT_READ, fd = -1;
    int flags = MAP_FIXED_NOREPLACE | MAP_NORESERVE | (o->flags & SHARED ? MAP_SHARED : MAP_PRIVATE);
    if (o->kind == MAP)
        flags |= MAP_ANONYMOUS;
    else if ((fd = file_of(o->pages, o->flags & FILLED)) < 0)
        return -errno;
    long result = mapped(mmap(at, o->pages << 12, prot, flags, fd, 0), at);
    if (fd >= 0) close(fd);
    return result;
}

static long touch(char *at, struct op *o) {
    for (unsigned long i = 0; i < o->pages; i++) {
        volatile char *page = at + (i * o->more << 12);
        if (o->kind == WRITE)
            *page = 1;
        else
            (void)*page;
    }
    return 0;
}

static long move(int actor, int cpu) {
    w->actor[actor].cpu = cpu;
    pin(cpu);
    return 0;
}

static long fork_as(int actor, int number) {
    struct actor *a = &w->actor[number];
    a->forked = 1;
    a->done = 0;
    a->cpu = w->actor[actor].cpu;
    a->pid = clone(child, w->stack[number] + STACK, SIGCHLD, (void *)(long)number);
    while (a->pid > 0 && !a->done) __builtin_ia32_pause();
    return done_or_errno(a->pid < 0);
}

// Use once what every operation uses, here and now: the program, and what is shared.
static long settle(void) {
    extern char __executable_start[], end[];
    for (volatile char *page = __executable_start; page < end; page += 4096) (void)*page;
    for (volatile char *page = (char *)w; page < (char *)(w + 1); page += 4096) (void)*page;
    return 0;
}

long act(int actor, struct op *o) {
    char *at = (char *)w->base + (o->page << 12);
    unsigned long length = o->pages << 12;
    switch (o->kind) {
    case READ:
    case WRITE: return touch(at, o);
    case MAP:
    case FILE_MAP: return map(at, o);
    case UNMAP: return done_or_errno(munmap(at, length));
    case PROT: return done_or_errno(mprotect(at, length, o->flags & WRITABLE ? PROT_READ | PROT_WRITE : PROT_READ));
    case DONTNEED: return done_or_errno(madvise(at, length, MADV_DONTNEED));
    case HUGE: return done_or_errno(madvise(at, length, MADV_HUGEPAGE));
    case REMAP: {
        void *to = (char *)w->base + (o->more << 12);
        return mapped(mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
    }
    case SPAWN: start(o->page, o->pages); return 0;
    case MOVE: return move(actor, o->page);
    case FORK: return fork_as(actor, o->page);
    case SETTLE: return settle();
    case CHECK: check(actor); return 0;
    default: return -EINVAL;
    }
}
