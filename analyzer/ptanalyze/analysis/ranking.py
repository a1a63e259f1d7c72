"""Policies ranked by run time within a budget, and the sentences that say why: of Results alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.columns import CACHED, CAREFUL, EACH_ONCE, FILLS, GONE, NO_RATE, SHORT, UNSEEN, Column
from ..core.errors import UNKNOWN_NODE, Budget, size_as_read, size_in_words
from ..core.interval import (
    FROM_DRAM,
    as_read,
    differs,
    faster,
    fewer_walk_cycles,
    gains,
    interval,
    none_faster,
    shown,
)
from ..core.snapshot import blocks, leaf
from ..core.trace import chunk_runs, give_back, threads_placed
from ..cost.result import TABLE_BYTES, Result
from ..policies import BOUND, label, members
from ..world.address_space import tracers_leaves
from ..world.thread_placement import RECORDED
from .findings import DRAM_MATTERS, NO_ADVICE, dram_share, equally
from .setup import USED_OR_NOT

if TYPE_CHECKING:
    from ..core.interval import Interval
    from ..core.snapshot import Snapshot, Tree
    from ..world.scenario import Scenario


# Thin or Wide: whether a program runs on one socket or several, judged by its walks and its memory.
#
# vMitosis (Panwar et al., sections 2 and 3.4): a Thin workload fits one socket, its page tables should follow
# it (migration); a Wide workload spans sockets, each of which needs a copy (replication).

THIN_SHARE = 0.9  # smallest share of walks from one node for a workload to count as Thin
PAGE_BYTES = 4096
ENTRIES = 512
WALKS_AT_ONCE = 1 << 20
WHENCE = {True: "Nearly all walks come from one node", False: "Walks come from several nodes", None: ""}


@dataclass(frozen=True)
class Workload:
    """
    walks          int64[nodes]  walks by the node they came from
    tables         int64[nodes + 1]  leaf tables by the number of nodes that walked through them; [0] unused
    mapped_bytes   of memory, at most: huge pages, and leaf tables counted as full
    node_bytes     memory of the largest node of the captured machine; 0 where it has only one, or unknown
    assumed        where threads are taken to run, "" where that was recorded
    threads        that fit the CPUs of one node of the machine, 0 where they do not or numactl cannot bind
                   all page tables; without a trace, busy CPUs
    node           the first node with CPUs
    vm             of a VM's guest: whether it is shown the nodes; None: no VM
    host_small     of what the host maps, the share by 4 KiB pages, counted in 2 MiB
    on_host        Machine.on_host
    """

    walks: np.ndarray
    tables: np.ndarray
    mapped_bytes: int
    node_bytes: int
    assumed: str = ""
    threads: int = 0
    node: int = 0
    vm: bool | None = None
    host_small: float = 0.0
    on_host: Callable[[int], tuple[int, ...]] = lambda node: (node,)

    @property
    def thin(self) -> bool | None:
        """Whether nearly all walks come from one node; None without walks."""
        total = int(self.walks.sum())
        return bool(self.walks.max() >= THIN_SHARE * total) if total else None

    @property
    def name(self) -> str:
        return {True: "Thin", False: "Wide", None: "unknown"}[self.thin]

    @property
    def title(self) -> str:
        """Of its evidence: in plain words, then vMitosis's."""
        return f"{WHENCE[self.thin]} ({self.name})" if WHENCE[self.thin] else "Which nodes walk is unknown"

    @property
    def spread(self) -> float:
        """Nodes that the walks come from, evenly weighted: 1 / sum of squared shares (inverse Simpson)."""
        share = self.walks / max(int(self.walks.sum()), 1)
        return float(1 / (share**2).sum()) if share.any() else 0.0

    @property
    def shared(self) -> float:
        """Share of touched leaf tables that more than one node walks through."""
        return float(self.tables[2:].sum() / max(int(self.tables.sum()), 1))

    def _whence(self, total: int) -> str:
        by_node = [f"node {n} {100 * w / total:.1f} %" for n, w in enumerate(self.walks) if w]
        if len(by_node) == 1:
            return f"all walks come from node {int(np.argmax(self.walks))}"
        return (
            f"walks come from {len(by_node)} nodes ({', '.join(by_node)}), as spread as "
            f"over {self.spread:.2f} nodes of equal shares"
        )

    def evidence(self) -> list[str]:
        """Lines for people."""
        total = int(self.walks.sum())
        if not total:
            return ["no trace: the nodes that the program walks from are not known"]
        lines = [f"assumed: {self.assumed}"] if self.assumed else []
        lines += [
            self._whence(total),
            f"{100 * self.shared:.1f} % of {int(self.tables.sum())} touched leaf tables are walked through "
            "from more than one node",
        ]
        mapped = f"its page tables map at most {self.mapped_bytes / 2**30:.2f} GiB"
        if self.node_bytes:
            mapped += f", the captured machine's largest node has {self.node_bytes / 2**30:.2f} GiB"
        return [*lines, mapped, *filter(None, [self.fits])]

    @property
    def fits(self) -> str:
        """That a Wide program would fit one node, and how to run it there; "" elsewhere."""
        if self.thin is not False or not self.may_fit_one_node:
            return ""
        return (
            f"its {self.threads} threads fit one node: if its memory does, too, run it there "
            f"({self.on_its_node}), and all walks are local"
        )

    @property
    def may_fit_one_node(self) -> bool:
        """Whether its threads fit one node, and its memory as far as is known."""
        return self.threads > 0 and not 0 < self.node_bytes < self.mapped_bytes

    @property
    def on_its_node(self) -> str:
        """What to type to run it on the node that it fits."""
        numbers = self.on_host(self.node)
        return f"numactl --cpunodebind={','.join(map(str, numbers))} --preferred={numbers[0]} ./app"

    @property
    def walker(self) -> int:
        """The host's number of the node that most walks come from."""
        return self.on_host(int(self.walks.argmax()))[0]

    @property
    def doubt(self) -> str:
        """What stands against calling it Thin or Wide, in a line: an assumption, and a node that it fits."""
        said = f"{WHENCE[self.thin] or 'Threads run'} by assumption: {self.assumed}"
        assumed = said if self.assumed else ""
        fits = f"{self.fits[:1].upper()}{self.fits[1:]}"
        return " ".join(f"{line}." for line in (assumed, fits) if line)


