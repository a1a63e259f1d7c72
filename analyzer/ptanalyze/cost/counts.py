"""What a replay counts under a policy, which is all that prices, tables and verdicts know of it, and the
cycles of these counts: latencies and costs come from outside."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..core.columns import CAREFUL, Finding, noted
from ..core.machine import Costs, Machine
from ..core.trace import Trace
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
)

TRACED, STEADY = 0, -1  # axis `runs`
GUEST, HOST = 0, 1  # axis `sides`
FROM = ("L1D", "L2", "LLC", "DRAM")  # axis `from`: what serves a read
L1D, L2, LLC, DRAM = range(4)
MADE, FLUSHES, SHOOTDOWNS, BROADCASTS = range(4)  # axis `what` of calls
WARM, AS_TRACED = "warm", "as traced"  # the run that is counted
GUEST_BITS = slice(0, None, 8)  # of reads: entries of the guest's tables; natively all
LEAVES = (1 << 3, 1)  # bits of reads of 4 KiB leaf entries: the guest's, and the host's of the data page


@dataclass(frozen=True)
class Counts:
    """Arrays over two runs, the trace and its steady state once more; where the trace alone is counted
    (--cold) `runs` is 1, so that TRACED and STEADY are the same.

    run           the run that is counted: WARM, AS_TRACED, None without a trace
    reads         [runs, shares, bits, nodes, nodes, from]  entries read: bit of kernels.Counters, reader,
                  server of what comes from DRAM, and what serves them; shares of the LLC that page tables may
                  have, the machine's own first
    classes       int64[runs, nodes, 4]  walks by the reader's node and LL LR RL RR
    events        int64[runs, sides, calls, kinds, nodes, nodes]
    before        int64[sides, calls, kinds, nodes, nodes]  from the captured tables to the policy's
    calls         int64[runs, what, calls, nodes]  MADE: system calls that succeed, FLUSHES of TLBs because
                  valid entries changed, of which SHOOTDOWNS interrupt other CPUs and BROADCASTS flush all by
                  an instruction; by the node of the caller, the same under every policy
    instructions  float64[runs]
    hits          int64[3]  accesses that hit the L1 TLB, the L2 TLB, or walked
    pages         table pages: guest, guest_peak, guest_single, host, host_single, aside (kept, no longer
                  walked)
    more_tables   times these that the larger run has which is asked about, the guest's and the host's
    copied, zeroed  pages of 4 KiB that were, to make huge ones before the first walk
    cpus          at work at a time
    data          int64[shares, nodes, nodes, from]  walks by reader, node of their data, and where their leaf
                  entry comes from; None where that was not counted
    beyond        shares of the walks whose data L2, and L2 and LLC, cannot hold, if they hold the pages
                  walked most, whole
    adjacent      shares of the walks to the same eight pages as the walk before, and to the page after it
    longer        of what the first run missed beyond the further one, the part that a longer region misses at
                  best guess: the caches hold all that this one reads; 0: it is long enough
    leaves        float64[CPU nodes, nodes]  part of the reads of leaf entries from DRAM, by sampled accessed
                  bits, that each node serves to each reader; None where nothing tells
    timed         (cycles per instruction outside the tracer, whether its machine had one node), None: not
                  timed
    series        the same over time, None unless asked for
    """

    policy: str
    params: dict[str, Any]
    run: str | None
    reads: np.ndarray
    classes: np.ndarray
    events: np.ndarray
    before: np.ndarray
    calls: np.ndarray
    instructions: np.ndarray
    hits: np.ndarray
    pages: dict[str, int]
    more_tables: tuple[float, float] = (1.0, 1.0)
    copied: int = 0
    zeroed: int = 0
    cpus: float = 1.0
    data: np.ndarray | None = None
    beyond: tuple[float, float] = (0.0, 0.0)
    adjacent: tuple[float, float] = (0.0, 0.0)
    longer: float = 0.0
    leaves: np.ndarray | None = None
    timed: tuple[float, bool] | None = None
    placement: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    series: "Series | None" = None

    @property
    def walks(self) -> int:
        return int(self.classes[STEADY].sum())

    @property
    def data_in_dram(self) -> float:
        """Share of the walks whose data are in DRAM at every share of the LLC: like their leaf entry, but
        those that fault, as a page just zeroed is cached (ADR 20)."""
        leaves = self.reads[STEADY][:, LEAVES][..., DRAM].sum(axis=(2, 3)).max(axis=1).min()
        return float(min(max(leaves - self.events[STEADY, :, :, FAULT].sum(), 0) / max(self.walks, 1), 1.0))

    def in_longer(self, part: float) -> np.ndarray:
        """`reads` of the steady run, where the first run had more from DRAM a part of the way to what served
        it; the tables are where the steady run has them."""
        first, steady = self.reads[TRACED], self.reads[STEADY]
        was, still = (
            of.sum(axis=-2) / np.maximum(of.sum(axis=(-2, -1)), 1)[..., None] for of in (first, steady)
        )
        more = was[..., DRAM:] > still[..., DRAM:]
        served = still + part * np.where(more, was - still, 0.0)
        return steady.sum(axis=-1)[..., None] * served[..., None, :]


@dataclass(frozen=True)
class Series:
    """Counts in each of N windows of equal time.

    time_ns       int64[N]  end of each window, from the trace's first chunk
    walks         int64[N]
    classes       int64[N, sockets, 4]  as kernels.Counters
    dram          int64[N, 2, sockets, sockets]  of the guest's, the host's tables, by [reader, server]
    tables_moved  int64[N]  table pages moved so far, of both dimensions
    data_moved    int64[N]  data pages moved so far; pages  mapped in the end
    host_shoots   whether each shoots down TLBs of a hypervisor that moved it
    data          int64[N, nodes, nodes]  walks by [walker's node, node of their data]
    data_remote   int64[N]  walks whose data are on another socket
    cycles        float64[N, 3]  as throughput.spent: of walks, of faults and calls, of NUMA balancing
    accesses, instructions  int64[N]  of the program; cpus  int64[N]  that run at a time
    scale         Snapshot.scale; pace  TracedProgram.pace
    per_second    float64[N, 3]  data accesses at least, at best guess and at most, NaN where there are none;
                  None: not priced (throughput.rated)
    """

    time_ns: np.ndarray
    walks: np.ndarray
    classes: np.ndarray
    dram: np.ndarray
    tables_moved: np.ndarray
    data_moved: np.ndarray
    pages: int
    data: np.ndarray
    data_remote: np.ndarray
    cycles: np.ndarray
    accesses: np.ndarray
    instructions: np.ndarray
    cpus: np.ndarray
    scale: int
    host_shoots: bool = False
    pace: float = 1.0
    per_second: np.ndarray | None = None


# The kernel's work on page tables.

CLEARING = ("mmap", "munmap", "madvise", "brk")  # calls that clear entries; others rewrite them
WALK = CALLS.index("walk")
STORES = np.array([2.0 if call == "mprotect" else 1.0 for call in CALLS])  # of an entry


class CallCost(NamedTuple):
    """Effects of a kind of system call on page tables, from call_costs.

    calls            successful calls in the region of interest, the same under every policy
    entries          stores to entries in first copies, two for each that mprotect changes; copies: in further
    tables_freed     table pages
    ipis_*, saved_*  CPUs interrupted, and spared, on the caller's socket and elsewhere
    ns               per call, as its caller sees it; stolen_ns: lost per call by interrupted CPUs
    slowdown         ns / the baseline's, None without a baseline
    """

    call: str
    calls: int
    entries: int
    copies: int
    tables_freed: int
    ipis_local: int
    ipis_remote: int
    saved_local: int
    saved_remote: int
    ns: float
    stolen_ns: float
    slowdown: float | None


# Reads of table entries.


def read_cycles(machine: Machine, contended: bool = False) -> np.ndarray:
    """float64[nodes, nodes, from]: cycles of a read by [reader's node, serving node, what serves it].

    Of a table, by a page walker (Machine.table_cycles). Reads not from DRAM come from the reader's own
    caches, wherever the table is.
    """
    dram = machine.table_cycles(contended)
    own = (machine.l1d or machine.l2, machine.l2, machine.llc)
    return np.stack([*(np.full_like(dram, cache.cycles) for cache in own), dram], axis=-1)


def at_home(cycles: np.ndarray) -> np.ndarray:
    """read_cycles with every table local to each node."""
    nodes = np.arange(len(cycles))
    return np.broadcast_to(cycles[nodes, nodes][:, None], cycles.shape)


def walk_cycles(
    reads: np.ndarray, cycles: np.ndarray, own: float, host: np.ndarray | None = None
) -> np.ndarray:
    """float64[2]: cycles of walks and all reads of the guest's tables, and of reads of the host's; reads of
    the same walk depend on each other, so they add up.

    reads   [bits, nodes, nodes, from]
    cycles  float64[nodes, nodes, from], of either or, with `host`, of the guest's
    own     cycles of the walks beside their reads: WalkCaches.cycles of each
    """
    guests = own + float((reads[GUEST_BITS].sum(axis=0) * cycles).sum())
    hosts = (reads.sum(axis=0) - reads[GUEST_BITS].sum(axis=0)) * (cycles if host is None else host)
    return np.array([guests, float(hosts.sum())])


def same_socket(machine: Machine) -> np.ndarray:
    """bool[nodes, nodes]: nodes whose memory is no farther than a node's own."""
    latency = np.asarray(machine.latency.idle)
    return latency <= latency.diagonal()[:, None]


# The kernel's work: what faults and system calls take from their callers, and from CPUs that they interrupt.


def taken_ns(
    events: np.ndarray, machine: Machine, costs: Costs, made: np.ndarray | None = None
) -> np.ndarray:
    """float64[calls]: ns that the program's CPUs are busy or interrupted; arguments as of busy_ns."""
    return np.asarray(busy_ns(events, machine, costs, made) + stolen_ns(events, costs))


def stolen_ns(events: np.ndarray, costs: Costs) -> np.ndarray:
    """float64[calls]: ns that interrupted CPUs lose on behalf of each of CALLS."""
    return np.asarray(costs.ipi_handler_ns * events[GUEST, :, IPI].sum(axis=(-2, -1)))


def busy_ns(events: np.ndarray, machine: Machine, costs: Costs, made: np.ndarray | None = None) -> np.ndarray:
    """float64[calls]: ns that CPUs are busy on behalf of each of CALLS, without those they interrupt.

    For a system call, the wait of all its callers; "walk" is faults and other work that a walk causes.
    events  int64[sides, calls, kinds, nodes, nodes]
    made    int64[what, calls, nodes] of Counts.calls; without it calls cost only their changes
    """
    far = ~same_socket(machine)
    guest, host = every = events.sum(axis=(-2, -1), dtype=np.float64)
    both, away = every.sum(axis=0), (events[GUEST] * far).sum(axis=(-2, -1))
    # of an entry in its first copy, without faults, and in others
    of_call = [costs.entry.clear if call in CLEARING else costs.entry.rewrite for call in CALLS]
    first, copy = np.array([[cost.first, cost.copy] for cost in of_call]).T
    copy[WALK] = costs.entry.fill.copy
    return (
        first * (guest[:, PTE_WRITE] / STORES - guest[:, FAULT])
        + copy * guest[:, PTE_FANOUT] / STORES
        + (costs.fault_ns + costs.entry.fill.first) * guest[:, FAULT]
        + costs.zero_ns * guest[:, PAGES_ZEROED]
        + costs.remote_entry_ns * away[:, PTE_WRITE] / STORES
        + costs.entry.rewrite.first * host[:, PTE_WRITE]
        + costs.entry.rewrite.copy * host[:, PTE_FANOUT]
        + costs.pte_copy_ns * both[:, PTE_COPY]
        + costs.replica_fault_ns * guest[:, REPLICA_FAULT]
        + costs.vm_exit_ns * (guest[:, VM_EXIT] + host[:, [PTE_WRITE, FAULT, REPLICA_FAULT]].sum(axis=1))
        + costs.table_ns * both[:, [TABLE_NEW, TABLE_FREE]].sum(axis=1)
        + costs.table_move_ns * both[:, TABLE_MOVED]
        + costs.ipi_local_ns * (guest[:, IPI] - away[:, IPI])
        + costs.ipi_remote_ns * away[:, IPI]
        + _fixed_ns(events[GUEST], costs, made)
    )


def _fixed_ns(events: np.ndarray, costs: Costs, made: np.ndarray | None) -> np.ndarray:
    """float64[calls]: fixed ns of calls, of starting on a copy, and of shootdowns.

    The numbers of copies started, and of shootdowns that interrupt any CPU, are not counted: the smallest of
    their upper bounds is used. Exact for policies that write the same copies and interrupt the same CPUs in
    every call; never in favour of a policy that spares some.
    """
    begun, shot = events[:, PTE_FANOUT] / STORES[:, None, None], events[:, IPI].sum(axis=-1)
    of_calls = np.zeros(len(CALLS))
    if made is not None:
        flushed = made[FLUSHES].sum(axis=-1) > 0
        begun = np.where(flushed[:, None, None], np.minimum(begun, made[FLUSHES][..., None]), begun)
        shot = np.minimum(shot, made[SHOOTDOWNS])
        each = np.array([getattr(costs.call, call, 0.0) for call in CALLS])
        of_calls = each * made[MADE].sum(axis=-1) + costs.broadcast_ns * made[BROADCASTS].sum(axis=-1)
    return costs.copies_ns * begun.sum(axis=(-2, -1)) + costs.ipi_first_ns * shot.sum(axis=-1) + of_calls


def call_costs(
    events: np.ndarray,
    made: np.ndarray,
    machine: Machine,
    costs: Costs,
    baseline: Sequence[CallCost] | None = None,
) -> tuple[CallCost, ...]:
    """(CallCost, ...): one per kind of system call in the trace, in the order of CALLS; events, made: as of
    busy_ns.

    baseline  CallCosts of the policy to compare with; None: these are its own
    """
    busy, stolen = busy_ns(events, machine, costs, made), stolen_ns(events, costs)
    near = same_socket(machine)
    before = {cost.call: cost.ns for cost in baseline or ()}
    priced = []
    for k in np.flatnonzero(made[MADE].any(axis=1)).tolist():
        own, calls = events[GUEST, k], int(made[MADE, k].sum())
        kinds = own.sum(axis=(1, 2)).tolist()
        ns = float(busy[k]) / calls
        was = ns if baseline is None else before.get(CALLS[k])
        priced.append(
            CallCost(
                CALLS[k], calls, kinds[PTE_WRITE], kinds[PTE_FANOUT], kinds[TABLE_FREE],
                int(own[IPI, near].sum()), int(own[IPI, ~near].sum()),
                int(own[IPI_SAVED, near].sum()), int(own[IPI_SAVED, ~near].sum()),
                ns, float(stolen[k]) / calls, ns / was if was else None,
            )
        )  # fmt: skip
    return tuple(priced)


# The lock on a process's mappings: calls that change them hold it, and their callers wait for each other.

WRITERS = ("mmap", "munmap", "mprotect", "mremap", "brk")  # of mmap_sem, in Linux 4.17 for all of the call
BUSY = 0.3  # of the run: above, calls of other threads find the lock taken often enough to matter


def held_ns(calls: Sequence[CallCost]) -> float:
    """Time that the lock is held for writing by all calls."""
    return sum(call.ns * call.calls for call in calls if call.call in WRITERS)


def lock_held(calls: Sequence[CallCost], run_cycles: float, cpus: float, ghz: float) -> list[Finding]:
    """Warns of mmap_lock contention, which estimates do not include."""
    share = held_ns(calls) * ghz * cpus / run_cycles if cpus > 1 and run_cycles else 0.0
    return [noted("lock", CAREFUL, share=min(share, 1))] if share >= BUSY else []


def instructions(trace: Trace, costs: Costs, first: int = 0) -> tuple[float, Finding]:
    """(instructions of a Trace from chunk `first` on, their source): counted, or from its accesses by an
    assumed ratio."""
    chunks = trace.chunks[first:]
    if executed := int(chunks["instructions"].sum()):
        return float(executed), noted("instructions")
    ratio = costs.instructions_per_access
    assumed = noted("instructions", line="instructions-assumed", ratio=ratio)
    return float(chunks["accesses"].sum()) * ratio, assumed
