// PID 1 of the oracle's machine: runs the scenarios of /script, each in a process of its own.
#include "oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PR_SET_PGTABLE_REPL = 100 };  // include/uapi/linux/prctl.h of WASP-linux-7.0.0

static int set(const char *path, const char *value) {
    int fd = open(path, O_WRONLY), written = fd < 0 ? -1 : (int)write(fd, value, strlen(value));
    if (fd >= 0) close(fd);
    return written < 0 ? -errno : 0;
}

static void replicate(const char *mode) {
    char line[32];
    int failed = 0;
    snprintf(line, sizeof line, "%d 1", getpid());
    if (!strcmp(mode, "eager")) failed = set("/proc/hydra/eager", line);
    if (!strcmp(mode, "mitosis")) failed = prctl(PR_SET_PGTABLE_REPL, 1, 0, 0, 0) ? -errno : 0;
    if (failed) out("@BAD mode %s: %d\n", mode, failed);
}

static void read_script(void) {
    int fd = open("/script", O_RDONLY), n = 0, k;
    while (fd >= 0 && (k = read(fd, w->script + n, sizeof w->script - 1 - n)) > 0) n += k;
    close(fd);
}

static void *first_actor(void *lines) {
    pin(0);
    scenario(lines);
    return 0;
}

// argv: init AT; the scenario at that offset of the script.
static void run(long at) {
    char mode[16] = "", *head = w->script + at;
    pthread_t id;
    pthread_attr_t attr;
    sscanf(head, "%%%% %63s %*s %*s %15s", w->scenario, mode);
    replicate(mode);
    pin(0);
    open_counters();
    fcntl(0, F_SETFL, O_NONBLOCK);
    w->actor[0].pid = getpid();
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, w->stack[0], STACK);
    pthread_create(&id, &attr, first_actor, strchr(head, '\n') + 1);
    pthread_join(id, 0);
}

static void run_apart(char *head) {
    char name[64], order[8], filter[8], at[16];
    int status;
    if (sscanf(head, "%%%% %63s %7s %7s", name, order, filter) != 3) return;
    set("/proc/hydra/repl_order", order);
    set("/proc/hydra/tlbflush_opt", filter);
    snprintf(at, sizeof at, "%ld", (long)(head - w->script));
    pid_t pid = fork();
    if (pid == 0) {
        execl("/init", "init", at, (char *)0);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    fcntl(0, F_SETFL, 0);
    if (status) out("@DIED %s status %x\n", name, status);
    flush();
}

static void boot(void) {
    const char *directories[] = {"/proc", "/sys", "/dev", "/tmp"}, *types[] = {"proc", "sysfs", "devtmpfs", "tmpfs"};
    for (int i = 0; i < 4; i++) {
        mkdir(directories[i], 0755);
        mount(types[i], directories[i], types[i], 0, 0);
    }
    int tty = open("/dev/ttyS0", O_RDWR);
    for (int fd = 0; tty >= 0 && fd < 3; fd++) dup2(tty, fd);
    pin(0);
    set("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
    set("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "100000000");
}

int main(int argc, char **argv) {
    w = mmap(0, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w == MAP_FAILED) return 98;
    memset(w, 0, sizeof *w);
    read_script();
    w->cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (argc == 2) run(atol(argv[1]));
    boot();
    out("\n@BOOT %d CPUs\n", w->cpus);
    flush();
    for (char *head = w->script; (head = strstr(head, "%% ")); head += 3) run_apart(head);
    out("@DONE\n");
    flush();
    sync();
    reboot(RB_POWER_OFF);
}
