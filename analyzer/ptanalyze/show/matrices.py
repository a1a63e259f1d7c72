"""Latencies from node to node for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..analysis.answer import Section


def matrices(title: str, nodes: Sequence[int], by_state: Mapping[str, Any]) -> Iterator[Section]:
    """A table per state of {state: [reader's node][serving node]} that has a matrix."""
    for state, matrix in by_state.items():
        if matrix is not None:
            rows = [
                {"reader": f"node {a}"} | {f"node {b}": float(ns) for b, ns in zip(nodes, row, strict=True)}
                for a, row in zip(nodes, matrix, strict=True)
            ]
            yield Section(f"{title}, {state}", rows)
