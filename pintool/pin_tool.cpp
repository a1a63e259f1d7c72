/* SPDX-License-Identifier: MIT
 *
 * The tracer for Intel Pin 3: pin -t build/pin/pin_tool.so -out trace.ptt -- PROGRAM ...
 * What it knows of Pin is all here; what it does with it is in tracer.cpp and writer.cpp.
 */
#include <string>

#include "pin.H"

#include "kernel.h"
#include "own_maps.h"
#include "pin_elements.h"
#include "tracer.h"

/* The register holds the address of the thread's slot. A slot points to `untraced` when its thread is not traced (any more),
 * so that what is inlined finds a thread. A forked child cannot set a register, its fork callback's CONTEXT is read only; it
 * can set the slot. */
static REG slot_register;
static ptt_thread untraced; /* its last page is none */
static ptt_thread *slots[PTT_LIVE_THREADS], *no_slot = &untraced; /* by Pin's number of the thread */
static const int never = 0;
static const int *recording = &never; /* the session's, while there is one */

static inline ptt_thread *thread_in(ptt_thread *const *slot) { return *slot == &untraced ? NULL : *slot; }

static ptt_thread *started() {
    ptt_thread *thread = tracer_thread();
    return thread ? thread : &untraced;
}

static VOID follow_session() { recording = ptt_session ? &ptt_session->recording : &never; }

/* ---- accesses: the hot path ---- */

/* Pin inlines functions without jumps and calls: what happens to most accesses stands in these. */

/* 0 when the access happens and was counted as part of the last touch, or when it does not happen; 1: any_access. */
static ADDRINT PIN_FAST_ANALYSIS_CALL is_more(ptt_thread **slot, ADDRINT address, UINT32 bytes, UINT32 store, BOOL happens) {
    ptt_thread *thread = *slot;
    ptt_slot *recent = thread->strip.recent;
    ADDRINT page = address >> 12, end = (address + bytes - 1) >> 12;
    ADDRINT other = (recent->key[store] ^ page) | (end ^ page) | (ADDRINT)(recent->merged >= PTT_FULL);
    ADDRINT same = (ADDRINT)(other == 0) & (ADDRINT)!ptt_is_sampled(page) & (ADDRINT)(*recording != 0) & (ADDRINT)happens;
    /* Elsewhere if there is nothing to count: who ends the session may be emptying the slot. */
    uint64_t *merged = (uint64_t *)((ADDRINT)&thread->credit ^ (((ADDRINT)&thread->credit ^ (ADDRINT)&recent->merged) & -same));
    *merged = (*merged + 2 * same) | (store & same);
    return (ADDRINT)happens & ~same;
}

static ADDRINT PIN_FAST_ANALYSIS_CALL is_any(ptt_thread **, ADDRINT, UINT32, UINT32, BOOL happens) { return happens; }

static VOID PIN_FAST_ANALYSIS_CALL block_executed(ptt_thread **slot, UINT32 instructions) {
    (*slot)->instructions += instructions & -(UINT32)(*recording != 0);
}

static inline VOID on_access(ptt_thread *thread, ADDRINT address, UINT32 bytes, UINT32 store) {
    if (ptt_session->recording)
        tracer_access(thread, address, bytes, store);
    else if (ptt_session->waiting && tracer_may_be_first(address))
        tracer_first(thread, address, bytes);
}

static VOID PIN_FAST_ANALYSIS_CALL any_access(ptt_thread **slot, ADDRINT address, UINT32 bytes, UINT32 store) {
    ptt_thread *thread = thread_in(slot);
    if (thread) on_access(thread, address, bytes, store);
}

static VOID PIN_FAST_ANALYSIS_CALL counted_access(ptt_thread **slot, ADDRINT address, UINT32 bytes, UINT32 store) {
    ptt_thread *thread = thread_in(slot);
    if (!thread) return;
    tracer_count(thread);
    on_access(thread, address, bytes, store);
}

/* happens: the IARG that says whether the access does. Not the calls with "Predicated" in their names: Pin calls the function
 * of such an If even if the predicate is false. */
template <class... A> static VOID instrument_access(INS ins, UINT32 operand, UINT32 store, A... happens) {
    UINT32 bytes = (UINT32)INS_MemoryOperandSize(ins, operand);
    AFUNPTR condition = tracer_counts() ? (AFUNPTR)is_any : (AFUNPTR)is_more;
    AFUNPTR function = tracer_counts() ? (AFUNPTR)counted_access : (AFUNPTR)any_access;
    INS_InsertIfCall(ins, IPOINT_BEFORE, condition, IARG_FAST_ANALYSIS_CALL, IARG_REG_VALUE, slot_register,
                     IARG_MEMORYOP_EA, operand, IARG_UINT32, bytes, IARG_UINT32, store, happens..., IARG_END);
    INS_InsertThenCall(ins, IPOINT_BEFORE, function, IARG_FAST_ANALYSIS_CALL, IARG_REG_VALUE, slot_register,
                       IARG_MEMORYOP_EA, operand, IARG_UINT32, bytes, IARG_UINT32, store, IARG_END);
}

