// A scenario: lines "WORD ACTOR [NUMBER ...] [rw|r|shared|filled]", one after the other, or "check NAME [ACTOR]".
#include "oracle.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const unsigned long WARM = 0x300000000000, REGION = 0x200000000000;

static const char *const words[KINDS] = {"read",  "write", "map",   "file", "unmap", "prot", "dontneed",
                                         "huge",  "remap", "spawn", "move", "fork",  "exit", "check"};

// Wait until the host has looked.
static void show(const char *what, int cpu, int actor) {
    char answer = 0;
    out("\n@%s %s %s %d %d\n", what, w->scenario, w->check, cpu, actor);
    flush();
    while (read(0, &answer, 1) != 1 || answer != 'g')
        for (int i = 0; i < 2000; i++) __builtin_ia32_pause();
}

// A process without threads everywhere: it goes to each CPU in turn, so that its tables are in use there.
void check(int actor) {
    struct actor *a = &w->actor[actor];
    for (int cpu = 0; cpu < w->cpus; cpu++) {
        pin(cpu);
        show("CHILD", cpu, actor);
    }
    pin(a->cpu);
}

// Memory that pthread_create will want, of the stacks and of malloc, is there before anything is counted.
static void make_room(void) {
    enum { HEAP = 1 << 16 };
    volatile char *heap = malloc(HEAP);
    for (int i = 0; heap && i < HEAP; i += 4096) heap[i] = 1;
    free((void *)heap);
    for (int t = w->cpus; t < ACTORS; t++) memset(w->stack[t] + STACK / 2, 0, STACK / 2);
}

// Threads do everything once, so that no first time is counted.
static void warm(void) {
    w->base = WARM;
    make_room();
    for (int t = 0; t < w->cpus; t++) ask(t, (struct op){.kind = SETTLE});
    for (int round = 0; round < 2; round++)
        for (int t = 0; t < w->cpus; t++) {
            unsigned long at = (unsigned long)t << 19, moved = at + 4096;
            ask(t, (struct op){MAP, at, 600, 0, WRITABLE});
            ask(t, (struct op){WRITE, at, 600, 1, 0});
            ask(t, (struct op){READ, at, 600, 1, 0});
            ask(t, (struct op){PROT, at, 8, 0, 0});
            ask(t, (struct op){PROT, at, 8, 0, WRITABLE});
            ask(t, (struct op){DONTNEED, at, 8, 0, 0});
            ask(t, (struct op){REMAP, at, 600, moved, 0});
            ask(t, (struct op){UNMAP, moved, 600, 0, 0});
        }
    count(&w->before, getpid());
    count(&w->after, getpid());
    w->base = REGION;
}

static int parsed(char *line, struct op *op) {
    char word[8][16], *all[8] = {word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]};
    unsigned long number[8] = {0, 0, 0, 1};
    int n = sscanf(line, "%15s %15s %15s %15s %15s %15s %15s %15s", all[0], all[1], all[2], all[3], all[4], all[5],
                   all[6], all[7]);
    memset(op, 0, sizeof *op);
    for (op->kind = 0; op->kind < KINDS && strcmp(words[op->kind], word[0]); op->kind++) {}
    for (int i = 1, k = 0; i < n; i++) {
        if (isdigit(word[i][0])) number[k++] = strtoul(word[i], 0, 10);
        if (!strcmp(word[i], "rw")) op->flags |= WRITABLE;
        if (!strcmp(word[i], "shared")) op->flags |= SHARED;
        if (!strcmp(word[i], "filled")) op->flags |= FILLED;
    }
    op->page = number[1], op->pages = number[2], op->more = number[3];
    return n > 1 && op->kind < KINDS && number[0] < ACTORS ? (int)number[0] : -1;
}

static void report(char *line, int actor, long result) {
    out("@OP r=%ld faults=%ld ipis=", result, w->actor[actor].faults);
    for (int i = 0; i < w->cpus; i++) out("%s%ld", i ? "," : "", w->after.ipis[i] - w->before.ipis[i]);
    out(" stats=");
    for (int i = 0; i < w->after.known; i++)
        out("%s%ld", i ? "," : "", w->after.of_process[i] - w->before.of_process[i]);
    out(" | %s\n", line);
}

static void one(char *line) {
    struct op op;
    int actor = parsed(line, &op);
    if (op.kind == CHECK) {
        actor = 0;
        if (sscanf(line, "check %63s %d", w->check, &actor) == 2)
            ask(actor, op);
        else
            show("CHECK", 0, 0);
        return;
    }
    if (actor < 0) return out("@BAD %s\n", line);
    pid_t pid = op.kind == EXIT ? getpid() : w->actor[actor].pid;
    count(&w->before, pid);
    long result = ask(actor, op);
    count(&w->after, pid);
    report(line, actor, result);
    if (op.kind == FORK) ask(op.page, (struct op){.kind = SETTLE});
}

void scenario(char *lines) {
    snprintf(w->check, sizeof w->check, "begin");
    for (int t = 1; t < w->cpus; t++) start(t, t);
    warm();
    show("BEGIN", 0, 0);
    while (lines && *lines && *lines != '%') {
        char *next = strchr(lines, '\n');
        if (next) *next++ = 0;
        one(lines);
        lines = next;
    }
    for (int i = 0; i < ACTORS; i++)
        if (w->actor[i].forked) ask(i, (struct op){.kind = EXIT});
    out("@END %s\n", w->scenario);
    flush();
    _exit(0);
}
