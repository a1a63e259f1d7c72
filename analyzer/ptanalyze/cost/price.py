"""Counts to cycles to an estimate of run time; array products only, so that new latencies need no replay.

The run-time law is additive, C = NW + e W + M: NW cycles outside walks, W walk cycles, e the share of them
that stalls the program, M the kernel's work on page tables, all summed over the CPUs. The counters of the
public vMitosis runs obey it with one e per workload over all placements. Neither e nor NW can be read off a
trace: e is a stated interval, and so are the two parts of NW, cycles per instruction and waits for data. A
page that is not in the TLB is seldom in the data caches: each walk of the baseline is followed by up to one
wait for the node's own DRAM (GUPS needs 3.8 cycles per instruction), and where its entry comes from DRAM by
at least a tenth of one (docs/adr/0020-data-wait-where-walks-do.md). A speed-up is computed with the same e
and NW for the baseline and for the policy. With a Calibration they are those of a measured run: e as
calibrated, NW = C - e (G + E) of its counters, and G and E grow as the replay's walk cycles do over those of
the baseline's walks with the tables where that run had them: at its placement `at`, else as under the
baseline. M is the time that faults and system calls keep their callers
busy, and that shootdowns take from the interrupted CPUs (docs/adr/0009-what-a-system-call-costs.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from ..core import interval
from ..core.columns import Finding
from ..core.interval import Interval, over_corners
from ..kernels import (
    CALLS,
    FAULT,
    IPI,
    IPI_SAVED,
    PAGES_ZEROED,
    PTE_COPY,
    PTE_FANOUT,
    PTE_WRITE,
    REPLICA_FAULT,
    TABLE_FREE,
    TABLE_MOVED,
    TABLE_NEW,
    VM_EXIT,
    Counters,
)
from .law import CONTENDED, LOCAL, counted, outside_cycles, placement, run_cycles
from .result import CallCost, Price, SystemCalls

if TYPE_CHECKING:
    from ..core.machine import Costs, Machine
    from ..core.trace import Trace
    from .law import Calibration
    from .result import OneTimeCost


# (run cycles of a Price, given its unknowns; Interval of each unknown)
RunLaw: TypeAlias = tuple[Callable[..., Any], tuple[Interval, ...]]  # run(Price, ...) of the unknowns
Cycles: TypeAlias = Any  # a float, or float64[...] over the leading axes of Counters

LEVEL_BITS = 8
READS_AXES = 4  # of Counters.reads of a single run
CLEARING = (
    "mmap",
    "munmap",
    "madvise",
    "brk",
)  # calls that clear the entries they change; others rewrite them
WALK = CALLS.index("walk")
LEAVES = (1 << 3, 1)  # bits of reads of 4 KiB leaf entries: the guest's, and the host's of the data page
OTHER_CPU = 1.25  # factor by which the modelled CPU may be slower or faster than the one that was timed
OVERLAP = 10  # reads of DRAM that a thread has under way at most: line fill buffers (ADR 20)
STORES = np.array(
    [2.0 if call == "mprotect" else 1.0 for call in CALLS]
)  # of each entry; prices are of entries


def read_cycles(machine: Machine, contended: bool = False) -> np.ndarray:
    """float64[nodes, nodes, 2]: cycles of a read by [reader's node, serving node, 1 = from DRAM].

    Of a table, by a page walker (Machine.table_cycles). Reads not from DRAM come from the reader's own L2 or
    LLC, wherever the table is: the mean of both.
    """
    dram = machine.table_cycles(contended)
    cached = np.full_like(dram, (machine.l2.cycles + machine.llc.cycles) / 2)
    return np.stack([cached, dram], axis=-1)


def walk_cycles(reads: np.ndarray, machine: Machine, contended: bool = False) -> tuple[Cycles, Cycles]:
    """(guest, host) cycles of all reads; reads of the same walk depend on each other, so they add up."""
    return _by_dimension(reads, read_cycles(machine, contended))


def local_walk_cycles(reads: np.ndarray, machine: Machine) -> tuple[Cycles, Cycles]:
    """(guest, host) cycles of the same reads if every table were local."""
    cycles = read_cycles(machine)
    own = np.broadcast_to(cycles[np.arange(machine.nodes), np.arange(machine.nodes)][:, None], cycles.shape)
    return _by_dimension(reads, own)


def calibrated_walk_cycles(
    reads: np.ndarray, machine: Machine, calibration: Calibration, contended: bool = False
) -> tuple[Cycles, Cycles]:
    """(guest, host) cycles of the same reads with the tables where the calibrated run had them: at its `at`
    (remote: the mean latency of the other sockets), else where they are.

    UsageError where `at` is a loaded node and the machine file has no latencies under load.
    """
    if calibration.at is None:
        return walk_cycles(reads, machine, contended)
    at = placement(calibration.at)
    idle = machine.table_cycles()
    own, far = idle.diagonal(), ~same_socket(machine)
    far[:, list(machine.memory_nodes)] = False
    loaded = machine.table_cycles(contended or at.state == CONTENDED)
    away = np.where(far.any(axis=1), (loaded * far).sum(axis=1) / np.maximum(far.sum(axis=1), 1), own)
    further = np.zeros((*idle.shape, 2))
    further[..., 1] = (away - own)[:, None]
    local = local_walk_cycles(reads, machine)
    shares = [0.0 if state == LOCAL else share for state, share in at.tables()]
    guest, host = (
        here + share * more
        for here, share, more in zip(local, [*shares, 0.0], _by_dimension(reads, further), strict=False)
    )
    return guest, host


def cycles_per_walk(
    counters: Counters, machine: Machine, calibration: Calibration, contended: bool = False
) -> Interval:
    """Cycles of a walk with the tables where the calibrated run had them: cached entries in L2, in either, or
    in the LLC with DRAM under load. Without walks: zeros."""
    walks = max(float(counters.classes.sum()), 1.0)
    cached = float(counters.reads[..., 0].sum())
    spread = cached * (machine.llc.cycles - machine.l2.cycles) / 2
    middle = sum(calibrated_walk_cycles(counters.reads, machine, calibration, contended))
    loaded = contended or machine.latency.contended is not None
    most = sum(calibrated_walk_cycles(counters.reads, machine, calibration, loaded))
    return Interval((middle - spread) / walks, middle / walks, (max(most, middle) + spread) / walks)


def data_cycles(classes: np.ndarray, machine: Machine) -> Cycles:
    """Cycles of one read of own DRAM per walk; classes as in Counters."""
    return classes.sum(axis=(-2, -1)) * machine.latency_cycles().diagonal().mean()


def walks_with_data_in_dram(counters: Counters) -> int:
    """Walks whose data are in DRAM like their leaf entry, but those that fault: a page just zeroed is cached.
    The first read of a line says nothing either; to tell these is the caller's."""
    leaves = max(int(counters.reads[bit, ..., 1].sum()) for bit in LEAVES)
    faults = sum(int(events[:, FAULT].sum()) for events in (counters.events, counters.host_events))
    return max(leaves - faults, 0)


def with_data_in_dram(costs: Costs, least: float) -> Costs:
    """Costs with the least wait for data where those of a share `least` of the walks come from DRAM for sure:
    a tenth of a read (ADR 20)."""
    low, middle, high = costs.data_exposed
    low = min(max(low, least / OVERLAP), high)
    return structs.replace(costs, data_exposed=Interval(low, max(middle, low), high))


def dram_shares(reads: np.ndarray, machine: Machine, contended: bool = False) -> tuple[Cycles, Cycles]:
    """(guest, host) share of walk cycles that waits for DRAM, f of the law; NaN without reads."""
    cycles = read_cycles(machine, contended)
    dram = cycles * np.array([0.0, 1.0])
    parts = zip(_by_dimension(reads, dram), _by_dimension(reads, cycles), strict=True)
    guest, host = (_ratio(part, whole, np.nan) for part, whole in parts)
    return guest, host


def _by_dimension(reads: np.ndarray, cycles: np.ndarray) -> tuple[Cycles, Cycles]:
    by_bit = np.einsum("...bnmd,nmd->...b", reads.astype(np.float64), cycles)
    guest = by_bit[..., ::LEVEL_BITS].sum(axis=-1)
    return guest, by_bit.sum(axis=-1) - guest


def _ratio(part: Cycles, whole: Cycles, without: float) -> Cycles:
    """part / whole; `without` where the whole is 0."""
    there = np.asarray(whole) != 0
    return np.where(there, part / np.where(there, whole, 1.0), without)


def same_socket(machine: Machine) -> np.ndarray:
    """bool[nodes, nodes]: nodes whose memory is no farther than a node's own."""
    latency = machine.latency_cycles()
    return latency <= latency.diagonal()[:, None]


def busy_ns(
    counters: Counters, machine: Machine, costs: Costs, made: SystemCalls | None = None
) -> np.ndarray:
    """float64[..., calls]: ns that CPUs are busy on behalf of each of CALLS, without those they interrupt.

    For a system call, the wait of all its callers; "walk" is faults and other work that a walk causes.
    made  calls.SystemCalls; without it calls cost only their changes
    """
    guest, host = counters.events.astype(np.float64), counters.host_events.astype(np.float64)
    both, far = guest + host, ~same_socket(machine)
    first, copy = _entries(costs)
    faults = _total(guest, FAULT)
    busy: np.ndarray = (
        first * (_total(guest, PTE_WRITE) / STORES - faults)
        + copy * _total(guest, PTE_FANOUT) / STORES
        + (costs.fault_ns + costs.entry.fill.first) * faults
        + costs.zero_ns * _total(guest, PAGES_ZEROED)
        + costs.remote_entry_ns * guest[..., PTE_WRITE, :, :][..., far].sum(axis=-1) / STORES
        + costs.entry.rewrite.first * _total(host, PTE_WRITE)
        + costs.entry.rewrite.copy * _total(host, PTE_FANOUT)
        + costs.pte_copy_ns * _total(both, PTE_COPY)
        + costs.replica_fault_ns * _total(guest, REPLICA_FAULT)
        + costs.vm_exit_ns * (_total(guest, VM_EXIT) + _total(host, PTE_WRITE, FAULT, REPLICA_FAULT))
        + costs.table_ns * _total(both, TABLE_NEW, TABLE_FREE)
        + costs.table_move_ns * _total(both, TABLE_MOVED)
        + costs.ipi_local_ns * guest[..., IPI, :, :][..., ~far].sum(axis=-1)
        + costs.ipi_remote_ns * guest[..., IPI, :, :][..., far].sum(axis=-1)
        + _fixed_ns(guest, costs, made)
    )
    return busy


def _total(events: np.ndarray, *kinds: int) -> np.ndarray:
    """float64[..., calls]: events of these kinds, to any node."""
    total: np.ndarray = events[..., kinds, :, :].sum(axis=(-3, -2, -1))
    return total


def _entries(costs: Costs) -> tuple[np.ndarray, np.ndarray]:
    """(float64[calls], float64[calls]): ns per entry in its first copy, without faults, and in others."""
    of_call = [costs.entry.clear if call in CLEARING else costs.entry.rewrite for call in CALLS]
    first, copy = np.array([[cost.first, cost.copy] for cost in of_call]).T
    copy[WALK] = costs.entry.fill.copy
    return first, copy


def _fixed_ns(events: np.ndarray, costs: Costs, made: SystemCalls | None) -> np.ndarray:
    """float64[..., calls]: fixed ns of calls, of starting on a copy, and of shootdowns.

    The numbers of copies started, and of shootdowns that interrupt any CPU, are not counted: the smallest of
    their upper bounds is used. Exact for policies that write the same copies and interrupt the same CPUs in
    every call; never in favour of a policy that spares some.
    """
    begun, shootdowns = _begun(events, made)
    ns: np.ndarray = costs.copies_ns * begun.sum(axis=(-2, -1)) + costs.ipi_first_ns * shootdowns.sum(axis=-1)
    if made is None:
        return ns
    with_calls: np.ndarray = ns + costs.broadcast_ns * made.broadcasts.sum(axis=-1)
    with_calls += np.array([getattr(costs.call, call, 0.0) for call in CALLS]) * made.calls.sum(axis=-1)
    return with_calls


def _begun(events: np.ndarray, made: SystemCalls | None) -> tuple[np.ndarray, np.ndarray]:
    """(copies started on, float64[..., calls, nodes, nodes]; shootdowns, float64[..., calls, nodes])."""
    fanned = events[..., PTE_FANOUT, :, :] / STORES[:, None, None]
    interrupted = events[..., IPI, :, :].sum(axis=-1)
    if made is None:
        return fanned, interrupted
    flushed = made.flushes.sum(axis=-1) > 0
    begun = np.where(flushed[..., None, None], np.minimum(fanned, made.flushes[..., None]), fanned)
    return begun, np.minimum(interrupted, made.shootdowns)


def stolen_ns(counters: Counters, costs: Costs) -> np.ndarray:
    """float64[..., calls]: ns that interrupted CPUs lose on behalf of each of CALLS."""
    stolen: np.ndarray = costs.ipi_handler_ns * counters.events[..., IPI, :, :].sum(axis=(-2, -1))
    return stolen


def taken_ns(
    counters: Counters, machine: Machine, costs: Costs, made: SystemCalls | None = None
) -> np.ndarray:
    """float64[..., calls]: ns that the program's CPUs are busy or interrupted."""
    taken: np.ndarray = busy_ns(counters, machine, costs, made) + stolen_ns(counters, costs)
    return taken


def management_cycles(
    counters: Counters, machine: Machine, costs: Costs, made: SystemCalls | None = None
) -> Cycles:
    """Cycles of the program's CPUs for faults, system calls and their shootdowns."""
    return taken_ns(counters, machine, costs, made).sum(axis=-1) * machine.ghz


def call_costs(
    counters: Counters, machine: Machine, costs: Costs, made: SystemCalls, baseline: Sequence[CallCost] = ()
) -> tuple[CallCost, ...]:
    """(CallCost, ...): one per kind of system call in the trace, in the order of CALLS.

    baseline  CallCosts of the policy to compare with
    """
    busy, stolen = busy_ns(counters, machine, costs, made), stolen_ns(counters, costs)
    near = same_socket(machine)
    before = {cost.call: cost.ns for cost in baseline}
    priced = []
    for k in np.flatnonzero(made.calls.any(axis=1)).tolist():
        events, calls = counters.events[k], int(made.calls[k].sum())
        kinds = events.sum(axis=(1, 2)).tolist()
        ns = float(busy[k]) / calls
        priced.append(
            CallCost(
                CALLS[k], calls, kinds[PTE_WRITE], kinds[PTE_FANOUT], kinds[TABLE_FREE],
                int(events[IPI, near].sum()), int(events[IPI, ~near].sum()),
                int(events[IPI_SAVED, near].sum()), int(events[IPI_SAVED, ~near].sum()),
                ns, float(stolen[k]) / calls, ns / before[CALLS[k]] if before.get(CALLS[k]) else None,
            )
        )  # fmt: skip
    return tuple(priced)


def price(
    counters: Counters,
    machine: Machine,
    costs: Costs,
    baseline: Price | None = None,
    instructions: Cycles = 0.0,
    contended: bool = False,
    made: SystemCalls | None = None,
    calibration: Calibration | None = None,
    collapsed_ns: Cycles = 0.0,
    native: Native | None = None,
    away: Away | None = None,
    loaded: bool = False,
) -> Price:
    """Price of Counters against the baseline's Price; None: these are the baseline's Counters.

    collapsed_ns  of making huge pages of small ones, besides
    away          what data on other nodes cost, where it was counted
    loaded        whether speed-ups will reach from idle to loaded memory
    No speed-up where neither instructions are known (0) nor a Calibration is given. Of several runs, along a
    leading axis of all arrays, `instructions` and `collapsed_ns` too, each number is float64[runs]: Price.of.
    """
    guest, host = walk_cycles(counters.reads, machine, contended)
    taken: Cycles = taken_ns(counters, machine, costs, made)
    priced = Price(
        walk_cycles=guest + host,
        guest_walk_cycles=guest,
        host_walk_cycles=host,
        local_walk_cycles=local_walk_cycles(counters.reads, machine),
        calibrated_walk_cycles=None
        if calibration is None
        else calibrated_walk_cycles(counters.reads, machine, calibration, contended),
        data_cycles=data_cycles(counters.classes, machine),
        dram_shares=dram_shares(counters.reads, machine, contended),
        management_cycles=taken.sum(axis=-1) * machine.ghz + collapsed_ns * machine.ghz,
        speedup=None,
        run_cycles=None,
        walk_share=None,
        assumptions=assumptions(costs, contended, calibration, bool(np.all(instructions)), native, loaded),
        system_calls=() if made is None else _call_costs(counters, machine, costs, made, baseline),
        fault_ns=taken[..., WALK],
    )
    base = baseline or priced
    law = run_law(base, costs, instructions, calibration, native)
    local = _local(priced)
    if law is not None:
        run, unknown = law
        walkless = replace(priced, walk_cycles=0.0, guest_walk_cycles=0.0, host_walk_cycles=0.0)

        def share_beyond(less: Price) -> Interval:
            return _extremes(lambda *at: 1 - run(less, *at) / run(priced, *at), *unknown)

        priced = replace(
            priced,
            speedup=_extremes(lambda *at: run(base, *at) / run(priced, *at), *unknown),
            run_cycles=run(priced, *(interval.middle for interval in unknown)),
            walk_share=share_beyond(walkless),
            kernel_share=share_beyond(replace(priced, management_cycles=0.0)),
            table_share=share_beyond(replace(walkless, management_cycles=0.0)),
            local_tables=_extremes(lambda *at: run(priced, *at) / run(local, *at), *unknown),
            local_data=away
            and away.speedup(
                priced,
                walkless,
                law,
                calibration is None and native is None,
                counters.classes.sum(axis=(-2, -1)),
            ),
        )
    return priced if counters.reads.ndim > READS_AXES else priced.of(())


def _local(price: Price) -> Price:
    """The Price with every table local."""
    guest, host = price.local_walk_cycles
    return replace(price, walk_cycles=guest + host, guest_walk_cycles=guest, host_walk_cycles=host)


class Away(NamedTuple):
    """What data on other nodes cost.

    further  float64[runs]: cycles of a wait beyond those of local data
    beyond   share of the walks whose data the caches cannot hold, which wait at best guess; at the ends all
    most     share of the cycles outside walks that may be such waits, of a run that was measured
    """

    further: np.ndarray
    beyond: float
    most: float

    def speedup(self, base: Price, walkless: Price, law: RunLaw, assumed: bool, walks: Cycles) -> Interval:
        """Run time / run time with all data local, over the unknowns of a law.

        An `assumed` law takes data to be local, and has waits for data as its third unknown; a measured one
        has whatever the data cost in its cycles outside walks.
        """
        run, unknown = law
        middles = [of.middle for of in unknown]
        whole = run(base, *middles)
        more = replace(base, management_cycles=base.management_cycles + whole)
        times = (run(more, *middles) - whole) / whole  # the measured run over the region
        user = replace(walkless, management_cycles=0.0)

        def gained(at: Sequence[float], part: float) -> Cycles:
            cycles, waits = run(base, *at), part * self.further * walks * times
            if assumed:
                return 1 + at[2] * waits / cycles
            return cycles / (cycles - np.minimum(waits, self.most * run(user, *at)))

        middle = gained(middles, self.beyond)
        ends = [gained(corner, 1.0) for corner in product(*({of.low, of.high} for of in unknown))]
        found = np.array(np.broadcast_arrays(middle, *ends))
        return Interval(found.min(axis=0), middle, found.max(axis=0))


def _call_costs(
    counters: Counters, machine: Machine, costs: Costs, made: SystemCalls, baseline: Price | None
) -> tuple[CallCost, ...]:
    """Of the first run, where there are several."""
    if counters.reads.ndim > READS_AXES:
        counters = Counters(*(array[0] for array in counters))
        made = SystemCalls(*(array[0] for array in made))
    return call_costs(counters, machine, costs, made, baseline.system_calls if baseline else ())


def _extremes(function: Callable[..., Cycles], *unknown: Interval) -> Interval:
    """interval.over_corners of several runs: float64[runs] in place of numbers."""
    middle = function(*(of.middle for of in unknown))
    found = [function(*corner) for corner in product(*({of.low, of.high} for of in unknown))]
    ends = np.array(np.broadcast_arrays(middle, *found))
    return Interval(ends.min(axis=0), middle, ends.max(axis=0))


def run_law(
    base: Price,
    costs: Costs,
    instructions: Cycles,
    calibration: Calibration | None = None,
    native: Native | None = None,
) -> RunLaw | None:
    """Run cycles as a function of a Price and of what is not known; None where nothing is known.

    base  the baseline's Price, whose run a Calibration is taken to be of
    """
    if calibration:
        return _measured(base, calibration)
    return _timed(instructions, costs, native) if native else _assumed(base, instructions, costs)


def region_cycles(price: Price, law: RunLaw) -> float:
    """Run cycles of a Price with mid-range assumptions, in cycles of the region that was replayed.

    A calibrated law gives those of the measured run, of which the region stands for a part.
    """
    run, unknown = law
    middles = [interval.middle for interval in unknown]
    whole = run(price, *middles)
    more = replace(price, management_cycles=price.management_cycles + whole)
    return float(whole * whole / (run(more, *middles) - whole)) if whole else 0.0


def moving_ns(pages: int, costs: Costs) -> float:
    """ns to move data pages of 4 KiB to another node, each with its entry: as for a table page."""
    return pages * costs.table_move_ns


def collapse_ns(copied: int, zeroed: int, costs: Costs) -> float:
    """ns to make huge pages of small ones: pages of 4 KiB that are copied into them, and zeroed in them
    (__collapse_huge_page_copy in mm/khugepaged.c)."""
    return copied * costs.collapse_ns + zeroed * costs.zero_ns


def _assumed(base: Price, instructions: Cycles, costs: Costs) -> RunLaw | None:
    """By e, cycles per instruction and waits for data; None where instructions are not known."""
    if not np.all(instructions):
        return None
    unknown = costs.exposed, costs.cycles_per_instruction, costs.data_exposed

    def run(priced: Price, exposed: float, cycles: float, waits: float) -> Cycles:
        outside = instructions * cycles + waits * base.data_cycles
        return outside + exposed * priced.walk_cycles + priced.management_cycles

    return run, unknown


class Native(NamedTuple):
    """User time of the captured program outside the tracer (ADR 26), in cycles per instruction.

    cycles  over the whole run, on the modelled machine; walks: walk cycles in them, by the replay
    """

    cycles: Interval
    walks: float

    @classmethod
    def of(cls, seconds: float, ghz: float, instructions: float, walk_cycles: float) -> Native:
        """From user seconds of all threads at `ghz`, which ran `instructions`; walk_cycles: of as many."""
        measured = seconds * ghz * 1e9 / instructions
        low, high = measured / OTHER_CPU, measured * OTHER_CPU
        return cls(Interval(low, measured, high), walk_cycles / instructions)


def _timed(instructions: Cycles, costs: Costs, native: Native) -> RunLaw | None:
    """By e and the measured cycles per instruction: outside walks is what they leave, at least the least that
    the cost file assumes."""
    if not np.all(instructions):
        return None
    least = costs.cycles_per_instruction.low

    def run(priced: Price, exposed: float, cycles: float) -> Cycles:
        outside = instructions * max(cycles - exposed * native.walks, least)
        return outside + exposed * priced.walk_cycles + priced.management_cycles

    return run, (costs.exposed, native.cycles)


def _measured(base: Price, calibration: Calibration) -> RunLaw | None:
    """By e and s: the replay's changes, in the proportions of the calibrated run; None without walks."""
    local, e = calibration.local, counted(calibration.exposed, "calibration: exposed")
    cycles = counted(local.cycles, "calibration: cycles")
    gpt, ept = (counted(walk, "calibration: walk cycles") for walk in (local.gpt, local.ept))
    replayed = counted(base.calibrated_walk_cycles, "replay: walk cycles of the calibrated run")
    simulated = sum(replayed)
    if not np.all(simulated):
        return None
    grown = [_ratio(measured, own, 0.0) for measured, own in zip((gpt, ept), replayed, strict=True)]

    def run(priced: Price, exposed: float, shared: float) -> Cycles:
        walks = grown[0] * priced.guest_walk_cycles + grown[1] * priced.host_walk_cycles
        extra = (priced.management_cycles - base.management_cycles) * (gpt + ept) / simulated
        outside = outside_cycles(cycles, exposed * (gpt + ept), shared)
        return np.vectorize(run_cycles, [float])(outside, exposed * walks, shared) + extra

    return run, (e, calibration.shared)


def assumptions(
    costs: Costs,
    contended: bool = False,
    calibration: Calibration | None = None,
    timed: bool = True,
    native: Native | None = None,
    loaded: bool = False,
) -> str:
    """One line: assumptions of the run-time estimate; where there is none (not `timed`), of the cycles.

    loaded  whether speed-ups reach from idle to loaded memory
    """
    latencies = "idle to loaded" if loaded else "contended" if contended else "idle"
    taken = f"{latencies} latencies, costs of {costs.name}"
    if calibration is not None:
        exposed = counted(calibration.exposed, "calibration: exposed")
        shared = calibration.shared
        at = f"at {calibration.at}" if calibration.at else "placed as under the baseline"
        return (
            f"{exposed.low:.2f} to {exposed.high:.2f} of walk cycles stall the program, a page walker is "
            f"shared {shared.low:.2f} to {shared.high:.2f} of the time, cycles outside walks are those of "
            f"the calibrated run {calibration.name or '(unnamed)'}, its tables {at}, walk cycles grow as the "
            f"replay's do; {taken}"
        )
    if not timed:
        return taken
    if native is not None:
        e, cycles = costs.exposed, native.cycles
        return (
            f"{e.low:g} to {e.high:g} of walk cycles stall the program; {cycles.low:.2g} to "
            f"{cycles.high:.2g} cycles per instruction with walks, as timed outside the tracer; {taken}"
        )
    e, cpi, data = costs.exposed, costs.cycles_per_instruction, costs.data_exposed
    return (
        f"{e.low:g} to {e.high:g} of walk cycles stall the program; outside walks {cpi.low:g} to "
        f"{cpi.high:g} cycles per instruction and {data.low:.2g} to {data.high:g} waits for DRAM per walk; "
        f"{taken}"
    )


def instructions(trace: Trace, costs: Costs, first: int = 0) -> tuple[float, Finding]:
    """(instructions of a Trace from chunk `first` on, their source): counted, or from its accesses by an
    assumed ratio."""
    chunks = trace.chunks[first:]
    executed = int(chunks["instructions"].sum())
    if executed:
        return float(executed), Finding("instructions", "instructions as counted")
    ratio = costs.instructions_per_access
    text = f"instructions not counted: {ratio:g} per access assumed"
    return float(chunks["accesses"].sum()) * ratio, Finding("instructions", text)


# The lock on a process's mappings: calls that change them hold it, and their callers wait for each other.

WRITERS = ("mmap", "munmap", "mprotect", "mremap", "brk")  # of mmap_sem, in Linux 4.17 for all of the call
BUSY = 0.3  # of the run: above, calls of other threads find the lock taken often enough to matter


def held_ns(price: Price) -> float:
    """Time that the lock is held for writing by all calls."""
    return sum(call.ns * call.calls for call in price.system_calls if call.call in WRITERS)


def lock_held(price: Price, cpus: int, ghz: float) -> list[Finding]:
    """Warns of mmap_lock contention, which estimates do not include."""
    if cpus < 2 or not price.run_cycles:
        return []
    share = held_ns(price) * ghz * cpus / price.run_cycles
    if share < BUSY:
        return []
    text = (
        f"system calls hold the lock on the mappings for {100 * min(share, 1):.0f} % of the run: threads "
        "would wait for each other, which speed-ups leave out"
    )
    return [Finding("lock", text, numbers={"share": min(share, 1)})]


# When a one-time cost is earned back, and what a policy takes over a longer time.
#
# A run of the region costs W walk cycles and M management cycles each time (Price); getting to the
# policy's tables and touching memory for the first time costs O once. Over n runs a policy takes O + n C
# cycles (C: price.price), so that it has paid for itself after n = (O - O_base) / (C_base - C) runs.

NEVER = math.inf


def break_even(extra: float, base: Price, price: Price, law: RunLaw) -> Interval:
    """Runs until `extra` cycles are earned back, over all assumptions of the law: 0 at once, NEVER.

    A gain counts where it can be read in the speed-up (core.interval).
    """
    run, unknown = law

    def runs(*at: float) -> float:
        paid = replace(price, management_cycles=price.management_cycles + extra)
        before, after = run(base, *at), run(price, *at)
        ratio = before / after if after else 1.0
        if extra <= 0 and not interval.slower(ratio):
            return 0.0
        return float((run(paid, *at) - after) / (before - after)) if interval.faster(ratio) else NEVER

    return over_corners(runs, *unknown)


def over_horizon(base: OneTimeCost, once: OneTimeCost, speedup: float, seconds: float) -> float | None:
    """Speed-up while the baseline runs for `seconds`, one-time costs included; None if unknown.

    speedup  of each further run
    """
    if base.run_cycles is None or not base.run_seconds:
        return None
    run = base.run_cycles * seconds / base.run_seconds
    return (base.cycles + run) / (once.cycles + run / speedup)