static VOID instrument_operand(INS ins, UINT32 operand, UINT32 store) {
    if (is_masked(ins, operand))
        instrument_access(ins, operand, store, IARG_MEMORYOP_MASKED_ON, operand);
    else
        instrument_access(ins, operand, store, IARG_EXECUTING);
}

static VOID elements_access(ptt_thread **slot, pin_elements *all) {
    each_element(all, [slot](ADDRINT address, UINT32 bytes, UINT32 store) {
        if (tracer_counts())
            counted_access(slot, address, bytes, store);
        else
            any_access(slot, address, bytes, store);
    });
}

static VOID instrument(TRACE trace, VOID *) {
    for (BBL block = TRACE_BblHead(trace); BBL_Valid(block); block = BBL_Next(block)) {
        if (tracer_options.writer.instructions)
            BBL_InsertCall(block, IPOINT_BEFORE, (AFUNPTR)block_executed, IARG_FAST_ANALYSIS_CALL, IARG_REG_VALUE,
                           slot_register, IARG_UINT32, BBL_NumIns(block), IARG_END);
        for (INS ins = BBL_InsHead(block); INS_Valid(ins); ins = INS_Next(ins)) {
            if (INS_HasMemoryVector(ins)) call_with_elements(ins, (AFUNPTR)elements_access, slot_register);
            for (UINT32 operand = 0; INS_IsStandardMemop(ins) && operand < INS_MemoryOperandCount(ins); operand++) {
                if (INS_MemoryOperandIsRead(ins, operand)) instrument_operand(ins, operand, 0);
                if (INS_MemoryOperandIsWritten(ins, operand)) instrument_operand(ins, operand, 1);
            }
        }
    }
}

/* ---- region of interest by symbol, and what is mapped before the first instruction ---- */

static VOID roi_starts(ptt_thread **slot) {
    ptt_thread *thread = thread_in(slot);
    if (thread) tracer_roi_start(thread);
}

static VOID roi_ends(ptt_thread **slot) {
    ptt_thread *thread = thread_in(slot);
    if (thread) tracer_roi_end(thread);
}

static VOID call_at(IMG image, const char *symbol, AFUNPTR function) {
    RTN routine = symbol[0] ? RTN_FindByName(image, symbol) : RTN_Invalid();
    if (!RTN_Valid(routine)) return;
    RTN_Open(routine);
    RTN_InsertCall(routine, IPOINT_BEFORE, function, IARG_REG_VALUE, slot_register, IARG_END);
    RTN_Close(routine);
}

static VOID image_loaded(IMG image, VOID *) {
    call_at(image, tracer_options.start_symbol, (AFUNPTR)roi_starts);
    call_at(image, tracer_options.end_symbol, (AFUNPTR)roi_ends);
    for (UINT32 i = 0; ptt_session && i < IMG_NumRegions(image); i++) {
        ADDRINT start = IMG_RegionLowAddress(image, i), bytes = IMG_RegionHighAddress(image, i) + 1 - start;
        ptt_record_event(NULL, PTT_MMAP, start, bytes, 0, 0, (int64_t)start);
    }
}

/* ---- threads, forks, system calls ---- */

static ptt_thread **slot_in(const CONTEXT *context) { return (ptt_thread **)PIN_GetContextReg(context, slot_register); }

static VOID thread_starts(THREADID number, CONTEXT *context, INT32, VOID *) {
    ptt_thread **slot = number < PTT_LIVE_THREADS ? &slots[number] : &no_slot;
    if (slot != &no_slot)
        *slot = started();
    else
        ptt_thread_lost();
    PIN_SetContextReg(context, slot_register, (ADDRINT)slot);
}

static VOID call_begins(THREADID, CONTEXT *context, SYSCALL_STANDARD standard, VOID *) {
    ptt_thread **slot = slot_in(context), *thread = thread_in(slot);
    uint64_t arguments[4], flags;
    if (!thread) return;
    for (UINT32 i = 0; i < 4; i++) arguments[i] = PIN_GetSyscallArgument(context, standard, i);
    ADDRINT number = PIN_GetSyscallNumber(context, standard);
    if (number == __NR_clone3 && PIN_SafeCopy(&flags, (VOID *)arguments[0], sizeof flags) == sizeof flags)
        arguments[0] = flags; /* clone_args.flags comes first */
    if (tracer_call(thread, (int64_t)number, arguments)) *slot = &untraced;
}

