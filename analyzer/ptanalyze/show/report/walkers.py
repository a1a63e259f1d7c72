"""Which memory and which threads walk most: the ten VMAs and threads with the most walks."""

from collections.abc import Iterator
from typing import Any

from pandas import DataFrame

from ...world.address_space import NO_VMA
from ..plots.vma_names import named
from .grid import Column, Grid, count, grid, percent, word
from .study import Study

MOST = 10
NAMES = {"vma": "VMA", "thread": "Thread"}
LOCAL = ("Local", "Local-Local")


def walkers(study: Study) -> Iterator[Grid]:
    """A table of VMAs, and one of threads where there are several."""
    for by, table in study.walkers.items():
        rows = largest(table)
        if len(rows) < 2:
            continue
        shown = [{**row, "name": named(row["group"]), "at": addresses(row["group"])} for row in rows[:MOST]]
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
    return None if group == NO_VMA else group.partition(" ")[0]


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
