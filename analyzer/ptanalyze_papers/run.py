"""Rows of all papers, or a selection, how far they are off, and how they are printed."""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import product
from statistics import mean, median
from textwrap import wrap
from typing import Any

from pandas import DataFrame

import ptanalyze as pt

from .bench import bench
from .row import JUDGED, KINDS, LAW, LEAST_EFFECT, NOT_REPRODUCIBLE, Row, Rows, flat, published

# a module of this package with FIGURES, {figure or table: function(bench) that yields Rows}, and their file
PAPERS = ("vmitosis", "mitosis", "hydra", "ptemagnet", "ports")
PLACE = re.compile(r"(figure|table) \d+", re.IGNORECASE)


def validate(
    papers: Sequence[str] = (), wanted: str = "", quick: bool = False, progress: pt.process.Progress = None
) -> DataFrame:
    """Table of row.flat, a row per published number.

    papers    names of PAPERS, all where empty
    wanted    keep rows whose place or quantity has this text, in any case
    progress  called with (done, total, "figures")
    Raises UsageError for an unknown paper, and where no row has the wanted text.
    """
    for name in papers:
        if name not in PAPERS:
            raise pt.UsageError(f"--paper {name}: choose from {', '.join(PAPERS)}")
    jobs = [(name, run) for name in papers or PAPERS for _, run in figures(name, wanted)]
    rows: dict[str, list[Row]] = {}
    with bench(quick) as workshop:
        for done, (name, run) in enumerate(jobs):
            if progress:
                progress(done, len(jobs), "figures")
            if name not in rows:  # figures of a paper share their captures
                workshop.clear()
            rows.setdefault(name, []).extend(run(workshop))
    for name, given in rows.items():
        paper, names = published(name), {row.name for row in given}
        missing = (of.name for of in paper.figure if of.kind == NOT_REPRODUCIBLE and of.name not in names)
        given += map(paper.row, missing)
    kept = [flat(row) for of in rows.values() for row in of if row.says(wanted)]
    if not kept:
        raise pt.UsageError(
            f"--row {wanted}: no row has that in its place or quantity; see `ptanalyze validate`"
        )
    numbers = ("published", "low", "ours", "high", "error", "effect_error", "basu", "line")
    return pt.columns.described(DataFrame(kept).astype(dict.fromkeys(numbers, float)))


def figures(name: str, wanted: str = "") -> list[tuple[str, Rows]]:
    """[(title, function)] of a paper: for "Figure 2" or "Table 5" those, for "pr, ..." that one, else all."""
    every: list[tuple[str, Rows]] = list(import_module(f".{name}", __package__).FIGURES.items())
    place, named = PLACE.match(wanted), wanted.partition(",")[0].casefold()

    def asked(title: str) -> bool:
        there = PLACE.match(title)
        if place is None or there is None:
            return place is None and title.casefold() == named
        return there[0].casefold() == place[0].casefold()

    return [(title, run) for title, run in every if asked(title)] or every


# Errors of rows, summed up: only rows that could have failed are judged, and a prediction only once.

WITHIN = (0.10, 0.25, 0.50)
RIVALS = {"basu": "Basu", "line": "the line through two runs"}  # of the law


