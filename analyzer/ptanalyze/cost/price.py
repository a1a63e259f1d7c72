"""Counts to cycles to speed-ups: one pure function of counts and of what is not known.

The run-time law is additive, C = NW + e W + M: NW cycles outside walks, W walk cycles, e the share of them
that stalls the program, M the kernel's work on page tables, all summed over the CPUs. Neither e nor NW can be
read off a trace: e is an interval, and so are the parts of NW, cycles per instruction and one wait for DRAM
at most per walk; not every pair is possible (docs/adr/0042-walks-hide-where-data-do.md). A Calibration has
both of a measured run, a PageTrial e (docs/explanation/page-size.md); M: docs/adr/0009.

What is not known is one array axis, `corners`: shares of the LLC x idle and loaded latencies x ends of e and
of the parts of NW, the best guess first. A ratio is monotone in each, so its ends are at corners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import structs

from ..core.columns import FILLS, MEASURED, REFILLS, UNWRITTEN_BYTES, Finding, found, message, noted
from ..core.errors import UsageError
from ..core.interval import Interval
from .counts import (
    AS_TRACED,
    DRAM,
    GUEST_BITS,
    HOST,
    STEADY,
    TRACED,
    WALK,
    WARM,
    Counts,
    at_home,
    call_costs,
    lock_held,
    read_cycles,
    same_socket,
    taken_ns,
    walk_cycles,
)
from .law import CONTENDED, LOCAL, Calibration, PageTrial, counted, outside_cycles, placement
from .result import Result
from .sampled import Sampled
from .throughput import rated

if TYPE_CHECKING:
    from ..core.machine import Costs, Machine

OTHER_CPU = 1.25  # factor by which the modelled CPU may be slower or faster than the one that was timed
OVERLAP = 10  # reads of DRAM that a thread has under way at most: line fill buffers (ADR 20)
END = Interval(0, 1, 2)  # of an Interval
LOADS = {(False,): "idle", (True,): "loaded", (False, True): "idle to loaded"}  # memory
UNLIKE = 2.0  # walks that take longer or shorter by that are others: what caches and walkers are not known by


class Pages(NamedTuple):
    """A PageTrial, Counts of a replay with its huge pages; here: whether of this program and machine."""

    trial: PageTrial
    huge: Counts
    here: bool


class Unknowns(NamedTuple):
    """What is not known of a run's time.

    contended  latencies under load, or idle ones; both: best guess first, intervals reach over both
    measured   a run that was counted, a trial of page sizes, or samples of accessed bits; None: instructions
               are priced, or what they took outside the tracer
    """

    contended: Sequence[bool] = (False,)
    measured: Calibration | Pages | Sampled | None = None


def price(
    every: Sequence[Counts],
    machine: Machine,
    costs: Costs,
    unknowns: Unknowns,
    provenance: dict[str, str] | None = None,
) -> list[Result]:
    """Results of Counts; the others are compared with the first, the baseline's.

    No speed-up where neither instructions are known (0) nor anything was measured.
    """
    base, (contended, measured) = every[0], unknowns
    calibration = measured if isinstance(measured, Calibration) else None
    if calibration is not None:
        _must_be_alike(base, machine, calibration, contended[0])
    known = measured if isinstance(measured, Pages) else calibration
    native = _native(base, machine, contended[0])
    law = Law(base, machine, STEADY, costs, contended, known, native)
    traced = law
    if base.run == WARM:
        traced = Law(base, machine, TRACED, costs, contended[:1], known, native, law)
    assumed = assumptions(costs, contended, known, law if np.all(base.instructions) else None, native)
    sampled = measured if isinstance(measured, Sampled) else None
    pricing = Pricing(base, law, traced, costs, sampled, assumed, provenance or {})
    first = pricing.row(base, None)
    return [first, *(pricing.row(counts, first) for counts in every[1:])]


@dataclass(frozen=True)
class Pricing:
    """What the Results of one answer have in common.

    first    Counts of the baseline
    law      of the run that is counted; traced: of the run as traced
    sampled  law of a process by its accessed bits, None: not sampled
    assumed  Result.assumptions, but for those of samples
    """

    first: Counts
    law: Law
    traced: Law
    costs: Costs
    sampled: Sampled | None
    assumed: str
    provenance: dict[str, str]

    def row(self, counts: Counts, base: Result | None) -> Result:
        """The Result of Counts; base: the baseline's, None for itself."""
        costs, law, machine, assumed = self.costs, self.law, self.law.machine, self.assumed
        warm, contended = counts.run == WARM, law.contended[0]
        own = counts.reads[STEADY, 0]
        cycles = read_cycles(machine, contended)
        guest, host = walk_cycles(own, cycles, _own_cycles(counts, STEADY, machine)).tolist()
        managed_once, managed = (kernel_cycles(counts, run, machine, costs) for run in (TRACED, STEADY))
        events, made = _events(counts, STEADY), counts.calls[STEADY]
        calls = call_costs(events, made, machine, costs, base.system_calls if base else None)
        once, first_ns = counts.before.sum(axis=1), float(taken_ns(counts.before, machine, costs).sum())
        first_ns += _huge_ns(counts, costs)
        if warm:
            by_kind = counts.events.sum(axis=2)
            once = once + np.maximum(by_kind[TRACED] - by_kind[STEADY], 0)
            once_cycles = max(managed_once - managed, 0.0)
        else:
            once_cycles = first_ns * machine.ghz
        findings, run_time = counts.findings, dict[str, Any]()
        if self.sampled is not None:
            if counts.leaves is not None:
                run_time = self.sampled.run_time(counts.leaves, self.first.leaves, machine, contended)
                assumed = self.sampled.assumptions(assumed)
        elif law.timed:
            run_time = law.run_time(counts, managed, base is None)
            if warm:
                run_time["traced_speedup"] = None
                if (traced := self.traced).timed:
                    ratio = traced.ratio(traced.before, (traced.walks(counts), managed_once))
                    run_time["traced_speedup"] = traced.beside_noise(ratio)
            if (UNWRITTEN_BYTES in counts.facts) != (UNWRITTEN_BYTES in self.first.facts):
                run_time |= {"speedup": None, "traced_speedup": None}  # what is read differs, not only where
            pages = law.pages
            if pages and pages.here and counts is pages.huge:
                trial = pages.trial
                findings = (*findings, noted(MEASURED, policy=counts.policy, **structs.asdict(trial)))
                tried = law.walks(self.first, trial.nodes == 1)
                as_tried = np.allclose(tried, law.walks(self.first), rtol=0.01)
                if as_tried and (trial.nodes == 1 or machine.nodes > 1):
                    run_time["speedup"] = trial.gain
            if law.calibration is None:
                findings = (*findings, *lock_held(calls, run_time["run_cycles"], counts.cpus, machine.ghz))
        keeps = not found(findings, FILLS, REFILLS)  # its memory from run to run
        if base and base.run_seconds and base.run_cycles and keeps:
            extra = once_cycles - base.once_cycles  # less than a cycle: two equal sums, rounded
            run_time["once_runs"] = extra / base.run_cycles if extra >= 1 else 0.0
            run_time["first_runs"] = first_ns / (1e9 * base.run_seconds) if extra >= 1 else 0.0
        return Result(
            policy=counts.policy,
            params=counts.params,
            machine=machine.name,
            host_nodes=machine.host_nodes,
            placement=counts.placement,
            baseline=self.first.policy,
            run=counts.run if counts.hits.any() else None,
            walks=counts.walks,
            hits=counts.hits,
            reads=own,
            classes=counts.classes[STEADY],
            events=counts.events[STEADY],
            pages=counts.pages,
            data=None if base or counts.data is None else counts.data[0],
            walk_cycles=guest + host,
            guest_walk_cycles=guest,
            management_cycles=managed,
            fault_ns=float(taken_ns(events, machine, costs, made)[WALK]),
            system_calls=calls,
            once_events=once,
            data_copied=counts.copied,
            once_cycles=once_cycles,
            assumptions=assumed,
            series=counts.series and rated(counts.series, machine, costs, contended),
            facts=counts.facts,
            findings=findings,
            provenance=self.provenance,
            **run_time,
        )


