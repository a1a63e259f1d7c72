"""Advice on placement policies: all that a capture allows, ranked by run time within a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pandas import DataFrame

from ..core.errors import NO_LIMIT, Budget, budget, lines
from ..core.units import described
from ..formats.capture import CaptureLike
from ..policies import BOUND, Plan, policies
from ..policies.combine import BrokenPolicyError
from .answers import whatif_frame
from .asked_policies import Policies, policies_of
from .opened import opened
from .ranking import HOUR, Report, placement_sentence, rank, sentence
from .refusals import must_allow
from .replay import baseline_of, planned, replay_world
from .replayed import Replayed
from .setup import Options, Setup, setup_of
from .workload import workload

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..cost.result import Result
    from ..world.world import World

NO_CANDIDATES = {  # a bound; a policy whose node is chosen by hand; policies not meant to be faster
    BOUND,
    "bind",
    "five-level",
    "domains",
}
SLOW_NODES = {"tables-in-dram"}  # for machines with nodes without CPUs
REPLICATE = "vmitosis-replicate"  # its mode is how the guest comes by node numbers
COMBINATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hydra+vmitosis-replicate", {"layers": "ept"}),
    ("ptemagnet+vmitosis-replicate", {}),
    ("ptemagnet+hydra", {}),
)


class Question(TypedDict, total=False):
    """What `advise` takes besides the capture and the Setup."""

    memory: float | str
    updates: float | str
    horizon: float
    policies: Policies


def advise(
    capture: CaptureLike = None,
    setup: Setup | None = None,
    *,
    memory: float | str = NO_LIMIT,
    updates: float | str = NO_LIMIT,
    horizon: float = HOUR,
    policies: Policies = (),
    **options: Unpack[Options],
) -> Advised:
    """Policies ranked by estimated run time within a budget.

    memory   limit on bytes of extra page tables and memory held unused, or "64M", or "1%" of the memory that
             the capture's tables map
    updates  limit on extra upkeep of page tables, as a share of the baseline's run, 0.02 or "2%"
    horizon  seconds of the baseline's run at the region's rate: run times are compared after that, what a
             policy costs once included
    policies those to rank, as of `replay`; none: all that the capture allows
    Thin or Wide: vMitosis, section 3.4. Other arguments as in `replay`.
    """
    how, known = setup_of(setup, options), opened(capture)
    world, others = known.world(how), known.others(how)
    limits = budget(memory, updates, sum(workload(one).mapped_bytes for one in (world, *others)))
    report = advise_world(world, limits, how, known.provenance, horizon, others, policies)
    return advised(report, how.machine)


def advise_world(
    world: World,
    budget: Budget,
    setup: Setup,
    provenance: Mapping[str, str] | None = None,
    horizon: float = HOUR,
    others: Sequence[World] = (),
    policies: Policies = (),
) -> Report:
    """Report on policies of a captured World, within a Budget; others as replay_world's.

    policies  as advise's; UsageError, with the reasons, where the capture allows none of them
    """
    refused, asked = dict[str, str](), policies_of(policies)
    plans = planned(asked or candidates(world), baseline_of(world))
    results, left_out = sound_results(world, plans, setup, provenance, refused, others)
    if asked:
        must_allow(refused, len(results) - len(plans) + len(asked))
    ranked, about = rank(results, budget, horizon), workload(world)
    if others:
        about = replace(about, threads=0)  # of several processes these are the first's alone
    said = sentence(ranked, results[0], about), placement_sentence(ranked, results[0])
    return Report(ranked, refused, results[0], about, *said, left_out)


def sound_results(
    world: World,
    plans: Sequence[Plan],
    setup: Setup,
    provenance: Mapping[str, str] | None,
    refused: dict[str, str],
    others: Sequence[World],
) -> tuple[list[Result], dict[str, str]]:
    """(results of replay_world, {policy: why}): without the plans whose own code fails."""
    left_out: dict[str, str] = {}
    while True:
        sound = [plan for plan in plans if plan.name not in left_out]
        try:
            return replay_world(world, sound, setup, provenance, refused, others), left_out
        except BrokenPolicyError as error:
            left_out[error.policy] = error.why


@dataclass(frozen=True)
class Advised:
    """frame     `whatif`'s columns, and extra_bytes, extra_updates (share of the baseline's run), over
                 (which part of the budget is exceeded, "" within it) and gain (speed-up over the horizon,
                 one-time costs included): best first
    sentence     one line: the policy to use, its speed-up, the reason and the cost
    workload     "Thin", "Wide" or "unknown"; evidence: lines that say why
    refused      {policy: why the capture does not allow it, or how its own code fails}
    replayed     all tables of the same run, the baseline first
    report       ranking.Report, from which the frame is made
    """

    frame: DataFrame
    sentence: str
    workload: str
    evidence: list[str]
    refused: dict[str, str]
    replayed: Replayed
    report: Report

    def _repr_html_(self) -> str:
        """For a notebook: the sentence, the workload, and the table's first columns."""
        shown = self.frame[
            ["policy", "params", "speedup_low", "speedup", "speedup_high", "extra_bytes", "over"]
        ]
        table = str(shown.to_html(index=False, float_format="{:,.3f}".format, border=0))
        said = [line for line in (self.report.placement, self.sentence) if line]
        return lines([*said, f"{self.workload}: {'; '.join(self.evidence)}."]) + table


def advised(report: Report, machine: Machine) -> Advised:
    """Advised of a Report."""
    ranked = [advice.result for advice in report.ranked]
    table = whatif_frame(ranked, machine)
    for name in ("extra_bytes", "extra_updates", "over", "gain"):
        table[name] = [getattr(advice, name) for advice in report.ranked]
    attrs = {key: value for key, value in table.attrs.items() if key != "units"}
    table = described(table, **attrs)
    work, others = report.workload, [result for result in ranked if result is not report.base]
    refused = report.refused | report.left_out
    replayed = Replayed([report.base, *others], machine)
    return Advised(table, report.sentence, work.name, work.evidence(), refused, replayed, report)


def candidates(world: World) -> list[tuple[str, dict[str, Any]]]:
    """[(name, settings)] of policies to compare, those that the capture will refuse included."""
    known, no_p = policies(), {"mode": "no-p"} if world.snapshot.numa_oblivious else {}
    unfit = NO_CANDIDATES if world.machine.memory_nodes else NO_CANDIDATES | SLOW_NODES
    names: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in known if name not in unfit]
    names += [(name, s) for name, s in COMBINATIONS if all(part in known for part in name.split("+"))]
    return [(name, settings | (no_p if REPLICATE in name else {})) for name, settings in names]
