"""All that is known of one capture when its part of the page is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pandas import DataFrame, Series

from ...capture.check import FAILED, PARTIAL, Finding
from ...cost.result import Result
from ..plots.labels import policy_labels


@dataclass(frozen=True)
class Study:
    """
    name           of the capture
    facts          {section: {what: value}} of info.describe
    findings       of check.check_capture
    results        [Result], the baseline's first
    ranked         api.advise's frame: a row a policy, best first, those over the budget last
    reads, leaves, calls, timeline  as in api.answers.Replayed
    sentence, workload, evidence, refused  as in api.answers.Advised
    classes        api.classify's, leaf entries and walks below each other; None without page tables
    tables         api.page_tables'; None without them
    lines          api.fragmentation's, before and after; None for what is no VM
    calibrated     whether run times are in the proportions of a measured run
    """

    name: str
    facts: Mapping[str, Mapping[str, Any]]
    findings: Sequence[Finding]
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
    classes: DataFrame | None = None
    tables: DataFrame | None = None
    lines: DataFrame | None = None
    calibrated: bool = False

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """`ranked`, a dict a policy, and "label": its name, with parameters where the name is not enough."""
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
    def traced(self) -> bool:
        return "trace" in self.facts

    @property
    def local(self) -> str:
        """What a leaf entry, or a pair of them, is called that costs no trip to another node."""
        return "Local-Local" if self.nested else "Local"

    def of(self, table: DataFrame, policy: str) -> DataFrame:
        """Rows of a policy; what the table says of itself stays."""
        return table[table["policy"] == policy]

    def ratio(self, row: Mapping[str, Any]) -> float:
        """How many times as fast as the baseline; without run times, walk cycles instead."""
        if self.timed:
            return float(row["speedup"])
        return float(self.base["walk_cycles"] / row["walk_cycles"]) if row["walk_cycles"] else 1.0

    def with_verdict(self, verdict: str) -> list[Finding]:
        return [one for one in self.findings if one.verdict == verdict]

    @property
    def sound(self) -> bool:
        """Whether no check failed and nothing is missing."""
        return not self.with_verdict(FAILED) and not self.with_verdict(PARTIAL)


def remote_share(row: Mapping[str, Any] | Series) -> float:
    """Of the page-table reads that DRAM serves, the share from another node."""
    return float(row["remote_dram_reads"] / row["dram_reads"]) if row["dram_reads"] else 0.0