def workload(scenario: Scenario) -> Workload:
    """Workload of a captured Scenario; without a trace, only its memory."""
    space, tree = scenario.space, scenario.snapshot.guest
    walks = np.zeros(scenario.nodes, np.int64)
    tables = np.zeros(scenario.nodes + 1, np.int64)
    if scenario.traced:
        node = scenario.placement.cpu_node[scenario.placement.chunk_cpu]
        np.add.at(walks, node, np.rint(scenario.walks_by_chunk).astype(np.int64))
        tables += np.bincount(_walked_by(scenario, node).sum(axis=0), minlength=len(tables))
        tables[0] = 0
    mapped = int(np.count_nonzero((tree.level == 1) & space.program_tables)) * ENTRIES * PAGE_BYTES
    mapped += huge_bytes(scenario.snapshot)
    known = [n for n in scenario.snapshot.topology.nodes if n.id != UNKNOWN_NODE]
    frames = [int(np.diff(n.frames, axis=1).sum()) for n in known] if len(known) > 1 else [0]
    vm: tuple[bool, float] | tuple[()] = ()
    if not scenario.snapshot.native:
        vm = not scenario.snapshot.numa_oblivious, small_share(scenario.snapshot.nested)
    made = Workload(walks, tables, mapped, max(frames) * PAGE_BYTES, *on_nodes(scenario), *vm)
    larger = scenario.growth.factor
    if larger > 1 and not mapped * larger <= made.node_bytes:  # nor where a node's size is not known
        made = replace(made, threads=0)
    return replace(made, on_host=scenario.machine.on_host)


def huge_bytes(snapshot: Snapshot) -> int:
    """Bytes that the guest's table maps by 2 MiB and 1 GiB pages, without the tracer's."""
    tree, own, total = snapshot.guest, tracers_leaves(snapshot), 0
    for level, _, raw in blocks(tree, (2, 3)):
        total += int(np.count_nonzero(leaf(raw, level, tree.encoding))) << (3 + 9 * level)
    return total - sum(own.get(level, 0) << (3 + 9 * level) for level in (2, 3))


