"""The points of a sweep for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.answer import Cell
from ..cost.result import Result


def rows(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[dict[str, Cell]]:
    """One row per point and policy: its place on each axis, then locality and cost."""
    return [
        {"policy": result.policy, **place(axes, {**result.params, **point}), **quantities(result.row())}
        for point, result in points
    ]


def place(axes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Cell]:
    return {key: str(settings.get(key, settings.get(key.rpartition(".")[2], "-"))) for key in axes}


def quantities(row: Mapping[str, Any]) -> dict[str, Cell]:
    return {
        "LL": f"{100 * row['leaf_LL_share']:.2f} %",
        "DRAM reads": row["dram_reads"],
        "remote": row["remote_dram_reads"],
        "cycles/walk": row["cycles_per_walk"],
        "management cycles": row["management_cycles"],
        "extra KiB": (row["pt_bytes_extra"] + row["ept_bytes_extra"] + row["aside_bytes"]) >> 10,
        "IPIs": row["ipis"],
        "speed-up": row["speedup"],
    }
