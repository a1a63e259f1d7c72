"""All data of a capture for its part of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pandas import DataFrame, Series

from ...analysis.limits import Limits
from ...analysis.size import SizeCurve
from ...capture.check import Check
from ...core import interval
from ...core.columns import CACHED, FAILED, PARTIAL, Finding
from ...core.interval import Interval
from ...cost.result import Result
from ..plots.style import WEIGHTS, policy_labels


@dataclass(frozen=True)
class Study:
    """
    name           of the capture
    facts          {section: {what: value}} of capture.describe
    findings       of capture.check
    results        [Result], the baseline's first
    ranked         advise's frame: a row per policy, best first, policies over the budget last
    reads, leaves, calls, timeline  as in analysis.frames.Replayed
    fits           one node that a Wide program would fit, and how to run it there; "" elsewhere
    sentence, workload, evidence, refused  as in analysis.advice.Advised
    traced         whether walks of the trace count, not pages
    classes        classify's, leaf entries and walks below each other; None without page tables
    tables         page_tables'; None without page tables
    lines          fragmentation's, before and after; None for a native capture
    heat           walk_map's; None without page tables or trace
    walkers        {"vma", "thread": classify's of walks}; {} without page tables or trace
    calibrated     whether run times are scaled to a measured run
    curve          of larger runs, where the caches hold the leaf entries of the captured one; None elsewhere
    limits         what limits the run; None: not known
    """

    name: str
    facts: Mapping[str, Mapping[str, Any]]
    findings: Sequence[Check]
    results: Sequence[Result]
    ranked: DataFrame
    reads: DataFrame
    leaves: DataFrame
    calls: DataFrame
    timeline: DataFrame
    sentence: str
    workload: str
    evidence: Sequence[str]
    refused: Mapping[str, str]
    traced: bool
    classes: DataFrame | None = None
    tables: DataFrame | None = None
    lines: DataFrame | None = None
    heat: DataFrame | None = None
    walkers: Mapping[str, DataFrame] = field(default_factory=dict)
    calibrated: bool = False
    fits: str = ""
    curve: SizeCurve | None = None
    limits: Limits | None = None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """`ranked`, a dict per policy, and "label": its name, with parameters if the name is not enough."""
        labelled = self.ranked.assign(label=policy_labels(self.ranked))
        return [{str(key): value for key, value in row.items()} for row in labelled.to_dict("records")]

    @property
    def baseline(self) -> str:
        return self.results[0].policy

    @cached_property
    def base(self) -> dict[str, Any]:
        """The baseline's row."""
        return next(row for row in self.rows if row["policy"] == self.baseline)

    @cached_property
    def best(self) -> dict[str, Any]:
        """The row that the advice names: the fastest within the budget, which may be the baseline's."""
        return next(row for row in self.rows if not row["over"])

    @property
    def nested(self) -> bool:
        """Whether walks go through two tables."""
        return bool(self.base["ept_bytes"])

    @property
    def timed(self) -> bool:
        """Whether run times could be estimated."""
        return self.results[0].price.speedup is not None

    @property
    def advised(self) -> str:
        """The policy to use, in words."""
        return str(self.best["label"]) if self.timed else "none, as there is no run time"

    @property
    def cached(self) -> Finding | None:
        """That the caches hold all leaf entries, without a trace."""
        return self.results[0].finding(CACHED)

    @cached_property
    def over(self) -> set[int]:
        """Places in `results` of policies over the budget."""
        others = [row for row in self.rows if row is not self.base]  # in the order of `results`
        return {k for k, row in enumerate(others, 1) if row["over"]}

    @property
    def warm(self) -> str:
        """ " in steady state" where a further run is counted, else ""."""
        return " in steady state" if self.results[0].run == "warm" else ""

    @property
    def counted(self) -> str:
        """Whose walks a column of counts has, beside those of the whole trace; "" without a trace."""
        return WEIGHTS.get(self.results[0].run or "", "").removeprefix("walks ")

    @property
    def local(self) -> str:
        """Name of the class of walks whose leaf entries are all local."""
        return "Local-Local" if self.nested else "Local"

    def params_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of a row's policy."""
        return next(
            one.params for one in self.results if (one.policy, one.settings) == (row["policy"], row["params"])
        )

    def of(self, table: DataFrame, policy: str) -> DataFrame:
        """Rows of a policy; the table's attrs stay."""
        return table[table["policy"] == policy]

    def ratio(self, row: Mapping[str, Any]) -> float:
        """Speed-up over the baseline; without run times, ratio of walk cycles."""
        if self.timed:
            return float(row["speedup"])
        return float(self.base["walk_cycles"] / row["walk_cycles"]) if row["walk_cycles"] else 1.0

    def written(self, row: dict[str, Any]) -> str:
        """A row's speed-up as everywhere: with its interval, without run times by walk cycles."""
        if not self.timed:
            return interval.fewer_walk_cycles(1 / self.ratio(row))
        return interval.interval(Interval(row["speedup_low"], row["speedup"], row["speedup_high"]))

    def with_verdict(self, verdict: str) -> list[Check]:
        return [finding for finding in self.findings if finding.verdict == verdict]

    @property
    def sound(self) -> bool:
        """Whether no check failed and nothing is missing."""
        return not self.with_verdict(FAILED) and not self.with_verdict(PARTIAL)


def remote_share(row: Mapping[str, Any] | Series) -> float:
    """Share of page-table reads from DRAM that another node serves."""
    return float(row["remote_dram_reads"] / row["dram_reads"]) if row["dram_reads"] else 0.0
