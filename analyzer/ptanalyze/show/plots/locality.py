"""Stacked bars of Local-Local ... Remote-Remote, one per socket: vMitosis (ASPLOS '21), Figure 2."""

from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from .labels import broken, by_policy, step_of, usable
from .room import beside, is_narrow, scaled
from .spots import note
from .style import CLASSES, context, legend_beside, must_have, new_figure, styled, title
from .vma_names import vma_names

MOST_PANELS, MOST_GROUPS, COLUMNS = 20, 8, 4
PANELS = 6.5  # inches, width of all panels
MOST_WRITTEN = 18  # largest number of bars beside each other with shares written into them
LEAST_WRITTEN = 9  # per cent, smallest share that is written
NARROW = 16  # characters of a line below the narrowest panel
SEVERAL = "how many"
WEIGHTS = {
    "leaf": "leaf entries",
    "4k": "4 KiB pages",
    "walks": "walks",
    "warm": "walks when warm",
    "as traced": "walks as traced",
    "samples": "samples",
    "heat": "estimated walks",
}


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
    rows = -(-len(shown) // (2 if is_narrow() else COLUMNS))
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
        if len(sockets) * columns <= scaled(MOST_WRITTEN):
            texts = [f"{h:.0f}" if h >= LEAST_WRITTEN else "" for h in heights]
            for text in axis.bar_label(bars, texts, label_type="center"):
                text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
        below = [a + b for a, b in zip(below, heights, strict=True)]
    counted = table.groupby("socket", sort=False)["count"].sum()
    for at, (socket, row) in enumerate(shares.iterrows()):
        kinds = ", ".join(f"{100 * row[kind]:.1f} % {kind}" for kind in CLASSES if row.get(kind, 0) > 0)
        says = f"{name + ', ' if name else ''}socket {socket}: {kinds} of {counted[socket]:,}"
        note(axis, says, (at - 0.43, at + 0.43), (0, 100))
    step = step_of(sockets, beside(PANELS) / columns)
    if len(sockets) * columns <= scaled(MOST_WRITTEN):
        sockets = [f"{socket}\n{short(counted[socket])}" for socket in shares.index]
    axis.set_xticks(range(0, len(sockets), step), sockets[::step])
    axis.set_ylim(0, 100)
    axis.grid(False)
    axis.set_title(broken(name))


def has_room(table: DataFrame, columns: int) -> bool:
    """Whether numbers fit into the bars and below them."""
    return bool(table["socket"].nunique() * columns <= scaled(MOST_WRITTEN))


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
