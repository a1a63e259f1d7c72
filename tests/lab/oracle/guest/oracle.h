// What the oracle's files share. Everything that is written lies in one shared mapping, stacks too: after a
// fork neither process copies a page of its own, and faults and interrupts are those of the region alone.
#ifndef ORACLE_H
#define ORACLE_H

#include <sys/types.h>

enum { ACTORS = 24, CPUS = 16, COUNTS = 9, STACK = 1 << 17 };
enum kind { READ, WRITE, MAP, FILE_MAP, UNMAP, PROT, DONTNEED, HUGE, REMAP, SPAWN, MOVE, FORK, EXIT, CHECK, KINDS, SETTLE };
enum { WRITABLE = 1, SHARED = 2, FILLED = 4 };

struct op {
    enum kind kind;
    unsigned long page, pages, more;
    int flags;
};

// A thread of the process, or the only thread of a forked one; it waits for `ready` and spins.
struct actor {
    volatile int ready, done;
    int cpu, forked;
    pid_t pid;
    struct op op;
    long faults, result;
    char apart[384];
};

// What happened so far, by all counters that there are.
struct counts {
    long ipis[CPUS], of_process[COUNTS];
    int known;  // numbers that the kernel has of a process
};

struct world {
    struct actor actor[ACTORS];
    char stack[ACTORS][STACK] __attribute__((aligned(4096)));
    char script[1 << 18], text[1 << 17], log[1 << 16];
    struct counts before, after;
    char scenario[64], check[64];
    int logged, cpus;
    unsigned long base;
};

extern struct world *w;

void out(const char *format, ...) __attribute__((format(printf, 1, 2)));
void flush(void);
void pin(int cpu);
long act(int actor, struct op *op);       // 0 or -errno
long ask(int actor, struct op op);        // have an actor do it; its result
void start(int actor, int cpu);           // a thread
void serve(int actor);                    // be an actor until told to exit
void check(int actor);                     // let the host look at the tables of a forked process

void open_counters(void);
void count(struct counts *c, pid_t pid);
void scenario(char *lines);

#endif