def small_share(tree: Tree) -> float:
    """Of the 2 MiB that a Tree maps any of, the share with a leaf table; larger pages count by their size."""
    small, huge = int(np.count_nonzero(tree.level == 1)), 0
    for level, _, raw in blocks(tree, (2, 3)):
        huge += int(np.count_nonzero(leaf(raw, level, tree.encoding))) << 9 * (level - 2)
    return small / max(small + huge, 1)


def on_nodes(scenario: Scenario) -> tuple[str, int, int]:
    """assumed, threads and node of Workload."""
    machine, how = scenario.machine, scenario.placement.how
    heat, threads = scenario.snapshot.heat, len(np.unique(scenario.trace.chunks["thread"]))
    if not scenario.traced and heat is not None and heat.footprint is not None:
        threads = int(np.ceil(heat.footprint.cpus))
    assumed = "" if threads < 2 or not how or how.startswith(RECORDED) else threads_placed(how)
    could = scenario.snapshot.native and threads <= machine.cpus_per_node
    return assumed, threads if could else 0, machine.cpu_nodes[0]


def _walked_by(scenario: Scenario, node_of_chunk: np.ndarray) -> np.ndarray:
    """bool[nodes, touched leaf tables]: whether a node walks through a table."""
    rows, stream = scenario.history.rows, scenario.stream
    seen = np.zeros((scenario.nodes, len(rows.leaf)), bool)
    for first, last in chunk_runs(stream.offset, WALKS_AT_ONCE):
        page = stream.page[stream.offset[first] : stream.offset[last]]
        node = np.repeat(node_of_chunk[first:last], np.diff(stream.offset[first : last + 1]))
        seen[node, rows.of_region[page >> np.uint32(9)]] = True
        give_back(page)
    return seen


# How much of what a policy saves is work of the kernel: page faults and system calls on memory.

MATTERS = 0.2  # share of what is saved; and of the kernel's part, of one of its causes


class Kernel(NamedTuple):
    """share  of the cycles that a policy saves, with mid-range assumptions; how: causes, in words."""

    share: float
    how: str

    @property
    def matters(self) -> bool:
        return self.share >= MATTERS and bool(self.how)


def by_the_kernel(base: Result, result: Result) -> Kernel | None:
    """The kernel's part of what a policy saves; None where nothing is saved, or that is not known."""
    walks, kernel = (saved(base, result, part) for part in ("walk_share", "kernel_share"))
    if walks is None or kernel is None or kernel <= 0 or walks + kernel <= 0:
        return None
    return Kernel(kernel / (walks + kernel), ", ".join(causes(base, result)))


def saved(base: Result, result: Result, part: str) -> float | None:
    """Cycles of the baseline's run less the policy's, of what takes this share of them."""
    cycles = []
    for one in (base, result):
        share = getattr(one, part)
        if share is None or one.run_cycles is None:
            return None
        cycles.append(share.middle * one.run_cycles)
    return float(cycles[0] - cycles[1])


def causes(base: Result, result: Result) -> list[str]:
    """What the kernel does less of, the largest saving first, in nanoseconds of all CPUs.

    How long a call takes is what its caller sees, as everywhere; what it takes from CPUs that it interrupts
    is another cause.
    """
    calls = {call.call: call for call in result.system_calls}
    faults = f"{result.count('faults'):,} page faults instead of {base.count('faults'):,}"
    said = {faults: base.fault_ns - result.fault_ns}
    for was in base.system_calls:
        now = calls[was.call]
        if now.slowdown is not None:
            said[f"{was.call} takes {shown(now.slowdown)[0]} times as long"] = was.calls * (was.ns - now.ns)
        stolen = f"{now.stolen_ns:,.0f} ns instead of {was.stolen_ns:,.0f}"
        said[f"{was.call} takes {stolen} from other CPUs"] = was.calls * (was.stolen_ns - now.stolen_ns)
    total = sum(ns for ns in said.values() if ns > 0)
    return [how for how, ns in sorted(said.items(), key=lambda item: -item[1]) if ns > MATTERS * total > 0]


# What placing tables gains where the best policy does more: changes page sizes, frames, or paging.


class Candidate(NamedTuple):
    """`over` the budget or ""; gains: whether a gain can be read; `written`: what is gained, for people."""

    policy: str
    label: str
    over: str
    gains: bool
    written: str


