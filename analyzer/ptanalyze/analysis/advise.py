"""Advice on placement policies: all that a capture allows, replayed and ranked within a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..core.columns import Message, message, units_of
from ..core.errors import lines
from ..core.options import Keywords
from ..cost.result import COLUMNS as RESULT_COLUMNS
from ..cost.result import Result
from ..formats.capture import CaptureLike
from ..kernels.jit import say
from ..policies import BOUND, policies
from ..policies.registry import BrokenPolicyError
from ..world.scenario import Scenario
from .frames import Replayed, whatif_frame
from .ranking import COLUMNS, HOUR, Advice, as_sentence, because, label_of, memory_limit, rank
from .replay import must_allow
from .setup import Policies, Setup, numbered, open_replay_capture, policies_of, setup_of
from .verdict import FEW, UNPRICED, WITH_DATA, Verdict, Workload, one_node, untold, verdict, workload
from .whatif import chosen, mainline, must_tell, replay_scenario

if TYPE_CHECKING:
    from pandas import DataFrame


NO_CANDIDATES = {BOUND, "bind"}  # not meant to be faster; a policy whose node is chosen by hand
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
    horizon  seconds of the baseline's run at the region's rate: compared after that, one-time costs included
    policies those to rank, as of `replay`; none: all that the capture allows
    Thin or Wide: vMitosis, section 3.4. Other arguments as in `replay`.
    """
    opened = open_replay_capture(capture)
    how = setup_of(setup, options, opened.capture)
    scenario, others = opened.scenario(how), opened.others(how)
    share = isinstance(memory, str) and memory.strip().endswith("%")  # else mapped memory is not needed
    mapped = sum(one.extent[0] for one in (scenario, *others)) if share else 0
    limit = memory_limit(memory, round(scenario.times_captured * mapped))
    return advise_scenario(scenario, limit, how, opened.provenance, horizon, others, policies)


def advise_scenario(
    scenario: Scenario,
    limit: float,
    setup: Setup,
    provenance: Mapping[str, str] | None = None,
    horizon: float = HOUR,
    others: Sequence[Scenario] = (),
    policies: Policies = (),
) -> Advised:
    """Advice on policies of a captured Scenario. limit: bytes that one may add; others: as replay_scenario's.

    policies  as advise's; UsageError, with the reasons, where the capture allows none of them
    """
    asked = policies_of(policies)
    compared = asked or candidates(scenario)
    if scenario.traced and not asked:
        must_tell(scenario)
    while True:
        refused = dict[str, str]()
        try:
            plans = chosen(compared, scenario, setup)
            more = mainline(scenario, plans) if asked else {}
            every = replay_scenario(scenario, [*plans, *more.values()], setup, provenance, refused, others)
            break
        except BrokenPolicyError as error:
            if asked:
                raise
            say(f"{error}; left out")
            compared = [one for one in compared if one[0] != error.policy]
    base, about = every[0], workload(scenario, others)
    notes = untold(refused, base, about.command)
    refused = {name: why for name, why in refused.items() if name not in more}
    judged = rank(every, limit, horizon)
    ranked = [advice for advice in judged if advice.result.policy not in more]
    if asked:
        must_allow(refused, len(ranked) - len(plans) + len(asked))
    results = [base, *(advice.result for advice in ranked if advice.result is not base)]
    over = {label_of(advice.result) for advice in judged if advice.over}
    gained = {label_of(one.result): one.gain for one in judged}
    said = verdict(results, about, every[len(ranked) :], over, notes, gained)
    return Advised(ranked, refused, Replayed(results, setup.machine, {}, scenario.fits_caches), about, said)


@dataclass(frozen=True)
class Advised:
    """
    ranked    the best first, those over the budget last
    refused   {policy: why the capture does not allow it}
    replayed  all tables of the same run, the baseline first, then the others, the best first
    program   how it runs
    verdict   of these policies and what mainline Linux offers besides
    """

    ranked: Sequence[Advice]
    refused: Mapping[str, str]
    replayed: Replayed
    program: Workload
    verdict: Verdict

    @property
    def base(self) -> Result:
        return self.replayed.results[0]

    @property
    def best(self) -> Result:
        """The policy to use: the first within the budget, which may be the baseline."""
        return next(one.result for one in self.ranked if not one.over and one.result.policy != BOUND)

    @property
    def why(self) -> Message:
        """The largest saving of the best policy."""
        return because(self.base, self.best)

    @property
    def sentence(self) -> str:
        """The policy to use, its speed-up and its cost, and why; without a trace a bound."""
        if self.verdict.kind == FEW or (self.best is self.base and one_node(self.base)):
            return self.verdict.answer
        if self.best is self.base:
            within = " within the budget" if any(advice.over for advice in self.ranked) else ""
            unknown = any(one.kind == UNPRICED for one in self.verdict.answers)
            what = "placement" if unknown or self.verdict.of_page_size else "policy"
            if self.verdict.action and self.verdict.action.code in WITH_DATA:
                what = "placement of page tables alone"
            return str(message("asked", "stay", base=label_of(self.base), what=what, within=within))
        return f"{self.verdict.answer}{as_sentence(self.why)}"

    @property
    def workload(self) -> str:
        """ "Thin", "Wide" or "unknown"."""
        return self.program.name

    @property
    def evidence(self) -> list[str]:
        """Lines that say why."""
        return self.program.evidence()

    @cached_property
    def frame(self) -> DataFrame:
        """`whatif`'s columns, and COLUMNS: best first."""
        table = whatif_frame([advice.result for advice in self.ranked], self.replayed.machine)
        for column in COLUMNS:
            table[column.key] = [column.of(advice) for advice in self.ranked]
        table.attrs["units"] = units_of(table, (*COLUMNS, *RESULT_COLUMNS))
        return table

    def __repr__(self) -> str:
        return f"{self.sentence}\n{self.frame!r}"

    def _repr_html_(self) -> str:
        """For a notebook: the sentence, the workload, and the table's first columns."""
        why = f"{self.workload}: {'; '.join(self.evidence)}."
        return lines([self.sentence, *self.verdict.limits, why]) + str(self.frame._repr_html_())


def candidates(scenario: Scenario) -> list[tuple[str, dict[str, Any]]]:
    """[(name, settings)] of policies to compare, those that the capture will refuse included."""
    every = policies()
    names: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in every if name not in NO_CANDIDATES]
    names += [(name, own) for name, own in COMBINATIONS if all(part in every for part in name.split("+"))]
    return [(name, settings | numbered(name, scenario.snapshot)) for name, settings in names]