def most_by_place(
    base: Counts, counts: Counts, machine: Machine, contended: Sequence[bool]
) -> tuple[float, float]:
    """Most that serving the same reads from other nodes can gain, whatever caches hold: speed-up over the
    base, and with all tables local; inf where more than the servers differs."""
    first, own = (one.reads[STEADY, 0].sum(axis=0) for one in (base, counts))  # by reader, server, from
    if not np.array_equal(first.sum(axis=1), own.sum(axis=1)):
        return np.inf, np.inf
    latency = np.stack([machine.latency_cycles(one) for one in contended])
    before, after = (np.maximum(np.einsum("rsf,trs->t", reads, latency), 1) for reads in (first, own))
    local = np.maximum(np.einsum("rsf,trr->t", own, latency), 1)
    return float((before / after).max()), float((after / local).max())


def of_larger(
    rows: Sequence[Result],
    every: Sequence[Counts],
    machine: Machine,
    contended: Sequence[bool],
    times: float,
    asked: float,
    doubts: Sequence[Finding] = (),
) -> list[Result]:
    """Results of Counts, the baseline's first, as Result.of_larger. The sum of two parts does not shrink more
    than the part that shrinks most: what walks take, or the kernel's work."""
    if times == 1:
        return [*rows]
    larger = []
    for row, one in zip(rows, every, strict=True):
        place, local = most_by_place(every[0], one, machine, contended)
        kernel = rows[0].management_cycles / max(row.management_cycles, 1e-9)
        larger.append(row.of_larger(times, asked, one.more_tables, (max(place, kernel), local), doubts))
    return larger