def reshapes(policy: str) -> bool:
    """Whether a policy changes page sizes, frames or paging, too: copies of tables are not why it gains."""
    return any(member.reshape is not None for member in members(policy))


def placement_alone(best: str, candidates: Sequence[Candidate], baseline: str, timed: bool = True) -> str:
    """A sentence on the best Candidate that only places tables, where the `best` policy does more; else "".

    candidates  the best first
    Also "" where no candidate but the baseline only places tables. Not `timed`: a bound, nothing is best.
    """
    placing = [one for one in candidates if not reshapes(one.policy) and one.policy not in (BOUND, baseline)]
    if not reshapes(best) or not placing:
        return ""
    first = next((one for one in placing if not one.over and one.gains), None)
    if first is None:
        return f"Placement alone, with pages and paging as they are, gains nothing over {baseline}."
    alone = "Best by placement alone" if timed else "By placement alone"
    return f"{alone}, with pages and paging as they are: {first.label}, {first.written}."


# Results ranked by run time within a budget, and a sentence that explains the best.

HOUR = 3600.0


@dataclass(frozen=True)
class Advice:
    """A candidate: `over` names the part of the budget that it exceeds, "" within it.

    extra_bytes  of page tables at their peak, and of memory that the policy holds unused (facts)
    horizon      seconds of the baseline's run that it is ranked by
    gain         the baseline's run time over the horizon / the policy's, one-time costs included; None where
                 that is not known
    standing     as of the function of that name
    """

    result: Result
    extra_bytes: int
    extra_updates: float
    over: str
    horizon: float
    gain: float | None
    standing: Standing


COLUMNS = (  # beside those of Result
    Column(
        "extra_bytes",
        "more memory at its peak: page tables, and what is held unused",
        lambda a: a.extra_bytes,
    ),
    Column(
        "extra_updates",
        "extra upkeep of page tables",
        lambda a: a.extra_updates,
        unit="share of the baseline's run",
    ),
    Column("over", "part of the budget that is exceeded", lambda a: a.over),
    Column("horizon_seconds", "of the baseline's run", lambda a: a.horizon, unit="s"),
    Column("gain", "speed-up over that time, one-time costs included", lambda a: a.gain, unit="ratio"),
)


class Standing(NamedTuple):
    """Key by which policies are ranked everywhere, the best first: numbers as they are read, so that what
    reads alike is a tie. Ties go to the baseline, then to less memory, then to the lower one-time cost.

    lost    1 less its speed-up, below 0 where it gains; over the horizon, where its one-time cost can be
            read there; of a bound, percent of walk cycles
    other   whether it is not the baseline; bytes  more at the peak; once  cycles
    """

    lost: float
    other: bool
    bytes: float
    once: float


def standing(result: Result, base: Result, gain: float | None = None) -> Standing:
    """Standing of a Result; gain: as Advice.gain."""
    more = size_as_read(peak_bytes(result) - peak_bytes(base))
    return Standing(-effect(result, base, gain), result is not base, more, result.once_cycles)


def effect(result: Result, base: Result, gain: float | None = None) -> float:
    """What is gained, as it is read; 0: nothing."""
    speedup = result.speedup
    if base.speedup is None:
        return 100 - walk_percent(result, base)
    if speedup is None:
        return -1.0
    if gain is not None and differs(gain / speedup.middle):
        return as_read(gain) - 1
    return as_read(speedup.middle, speedup.low, speedup.high) - 1


def walk_percent(result: Result, base: Result) -> float:
    """Walk cycles in percent of the baseline's, as they are read; 100 where caches hold what is placed."""
    before = base.walk_cycles
    if not before or (base.finding(CACHED) and not reshapes(result.policy)):
        return 100.0
    return round(100 * result.walk_cycles / before, 1)


def best_first(results: Sequence[Result]) -> list[Result]:
    """All but the baseline's, the first Result; bounds only where there is nothing else."""
    base, *others = results
    real = [one for one in others if one.policy != BOUND] or others
    return sorted(real, key=lambda one: standing(one, base))


class Report(NamedTuple):
    """ranked: [Advice]; refused: {policy: why}; base: Result of the baseline; sentence: one line; placement:
    what placing tables alone gains where the best policy does more, else ""; left_out: {policy: why} of those
    whose own code fails.
    """

    ranked: list[Advice]
    refused: dict[str, str]
    base: Result
    workload: Workload
    sentence: str
    placement: str
    left_out: dict[str, str]


