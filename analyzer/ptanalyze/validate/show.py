"""Rows for people and for programs."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..analysis.answer import Cell, Section
from ..core.interval import Interval
from .published import Paper
from .row import KINDS, Row
from .tally import WITHIN, baselines, ratios, tally


def flat(row: Row) -> dict[str, Cell]:
    """{column: value}: a flat row; error is a signed share, None without a published or own number."""
    figure, ours = row.figure, row.ours
    return {
        "paper": figure.paper,
        "name": figure.name,
        "where": figure.where,
        "quantity": figure.quantity,
        "unit": figure.unit,
        "bound": figure.bound,
        "published": figure.value,
        "read": figure.read,
        "low": None if ours is None else ours.low,
        "ours": None if ours is None else ours.middle,
        "high": None if ours is None else ours.high,
        "error": row.error,
        "effect_error": row.effect_error,
        "judged": row.counts,
        "holds": row.holds,
        "kind": row.kind,
        "configuration_mean": row.mean,
        "constant_speed_up": row.constant,
        "note": row.note,
    }


def summary(results: Sequence[tuple[Paper, Sequence[Row]]]) -> dict[str, object]:
    """Everything for programs: rows by paper, and their errors, by paper and over all."""
    every = [row for _, rows in results for row in rows]
    papers = [
        {"paper": paper.paper, "citation": paper.citation, "rows": [flat(row) for row in rows]} | counts(rows)
        for paper, rows in results
    ]
    return {"papers": papers, **counts(every)}


def counts(rows: Sequence[Row]) -> dict[str, object]:
    return {"summary": tally(rows), "ratios": tally(ratios(rows)), "baselines": baselines(rows)}


def sections(results: Sequence[tuple[Paper, list[Row]]]) -> Iterator[Section]:
    """A table per paper with its notes, and errors of the rows: by paper and over all."""
    for paper, rows in results:
        notes = list(dict.fromkeys(row.note for row in rows if row.note))
        lines = [*(f"({number}) {note}" for number, note in enumerate(notes, 1)), ""]
        yield Section(f"{paper.paper}: {paper.citation}", [shown(row, notes) for row in rows], lines)
    every = [row for _, rows in results for row in rows]
    named = [(paper.paper, rows) for paper, rows in results]
    if len(named) > 1:
        named.append(("all", every))
    yield Section("Rows by kind of evidence", [kinds(*paper_rows) for paper_rows in named], [])
    title = "Errors of the effect (a ratio less 1), of predictions that could have failed; in x: ratios alone"
    yield Section(title, [close(*part) for name, rows in named for part in parts(name, rows)], [])
    beside = [{"paper": name, **compared(judged)} for name, rows in named for judged in baselines(rows)]
    if beside:
        yield Section("Beside two baselines, on the rows that have them", beside, [])


def shown(row: Row, notes: list[str]) -> dict[str, Cell]:
    figure = row.figure
    return {
        "where": figure.where,
        "quantity": figure.quantity,
        "published": f"{figure.bound} {plain(figure.value)} {figure.unit}".strip(),
        "ours": "-" if row.ours is None else plain(row.ours.middle),
        "from .. to": span(row.ours),
        "error": verdict(row),
        "kind": row.kind,
        "note": f"({notes.index(row.note) + 1})" if row.note else "",
    }


def plain(value: float) -> str:
    """At least four significant digits: nothing is rounded to fit."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def span(ours: Interval | None) -> str:
    return "" if ours is None or ours.low == ours.high else f"{plain(ours.low)} .. {plain(ours.high)}"


def verdict(row: Row) -> str:
    if row.holds is not None:
        return "holds" if row.holds else "does not hold"
    return "-" if row.error is None else f"{100 * row.error:+.1f} %"


def kinds(name: str, rows: Sequence[Row]) -> dict[str, Cell]:
    counted = tally(rows)
    return {"paper": name, "rows": counted["rows"]} | {kind: counted[kind] for kind in KINDS}


def close(name: str, rows: Sequence[Row]) -> dict[str, Cell]:
    counted = tally(rows)
    within = {f"within {s:.0%}": counted[f"within_{100 * s:.0f}"] for s in WITHIN}
    inside = {
        "inside interval": f"{counted['inside']} of {counted['intervals']}",
        "its median width": share(counted["width"]),
        "median error as a ratio": share(counted["ratio_median_error"]),
    }
    return {"paper": name, "judged": counted["judged"]} | within | errors(counted) | inside


def parts(name: str, rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """[(name, rows)]: all rows, and the ratios among them where there are any."""
    return [(name, rows)] + [(f"{name}, in x", some) for some in [ratios(rows)] if some]


def compared(baseline: dict[str, Any]) -> dict[str, Cell]:
    return {"who": baseline["who"], "rows": baseline["rows"]} | errors(baseline)


def errors(counted: dict[str, Any]) -> dict[str, Cell]:
    names = ("mean", "median", "max")
    return {f"{n} error": share(counted[f"{n}_error"]) for n in names}


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
