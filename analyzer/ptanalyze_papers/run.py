"""Rows of all papers, or a selection."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from textwrap import wrap
from typing import Any

from pandas import DataFrame

import ptanalyze as pt

from .bench import bench
from .row import (
    DEFINITION,
    JUDGED,
    KINDS,
    WITHIN,
    Paper,
    Row,
    Rows,
    baselines,
    published,
    ratios,
    rivals,
    tally,
)

# paper -> module of this package that has its FIGURES: {figure or table: function(bench) that yields Rows}
PAPERS = {name: name for name in ("vmitosis", "mitosis", "hydra", "ptemagnet", "ports")}
PLACE = re.compile(r"(figure|table) \d+", re.IGNORECASE)


def validate(
    papers: Sequence[str] = (),
    wanted: str = "",
    quick: bool = False,
    progress: pt.process.Progress = None,
) -> list[tuple[Paper, list[Row]]]:
    """[(Paper, [Row])], an item per paper.

    papers    names of PAPERS, all where empty
    wanted    keep rows whose place or quantity has this text, in any case
    progress  called with (done, total, "figures")
    Raises UsageError for an unknown paper, and where no row has the wanted text.
    """
    for name in papers:
        if name not in PAPERS:
            raise pt.UsageError(f"--paper {name}: choose from {', '.join(PAPERS)}")
    jobs = [(name, run) for name in papers or PAPERS for _, run in figures(name, wanted)]
    rows_of: dict[str, list[Row]] = {}
    with bench(quick) as workshop:
        for done, (name, run) in enumerate(jobs):
            if progress:
                progress(done, len(jobs), "figures")
            if name not in rows_of:  # figures of a paper share their captures
                workshop.clear()
            rows_of.setdefault(name, []).extend(row for row in run(workshop) if row.figure.says(wanted))
    kept = [(published(name), rows) for name, rows in rows_of.items() if rows]
    if not kept:
        raise pt.UsageError(
            f"--row {wanted}: no row has that in its place or quantity; see `ptanalyze validate`"
        )
    return kept


def figures(name: str, wanted: str = "") -> list[tuple[str, Rows]]:
    """[(title, function)] of a paper: for "Figure 2" or "Table 5" those, for "pr, ..." that one, else all."""
    every: list[tuple[str, Rows]] = list(import_module(f".{PAPERS[name]}", __package__).FIGURES.items())
    place, named = PLACE.match(wanted), wanted.partition(",")[0].casefold()
    return [
        figure for figure in every if (alike(figure[0], place) if place else figure[0].casefold() == named)
    ] or every


def alike(title: str, place: re.Match[str]) -> bool:
    match = PLACE.match(title)
    return match is not None and match[0].casefold() == place[0].casefold()


# Rows for people and for programs.


def flat(row: Row) -> dict[str, pt.columns.Cell]:
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
        "inside": row.inside if row.counts else None,
        "holds": row.holds,
        "kind": row.kind,
        "prediction": row.prediction or figure.name,
        "configuration_mean": row.mean,
        "constant_speed_up": row.constant,
        "basu": row.basu,
        "line": row.line,
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
    apart = {kind: tally(some) for kind, some in by_kind(rows).items()}
    known = {"summary": tally(rows), "by_kind": apart, "ratios": tally(ratios(rows))}
    return known | {"baselines": baselines(rows), "rivals": rivals(rows)}


def by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """{kind: its rows} of what is judged, kinds without rows left out."""
    found = {kind: [row for row in rows if row.kind == kind] for kind in JUDGED}
    return {kind: some for kind, some in found.items() if some}


def sections(
    results: Sequence[tuple[Paper, list[Row]]], further: pt.columns.Section | None = None
) -> Iterator[pt.columns.Section]:
    """A sentence, errors by kind of evidence, rows by paper and figure with their notes, errors by paper."""
    every = [row for _, rows in results for row in rows]
    yield pt.columns.Section(lines=[sentence(every), ""])
    judged = {kind: some for kind, some in by_kind(every).items() if tally(some)["judged"]}
    apart = [close(kind, some) for kind, some in judged.items()]
    if apart:
        yield pt.columns.Section("Errors by kind of evidence", apart, [EFFECT, ""])
    for paper, rows in results:
        could_fail = [row for row in rows if row.kind != DEFINITION]
        notes = list(dict.fromkeys(row.note for row in could_fail if row.note))
        lines = list(by_figure(could_fail, notes)) if could_fail else []
        if left_out := len(rows) - len(could_fail):
            lines += [
                f"{pt.errors.plural(left_out, 'row')} left out that cannot fail, by definition: --csv has all"
            ]
        lines += ["", *(f"({k}) {note}" for k, note in enumerate(notes, 1)), ""]
        yield pt.columns.Section(f"{paper.paper}: {paper.citation}", [], lines)
    named = [(paper.paper, rows) for paper, rows in results]
    if len(named) > 1:
        named.append(("all", every))
        yield pt.columns.Section(
            "Errors by paper", [close(*part) for name, rows in named for part in parts(name, rows)]
        )
    yield pt.columns.Section("Rows by kind of evidence", [kinds(*paper_rows) for paper_rows in named], [])
    beside = [{"paper": name, **compared(judged)} for name, rows in named for judged in baselines(rows)]
    if beside:
        yield pt.columns.Section("Beside two baselines, on the rows that have them", beside, [])
    against = [{"paper": name, **compared(one)} for name, rows in named for one in rivals(rows)]
    if against:
        yield pt.columns.Section("The law beside its rivals, from the same runs", against, [])
    if further is not None:
        yield pt.columns.Section(lines=[""])
        yield further


def by_figure(rows: Sequence[Row], notes: list[str]) -> Iterator[str]:
    """Lines of 80 columns: the place of a figure or table, and below it each quantity above its numbers."""
    above = ""
    yield NUMBER
    yield numbers("published", "ours", "error", "kind (note)")
    for row in rows:
        if row.figure.where != above:
            above = row.figure.where
            yield above
        yield from wrap(row.figure.quantity, WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield numbers(*shown(row, notes))


def numbers(published: str, ours: str, error: str, kind: str) -> str:
    return f"    {published:<15} {ours:<22} {error:>8}  {kind}"


WIDTH = 80  # columns of a first screen
EFFECT = "- errors are relative to the effect, a ratio less 1, and count predictions that could have failed"
NUMBER = "    error of a row: (ours - published) / published, relative to the number itself"


def sentence(rows: Sequence[Row]) -> str:
    """How far the predictions among Rows are off, and how many there are."""
    known = tally(rows)
    judged, off = known["judged"], known["median_error"]
    if not judged or off is None:
        counts = f"{pt.errors.plural(len(rows), 'row')}, {pt.errors.plural(judged, 'prediction')}"
        return f"No error to judge by: {counts}."
    return (
        f"Of {pt.errors.plural(judged, 'prediction')}, {known['within_10']} are within 10 % "
        f"of the measured effect, {known['within_50']} within 50 %; the median error is {100 * off:.0f} %."
    )


def shown(row: Row, notes: list[str]) -> tuple[str, str, str, str]:
    figure = row.figure
    note = f" ({notes.index(row.note) + 1})" if row.note else ""
    return (
        f"{figure.bound} {plain(figure.value)} {figure.unit}".strip(),
        "-" if row.ours is None else f"{plain(row.ours.middle)}{span(row.ours)}",
        verdict(row),
        f"{row.kind}{note}",
    )


def plain(value: float) -> str:
    """At least four significant digits: nothing is rounded to fit."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def span(ours: pt.Interval) -> str:
    return "" if ours.low == ours.high else f" ({plain(ours.low)}-{plain(ours.high)})"