def over(corners: np.ndarray) -> Interval:
    """The Interval of a number at each corner, the best guess first."""
    return Interval(float(corners.min()), float(corners[0]), float(corners.max()))


class Law:
    """Cycles of a run at each corner: arrays float64[corners], the best guess first.

    timed    whether cycles outside walks are known; else only the arguments are set
    base     cycles of the baseline's run
    factor   cycles of the measured run for each of the region that stands for it; 1 without a Calibration
    own      the corners at the machine's own share of the LLC, first latencies and the region's best guess
    """

    def __init__(
        self,
        base: Counts,
        machine: Machine,
        run: int,
        costs: Costs,
        contended: Sequence[bool],
        measured: Calibration | Pages | None,
        native: tuple[Interval, float] | None,
        steady: Law | None = None,
    ) -> None:
        self.machine, self.number, self.contended = machine, run, contended
        self.pages = pages = measured if isinstance(measured, Pages) else None
        self.calibration = calibration = None if isinstance(measured, Pages) else measured
        executed = float(base.instructions[run])
        self.tried_local = pages is not None and pages.trial.nodes == 1
        self.assumed = measured is None and native is None
        self.timed = measured is not None or executed > 0
        if not self.timed:
            return
        self.latency = np.stack([*map(machine.latency_cycles, contended)])
        self.local = np.diagonal(self.latency, axis1=1, axis2=2)
        (least, most), e = machine.walk_spread, costs.exposed
        least *= 1 - (base.adjacent[0] if least < most else 0.0)
        e = Interval(e.low * least, e.middle, e.high * most)
        data = costs.data_exposed
        if least < most:  # timed beside data: what overlaps the one overlaps the other (ADR 42)
            data = Interval(data.low, max(data.middle, e.middle), data.high)
        unknown = (e, costs.cycles_per_instruction, data)
        if calibration is not None:
            exposed = counted(calibration.exposed, "calibration: exposed")
            unknown = (exposed, calibration.shared, Interval.exactly(0))
        elif pages is not None:
            unknown = (END, pages.trial.gain, Interval(0, 0, 1))
        elif native is not None:
            unknown = (e, native[0], Interval.exactly(0))
        self._corners(base, run, unknown)
        management = kernel_cycles(base, run, machine, costs)
        self.shared, self.grown, self.kernel = np.zeros_like(self.exposed), (1.0, 1.0), 0.0
        self.factor: np.ndarray = np.ones_like(self.exposed)
        self.hidden = np.zeros_like(self.exposed)  # cycles of each walk
        self.walkers = machine.walkers / (1 + (base.cpus > machine.cpus_per_node / 2))
        if calibration is not None:
            self._measured(base, calibration, management)
        elif pages is not None:
            self._of_pages(base, pages, native, costs, management, steady)
        else:
            local = base.classes[run].sum() * machine.latency_cycles().diagonal().mean()
            self.outside = executed * self.second + self.waits * local
            self.beyond = dram = max(base.beyond[1], base.data_in_dram)
            llc = max(base.beyond[0] - dram, 0.0)
            # the rest from L2: L1D has fewer lines than a TLB has pages
            cached = llc * (machine.llc_data or machine.llc.cycles) + (1 - dram - llc) * machine.l2.cycles
            self.spread = np.where(self.middles, 1.0, np.where(self.exposed == e.low, least, most))
            self.fewest = executed * costs.cycles_per_instruction.low
            if native is not None:  # which walks were part of, too: no more of it than instructions leave
                free = self.second - costs.cycles_per_instruction.low
                self.exposed[:] = np.clip(free / max(native[1], 1e-9), 0.0, self.exposed)
                self.outside -= executed * self.exposed * native[1]
            further = self._further(base)
            remote = np.float64(0) if further is None else further
            self.outside += self.waits * np.where(self.middles, dram, 1.0) * remote
            self.data = dram * (local + remote) * (1 - base.adjacent[1] / 2)
            self.data += cached * base.classes[run].sum()
        if self.timed:
            self.before = self.walks(base), management
            self.base = self.run(*self.before)

    def _corners(self, base: Counts, run: int, unknown: Sequence[Interval]) -> None:
        """Set share, state and part (of the LLC, latencies, what a longer region misses), exposed, second
        and waits, and whether these three are at their middle."""
        whole = run == STEADY or base.run != WARM
        shares, self.parts = range(base.reads.shape[1]) if whole else range(1), [0.0]
        if whole and base.longer:
            self.parts = [base.longer, 0.0, 1.0]
        states = range(len(self.contended))
        cases = [(0, state, 0) for state in states]
        cases += product(shares, states, range(len(self.parts))[-2:])
        middles = tuple(one.middle for one in unknown)
        ends = [middles, *product(*({one.low, one.high} for one in unknown))]
        grid = [(*case, *end) for case in dict.fromkeys(cases) for end in ends]
        columns = list(zip(*grid, strict=True))
        self.share, self.state, self.part = (np.array(column, int) for column in columns[:3])
        self.exposed, self.second, self.waits = map(np.array, columns[3:])
        self.own, self.middles = slice(0, len(ends)), np.arange(len(grid)) % len(ends) == 0

    def _measured(self, base: Counts, calibration: Calibration, management: float) -> None:
        """Set what a measured run tells; not timed where the replay has no walks to compare with its."""
        local = calibration.local
        cycles = counted(local.cycles, "calibration: cycles")
        gpt, ept = (counted(walk, "calibration: walk cycles") for walk in (local.gpt, local.ept))
        placed = [measured_cycles(self.machine, calibration, self.contended[0])]
        replayed = self._sides(base, np.array(placed))
        simulated = replayed.sum(axis=0)
        self.timed = bool(simulated.all())
        if not self.timed:
            return
        self.shared, self.kernel = self.second, management
        self.grown = tuple(
            np.divide(measured, own, out=np.zeros_like(own), where=own != 0)
            for measured, own in zip((gpt, ept), replayed, strict=True)
        )
        corners = zip(self.exposed, self.shared, strict=True)
        self.outside = np.array([outside_cycles(cycles, e * (gpt + ept), s) for e, s in corners])
        self.factor = (gpt + ept) / simulated

    def _of_pages(
        self,
        base: Counts,
        pages: Pages,
        native: tuple[Interval, float] | None,
        costs: Costs,
        management: float,
        steady: Law | None,
    ) -> None:
        """Set what a trial tells: e of the walk cycles saved is the part of the run that was saved.

        e is that of a timed run, else as assumed, but no less than instructions need (ADR 40).
        """
        if steady is not None:
            parts = (steady.exposed, steady.outside, steady.hidden)
            self.exposed, self.outside, self.hidden = (part[steady.own] for part in parts)
            return
        home, share, most = pages.trial.nodes == 1, pages.trial.share, 1.0
        small, executed = self.walks(base, home), float(base.instructions[self.number])
        saved, part = share * (small - self.walks(pages.huge, home)), 1 - 1 / self.second
        pages.trial.must_fit(True, saved=float(saved[0] / max(small[0], 1e-9)))
        cycles = saved / part  # of the run, if e = 1
        end = self.exposed.astype(int)
        if native is not None:
            exposed, most = executed * np.array([*native[0]])[end] / cycles, max(1 / self.walkers, most)
        else:
            least = executed * costs.cycles_per_instruction.low / np.maximum(cycles - small, 1e-9)
            exposed = np.maximum(np.array([*costs.exposed])[end], least)
        exposed = np.minimum(exposed, most)
        many, few = (max(float(one.classes[self.number].sum()), 1.0) for one in (base, pages.huge))
        # a core has no more walks under way than walkers; another thread wants its one all the time, or never
        least = np.clip(exposed, 1 / self.machine.walkers, 1.0) * (1 + most) / 2
        slope = np.where(self.waits > 0, most, np.where(self.middles, least, exposed))
        waited = exposed * saved / np.maximum(slope, exposed)
        hidden = np.minimum((saved - waited) / max(share * (many - few), 1e-9), (small - waited) / many)
        self.hidden, self.exposed = np.maximum(hidden, 0.0), slope
        waited = slope * (small - self.hidden * many)
        self.outside = np.maximum(exposed * cycles - waited - management, 0.0)

    def _sides(self, counts: Counts, cycles: np.ndarray) -> np.ndarray:
        """float64[sides, corners]: walk cycles; cycles: float64[states, sides, nodes, nodes, from]."""
        every, beside = [], _own_cycles(counts, self.number, self.machine)
        for part in self.parts:
            reads = counts.in_longer(part) if part else counts.reads[self.number]
            bits = np.einsum("sbnmd,tgnmd->gstb", reads.astype(np.float64), cycles)
            guest, not_host = bits[..., GUEST_BITS].sum(axis=-1)
            every.append((beside + guest, bits[HOST].sum(axis=-1) - not_host))
        return np.array(every)[self.part, :, self.share, self.state % len(cycles)].T

    def walks(self, counts: Counts, home: bool = False) -> np.ndarray:
        """float64[corners]: walk cycles but for `hidden`, of a measured run as many times more as its own
        were; `home`: with each table local to every node, idle."""
        read = [read_cycles(self.machine, loaded) for loaded in self.contended]
        if home:
            read = [at_home(read_cycles(self.machine))]
        guest, host = self._sides(counts, np.stack([[one, one] for one in read]))
        hidden = self.hidden * float(counts.classes[self.number].sum())
        return np.maximum(self.grown[0] * guest + self.grown[1] * host - hidden, 0.0)

    def run(self, walks: np.ndarray, management: float) -> np.ndarray:
        """float64[corners]: cycles of all CPUs."""
        waited = self.exposed * walks
        alone, none = self.outside + waited, np.zeros_like(waited)
        queued = np.divide(self.shared * waited**2, alone, out=none, where=waited != 0)
        return alone + queued + (management - self.kernel) * self.factor

    def ratio(self, before: tuple[np.ndarray, float], after: tuple[np.ndarray, float]) -> np.ndarray:
        """float64[corners]: cycles of one run / of another, each of (walks, management).

        Without a calibration it is cut to what busy walkers and waits allow (ADR 42).
        """
        found: np.ndarray = self.run(*before) / self.run(*after)
        if self.pages is None and self.calibration is None:
            ends = self._regimes(*before) / self._regimes(*after)
            least, most = ends.min(axis=0, initial=1.0), ends.max(axis=0, initial=1.0)
            found = np.clip(found, least / (1 + PageTrial.NOISE), most * (1 + PageTrial.NOISE))
        return found

    def _regimes(self, walks: np.ndarray, management: float) -> np.ndarray:
        """float64[2, corners]: cycles where walks hide one another, and where nothing hides them."""
        walks = self.spread * walks
        queued = np.maximum(walks / self.walkers, self.fewest + self.data / OVERLAP)
        return np.stack([queued, walks + np.maximum(self.fewest, self.data)]) + management

    def beside_noise(self, ratios: np.ndarray) -> Interval:
        """Ratio of two runs at each corner; by a trial with the noise of a pair, where they differ."""
        ratio = over(ratios)
        if self.pages is None or np.all(ratios == 1):
            return ratio
        noise = 1 + PageTrial.NOISE
        return Interval(ratio.low / noise, ratio.middle, ratio.high * noise)

    def run_time(self, counts: Counts, managed: float, first: bool) -> dict[str, Any]:
        """Fields of a Result; managed: cycles of the kernel in the run; first: of the baseline itself."""
        walks = self.walks(counts)
        own, taken, none = (walks, managed), self.run(walks, managed), np.zeros_like(walks)
        speedup = self.beside_noise(self.ratio(self.before, own))
        before, hertz = self.base[0] / self.factor[0], counts.cpus * self.machine.ghz * 1e9
        return {
            "speedup": speedup,
            "traced_speedup": speedup,
            "run_cycles": float(taken[0] / self.factor[0]),
            "walk_share": over(1 - self.ratio((none, managed), own)),
            "kernel_share": over(1 - self.run(walks, 0.0) / taken),
            "table_share": over(1 - self.ratio((none, 0.0), own)),
            "local_tables": self.beside_noise(self.ratio(own, (self.walks(counts, home=True), managed))),
            "local_data": self.local_data(counts, taken) if first else None,
            "run_seconds": float(before / hertz) if counts.run == WARM else None,
        }

    def _further(self, base: Counts) -> np.ndarray | None:
        """float64[corners]: cycles that remote data take longer than local ones if each walk waits for them.

        None where data were not counted, or the caches alone can tell.
        """
        data = base.data
        if data is None or (base.beyond[1] > 0 and not data.any()):
            return None  # data are counted at walks: without any, only the caches can tell that none wait
        if data[..., DRAM].any(axis=(1, 2)).all():
            data = data[..., DRAM:]
        further = np.einsum("tnm,snmd->st", self.latency - self.local[..., None], data)
        further = further / np.maximum(data.sum(axis=(1, 2, 3)), 1)[:, None] * (base.beyond[1] > 0)
        return further[self.share, self.state] * base.classes[self.number].sum()

    def local_data(self, base: Counts, taken: np.ndarray) -> Interval | None:
        """Run time / run time with all data local; None where that is not known.

        At best guess walks wait whose data the caches cannot hold, at the ends all (ADR 36).
        """
        further = self._further(base)
        if further is None:
            return None
        waits = np.where(self.middles, max(base.beyond[1], base.data_in_dram), 1.0) * further * self.factor
        if self.tried_local:
            return over(1 + self.waits * waits / taken)
        most = self.waits * waits
        if not self.assumed:
            nearest = self.local.mean(axis=1) / self.latency.max(axis=(1, 2))
            most = (1 - nearest)[self.state] * self.run(0 * taken, 0.0)
        return over(taken / (taken - np.minimum(waits, most)))