def rank(results: Sequence[Result], budget: Budget, horizon: float = HOUR) -> list[Advice]:
    """[Advice] for all results (the first is the baseline's): within the budget first, the best first.

    horizon  seconds that the baseline goes on as in the region, after which run times are compared
    """
    base = results[0]
    return sorted(
        (_advice(result, base, budget, horizon) for result in results),
        key=lambda advice: (advice.over != "", advice.standing),
    )


def peak_bytes(result: Result) -> int:
    """Bytes of page tables at their peak, of those kept aside, and of memory that the policy holds unused."""
    pages = result.table_pages_peak + result.host_pages + result.unwalked_table_pages
    return pages * TABLE_BYTES + result.held_bytes


def _advice(result: Result, base: Result, budget: Budget, horizon: float) -> Advice:
    more = result.management_cycles - base.management_cycles
    updates = more / base.run_cycles if base.run_cycles else 0.0
    taken = peak_bytes(result) - peak_bytes(base)
    over = [
        what
        for what, value, limit in (("memory", taken, budget.bytes), ("updates", updates, budget.updates))
        if value > limit
    ]
    speedup = result.speedup
    gain = None
    if speedup and base.run_cycles is not None and base.run_seconds:
        run = base.run_cycles * horizon / base.run_seconds
        gain = (base.once_cycles + run) / (result.once_cycles + run / speedup.middle)
    ranked_by = standing(result, base, gain)
    return Advice(result, taken, updates, " and ".join(over), horizon, gain, ranked_by)


def sentence(ranked: Sequence[Advice], base: Result, workload: Workload, nothing: bool = False) -> str:
    """One line: the policy to use, its speed-up, the reason and the cost; without a trace a bound.

    nothing  whether the verdict, told before, is that there is nothing to gain
    """
    best = next(advice for advice in ranked if not advice.over)
    if best.result is base:
        if held := base.finding(CACHED):
            return held.sentence
        within = " within the budget" if any(advice.over for advice in ranked) else ""
        return f"{none_faster(label_of(base), within)}."
    speedup = best.result.speedup
    why = "; ".join(filter(None, (because(base, best.result), takes(best)))) + "."
    if speedup is None:
        rest = f": {why}{careful(best.result)}"
        lead = NO_ADVICE if base.finding(NO_RATE) else f"{NO_ADVICE} without a trace"
        return without_trace(base, best.result, f"{lead}: with {label_of(best.result)}", rest)
    faster = f"{interval(speedup)} over {label_of(base)}"
    advice = f"{best_of(nothing)}: {label_of(best.result)}, {faster}: {why}{careful(best.result)}"
    return advice if reshapes(best.result.policy) else f"{advice} {WHY[workload.thin]}"


def best_of(nothing: bool, what: str = "") -> str:
    """What the best of the policies compared is called; nothing: whether there is nothing to gain."""
    return f"Fastest{what} of those compared" if nothing else f"Best{what}"


def careful(result: Result) -> str:
    """ " Careful: ...": what must be known of a policy beside its recommendation; "" nothing."""
    return f" Careful: {'; '.join(one.text for one in result.careful)}." if result.careful else ""


def without_trace(base: Result, result: Result, lead: str, rest: str) -> str:
    """Sentences: `lead`, what a policy saves at most, `rest`, and what that takes for granted."""
    what = f"{lead} {fewer(base, result)} than {label_of(base)}, {FROM_DRAM}{rest}"
    doubt = USED_OR_NOT if reshapes(result.policy) and base.finding(EACH_ONCE) else ""
    held, unknown = base.finding(CACHED), base.finding(NO_RATE)
    before, after = (one.sentence if one else "" for one in (held, unknown))
    return " ".join(filter(None, (before, what, equally(base), doubt, after)))


def label_of(result: Result, results: Sequence[Result] = ()) -> str:
    """policies.label, beside other results."""
    return label(result.policy, result.params, [one.params for one in results if one.policy == result.policy])


def fewer(base: Result, result: Result) -> str:
    """ "at most 40.3 % fewer walk cycles"."""
    return fewer_walk_cycles(walk_percent(result, base) / 100)


