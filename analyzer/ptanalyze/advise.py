"""Which placement policy to use: all that a capture allows, ranked by run time within what one will pay."""

from dataclasses import dataclass
from typing import NamedTuple

from .policies import members, plan_for, policies
from .policies.base import NEEDS
from .result import TABLE_BYTES, Result
from .whatif import baseline_of, replayed
from .workload import Workload, workload

NO_CANDIDATES = {"ideal", "bind"}  # a bound, and one that needs a node chosen by hand
COMBINATIONS = (
    ("hydra+vmitosis-replicate", {"layers": "ept"}),
    ("ptemagnet+vmitosis-replicate", {}),
    ("ptemagnet+hydra", {}),
)


@dataclass(frozen=True)
class Budget:
    """What one will pay: extra page-table bytes, extra management cycles as a share of the baseline's run."""

    bytes: float = float("inf")
    updates: float = float("inf")


@dataclass(frozen=True)
class Advice:
    """One candidate: `over` says which part of the budget it exceeds, "" within it."""

    result: Result
    extra_bytes: int
    extra_updates: float
    over: str

    @property
    def time(self):
        """What to sort by: less is faster."""
        price = self.result.price
        return -price.speedup.middle if price.speedup else price.walk_cycles + price.management_cycles


class Report(NamedTuple):
    """ranked: [Advice]; refused: {policy: why}; base: Result of the baseline; sentence: one line."""

    ranked: list[Advice]
    refused: dict[str, str]
    base: Result
    workload: Workload
    sentence: str


def advise(world, budget, costs, *, contended=False, progress=None, provenance=None):
    """Report on all policies that a captured World (whatif.captured_world) allows, within a Budget."""
    allowed, refused = candidates(world)
    base = baseline_of(world)
    plans = sorted(allowed, key=lambda plan: plan.name != base)
    results = replayed(world, plans, costs, contended, progress, provenance, refused)
    ranked, about = rank(results, budget), workload(world)
    return Report(ranked, refused, results[0], about, sentence(ranked, results[0], about))


def candidates(world):
    """([Plan] that the capture allows, {name: why not})."""
    known = policies()
    names = [(name, {}) for name in known if name not in NO_CANDIDATES]
    names += [(name, s) for name, s in COMBINATIONS if all(part in known for part in name.split("+"))]
    allowed, refused = [], {}
    for name, settings in names:
        lacking = [need for policy in members(name) for need in policy.needs if not NEEDS[need][0](world)]
        if lacking:
            refused[name] = f"the capture lacks: {', '.join(dict.fromkeys(lacking))}"
        else:
            allowed.append(plan_for(name, settings))
    return allowed, refused


def rank(results, budget):
    """[Advice] for all results (the first is the baseline): those within the budget first, fastest first."""
    base = results[0]
    return sorted(
        (_advice(result, base, budget) for result in results), key=lambda one: (one.over != "", one.time)
    )


def _advice(result, base, budget):
    more = result.price.management_cycles - base.price.management_cycles
    updates = more / base.price.run_cycles if base.price.run_cycles else 0.0
    pages = result.table_pages_peak - base.table_pages_peak + result.host_pages - base.host_pages
    taken = (pages + result.aside_pages) * TABLE_BYTES
    over = [
        what
        for what, value, limit in (("memory", taken, budget.bytes), ("updates", updates, budget.updates))
        if value > limit
    ]
    return Advice(result, taken, updates, " and ".join(over))


def sentence(ranked, base, workload):
    """One line: what to use, how much faster, why, and what it takes."""
    best = next(one for one in ranked if not one.over)
    if best.result.policy == base.policy:
        return (
            f"{workload.name}: stay with {base.policy}; nothing within the budget is estimated to be faster."
        )
    was, now = (_remote(result) for result in (base, best.result))
    speedup = best.result.price.speedup
    faster = (
        f"{speedup.middle:.2f}x ({speedup.low:.2f} to {speedup.high:.2f}) over {base.policy}"
        if speedup
        else f"fewer walk cycles than {base.policy}"
    )
    return (
        f"{WHY[workload.thin]} {best.result.policy} is estimated at {faster}: {100 * was:.0f} % of the "
        f"page-table reads that DRAM serves are remote, with it {100 * now:.0f} %; it takes "
        f"{best.extra_bytes / 2**20:.1f} MiB more for page tables and {100 * best.extra_updates:.2f} % of "
        "the run for updates."
    )


WHY = {
    True: "Thin: one node does nearly all walks, so one copy of the tables is enough if it is there.",
    False: "Wide: several nodes walk, so each table is remote to most of them unless each has a copy.",
    None: "Without a trace every node counts alike.",
}


def _remote(result):
    row = result.row()
    return row["remote_dram_reads"] / max(row["dram_reads"], 1)
