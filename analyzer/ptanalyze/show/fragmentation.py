"""Fragmentation as a view for people, and as a record for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ..analysis.answer import Section
from ..world.fragmentation import Fragmentation
from ..world.world import World

States: TypeAlias = Mapping[str, Fragmentation]  # before, after

NOTHING = "no 4 KiB page that the host maps: nothing to measure"


def view(states: States, shaped: World | None) -> Iterator[Section]:
    asides_of = [f"- {line}" for line in asides(states["before"])]
    if rows := [*rows_of(states, False), *rows_of(states, True)]:
        yield Section("ePT cache lines per gPT cache line; full lines have all eight pages", rows)
        histograms = [*histogram_rows(states, False), *histogram_rows(states, True)]
        yield Section("Share of gPT cache lines that have 1 to 8 ePT cache lines", histograms, asides_of)
    else:
        yield Section(lines=[NOTHING, *asides_of])
    if shaped:
        notes = [f"- {note}" for note in shaped.notes]
        yield Section("Reservations", reservation_rows(shaped.facts), notes)


def fragmentation_record(states: States, shaped: World | None) -> dict[str, Any]:
    facts = {"facts": shaped.facts, "notes": shaped.notes} if shaped else {}
    return {when: record(seen) for when, seen in states.items()} | facts


def record(seen: Fragmentation) -> dict[str, Any]:
    return {
        "all": seen.summary(),
        "full": seen.summary(full=True),
        "histogram": seen.frame().to_dict("records"),
        "huge_leaves": [dict(zip(("2m", "1g"), row, strict=True)) for row in seen.huge.tolist()],
        "unresolved": seen.unresolved.tolist(),
    }


def rows_of(states: States, full: bool) -> list[dict[str, Any]]:
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