def takes(advice: Advice) -> str:
    """Words for the price."""
    size, updates = size_in_words(abs(advice.extra_bytes)), 100 * advice.extra_updates
    memory = (
        f"takes {size} more memory at its peak" if advice.extra_bytes >= 0 else f"saves {size} at its peak"
    )
    return f"it {memory}" + (f" and {updates:.2f} % of the run for updates" if updates >= 0.005 else "")


def placement_sentence(ranked: Sequence[Advice], base: Result) -> str:
    """placement_alone's, of all candidates; "" where the caches hold what is placed."""
    if base.finding(CACHED):
        return ""
    best = next(advice for advice in ranked if not advice.over).result
    found = [candidate(one.result, base, one.over) for one in ranked]
    return placement_alone(best.policy, found, base.policy, base.speedup is not None)


def candidate(result: Result, base: Result, over: str = "", name: str = "") -> Candidate:
    speedup = result.speedup
    written = interval(speedup) if speedup else fewer(base, result)
    return Candidate(result.policy, name or label_of(result), over, effect(result, base) > 0, written)


def because(base: Result, result: Result) -> str:
    """Words for what is saved: work of the kernel where that matters, and of walks the most; "" none."""
    kernel = by_the_kernel(base, result)
    if kernel is None or not kernel.matters:
        return walks_because(base, result)
    if kernel.share >= 1:
        return f"it saves work of the kernel ({kernel.how})"
    walks = walks_because(base, result)
    return (
        f"{100 * kernel.share:.0f} % of what it saves is work of the kernel ({kernel.how}), the rest page "
        f"walks{f' ({walks})' if walks else ''}"
    )


def walks_because(base: Result, result: Result) -> str:
    """Words for the largest saving: fewer walks, reads per walk, DRAM reads, or remote reads; "" none."""
    was, now = base.row(), result.row()
    ratio = {key: (now[key] + 1) / (was[key] + 1) for key in ("walks", "dram_reads", "remote_dram_reads")}
    if ratio["walks"] < 0.8:
        return f"it walks {now['walks']:,} times instead of {was['walks']:,}"
    if now["reads_per_walk"] < 0.8 * was["reads_per_walk"]:
        return f"a walk reads {now['reads_per_walk']:.1f} entries instead of {was['reads_per_walk']:.1f}"
    if ratio["dram_reads"] < 0.8:
        return f"{100 * (1 - ratio['dram_reads']):.0f} % fewer page-table reads are served by DRAM"
    remote = [round(100 * row["remote_dram_reads"] / max(row["dram_reads"], 1)) for row in (was, now)]
    if remote[1] >= remote[0]:
        return ""
    return f"{remote[0]} % of the page-table reads that DRAM serves are remote, with it {remote[1]} %"


WHY = {
    True: "One node does nearly all walks (Thin), so one copy of the tables is enough if it is there.",
    False: "Several nodes walk (Wide), so each table is remote to most of them unless each has a copy.",
    None: "Without a trace every node counts alike.",
}


# Whether page tables are worth anyone's time for a program: what share of its run they take.

LITTLE = 0.02  # share of the run below which even no walks and faults at all would hardly be noticed
WIDE = 2.0  # between the speed-ups that a share's ends allow: a share that leaves more open says nothing
MOST = 10.0  # times as fast: no bound above it is told
WALKS, KERNEL = "Page walks", "Page faults and system calls on memory"
NOTHING = 0.001  # share that is not worth a word
SMALL = 1.05  # speed-up, with mid-range assumptions, below which a gain is called small


def share_sentence(base: Result) -> str | None:
    """Which share of the run walks and the kernel's work on page tables take, and so what can be won at most;
    None without run times. Of shares that leave too much open only the least, and what narrows them."""
    walks, kernel, both = base.walk_share, base.kernel_share, base.table_share
    if walks is None or kernel is None or both is None:
        return None
    if both.high < NOTHING:
        return (
            "Page walks and the kernel's work on page tables take less than 0.1 % of this run: no change of "
            "page tables can be felt."
        )
    if not (narrow(walks) and narrow(both)):
        if max(walks.low, kernel.low) < LITTLE:
            return "Perf counters can tell what share of this run page walks take (calibrate)."
        who, least = (WALKS, walks) if walks.low >= kernel.low else (KERNEL, kernel)
        return f"{who} take {at_least(least)} of this run; perf counters tell how much more."
    said = f"Page walks take {percent(walks)} of this run (best guess {percent(walks, True)})"
    bound = at_most(both)
    if kernel.high < NOTHING and bound == at_most(walks):
        return f"{said}, so page tables can speed it up by at most {bound}x." if bound else f"{said}."
    calls = (
        "less than 0.1 %"
        if kernel.high < NOTHING
        else f"{percent(kernel)} (best guess {percent(kernel, True)})"
    )
    said = f"{said}; page faults and system calls on memory {calls}."
    return f"{said} Without both: at most {bound}x, without walks alone {at_most(walks)}x." if bound else said


