"""Counts of a replay under a policy priced: a row of every answer, and its columns."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import isfinite
from typing import Any, Self

import numpy as np

from ..core.columns import (
    ASSUMED,
    CAREFUL,
    MEASURED,
    OF_CAPTURE,
    SCALE,
    SEARCHES,
    Column,
    Finding,
    found,
    noted,
    plain,
)
from ..core.interval import NEVER, Interval, faster, less_sure, less_sure_share, slower
from ..kernels import CALLS, EVENT_KINDS, IPI, IPI_SAVED, KINDS, LL, LR, OF_TABLES, RL, RR, Kind
from .counts import DRAM, GUEST, GUEST_BITS, HOST, CallCost, Series
from .throughput import window_rows

TABLE_BYTES = 4096
# of the effect, for each factor of four beyond the trace, and of a program that searches: docs/howto/size.md
BY_SIZE, BY_SEARCH = 0.15, 0.2
EVERY_NODE = "every node once"  # placement where there is no trace
HELD = ("bloat_bytes", "unused_bytes_peak")


@dataclass(frozen=True)
class Result:
    """Integer counts at the machine's own share of the LLC, and their price; cycles are summed
    over all CPUs. Intervals are over all that is not known, their middle the best guess; None: not known.

    run           that is counted: "warm", a further one; "as traced"; None without a trace
    hits          int64[3]  accesses that hit the L1 TLB, the L2 TLB, or walked; zeros without a trace
    reads         int64[bits, nodes, nodes, from]  entries read: bit of kernels.Counters, reader, server, and
                  what they come from: L1D, L2, LLC, DRAM
    classes       int64[nodes, 4]  walks by LL LR RL RR
    events        int64[sides, calls, kinds, nodes, nodes]  on the guest's and the host's tables, by cause
    pages         table pages: guest in the end, guest_peak at most, guest_single without further copies;
                  host, replicas included, host_single as captured; aside: kept, but no longer walked
    data          int64[nodes, nodes, from]  walks by [walker's node, node of their data, what the entry they
                  end with comes from]; None but for the baseline of a trace
    walk_cycles        all reads, at the machine's latencies; guest_walk_cycles: of the guest's tables
    management_cycles  faults and system calls, and the time lost by CPUs that they interrupt
    fault_ns           of all CPUs, for page faults and what else walks cause the kernel to do
    system_calls       by kind; none without a trace
    once_events        int64[sides, kinds, nodes, nodes]  before the first walk, to get from the captured
                       tables to the policy's, and in the first run beyond what a further run does
    data_copied        data pages of 4 KiB copied into huge pages
    once_cycles        of the kernel and the hypervisor for all that; "as traced": within management_cycles
    assumptions        line for people
    speedup            run time of the baseline / run time under this policy, None without a trace
    traced_speedup     of the run as traced: cold caches, and all that happens once, within it
    run_cycles         of the region that was replayed, with mid-range assumptions; run_seconds: of the
                       baseline's further run on the CPUs that walk
    walk_share         share of the run that page walks stall it: what less of them can save at most
    kernel_share       share of the run that management_cycles are; table_share: of both together, what any
                       change of page tables can save at most
    local_tables       speed-up if every table were local to every node: a bound of placing tables
    local_data         the same of all data; of the baseline, where it was counted where they are
    cached_tables      at least what huge pages give, from accessed bits: the speed-up if caches answered the
                       reads of leaf entries that 2 MiB pages would spare; None otherwise
    once_runs          once_cycles beyond the baseline's, 0 for fewer, in further runs of the baseline; None
                       for the baseline, and where each further run would fill the memory again
    first_runs         such runs until one CPU has done what comes before the first walk, when gains begin
    facts         {name: number} of the policy when it reshaped the capture
    findings      what a reader must know
    series        counts over time, None unless asked for
    host_nodes    Machine.host_nodes
    """

    policy: str
    params: dict[str, Any]
    machine: str
    placement: str
    baseline: str
    run: str | None
    walks: int
    hits: np.ndarray
    reads: np.ndarray
    classes: np.ndarray
    events: np.ndarray
    pages: dict[str, int]
    data: np.ndarray | None
    walk_cycles: float
    guest_walk_cycles: float
    management_cycles: float
    fault_ns: float
    system_calls: tuple[CallCost, ...]
    once_events: np.ndarray
    data_copied: int
    once_cycles: float
    assumptions: str
    speedup: Interval | None = None
    traced_speedup: Interval | None = None
    run_cycles: float | None = None
    run_seconds: float | None = None
    walk_share: Interval | None = None
    kernel_share: Interval | None = None
    table_share: Interval | None = None
    local_tables: Interval | None = None
    local_data: Interval | None = None
    cached_tables: Interval | None = None
    once_runs: float | None = None
    first_runs: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    provenance: dict[str, str] = field(default_factory=dict)
    series: Series | None = None
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
    def settings(self) -> str:
        """Its parameters that are not empty."""
        return " ".join(f"{key}={value}" for key, value in self.params.items() if value != "")

    @property
    def far_data(self) -> np.ndarray | None:
        """int64[sockets, sockets]: data accesses beyond the caches, [reader's socket, serving socket]: those
        of walks whose entry comes from DRAM, of all where none does; None where data were not counted."""
        if self.data is None or not self.data.any():
            return None
        return self.data[..., DRAM] if self.data[..., DRAM].any() else self.data.sum(axis=-1)

    @property
    def remote_data(self) -> float | None:
        """Share of far_data that is remote."""
        counted = self.far_data
        return None if counted is None else 1 - int(np.trace(counted)) / int(counted.sum())

    @property
    def remote_tables(self) -> float | None:
        """Share of entries read from DRAM, of all read where none is, that are remote; None without reads."""
        reads = self.reads[..., DRAM] if self.reads[..., DRAM].any() else self.reads.sum(axis=-1)
        by_node = reads.sum(axis=0)
        return 1 - int(np.trace(by_node)) / int(by_node.sum()) if by_node.any() else None

    def finding(self, *codes: str) -> Finding | None:
        """The first finding of these codes, None where there is none."""
        return found(self.findings, *codes)

    @property
    def tried(self) -> Finding | None:
        """The trial that measured its speed-up; None where that is estimated."""
        trial = self.finding(MEASURED)
        return trial if trial and trial.numbers["gain"] == self.speedup else None

    @property
    def careful(self) -> list[Finding]:
        """What must stand beside a recommendation of its policy."""
        return [one for one in self.findings if one.weight == CAREFUL and one.code not in OF_CAPTURE]

    @property
    def notes(self) -> list[str]:
        """Its findings, a line each."""
        return [one.line for one in self.findings]

    @cached_property
    def peak_bytes(self) -> int:
        """Page tables at their peak, those kept aside, and memory that the policy holds unused."""
        pages = self.pages["guest_peak"] + self.pages["host"] + self.pages["aside"]
        return pages * TABLE_BYTES + self.held_bytes

    @cached_property
    def held_bytes(self) -> int:
        """Memory besides page tables that the policy reserves and leaves unused."""
        return sum(int(number) for fact, number in self.facts.items() if fact.endswith(HELD))

    def of_larger(
        self,
        times: float,
        asked: float,
        tables: Sequence[float],
        most: tuple[float, float],
        doubts: Sequence[Finding] = (),
    ) -> Self:
        """The Result of a run of `times` the memory: with more table pages, and more that happens once.

        asked   times as large as what the capture stands for: its speed-ups are known less (BY_SIZE), of a
                program that searches less still (BY_SEARCH), and what walks take no better
        tables  Counts.more_tables
        most    price.most_by_place: what size leaves unsure does not reach beyond it
        doubts  findings on what one size does not tell
        """
        each = BY_SEARCH if found(doubts, SEARCHES) else BY_SIZE
        unsure = min(each * math.log(asked, 4), 1.0)
        held = {fact: round(n * times) for fact, n in self.facts.items() if fact.endswith(HELD)}
        grown: dict[str, Any] = {"pages": self._more_pages(times, tables)}
        for name in ("speedup", "local_tables", "local_data", "walk_share", "table_share"):
            known = getattr(self, name)
            grown[name] = known and (less_sure_share if "share" in name else less_sure)(known, unsure)
        for name, bound in zip(("speedup", "local_tables"), most, strict=True):
            if known := getattr(self, name):
                wider = grown[name]
                grown[name] = Interval(wider.low, wider.middle, min(wider.high, max(known.high, bound)))
        grown["speedup"] = self.speedup if self.tried else grown["speedup"]  # at that size
        more = np.full((2, len(KINDS), 1, 1), times)
        more[:, OF_TABLES, 0, 0] = np.transpose([tables] * len(OF_TABLES))
        return replace(
            self,
            **grown,
            traced_speedup=None,  # what happens once is of the larger run, walks as traced are not
            data_copied=round(self.data_copied * times),
            once_events=np.rint(self.once_events * more).astype(np.int64),
            once_cycles=self.once_cycles * times,
            once_runs=self.once_runs and self.once_runs * times,
            first_runs=self.first_runs * times,
            facts=self.facts | held,
            findings=(*self.findings, *([noted("of-one-size", unsure=unsure)] if unsure else []), *doubts),
        )

    def _more_pages(self, times: float, tables: Sequence[float]) -> dict[str, int]:
        """`pages` of the larger run: what is beside single tables and copies of the root is of tables that
        grow, as far as these have copies: as all tables, it would be less from a smaller capture."""
        more, copies = dict[str, int](), max(len(self.classes) - 1, 1)
        for kind, number in self.pages.items():
            side = "host" if kind.startswith("host") else "guest"
            single, ratio = float(self.pages[f"{side}_single"]), tables[side == "host"]
            growing = single * (ratio - 1) / (times - 1) if times > 1 else single
            single, roots = (0.0, 0) if kind == "aside" else (float(single), copies)
            extra = number - single
            extra = max(extra, -growing) if extra < 0 else min(max(extra - roots, 0), copies * growing)
            more[kind] = round(single * ratio + extra * times + number - single - extra)
        return more

    @cached_property
    def break_even(self) -> Interval | None:
        """Further runs of the region until once_runs are earned back by the gain, at its ends and its middle:
        0 at once, NEVER where it cannot be read in the speed-up. What the work costs is taken as it is."""
        once, speedup = self.once_runs, self.speedup
        if once is None or speedup is None:
            return None

        def runs(ratio: float) -> float:
            if not faster(ratio):
                return NEVER if once or slower(ratio) else 0.0
            return once / (1 - 1 / ratio) + self.first_runs

        return speedup.through(runs)

    @property
    def when_earned(self) -> str | None:
        """When the one-time cost is earned back: "at once", "later" or "never"; None: unknown."""
        if self.break_even is None:
            return None
        runs = self.break_even.middle
        return "at once" if not runs else "later" if isfinite(runs) else "never"

    @property
    def break_even_walks(self) -> Interval | None:
        """Walks until it has paid for itself."""
        return self.break_even and self.break_even.through(lambda runs: runs * self.walks)

    @cached_property
    def break_even_seconds(self) -> Interval | None:
        """Seconds of the baseline's run until then."""
        seconds = self.run_seconds
        if self.break_even is None or seconds is None:
            return None
        return self.break_even.through(lambda runs: runs * seconds)

    def count(self, kind: str, where: str = "all", host: bool = False) -> int:
        """Events of a kind of EVENT_KINDS: "all", "local" (from = to) or "remote"."""
        matrix = self.events[HOST if host else GUEST, :, EVENT_KINDS.index(kind)].sum(axis=0)
        local = int(np.trace(matrix))
        return {"all": int(matrix.sum()), "local": local, "remote": int(matrix.sum()) - local}[where]

    def once(self, kind: int, host: bool = False) -> int:
        """Events of a kind (an index of EVENT_KINDS) that happen once."""
        return int(self.once_events[HOST if host else GUEST, kind].sum())

    def row(self) -> dict[str, Any]:
        """{column: value} of COLUMNS: a flat row."""
        return {one.key: one.of(self) for one in COLUMNS}

    @cached_property
    def sums(self) -> dict[str, int]:
        """Reads, and those of the guest's tables, from DRAM, or remote; system calls; walks, at least 1."""
        dram, local = self.reads[..., DRAM], np.einsum("lnnd->d", self.reads)
        reads, missed = int(self.reads.sum()), int(dram.sum())
        return {
            "walks": max(self.walks, 1),
            "reads": reads,
            "guest": int(self.reads[GUEST_BITS].sum()),
            "dram": missed,
            "guest dram": int(dram[GUEST_BITS].sum()),
            "remote": reads - int(local.sum()),
            "remote dram": missed - int(local[DRAM]),
            "calls": sum(kind.calls for kind in self.system_calls),
        }

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict: the row, the arrays as nested lists, findings and provenance."""
        by_call, by_side = self.events[GUEST], self.events.sum(axis=1)
        return {
            **self.row(),
            "reads_by_bit_reader_server_from": self.reads.tolist(),
            "classes_by_reader": self.classes.tolist(),
            "events_from_to": _named(by_side[GUEST]),
            "host_events_from_to": _named(by_side[HOST]),
            "events_by_call": {call: _named(by_call[k]) for k, call in enumerate(CALLS) if by_call[k].any()},
            "system_calls_by_kind": [cost._asdict() for cost in self.system_calls],
            "once": {
                "events_from_to": _named(self.once_events[GUEST]),
                "host_events_from_to": _named(self.once_events[HOST]),
                "data_pages_copied": self.data_copied,
                "pays_back_walks": _bounds(self.break_even_walks),
                "pays_back_seconds": _bounds(self.break_even_seconds),
                "traced_speedup": _bounds(self.traced_speedup),
            },
            "local": {
                "tables": _bounds(self.local_tables),
                "data": _bounds(self.local_data),
                "remote_tables": self.remote_tables,
                "remote_data": self.remote_data,
            },
            "facts": self.facts,
            "series": window_rows(self.series) if self.series else None,
            "tlb_hits_l1_l2_walked": self.hits.tolist(),
            "assumptions": self.assumptions,
            "findings": plain(self.findings),
            "provenance": dict(self.provenance),
        }


def _finite(interval: Interval | None) -> float | None:
    """Its middle, None where that is not known, or never."""
    return interval.middle if interval and isfinite(interval.middle) else None


def _leaf(r: Result, kind: int) -> float:
    return int(r.classes[:, kind].sum()) / r.sums["walks"]


def _per_call(r: Result, number: str) -> float | None:
    """Mean of a number of system calls."""
    total = sum(getattr(kind, number) * kind.calls for kind in r.system_calls)
    return total / r.sums["calls"] if r.sums["calls"] else None


# Headings of the full table on the terminal.
TIME, LOCALITY, READS = "Time", "Locality", "Reads per walk"
MEMORY, UPDATES = "Memory, KiB", "Updates and interrupts"


def _memory(key: str, meaning: str, pages: Callable[[Result], int], title: str, native: str = "") -> Column:
    def size(r: Result) -> int:
        return pages(r) * TABLE_BYTES

    return Column(key, meaning, size, MEMORY, title, native, scale=1 / 1024, unit="bytes")


def _speedup(key: str, end: str, title: str, rank: int) -> Column:
    def of(r: Result) -> float | None:
        return getattr(r.speedup, end, None)

    meaning = f"run time of the baseline / run time, {title}"
    how: dict[str, Any] = {"form": "ratio", "unit": "ratio", "optional": True}
    return Column(key, meaning, of, TIME, title, rank=rank, **how)


def _events(kind: Kind, where: str = "all", title: str | None = None, host: bool = False) -> Column:
    def of(r: Result) -> int:
        return r.count(kind.name, where, host)

    key = f"{'ept_' if host else ''}{kind.name}{'' if where == 'all' else f'_{where}'}"
    said = ((kind.host if host else kind.title) if title is None else title) or ""
    whose = "the host's tables: " if host else ""
    meaning = f"{whose}{kind.meaning.partition(';')[0]}{'' if where == 'all' else f', {where}'}"
    unit = "pages" if key == "tables_moved" else ""
    return Column(key, meaning, of, UPDATES if said else "", said, unit=unit)


COLUMNS = (
    Column("policy", "policy, or several as A+B", lambda r: r.policy),
    Column("params", "its settings, key=value", lambda r: r.settings),
    Column("machine", "machine model", lambda r: r.machine),
    Column("placement", "where threads run", lambda r: r.placement),
    Column("baseline", "policy that speed-ups are over", lambda r: r.baseline),
    Column("run", "whose walks count: warm, as traced; none without a trace", lambda r: r.run),
    Column("walks", "page walks", lambda r: r.walks, unit="walks"),
    *(
        Column(key, meaning, partial(_leaf, kind=kind), LOCALITY, title, native, form="share")
        for key, meaning, kind, title, native in (
            ("leaf_LL_share", "leaf entries local in guest and host; native: local", LL,
             "Local-Local (LL), %", "leaf local, %"),
            ("leaf_LR_share", "local in the guest, remote in the host", LR, "LR, %", ""),
            ("leaf_RL_share", "remote in the guest, local in the host; native: remote", RL,
             "RL, %", "leaf remote, %"),
            ("leaf_RR_share", "remote in both", RR, "RR, %", ""),
        )
    ),
    Column("reads_per_walk", "reads of page-table entries", lambda r: r.sums["reads"] / r.sums["walks"],
           READS, "all", form="mean", rank=1),
    Column("guest_reads_per_walk", "of the guest's tables; native: all",
           lambda r: r.sums["guest"] / r.sums["walks"], READS, "of gPT", "", form="mean"),
    Column("host_reads_per_walk", "of the host's tables",
           lambda r: (r.sums["reads"] - r.sums["guest"]) / r.sums["walks"], READS, "of ePT", "", form="mean"),
    Column("dram_reads", "reads from DRAM", lambda r: r.sums["dram"]),
    Column("dram_reads_per_walk", "reads from DRAM", lambda r: r.sums["dram"] / r.sums["walks"],
           READS, "from DRAM", form="mean", rank=2),
    Column("guest_dram_reads", "of the guest's tables", lambda r: r.sums["guest dram"]),
    Column("host_dram_reads", "of the host's tables", lambda r: r.sums["dram"] - r.sums["guest dram"]),
    Column("remote_dram_reads", "from DRAM of another node", lambda r: r.sums["remote dram"]),
    Column("remote_reads", "served by another node", lambda r: r.sums["remote"]),
    Column("walk_cycles", "cycles of all walks", lambda r: r.walk_cycles, TIME, "walk cycles"),
    Column("guest_walk_cycles", "in the guest's tables", lambda r: r.guest_walk_cycles,
           TIME, "walk cycles in gPT", ""),
    Column("host_walk_cycles", "in the host's tables", lambda r: r.walk_cycles - r.guest_walk_cycles,
           TIME, "walk cycles in ePT", ""),
    Column("cycles_per_walk", "walk_cycles / walks", lambda r: r.walk_cycles / r.sums["walks"],
           TIME, "cycles per walk", form="mean", rank=8, unit="cycles/walk"),
    Column("management_cycles", "cycles of faults and system calls, and those that they take from other CPUs",
           lambda r: r.management_cycles, TIME, "management cycles"),
    _speedup("speedup_low", "low", "at least", 2),
    _speedup("speedup", "middle", "speed-up", 1),
    _speedup("speedup_high", "high", "at most", 3),
    Column("walk_share_low", "share of the run that walks stall it, at least",
           lambda r: getattr(r.walk_share, "low", None), unit="share"),
    Column("walk_share", "with mid-range assumptions",
           lambda r: getattr(r.walk_share, "middle", None)),
    Column("walk_share_high", "at most", lambda r: getattr(r.walk_share, "high", None), unit="share"),
    Column("once_cycles", "cycles of what happens once", lambda r: r.once_cycles,
           TIME, "one-time cycles", rank=4),
    Column("pays_back", "when that is earned back: at once, later or never", lambda r: r.when_earned),
    Column("pays_back_walks", "after how many walks; none: never, or not known",
           lambda r: _finite(r.break_even_walks), unit="walks", optional=True),
    Column("pays_back_seconds", "after how long", lambda r: _finite(r.break_even_seconds),
           unit="s", optional=True),
    Column("traced_speedup", "speedup of the run as traced: cold caches, and what happens once within it",
           lambda r: getattr(r.traced_speedup, "middle", None),
           TIME, "speed-up as traced", form="ratio", rank=7, unit="ratio", optional=True),
    _memory("pt_bytes", "the guest's page tables in the end; native: all", lambda r: r.pages["guest"],
            "gPT", "page tables"),
    _memory("pt_bytes_extra", "of them copies", lambda r: r.pages["guest"] - r.pages["guest_single"],
            "gPT, extra", "page tables, extra"),
    _memory("pt_bytes_peak", "at most", lambda r: r.pages["guest_peak"], "gPT, peak", "page tables, peak"),
    _memory("ept_bytes", "the host's page tables in the end", lambda r: r.pages["host"], "ePT"),
    _memory("ept_bytes_extra", "of them copies", lambda r: r.pages["host"] - r.pages["host_single"],
            "ePT, extra"),
    *map(_events, KINDS),
    _events(KINDS[IPI], "local", ""),
    _events(KINDS[IPI], "remote", "IPIs, remote"),
    _events(KINDS[IPI_SAVED], "local", ""),
    _events(KINDS[IPI_SAVED], "remote", ""),
    *(_events(kind, host=True) for kind in KINDS if kind.host is not None),
    Column("system_calls", "system calls on memory", lambda r: r.sums["calls"]),
    Column("system_call_ns", "of a call, as its caller sees it", lambda r: _per_call(r, "ns"),
           unit="ns/call", optional=True),
    Column("system_call_stolen_ns", "lost by interrupted CPUs", lambda r: _per_call(r, "stolen_ns"),
           unit="ns/call", optional=True),
    _memory("aside_bytes", "page tables kept, but no longer walked", lambda r: r.pages["aside"],
            "not walked", "not walked"),
    Column("held_bytes", "memory besides page tables that the policy reserves and leaves unused",
           lambda r: r.held_bytes, MEMORY, "held unused", scale=1 / 1024),
)  # fmt: skip


def _bounds(interval: Interval | None) -> dict[str, float | str] | None:
    """{"low": number, ...}; "never" for what is infinite."""
    if interval is None:
        return None
    names = ("low", "middle", "high")
    return {name: value if isfinite(value) else "never" for name, value in zip(names, interval, strict=True)}


def _named(events: np.ndarray) -> dict[str, Any]:
    return {kind: events[k].tolist() for k, kind in enumerate(EVENT_KINDS)}


def owned(results: Sequence[Result], assumptions: bool = True) -> list[Finding]:
    """Findings, and assumptions, in the order of the results: of "thp", of "all but thp" if not of all."""
    owners: dict[Finding, set[str]] = {}
    for result in results:
        assumed = [Finding(ASSUMED, result.assumptions)] * assumptions
        for finding in (*result.findings, *assumed):
            owners.setdefault(finding, set()).add(result.policy)
    policies = list(dict.fromkeys(result.policy for result in results))
    return [replace(one, policy=one.policy or named(whose, policies)) for one, whose in owners.items()]


def named(whose: set[str], policies: Sequence[str]) -> str:
    """Names of policies, "" of all."""
    others = [policy for policy in policies if policy not in whose]
    if not others:
        return ""
    if len(others) < len(whose):
        return f"all but {', '.join(others)}"
    return ", ".join(policy for policy in policies if policy in whose)
