"""Leaf tables of several processes that map the same pages, as a table."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame, concat

from ..core.units import described
from ..formats.capture import Capture
from ..world.trees import shared_pages


def shared_tables_frame(capture: Capture) -> DataFrame:
    """One row per leaf table that maps a page which another process maps too; by group, then PID and address.

    columns  pid, base (first address that it maps), node (-1 unknown), pages (mapped), shared_pages (of them
             mapped by other processes too), group: tables of one number map some page at the same entry, so
             that one table could stand for it in all of them; -1: none does
    """
    of = {pid: one.snapshot.guest for pid, one in capture.members.items() if one.has_snapshot}
    found = shared_pages(of)
    parts = [
        DataFrame(
            {
                "pid": np.full(len(tables), pid),
                "base": of[pid].base[tables],
                "node": of[pid].node[tables],
                "pages": found.mapped[pid],
                "shared_pages": found.with_others[pid],
                "group": found.group[pid],
            }
        )
        for pid, tables in found.tables.items()
    ]
    table = concat(parts, ignore_index=True).sort_values(["group", "pid", "base"], ignore_index=True)
    return described(table, provenance={"capture": str(capture.directory)})
