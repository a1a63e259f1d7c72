/* SPDX-License-Identifier: MIT
 *
 * The tracer for QEMU's user mode: qemu-x86_64 -B 0 -plugin libpt_qemu.so,out=trace.ptt PROGRAM ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "elf_symbol.h"
#include "own_maps.h"
#include "qemu_api.h"
#include "tracer.h"

#ifndef QEMU_API
#define QEMU_API 1
#endif
int qemu_plugin_version = QEMU_API;

/* By vCPU index. QEMU gives a thread the number after the highest in use, so that servers whose threads overlap, though
 * few live at once, get ever higher ones. Memory that is never used costs nothing. */
static const unsigned VCPUS = 1u << 20;
static struct ptt_thread *threads[VCPUS];
static bool refused[VCPUS]; /* the thread is not traced, for want of room */
static unsigned seen;       /* vCPUs below have an entry */
static unsigned lost = VCPUS;
static char program[4096]; /* its file */
static uint64_t start_address, end_address;
static bool first_block = true;
static thread_local bool exits; /* by its last system call */
static uint64_t own_lowest; /* QEMU's lowest mapping before it loads the program, which it puts below */

/* ---- accesses: the hot path ---- */

static void raise_to(unsigned *highest, unsigned value) {
    unsigned now = __atomic_load_n(highest, __ATOMIC_RELAXED);
    while (now < value && !__atomic_compare_exchange_n(highest, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

[[gnu::noinline]] static struct ptt_thread *new_thread(unsigned vcpu) {
    if (vcpu >= VCPUS) {
        if (vcpu >= __atomic_load_n(&lost, __ATOMIC_RELAXED)) raise_to(&lost, vcpu + 1), ptt_thread_lost();
        return nullptr;
    }
    if (refused[vcpu]) return nullptr;
    raise_to(&seen, vcpu + 1);
    threads[vcpu] = tracer_thread();
    refused[vcpu] = !threads[vcpu];
    return threads[vcpu];
}

static void forget_threads() {
    memset(threads, 0, seen * sizeof *threads);
    memset(refused, 0, seen * sizeof *refused);
    seen = 0;
}

static inline struct ptt_thread *thread_of(unsigned vcpu) {
    struct ptt_thread *thread = vcpu < VCPUS ? threads[vcpu] : nullptr;
    return __builtin_expect(thread != nullptr, 1) ? thread : new_thread(vcpu);
}

/* What QEMU 7.2 to 10.2 tells of an access: its size (log2, 3 bits) and a store (1 bit). Where these are there, which is
 * asked at the start, no access needs calls to know. */
static const unsigned SIZE = 4, STORE = 17;
static bool info_is_known;

static void look_at_info() {
    info_is_known = qemu_plugin_mem_is_store(1u << STORE) && !qemu_plugin_mem_is_store(~(1u << STORE));
    for (unsigned i = 0; i < 8; i++) info_is_known &= qemu_plugin_mem_size_shift(~(7u << SIZE) | i << SIZE) == i;
}

template <bool known> static inline bool is_store(qemu_plugin_meminfo_t info) {
    return known ? info >> STORE & 1 : qemu_plugin_mem_is_store(info);
}

template <bool known> static inline uint64_t bytes_of(qemu_plugin_meminfo_t info) {
    return 1ull << (known ? info >> SIZE & 7 : qemu_plugin_mem_size_shift(info));
}

static void on_access(struct ptt_thread *thread, qemu_plugin_meminfo_t info, uint64_t address) {
    if (ptt_session->recording)
        tracer_access(thread, address, bytes_of<false>(info), qemu_plugin_mem_is_store(info));
    else if (ptt_session->waiting && tracer_may_be_first(address))
        tracer_first(thread, address, bytes_of<false>(info));
}

/* Out of line, so that any_access saves no registers for what it mostly does not do. */
[[gnu::noinline]] static void other_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address) {
    struct ptt_thread *thread = thread_of(vcpu);
    if (thread) on_access(thread, info, address);
}

template <bool known>
[[gnu::noinline]] static void whole_access(struct ptt_thread *thread, qemu_plugin_meminfo_t info, uint64_t address) {
    if (!ptt_touch_whole(thread, address >> 12, is_store<known>(info))) on_access(thread, info, address);
}

template <bool known> static void any_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *) {
    struct ptt_thread *thread = vcpu < VCPUS ? threads[vcpu] : nullptr;
    // QEMU's x86 accesses have 16 bytes at most: wider registers take several
    bool at_border = __builtin_expect((address & 4095) > 4096 - 16, 0) && (address & 4095) + bytes_of<known>(info) > 4096;
    bool apart = at_border || __builtin_expect(ptt_is_sampled(address >> 12), 0);
    if (!thread || !ptt_session->recording || apart) return other_access(vcpu, info, address);
    if (ptt_strip_known(&thread->strip, address >> 12, is_store<known>(info))) return;
    thread->strip.whole ? whole_access<known>(thread, info, address) : other_access(vcpu, info, address);
}

static void counted_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *) {
    struct ptt_thread *thread = thread_of(vcpu);
    if (!thread) return;
    tracer_count(thread);
    on_access(thread, info, address);
}

