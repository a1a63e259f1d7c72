/* SPDX-License-Identifier: MIT
 *
 * The Linux system calls the writer needs, without any C library: the same object links into a QEMU plugin
 * and into a Pin tool, whose C runtime is not the system's. x86-64 only.
 */
#ifndef PTT_KERNEL_H
#define PTT_KERNEL_H

#include <asm/unistd.h>
#include <stddef.h>
#include <stdint.h>

/* Newer than the kernel headers of Pin kits. */
#ifndef __NR_execveat
#define __NR_execveat 322
#endif
#ifndef __NR_pidfd_open
#define __NR_pidfd_open 434
#endif
#ifndef __NR_clone3
#define __NR_clone3 435
#endif
#ifndef __NR_close_range
#define __NR_close_range 436
#endif

#ifndef LOCK_SECONDS
#define LOCK_SECONDS 30
#endif

static inline long kernel_call_6(long number, long a, long b, long c, long d, long e, long f) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

template <class A = long, class B = long, class C = long, class D = long, class E = long, class F = long>
static inline long kernel_call(long number, A a = 0, B b = 0, C c = 0, D d = 0, E e = 0, F f = 0) {
    return kernel_call_6(number, (long)a, (long)b, (long)c, (long)d, (long)e, (long)f);
}

struct kernel_time {
    int64_t seconds, nanoseconds;
};

static inline uint64_t kernel_clock(int clock) {
    kernel_time now = {0, 0};
    kernel_call(__NR_clock_gettime, clock, &now);
    return (uint64_t)now.seconds * 1000000000u + (uint64_t)now.nanoseconds;
}

static inline int kernel_cpu() {
    unsigned cpu = 0;
    return kernel_call(__NR_getcpu, &cpu) < 0 ? -1 : (int)cpu;
}

static inline void kernel_nap(int64_t nanoseconds) {
    kernel_time time = {0, nanoseconds};
    kernel_call(__NR_nanosleep, &time);
}

/* Until `done` says so; false: `seconds` were over before. */
template <class Done> static inline bool wait_until(uint64_t seconds, Done done) {
    if (done()) return true;
    uint64_t until = kernel_clock(1 /* CLOCK_MONOTONIC */) + seconds * 1000000000u;
    do {
        kernel_nap(1000000);
        if (done()) return true;
    } while (kernel_clock(1) < until);
    return false;
}

/*
 * A lock for sections of microseconds, or of a write: held by a thread that may be preempted, hence the yield. False after 30 s:
 * whoever held it has died inside, as a child of vfork can.
 */
static inline bool spin_lock(int *lock) {
    for (int i = 0; i < 1000; i++) {
        if (!__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE)) return true;
        kernel_call(__NR_sched_yield);
    }
    return wait_until(LOCK_SECONDS, [lock] { return !__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); });
}

static inline void spin_unlock(int *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

#endif
