// Threads and forked processes that take turns, one pinned to each CPU, all others spinning.
#include "oracle.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct world *w;

void out(const char *format, ...) {
    va_list a;
    va_start(a, format);
    w->logged += vsnprintf(w->log + w->logged, sizeof w->log - w->logged, format, a);
    va_end(a);
}

void flush(void) {
    for (int at = 0, n; at < w->logged; at += n)
        if ((n = write(1, w->log + at, w->logged - at)) <= 0) n = 0;
    w->logged = 0;
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static long faults(void) {
    struct rusage r;
    getrusage(RUSAGE_THREAD, &r);
    return r.ru_minflt + r.ru_majflt;
}

static void perform(int actor) {
    struct actor *a = &w->actor[actor];
    long before = faults();
    a->result = act(actor, &a->op);
    a->faults = faults() - before;
}

void serve(int actor) {
    struct actor *a = &w->actor[actor];
    pin(a->cpu);
    a->done = 1;
    for (;;) {
        while (!a->ready) __builtin_ia32_pause();
        a->ready = 0;
        if (a->op.kind == EXIT) return;
        perform(actor);
        __sync_synchronize();
        a->done = 1;
    }
}

static void *thread(void *actor) {
    serve((long)actor);
    return 0;
}

void start(int actor, int cpu) {
    struct actor *a = &w->actor[actor];
    pthread_t id;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, w->stack[actor], STACK);
    a->cpu = cpu;
    a->pid = getpid();
    a->done = 0;
    if (pthread_create(&id, &attr, thread, (void *)(long)actor)) _exit(97);
    while (!a->done) __builtin_ia32_pause();
}

// The actor's process is gone, with its tables, when this returns.
static long end(struct actor *a) {
    int status = 0;
    a->ready = 1;
    while (waitpid(a->pid, &status, WNOHANG) == 0) __builtin_ia32_pause();
    a->forked = 0;
    return status;
}

long ask(int actor, struct op op) {
    struct actor *a = &w->actor[actor];
    a->op = op;
    a->done = a->faults = 0;
    __sync_synchronize();
    if (op.kind == EXIT) return a->forked ? end(a) : -EINVAL;
    if (actor == 0) {
        perform(0);
        return a->result;
    }
    a->ready = 1;
    while (!a->done) __builtin_ia32_pause();
    return a->result;
}
