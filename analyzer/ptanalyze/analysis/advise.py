"""Advice on placement policies: all that a capture allows, replayed and ranked within a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from pandas import DataFrame

from ..core.columns import Message, message, units_of
from ..core.errors import lines
from ..core.options import Keywords
from ..cost.result import COLUMNS as RESULT_COLUMNS
from ..cost.result import Result
from ..formats.capture import CaptureLike
from ..policies import BOUND, Plan, policies
from ..policies.registry import BrokenPolicyError
from .frames import Replayed, whatif_frame
from .ranking import COLUMNS, HOUR, Advice, because, label_of, memory_limit, rank
from .replay import must_allow
from .setup import Policies, Setup, baseline_of, open_replay_capture, policies_of, setup_of
from .verdict import Verdict, Workload, untold, verdict, workload
from .whatif import planned, replay_scenario

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..world.scenario import Scenario


NO_CANDIDATES = {  # a bound; a policy whose node is chosen by hand; policies not meant to be faster
    BOUND,
    "bind",
}
REPLICATE = "vmitosis-replicate"  # its mode is how the guest comes by node numbers
COMBINATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hydra+vmitosis-replicate", {"layers": "ept"}),
    ("ptemagnet+vmitosis-replicate", {}),
    ("ptemagnet+hydra", {}),
)


class Question(TypedDict, total=False):
    """What `advise` takes besides the capture and the Setup."""

    memory: float | str | None
    horizon: float
    policies: Policies


def advise(
    capture: CaptureLike = None,
    setup: Setup | None = None,
    *,
    memory: float | str | None = None,
    horizon: float = HOUR,
    policies: Policies = (),
    **options: Unpack[Keywords],
) -> Advised:
    """Policies ranked by estimated run time within a budget.

    memory   limit on bytes of extra page tables and memory held unused, or "64M", or "1%" of the memory that
             the capture's tables map; None: none
    horizon  seconds of the baseline's run at the region's rate: run times are compared after that, what a
             policy costs once included
    policies those to rank, as of `replay`; none: all that the capture allows
    Thin or Wide: vMitosis, section 3.4. Other arguments as in `replay`.
    """
    how, known = setup_of(setup, options), open_replay_capture(capture)
    scenario, others = known.scenario(how), known.others(how)
    share = isinstance(memory, str) and memory.strip().endswith("%")  # else mapped memory is not needed
    mapped = sum(one.extent[0] for one in (scenario, *others)) if share else 0
    limit = memory_limit(memory, round(scenario.times_captured * mapped))
    report = advise_scenario(scenario, limit, how, known.provenance, horizon, others, policies)
    return advised(report, how.machine, scenario.fits_caches)


def advise_scenario(
    scenario: Scenario,
    limit: float,
    setup: Setup,
    provenance: Mapping[str, str] | None = None,
    horizon: float = HOUR,
    others: Sequence[Scenario] = (),
    policies: Policies = (),
) -> Report:
    """Report on policies of a captured Scenario. limit: bytes that one may add; others: as replay_scenario's.

    policies  as advise's; UsageError, with the reasons, where the capture allows none of them
    """
    refused, asked = dict[str, str](), policies_of(policies)
    plans = planned(asked or candidates(scenario), baseline_of(scenario))
    results, left_out = sound_results(scenario, plans, setup, provenance, refused, others)
    if asked:
        must_allow(refused, len(results) - len(plans) + len(asked))
    ranked = rank(results, limit, horizon)
    return Report(ranked, refused, results[0], workload(scenario, others), left_out)


@dataclass(frozen=True)
class Report:
    """ranked: the best first, those over the budget last; base: the baseline's; refused: {policy: why};
    left_out: {policy: why} of those whose own code fails."""

    ranked: Sequence[Advice]
    refused: Mapping[str, str]
    base: Result
    workload: Workload
    left_out: Mapping[str, str]

    @property
    def results(self) -> list[Result]:
        """The baseline's first, then the others, the best first."""
        return [self.base, *(one.result for one in self.ranked if one.result is not self.base)]

    @cached_property
    def verdict(self) -> Verdict:
        over = {label_of(one.result) for one in self.ranked if one.over}
        return verdict(self.results, self.workload, over=over, notes=untold(self.refused, self.base))

    @property
    def best(self) -> Result:
        """The policy to use: the first within the budget, which may be the baseline."""
        return next(one.result for one in self.ranked if not one.over)

    @property
    def why(self) -> Message:
        """The largest saving of the best policy."""
        return because(self.base, self.best)

    @property
    def sentence(self) -> str:
        """The policy to use, its speed-up and its cost, and why; without a trace a bound."""
        if self.best is self.base:
            within = " within the budget" if any(one.over for one in self.ranked) else ""
            return str(message("asked", "stay", base=label_of(self.base), within=within))
        why = str(self.why)
        return f"{self.verdict.answer}{f' {why[:1].upper()}{why[1:]}.' if why else ''}"


def sound_results(
    scenario: Scenario,
    plans: Sequence[Plan],
    setup: Setup,
    provenance: Mapping[str, str] | None,
    refused: dict[str, str],
    others: Sequence[Scenario],
) -> tuple[list[Result], dict[str, str]]:
    """(results of replay_scenario, {policy: why}): without the plans whose own code fails."""
    left_out: dict[str, str] = {}
    while True:
        sound = [plan for plan in plans if plan.name not in left_out]
        try:
            return replay_scenario(scenario, sound, setup, provenance, refused, others), left_out
        except BrokenPolicyError as error:
            left_out[error.policy] = error.why


@dataclass(frozen=True)
class Advised:
    """frame     `whatif`'s columns, and COLUMNS: best first
    sentence     the policy to use, its speed-up, the cost and the reason
    workload     "Thin", "Wide" or "unknown"; evidence: lines that say why
    refused      {policy: why the capture does not allow it, or how its own code fails}
    replayed     all tables of the same run, the baseline first
    report       from which the frame is made
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
        said = [self.sentence, *self.report.verdict.limits, f"{self.workload}: {'; '.join(self.evidence)}."]
        return lines(said) + table


def advised(report: Report, machine: Machine, fits_caches: bool = False) -> Advised:
    """Advised of a Report; fits_caches: of its Scenario."""
    table = whatif_frame([advice.result for advice in report.ranked], machine)
    for column in COLUMNS:
        table[column.key] = [column.of(advice) for advice in report.ranked]
    table.attrs["units"] = units_of(table, (*COLUMNS, *RESULT_COLUMNS))
    work, refused = report.workload, {**report.refused, **report.left_out}
    replayed = Replayed(report.results, machine, fits_caches=fits_caches)
    return Advised(table, report.sentence, work.name, work.evidence(), refused, replayed, report)


def candidates(scenario: Scenario) -> list[tuple[str, dict[str, Any]]]:
    """[(name, settings)] of policies to compare, those that the capture will refuse included."""
    known, no_p = policies(), {"mode": "no-p"} if scenario.snapshot.numa_oblivious else {}
    names: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in known if name not in NO_CANDIDATES]
    names += [(name, s) for name, s in COMBINATIONS if all(part in known for part in name.split("+"))]
    return [(name, settings | (no_p if REPLICATE in name else {})) for name, settings in names]