def verdict(row: Row) -> str:
    if row.holds is not None:
        return "holds" if row.holds else "does not hold"
    missed = row.without_width and row.counts and not row.inside
    return "-" if row.error is None else f"{100 * row.error:+z.1f} %" + ", no width" * missed


def kinds(name: str, rows: Sequence[Row]) -> dict[str, pt.columns.Cell]:
    counted = tally(rows)
    return {"paper": name, "rows": counted["rows"]} | {kind: counted[kind] for kind in KINDS}


def close(name: str, rows: Sequence[Row]) -> dict[str, pt.columns.Cell]:
    counted = tally(rows)
    within = {f"within {100 * s:.0f} %": counted[f"within_{100 * s:.0f}"] for s in (WITHIN[0], WITHIN[-1])}
    return {
        "rows": name,
        "judged": counted["judged"],
        **within,
        "median error": share(counted["median_error"]),
        "inside interval": f"{counted['inside']} of {counted['intervals']}",
        "its median width": share(counted["width"]),
    }


def parts(name: str, rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """[(name, rows)]: all rows, and the ratios among them where there are any."""
    return [(name, rows)] + [(f"{name}, ratios alone", some) for some in [ratios(rows)] if some]


def compared(baseline: dict[str, Any]) -> dict[str, pt.columns.Cell]:
    return {"who": baseline["who"], "rows": baseline["rows"]} | errors(baseline)


def errors(counted: dict[str, Any]) -> dict[str, pt.columns.Cell]:
    names = ("mean", "median", "max")
    return {f"{n} error": share(counted[f"{n}_error"]) for n in names}


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def published_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of flat, published figures beside ours: a missing number is NaN."""
    plain = ("published", "low", "ours", "high", "error", "configuration_mean", "constant_speed_up")
    names = (*plain, "basu", "line")
    return pt.columns.described(DataFrame(list(rows)).astype(dict.fromkeys(names, float)))
