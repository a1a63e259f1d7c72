"""Memory of page tables under each policy: one copy, further copies, and tables kept aside."""

from matplotlib.figure import Figure
from pandas import DataFrame

from ...core.errors import size_in_words
from .labels import WIDE, broken, policy_labels, rows_high
from .room import is_narrow
from .rows import name_rows
from .spots import note
from .style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    binary_unit,
    context,
    legend_beside,
    must_have,
    new_figure,
    styled,
    title,
)


@styled
def footprint(table: DataFrame) -> Figure:
    """Stacked bars of bytes, one per policy, in the table's order.

    table    ptanalyze.whatif's: pt_bytes and ept_bytes in the end, *_extra (beyond one copy), and aside_bytes
    columns  policy, params, pt_bytes, pt_bytes_extra, ept_bytes, ept_bytes_extra, aside_bytes
    """
    must_have(bool(len(table)), "no policy", "name a policy")
    table = table.drop_duplicates(["policy", "params"])
    parts = parts_of(table)
    total = parts.sum(axis=1)
    unit, name = binary_unit(float(total.max()))
    labels = policy_labels(table)
    names = [broken(label, WIDE) for label in labels]
    figure = new_figure(2.4 + rows_high(names))
    axis = figure.subplots()
    at, left = range(len(table)), [0.0] * len(table)
    for kind, (colour, hatch) in zip(parts, LOOKS.values(), strict=True):
        widths = (parts[kind] / unit).tolist()
        if any(widths):
            axis.barh(
                at, widths, left=left, color=colour, hatch=hatch, edgecolor="white", height=0.75,
                label=named(kind, bool(table["ept_bytes"].any())),
            )  # fmt: skip
        for row, (label, width, start) in enumerate(zip(labels, widths, left, strict=True)):
            if width:
                text = f"{label}: {width:,.2f} {name} {named(kind, bool(table['ept_bytes'].any()))}"
                note(axis, text, (start, start + width), (row - 0.375, row + 0.375))
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_xlim(0, 1.03 * total.max() / unit)
    axis.set_xlabel(f"{name} of page tables")
    name_rows(axis, names, [size_in_words(int(value)) for value in total])
    if is_narrow():
        legend_beside(axis)
    else:
        axis.legend(loc="lower left", bbox_to_anchor=(0, 1.005), ncols=3, borderaxespad=0)
    title(figure, headline(labels.tolist(), total.tolist()))
    context(figure, table)
    return figure


LOOKS = {
    "gPT, one copy": (BLUE, ""),
    "gPT, copies": (SKY, "///"),
    "ePT, one copy": (GREEN, "--"),
    "ePT, copies": (ORANGE, "\\\\\\"),
    "kept aside, not walked": (PURPLE, "xxx"),
}


def parts_of(table: DataFrame) -> DataFrame:
    """Bytes by LOOKS' keys; savings below a single copy are not drawn."""
    columns = []
    for side in ("pt", "ept"):
        extra = table[f"{side}_bytes_extra"].clip(lower=0)
        columns += [table[f"{side}_bytes"] - extra, extra]
    return DataFrame(dict(zip(LOOKS, [*columns, table["aside_bytes"]], strict=True)))


def named(kind: str, nested: bool) -> str:
    return kind if nested else kind.replace("gPT", "page tables")


def headline(labels: list[str], total: list[float]) -> str:
    most = max(range(len(total)), key=total.__getitem__)
    text = f"Page tables take {size_in_words(int(total[0]))} with {labels[0]}"
    if total[most] > total[0]:
        text += f", at most {size_in_words(int(total[most]))} with {labels[most]}"
    return text