def tally(table: DataFrame) -> dict[str, Any]:
    """{quantity: count or share} of rows of `validate`.

    rows, and a count per kind; judged: predictions that are judged, each once; small, both_small: ratios
    among them whose published effect is below LEAST_EFFECT, and those of ours that are below it, too; without
    these, within_10, within_25, within_50: by the error of the effect; no_error: without a relative error
    (published 0); mean_error, median_error, max_error: of the effect, absolute; ratio_median_error: of all
    ratios as such; intervals, inside: judged rows whose number is an interval, and those that hold the
    published number; without_width: intervals from a number to itself; width: the median interval's, of the
    published effect. Bounds count for nothing.
    """
    judged = predictions(table)
    small = judged[of_small_effect(judged)]
    large = judged.drop(small.index)
    errors = large["effect_error"].abs().dropna().tolist()
    plain = judged["error"].abs().dropna().tolist()
    spans = judged[judged["inside"].notna()]
    wide = spans[~of_small_effect(spans) & (spans["published"] != 0)]
    widths = ((wide["high"] - wide["low"]) / (wide["published"] - (wide["unit"] == "x")).abs()).tolist()
    return {
        "rows": len(table),
        **{kind: int((table["kind"] == kind).sum()) for kind in KINDS},
        "judged": len(judged),
        "small": len(small),
        "both_small": int(((small["ours"] - 1).abs() < LEAST_EFFECT).sum()),
        "no_error": len(large) - len(errors),
        **{f"within_{100 * share:.0f}": sum(e <= share for e in errors) for share in WITHIN},
        **spread(errors),
        "ratio_median_error": median(plain) if plain else None,
        "intervals": len(spans),
        "inside": sum(spans["inside"].tolist()),
        "without_width": int((spans["low"] == spans["high"]).sum()),
        "width": median(widths) if widths else None,
    }


def of_small_effect(table: DataFrame) -> Any:
    """Whether each row is a ratio whose published effect is noise: an error relative to it says nothing."""
    return (table["unit"] == "x") & ((table["published"] - 1).abs() < LEAST_EFFECT)


def predictions(table: DataFrame) -> DataFrame:
    """The rows that are judged; of rows with one prediction, the one that it misses most.

    Two figures of a paper often show one configuration, and one number of ours stands beside both. Equal
    numbers for different configurations are predictions of their own.
    """
    judged = table[table["judged"]]
    worst = judged["effect_error"].abs().fillna(float("inf")).sort_values(ascending=False, kind="stable")
    alike = judged.loc[worst.index, ["paper", "prediction", "low", "ours", "high"]].duplicated()
    return judged[~alike.sort_index()]


def spread(errors: Sequence[float]) -> dict[str, float | None]:
    """{mean, median, max} of absolute errors, None without any."""
    of = (mean(errors), median(errors), max(errors)) if errors else (None,) * 3
    return dict(zip(("mean_error", "median_error", "max_error"), of, strict=True))


def rivals(table: DataFrame) -> list[dict[str, Any]]:
    """[{who, rows, mean_error, median_error, max_error}]: each law and its rivals, in errors of the effect on
    the rows that have them; empty without any."""
    comparable = predictions(table)
    comparable = comparable[comparable["error"].notna() & ~of_small_effect(comparable)]
    lines = []
    for law, (name, title) in product(KINDS, RIVALS.items()):
        same = comparable[comparable[name].notna() & (comparable["kind"] == law)]
        rival = title if law == LAW else f"{title}, beside {law}"
        for who, ours in ((f"{law}, beside {title}", same["ours"]), (rival, same[name])):
            if len(same):
                errors = ((ours - same["published"]) / (same["published"] - 1)).abs().tolist()
                lines.append({"who": who, "rows": len(same), **spread(errors)})
    return lines


# Rows for people and for programs.


def summary(table: DataFrame) -> dict[str, object]:
    """Everything for programs: rows by paper, and their errors, by paper and over all."""
    papers = [
        {
            "paper": paper,
            "citation": published(paper.casefold()).citation,
            "rows": rows.astype(object).where(rows.notna(), None).to_dict("records"),
            **counts(rows),
        }
        for paper, rows in table.groupby("paper", sort=False)
    ]
    return {"papers": papers, **counts(table)}


def counts(table: DataFrame) -> dict[str, object]:
    return {"summary": tally(table), "by_kind": by_kind(table), "rivals": rivals(table)}


def by_kind(table: DataFrame) -> dict[str, dict[str, Any]]:
    """{kind: tally of its rows} of what is judged, kinds without such rows left out."""
    apart = {kind: tally(table[table["kind"] == kind]) for kind in JUDGED}
    return {kind: counted for kind, counted in apart.items() if counted["rows"]}


