"""A capture studied for the page: all its data, from one replay, and what to be careful about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pandas import DataFrame, concat

import ptanalyze as pt
from ptanalyze.show.advise import view
from ptanalyze.show.whatif import SAYS_NOTHING, to_type

WINDOWS = 20  # in the picture over time
LOCAL = ("Local", "Local-Local")


@dataclass(frozen=True)
class Study:
    """
    name        of the capture
    facts       {section: {what: value}} of capture.describe
    checks      of capture.check
    lines       what `ptanalyze advise` answers, before its table
    today       those of them with the line to type
    advised     what it answers from: a row per policy, best first, policies over the budget last
    traced      whether walks of the trace count, not pages
    classes     classify's: leaf entries, where page tables were captured, and walks below each other
    tables      page_tables'; None without page tables
    cache_lines fragmentation's, before and after; None for a native capture
    walkers     {"VMA", "thread": classify's of walks}; {} without page tables or trace, or --from
    curve       of larger runs, where the caches hold the leaf entries of the captured one; None elsewhere
    """

    name: str
    facts: Mapping[str, Mapping[str, Any]]
    checks: Sequence[pt.check.Check]
    lines: Sequence[str]
    today: Sequence[str]
    advised: pt.analysis.Advised
    traced: bool
    classes: DataFrame
    tables: DataFrame | None = None
    cache_lines: DataFrame | None = None
    walkers: Mapping[str, DataFrame] = field(default_factory=dict)
    curve: pt.analysis.SizeCurve | None = None

    @cached_property
    def frame(self) -> DataFrame:
        """The advice's table and label, the policy with parameters if its name is not enough; ratio, the
        speed-up over the baseline or, without run times, of walk cycles; remote, the share of DRAM reads. On
        one node without policies that change nothing there."""
        frame = self.advised.frame
        own = frame["policy"] == frame["baseline"]
        walks = frame["walk_cycles"]
        cycles = (walks[own].iloc[0] / walks).where(walks > 0, 1.0)
        frame = frame.assign(
            label=pt.style.policy_labels(frame),
            ratio=frame["speedup"] if frame["speedup"].notna().any() else cycles,
            remote=(frame["remote_dram_reads"] / frame["dram_reads"]).fillna(0.0),
        )
        return frame[own | (frame["ratio"] != 1) | (len(self.advised.base.classes) > 1)]

    @property
    def first(self) -> list[str]:
        """Lines of the first screen: the verdict, what limits the run, and what to type."""
        limit = self.advised.verdict.limits[:1]
        return [line for line in self.lines if line in (self.lines[0], *limit, *self.today)]

    @property
    def baseline(self) -> str:
        return str(self.frame["baseline"].iloc[0])

    @cached_property
    def base(self) -> dict[str, Any]:
        """The baseline's row."""
        return dict(DataFrame(self.frame).query("policy == baseline").to_dict("records")[0])

    @cached_property
    def best(self) -> dict[str, Any]:
        """The row that the advice names: the fastest within the budget, which may be the baseline's."""
        return dict(DataFrame(self.frame).query("over == ''").to_dict("records")[0])

    @property
    def timed(self) -> bool:
        """Whether run times could be estimated."""
        return bool(self.frame["speedup"].notna().any())

    @property
    def local(self) -> str:
        """Name of the class of walks whose leaf entries are all local."""
        return LOCAL[self.cache_lines is not None]

    @property
    def findings(self) -> list[pt.columns.Finding]:
        """All that was found on the run and on policies."""
        return [pt.columns.Finding(**finding) for finding in self.frame.attrs["findings"]]


# What to be careful about, and a study in a few numbers.


def cautions(study: Study) -> list[pt.columns.Finding]:
    """What to be careful about, the gravest first: checks, the run, the baseline and the best policy."""
    columns, lines = pt.columns, []
    for verdict, word in ((columns.FAILED, "failed"), (columns.PARTIAL, "found data missing")):
        if some := [said(check) for check in study.checks if check.verdict == verdict]:
            count = f"{pt.errors.plural(len(some), 'check')} of the capture {word}"
            lines.append(columns.Finding("checks", f"{count}: {'; '.join(some)}", verdict, count))
    if not lines:
        text = f"None of {len(study.checks)} checks of the capture's files failed"
        lines = [columns.Finding("checks", text)]
    if study.traced and study.tables is None:
        text = "no page tables: 4 KiB pages, and tables placed by first touch, are assumed"
        lines.append(columns.Finding("no-tables", text, columns.CAREFUL, "the page tables are assumed"))
    named = ("", study.baseline, study.best["policy"])
    its = [finding for finding in study.findings if finding.policy in named]
    lines += [finding for finding in its if finding.short or finding.weight == columns.CAREFUL]
    order = (columns.FAILED, columns.PARTIAL, columns.CAREFUL, columns.NOTE)
    return sorted(dict.fromkeys(lines), key=lambda caution: order.index(caution.weight))


def said(check: pt.check.Check) -> str:
    count = f" ({check.wrong:,} of {check.examined:,})" if check.examined else ""
    return f"{check.name}{count}: {check.reason}".rstrip(". ")


class Number(NamedTuple):
    value: str
    what: str
    more: str


def glance(study: Study) -> list[Number]:
    """Key numbers of the baseline for a reader in a hurry, none of which the verdict or a figure has."""
    base, under = study.base, f"under {study.baseline}"
    numbers = []
    if study.timed:
        low, middle, high = (100 * base[f"walk_share{end}"] for end in ("_low", "", "_high"))
        if high - low < 100 * SAYS_NOTHING:
            guess = f"best guess {middle:.0f} %"
            numbers.append(Number(f"{low:.0f}-{high:.0f} %", "of this run is page walks", guess))
    if study.traced:
        numbers.append(Number(f"{base['walks']:,}", pt.style.WEIGHTS.get(base["run"], "walks"), under))
    what = f"of {'walks' if study.traced else 'pages'} {study.local}"
    local = f"leaf entries on the walker's socket, {under}"
    numbers.append(Number(f"{100 * base['leaf_LL_share']:.0f} %", what, local))
    if base["walk_cycles"]:
        numbers.append(Number(f"{base['cycles_per_walk']:.0f}", "cycles per walk", under))
    return numbers


# A Study of each capture, replayed once.


def studies(
    captures: Sequence[pt.Capture], setup: pt.Setup, asked: pt.analysis.Question | None = None
) -> list[Study]:
    """A Study of each capture, replayed once; captures of the same name are named by their paths."""
    question = asked or pt.analysis.Question()
    policies = Counter(
        getattr(policy, "name", policy) for policy, _ in pt.analysis.policies_of(question.get("policies", ()))
    )
    if twice := next((name for name, times in policies.items() if times > 1), None):
        raise pt.UsageError(
            f"policy {twice}: asked for twice; a page has one setting per policy, whatif compares several"
        )
    names = [Path(capture.directory).resolve().name for capture in captures]
    paths = [str(capture.directory) for capture in captures]
    named = [name if names.count(name) == 1 else path for name, path in zip(names, paths, strict=True)]
    return [study(capture, name, setup, question) for capture, name in zip(captures, named, strict=True)]


def study(capture: pt.Capture, name: str, setup: pt.Setup, question: pt.analysis.Question) -> Study:
    """Study of a capture; pt.errors.CaptureError where its files are not as they were sealed."""
    checks = list(pt.check.check_capture(capture))
    files = checks[0]
    if files.verdict == pt.columns.FAILED:
        raise pt.errors.CaptureError(capture.directory, "damaged files", files.wrong, files.reason)
    traced = pt.analysis.weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "walks"
    advised = pt.advise(capture, replace(setup, windows=WINDOWS if traced else 0), **question)
    snapshot = capture.has_snapshot
    nested = snapshot and not capture.snapshot.native
    curve = pt.analysis.needed_curve(capture, question.get("policies", ()), setup, advised.replayed)
    answer = next(view(advised, pt.columns.Section(), curve=curve))
    by = {"VMA": "vma", "thread": "thread"} if traced and snapshot and not setup.begin else {}
    return Study(
        name,
        pt.describe.describe(capture),
        checks,
        [str(line) for line in answer.lines if line],
        to_type(advised.verdict),
        advised,
        traced,
        classes(capture, advised, traced),
        tables=pt.page_tables(capture) if snapshot else None,
        cache_lines=pt.fragmentation(capture, after=True, machine=setup.machine) if nested else None,
        walkers={name: pt.classify(capture, weight="walks", by=key, setup=setup) for name, key in by.items()},
        curve=curve,
    )


def classes(capture: pt.Capture, advised: pt.analysis.Advised, traced: bool) -> DataFrame:
    """Classes: the leaf entries of a capture of several nodes, and the baseline's walks."""
    leaves, frame = advised.replayed.leaves, advised.frame
    once = any(finding["code"] == pt.columns.EACH_ONCE for finding in frame.attrs["findings"])
    weight = (frame["run"].iloc[0] or "walks") if traced else "leaf" if once else "heat"
    base = leaves[leaves["policy"] == frame["baseline"].iloc[0]]
    walks = base.drop(columns=["policy", "params"]).assign(group="all", weight=weight)
    if not capture.has_snapshot or len(capture.snapshot.topology) < 2:
        return walks
    entries = pt.classify(capture)
    both = concat([entries, walks] if traced else [entries], ignore_index=True)
    both.attrs = walks.attrs
    return both