def missing(base: Result) -> str:
    """Cautions on what the capture cannot show; else ""."""
    first = (one for one in base.findings if one.code in UNSEEN and one.weight == CAREFUL)
    return " ".join(one.sentence for one in first)


def filling(base: Result) -> str:
    """That the first part of a whole run fills memory; "" where it does not."""
    found = base.finding(FILLS)
    return found.sentence if found else ""


def verdict(results: Sequence[Result], over: Collection[int] = ()) -> str | None:
    """Worth it or not, in a sentence, of the baseline, then the other policies, the best first; None without
    run times.

    over  places in `results` of policies over the budget, which are left out
    """
    base = results[0]
    others = [one for k, one in enumerate(results) if k and k not in over and one.policy != BOUND]
    share = base.table_share
    if share is None or not others:
        return None
    if share.high < LITTLE:
        return "Not worth it: page walks and page-table updates are negligible in this run."
    speedups = {label_of(one, others): one.speedup for one in others if one.speedup}
    sure = {policy: speedup for policy, speedup in speedups.items() if gains(speedup)}
    if sure:
        best = next(iter(sure))
        if as_read(sure[best].middle, sure[best].low, sure[best].high) < SMALL:
            return f"A small gain: {best}, {interval(sure[best])}. Measure it before you rely on it."
        known = [one for one in others if label_of(one, others) in sure]
        sure_of = {finding.code for finding in base.careful}
        own = [{finding.code for finding in one.careful} - sure_of for one in known]
        care = " with care" if all(own) else ""
        return f"Worth trying{care}: {best} helps under every assumption."
    if any(faster(speedup.high) for speedup in speedups.values()):
        return "Probably not worth it: the gain may be zero."
    if base.finding(SHORT):
        return "As far as so short a trace shows, nothing is gained."
    gone = base.finding(GONE)
    if gone and gone.weight == CAREFUL and any(reshapes(one.policy) for one in others):
        return "As far as the capture shows, nothing is gained."
    if over:
        return "Not worth it: none within the budget gains."
    none = "it does not gain." if len(others) == 1 else "none of these gains."
    return " ".join(filter(None, (f"Not worth it: {none}", in_caches(base))))


def in_caches(base: Result) -> str:
    """Why placement gains nothing where the caches answer nearly all reads of page tables; else ""."""
    missed = dram_share(base.reads)
    if missed >= DRAM_MATTERS:
        return ""
    answered = "all" if missed < NOTHING / 2 else f"{100 * (1 - missed):.1f} % of"
    return f"The caches answer {answered} its page-table reads, wherever its tables are."


def percent(share: Interval, middle: bool = False) -> str:
    """ "21-76 %" or "0.3-1.2 %"; of the middle "56 %"."""
    places = 0 if share.high >= 0.1 else 1
    low, best, high = (f"{100 * x:.{places}f}" for x in (share.low, share.middle, share.high))
    return f"{best} %" if middle or low == high else f"{low}-{high} %"


def narrow(share: Interval) -> bool:
    """Whether a share of the run is known closely enough to be told: what is left of the run without it, and
    so the speed-up that it allows, to within a factor of WIDE."""
    return 1 - share.low <= WIDE * (1 - share.high) or share.high - share.low < NOTHING


def at_least(share: Interval) -> str:
    """ "at least 24 %"."""
    return f"at least {100 * share.low:.0f} %"


def at_most(share: Interval) -> str:
    """1 / (1 - share) to two digits, to two decimals below 1.1; "" where that is more than MOST."""
    bound = 1 / (1 - share.high) if share.high < 1 else MOST + 1
    return f"{bound:{'.2g' if bound >= 1.095 else '.2f'}}" if bound <= MOST else ""
