"""Results ranked by run time within a budget, and a sentence that explains the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..core.errors import Budget, size_as_read, size_in_words
from ..core.interval import FROM_DRAM, as_read, differs, fewer_walk_cycles, interval, none_faster
from ..cost.price import over_horizon
from ..cost.result import TABLE_BYTES, Result
from ..policies import BOUND, label
from .placement_alone import Candidate, placement_alone, reshapes
from .saved import by_the_kernel
from .untraced import NO_ADVICE, equally, sentence_of
from .weights import EACH_ONCE
from .workload import Workload

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
    return Standing(-effect(result, base, gain), result is not base, more, result.once.cycles)


def effect(result: Result, base: Result, gain: float | None = None) -> float:
    """What is gained, as it is read; 0: nothing."""
    speedup = result.price.speedup
    if base.price.speedup is None:
        return 100 - walk_percent(result, base)
    if speedup is None:
        return -1.0
    if gain is not None and differs(gain / speedup.middle):
        return as_read(gain) - 1
    return as_read(speedup.middle, speedup.low, speedup.high) - 1


def walk_percent(result: Result, base: Result) -> float:
    """Walk cycles in percent of the baseline's, as they are read; 100 where caches hold what is placed."""
    before = base.price.walk_cycles
    if not before or (base.cached and not reshapes(result.policy)):
        return 100.0
    return round(100 * result.price.walk_cycles / before, 1)


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
    pages = result.table_pages_peak + result.host_pages + result.aside_pages
    return pages * TABLE_BYTES + result.held_bytes


def _advice(result: Result, base: Result, budget: Budget, horizon: float) -> Advice:
    more = result.price.management_cycles - base.price.management_cycles
    updates = more / base.price.run_cycles if base.price.run_cycles else 0.0
    taken = peak_bytes(result) - peak_bytes(base)
    over = [
        what
        for what, value, limit in (("memory", taken, budget.bytes), ("updates", updates, budget.updates))
        if value > limit
    ]
    speedup = result.price.speedup
    gain = over_horizon(base.once, result.once, speedup.middle, horizon) if speedup else None
    ranked_by = standing(result, base, gain)
    return Advice(result, taken, updates, " and ".join(over), horizon, gain, ranked_by)


def sentence(ranked: Sequence[Advice], base: Result, workload: Workload) -> str:
    """One line: the policy to use, its speed-up, the reason and the cost; without a trace a bound."""
    best = next(advice for advice in ranked if not advice.over)
    if best.result is base:
        if base.cached:
            return sentence_of(base.cached)
        within = " within the budget" if any(advice.over for advice in ranked) else ""
        return f"{none_faster(label_of(base), within)}."
    speedup = best.result.price.speedup
    why = "; ".join(filter(None, (because(base, best.result), takes(best)))) + "."
    if speedup is None:
        rest = f": {why}{careful(best.result)}"
        return without_trace(base, best.result, f"{NO_ADVICE}: with {label_of(best.result)}", rest)
    faster = f"{interval(speedup)} times as fast as {label_of(base)}"
    advice = f"{label_of(best.result)} is estimated at {faster}: {why}{careful(best.result)}"
    return advice if reshapes(best.result.policy) else f"{advice} {WHY[workload.thin]}"


def careful(result: Result) -> str:
    """ " Careful: ...": what must be known of a policy beside its recommendation; "" nothing."""
    return f" Careful: {'; '.join(result.careful)}." if result.careful else ""


def without_trace(base: Result, result: Result, lead: str, rest: str) -> str:
    """Sentences: `lead`, what a policy saves at most, `rest`, and what that takes for granted."""
    what = f"{lead} {fewer(base, result)} than {label_of(base)}, {FROM_DRAM}{rest}"
    doubt = EACH_ONCE if reshapes(result.policy) and base.each_once else ""
    held = sentence_of(base.cached) if base.cached else ""
    return " ".join(filter(None, (held, what, equally(base), doubt)))


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
    if base.cached:
        return ""
    best = next(advice for advice in ranked if not advice.over).result
    found = [candidate(one.result, base, one.over) for one in ranked]
    return placement_alone(best.policy, found, base.policy, base.price.speedup is not None)


def candidate(result: Result, base: Result, over: str = "", name: str = "") -> Candidate:
    speedup = result.price.speedup
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
    True: "Thin: one node does nearly all walks, so one copy of the tables is enough if it is there.",
    False: "Wide: several nodes walk, so each table is remote to most of them unless each has a copy.",
    None: "Without a trace every node counts alike.",
}
