"""Classes of leaf entries as a view for people, and as a record for JSON."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from ..analysis.classify import TRACED
from ..analysis.leaf_classes import Classification
from ..core.columns import Section, plain
from ..core.trace import threads_placed
from ..world.reservations import Fragmentation
from ..world.scenario import Scenario
from .terminal import percent

OF = {  # what a classification counts, by its weight
    "walks": "of walks",
    "samples": "of samples",
    "heat": "of walks estimated from accessed bits",
    "leaf": "of leaf entries",
    "4k": "of 4 KiB pages",
}
TOP = 10  # groups shown, of those with more than FEW of what is counted
FEW = 0.001
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


NAMES = {  # of rows, by weight
    "walks": "page walks",
    "samples": "samples",
    "heat": "page walks",
    "leaf": "leaf entries",
    "4k": "4 KiB pages",
}
ALL_LOCAL = "Moving or copying page tables gains nothing while the threads stay there."


def view(
    found: Sequence[tuple[Classification, str]], by: str = "all", further: Section | None = None
) -> Iterator[Section]:
    """A sentence, a table, what was not counted, and what to type next.

    found  (Classification, its title) of each weight; by: as of classify
    """
    counted = [(classes, named) for classes, named in found if classes.by_class().any()]
    cautions = [few for classes, _ in found if (few := caution(classes)) is not None]
    if counted:
        yield Section(lines=[*cautions, sentence(counted[-1][0]), ""])
    else:
        yield Section(lines=cautions)
    if by == "all" and counted:
        rows = [row for classes, _ in counted for row in rows_of(classes, "counted", NAMES[classes.weight])]
        lines = [f"- {named}" for _, named in counted]
        lines += [f"- {jointly(classes)}" for classes, _ in counted[-1:] if not classes.native]
        yield Section("", rows, [*lines, *(line for classes, _ in found for line in asides_of(classes))])
    elif counted:
        for classes, named in counted:
            rows, lines = largest(classes, by)
            yield Section(named, rows, [*lines, *asides_of(classes)])
    for classes, named in found:
        if not classes.by_class().any():
            yield Section(
                lines=[f"{named}: nothing to classify", *(asides_of(classes) if not counted else ())]
            )
    if further is not None:
        yield Section(lines=[""])
        yield further


def sentence(classes: Classification) -> str:
    """The share of what was counted that has a remote leaf entry."""
    counts = classes.by_class().sum(axis=(0, 1))
    remote, total = int(counts[1:].sum()), int(counts.sum())
    if len(classes.nodes) == 1 and not remote:
        return "Every leaf entry is local: the captured machine has one NUMA node."
    how = {
        "walks": "of the page walks read a remote leaf entry",
        "heat": "of the page walks, estimated from accessed bits, read a remote leaf entry",
        "samples": "of the sampled accesses have a remote leaf entry",
        "leaf": "of the leaf entries are remote, on average over the sockets",
        "4k": "of the 4 KiB pages have a remote leaf entry, on average over the sockets",
    }[classes.weight]
    both = "" if classes.native or not remote else f", {percent(counts[3] / total)} in both gPT and ePT"
    said = f"{percent(remote / total)} {how}{both}."
    return said if remote else f"{said} {ALL_LOCAL}"


def jointly(classes: Classification) -> str:
    """How often the leaf entries of both dimensions are local together, beside chance."""
    together = list(classes.together().values())
    ll, chance = (sum(one[k] for one in together) / len(together) for k in (0, 1))
    return (
        f"gPT and ePT leaf entries are local together for {percent(ll)} {OF[classes.weight]}; "
        f"independent placement would give {percent(chance)}"
    )


def largest(classes: Classification, by: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows of the groups with the largest counts, lines on the others)."""
    every = rows_of(classes)
    rows, left = most(every)
    if not left:
        return rows, []
    half, groups = half_of(every)
    counted = OF[classes.weight].removeprefix("of ")
    return rows, [
        f"- {left:,} more rows with fewer: --csv has all",
        f"- half of the {counted}: {half:,} of {groups:,} {GROUPS.get(by, 'rows')}",
    ]


