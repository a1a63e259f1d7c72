"""Classes of leaf entries as a view for people, and as a record for JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import accumulate
from typing import Any, TypeAlias

from ..analysis.answer import Section
from ..analysis.classify import TRACED
from ..analysis.leaf_classes import Classification
from ..core.columns import plain
from ..core.trace import threads_placed
from ..world.reservations import Fragmentation
from ..world.world import World

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


# Fragmentation as a view for people, and as a record for JSON.

States: TypeAlias = Mapping[str, Fragmentation]  # before, after

NOTHING = "no 4 KiB page that the host maps: nothing to measure"


def view_fragmentation(states: States, shaped: World | None) -> Iterator[Section]:
    asides_of = [f"- {line}" for line in asides(states["before"])]
    if rows := [*rows_of_fragmentation(states, False), *rows_of_fragmentation(states, True)]:
        yield Section("ePT cache lines per gPT cache line; full lines have all eight pages", rows)
        histograms = [*histogram_rows(states, False), *histogram_rows(states, True)]
        yield Section("Share of gPT cache lines that have 1 to 8 ePT cache lines", histograms, asides_of)
    else:
        yield Section(lines=[NOTHING, *asides_of])
    if shaped:
        said = [f"- {one.line}" for one in shaped.findings]
        yield Section("Reservations", reservation_rows(shaped.facts), said)


def fragmentation_record(states: States, shaped: World | None) -> dict[str, Any]:
    facts = {"facts": shaped.facts, "findings": plain(shaped.findings)} if shaped else {}
    return {when: record(seen) for when, seen in states.items()} | facts


def record(seen: Fragmentation) -> dict[str, Any]:
    return {
        "all": seen.summary(),
        "full": seen.summary(full=True),
        "histogram": seen.frame().to_dict("records"),
        "huge_leaves": [dict(zip(("2m", "1g"), row, strict=True)) for row in seen.huge.tolist()],
        "unresolved": seen.unresolved.tolist(),
    }


def rows_of_fragmentation(states: States, full: bool) -> list[dict[str, Any]]:
    """One row per group that has lines: number, mean, shares; those after reservations are beside them."""
    before, *later = (seen.summary(full) for seen in states.values())
    rows = []
    for k, row in enumerate(before):
        if row["gPT lines"]:
            named = {"of": row["of"], "lines": "full" if full else "all", "gPT lines": row["gPT lines"]}
            then = {f"{name} after": value for after in later for name, value in metrics(after[k]).items()}
            rows.append(named | metrics(row) | then)
    return rows


def metrics(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "mean": row["mean"],
        "scattered": percent(row["scattered"]),
        "over all 8": percent(row["fully scattered"]),
    }


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def histogram_rows(states: States, full: bool) -> list[dict[str, Any]]:
    """One row per group and state with the share of lines that have 1, 2, ... 8 ePT lines."""
    rows = []
    for when, seen in states.items():
        for group, counts in zip(seen.groups, seen.histogram(full), strict=True):
            if total := counts.sum():
                named = {"of": group, "lines": "full" if full else "all", "state": when}
                rows.append(named | {str(k + 1): percent(n / total) for k, n in enumerate(counts)})
    return rows


def asides(seen: Fragmentation) -> Iterator[str]:
    """Pages without a gPT line or ePT line, one line each."""
    for size, count in zip(("2 MiB", "1 GiB"), seen.huge.sum(axis=0).tolist(), strict=True):
        if count:
            yield f"not measured: {count:,} guest leaves of {size}"
    if missing := int(seen.unresolved.sum()):
        yield f"not measured: {missing:,} gPTEs whose frame the host does not map"


def reservation_rows(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "made": facts["reservations"],
        "reclaimed": facts["reservations_reclaimed"],
        "faults that used a reservation": facts["faults_served_from_a_reservation"],
        "faults without a block": facts["faults_without_a_block"],
        "pages that stay": facts["pages_kept"],
        "unused, peak": f"{mib(facts['unused_bytes_peak'])}, {100 * facts['unused_share_at_peak']:.2f} % "
        "of the memory mapped then",
        "unused, mean": mib(facts["unused_bytes_mean"]),
        "unused, end": f"{mib(facts['unused_bytes_end'])}, {100 * facts['unused_share_end']:.2f} %",
    }


def mib(size: float) -> str:
    return f"{size / (1 << 20):,.2f} MiB"
