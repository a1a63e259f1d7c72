"""Counts of a replay under a policy, their cost, and the provenance that makes it reproducible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ..core.columns import CAREFUL, OF_CAPTURE, SCALE, SEARCHES, Column, Finding, found, plain
from ..core.interval import Interval, less_sure
from ..kernels import CALLS, EVENT_KINDS, IPI, IPI_SAVED, KINDS, LL, LR, RL, RR, Kind

# What a policy costs once: getting to its tables, and touching memory for the first time.


@dataclass(frozen=True)
class OneTimeCost:
    """What happens once under a policy.

    Of a run counted as traced (Setup.cold), what is done before the first walk: `within` its Price too.

    events, host_events  int64[kinds, nodes, nodes] as Result.events: before the first walk, to get from the
                         captured tables to the policy's, and in the first run beyond what a further run does
    data_copied          data pages of 4 KiB copied into huge pages
    cycles               of the kernel and the hypervisor for all that
    break_even           further runs of the region until `cycles` beyond the baseline's are earned back by
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
    break_even: Interval | None
    run_walks: int
    run_cycles: float | None
    run_seconds: float | None
    traced_speedup: Interval | None
    within: bool = False

    def of_larger(self, times: float) -> OneTimeCost:
        """As Result.of_larger."""
        pays = self.break_even and self.break_even.through(lambda runs: runs * times)
        return replace(
            self,
            events=np.rint(self.events * times).astype(np.int64),
            host_events=np.rint(self.host_events * times).astype(np.int64),
            data_copied=round(self.data_copied * times),
            cycles=self.cycles * times,
            break_even=pays,
        )

    def count(self, kind: int, host: bool = False) -> int:
        """Events of a kind (an index of EVENT_KINDS)."""
        return int((self.host_events if host else self.events)[kind].sum())

    @property
    def when(self) -> str | None:
        """When the cost is earned back, in a word: "at once", "later", "never"; None where unknown."""
        if self.break_even is None:
            return None
        runs = self.break_even.middle
        return "at once" if not runs else "later" if math.isfinite(runs) else "never"

    @property
    def break_even_walks(self) -> Interval | None:
        """Walks until it has paid for itself."""
        return self.break_even and self.break_even.through(lambda runs: runs * self.run_walks)

    @property
    def break_even_seconds(self) -> Interval | None:
        """Seconds of the baseline's run until then."""
        if self.break_even is None or self.run_seconds is None:
            return None
        seconds = self.run_seconds
        return self.break_even.through(lambda runs: runs * seconds)


TABLE_BYTES = 4096
# Of the effect, for each factor of four that a run is larger than its trace, and of one that searches:
# docs/howto/size.md.
BY_SIZE, BY_SEARCH = 0.15, 0.2
EVERY_NODE = "every node once"  # placement where there is no trace
HELD_FACTS = ("bloat_bytes", "unused_bytes_peak")


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
    local_walk_cycles  (guest, host) of the same reads if every table were local
    calibrated_walk_cycles  (guest, host) of the same reads with the tables where the calibrated run had them;
                       None without a Calibration
    data_cycles        of one read of own DRAM per walk, for its data
    dram_shares        (guest, host) share of the walk cycles that waits for DRAM, None without reads
    management_cycles  faults and system calls, and the time lost by CPUs that they interrupt
    speedup            run time of the baseline / run time under this policy, None without a trace
    run_cycles         of the whole run, with mid-range assumptions, None without a trace
    walk_share         share of the run that page walks stall it: what less of them can save at most
    kernel_share       share of the run that management_cycles are; table_share: of both together, what any
                       change of page tables can save at most; None without a trace
    local_tables       speed-up if every table were local to every node: a bound of placing tables
    local_data         the same of all data; of the baseline, where it was counted where they are
    cached_tables      at least what huge pages give, from accessed bits: the speed-up if caches answered the
                       reads of leaf entries that 2 MiB pages would spare; None otherwise
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
    local_tables: Interval | None = None
    local_data: Interval | None = None
    cached_tables: Interval | None = None

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

    def reaching(self, other: Price) -> Price:
        """The Price with bounds that cover those of another one, too."""
        covered: dict[str, Any] = {}
        for name in INTERVALS:
            own, its = getattr(self, name), getattr(other, name)
            covered[name] = own and Interval(min(own.low, its.low), own.middle, max(own.high, its.high))
        return replace(self, **covered)


