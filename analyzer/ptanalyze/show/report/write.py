"""One HTML page about captures: everything found of them, in words, tables and figures."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.progress import Progress
from ...formats.capture import CaptureLike, PathLike, load

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...analysis.replayed import Advised
    from ...formats.capture import Capture
    from .study import Study

WINDOWS = 20  # of the picture over time


def report(
    captures: CaptureLike | Sequence[CaptureLike] = None, output: PathLike | None = None, **how: Any
) -> str:
    """One HTML page about one capture or several, as text; with `output`, FILE.html, also written there.

    It holds the advice, how sure it is, where page walks go, what each policy would change and cost, and what
    the numbers come from; its tables sort and filter. It loads nothing from anywhere.

    how  arguments of `advise`
    """
    from .page import Page, html

    if output is not None:
        must_be_writable(output)
    several = isinstance(captures, Sequence) and not isinstance(captures, str)
    asked = cast("Sequence[CaptureLike]", captures if several else [captures])
    opened = [load(one) for one in asked]
    text = html(Page(studies(opened, **how), call(opened, output, how)))
    if output is not None:
        write(output, text)
    return text


def studies(captures: Sequence[Capture], **how: Any) -> list[Study]:
    """A Study of each capture, replayed once; captures of one name are called by their paths."""
    names = Counter(name_of(one) for one in captures)
    called = [name_of(one) if names[name_of(one)] == 1 else str(one.directory) for one in captures]
    return [
        study(
            one, name, **{**how, "progress": naming(how.get("progress"), name if len(captures) > 1 else "")}
        )
        for one, name in zip(captures, called, strict=True)
    ]


def naming(progress: Progress, name: str) -> Progress:
    """Progress whose bars say of which capture they are."""
    if progress is None:
        return None
    tell = progress
    return lambda done, total, what: tell(done, total, f"{name}: {what}")


def name_of(capture: Capture) -> str:
    return Path(capture.directory).resolve().name


def study(capture: Capture, name: str, **how: Any) -> Study:
    """All that the page says of a capture; CaptureError where its files are not as they were sealed."""
    from ...analysis.captures import fragmentation, page_tables
    from ...analysis.replays import advise
    from ...capture.check import FAILED, check_capture
    from ...capture.describe import describe
    from ...core.errors import CaptureError
    from .study import Study

    findings = list(check_capture(capture))
    files = findings[0]
    if files.verdict == FAILED:
        raise CaptureError(capture.directory, "damaged files", files.wrong, files.reason)
    found = advise(capture, windows=WINDOWS if capture.has_trace else 0, **how)
    seen = found.replayed
    nested = capture.has_snapshot and not capture.snapshot.native
    machine = {"machine": how["machine"]} if "machine" in how else {}
    return Study(
        name=name,
        facts=describe(capture),
        findings=findings,
        results=seen.results,
        ranked=found.frame,
        reads=seen.reads,
        leaves=seen.leaves,
        calls=seen.calls,
        timeline=seen.timeline,
        sentence=found.sentence,
        workload=found.workload,
        evidence=found.evidence,
        refused=found.refused,
        classes=classes(capture, found),
        tables=page_tables(capture) if capture.has_snapshot else None,
        lines=fragmentation(capture, after=True, **machine) if nested else None,
        calibrated=how.get("calibration") is not None,
    )


def classes(capture: Capture, found: Advised) -> DataFrame:
    """As of `classify`: the leaf entries of a capture of several nodes, and the baseline's walks."""
    from pandas import concat

    from ...analysis.captures import classify

    leaves = found.replayed.leaves
    base = leaves[leaves["policy"] == found.replayed.results[0].policy]
    walks = base.drop(columns=["policy", "params"]).assign(group="all", weight="walks")
    if not capture.has_snapshot or len(capture.snapshot.topology) < 2:
        return walks
    entries = classify(capture)
    both = concat([entries, walks] if capture.has_trace else [entries], ignore_index=True)
    both.attrs = walks.attrs
    return both


def call(captures: Sequence[Capture], output: PathLike | None, how: Mapping[str, Any]) -> str:
    """What to type in Python to get the page again."""
    shown = [str(one.directory) for one in captures]
    parts = [repr(shown[0] if len(shown) == 1 else shown)]
    parts += [repr(str(output))] if output is not None else []
    parts += [f"{key}={getattr(value, 'name', value)!r}" for key, value in how.items() if key != "progress"]
    return f"ptanalyze.report({', '.join(parts)})"


def must_be_writable(output: PathLike) -> None:
    """UsageError for another ending, or a directory that is not there: to be asked before long work."""
    from ...core.errors import UsageError

    path = Path(output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {output}: a report is HTML; name it FILE.html")
    if not path.parent.is_dir():
        raise UsageError(f"-o {output}: there is no directory {path.parent}; make it first")
    if path.is_dir():
        raise UsageError(f"-o {output}: is a directory; name a file in it")


def write(output: PathLike, text: str) -> None:
    """The page as a file, whole or not at all, with the umask's permissions: it holds no physical address."""
    from ...formats.atomic import atomic_write
    from ..plots.files import umask

    with atomic_write(Path(output)) as file:
        file.write(text.encode())
        os.fchmod(file.fileno(), 0o666 & ~umask())
