"""What the API answers where one table is not enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pandas import DataFrame

from ..core.machine import Machine
from ..core.units import described
from ..cost.result import Result
from . import answers as frames

if TYPE_CHECKING:
    from .advise import Report


@dataclass(frozen=True)
class Replayed:
    """What replays found; each table is made when first asked for.

    results  [result.Result], the baseline's first: integer arrays, where tables are not enough
    """

    results: list[Result]
    machine: Machine

    @cached_property
    def frame(self) -> DataFrame:
        """frames.whatif_frame: one row a policy."""
        return frames.whatif_frame(self.results, self.machine)

    @cached_property
    def reads(self) -> DataFrame:
        """frames.reads_frame: by policy, dimension, level, reader, server, and cache or DRAM."""
        return frames.reads_frame(self.results)

    @cached_property
    def leaves(self) -> DataFrame:
        """frames.leaves_frame: walks by policy, socket and Local-Local ... Remote-Remote."""
        return frames.leaves_frame(self.results)

    @cached_property
    def calls(self) -> DataFrame:
        """frames.calls_frame: by policy and kind of system call."""
        return frames.calls_frame(self.results)

    @cached_property
    def timeline(self) -> DataFrame:
        """frames.timeline_frame: by policy and window; empty without windows."""
        return frames.timeline_frame(self.results)


@dataclass(frozen=True)
class Advised:
    """frame     `whatif`'s columns, and extra_bytes, extra_updates (share of the baseline's run) and over
                 (which part of the budget is exceeded, "" within it): best first
    sentence     one line: what to use, how much faster, why, and what it takes
    workload     "Thin", "Wide" or "unknown"; evidence: lines that say why
    refused      {policy: why the capture does not allow it}
    replayed     all tables of the same run, the baseline first
    report       advise.Report: what the frame is made of
    """

    frame: DataFrame
    sentence: str
    workload: str
    evidence: list[str]
    refused: dict[str, str]
    replayed: Replayed
    report: Report


def advised(report: Report, machine: Machine) -> Advised:
    """Advised of an advise.Report."""
    ranked = [one.result for one in report.ranked]
    table = frames.whatif_frame(ranked, machine)
    for name in ("extra_bytes", "extra_updates", "over"):
        table[name] = [getattr(one, name) for one in report.ranked]
    attrs = {key: value for key, value in table.attrs.items() if key != "units"}
    table = described(table, **attrs)
    work, others = report.workload, [result for result in ranked if result is not report.base]
    refused = dict(report.refused)
    replayed = Replayed([report.base, *others], machine)
    return Advised(table, report.sentence, work.name, work.evidence(), refused, replayed, report)
