"""An HTML page about captures, in words, tables and figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...analysis.advice import Question
from ...analysis.ranking import HOUR
from ...analysis.setup import Policies, Setup, policies_of, setup_of, weighed_by
from ...core.columns import EACH_ONCE
from ...core.errors import NO_LIMIT, UsageError
from ...core.process import Progress
from ...formats.atomic import must_be_writable
from ...formats.capture import CaptureLike, PathLike, load

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...analysis.advice import Advised
    from ...formats.capture import Capture
    from .study import Study

WINDOWS = 20  # in the picture over time


def report(
    captures: CaptureLike | Sequence[CaptureLike] = None,
    output: PathLike | None = None,
    setup: Setup | None = None,
    *,
    memory: float | str = NO_LIMIT,
    updates: float | str = NO_LIMIT,
    horizon: float = HOUR,
    policies: Policies = (),
    on: str = "",
    **options: Any,
) -> str:
    """An HTML page about one or several captures, as text; with `output`, FILE.html, also written there.

    on  "dask:HOST:PORT": the captures are studied by the workers of that cluster, with the same numbers
    It holds the advice, its cautions, the locality of page walks, effects and costs of each policy, and
    the provenance of the numbers; its tables sort and filter. It is self-contained. Other arguments as in
    `advise`.
    """
    from .page import Page, html

    if output is not None:
        must_be_writable(output, "html", "htm")
    several = isinstance(captures, Sequence) and not isinstance(captures, str)
    named = cast("Sequence[CaptureLike]", captures if several else [captures])
    opened = [load(capture) for capture in named]
    asked = Question(memory=memory, updates=updates, horizon=horizon, policies=policies)
    how = setup_of(setup, options)
    studied = studies(opened, how, asked, on)
    given = {key: value for key, value in asked.items() if value not in (NO_LIMIT, HOUR, ())}
    again = call(opened, output, {**({"setup": setup} if setup else options), **given})
    text = html(Page(studied, again), how.progress, how.jobs)
    if output is not None:
        write(output, text)
    return text


def studies(
    captures: Sequence[Capture],
    setup: Setup,
    asked: Question | None = None,
    on: str = "",
) -> list[Study]:
    """A Study of each capture, replayed once; captures of the same name are named by their paths.

    on  "dask:HOST:PORT": by the workers of that cluster, a capture each
    """
    question = asked or Question()
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
            capture,
            name,
            replace(setup, progress=naming(setup.progress, name if several else "")),
            question,
        )
        for capture, name in zip(captures, called, strict=True)
    ]


def _by_workers(
    on: str,
    captures: Sequence[Capture],
    names: Sequence[str],
    setup: Setup,
    question: Question,
) -> list[Study]:
    from ...analysis.sweep import carried_out, sent, workers_on

    quiet = replace(setup, progress=None)
    units = [(sent(capture), name, quiet, question) for capture, name in zip(captures, names, strict=True)]
    with workers_on(on) as workers:
        return carried_out(workers, study_there, units, setup.progress, "captures")


def study_there(unit: tuple[Capture, str, Setup, Question]) -> Study:
    """`study` at a worker."""
    from ...analysis.sweep import received

    received(unit[0])
    return study(*unit)


def must_differ(policies: Policies) -> None:
    """UsageError for a policy with two settings: a page's tables and figures know policies by their names."""
    names = Counter(getattr(policy, "name", policy) for policy, _ in policies_of(policies))
    if twice := next((name for name, times in names.items() if times > 1), None):
        raise UsageError(
            f"policy {twice}: asked for twice; a page has one setting per policy, whatif compares several"
        )


def naming(progress: Progress, name: str) -> Progress:
    """Progress whose bars begin with the capture's name."""
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(done, total, f"{name}: {what}")


def name_of(capture: Capture) -> str:
    return Path(capture.directory).resolve().name


def study(capture: Capture, name: str, setup: Setup, question: Question) -> Study:
    """Study of a capture; CaptureError where its files are not as they were sealed."""
    from ...analysis.advice import advise
    from ...analysis.classify import fragmentation
    from ...analysis.frames import page_tables
    from ...analysis.limits import limits_of_advice
    from ...analysis.size import needed_curve
    from ...capture.check import FAILED, check_capture
    from ...capture.describe import describe
    from ...core.errors import CaptureError
    from .study import Study

    findings = list(check_capture(capture))
    files = findings[0]
    if files.verdict == FAILED:
        raise CaptureError(capture.directory, "damaged files", files.wrong, files.reason)
    traced = weighed_by(setup.weigh, capture.has_trace, capture.has_heat) == "walks"
    advised = advise(capture, replace(setup, windows=WINDOWS if traced else 0), **question)
    replayed = advised.replayed
    nested = capture.has_snapshot and not capture.snapshot.native
    return Study(
        name=name,
        facts=describe(capture),
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
        limits=limits_of_advice(advised.report),
        refused=advised.refused,
        traced=traced,
        classes=classes(capture, advised, traced),
        tables=page_tables(capture) if capture.has_snapshot else None,
        lines=fragmentation(capture, after=True, machine=setup.machine) if nested else None,
        heat=heat(capture, setup) if traced else None,
        walkers=walkers(capture, setup) if traced else {},
        calibrated=setup.calibration is not None,
        curve=needed_curve(capture, (), setup, replayed),
    )


def walkers(capture: Capture, setup: Setup) -> dict[str, DataFrame]:
    """{"vma", "thread": walks by class}; {} without page tables."""
    from ...analysis.classify import classify

    if not capture.has_snapshot:
        return {}
    return {by: classify(capture, weight="walks", by=by, setup=setup) for by in ("vma", "thread")}


def heat(capture: Capture, setup: Setup) -> DataFrame | None:
    from ...analysis.walk import walk_map

    if not capture.has_snapshot:
        return None
    table = walk_map(capture, setup)
    return table if table["walks"].sum() else None


def classes(capture: Capture, advised: Advised, traced: bool) -> DataFrame:
    """As `classify`: the leaf entries of a capture of several nodes, and the baseline's walks."""
    from pandas import concat

    from ...analysis.classify import classify

    leaves, first = advised.replayed.leaves, advised.replayed.results[0]
    weight = (first.run or "walks") if traced else "leaf" if first.finding(EACH_ONCE) else "heat"
    base = leaves[leaves["policy"] == first.policy]
    walks = base.drop(columns=["policy", "params"]).assign(group="all", weight=weight)
    if not capture.has_snapshot or len(capture.snapshot.topology) < 2:
        return walks
    entries = classify(capture)
    both = concat([entries, walks] if traced else [entries], ignore_index=True)
    both.attrs = walks.attrs
    return both


def call(captures: Sequence[Capture], output: PathLike | None, how: Mapping[str, Any]) -> str:
    """The Python call that makes the page again."""
    shown = [str(capture.directory) for capture in captures]
    parts = [repr(shown[0] if len(shown) == 1 else shown)]
    parts += [repr(str(output))] if output is not None else []
    parts += [f"{key}={getattr(value, 'name', value)!r}" for key, value in how.items() if key != "progress"]
    return f"ptanalyze.report({', '.join(parts)})"


def write(output: PathLike, text: str) -> None:
    """The page as a file, whole or not at all, with the umask's permissions: it holds no physical address."""
    from ...formats.atomic import atomic_write
    from ..plots.style import umask

    with atomic_write(Path(output), given=True) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), 0o666 & ~umask())
