"""Counted page tables of a process by node, and what share of its walks is expected to be remote."""

from __future__ import annotations

from ...core.errors import UNKNOWN_NODE

PAGE = 4096


class Placed:
    """Base of what a survey counts.

    leaf, upper  {node of the host: table pages}: those that map 4 KiB pages, and those above them
    runs         {node of the host: share of CPU time}
    """

    leaf: dict[int, int]
    upper: dict[int, int]
    runs: dict[int, float]

    @property
    def remote_share(self) -> float | None:
        """Share of walks whose leaf table is remote if all leaf tables are walked alike; None unknown."""
        return remote(self.leaf, self.runs)

    @property
    def upper_remote_share(self) -> float | None:
        """The same of the tables above."""
        return remote(self.upper, self.runs)

    @property
    def remote_bytes(self) -> float:
        """Expected bytes of leaf tables that are remote: the worst come first."""
        return PAGE * sum(self.leaf.values()) * (self.remote_share or 0.0)


def remote(tables: dict[int, int], runs: dict[int, float]) -> float | None:
    known = {node: count for node, count in tables.items() if node != UNKNOWN_NODE}
    total = sum(known.values())
    if not total or not runs:
        return None
    return 1 - sum(share * known.get(node, 0) / total for node, share in runs.items())
