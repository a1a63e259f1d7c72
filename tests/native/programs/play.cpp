// Plays accesses and calls of several threads, from standard input, to the tracer: one thread of the machine, in order.
// Usage: play KEY=VALUE ... < rows of four u64: thread, what (0 load, 1 store, 2 munmap, 3 a window turns), address, bytes.
#include <cstdio>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../../pintool/tracer.h"

static struct ptt_thread *threads[16];

static void access(struct ptt_thread *thread, uint64_t address, uint64_t store) {
    if (!tracer_partial()) return tracer_access(thread, address, 8, store);
    if (!tracer_skips(thread, address)) tracer_part_access(thread, address, 8, store);
}

int main(int argc, char **argv) {
    uint64_t row[4];
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        *value++ = 0;
        if (!tracer_option(argv[i], value)) return 2;
    }
    if (tracer_start("a test")) return 1;
    while (fread(row, sizeof row, 1, stdin)) {
        struct ptt_thread *&thread = threads[row[0]];
        if (!thread) thread = tracer_thread();
        const uint64_t arguments[4] = {row[2], row[3], 0, 0};
        uint32_t window = ptt_session->window;
        if (row[1] < 2) access(thread, row[2], row[1]);
        if (row[1] == 2) tracer_call(thread, SYS_munmap, arguments), tracer_return(thread, SYS_munmap, 0);
        while (row[1] == 3 && tracer_options.writer.every_ns && ptt_session->window == window) usleep(1000);
    }
    tracer_exit();
}
