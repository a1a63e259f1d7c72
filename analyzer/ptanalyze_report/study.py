"""A capture studied for the page: all its data, from one replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

import ptanalyze as pt

WINDOWS = 20  # in the picture over time


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
    sentence, workload, evidence, refused  as in analysis.advise.Advised
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
    findings: Sequence[pt.check.Check]
    results: Sequence[pt.Result]
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
    curve: pt.analysis.SizeCurve | None = None
    limits: pt.analysis.Limits | None = None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """`ranked`, a dict per policy, and "label": its name, with parameters if the name is not enough."""
        labelled = self.ranked.assign(label=pt.style.policy_labels(self.ranked))
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
    def cached(self) -> pt.columns.Finding | None:
        """That the caches hold all leaf entries, without a trace."""
        return self.results[0].finding(pt.columns.CACHED)

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
        return pt.style.WEIGHTS.get(self.results[0].run or "", "").removeprefix("walks ")

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
            return pt.interval.fewer_walk_cycles(1 / self.ratio(row))
        return pt.interval.interval(pt.Interval(row["speedup_low"], row["speedup"], row["speedup_high"]))

    def with_verdict(self, verdict: str) -> list[pt.check.Check]:
        return [finding for finding in self.findings if finding.verdict == verdict]

    @property
    def sound(self) -> bool:
        """Whether no check failed and nothing is missing."""
        return not self.with_verdict(pt.columns.FAILED) and not self.with_verdict(pt.columns.PARTIAL)


def remote_share(row: Mapping[str, Any] | Series) -> float:
    """Share of page-table reads from DRAM that another node serves."""
    return float(row["remote_dram_reads"] / row["dram_reads"]) if row["dram_reads"] else 0.0


# A Study of each capture, replayed once.


def studies(
    captures: Sequence[pt.Capture], setup: pt.Setup, asked: pt.analysis.Question | None = None, on: str = ""
) -> list[Study]:
    """A Study of each capture, replayed once; captures of the same name are named by their paths.

    on  "dask:HOST:PORT": by the workers of that cluster, a capture each
    """
    question = asked or pt.analysis.Question()
    must_differ(question.get("policies", ()))
    names = Counter(name_of(capture) for capture in captures)
    called = [
        name_of(capture) if names[name_of(capture)] == 1 else str(capture.directory) for capture in captures
    ]
    if on:
        return _by_workers(on, captures, called, setup, question)
    several = len(captures) > 1
    return [
        study(
            capture, name, replace(setup, progress=naming(setup.progress, name if several else "")), question
        )
        for capture, name in zip(captures, called, strict=True)
    ]


def _by_workers(
    on: str,
    captures: Sequence[pt.Capture],
    names: Sequence[str],
    setup: pt.Setup,
    question: pt.analysis.Question,
) -> list[Study]:

    quiet = replace(setup, progress=None)
    units = [
        (pt.analysis.sent(capture), name, quiet, question)
        for capture, name in zip(captures, names, strict=True)
    ]
    with pt.analysis.workers_on(on) as workers:
        return pt.analysis.carried_out(workers, study_there, units, setup.progress, "captures")


def study_there(unit: tuple[pt.Capture, str, pt.Setup, pt.analysis.Question]) -> Study:
    """`study` at a worker."""

    pt.analysis.received(unit[0])
    return study(*unit)


def must_differ(policies: pt.analysis.Policies) -> None:
    """UsageError for a policy with two settings: a page's tables and figures know policies by their names."""
    names = Counter(getattr(policy, "name", policy) for policy, _ in pt.analysis.policies_of(policies))
    if twice := next((name for name, times in names.items() if times > 1), None):
        raise pt.UsageError(
            f"policy {twice}: asked for twice; a page has one setting per policy, whatif compares several"
        )


def naming(progress: pt.process.Progress, name: str) -> pt.process.Progress:
    """Progress whose bars begin with the capture's name."""
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(done, total, f"{name}: {what}")


def name_of(capture: pt.Capture) -> str:
    return Path(capture.directory).resolve().name


def study(capture: pt.Capture, name: str, setup: pt.Setup, question: pt.analysis.Question) -> Study:
    """Study of a capture; CaptureError where its files are not as they were sealed."""

    findings = list(pt.check.check_capture(capture))
    files = findings[0]
    if files.verdict == pt.columns.FAILED:
        raise pt.errors.CaptureError(capture.directory, "damaged files", files.wrong, files.reason)
    traced = pt.analysis.weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "walks"
    advised = pt.advise(capture, replace(setup, windows=WINDOWS if traced else 0), **question)
    replayed = advised.replayed
    nested = capture.has_snapshot and not capture.snapshot.native
    return Study(
        name=name,
        facts=pt.describe.describe(capture),
        findings=findings,
        results=replayed.results,
        ranked=advised.frame,
        reads=replayed.reads,
        leaves=replayed.leaves,
        calls=replayed.calls,
        timeline=replayed.timeline,
        sentence=advised.sentence,
        workload=advised.workload,
        evidence=advised.evidence,
        fits=advised.report.workload.fits,
        limits=pt.analysis.limits_of_advice(advised.report),
        refused=advised.refused,
        traced=traced,
        classes=classes(capture, advised, traced),
        tables=pt.page_tables(capture) if capture.has_snapshot else None,
        lines=pt.fragmentation(capture, after=True, machine=setup.machine) if nested else None,
        heat=heat(capture, setup) if traced else None,
        walkers=walkers(capture, setup) if traced else {},
        calibrated=setup.calibration is not None,
        curve=pt.analysis.needed_curve(capture, (), setup, replayed),
    )


def walkers(capture: pt.Capture, setup: pt.Setup) -> dict[str, DataFrame]:
    """{"vma", "thread": walks by class}; {} without page tables."""

    if not capture.has_snapshot:
        return {}
    return {by: pt.classify(capture, weight="walks", by=by, setup=setup) for by in ("vma", "thread")}


def heat(capture: pt.Capture, setup: pt.Setup) -> DataFrame | None:

    if not capture.has_snapshot:
        return None
    table = pt.walk_map(capture, setup)
    return table if table["walks"].sum() else None


def classes(capture: pt.Capture, advised: pt.analysis.Advised, traced: bool) -> DataFrame:
    """As `classify`: the leaf entries of a capture of several nodes, and the baseline's walks."""
    from pandas import concat

    leaves, first = advised.replayed.leaves, advised.replayed.results[0]
    weight = (first.run or "walks") if traced else "leaf" if first.finding(pt.columns.EACH_ONCE) else "heat"
    base = leaves[leaves["policy"] == first.policy]
    walks = base.drop(columns=["policy", "params"]).assign(group="all", weight=weight)
    if not capture.has_snapshot or len(capture.snapshot.topology) < 2:
        return walks
    entries = pt.classify(capture)
    both = concat([entries, walks] if traced else [entries], ignore_index=True)
    both.attrs = walks.attrs
    return both
