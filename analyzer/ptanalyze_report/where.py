"""Where walks go now: pictures and tables of the capture and of its walks under the baseline."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pandas import DataFrame, concat

import ptanalyze as pt
from ptanalyze.show.plots.locality import local_share
from ptanalyze.show.plots.timeline import ceiling, walks_per_second

from .picture import Cell, Column, Grid, Picture, count, grid, percent, picture, word
from .study import Study, remote_share


def pictures(study: Study) -> Iterator[Callable[[], Picture]]:
    if study.classes is not None and study.classes["count"].sum():
        yield partial(locality, study, study.classes)
    if of_dram(study.of(study.reads, study.baseline))["count"].sum():
        yield partial(reads, study)
    if study.heat is not None:
        yield partial(walk_map, study.heat)
    if study.tables is not None and study.tables["node"][~study.tables["tracers"]].nunique() > 1:
        yield partial(page_tables, study, study.tables)


def walk_map(heat: DataFrame) -> Picture:
    how = (
        "Time goes to the right, addresses downward; memory that no walk leads to is left out. The darker, "
        "the more walks; white: none. On the right, the memory that walks most, with its share of all walks; "
        "thin lines part it from the rest."
    )
    by_row = heat.groupby("start", sort=False)["walks"].sum()
    some = by_row.sort_values(ascending=False)
    half = int((some.cumsum() < some.sum() / 2).sum()) + 1
    rows = f"{half} of {len(by_row)} rows of memory"
    here = f"{rows} have half of all {int(some.sum()):,} walks of the whole trace."
    return picture("walk-map", "Heat map", pt.plots.walk_map, heat, how, here)


def lead(study: Study) -> str:
    through = (
        "Each walk of this virtual machine goes through two tables, the guest's (gPT) and the host's (ePT)"
        if study.nested
        else "Each walk goes through one page table"
    )
    if study.tables is None:
        shown = "No tables were captured: shown is their placement by first touch"
    elif study.baseline == "linux":
        shown = "Shown are the captured tables: their nodes, and the nodes that read them"
    else:
        shown = (
            f"Walks are shown under the baseline, {study.baseline}, as the recording machine had one node; "
            "the map of page tables is as captured"
        )
    return f"{through}. {shown}."


def locality(study: Study, classes: DataFrame) -> Picture:
    nodes = study.results[0].reads.shape[1]
    even = 100 / nodes ** (2 if study.nested else 1)
    pair = (
        "both leaf entries that a walk ends with, the guest's and the host's, are"
        if study.nested
        else ("the leaf entry that a walk ends with is")
    )
    weights = [str(weight) for weight in dict.fromkeys(classes["weight"])]
    both = "On the left each mapped entry counts once, on the right each walk of the trace. "
    how = (
        f"One bar for each socket, as a CPU there sees it. {both if len(weights) > 1 else ''}Green is the "
        f"share for which {pair} in the socket's own memory."
    )
    shares = [
        f"{local_share(classes[classes['weight'] == w]):.0f} % of {pt.style.WEIGHTS[w]}" for w in weights
    ]
    here = f"{' and '.join(shares)} are {study.local}."
    if study.facts.get("trace", {}).get("threads") != 1:
        here += f" Tables spread evenly over {nodes} nodes would give {even:.0f} %."
    return picture("locality", "Stacked bars", pt.plots.locality, classes, how, here, classes_grid(classes))


def classes_grid(classes: DataFrame) -> Grid:
    names = list(dict.fromkeys(classes["class"]))
    columns = {"of": Column("Of", "", word), "socket": Column("Seen from socket", "", count)}
    columns |= {name: Column(name, "share", percent) for name in names}
    rows = []
    for (weight, socket), of in classes.groupby(["weight", "socket"], sort=False):
        shares = of.groupby("class")["count"].sum() / max(of["count"].sum(), 1)
        rows.append({"of": pt.style.WEIGHTS[str(weight)], "socket": socket, **shares.to_dict()})
    return grid("locality-data", "Shares of each class, by socket", columns, rows)


def of_dram(reads: DataFrame) -> DataFrame:
    return reads[reads["from"] == "DRAM"]


def reads(study: Study) -> Picture:
    counts = of_dram(study.of(study.reads, study.baseline)).groupby(["reader", "server"])["count"].sum()
    total = int(counts.sum())
    apart = counts[[reader != server for reader, server in counts.index]]
    here = f"{100 * remote_share(study.base):.0f} % of {total:,} reads came from another node"
    if apart.sum():
        reader, server = apart.idxmax()
        here += (
            f"; most of them from CPUs of node {reader} to tables on node {server}, "
            f"{100 * apart.max() / total:.0f} % of all"
        )
    shown = contrasted(study)
    if len(shown) > 1:
        others = [f"{100 * remote_share(row):.0f} % with {row['label']}" for row in shown[1:]]
        here += f". For comparison: {', '.join(others)}"
    cached = (
        "Reads answered by caches are left out"
        if study.timed
        else "Without a trace every leaf entry is taken to be read from DRAM"
    )
    how = (
        "A row for each node whose CPUs walk, a column for each node whose memory answers. Boxes on the "
        f"diagonal are local. {cached}; shares are of the policy's own reads."
    )
    names = [row["policy"] for row in shown]
    table = concat([study.of(study.reads, name) for name in names])
    columns = {"reader": Column("Reader's node", "", count)}
    servers = sorted({int(server) for _, server in counts.index})
    columns |= {str(server): Column(f"Node {server}", "reads served", count) for server in servers}
    rows = [
        {"reader": reader, **{str(server): counts.get((reader, server), 0) for server in servers}}
        for reader in sorted({int(reader) for reader, _ in counts.index})
    ]
    data = grid("reads-data", "Page-table reads from DRAM, by reader and server", columns, rows)
    return picture("reads", "Heat map", pt.plots.reads, table, how, f"{here}.", data)


def contrasted(study: Study) -> list[dict[str, Any]]:
    """Rows of the baseline, of the advised policy, and of the policy with the fewest remote reads."""
    nearest = min(study.rows, key=remote_share)
    rows = {row["label"]: row for row in (study.base, study.best, nearest)}
    return list(rows.values())


def page_tables(study: Study, tables: DataFrame) -> Picture:
    own = tables[~tables["tracers"]]
    named = "guest-virtual, below guest-physical" if study.nested else "virtual"
    how = (
        f"Every table page as captured, the root on top, over the {named} addresses that it maps; the colour "
        "is the page's node."
    )
    counts = own.groupby(["dimension", "level", "node"], observed=True).size()
    nodes = sorted({int(node) for node in own["node"]})
    texts = []
    for dimension, of in own.groupby("dimension", observed=True, sort=False):
        most = of["node"].value_counts()
        name = dimension if study.nested else "table"
        texts.append(f"{most.iloc[0]:,} of {len(of):,} {name} pages are on {node_name(most.index[0])}")
    order = sorted({(d, lvl) for d, lvl, _ in counts.index}, key=lambda row: (row[0] == "ePT", -row[1]))
    columns = {"dimension": Column("Table", "", word), "level": Column("Level", "1: leaf", count)}
    columns |= {str(node): Column(node_name(node).capitalize(), "table pages", count) for node in nodes}
    rows = [
        {
            "dimension": dimension,
            "level": level,
            **{str(node): counts.get((dimension, level, node), 0) for node in nodes},
        }
        for dimension, level in order
    ]
    data = grid("map-data", "Table pages by level and node", columns, rows)
    return picture(
        "map", "Map of page tables", pt.plots.page_table_map, tables, how, f"{'; '.join(texts)}.", data
    )


def node_name(node: int) -> str:
    return "an unknown node" if node < 0 else f"node {node}"


def reads_per_walk(value: float) -> Cell:
    return Cell(f"{value:.3f}" if value >= 0.0005 else "< 0.001", value)


def by_level(study: Study) -> Grid | None:
    """Reads per walk under the baseline at each level, and shares from DRAM and from other nodes."""
    walks = study.base["walks"] or study.results[0].classes.sum()
    rows = []
    for (dimension, level), of in study.of(study.reads, study.baseline).groupby(
        ["dimension", "level"], sort=False
    ):
        dram = of_dram(of)
        total, missed = int(of["count"].sum()), int(dram["count"].sum())
        if total:
            rows.append(
                {
                    "level": f"{dimension} L{level}",
                    "walk": total / walks,
                    "dram": missed / total,
                    "remote": int(dram.loc[dram["reader"] != dram["server"], "count"].sum()) / missed
                    if missed
                    else None,
                }
            )
    columns = {
        "level": Column("Level", "L1: leaf", word),
        "walk": Column("Reads per walk", "", reads_per_walk),
        "dram": Column("Served by DRAM", "share of its reads", percent),
        "remote": Column("Remote", "share of those", percent),
    }
    caption = f"Reads per walk under {study.baseline}, level by level"
    return grid("by-level", caption, columns, rows) if rows else None


# Which memory and which threads walk most: the ten VMAs and threads with the most walks.

MOST = 10
NAMES = {"vma": "VMA", "thread": "Thread"}
LOCAL = ("Local", "Local-Local")


def walkers(study: Study) -> Iterator[Grid]:
    """A table of VMAs, and one of threads where there are several."""
    for by, table in study.walkers.items():
        rows = largest(table)
        if len(rows) < 2:
            continue
        shown = [
            {**row, "name": pt.style.named(row["group"]), "at": addresses(row["group"])}
            for row in rows[:MOST]
        ]
        left = f"; {len(rows) - MOST:,} more walk less" if len(rows) > MOST else ""
        if gone := without_a_class(table):
            left += f"; {gone:,} walks that end in no table of the dump are not counted"
        columns = {
            "name": Column(NAMES[by], "", word),
            **({"at": Column("Addresses", "", word)} if by == "vma" else {}),
            "count": Column("Walks", "of the whole trace", count),
            "share": Column("Share", "of those counted" if gone else "of all walks", percent),
            "local": Column(study.local, "of its walks", percent),
        }
        tables = "" if study.baseline == "linux" else f", tables as captured, not as under {study.baseline}"
        caption = f"The {by_name(by, len(shown))} that walk most{tables}{left}"
        yield grid(f"walkers-{by}", caption, columns, shown)


def without_a_class(table: DataFrame) -> int:
    """Walks that classify could not count (its attrs["unresolved"])."""
    return sum(sum(reasons.values()) for reasons in table.attrs.get("unresolved", {}).values())


def addresses(group: str) -> str | None:
    return None if group == pt.address_space.NO_VMA else group.partition(" ")[0]


def by_name(by: str, several: int) -> str:
    return f"{several} {NAMES[by]}s" if by == "vma" else f"{several} threads"


def largest(table: DataFrame) -> list[dict[str, Any]]:
    """[{group, count, share, local}], most walks first; groups without walks are left out."""
    total = table["count"].sum()
    rows = []
    for group, of in table.groupby("group", sort=False):
        walks = int(of["count"].sum())
        if walks:
            near = int(of.loc[of["class"].isin(LOCAL), "count"].sum())
            rows.append({"group": group, "count": walks, "share": walks / total, "local": near / walks})
    return sorted(rows, key=lambda row: -row["count"])


# Pictures for some captures only: fragmentation of a VM, locality over time, ceilings of a walker.


def pictures_deeper(study: Study) -> Iterator[Callable[[], Picture]]:
    if study.lines is not None and study.lines["count"].sum():
        yield partial(fragmentation, study, study.lines)
    if has_time(study.timeline):
        yield partial(timeline, study)
    if study.traced and study.ranked["dram_reads_per_walk"].max():
        yield partial(roofline, study)


def fragmentation(study: Study, lines: DataFrame) -> Picture:
    means = lines.attrs["means"]
    how = (
        "Eight neighbouring pages share a cache line of the gPT. Their ePT entries may share one line too "
        "(1, left) or lie in eight (right): then each of the eight pages costs a walk another cache line."
    )
    here = f"On average {means['before']['all']:.2f} ePT cache lines per gPT cache line"
    if "after" in means and means["after"]["all"] is not None:
        here += f"; {means['after']['all']:.2f} if the guest reserved aligned groups of frames (PTEMagnet)"
    columns = {
        "state": Column("State", "", word),
        "lines": Column("gPT cache lines", "", word),
        "ept_lines": Column("ePT lines", "for each", count),
        "count": Column("Number", "gPT lines", count),
        "share": Column("Share", "", percent),
    }
    rows = [{str(k): v for k, v in row.items()} for row in lines.to_dict("records")]
    data = grid("fragmentation-data", "Histogram of ePT cache lines per gPT cache line", columns, rows)
    return picture("fragmentation", "Histogram", pt.plots.fragmentation, lines, how, f"{here}.", data)


def has_time(table: DataFrame) -> bool:
    return bool(len(table) and table["walks"].sum() and table["time_ns"].max())


def shown_over_time(study: Study) -> DataFrame:
    """The baseline, the advised and the next best policies: more lines cannot be distinguished."""
    names = [study.baseline, study.best["policy"], *(row["policy"] for row in study.rows if not row["over"])]
    return study.timeline[study.timeline["policy"].isin(list(dict.fromkeys(names))[:5])]


def timeline(study: Study) -> Picture:
    table = shown_over_time(study)
    base = study.of(table, study.baseline)
    shares = 100 * base["leaf_LL_share"].dropna()
    how = (
        "Time goes to the right, as it passed while the program was recorded. Above, the share of walks that "
        f"are {study.local}, a line per policy (at most five); below, the number of walks: where there are "
        "few, lines jump."
    )
    here = (
        f"Under {study.baseline}, in the run as traced, {shares.min():.0f} to {shares.max():.0f} % of walks "
        f"are {study.local}, by window "
        f"({len(base)} of {pt.errors.show_duration(base['time_ns'].iloc[0] / 1e9)})"
    )
    moved = int(table.groupby("policy")["tables_moved"].max().max())
    here += f"; at most {moved:,} table pages moved" if moved else "; no table page moved"
    data = windows(study, table)
    return picture("timeline", "Lines over time", pt.plots.timeline, table, how, f"{here}.", data)


def windows(study: Study, table: DataFrame) -> Grid:
    policies = list(dict.fromkeys(table["policy"]))
    shares = table.set_index(["time_ns", "policy"])["leaf_LL_share"]
    first = study.of(table, str(policies[0]))
    columns = {"until": Column("Until", "", word), "walks": Column("Walks", "as traced", count)}
    columns |= {str(policy): Column(str(policy), study.local, percent) for policy in policies}
    rows = [
        {
            "until": pt.errors.show_duration(row["time_ns"] / 1e9),
            "walks": row["walks"],
            **{str(policy): float(shares[row["time_ns"], policy]) for policy in policies},
        }
        for row in first.to_dict("records")
    ]
    return grid("timeline-data", "Share of local walks in each window", columns, rows)


def roofline(study: Study) -> Picture:
    machine, base = study.ranked.attrs["machine"], study.base
    now = float(walks_per_second(base["cycles_per_walk"], machine))
    best = ceiling(base["reads_per_walk"], base["dram_reads_per_walk"], machine["local_ns"], machine)
    how = (
        "A walker that does nothing but walk: the fewer reads go to DRAM (left) and the nearer DRAM is "
        "(higher ceiling), the more walks per second. Ceilings are of the machine file's latencies."
    )
    here = (
        f"{now:.1f} million walks per second under {study.baseline}; {float(best):.1f} million is as far as "
        "placement alone can get with the same reads. A policy above that ceiling reads less."
    )
    return picture("roofline", "Roofline plot", pt.plots.roofline, study.ranked, how, here)
