"""Nodes whose threads hardly walk: what they touched first is remote to nearly all walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..cost.result import Result

FEW = 0.001  # share of the walks
BEGINS = f"less than {100 * FEW:g} % of the walks come from "


def silent_note(classes: np.ndarray, cpu_node: np.ndarray, domains: int) -> str:
    """A note on nodes that have threads, but next to no walk in what is counted; "" where every one walks.

    classes   int64[sockets, 4] as Counters; cpu_node: int16[cpus] nodes of the CPUs that have threads
    """
    walks = classes.sum(axis=1)
    nodes = np.unique(cpu_node // domains).tolist()
    silent = [node for node in nodes if walks[node] < FEW * walks.sum()]
    if not silent:
        return ""
    named = f"node{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
    return f"{BEGINS}{named}, where threads run: what they touched first is remote to nearly all walks"


def silent_points(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[str]:
    """The notes of a sweep's points, each once, after the point's place on the machine's axes."""
    lines = []
    for point, result in points:
        where = " ".join(f"{key}={point[key]}" for key in axes if key in point)
        lines += [f"{where}: {note}" if where else note for note in result.notes if note.startswith(BEGINS)]
    return list(dict.fromkeys(lines))