def measured_cycles(machine: Machine, calibration: Calibration, contended: bool = False) -> np.ndarray:
    """float64[sides, nodes, nodes, from]: read_cycles with the tables where the calibrated run had them: at
    its `placed` (remote: the mean latency of the other sockets), else where they are.

    UsageError where that is a loaded node and the machine file has no latencies under load.
    """
    if calibration.placed is None:
        return np.stack([read_cycles(machine, contended)] * 2)
    at = placement(calibration.placed)
    own, far = machine.table_cycles().diagonal(), ~same_socket(machine)
    far[:, list(machine.memory_nodes)] = False
    loaded = machine.table_cycles(contended or at.state == CONTENDED)
    away = np.where(far.any(axis=1), (loaded * far).sum(axis=1) / np.maximum(far.sum(axis=1), 1), own)
    shares = [*(0.0 if state == LOCAL else share for state, share in at.tables()), 0.0][:2]
    sides = np.stack([at_home(read_cycles(machine))] * 2)
    sides[..., DRAM] += np.array(shares)[:, None, None] * (away - own)[:, None]
    return sides


def _must_be_alike(base: Counts, machine: Machine, calibration: Calibration, contended: bool) -> None:
    """UsageError where a calibrated run counted walks that the replayed baseline's cannot be at any share."""
    local = calibration.local
    if not local.walks or not local.walk or not base.walks:
        return
    loaded = contended or machine.latency.contended is not None
    placed = [measured_cycles(machine, calibration, state) for state in (contended, loaded)]
    least, middles, most = [], [], []
    for run in (STEADY, TRACED) if base.longer else (STEADY,):
        walks, own = max(float(base.classes[run].sum()), 1.0), _own_cycles(base, run, machine)
        for reads in base.reads[run]:
            cached = reads[..., :DRAM].sum(axis=(0, 1, 2))
            priced = placed[0][0, 0, 0, :DRAM]
            middle, busy = (float(walk_cycles(reads, guest, own, host).sum()) for guest, host in placed)
            least.append((middle - cached @ (priced - priced[0])) / walks)
            middles.append(middle / walks)
            most.append((max(busy, middle) + cached @ (priced[-1] - priced)) / walks)
    found = local.walk / local.walks
    if min(least) / UNLIKE <= found <= max(most) * UNLIKE:
        return
    raise UsageError(
        f"calibration {calibration.name or '(unnamed)'}: {found:.0f} cycles per walk counted, "
        f"{middles[0]:.0f} ({min(least):.0f}-{max(most):.0f}) in the trace: not the same program at the same "
        "size; record it at the counted size, count a run of the traced size, or leave --calibration out"
    )