def sections(table: DataFrame, further: pt.columns.Section) -> Iterator[pt.columns.Section]:
    """A sentence, errors by kind of evidence, rows by paper and figure with their notes, errors by paper."""
    yield pt.columns.Section(lines=[*sentence(tally(table)).splitlines(), ""])
    apart = [close(kind, counted) for kind, counted in by_kind(table).items() if counted["judged"]]
    if apart:
        yield pt.columns.Section("Errors by kind of evidence", apart, [EFFECT, ""])
    by_paper = list(table.groupby("paper", sort=False))
    for paper, rows in by_paper:
        notes = list(dict.fromkeys(note for note in rows["note"] if note))
        lines = [*by_figure(rows, notes), "", *(f"({k}) {note}" for k, note in enumerate(notes, 1)), ""]
        yield pt.columns.Section(f"{paper}: {published(paper.casefold()).citation}", [], lines)
    if len(by_paper) > 1:
        by_paper.append(("all", table))
        yield pt.columns.Section("Errors by paper", [close(name, tally(rows)) for name, rows in by_paper])
    against = [
        {"paper": name, "who": line["who"], "rows": line["rows"]}
        | {f"{of} error": percent(line[f"{of}_error"]) for of in ("mean", "median", "max")}
        for name, rows in by_paper
        for line in rivals(rows)
    ]
    if against:
        yield pt.columns.Section("The law beside its rivals, from the same runs", against, [])
    yield pt.columns.Section(lines=[""])
    yield further


WIDTH = 80  # columns of a first screen
EFFECT = "- of predictions that could have failed: no bounds, and errors of effects of 5 % or more alone"
NUMBER = "    error: (ours - published) / effect: a ratio (x) less 1, at least 5 %\n    (below 1: inverted)"
LINE = "    {:<15} {:<22} {:>8}  {}"


def by_figure(table: DataFrame, notes: list[str]) -> Iterator[str]:
    """Lines of 80 columns: the place of a figure or table, and below it each quantity above its numbers."""
    above = ""
    yield from NUMBER.splitlines()
    yield LINE.format("published", "ours", "error", "kind (note)")
    for row in table.itertuples():
        if row.where != above:
            above = row.where
            yield above
        yield from wrap(row.quantity, WIDTH, initial_indent="  ", subsequent_indent="  ")
        ours = "-" if row.ours != row.ours else plain(row.ours)
        if row.low < row.high:
            ours += f" ({plain(row.low)}-{plain(row.high)})"
        note = f" ({notes.index(row.note) + 1})" if row.note else ""
        published = f"{row.bound} {plain(row.published)} {row.unit}".strip()
        yield LINE.format(published, ours, verdict(row), f"{row.kind}{note}")


def plain(value: float) -> str:
    """At least four significant digits: nothing is rounded to fit."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def verdict(row: Any) -> str:
    if row.bound and row.ours == row.ours:
        return "holds" if row.holds else "does not hold"
    missed = row.inside is False and row.low == row.high
    return "-" if row.error != row.error else f"{100 * row.effect_error:+z.1f} %" + ", no width" * missed


def sentence(counted: dict[str, Any]) -> str:
    """How far the predictions among rows are off, and how many there are."""
    small, off = counted["small"], counted["median_error"]
    judged = pt.errors.plural(counted["judged"] - small, "prediction")
    apart = (
        f"\nEffects below 5 % are counted apart: {counted['both_small']} of {small} predicted below 5 %, too."
        * bool(small)
    )
    if off is None:
        return f"No error to judge by: {pt.errors.plural(counted['rows'], 'row')}, {judged}.{apart}"
    return (
        f"Of {judged}, within 10 % of the measured effect: {counted['within_10']}, within 50 %: "
        f"{counted['within_50']}; median error {100 * off:.0f} %.{apart}"
    )


def close(name: str, counted: dict[str, Any]) -> dict[str, pt.columns.Cell]:
    return {
        "rows": name,
        "judged": counted["judged"],
        "below 5 %": counted["small"],
        "within 10 %": counted["within_10"],
        "within 50 %": counted["within_50"],
        "median error": percent(counted["median_error"]),
        "inside interval": f"{counted['inside']} of {counted['intervals']}",
        "its median width": percent(counted["width"]),
    }


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
