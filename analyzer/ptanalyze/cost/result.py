"""Counts of a replay under a policy, their cost, and the provenance that makes it reproducible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ..core.finding import CAREFUL, OF_CAPTURE, Finding, found, plain
from ..core.interval import Interval, less_sure
from ..kernels.replay import EVENT_KINDS, LL, RR
from ..kernels.steps import CALLS

# What a policy costs once: getting to its tables, and touching memory for the first time.


@dataclass(frozen=True)
class Once:
    """What happens once under a policy.

    Of a run counted as traced (Setup.cold), what is done before the first walk: `within` its Price too.

    events, host_events  int64[kinds, nodes, nodes] as Result.events: before the first walk, to get from the
                         captured tables to the policy's, and in the first run beyond what a further run does
    data_copied          data pages of 4 KiB copied into huge pages
    cycles               of the kernel and the hypervisor for all that
    pays_back            further runs of the region until `cycles` beyond the baseline's are earned back by
                         the policy's faster steady state: 0 at once, NEVER; None without a run time, and of
                         the baseline
    run_walks            walks of a further run
    run_cycles           cycles of a further run, None if unknown
    run_seconds          length of the baseline's further run on the CPUs that walk, None if unknown
    traced_speedup       of the run as traced: cold caches, and all that happens once, within it
    within               whether the run that is counted is that one: its Price has `cycles` too
    """

    events: np.ndarray
    host_events: np.ndarray
    data_copied: int
    cycles: float
    pays_back: Interval | None
    run_walks: int
    run_cycles: float | None
    run_seconds: float | None
    traced_speedup: Interval | None
    within: bool = False

    def of_larger(self, times: float) -> Once:
        """As Result.of_larger."""
        pays = self.pays_back and self.pays_back.through(lambda runs: runs * times)
        return replace(
            self,
            events=np.rint(self.events * times).astype(np.int64),
            host_events=np.rint(self.host_events * times).astype(np.int64),
            data_copied=round(self.data_copied * times),
            cycles=self.cycles * times,
            pays_back=pays,
        )

    def count(self, kind: int, host: bool = False) -> int:
        """Events of a kind (an index of EVENT_KINDS)."""
        return int((self.host_events if host else self.events)[kind].sum())

    @property
    def when(self) -> str | None:
        """When the cost is earned back, in a word: "at once", "later", "never"; None where unknown."""
        if self.pays_back is None:
            return None
        runs = self.pays_back.middle
        return "at once" if not runs else "later" if math.isfinite(runs) else "never"

    @property
    def pays_back_walks(self) -> Interval | None:
        """Walks until it has paid for itself."""
        return self.pays_back and self.pays_back.through(lambda runs: runs * self.run_walks)

    @property
    def pays_back_seconds(self) -> Interval | None:
        """Seconds of the baseline's run until then."""
        if self.pays_back is None or self.run_seconds is None:
            return None
        seconds = self.run_seconds
        return self.pays_back.through(lambda runs: runs * seconds)


TABLE_BYTES = 4096
BY_SIZE = (
    0.15  # of the effect, for each factor of four that a run is larger than its trace: docs/howto/size.md
)
EVERY_NODE = "every node once"  # placement where there is no trace
HELD_FACTS = ("bloat_bytes", "unused_bytes_peak", "page_cache_bytes_unused")
HOST_KINDS = ("pte_writes", "pte_fanout", "replica_faults", "pte_copies", "tables_new", "tables_moved")