def _native(base: Counts, machine: Machine, contended: bool) -> tuple[Interval, float] | None:
    """(cycles per instruction of the whole run, walk cycles in them), of a program that was timed outside the
    tracer (ADR 26). Walks of that run went to tables of its own machine: all local on one node."""
    if base.timed is None:
        return None
    measured, one_node = base.timed
    read = read_cycles(machine, contended and not one_node)
    own = _own_cycles(base, TRACED, machine)
    walks = float(walk_cycles(base.reads[TRACED, 0], at_home(read) if one_node else read, own).sum())
    cycles = Interval(measured / OTHER_CPU, measured, measured * OTHER_CPU)
    return cycles, walks / float(base.instructions[TRACED])


def _own_cycles(counts: Counts, run: int, machine: Machine) -> float:
    """Cycles that the walks of a run take beside their reads."""
    return float(counts.classes[run].sum()) * machine.walk_caches.cycles


def kernel_cycles(counts: Counts, run: int, machine: Machine, costs: Costs) -> float:
    """Cycles of the program's CPUs for faults, calls and shootdowns in a run; of the first, before it too."""
    ns = taken_ns(_events(counts, run), machine, costs, counts.calls[run]).sum()
    return float(ns + (_huge_ns(counts, costs) if _from_scratch(counts, run) else 0.0)) * machine.ghz


