"""Classes of leaf entries as a view for people, and as a record for JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import accumulate
from typing import Any

from ..analysis.answer import Section
from ..analysis.classify import TRACED
from ..analysis.leaf_classes import Classification
from ..core.walks import threads_placed

OF = {  # what a classification counts, by its weight
    "walks": "of walks",
    "samples": "of samples",
    "heat": "of walks estimated from accessed bits",
    "leaf": "of leaf entries",
    "4k": "of 4 KiB pages",
}
TOP = 10  # groups shown
GROUPS = {"vma": "VMAs", "thread": "threads", "process": "processes", "page": "pages"}


def title(weight: str, how: Mapping[str, str]) -> str:
    """`how`: machine and placement of threads; for walks only."""
    if weight == "samples":
        return f"Samples of accesses, {threads_placed(how['placement'])}"
    if weight == "walks":
        return f"Walks of the whole trace on {how['machine']}, {threads_placed(how['placement'])}"
    if weight == "heat":
        return "Walks estimated from samples of accessed bits"
    return f"Mapped {'leaf entries, each once' if weight == 'leaf' else '4 KiB pages'}, as captured"


def view(classes: Classification, title: str, by: str = "all") -> Iterator[Section]:
    without = [f"- without a class: {n:,} {why}" for why, n in classes.unresolved.items() if n]
    if (few := caution(classes)) is not None:
        yield Section(lines=[few])
    counted = OF[classes.weight].removeprefix("of ")
    every = rows_of(classes)
    rows, left = most(every)
    if left:
        half, groups = half_of(every)
        without.append(f"- {left:,} more rows with fewer: --csv has all")
        without.append(f"- half of the {counted}: {half:,} of {groups:,} {GROUPS.get(by, 'rows')}")
    if classes.tracers:
        without.append(f"- not counted: {classes.tracers:,} {counted} of the tracer's own memory")
    rows = [{**row, "of": without_path(row["of"])} for row in rows]
    if not rows:
        yield Section(lines=[f"{title}: nothing to classify", *without])
        return
    if classes.native:
        yield Section(title, rows, without)
    else:
        yield Section(title, rows)
        yield Section(f"gPT and ePT locality together, {OF[classes.weight]}", together_rows(classes), without)


def most(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """(rows of the TOP groups with the largest counts, those first; number of rows left out)."""
    total = totals(rows)
    of: dict[str, list[dict[str, Any]]] = {
        group: [] for group in nlargest(TOP, total, key=lambda one: total[one])
    }
    for row in rows:
        if row["of"] in of:
            of[row["of"]].append(row)
    shown = [row for group in of.values() for row in group]
    return shown, len(rows) - len(shown)


def half_of(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """(how many of the largest groups have half of what is counted, groups)."""
    counts = sorted(totals(rows).values(), reverse=True)
    sums = list(accumulate(counts))
    return bisect_left(sums, sums[-1] / 2) + 1, len(counts)


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    """{group: its count, seen from all sockets}."""
    total: dict[str, int] = {}
    for row in rows:
        total[row["of"]] = total.get(row["of"], 0) + row["count"]
    return total


def without_path(group: str) -> str:
    """A VMA's or page's addresses with the last part of its file's name; other groups as they are."""
    addresses, _, file = group.partition(" ")
    return f"{addresses} {file.rpartition('/')[2]}" if file.startswith("/") else group


def caution(classes: Classification) -> str | None:
    """A line where a tenth or more of what was counted has no class, else None."""
    known = int(classes.by_class().sum())
    if classes.weight not in TRACED:  # each entry is seen from every socket
        known //= max(len(classes.sockets), 1)
    missing = sum(classes.unresolved.values())
    if not missing or missing * 10 < known + missing:
        return None
    what = {"leaf": "entries", "4k": "entries", "samples": "samples"}.get(classes.weight, "walks")
    share = 100 * missing / (known + missing)
    freed = ", most of them of memory that was freed before the dump: see `ptanalyze check`"
    return f"Careful: {share:.0f} % of the {what} below have no class{freed if what != 'entries' else ''}."


def as_record(classes: Classification, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "weight": classes.weight,
        "rows": classes.frame().to_dict("records"),
        "together": [] if classes.native else together_rows(classes),
        "unresolved": classes.unresolved,
        "tracers": classes.tracers,
    }


def together_rows(classes: Classification) -> list[dict[str, Any]]:
    """One row per group and socket: Local-Local, and its share under independent or uniform placement."""
    uniform = 1 / max(len(classes.nodes), 1) ** 2
    return [
        {
            "of": without_path(group),
            "seen from socket": str(socket),
            "Local-Local": ll,
            "if independent": independent,
            "if uniform, 1/N^2": uniform,
            "correlation": None if phi != phi else phi,
        }
        for (group, socket), (ll, independent, phi) in classes.together().items()
    ]


def rows_of(classes: Classification) -> list[dict[str, Any]]:
    """One row per group and socket with the share and number of each class."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for group, socket, kind, count, share, *ends in classes.frame().itertuples(index=False):
        row = rows.setdefault((group, socket), {"of": group, "seen from socket": str(socket), "count": 0})
        row["count"] += int(count)
        low, high = (f"{100 * end:.2f}" for end in ends or (share, share))
        row[kind] = f"{100 * share:.2f} %" + (f" ({low} to {high})" if low != high else "")
    return list(rows.values())