class CallCost(NamedTuple):
    """Effects of a kind of system call on page tables, from price.call_costs.

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


@dataclass(frozen=True)
class Price:
    """From price.price: cycles are summed over all CPUs. Of several runs: float64[runs] for each number.

    walk_cycles        all reads, at the machine's latencies
    busy_walk_cycles   the same with memory as busy as the run makes it; None: not known
    local_walk_cycles  (guest, host) of the same reads if every table were local
    calibrated_walk_cycles  (guest, host) of the same reads with the tables where the calibrated run had them;
                       None without a Calibration
    data_cycles        of one read of own DRAM per walk, for its data
    dram_shares        (guest, host) share of the walk cycles that waits for DRAM, None without reads
    management_cycles  faults and system calls, and the time lost by CPUs that they interrupt
    speedup            run time of the baseline / run time under this policy, None without a trace
    run_cycles         of the whole run, by the middle of the assumptions, None without a trace
    walk_share         share of the run that page walks stall it: what less of them can save at most
    kernel_share       share of the run that management_cycles are; table_share: of both together, what any
                       change of page tables can save at most; None without a trace
    assumptions        line for people
    system_calls       by kind; none without a trace
    fault_ns           of all CPUs, for page faults and what else walks cause the kernel to do
    """

    walk_cycles: float
    guest_walk_cycles: float
    host_walk_cycles: float
    local_walk_cycles: tuple[float, float]
    data_cycles: float
    dram_shares: tuple[float | None, float | None]
    management_cycles: float
    speedup: Interval | None
    run_cycles: float | None
    walk_share: Interval | None
    assumptions: str
    system_calls: tuple[CallCost, ...] = ()
    kernel_share: Interval | None = None
    table_share: Interval | None = None
    fault_ns: float = 0.0
    calibrated_walk_cycles: tuple[float, float] | None = None
    busy_walk_cycles: float | None = None

    def walking(self, load: float) -> float:
        """Walk cycles at a load: 0 idle memory, 1 as busy as the run makes it."""
        if self.busy_walk_cycles is None:
            return self.walk_cycles
        return self.walk_cycles + load * (self.busy_walk_cycles - self.walk_cycles)

    def of(self, run: int | tuple[()]) -> Price:
        """The Price of one of several runs; (): there is but one, in arrays without axes."""
        numbers = {name: _of(value, run) for name, value in vars(self).items() if name not in PLAIN}
        return replace(self, **numbers)

    def covering(self, middle: int) -> Price:
        """The Price of the first run with the best guesses and run cycles of the run `middle`, and bounds
        that cover those of all runs but the last."""
        covered: dict[str, Any] = {"run_cycles": self.of(middle).run_cycles}
        for name in INTERVALS:
            if (all_ := getattr(self, name)) is not None:
                low, high = all_.low[:-1].min(), all_.high[:-1].max()
                covered[name] = Interval(float(low), float(all_.middle[middle]), float(high))
        return replace(self.of(0), **covered)


PLAIN = "assumptions", "system_calls"
INTERVALS = "speedup", "walk_share", "kernel_share", "table_share"


def _of(value: Any, run: int | tuple[()]) -> Any:
    if value is None:
        return None
    if isinstance(value, Interval):
        return Interval(*(_of(end, run) for end in value))
    if isinstance(value, tuple):
        return tuple(_of(part, run) for part in value)
    number = float(np.asarray(value)[run])
    return None if math.isnan(number) else number


class Rate(NamedTuple):
    """Per second, as cost.throughput estimates it: walks, and data accesses."""

    walks: Interval
    accesses: Interval


@dataclass(frozen=True)
class Series:
    """Counts in each of N windows of equal time.

    time_ns       int64[N]  end of each window, from the trace's first chunk
    walks         int64[N]
    classes       int64[N, sockets, 4]  as kernels.replay.Counters
    dram          int64[N, 2, sockets, sockets]  of the guest's, the host's tables, by [reader, server]
    tables_moved  int64[N]  table pages moved so far, of both dimensions
    data_moved    int64[N]  data pages moved so far; pages  mapped in the end
    by_host       whether the hypervisor moved them
    data          int64[N, nodes, nodes]  walks by [walker's node, node of their data]
    data_remote   int64[N]  walks whose data are on another socket
    cycles        float64[N, 3]  as throughput.spent: of walks, of faults and calls, of NUMA balancing
    accesses, instructions  int64[N]  of the program; cpus  int64[N]  that run at a time
    scale         Snapshot.scale
    rates         of each window, None where nothing is accessed; empty: not computed
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
    by_host: bool = False
    rates: Sequence[Rate | None] = ()

    def rows(self) -> list[dict[str, int | float | None]]:
        """[{column: value}], one per window; shares are of its walks or DRAM reads, None without any."""
        return [self._row(k) for k in range(len(self.walks))]

    def _row(self, k: int) -> dict[str, int | float | None]:
        walks = int(self.walks[k])
        row: dict[str, int | float | None] = {"time_ns": int(self.time_ns[k]), "walks": walks}
        for kind, name in enumerate(("LL", "LR", "RL", "RR")):
            row[f"leaf_{name}_share"] = int(self.classes[k, :, kind].sum()) / walks if walks else None
        for side, name in enumerate(("guest", "host")):
            reads = int(self.dram[k, side].sum())
            remote = reads - int(np.trace(self.dram[k, side]))
            row |= {f"{name}_dram_reads": reads, f"{name}_remote_share": remote / reads if reads else None}
        row["data_remote_share"] = int(self.data_remote[k]) / walks if walks else None
        row |= self._speed(self.rates[k] if self.rates else None)
        row |= {"tables_moved": int(self.tables_moved[k]), "data_moved": int(self.data_moved[k])}
        return row | {"data_moved_share": int(self.data_moved[k]) / self.pages if self.pages else None}

    def _speed(self, rate: Rate | None) -> dict[str, float | None]:
        row: dict[str, float | None] = {"walks_per_s": rate.walks.middle if rate else None}
        for name in ("low", "middle", "high"):
            column = "accesses_per_s" if name == "middle" else f"accesses_per_s_{name}"
            row[column] = getattr(rate.accesses, name) if rate else None
        return row


@dataclass(frozen=True)
class Result:
    """Integer counts (kernels.replay.Counters describes their axes) and their price.

    hits          int64[3]  accesses that hit the L1 TLB, the L2 TLB, or walked; zeros without a trace
    calls         int64[calls, kinds, nodes, nodes]  events on the guest's tables, by their cause
    host_calls    the same of the host's
    table_pages   guest table pages in the end, table_pages_peak at most, single_copy without further copies
    host_pages    host table pages, replicas included; host_single_copy as captured
    once          what happens once, and when it is earned back
    aside_pages   table pages kept, but no longer walked
    facts         {name: number} of the policy when it reshaped the capture
    findings      what a reader must know
    series        counts over time, None unless asked for
    """

    policy: str
    params: dict[str, Any]
    machine: str
    placement: str
    baseline: str
    walks: int
    hits: np.ndarray
    reads: np.ndarray
    classes: np.ndarray
    calls: np.ndarray
    host_calls: np.ndarray
    table_pages: int
    table_pages_peak: int
    single_copy: int
    host_pages: int
    host_single_copy: int
    price: Price
    once: Once
    aside_pages: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    series: Series | None = None

    @property
    def run(self) -> str | None:
        """The run that is counted: a further one, "warm", or the first, "as traced"; None without a trace."""
        if not self.hits.any():
            return None
        return "as traced" if self.once.within else "warm"

    @property
    def events(self) -> np.ndarray:
        """int64[kinds, nodes, nodes] of the guest's tables, whatever the cause."""
        total: np.ndarray = self.calls.sum(axis=0)
        return total

    @property
    def host_events(self) -> np.ndarray:
        """int64[kinds, nodes, nodes] of the host's tables."""
        total: np.ndarray = self.host_calls.sum(axis=0)
        return total

    def finding(self, *codes: str) -> Finding | None:
        """The first finding of these codes, None where there is none."""
        return found(self.findings, *codes)

    @property
    def careful(self) -> list[Finding]:
        """What must stand beside a recommendation of its policy."""
        return [one for one in self.findings if one.weight == CAREFUL and one.code not in OF_CAPTURE]

    @property
    def notes(self) -> list[str]:
        """Its findings, a line each."""
        return [one.line for one in self.findings]

    @property
    def held_bytes(self) -> int:
        """Memory besides page tables that the policy reserves and leaves unused."""
        return sum(int(number) for fact, number in self.facts.items() if fact.endswith(HELD_FACTS))

    def of_larger(self, times: float, alone: bool = True) -> Result:
        """The Result of a run of `times` the memory: with more table pages, and more that happens once.

        Its speed-up is known less: see BY_SIZE; not where it is not `alone`.
        """
        if times == 1:
            return self
        unsure = min(BY_SIZE * math.log(times, 4), 1.0) if alone else 0.0
        speedup = self.price.speedup and less_sure(self.price.speedup, unsure)
        pages = ("table_pages", "table_pages_peak", "single_copy", "host_pages", "host_single_copy")
        grown = {name: round(getattr(self, name) * times) for name in (*pages, "aside_pages")}
        held = {
            fact: round(number * times) for fact, number in self.facts.items() if fact.endswith(HELD_FACTS)
        }
        text = (
            f"from a trace of one size: speed-ups may be off by another {100 * unsure:.0f} % of the effect; "
            "a second capture of another size narrows that"
        )
        note = Finding("of-one-size", text, numbers={"of the effect": unsure})
        return replace(
            self,
            **grown,
            price=replace(self.price, speedup=speedup),
            once=self.once.of_larger(times),
            facts=self.facts | held,
            findings=(*self.findings, *[note] * alone),
        )

    def count(self, kind: str, where: str = "all", host: bool = False) -> int:
        """Events of a kind of EVENT_KINDS: "all", "local" (from = to) or "remote"."""
        matrix = (self.host_events if host else self.events)[EVENT_KINDS.index(kind)]
        local = int(np.trace(matrix))
        return {"all": int(matrix.sum()), "local": local, "remote": int(matrix.sum()) - local}[where]

    def row(self) -> dict[str, Any]:
        """{column: value}: a flat row; shares are of walks, *_bytes in bytes, *_cycles in CPU cycles."""
        walks = max(int(self.classes.sum()), 1)
        by_level = self.reads.sum(axis=(1, 2, 3))
        local = np.einsum("lnnd->d", self.reads)
        dram = int(self.reads[..., 1].sum())
        guest, guest_dram = int(by_level[0::8].sum()), int(self.reads[0::8, ..., 1].sum())
        row: dict[str, Any] = {
            "policy": self.policy,
            "params": " ".join(f"{key}={value}" for key, value in self.params.items() if value != ""),
            "machine": self.machine,
            "placement": self.placement,
            "baseline": self.baseline,
            "run": self.run,
            "walks": self.walks,
        }
        for leaf, name in enumerate(("LL", "LR", "RL", "RR")[LL : RR + 1]):
            row[f"leaf_{name}_share"] = int(self.classes[:, leaf].sum()) / walks
        row |= {
            "reads_per_walk": int(by_level.sum()) / walks,
            "guest_reads_per_walk": guest / walks,
            "host_reads_per_walk": (int(by_level.sum()) - guest) / walks,
            "dram_reads": dram,
            "dram_reads_per_walk": dram / walks,
            "guest_dram_reads": guest_dram,
            "host_dram_reads": dram - guest_dram,
            "remote_dram_reads": dram - int(local[1]),
            "remote_reads": int(by_level.sum()) - int(local.sum()),
            "walk_cycles": self.price.walk_cycles,
            "guest_walk_cycles": self.price.guest_walk_cycles,
            "host_walk_cycles": self.price.host_walk_cycles,
            "cycles_per_walk": self.price.walk_cycles / walks,
            "guest_dram_share": self.price.dram_shares[0],
            "host_dram_share": self.price.dram_shares[1],
            "management_cycles": self.price.management_cycles,
        }
        speedup = self.price.speedup
        for name in ("low", "middle", "high"):
            row["speedup" if name == "middle" else f"speedup_{name}"] = getattr(speedup, name, None)
        for name in ("low", "middle", "high"):
            row["walk_share" if name == "middle" else f"walk_share_{name}"] = getattr(
                self.price.walk_share, name, None
            )
        row |= self._once()
        row |= {
            "pt_bytes": self.table_pages * TABLE_BYTES,
            "pt_bytes_extra": (self.table_pages - self.single_copy) * TABLE_BYTES,
            "pt_bytes_peak": self.table_pages_peak * TABLE_BYTES,
            "ept_bytes": self.host_pages * TABLE_BYTES,
            "ept_bytes_extra": (self.host_pages - self.host_single_copy) * TABLE_BYTES,
        }
        for kind in EVENT_KINDS:
            row[kind] = self.count(kind)
        for kind in ("ipis", "ipis_saved"):
            row[f"{kind}_local"], row[f"{kind}_remote"] = (
                self.count(kind, "local"),
                self.count(kind, "remote"),
            )
        row |= {f"ept_{kind}": self.count(kind, host=True) for kind in HOST_KINDS}
        return (
            row
            | self._calls()
            | {
                "aside_bytes": self.aside_pages * TABLE_BYTES,
                "held_bytes": self.held_bytes,
            }
        )

    def _once(self) -> dict[str, float | str | None]:
        """What happens once; pays_back_* are None where it is never earned back, or that is not known."""
        once = self.once
        walks, seconds, traced = once.pays_back_walks, once.pays_back_seconds, once.traced_speedup
        return {
            "once_cycles": once.cycles,
            "pays_back": once.when,
            "pays_back_walks": walks.middle if walks and isfinite(walks.middle) else None,
            "pays_back_seconds": seconds.middle if seconds and isfinite(seconds.middle) else None,
            "traced_speedup": traced.middle if traced else None,
        }

    def _calls(self) -> dict[str, int | float | None]:
        """All system calls together; the means are None where there are none."""
        kinds = self.price.system_calls
        calls = sum(kind.calls for kind in kinds)
        return {
            "system_calls": calls,
            "system_call_ns": sum(kind.ns * kind.calls for kind in kinds) / calls if calls else None,
            "system_call_stolen_ns": sum(kind.stolen_ns * kind.calls for kind in kinds) / calls
            if calls
            else None,
        }

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict: the row, the arrays as nested lists, findings and provenance."""
        return {
            **self.row(),
            "reads_by_bit_reader_server_dram": self.reads.tolist(),
            "classes_by_reader": self.classes.tolist(),
            "events_from_to": _named(self.events),
            "host_events_from_to": _named(self.host_events),
            "events_by_call": {
                call: _named(self.calls[k]) for k, call in enumerate(CALLS) if self.calls[k].any()
            },
            "system_calls_by_kind": [cost._asdict() for cost in self.price.system_calls],
            "once": {
                "events_from_to": _named(self.once.events),
                "host_events_from_to": _named(self.once.host_events),
                "data_pages_copied": self.once.data_copied,
                "pays_back_walks": _bounds(self.once.pays_back_walks),
                "pays_back_seconds": _bounds(self.once.pays_back_seconds),
                "traced_speedup": _bounds(self.once.traced_speedup),
            },
            "facts": self.facts,
            "series": self.series.rows() if self.series else None,
            "tlb_hits_l1_l2_walked": self.hits.tolist(),
            "assumptions": self.price.assumptions,
            "findings": plain(self.findings),
            "provenance": dict(self.provenance),
        }


def _bounds(interval: Interval | None) -> dict[str, float | str] | None:
    """{"low": number, ...}; "never" for what is infinite."""
    if interval is None:
        return None
    names = ("low", "middle", "high")
    return {name: value if isfinite(value) else "never" for name, value in zip(names, interval, strict=True)}


def _named(events: np.ndarray) -> dict[str, Any]:
    return {kind: events[k].tolist() for k, kind in enumerate(EVENT_KINDS)}


# Numbers of memory system calls in a trace, from which their cost is computed.


class SystemCalls(NamedTuple):
    """int64[calls, nodes] each: [steps.CALLS, node of the calling CPU], the same under every policy.

    calls       successful calls, including those that changed nothing
    flushes     TLB flushes because valid entries changed
    shootdowns  flushes while other CPUs ran threads of the process
    """

    calls: np.ndarray
    flushes: np.ndarray
    shootdowns: np.ndarray
