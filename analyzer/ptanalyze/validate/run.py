"""Rows of all papers, or a selection."""

import re
from collections.abc import Iterator, Sequence
from importlib import import_module

from ..analysis.sweep import carried_out, workers_on
from ..core.errors import UsageError
from ..core.progress import Progress
from .bench import bench
from .published import Paper, published
from .row import Row, Rows

# paper -> module of this package that has its FIGURES: {figure or table: function(bench) that yields Rows}
PAPERS = {name: name for name in ("vmitosis", "mitosis", "hydra", "ptemagnet", "ports")}
PLACE = re.compile(r"(figure|table) \d+", re.IGNORECASE)


def validate(
    papers: Sequence[str] = (),
    wanted: str = "",
    quick: bool = False,
    progress: Progress = None,
    on: str = "",
) -> list[tuple[Paper, list[Row]]]:
    """[(Paper, [Row])], an item per paper.

    papers    names of PAPERS, all where empty
    wanted    keep rows whose place or quantity has this text, in any case
    progress  called with (done, total, "figures")
    on        "dask:HOST:PORT": figures are made by the workers of that cluster, with the same numbers
    Raises UsageError for an unknown paper, and where no row has the wanted text.
    """
    for name in papers:
        if name not in PAPERS:
            raise UsageError(f"--paper {name}: choose from {', '.join(PAPERS)}")
    jobs = [(name, title, run) for name in papers or PAPERS for title, run in figures(name, wanted)]
    rows_of: dict[str, list[Row]] = {}
    for name, rows in (
        _apart(jobs, wanted, quick, progress, on) if on else _here(jobs, wanted, quick, progress)
    ):
        rows_of.setdefault(name, []).extend(row for row in rows if has(row, wanted))
    kept = [(published(name), rows) for name, rows in rows_of.items() if rows]
    if not kept:
        raise UsageError(
            f"--row {wanted}: no row has that in its place or quantity; see `ptanalyze validate`"
        )
    return kept


def _here(
    jobs: Sequence[tuple[str, str, Rows]], wanted: str, quick: bool, progress: Progress
) -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield (paper, its rows) of a figure after the other; those of a paper share their captures."""
    before = None
    with bench(quick, wanted) as workshop:
        for done, (name, _, run) in enumerate(jobs):
            if progress:
                progress(done, len(jobs), "figures")
            if name != before:
                workshop.clear()
            before = name
            yield name, run(workshop)


def _apart(
    jobs: Sequence[tuple[str, str, Rows]], wanted: str, quick: bool, progress: Progress, on: str
) -> Iterator[tuple[str, list[Row]]]:
    """The same by workers: a figure is a unit, which makes the captures that it needs."""
    units = [(name, title, wanted, quick) for name, title, _ in jobs]
    with workers_on(on) as workers:
        made = carried_out(workers, figure_there, units, progress, "figures")
    yield from zip((name for name, _, _ in jobs), made, strict=True)


def figure_there(unit: tuple[str, str, str, bool]) -> list[Row]:
    """The rows of a (paper, figure, wanted text, quick) at a worker."""
    name, title, wanted, quick = unit
    with bench(quick, wanted) as workshop:
        return list(dict(figures(name, wanted))[title](workshop))


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


def has(row: Row, wanted: str) -> bool:
    return row.figure.says(wanted)