def asides_of(classes: Classification) -> Iterator[str]:
    """What has no class, and what was not counted."""
    for why, count in classes.unresolved.items():
        if count:
            yield f"- without a class: {count:,} {why}"
    if classes.tracers:
        counted = OF[classes.weight].removeprefix("of ")
        yield f"- not counted: {classes.tracers:,} {counted} of the tracer's own memory"


def most(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """(rows of the TOP groups with the largest counts, those first; number of rows left out)."""
    total = totals(rows)
    first, *others = nlargest(TOP, total, key=lambda one: total[one]) or [""]
    least = FEW * sum(total.values())
    of: dict[str, list[dict[str, Any]]] = {
        group: [] for group in (first, *(one for one in others if total[one] > least))
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


def rows_of(classes: Classification, head: str = "of", name: str = "") -> list[dict[str, Any]]:
    """One row per group and socket with the share and number of each class.

    head  of the groups' column; name: instead of each group's
    """
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for group, socket, kind, count, share, *ends in classes.frame().itertuples(index=False):
        row = rows.setdefault(
            (group, socket), {head: name or without_path(group), "from socket": str(socket), "count": 0}
        )
        row["count"] += int(count)
        low, high = (percent(end).removesuffix(" %") for end in ends or (share, share))
        row[kind] = percent(share) + (f" ({low}-{high})" if low != high else "")
    return list(rows.values())


# Fragmentation as a view for people, and as a record for JSON.

States: TypeAlias = Mapping[str, Fragmentation]  # before, after

WHEN = {"before": "As captured,", "after": "With reservations,"}
FULL = "- full: gPT cache lines with all eight pages mapped"
NOTHING = "no 4 KiB page that the host maps: nothing to measure"


def view_fragmentation(
    states: States, shaped: Scenario | None, further: Section | None = None
) -> Iterator[Section]:
    """A sentence, a table of shares, what reservations cost, and what to type next."""
    aside = [f"- {line}" for line in asides(states["before"])]
    if rows := [*histogram_rows(states, False), *histogram_rows(states, True)]:
        yield Section(lines=[*map(fragmentation_sentence, *zip(*states.items(), strict=True)), ""])
        yield Section("gPT cache lines by the number of their ePT cache lines, in %", rows, [FULL, *aside])
    else:
        yield Section(lines=[NOTHING, *aside])
    if shaped:
        said = [f"- {one.line}" for one in shaped.findings]
        yield Section("Reservations", reservation_rows(shaped.facts), said)
    if further is not None:
        yield Section(lines=[""])
        yield further


def fragmentation_sentence(when: str, seen: Fragmentation) -> str:
    """Over how many lines the host's entries are scattered."""
    counts = seen.histogram(False).sum(axis=0)
    total = int(counts.sum())
    mean = float(counts @ np.arange(1, len(counts) + 1)) / total
    return (
        f"{WHEN[when]} the entries of a gPT cache line are backed by {mean:.2f} ePT cache lines on average "
        f"(1 to 8): {percent(1 - counts[0] / total)} of the lines are scattered."
    )


def fragmentation_record(states: States, shaped: Scenario | None) -> dict[str, Any]:
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


def histogram_rows(states: States, full: bool) -> list[dict[str, Any]]:
    """One row per group and state with the mean, and the share of lines that have 1, 2, ... 8 ePT lines."""
    rows = []
    for when, seen in states.items():
        for row, counts in zip(seen.summary(full), seen.histogram(full), strict=True):
            if total := counts.sum():
                named = {"of": row["of"]} if len(seen.groups) > 1 else {}
                named |= {"lines": "full" if full else "all"}
                named |= {"state": when} if len(states) > 1 else {}
                named |= {"count": row["gPT lines"], "mean": f"{row['mean']:.2f}"}
                shares = [percent(n / total).removesuffix(" %") for n in counts.tolist()]
                rows.append(named | {str(k): share for k, share in enumerate(shares, 1)})
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
