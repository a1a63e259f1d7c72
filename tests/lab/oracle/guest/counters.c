// TLB interrupts per CPU, and what the kernel counts of a process.
#include "oracle.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Rows of /proc/hydra/status; of PTE writes it has two numbers, writes and pages. Not all kernels have the last.
static const char *const rows[] = {
    "Master faults", "Replica faults", "PTE entries copied (4KB)", "PTE copy faults", "\n    PTE   ",
    "Total shootdowns (with optimization)", "Shootdowns saved by node-scoping", "PTE entries copied eagerly",
};
enum { ROWS = sizeof rows / sizeof *rows, TWO_NUMBERS = 4 };
static int interrupts, status;

void open_counters(void) {
    interrupts = open("/proc/interrupts", O_RDONLY);
    status = open("/proc/hydra/status", O_RDONLY);
}

static char *contents(int fd) {
    int n = 0, k;
    if (fd < 0 || lseek(fd, 0, SEEK_SET)) return 0;
    while ((k = read(fd, w->text + n, sizeof w->text - 1 - n)) > 0) n += k;
    w->text[n] = 0;
    return w->text;
}

static void count_ipis(long *ipis) {
    char *at = contents(interrupts);
    at = at ? strstr(at, "TLB:") : 0;
    for (int cpu = 0; at && cpu < w->cpus; cpu++) ipis[cpu] = strtol(cpu ? at : at + 4, &at, 10);
}

static char *record_of(char *text, pid_t pid) {
    while (text && (text = strstr(text, "\n    pid ")))
        if (strtol(text += 9, 0, 10) == pid) break;
    return text;
}

// How many numbers there are.
static int count_of_process(long *numbers, pid_t pid) {
    char *record = record_of(contents(status), pid);
    int k = 0;
    for (int row = 0; record && row < ROWS; row++) {
        char *at = strstr(record, rows[row]);
        if (!at) break;
        at += strlen(rows[row]);
        numbers[k++] = strtol(at, &at, 10);
        if (row == TWO_NUMBERS) numbers[k++] = strtol(at, &at, 10);
    }
    return k;
}

void count(struct counts *c, pid_t pid) {
    count_ipis(c->ipis);
    c->known = count_of_process(c->of_process, pid);
}
