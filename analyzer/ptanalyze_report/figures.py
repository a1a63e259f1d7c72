"""Figures and tables of the page: which of them a study has, and from which of its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from io import BytesIO
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import quote

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure
from pandas import DataFrame

import ptanalyze as pt

from .study import LOCAL, Study, remote_share

# A table of the page: cells with a text for people and a number to sort by.

NOTHING = "–"
LEAST = -1e300  # missing values sort below all numbers


class Cell(NamedTuple):
    """`order` is the key to sort by, None for words."""

    text: str
    order: float | None = None


class Column(NamedTuple):
    """`hint`, below the name, is the unit; `cell` makes the Cell of a value."""

    name: str
    hint: str
    cell: Callable[[Any], Cell]

    @property
    def words(self) -> bool:
        return self.cell is word


@dataclass(frozen=True)
class Grid:
    """`rows` of Cells, the first of each being its heading; `interactive`: can be sorted and filtered."""

    key: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    interactive: bool = False
    marked: Mapping[int, str] = field(default_factory=dict)


def grid(
    key: str, caption: str, columns: Mapping[str, Column], rows: Iterable[Mapping[Any, Any]], **more: Any
) -> Grid:
    """Grid of dicts: their keys are those of `columns`; missing values are dashes."""
    cells = [[made(column, row.get(name)) for name, column in columns.items()] for row in rows]
    return Grid(key, caption, list(columns.values()), cells, **more)


def matrix(key: str, caption: str, table: DataFrame, cell: Callable[[Any], Cell], hint: str = "") -> Grid:
    """Grid of a table: words of its index, then a number in each of its columns."""
    columns = {name: Column(str(name), "", word) for name in table.index.names}
    columns |= {name: Column(str(name), hint, cell) for name in table.columns}
    return grid(key, caption, columns, table.reset_index().to_dict("records"))


def made(column: Column, value: Any) -> Cell:
    missing = value is None or (isinstance(value, float) and not isfinite(value))
    return Cell(NOTHING, None if column.words else LEAST) if missing else column.cell(value)


def word(value: Any) -> Cell:
    return Cell(str(value))


def count(value: Any) -> Cell:
    return Cell(f"{int(value):,}", int(value))


def plain(value: Any) -> Cell:
    """Any number, with a sensible number of digits."""
    return Cell(pt.terminal.number(value), float(value))


def percent(share: float) -> Cell:
    """A share between 0 and 1."""
    return Cell(f"{100 * share + 0:z.1f} %", float(share))


def ratio(value: float) -> Cell:
    return Cell(pt.interval.shown(value)[0], float(value))


def interval(ends: tuple[float, float]) -> Cell:
    low, high = pt.interval.shown(*ends)
    return Cell(f"{low}-{high}", ends[0])


def memory(size: float) -> Cell:
    """Memory as on the terminal: 528 KiB, 13.5 MiB."""
    return Cell(f"{'-' if size < 0 else ''}{pt.errors.size_in_words(abs(int(size)))}", float(size))


# A figure of the page: an SVG that needs no fonts and no scripts; its title says what the table holds.


@dataclass(frozen=True)
class Picture:
    """
    key     of figures.toml, unique within a chapter
    how     how to read it
    alt     alternative text: its kind and title
    source  data: URI; width and height in CSS pixels
    grid    its data as a table, None if the page has them elsewhere
    """

    key: str
    how: str
    alt: str
    source: Markup
    width: int
    height: int
    grid: Grid | None = None


@cache
def described() -> dict[str, dict[str, str]]:
    """{key: {draw, kind, how}} of figures.toml."""
    return tomllib.loads(files("ptanalyze_report").joinpath("figures.toml").read_text("utf-8"))


def picture(key: str, table: DataFrame, grid: Grid | None = None) -> Picture:
    """The Picture of a table."""
    about = described()[key]
    figure = getattr(pt.plots, about["draw"])(table)
    title = " ".join(figure.get_suptitle().split())
    how = " ".join(about["how"].split())
    return Picture(key, how, f"{about['kind']}: {title}", *image(figure), grid)


PLAIN = " ;,/?:@=+$!~*'()<>[]{}|`^"  # allowed unescaped in a double-quoted attribute
CSS_PIXELS = 96  # per inch


def image(figure: Figure) -> tuple[Markup, int, int]:
    """(data: URI of an SVG, its width, its height in CSS pixels) of a figure that is laid out.

    Texts are outlines: an image finds the reader's fonts alone.
    """
    file = BytesIO()
    figure.set_layout_engine(None)
    with matplotlib.rc_context({**pt.style.SETTINGS, "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata=pt.style.NO_DATE["svg"])
    text = file.getvalue().decode()
    text = quote(text[text.index("<svg") :].replace('"', "'"), safe=PLAIN)
    width, height = (round(CSS_PIXELS * inches) for inches in figure.get_size_inches())
    return Markup("data:image/svg+xml," + text), width, height


# The figures of each section.

Draws = Iterator[Callable[[], Picture]]
SHOWN = 4  # policies in a figure with a panel or line for each


def chosen(study: Study, table: DataFrame, *first: str, most: int = SHOWN) -> DataFrame:
    """Rows of the baseline, of the policies `first`, and of the fastest, `most` in all."""
    names = [study.baseline, *first, *study.frame.loc[study.frame["over"] == "", "policy"]]
    return table[table["policy"].isin(list(dict.fromkeys(names))[:most])]


def where(study: Study) -> Draws:
    """Where walks go now."""
    classes, reads = study.classes, study.reads
    if classes["count"].sum():
        shares = classes.groupby(["weight", "socket", "class"], sort=False)["count"].sum().unstack()
        shares = shares.div(shares.sum(axis=1), axis=0).rename(index=pt.style.WEIGHTS, level="weight")
        data = matrix("locality-data", "Shares of each class, by socket", shares, percent)
        yield partial(picture, "locality", classes, data)
    dram = reads[(reads["from"] == "DRAM") & (reads["policy"] == study.baseline)]
    if dram["count"].sum():
        served = dram.groupby(["reader", "server"])["count"].sum().unstack(fill_value=0)
        data = matrix("reads-data", "Page-table reads from DRAM, by reader and server", served, count)
        nearest = min(study.rows, key=remote_share)["policy"]
        yield partial(picture, "reads", chosen(study, reads, nearest, most=3), data)
    if study.tables is not None and study.tables["node"][~study.tables["tracers"]].nunique() > 1:
        own = study.tables[~study.tables["tracers"]].astype({"dimension": str})
        pages = own.groupby(["dimension", "level", "node"]).size().unstack(fill_value=0)
        data = matrix(
            "map-data", "Table pages by level and node", pages.rename(columns=pt.style.node_named), count
        )
        yield partial(picture, "map", study.tables, data)


def change(study: Study) -> Draws:
    """What each policy changes, and what it costs."""
    if study.curve is not None and study.curve.best:
        columns = {
            "stands_for": Column("Size", "of the captured", count),
            "bytes": Column("Memory", "", memory),
            "policy": Column("Policy", "", word),
            "speedup": Column("Speed-up", "", ratio),
        }
        rows = study.curve.frame.query("policy != baseline").to_dict("records")
        data = grid("sizes-data", "Speed-ups of larger runs", columns, rows)
        yield partial(picture, "sizes", study.curve.frame, data)
    if study.frame["walks"].max():
        yield partial(picture, "speedup", study.frame)
    if study.leaves["count"].sum():
        yield partial(picture, "locality-policies", chosen(study, study.leaves))


def deeper(study: Study) -> Draws:
    """For some captures only: cache lines of a VM, locality over time."""
    if study.cache_lines is not None and study.cache_lines["count"].sum():
        lines = study.cache_lines.set_index(["state", "lines", "ept_lines"])[["count"]]
        data = matrix("fragmentation-data", "ePT cache lines per gPT cache line", lines, count)
        yield partial(picture, "fragmentation", study.cache_lines, data)
    over_time = study.timeline
    if len(over_time) and over_time["walks"].sum() and over_time["time_ns"].max():
        over_time = chosen(study, over_time, most=5)
        until = over_time["time_ns"].map(lambda ns: pt.errors.show_duration(ns / 1e9)).rename("until")
        shares = over_time.set_index([until, "policy"])["leaf_LL_share"].unstack(sort=False)
        data = matrix("timeline-data", f"{study.local} walks in each window", shares, percent)
        yield partial(picture, "timeline", over_time, data)


# Tables that no figure shows.

MOST = 10  # VMAs or threads


def walkers(study: Study) -> Iterator[Grid]:
    """The VMAs that walk most, and the threads where there are several."""
    for by, table in study.walkers.items():
        near = table[table["class"].isin(LOCAL)].groupby("group")["count"].sum()
        rows = DataFrame({"count": table.groupby("group")["count"].sum(), "near": near}).fillna(0)
        rows = rows[rows["count"] > 0].sort_values("count", ascending=False)
        if len(rows) < 2:
            continue
        rows = rows.assign(share=rows["count"] / rows["count"].sum(), near=rows["near"] / rows["count"])
        named = [
            {**row, "name": pt.plots.vma_name(str(row["group"]))}
            for row in rows.reset_index().to_dict("records")
        ]
        columns = {
            "name": Column(by, "", word),
            "count": Column("Walks", "of the whole trace", count),
            "share": Column("Share", "of those counted", percent),
            "near": Column(study.local, "of its walks", percent),
        }
        caption = f"Walks by {by}, tables as captured; the {len(named[:MOST])} with most of {len(named)}"
        yield grid(f"walkers-{by.lower()}", caption, columns, named[:MOST])


def everything(study: Study) -> Grid:
    """The full table: a row per policy, in the order of the advice."""
    rows = [
        {
            **row,
            "ratio": study.ratio(row),
            "interval": (row["speedup_low"], row["speedup_high"]),
            "remote": remote_share(row),
            "budget": f"over: {row['over']}" if row["over"] else "within",
        }
        for row in study.rows
    ]
    columns = {
        "label": Column("Policy", "", word),
        "ratio": Column("Speed-up", "middle", ratio),
        "interval": Column("Interval", "low to high", interval),
        "leaf_LL_share": Column(study.local, "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "walks": Column("Walks", "", count),
        "reads_per_walk": Column("Reads", "per walk", plain),
        "cycles_per_walk": Column("Cycles", "per walk", plain),
        "extra_bytes": Column("Memory", "more at its peak", memory),
        "extra_updates": Column("Upkeep", "of the run", percent),
        "pte_copies": Column("Copies", "entries", count),
        "tables_moved": Column("Moved", "tables", count),
        "ipis": Column("IPIs", "CPUs interrupted", count),
        "pays_back_seconds": Column("Break-even", "seconds", plain),
        "budget": Column("Budget", "", word),
    }
    if not study.timed:
        columns["ratio"] = Column("Walk cycles", f"of {study.baseline} / its own, at most", ratio)
        del columns["interval"]
    counts = {name for name in ("pte_copies", "tables_moved", "ipis") if not study.frame[name].any()}
    dull = counts | (set() if study.frame["over"].any() else {"budget"})
    used = {name: column for name, column in columns.items() if name not in dull}
    marked = {study.rows.index(study.best): "advised"} if study.timed else {}
    marked[study.rows.index(study.base)] = "baseline"
    caption = f"Every policy that the capture allows, fastest first; compared with {study.baseline}"
    return grid("policies", caption, used, rows, interactive=True, marked=marked)


def slowdowns(study: Study) -> Grid | None:
    """A row per policy, a column per system call: time of a call over its time under the baseline."""
    if not len(study.calls):
        return None
    table = study.calls.pivot(index="policy", columns="call", values="slowdown")
    caption = f"How long a system call takes, compared with {study.baseline}"
    return matrix("slowdowns", caption, table.reindex(study.calls["policy"].unique()), ratio, "times as long")


# Several captures side by side.


def side_by_side(studies: Sequence[Study]) -> Grid:
    """A row per capture: facts, locality of its walks, advice."""
    columns = {
        "name": Column("Capture", "", word),
        "machine": Column("Replayed on", "", word),
        "workload": Column("Workload", "", word),
        "walks": Column("Walks", "", count),
        "leaf_LL_share": Column("All local", "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "cycles_per_walk": Column("Cycles", "per walk", plain),
        "best": Column("Advice", "", word),
        "speedup": Column("Speed-up", "middle", ratio),
        "interval": Column("Interval", "low to high", interval),
    }
    rows = []
    for study in studies:
        best = {name: study.best[name] for name in ("speedup", "speedup_low", "speedup_high")}
        ends = (best["speedup_low"], best["speedup_high"]) if study.timed else None
        what = {"name": study.name, "workload": study.workload, "best": study.best["label"], "interval": ends}
        rows.append({**study.base, "speedup": best["speedup"], "remote": remote_share(study.base), **what})
    return grid("captures", "The captures under their baselines, and the advice", columns, rows)


def by_policy(studies: Sequence[Study]) -> Grid:
    """A row per policy, a column per capture: the speed-up over that capture's baseline."""
    table = DataFrame(
        {study.name: {row["label"]: study.ratio(row) for row in study.rows} for study in studies}
    )
    caption = "Estimated speed-up of each policy, by capture; a dash: the capture does not allow it"
    columns = {"label": Column("Policy", "", word)}
    columns |= {study.name: Column(study.name, f"over {study.baseline}", ratio) for study in studies}
    rows = table.rename_axis("label").reset_index().to_dict("records")
    return grid("speed-ups", caption, columns, rows, interactive=True)
