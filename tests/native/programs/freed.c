/* Fills 64 MiB and gives them back before it ends; "freed stopped": not before it was stopped and continued.
 * Meanwhile it grows by memory that the kernel fills, so that a reading is due and no traced page is new. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile sig_atomic_t continued;

static void note(int number) { continued = number; }

int main(int argc, char **argv) {
    (void)argv;
    size_t bytes = 64u << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    signal(SIGCONT, note);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    continued = 0; /* of readings before it was full */
    for (int i = 0; argc > 1 && !continued && i < 600; i++) {
        int filled = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
        if (i < 64) mmap(NULL, bytes / 8, PROT_READ | PROT_WRITE, filled, -1, 0);
        usleep(100000);
    }
    return munmap(memory, bytes) != 0;
}