PLAIN = "assumptions", "system_calls"
INTERVALS = "speedup", "walk_share", "kernel_share", "table_share", "local_tables", "local_data"


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
    classes       int64[N, sockets, 4]  as kernels.Counters
    dram          int64[N, 2, sockets, sockets]  of the guest's, the host's tables, by [reader, server]
    tables_moved  int64[N]  table pages moved so far, of both dimensions
    data_moved    int64[N]  data pages moved so far; pages  mapped in the end
    by_host       whether the hypervisor moved them
    data          int64[N, nodes, nodes]  walks by [walker's node, node of their data]
    data_remote   int64[N]  walks whose data are on another socket
    cycles        float64[N, 3]  as throughput.spent: of walks, of faults and calls, of NUMA balancing
    accesses, instructions  int64[N]  of the program; cpus  int64[N]  that run at a time
    scale         Snapshot.scale; pace  TracedProgram.pace
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
    pace: float = 1.0
    rates: Sequence[Rate | None] = ()

    def rows(self) -> list[dict[str, int | float | None]]:
        """[{column: value}] of WINDOW_COLUMNS, one per window; shares are of its walks or DRAM reads, None
        without any."""
        windows = (Window(self, k) for k in range(len(self.walks)))
        return [{one.key: one.of(window) for one in WINDOW_COLUMNS} for window in windows]


class Window:
    """One of a Series."""

    def __init__(self, series: Series, k: int) -> None:
        self.series, self.k, self.walks = series, k, int(series.walks[k])
        self.rate = series.rates[k] if series.rates else None
        self.tables, self.data = int(series.tables_moved[k]), int(series.data_moved[k])

    def of_walks(self, count: int) -> float | None:
        return int(count) / self.walks if self.walks else None

    def leaf(self, kind: int) -> float | None:
        return self.of_walks(self.series.classes[self.k, :, kind].sum())

    def dram(self, side: int) -> int:
        return int(self.series.dram[self.k, side].sum())

    def remote(self, side: int) -> float | None:
        reads = self.dram(side)
        return (reads - int(np.trace(self.series.dram[self.k, side]))) / reads if reads else None


WINDOW_COLUMNS = (
    Column("time_ns", "end of the window", lambda w: int(w.series.time_ns[w.k]),
           "windows", "ms", form="ms"),
    Column("walks", "page walks", lambda w: w.walks, "windows", "walks", unit="walks"),
    Column("leaf_LL_share", "as of `whatif`", lambda w: w.leaf(LL),
           "windows", "LL", "local", form="share"),
    Column("leaf_LR_share", "", lambda w: w.leaf(LR), "windows", "LR", "", form="share"),
    Column("leaf_RL_share", "", lambda w: w.leaf(RL), "windows", "RL", "remote", form="share"),
    Column("leaf_RR_share", "", lambda w: w.leaf(RR), "windows", "RR", "", form="share"),
    Column("guest_dram_reads", "reads of the guest's tables from DRAM", lambda w: w.dram(0)),
    Column("guest_remote_share", "share of them from another node", lambda w: w.remote(0),
           "windows", "gPT DRAM remote", "DRAM remote", form="share"),
    Column("host_dram_reads", "of the host's tables", lambda w: w.dram(1)),
    Column("host_remote_share", "share of them from another node", lambda w: w.remote(1),
           "windows", "ePT DRAM remote", "", form="share"),
    Column("data_remote_share", "share of walks whose data are on another socket",
           lambda w: w.of_walks(w.series.data_remote[w.k]), "windows", "data remote", form="share"),
    Column("walks_per_s", "", lambda w: w.rate and w.rate.walks.middle,
           "windows", "M walks/s", form="millions", unit="1/s"),
    Column("accesses_per_s_low", "at least", lambda w: w.rate and w.rate.accesses.low, unit="1/s"),
    Column("accesses_per_s", "data accesses", lambda w: w.rate and w.rate.accesses.middle,
           "windows", "M accesses/s", form="millions", unit="1/s"),
    Column("accesses_per_s_high", "at most", lambda w: w.rate and w.rate.accesses.high, unit="1/s"),
    Column("tables_moved", "table pages moved so far", lambda w: w.tables,
           "windows", "tables moved", rank=10, unit="pages"),
    Column("data_moved", "data pages moved so far", lambda w: w.data,
           "windows", "data moved", unit="pages"),
    Column("data_moved_share", "share of those mapped in the end",
           lambda w: w.data / w.series.pages if w.series.pages else None, "windows", "of data", form="share"),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """Integer counts (kernels.Counters describes their axes) and their price.

    hits          int64[3]  accesses that hit the L1 TLB, the L2 TLB, or walked; zeros without a trace
    calls         int64[calls, kinds, nodes, nodes]  events on the guest's tables, by their cause
    host_calls    the same of the host's
    table_pages   guest table pages in the end, table_pages_peak at most, single_copy without further copies
    host_pages    host table pages, replicas included; host_single_copy as captured
    one_time      what happens once, and when it is earned back
    unwalked_table_pages   table pages kept, but no longer walked
    facts         {name: number} of the policy when it reshaped the capture
    findings      what a reader must know
    series        counts over time, None unless asked for
    data          int64[sockets, sockets, 2]  walks by [walker's socket, socket of their data, 1 = the entry
                  they end with comes from DRAM]; None but for the baseline of a trace
    host_nodes    Machine.host_nodes
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
    one_time: OneTimeCost
    unwalked_table_pages: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    series: Series | None = None
    data: np.ndarray | None = None
    host_nodes: tuple[tuple[int, ...], ...] = ()

    @property
    def stands_for(self) -> str:
        """ "a run of 64 times the captured memory"; "" for the captured one."""
        larger = self.finding(SCALE)
        if larger is None:
            return ""
        times = larger.numbers["scale"]
        return f"a run of {f'{times:,.0f}' if times >= 10 else f'{times:.3g}'} times the captured memory"

    @property
    def run(self) -> str | None:
        """The run that is counted: a further one, "warm", or the first, "as traced"; None without a trace."""
        if not self.hits.any():
            return None
        return "as traced" if self.one_time.within else "warm"

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

    @property
    def settings(self) -> str:
        """Its parameters that are not empty."""
        return " ".join(f"{key}={value}" for key, value in self.params.items() if value != "")

    @property
    def far_data(self) -> np.ndarray | None:
        """int64[sockets, sockets]: data accesses beyond the caches, [reader's socket, serving socket]: those
        of walks whose entry comes from DRAM, of all where none does; None where data were not counted."""
        if self.data is None or not self.data.any():
            return None
        counted: np.ndarray = self.data[..., 1] if self.data[..., 1].any() else self.data.sum(axis=-1)
        return counted

    @property
    def remote_data(self) -> float | None:
        """Share of far_data that is remote."""
        counted = self.far_data
        return None if counted is None else 1 - int(np.trace(counted)) / int(counted.sum())

    @property
    def remote_tables(self) -> float | None:
        """Share of reads of page-table entries from DRAM that are remote, of all where none is; None without
        reads."""
        reads = self.reads[..., 1] if self.reads[..., 1].any() else self.reads.sum(axis=-1)
        by_node = reads.sum(axis=0)
        return 1 - int(np.trace(by_node)) / int(by_node.sum()) if by_node.any() else None

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

    def of_larger(
        self, times: float, asked: float, alone: bool = True, doubts: Sequence[Finding] = ()
    ) -> Result:
        """The Result of a run of `times` the memory: with more table pages, and more that happens once.

        asked   times as large as what the capture stands for: its speed-ups are known less (BY_SIZE), not
                where it is not `alone`; of a program that searches less still (BY_SEARCH)
        doubts  findings on what one size does not tell
        """
        if times == 1:
            return self
        each = BY_SEARCH if found(doubts, SEARCHES) else BY_SIZE
        unsure = min(each * math.log(asked, 4), 1.0) if alone else 0.0
        ratios = {name: getattr(self.price, name) for name in ("speedup", "local_tables", "local_data")}
        ratios = {name: ratio and less_sure(ratio, unsure) for name, ratio in ratios.items()}
        pages = ("table_pages", "table_pages_peak", "single_copy", "host_pages", "host_single_copy")
        grown = {name: round(getattr(self, name) * times) for name in (*pages, "unwalked_table_pages")}
        held = {
            fact: round(number * times) for fact, number in self.facts.items() if fact.endswith(HELD_FACTS)
        }
        text = (
            f"from a trace of one size: speed-ups may be off by another {100 * unsure:.0f} % of the effect; "
            "a second capture of another size narrows that"
        )
        notes = [Finding("of-one-size", text, numbers={"of the effect": unsure})] * alone
        notes += doubts
        return replace(
            self,
            **grown,
            price=replace(self.price, **ratios),
            one_time=self.one_time.of_larger(times),
            facts=self.facts | held,
            findings=(*self.findings, *notes),
        )

    def count(self, kind: str, where: str = "all", host: bool = False) -> int:
        """Events of a kind of EVENT_KINDS: "all", "local" (from = to) or "remote"."""
        matrix = (self.host_events if host else self.events)[EVENT_KINDS.index(kind)]
        local = int(np.trace(matrix))
        return {"all": int(matrix.sum()), "local": local, "remote": int(matrix.sum()) - local}[where]

    def row(self) -> dict[str, Any]:
        """{column: value} of COLUMNS: a flat row."""
        counted = Counted(self)
        return {one.key: one.of(counted) for one in COLUMNS}

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
                "events_from_to": _named(self.one_time.events),
                "host_events_from_to": _named(self.one_time.host_events),
                "data_pages_copied": self.one_time.data_copied,
                "pays_back_walks": _bounds(self.one_time.break_even_walks),
                "pays_back_seconds": _bounds(self.one_time.break_even_seconds),
                "traced_speedup": _bounds(self.one_time.traced_speedup),
            },
            "local": {
                "tables": _bounds(self.price.local_tables),
                "data": _bounds(self.price.local_data),
                "remote_tables": self.remote_tables,
                "remote_data": self.remote_data,
            },
            "facts": self.facts,
            "series": self.series.rows() if self.series else None,
            "tlb_hits_l1_l2_walked": self.hits.tolist(),
            "assumptions": self.price.assumptions,
            "findings": plain(self.findings),
            "provenance": dict(self.provenance),
        }


class Counted:
    """Sums over the counts of a Result, each made once for its row."""

    def __init__(self, result: Result) -> None:
        self.result, self.price, self.one_time = result, result.price, result.one_time
        self.walks = max(int(result.classes.sum()), 1)
        reads, dram = result.reads, result.reads[..., 1]
        self.reads, self.dram = int(reads.sum()), int(dram.sum())
        self.guest, self.guest_dram = int(reads[0::8].sum()), int(dram[0::8].sum())
        local = np.einsum("lnnd->d", reads)
        self.remote, self.remote_dram = self.reads - int(local.sum()), self.dram - int(local[1])
        self.calls = sum(kind.calls for kind in self.price.system_calls)

    def leaf(self, kind: int) -> float:
        return int(self.result.classes[:, kind].sum()) / self.walks

    def per_call(self, number: str) -> float | None:
        """Mean of a number of system calls."""
        total = sum(getattr(kind, number) * kind.calls for kind in self.price.system_calls)
        return total / self.calls if self.calls else None


def _finite(interval: Interval | None) -> float | None:
    """Its middle, None where that is not known, or never."""
    return interval.middle if interval and isfinite(interval.middle) else None


# Headings of the full table on the terminal.
TIME, LOCALITY, READS = "Time", "Locality", "Reads per walk"
MEMORY, UPDATES = "Memory, KiB", "Updates and interrupts"


def _memory(key: str, meaning: str, pages: Callable[[Result], int], title: str, native: str = "") -> Column:
    def size(c: Counted) -> int:
        return pages(c.result) * TABLE_BYTES

    return Column(key, meaning, size, MEMORY, title, native, scale=1 / 1024, unit="bytes")


def _speedup(key: str, end: str, title: str, rank: int) -> Column:
    def of(c: Counted) -> float | None:
        return getattr(c.price.speedup, end, None)

    meaning = f"run time of the baseline / run time, {title}"
    how: dict[str, Any] = {"form": "ratio", "unit": "ratio", "optional": True}
    return Column(key, meaning, of, TIME, title, rank=rank, **how)


def _events(kind: Kind, where: str = "all", title: str | None = None, host: bool = False) -> Column:
    def of(c: Counted) -> int:
        return c.result.count(kind.name, where, host)

    key = f"{'ept_' if host else ''}{kind.name}{'' if where == 'all' else f'_{where}'}"
    said = ((kind.host if host else kind.title) if title is None else title) or ""
    whose = "the host's tables: " if host else ""
    meaning = f"{whose}{kind.meaning.partition(';')[0]}{'' if where == 'all' else f', {where}'}"
    unit = "pages" if key == "tables_moved" else ""
    return Column(key, meaning, of, UPDATES if said else "", said, unit=unit)


COLUMNS = (
    Column("policy", "policy, or several as A+B", lambda c: c.result.policy),
    Column("params", "its settings, key=value", lambda c: c.result.settings),
    Column("machine", "machine model", lambda c: c.result.machine),
    Column("placement", "where threads run", lambda c: c.result.placement),
    Column("baseline", "policy that speed-ups are over", lambda c: c.result.baseline),
    Column("run", "whose walks count: warm, as traced; none without a trace", lambda c: c.result.run),
    Column("walks", "page walks", lambda c: c.result.walks, unit="walks"),
    *(
        Column(key, meaning, partial(Counted.leaf, kind=kind), LOCALITY, title, native, form="share")
        for key, meaning, kind, title, native in (
            ("leaf_LL_share", "leaf entries local in guest and host; native: local", LL,
             "Local-Local (LL), %", "leaf local, %"),
            ("leaf_LR_share", "local in the guest, remote in the host", LR, "LR, %", ""),
            ("leaf_RL_share", "remote in the guest, local in the host; native: remote", RL,
             "RL, %", "leaf remote, %"),
            ("leaf_RR_share", "remote in both", RR, "RR, %", ""),
        )
    ),
    Column("reads_per_walk", "reads of page-table entries", lambda c: c.reads / c.walks,
           READS, "all", form="mean", rank=1),
    Column("guest_reads_per_walk", "of the guest's tables; native: all", lambda c: c.guest / c.walks,
           READS, "of gPT", "", form="mean"),
    Column("host_reads_per_walk", "of the host's tables", lambda c: (c.reads - c.guest) / c.walks,
           READS, "of ePT", "", form="mean"),
    Column("dram_reads", "reads from DRAM", lambda c: c.dram),
    Column("dram_reads_per_walk", "reads from DRAM", lambda c: c.dram / c.walks,
           READS, "from DRAM", form="mean", rank=2),
    Column("guest_dram_reads", "of the guest's tables", lambda c: c.guest_dram),
    Column("host_dram_reads", "of the host's tables", lambda c: c.dram - c.guest_dram),
    Column("remote_dram_reads", "from DRAM of another node", lambda c: c.remote_dram),
    Column("remote_reads", "served by another node", lambda c: c.remote),
    Column("walk_cycles", "cycles of all walks", lambda c: c.price.walk_cycles, TIME, "walk cycles"),
    Column("guest_walk_cycles", "in the guest's tables", lambda c: c.price.guest_walk_cycles,
           TIME, "walk cycles in gPT", ""),
    Column("host_walk_cycles", "in the host's tables", lambda c: c.price.host_walk_cycles,
           TIME, "walk cycles in ePT", ""),
    Column("cycles_per_walk", "walk_cycles / walks", lambda c: c.price.walk_cycles / c.walks,
           TIME, "cycles per walk", form="mean", rank=8, unit="cycles/walk"),
    Column("guest_dram_share", "share of guest_walk_cycles that waits for DRAM",
           lambda c: c.price.dram_shares[0], optional=True),
    Column("host_dram_share", "share of host_walk_cycles that waits for DRAM",
           lambda c: c.price.dram_shares[1], optional=True),
    Column("management_cycles", "cycles of faults and system calls, and those that they take from other CPUs",
           lambda c: c.price.management_cycles, TIME, "management cycles"),
    _speedup("speedup_low", "low", "at least", 2),
    _speedup("speedup", "middle", "speed-up", 1),
    _speedup("speedup_high", "high", "at most", 3),
    Column("walk_share_low", "share of the run that walks stall it, at least",
           lambda c: getattr(c.price.walk_share, "low", None), unit="share"),
    Column("walk_share", "with mid-range assumptions",
           lambda c: getattr(c.price.walk_share, "middle", None)),
    Column("walk_share_high", "at most", lambda c: getattr(c.price.walk_share, "high", None), unit="share"),
    Column("once_cycles", "cycles of what happens once", lambda c: c.one_time.cycles,
           TIME, "one-time cycles", rank=4),
    Column("pays_back", "when that is earned back: at once, later or never", lambda c: c.one_time.when),
    Column("pays_back_walks", "after how many walks; none: never, or not known",
           lambda c: _finite(c.one_time.break_even_walks),
           TIME, "earned back after, walks", rank=5, unit="walks", optional=True),
    Column("pays_back_seconds", "after how long", lambda c: _finite(c.one_time.break_even_seconds),
           TIME, "earned back after, s", form="mean", rank=6, unit="s", optional=True),
    Column("traced_speedup", "speedup of the run as traced: cold caches, and what happens once within it",
           lambda c: getattr(c.one_time.traced_speedup, "middle", None),
           TIME, "speed-up as traced", form="ratio", rank=7, unit="ratio", optional=True),
    _memory("pt_bytes", "the guest's page tables in the end; native: all", lambda r: r.table_pages,
            "gPT", "page tables"),
    _memory("pt_bytes_extra", "of them copies", lambda r: r.table_pages - r.single_copy,
            "gPT, extra", "page tables, extra"),
    _memory("pt_bytes_peak", "at most", lambda r: r.table_pages_peak, "gPT, peak", "page tables, peak"),
    _memory("ept_bytes", "the host's page tables in the end", lambda r: r.host_pages, "ePT"),
    _memory("ept_bytes_extra", "of them copies", lambda r: r.host_pages - r.host_single_copy,
            "ePT, extra"),
    *map(_events, KINDS),
    _events(KINDS[IPI], "local", ""),
    _events(KINDS[IPI], "remote", "IPIs, remote"),
    _events(KINDS[IPI_SAVED], "local", ""),
    _events(KINDS[IPI_SAVED], "remote", ""),
    *(_events(kind, host=True) for kind in KINDS if kind.host is not None),
    Column("system_calls", "system calls on memory", lambda c: c.calls),
    Column("system_call_ns", "of a call, as its caller sees it", lambda c: c.per_call("ns"),
           unit="ns/call", optional=True),
    Column("system_call_stolen_ns", "lost by interrupted CPUs", lambda c: c.per_call("stolen_ns"),
           unit="ns/call", optional=True),
    _memory("aside_bytes", "page tables kept, but no longer walked", lambda r: r.unwalked_table_pages,
            "not walked", "not walked"),
    Column("held_bytes", "memory besides page tables that the policy reserves and leaves unused",
           lambda c: c.result.held_bytes, MEMORY, "held unused", scale=1 / 1024),
)  # fmt: skip


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
    shootdowns  flushes that interrupt other CPUs that ran threads of the process
    broadcasts  flushes of all CPUs by an instruction
    """

    calls: np.ndarray
    flushes: np.ndarray
    shootdowns: np.ndarray
    broadcasts: np.ndarray
