"""Stacked bars of Local-Local ... Remote-Remote, one per socket: vMitosis (ASPLOS '21), Figure 2."""

from textwrap import fill

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from ...core.errors import is_whole
from .style import (
    BLACK,
    CLASSES,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    WEIGHTS,
    binary_unit,
    broken,
    by_policy,
    context,
    legend_beside,
    must_have,
    name_rows,
    new_figure,
    node_looks,
    node_named,
    note,
    step_of,
    styled,
    title,
    usable,
    vma_names,
)

MOST_PANELS, MOST_GROUPS, COLUMNS = 20, 8, 4
PANELS = 6.5  # inches, width of all panels
MOST_WRITTEN = 18  # largest number of bars beside each other with shares written into them
LEAST_WRITTEN = 9  # per cent, smallest share that is written
NARROW = 16  # characters of a line below the narrowest panel
SEVERAL = "how many"


@styled
def locality(table: DataFrame) -> Figure:
    """Shares of each class seen from each socket; a panel for each policy, or group and weight.

    vMitosis (ASPLOS '21), Figure 2.

    table    api.classify's (several concatenated, if you like), or Replayed.leaves
    columns  socket, class, count, share; policy, params or weight, group
    """
    must_have(
        bool(len(table) and table["count"].sum()), "nothing has a class", "has the capture mapped pages?"
    )
    panels = panels_of(table)
    shown = panels[: MOST_PANELS if "policy" in table else MOST_GROUPS]
    rows = -(-len(shown) // COLUMNS)
    columns = -(-len(shown) // rows)
    counted = counts_of(table)
    written = "\n" + fill(f"below: {counted}", NARROW) if has_room(table, columns) else ""
    figure = new_figure(1.9 + 2.4 * rows)
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axis, (name, of) in zip(axes.flat, shown, strict=False):
        draw(axis, of, name if len(panels) > 1 else "", columns)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel(f"% of {counted}" if counted != SEVERAL else "%")
    for column in range(columns):
        last = max(row for row in range(rows) if row * columns + column < len(shown))
        axes[last, column].set_xlabel(f"seen from socket{written}")
    classes = [name for name in CLASSES if name in set(table["class"])]
    handles = {bars.get_label(): bars for axis in axes.flat for bars in axis.containers}
    legend_beside(axes[0, -1], [handles[name] for name in classes], classes, "leaf entry is")
    title(figure, headline(table, panels))
    left_out = len(panels) - len(shown)
    context(figure, table, f"{left_out:,} more with fewer are not shown" if left_out else "")
    return figure


def panels_of(table: DataFrame) -> list[tuple[str, DataFrame]]:
    """[(name, rows)]: by policy, or by group and weight, the most entries first."""
    if "policy" in table:
        return [(name, of) for name, of in by_policy(table) if of["count"].sum()]
    by = list(table.groupby(["weight", "group"], sort=False))
    by.sort(key=lambda panel: -panel[1]["count"].sum())
    by.sort(key=lambda panel: list(WEIGHTS).index(panel[0][0]))
    weights = {weight for (weight, _), _ in by}
    groups = {group for (_, group), _ in by}
    names = vma_names(groups)
    return [
        (named(weight, names[group], len(weights) > 1, len(groups) > 1), of) for (weight, group), of in by
    ]


def named(weight: str, group: str, say_weight: bool, say_group: bool) -> str:
    what = group if say_group else ""
    return ": ".join(part for part in (what, WEIGHTS[weight] if say_weight else "") if part)


def draw(axis: Axes, table: DataFrame, name: str, columns: int) -> None:
    shares = table.pivot_table(index="socket", columns="class", values="share", aggfunc="sum", sort=False)
    sockets = [str(socket) for socket in shares.index]
    below = [0.0] * len(sockets)
    for kind in (kind for kind in CLASSES if kind in shares):
        colour, hatch = CLASSES[kind]
        heights = (100 * shares[kind].fillna(0.0)).tolist()
        bars = axis.bar(
            sockets,
            heights,
            bottom=below,
            color=colour,
            hatch=hatch,
            label=kind,
            edgecolor="white",
            linewidth=1 if len(sockets) <= MOST_WRITTEN else 0.2,
            width=0.85,
        )
        if len(sockets) * columns <= MOST_WRITTEN:
            texts = [f"{h:.0f}" if h >= LEAST_WRITTEN else "" for h in heights]
            for text in axis.bar_label(bars, texts, label_type="center"):
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
        below = [a + b for a, b in zip(below, heights, strict=True)]
    counted = table.groupby("socket", sort=False)["count"].sum()
    for at, (socket, row) in enumerate(shares.iterrows()):
        kinds = ", ".join(f"{100 * row[kind]:.1f} % {kind}" for kind in CLASSES if row.get(kind, 0) > 0)
        says = f"{name + ', ' if name else ''}socket {socket}: {kinds} of {counted[socket]:,}"
        note(axis, says, (at - 0.43, at + 0.43), (0, 100))
    step = step_of(sockets, PANELS / columns)
    if len(sockets) * columns <= MOST_WRITTEN:
        sockets = [f"{socket}\n{short(counted[socket])}" for socket in shares.index]
    axis.set_xticks(range(0, len(sockets), step), sockets[::step])
    axis.set_ylim(0, 100)
    axis.grid(False)
    axis.set_title(broken(name))


def has_room(table: DataFrame, columns: int) -> bool:
    """Whether numbers fit into the bars and below them."""
    return bool(table["socket"].nunique() * columns <= MOST_WRITTEN)


def counts_of(table: DataFrame) -> str:
    """What the bars are shares of, and the numbers below the sockets count."""
    if "policy" in table:
        return WEIGHTS.get(table.attrs.get("run"), "walks")
    weights = list(dict.fromkeys(table["weight"]))
    return WEIGHTS[str(weights[0])] if len(weights) == 1 else SEVERAL


def short(count: float) -> str:
    """A count in at most four characters: 13, 4.1k, 558k, 2.7M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.{1 if count < 10 * size else 0}f}{unit}"
    return f"{count:.0f}"


def headline(table: DataFrame, panels: list[tuple[str, DataFrame]]) -> str:
    """Local shares: by weight, or under the first policy and the best."""
    what = "Local" if set(table["class"]) <= {"Local", "Remote"} else "Local-Local"
    if "policy" not in table:
        texts = [f"{local_share(of):.0f} % of {WEIGHTS[w]}" for w, of in table.groupby("weight", sort=False)]
        return f"{what} from the sockets' view: {', '.join(texts)}"
    shares = {name: local_share(of) for name, of in panels}
    first, *rest = shares
    texts = [f"{shares[first]:.0f} % with {first}"]
    if rest:
        best = max(usable(rest), key=lambda name: shares[name])
        texts.append(f"{shares[best]:.0f} % with {best}")
    return f"Walks with {what} leaf entries: {', '.join(texts)}"


def local_share(table: DataFrame) -> float:
    """Per cent."""
    local = table.loc[table["class"].isin(["Local", "Local-Local"]), "count"].sum()
    return float(100 * local / max(table["count"].sum(), 1))


# Number of table pages at each level, by NUMA node.

TABLE_PAGES_COLUMNS = 6  # of the legend
TABLE_PAGES_LEAST_WRITTEN = 6  # per cent, smallest share written into its bar


@styled
def table_pages(table: DataFrame) -> Figure:
    """A bar per tree and level, root on top: share of table pages on each node; their number to the right.

    Tables of the tracer are left out.
    table    api.page_tables'
    columns  dimension, level, node, tracers
    """
    table = table[~table["tracers"]]
    must_have(bool(len(table)), "no table page", "dump page tables with `ptanalyze dump`")
    counts = (
        table.groupby(["dimension", "level", "node"], sort=False, observed=True).size().unstack(fill_value=0)
    )
    order = {name: k for k, name in enumerate(dict.fromkeys(table["dimension"]))}
    counts = counts.loc[
        sorted(counts.index, key=lambda key: (order[key[0]], -key[1])), sorted(counts.columns)
    ]
    total = counts.sum(axis=1)
    figure = new_figure(1.8 + 0.36 * len(counts) + 0.235 * (len(counts.columns) // TABLE_PAGES_COLUMNS))
    axis = figure.subplots()
    at, left = range(len(counts)), [0.0] * len(counts)
    for node, (colour, hatch) in node_looks(counts.columns).items():
        widths = (100 * counts[node] / total).tolist()
        bars = axis.barh(
            at,
            widths,
            left=left,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            height=0.8,
            label=node_named(node),
        )
        written = [f"{width:.0f}" if width >= TABLE_PAGES_LEAST_WRITTEN else "" for width in widths]
        for text in axis.bar_label(bars, written, label_type="center"):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of the level's table pages; right: their number")
    names = [f"{name} L{level}" for name, level in counts.index]
    name_rows(axis, names, [f"{n:,}" for n in total], lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=TABLE_PAGES_COLUMNS, borderaxespad=0)
    title(figure, headline_table_pages(counts.groupby(level=0, sort=False).sum()))
    context(figure, table)
    return figure


def headline_table_pages(counts: DataFrame) -> str:
    """Number of pages of each tree, and the node with the most."""
    texts = []
    for name, of in counts.iterrows():
        most = int(of.idxmax())
        what = "page table" if name == "PT" else name
        texts.append(f"{what}: {of.sum():,} pages, {100 * of[most] / of.sum():.0f} % on {node_named(most)}")
    return "; ".join(texts)


# Changes of table pages between two captures of a series: kept, moved, created, gone.

LOOKS = {  # as in vm.diff.KINDS
    "same": ("#dddddd", ""),
    "moved": (SKY, "///"),
    "other node": (VERMILION, "xxx"),
    "created": (GREEN, "..."),
    "gone": (ORANGE, "\\\\\\"),
}
NAMES = {"moved": "another frame, same node", "other node": "moved to another node"}
SIDES = ("from_node", "to_node")
CHANGES_MOST_WRITTEN = 10  # largest number of nodes with every number written
NOWHERE = "none"


@styled
def changes(table: DataFrame) -> Figure:
    """A bar per tree and level: share of its table pages that stayed, moved, were created or went; below, if
    any changed node, a matrix of nodes before and after, with "none" for pages created and gone.

    table    of answers.changes_frame, as `ptanalyze diff` prints it
    columns  dimension, level, what, from_node, to_node (NaN: none or the same), table_pages
    """
    must_have(bool(len(table) and table["table_pages"].sum()), "no table page", "dump page tables")
    order = {name: k for k, name in enumerate(dict.fromkeys(table["dimension"]))}
    counts = table.pivot_table(
        index=["dimension", "level"], columns="what", values="table_pages", aggfunc="sum", fill_value=0
    )
    counts = counts.loc[sorted(counts.index, key=lambda key: (order[key[0]], -key[1]))]
    moves = {name: moved(of) for name, of in table.groupby("dimension", sort=False)}
    moves = {name: of for name, of in moves.items() if len(of)}
    upper = 1.9 + 0.34 * len(counts)
    lower = max((1.1 + 0.36 * len(of) for of in moves.values()), default=0.0)
    figure = new_figure(upper + lower)
    heights = [upper, lower] if moves else [upper]
    places = figure.add_gridspec(len(heights), max(len(moves), 1), height_ratios=heights)
    bars(figure.add_subplot(places[0, :]), counts)
    for k, (name, of) in enumerate(moves.items()):
        heat(figure.add_subplot(places[1, k]), name, of)
    title(figure, headline_changes(counts))
    context(figure, table, f"{NOWHERE}: created or gone" if moves else "")
    return figure


def moved(of: DataFrame) -> DataFrame:
    """Table pages by (node before, node after), words; empty if none changed node."""
    of = of[of["what"].isin(["other node", "created", "gone"])]
    where = {
        side: of[side].map(lambda node: NOWHERE if np.isnan(node) else node_named(int(node)))
        for side in SIDES
    }
    counts = of.assign(**where).pivot_table(
        index="from_node", columns="to_node", values="table_pages", aggfunc="sum", fill_value=0
    )
    return counts.reindex(index=sorted(counts.index, key=place), columns=sorted(counts.columns, key=place))


def place(name: str) -> tuple[int, int]:
    """Sort key: nodes by number, then names without a number."""
    number = name.rpartition(" ")[2]
    return (0, int(number)) if is_whole(number) else (1, len(name))


def bars(axis: Axes, counts: DataFrame) -> None:
    total = counts.sum(axis=1)
    at, left = range(len(counts)), [0.0] * len(counts)
    for kind, (colour, hatch) in LOOKS.items():
        if kind in counts and counts[kind].any():
            widths = (100 * counts[kind] / total.where(total > 0, 1)).tolist()
            axis.barh(
                at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.8,
                label=NAMES.get(kind, kind),
            )  # fmt: skip
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 100)
    axis.set_xlabel("% of table pages of both captures; right: number changed")
    rest = total - counts["same"] if "same" in counts else total
    names = [f"{name} L{level}" for name, level in counts.index]
    name_rows(axis, names, [f"{n:,} of {of:,}" for n, of in zip(rest, total, strict=True)], lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=5, borderaxespad=0)


def heat(axis: Axes, name: str, of: DataFrame) -> None:
    written = max(of.shape) <= CHANGES_MOST_WRITTEN
    numbers = of.map(lambda n: f"{n:,}" if n else "") if written else False
    sns.heatmap(
        of, ax=axis, cmap="Blues", annot=numbers, fmt="", cbar=False, linewidths=0.5, linecolor="white"
    )
    for edge in axis.spines.values():
        edge.set_visible(True)
    axis.set_title(f"{name}: table pages by node before and after")
    axis.set_xlabel("node after")
    axis.set_ylabel("node before")
    axis.tick_params(rotation=0)


def headline_changes(counts: DataFrame) -> str:
    whole = counts.sum()
    total, same = int(whole.sum()), int(whole.get("same", 0))
    if total == same:
        return f"None of {total:,} table pages changed"
    most = max((kind for kind in LOOKS if kind != "same" and kind in whole), key=lambda kind: whole[kind])
    return (
        f"{total - same:,} of {total:,} table pages changed; most of them: "
        f"{NAMES.get(most, most)} ({int(whole[most]):,})"
    )


# Heat map of reads of page-table entries: by reader's node and serving node, per policy.

READS_COLUMNS = 4
READS_PANELS, HIGH = 6.5, 1.8  # inches: width of all panels, height of each
MOST_SEPARATE = 16  # largest number of nodes with white lines between them
READS_MOST_WRITTEN = 6  # largest number of nodes with every share written


@styled
def reads(table: DataFrame, source: str = "DRAM") -> Figure:
    """Share of all reads by [reader's node, serving node], a panel per policy; the diagonal is local.

    table    api.reads' or Replayed.reads; source: "DRAM", "cache" or "all"
    columns  policy, params, reader, server, from, count
    """
    chosen = table if source == "all" else table[table["from"] == source]
    must_have(
        bool(len(chosen) and chosen["count"].sum()),
        f"no page-table entry was read from {source}",
        "choose another kind of plot, or record a longer trace",
    )
    panels = [(name, shares(of)) for name, of in by_policy(chosen) if of["count"].sum()]
    columns = min(len(panels), READS_COLUMNS)
    rows = -(-len(panels) // columns)
    figure = new_figure(1.5 + 2.5 * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    most = max(float(of.to_numpy().max()) for _, of in panels)
    step = step_of([str(node) for node in panels[0][1].index], min(READS_PANELS / columns, HIGH))
    for axis, (name, of) in zip(axes.flat, panels, strict=False):
        draw_reads(axis, name, of, most, step, square=columns > 1)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("reader's node")
    scale = ScalarMappable(Normalize(0, 100 * most), "Blues")
    figure.colorbar(
        scale, ax=axes, label="% of the policy's reads", aspect=20, shrink=min(1.0, 1.6 / rows), anchor=(0, 1)
    )
    title(figure, headline_reads(panels, source))
    context(figure, table, "boxes: local")
    return figure


def shares(table: DataFrame) -> DataFrame:
    counts = table.pivot_table(index="reader", columns="server", values="count", aggfunc="sum")
    return counts / counts.to_numpy().sum()


def remote(share: DataFrame) -> float:
    return max(1 - sum(float(share.loc[n, n]) for n in share.index if n in share.columns), 0.0)


def draw_reads(axis: Axes, name: str, share: DataFrame, most: float, step: int, square: bool) -> None:
    written, few = len(share) <= READS_MOST_WRITTEN, len(share) <= MOST_SEPARATE
    sns.heatmap(
        100 * share, ax=axis, vmin=0, vmax=100 * most, cmap="Blues", annot=written, fmt=".0f", cbar=False,
        square=square, linewidths=0.5 if few else 0, linecolor="white",
        xticklabels=False, yticklabels=False,
    )  # fmt: skip
    ticks = np.arange(0, len(share), step)
    axis.set_xticks(ticks + 0.5, [str(node) for node in share.columns[ticks]])
    axis.set_yticks(ticks + 0.5, [str(node) for node in share.index[ticks]])
    width = 1.2 if few else 0.3
    for n in range(len(share)):
        axis.add_patch(Rectangle((n, n), 1, 1, fill=False, edgecolor=BLACK, linewidth=width, clip_on=False))
    for (row, column), value in np.ndenumerate(share.fillna(0.0)):
        says = f"{name}: node {share.columns[column]} serves {100 * value:.1f} % to node {share.index[row]}"
        note(axis, says, (column, column + 1), (row, row + 1))
    axis.set_title(f"{broken(name)}\n{100 * remote(share):.0f} % remote")
    axis.set_xlabel("serving node")
    axis.set_ylabel("")
    axis.tick_params(rotation=0)


def headline_reads(panels: list[tuple[str, DataFrame]], source: str) -> str:
    what = {"all": "page-table reads", "cache": "page-table reads from caches"}
    of = what.get(source, "page-table reads from DRAM")
    first, *_ = panels
    text = f"{100 * remote(first[1]):.0f} % of {of} are remote with {first[0]}"
    shares_of = dict(panels)
    best = min(usable(shares_of), key=lambda name: remote(shares_of[name]))
    if remote(shares_of[best]) < remote(first[1]) - 0.005:
        text += f", {100 * remote(shares_of[best]):.0f} % with {best}"
    return text


# Page tables of the processes of a host, by node.

MOST = 20  # processes
SURVEY_COLUMNS = 6  # of the legend
PAGE = 4096


@styled
def survey(table: DataFrame) -> Figure:
    """A bar per process, the worst on top: its leaf tables on each node; right: the expected remote share.

    table    that of `ptanalyze survey`, of which the first 20 rows are drawn
    columns  pid, name, leaf_tables ("node:pages ..."), remote_share
    """
    table = table[table["leaf_tables"] != ""].head(MOST)
    must_have(bool(len(table)), "no process with leaf tables", "run it as root")
    counts = DataFrame([pages_of(text) for text in table["leaf_tables"]]).fillna(0)
    counts = counts[sorted(counts.columns)] * PAGE
    unit, name = binary_unit(float(counts.sum(axis=1).max()))
    figure = new_figure(1.8 + 0.36 * len(counts))
    axis = figure.subplots()
    at, left = range(len(counts)), [0.0] * len(counts)
    for node, (colour, hatch) in node_looks(counts.columns).items():
        widths = (counts[node] / unit).tolist()
        axis.barh(
            at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.8,
            label=node_named(node),
        )  # fmt: skip
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 1.03 * max(left))
    axis.set_xlabel(f"{name} of leaf tables; right: share of walks expected to be remote")
    shares = [
        "" if share != share else f"{100 * share:.0f} %" for share in table["remote_share"].astype(float)
    ]
    names = [f"{comm} {pid}" for comm, pid in zip(table["name"], table["pid"], strict=True)]
    name_rows(axis, names, shares, lines=False)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=SURVEY_COLUMNS, borderaxespad=0)
    title(figure, headline_survey(table))
    return figure


def pages_of(text: str) -> dict[int, int]:
    return {int(node): int(count) for node, count in (part.split(":") for part in text.split())}


def headline_survey(table: DataFrame) -> str:
    worst = table.iloc[0]
    if not worst["remote_share"] > 0:
        return "No leaf table is expected to be remote to the threads that walk it"
    share = f"{100 * worst['remote_share']:.0f} %"
    return f"Of the walks of {worst['name']}, {share} are expected to read remote leaf tables"
