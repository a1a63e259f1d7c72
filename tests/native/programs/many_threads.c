/* many_threads N overlap|together: N threads, each touches a page of its own, of those from the printed address on.
 * overlap: each ends only when the next has begun, so that two or three live at once. together: all live at once. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long many;
static volatile char *memory;
static volatile long begun;
static pthread_barrier_t all;
static pthread_attr_t small;

static void start(void *(*function)(void *), long number) {
    pthread_t id;
    if (pthread_create(&id, &small, function, (void *)number)) abort();
}

static void *overlapping(void *number) {
    long mine = (long)number;
    memory[mine * 4096] = 1;
    if (mine + 1 < many) start(overlapping, mine + 1);
    __sync_fetch_and_add(&begun, 1);
    while (begun < many && begun < mine + 2) usleep(50);
    return NULL;
}

static void *waiting(void *number) {
    memory[(long)number * 4096] = 1;
    pthread_barrier_wait(&all);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    many = atol(argv[1]);
    memory = mmap(NULL, many * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("%lx\n", (unsigned long)(uintptr_t)memory);
    fflush(stdout);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    if (!strcmp(argv[2], "overlap")) {
        start(overlapping, 0);
        while (begun < many) usleep(100);
    } else {
        pthread_barrier_init(&all, NULL, (unsigned)many + 1);
        for (long i = 0; i < many; i++) start(waiting, i);
        pthread_barrier_wait(&all);
    }
    usleep(100000);
    return 0;
}