static void block_executed(unsigned vcpu, void *instructions) {
    struct ptt_thread *thread = thread_of(vcpu);
    if (thread && ptt_session->recording) thread->instructions += (uint64_t)instructions;
}

/* ---- region of interest ---- */

static void at_start(unsigned vcpu, void *) {
    struct ptt_thread *thread = thread_of(vcpu);
    if (thread) tracer_roi_start(thread);
}

static void at_end(unsigned vcpu, void *) {
    struct ptt_thread *thread = thread_of(vcpu);
    if (thread) tracer_roi_end(thread);
}

/* Where QEMU put the program, by its own maps: QEMU 10.0 has neither qemu_plugin_start_code() nor
 * qemu_plugin_path_to_binary() in user mode, though its header has. */
static uint64_t lowest_map_of(const char *path) {
    char line[4500];
    struct stat file;
    uint64_t found = 0;
    FILE *maps = stat(path, &file) ? nullptr : fopen("/proc/self/maps", "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long start, inode;
        if (sscanf(line, "%lx-%*x %*s %*x %*x:%*x %lu", &start, &inode) == 2 && inode == file.st_ino) found = start;
    }
    if (maps) fclose(maps);
    return found;
}

static uint64_t find_function(const char *name) {
    uint64_t lowest_page = 0;
    if (!name[0]) return 0;
    uint64_t address = elf_symbol(program, name, &lowest_page), loaded = lowest_map_of(program);
    if (!address || !loaded) {
        const char *why = !program[0] ? "program=FILE does not name the file that has it"
                          : address   ? "the program's file is not mapped"
                          : strstr(name, "::") ? "not in its symbol table: C++ names are mangled there, as nm prints them"
                                      : "not in its symbol table (stripped?)";
        fprintf(stderr, "ptanalyze: %s: function %s: %s, so the region of interest cannot be bound by it\n", program, name,
                why);
        tracer_exit();
        _exit(126);
    }
    return address + (loaded - lowest_page) - ptt_session->guest_base;
}

/* ---- what the program was given before its first instruction ---- */

static void map_event(struct ptt_thread *thread, const char *line) {
    unsigned long start, end;
    char prot[8];
    if (sscanf(line, "%lx-%lx %7s", &start, &end, prot) != 3) return;
    if (start >= own_lowest) return;
    uint64_t bits = (prot[0] == 'r' ? PROT_READ : 0) | (prot[1] == 'w' ? PROT_WRITE : 0) | (prot[2] == 'x' ? PROT_EXEC : 0);
    uint64_t base = ptt_session->guest_base;
    ptt_record_event(thread, PTT_MMAP, start - base, end - start, bits, MAP_PRIVATE | MAP_FIXED, (int64_t)(start - base));
}

