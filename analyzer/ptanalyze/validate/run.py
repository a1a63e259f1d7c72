"""Every row of every paper, or those that were asked for."""

from importlib import import_module

from ..errors import UsageError
from .bench import bench
from .published import published

# paper -> module of this package that has its FIGURES: {figure or table: function(bench) that yields Rows}
PAPERS = {"vmitosis": "vmitosis", "mitosis": "mitosis"}


def validate(papers=(), wanted="", quick=False, progress=None):
    """[(Paper, [Row])], one a paper.

    papers    names of PAPERS, all where empty
    wanted    keep rows whose place or quantity has this text, in any case
    progress  called with (done, of so many, what): figures
    Raises UsageError for a paper that is not there, and where no row has the wanted text.
    """
    for name in papers:
        if name not in PAPERS:
            raise UsageError(f"--paper {name}: choose from {', '.join(PAPERS)}")
    jobs = [(name, title, run) for name in papers or PAPERS for title, run in figures(name, wanted)]
    found, before = {}, None
    with bench(quick) as workshop:
        for done, (name, _, run) in enumerate(jobs):
            if progress:
                progress(done, len(jobs), "figures")
            if name != before:
                workshop.clear()
            before = name
            found.setdefault(name, []).extend(row for row in run(workshop) if has(row, wanted))
    kept = [(published(name), rows) for name, rows in found.items() if rows]
    if not kept:
        raise UsageError(
            f"--row {wanted}: no row has that in its place or quantity; see `ptanalyze validate`"
        )
    return kept


def figures(name, wanted=""):
    """[(title, function)] of a paper: those whose title has the wanted text, or all where none has."""
    every = list(import_module(f".{PAPERS[name]}", __package__).FIGURES.items())
    return [one for one in every if wanted.casefold() in one[0].casefold()] or every


def has(row, wanted):
    return wanted.casefold() in f"{row.figure.where} {row.figure.quantity} {row.figure.name}".casefold()
