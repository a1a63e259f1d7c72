"""Figures and tables of the page: which of them a study has, and from which of its tables."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
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

from .study import LOCAL, Study

# A table of the page: cells with a text for people and a number to sort by.


class Column(NamedTuple):
    """`hint`, below the name, is the unit; `text` makes the text of a value, str where values are words."""

    name: str
    hint: str = ""
    text: Callable[[Any], str] = str

    @property
    def words(self) -> bool:
        return self.text is str

    def cell(self, value: Any) -> tuple[str, Any]:
        """(text, what to sort by): a missing value is a dash, and sorts below all numbers."""
        if value is None or (isinstance(value, float) and not isfinite(value)):
            return "–", -1e300
        return self.text(value), value


class Grid(NamedTuple):
    """
    columns      {column of `rows`: Column}, the first of them heads its row
    interactive  can be sorted and filtered
    marked       {number of a row: "advised" or "baseline"}
    """

    key: str
    caption: str
    columns: Mapping[Any, Column]
    rows: Sequence[Mapping[Any, Any]]
    interactive: bool = False
    marked: Mapping[int, str] = {}


def grid(key: str, caption: str, columns: Mapping[Any, Column], table: DataFrame, **more: Any) -> Grid:
    return Grid(key, caption, columns, DataFrame(table).to_dict("records"), **more)  # no attrs to copy


def matrix(key: str, caption: str, table: DataFrame, text: Callable[[Any], str], hint: str = "") -> Grid:
    """Grid of a table: words of its index, then a number in each of its columns."""
    columns = {name: Column(str(name)) for name in table.index.names}
    columns |= {name: Column(str(name), hint, text) for name in table.columns}
    return grid(key, caption, columns, table.reset_index())


count = "{:,.0f}".format


def percent(share: float) -> str:
    """A share between 0 and 1."""
    return f"{100 * share:z.1f} %"


def ratio(value: float) -> str:
    return pt.interval.shown(value)[0]


def memory(size: float) -> str:
    """Memory as on the terminal: 528 KiB, 13.5 MiB."""
    return f"{'-' if size < 0 else ''}{pt.errors.size_in_words(abs(int(size)))}"


# A figure of the page: an SVG that needs no fonts and no scripts; its title says what the table holds.


class Picture(NamedTuple):
    """
    key     of figures.toml, unique within a chapter
    how     how to read it
    alt     alternative text: its kind and title
    source  data: URI; width and height in CSS pixels
    grid    its data as a table, None if the page has them elsewhere
    phone   a table in its place on a narrow screen, None if it is shown there too
    """

    key: str
    how: str
    alt: str
    source: Markup
    width: int
    height: int
    grid: Grid | None = None
    phone: Grid | None = None


@cache
def described() -> dict[str, dict[str, str]]:
    """{key: {draw, kind, how}} of figures.toml."""
    return tomllib.loads(files("ptanalyze_report").joinpath("figures.toml").read_text("utf-8"))


def picture(key: str, table: DataFrame, grid: Grid | None = None, **how: float) -> Picture:
    """The Picture of a table."""
    about = described()[key]
    figure = getattr(pt.plots, about["draw"])(table, **how)
    return Picture(key, " ".join(about["how"].split()), f"{about['kind']}: {figure!r}", *image(figure), grid)


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

SHOWN = 4  # policies in a figure with a panel or line for each
FIRST = 8  # policies on the first screen
LEFT, RIGHT = 6.6, 3.8  # inches: widths of what stands side by side there


def chosen(study: Study, table: DataFrame, *first: str, most: int = SHOWN) -> DataFrame:
    """Rows of the baseline, of the policies `first`, and of the fastest, `most` in all."""
    names = [study.baseline, *first, *study.frame.loc[study.frame["over"] == "", "policy"]]
    return table[table["policy"].isin(list(dict.fromkeys(names))[:most])]


def alike(study: Study) -> bool:
    """Whether the machine has one node, so that where something lies is no question."""
    return len(study.advised.base.classes) == 1


def opening(study: Study) -> Iterator[Picture]:
    """For the first screen: what the policies gain and, beside it, where walks go."""
    reads, frame = study.advised.replayed.reads, study.frame
    dram = reads[(reads["from"] == "DRAM") & (reads["policy"] == study.baseline)]
    beside = bool(dram["count"].sum()) and not alike(study)
    if frame["walks"].max() and not (alike(study) and frame["speedup"].round(2).nunique() == 1):  # else flat
        width, shown = {"width": LEFT} if beside else {}, chosen(study, frame, most=FIRST)
        first = ("label", "ratio", *INTERVAL, "extra_bytes")
        few = {key: of for key, of in everything(study).columns.items() if key in first}
        gains = grid("gains", f"What each policy gains over {study.baseline}", few, shown)
        yield picture("speedup", shown, None, **width)._replace(phone=gains)
    if beside:
        served = dram.groupby(["reader", "server"])["count"].sum().unstack(fill_value=0)
        data = matrix("reads-data", "Page-table reads from DRAM, by reader and server", served, count)
        nearest = str(frame.loc[frame["remote"].where(frame["dram_reads"] > 0).idxmin(), "policy"])
        yield picture("reads", chosen(study, reads, nearest, most=2), data, width=RIGHT)


def where(study: Study) -> Iterator[Picture]:
    """Where walks go now."""
    classes = study.classes
    if classes["count"].sum() and not alike(study):
        shares = classes.groupby(["weight", "socket", "class"], sort=False)["count"].sum().unstack()
        shares = shares.div(shares.sum(axis=1), axis=0).rename(index=pt.style.WEIGHTS, level="weight")
        data = matrix("locality-data", "Shares of each class, by socket", shares, percent)
        yield picture("locality", classes, data)
    if study.tables is not None and study.tables["node"][~study.tables["tracers"]].nunique() > 1:
        yield picture("map", study.tables)


def change(study: Study) -> Iterator[Picture]:
    """What each policy changes, and what it costs."""
    curve = study.curve
    if curve is not None and curve.best and round(curve.frame["speedup"].max(), 2) > 1:  # else flat
        columns = {
            "stands_for": Column("Size", "of the captured", count),
            "bytes": Column("Memory", "", memory),
            "policy": Column("Policy"),
            "speedup": Column("Speed-up", "", ratio),
        }
        data = grid(
            "sizes-data", "Speed-ups of larger runs", columns, curve.frame.query("policy != baseline")
        )
        yield picture("sizes", curve.frame, data)
    if study.advised.replayed.leaves["count"].sum() and not alike(study):
        yield picture("locality-policies", chosen(study, study.advised.replayed.leaves))


def deeper(study: Study) -> Iterator[Picture]:
    """For some captures only: cache lines of a VM, locality over time."""
    if study.cache_lines is not None and study.cache_lines["count"].sum():
        yield picture("fragmentation", study.cache_lines)
    over_time = study.advised.replayed.timeline
    if len(over_time) and over_time["walks"].sum() and over_time["time_ns"].max():
        yield picture("timeline", chosen(study, over_time, most=5))


# Tables that no figure shows.

MOST, LEAST = 10, 0.01  # VMAs or threads, and the share of walks that one of them has


def walkers(study: Study) -> Iterator[Grid]:
    """The VMAs that walk most, and the threads where there are several."""
    for by, table in study.walkers.items():
        near = table[table["class"].isin(LOCAL)].groupby("group")["count"].sum()
        rows = DataFrame({"count": table.groupby("group")["count"].sum(), "near": near}).fillna(0)
        rows = rows[rows["count"] > 0].sort_values("count", ascending=False)
        rows = rows.assign(share=rows["count"] / rows["count"].sum(), near=rows["near"] / rows["count"])
        named = rows[rows["share"] >= LEAST].head(MOST)
        if len(named) < 2:
            continue
        columns = {
            "name": Column(by),
            "count": Column("Walks", "of the whole trace", count),
            "share": Column("Share", "of those counted", percent),
            "near": Column(study.local, "of its walks", percent),
        }
        caption = f"Walks by {by}, tables as captured; the {len(named)} with most of {len(rows)}"
        named = named.assign(name=named.index.map(pt.plots.vma_name))
        yield grid(f"walkers-{by.lower()}", caption, columns, named)


INTERVAL = {"speedup_low": Column("Low", "", ratio), "speedup_high": Column("High", "", ratio)}


def everything(study: Study) -> Grid:
    """The full table: a row per policy, in the order of the advice."""
    frame = study.frame
    middle = (
        ("Speed-up", "middle") if study.timed else ("Walk cycles", f"of {study.baseline} / its own, at most")
    )
    columns = {
        "label": Column("Policy"),
        "ratio": Column(*middle, ratio),
        **(INTERVAL if study.timed else {}),
        "leaf_LL_share": Column(study.local, "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "walks": Column("Walks", "", count),
        "reads_per_walk": Column("Reads", "per walk", pt.terminal.number),
        "cycles_per_walk": Column("Cycles", "per walk", pt.terminal.number),
        "extra_bytes": Column("Memory", "more at its peak", memory),
        "extra_updates": Column("Upkeep", "of the run", percent),
        "pays_back_seconds": Column("Break-even", "seconds", pt.terminal.number),
        **({"over": Column("Over budget")} if frame["over"].any() else {}),
    }
    policies = frame["policy"].tolist()
    marked = {policies.index(study.best["policy"]): "advised"} if study.timed else {}
    marked[policies.index(study.baseline)] = "baseline"
    caption = f"Policies that the capture allows, fastest first; compared with {study.baseline}"
    return grid("policies", caption, columns, frame, interactive=True, marked=marked)


def slowdowns(study: Study) -> Grid | None:
    """A row per policy, a column per system call: time of a call over its time under the baseline."""
    calls = study.advised.replayed.calls
    if not len(calls):
        return None
    table = calls.pivot(index="policy", columns="call", values="slowdown").reindex(calls["policy"].unique())
    caption = f"How long a system call takes, compared with {study.baseline}"
    return matrix("slowdowns", caption, table, ratio, "times as long")


# Several captures side by side.


def side_by_side(studies: Sequence[Study]) -> Grid:
    """A row per capture: facts, locality of its walks, advice."""
    columns = {
        "name": Column("Capture"),
        "machine": Column("Replayed on"),
        "workload": Column("Workload"),
        "walks": Column("Walks", "", count),
        "leaf_LL_share": Column("All local", "share of walks", percent),
        "remote": Column("Remote", "share of DRAM reads", percent),
        "cycles_per_walk": Column("Cycles", "per walk", pt.terminal.number),
        "label": Column("Advice"),
        "speedup": Column("Speed-up", "middle", ratio),
        **INTERVAL,
    }
    advice = ("label", "speedup", *INTERVAL)
    rows = [
        {**study.base, "name": study.name, "workload": study.advised.workload}
        | {key: study.best[key] for key in advice}
        for study in studies
    ]
    return Grid("captures", "The captures under their baselines, and the advice", columns, rows)


def by_policy(studies: Sequence[Study]) -> Grid:
    """A row per policy, a column per capture: the speed-up over that capture's baseline."""
    table = DataFrame({study.name: study.frame.set_index("label")["ratio"].to_dict() for study in studies})
    caption = "Estimated speed-up of each policy, by capture; a dash: the capture does not allow it"
    columns = {"label": Column("Policy")}
    columns |= {study.name: Column(study.name, f"over {study.baseline}", ratio) for study in studies}
    return grid("speed-ups", caption, columns, table.rename_axis("label").reset_index(), interactive=True)