static void record_first_maps(struct ptt_thread *thread) {
    char line[4500];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) map_event(thread, line);
    if (maps) fclose(maps);
}

static uint64_t lowest_map(void) {
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps && fscanf(maps, "%lx-", &start) != 1) start = 0;
    if (maps) fclose(maps);
    return start;
}

static void look_at_program(struct qemu_plugin_insn *first) {
    first_block = false;
    ptt_session->guest_base = (uint64_t)(uintptr_t)qemu_plugin_insn_haddr(first) - qemu_plugin_insn_vaddr(first);
    start_address = find_function(tracer_options.start_symbol);
    end_address = find_function(tracer_options.end_symbol);
    struct ptt_thread *thread = thread_of(0);
    if (thread) record_first_maps(thread);
}

/* ---- what QEMU calls ---- */

static void block_translated(qemu_plugin_id_t, struct qemu_plugin_tb *block) {
    size_t n = qemu_plugin_tb_n_insns(block);
    if (first_block && ptt_session) look_at_program(qemu_plugin_tb_get_insn(block, 0));
    auto *access = tracer_counts() ? counted_access : info_is_known ? any_access<true> : any_access<false>;
    if (tracer_options.writer.instructions)
        qemu_plugin_register_vcpu_tb_exec_cb(block, block_executed, QEMU_PLUGIN_CB_NO_REGS, (void *)n);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        if (start_address && address == start_address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_start, QEMU_PLUGIN_CB_NO_REGS, nullptr);
        if (end_address && address == end_address)
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_end, QEMU_PLUGIN_CB_NO_REGS, nullptr);
        /* Loads and stores apart would save a call, but QEMU 7.2 calls a callback for stores on loads too. */
        qemu_plugin_register_vcpu_mem_cb(instruction, access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, nullptr);
    }
}

static void call_begins(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                        uint64_t, uint64_t, uint64_t, uint64_t) {
    struct ptt_thread *thread = thread_of(vcpu);
    const uint64_t arguments[4] = {a, b, c, d};
    if (thread && tracer_call(thread, number, arguments)) threads[vcpu] = nullptr;
    if (!thread && number == __NR_exit && vcpu < VCPUS) refused[vcpu] = false;
    exits = number == __NR_exit || number == __NR_exit_group;
}

static void call_returns(qemu_plugin_id_t, unsigned vcpu, int64_t number, int64_t result) {
    if (tracer_is_child()) forget_threads();
    struct ptt_thread *thread = thread_of(vcpu);
    if (thread) tracer_return(thread, number, result);
}

/* QEMU 10 calls this for a crash, too, of which the watcher knows more. */
static void process_exits(qemu_plugin_id_t, void *) {
    if (exits) tracer_exit();
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    if (info->system_emulation || strcmp(info->target_name, "x86_64")) {
        fprintf(stderr, "ptanalyze: this plugin traces x86-64 programs under qemu-x86_64, not %s\n", info->target_name);
        return 1;
    }
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value) *value++ = 0;
        if (value && !strcmp(argv[i], "program") && strlen(value) < sizeof program) {
            strcpy(program, value);
            continue;
        }
        if (value && tracer_option(argv[i], value)) continue;
        fprintf(stderr, "ptanalyze: plugin option %s=%s: no such option, or not a value of it\n", argv[i],
                value ? value : "");
        return 1;
    }
    look_at_info();
    char name[48];
    snprintf(name, sizeof name, "qemu-user plugin, API %d of %d-%d", QEMU_API, info->version.min, info->version.cur);
    int failed = tracer_start(name);
    if (failed) {
        fprintf(stderr, "ptanalyze: %s: cannot trace into it: %s\n", tracer_options.writer.path, strerror(-failed));
        return 1;
    }
    record_own_maps(1);
    own_lowest = lowest_map();
    qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
    qemu_plugin_register_vcpu_syscall_cb(id, call_begins);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, call_returns);
    qemu_plugin_register_atexit_cb(id, process_exits, nullptr);
    return 0;
}