static VOID call_returns(THREADID, CONTEXT *context, SYSCALL_STANDARD standard, VOID *) {
    ptt_thread *thread = thread_in(slot_in(context));
    if (!thread) return;
    ADDRINT failed = PIN_GetSyscallErrno(context, standard);
    int64_t result = failed ? -(int64_t)failed : (int64_t)PIN_GetSyscallReturn(context, standard);
    tracer_return(thread, thread->pending, result);
}

static VOID forked(THREADID, const CONTEXT *context, VOID *) {
    if (!tracer_is_child()) return;
    follow_session();
    for (ptt_thread *&thread : slots) thread = &untraced; /* they were the parent's */
    ptt_thread **slot = slot_in(context);
    if (slot != &no_slot) *slot = started();
}

static VOID process_exits(INT32, VOID *) { tracer_exit(); }

/* ---- options ---- */

static KNOB<std::string> out(KNOB_MODE_WRITEONCE, "pintool", "out", "trace.ptt", "file to trace into");
static KNOB<std::string> command(KNOB_MODE_WRITEONCE, "pintool", "command", "", "command line to note in the trace");
static KNOB<std::string> max_bytes(KNOB_MODE_WRITEONCE, "pintool", "max_bytes", "0", "size limit, 0 none");
static KNOB<std::string> for_ms(KNOB_MODE_WRITEONCE, "pintool", "for_ms", "0", "time to trace, 0 until the end");
static KNOB<std::string> instructions(KNOB_MODE_WRITEONCE, "pintool", "instructions", "off", "count instructions: on, off");
static KNOB<std::string> strip(KNOB_MODE_WRITEONCE, "pintool", "strip", "on", "leave out touches that change no TLB: on, off");
static KNOB<std::string> start_symbol(KNOB_MODE_WRITEONCE, "pintool", "roi_start_symbol", "", "function that starts the ROI");
static KNOB<std::string> end_symbol(KNOB_MODE_WRITEONCE, "pintool", "roi_end_symbol", "", "function that ends the ROI");
static KNOB<std::string> marker(KNOB_MODE_WRITEONCE, "pintool", "roi_marker", "off", "ROI by roi.h's markers: on, off");
static KNOB<std::string> start_access(KNOB_MODE_WRITEONCE, "pintool", "roi_start_access", "0", "accesses before the ROI");
static KNOB<std::string> accesses(KNOB_MODE_WRITEONCE, "pintool", "roi_accesses", "0", "accesses in the ROI");
static KNOB<std::string> follow_fork(KNOB_MODE_WRITEONCE, "pintool", "follow_fork", "off", "trace children: on, off");
static KNOB<std::string> control(KNOB_MODE_WRITEONCE, "pintool", "control", "", "socket of the controller");
static KNOB<std::string> control_timeout(KNOB_MODE_WRITEONCE, "pintool", "control_timeout", "600", "seconds to wait for it");

static bool take_options() {
    KNOB<std::string> *const knobs[] = {&out, &command, &max_bytes, &for_ms, &instructions, &strip, &start_symbol, &end_symbol, &marker, &start_access,
                                        &accesses, &follow_fork, &control, &control_timeout};
    const char *const names[] = {"out", "command", "max_bytes", "for_ms", "instructions", "strip", "roi_start_symbol", "roi_end_symbol", "roi_marker", "roi_start_access",
                                 "roi_accesses", "follow_fork", "control", "control_timeout"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!knobs[i]->Value().empty() && !tracer_option(names[i], knobs[i]->Value().c_str())) return false;
    return true;
}

/* Reading the symbols of a big program takes long. */
static bool needs_symbols(int argc, char *argv[]) {
    for (int i = 1; i < argc && std::string(argv[i]) != "--"; i++)
        if (std::string(argv[i]) == "-roi_start_symbol" || std::string(argv[i]) == "-roi_end_symbol") return true;
    return false;
}

int main(int argc, char *argv[]) {
    if (needs_symbols(argc, argv)) PIN_InitSymbols();
    if (PIN_Init(argc, argv) || !take_options() || tracer_start("Intel Pin")) {
        LOG("ptanalyze: wrong options, or the trace file cannot be written\n");
        return 1;
    }
    follow_session();
    ptt_strip_clear(&untraced.strip);
    if (!PIN_IsAttaching()) record_own_maps(0); /* of a running program most maps are its own */
    slot_register = PIN_ClaimToolRegister();
    TRACE_AddInstrumentFunction(instrument, NULL);
    IMG_AddInstrumentFunction(image_loaded, NULL);
    PIN_AddThreadStartFunction(thread_starts, NULL);
    PIN_AddSyscallEntryFunction(call_begins, NULL);
    PIN_AddSyscallExitFunction(call_returns, NULL);
    PIN_AddForkFunction(FPOINT_AFTER_IN_CHILD, forked, NULL);
    PIN_AddFiniFunction(process_exits, NULL);
    PIN_StartProgram();
    return 0;
}