def _from_scratch(counts: Counts, run: int) -> bool:
    """Whether a run includes the way from the captured tables to the policy's."""
    return counts.run == AS_TRACED or (counts.run == WARM and run == TRACED)


def _events(counts: Counts, run: int) -> np.ndarray:
    """int64[sides, calls, kinds, nodes, nodes] of a run and of what it includes."""
    events: np.ndarray = counts.events[run]
    if _from_scratch(counts, run):
        events = events + counts.before
    return events


def _huge_ns(counts: Counts, costs: Costs) -> float:
    """ns to make huge pages of small ones (__collapse_huge_page_copy in mm/khugepaged.c)."""
    return counts.copied * costs.collapse_ns + counts.zeroed * costs.zero_ns


# What is assumed.


def assumptions(
    costs: Costs,
    contended: Sequence[bool],
    measured: Calibration | Pages | None,
    law: Law | None,
    native: tuple[Interval, float] | None,
) -> str:
    """One line: assumptions of the run-time estimate; where there is none (no `law`), of the cycles."""
    taken, e = message("assumed", "taken", latencies=LOADS[(*contended,)], costs=costs.name), costs.exposed
    if isinstance(measured, Pages):
        return str(message("assumed", "pages", taken=taken, name=measured.trial.program))
    calibration = measured
    if calibration is not None:
        numbers: dict[str, Any] = {
            "e": counted(calibration.exposed, "calibration: exposed"),
            "shared": calibration.shared,
            "name": calibration.name or "(unnamed)",
            "at": f"at {calibration.placed}" if calibration.placed else "placed as under the baseline",
        }
        return str(message("assumed", "calibrated", taken=taken, **numbers))
    if law is None:
        return str(taken)
    if native is not None:
        return str(message("assumed", "timed", e=e, cycles=native[0], taken=taken))
    cpi, data = costs.cycles_per_instruction, costs.data_exposed
    bounds = {"walkers": law.walkers, "beyond": law.beyond}
    return str(message("assumed", "priced", e=e, cpi=cpi, data=data, taken=taken, **bounds))
