"""What an answer without a trace may claim: a bound, and no gain where the caches hold the leaf entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import size_in_words
from ..core.interval import NOTHING
from ..core.machine import LINE_BYTES, at_least_share

if TYPE_CHECKING:
    from ..cost.result import Result
    from ..world.world import World

NO_ADVICE = "No recommendation without a trace"


def bound_note(readers: int) -> str:
    """Line for people: what is assumed of the walks."""
    return (
        "what is saved of walk cycles is a bound: without a trace every leaf entry is taken to be read from "
        f"DRAM{',' if readers > 1 else ''}{from_nodes(readers)}, and how often TLBs miss is not known"
    )


def cached(worlds: Sequence[World]) -> str:
    """A note where the least that the machine's LLC may leave to page tables holds every line with a leaf
    entry of processes that run together; else ""."""
    lines = sum(world.leaf_lines for world in worlds)
    if lines > at_least_share(worlds[0].machine).llc.lines:
        return ""
    kib = -(-lines * LINE_BYTES // 1024)
    return f"its leaf entries, {size_in_words(kib * 1024)} of page-table lines, {NOTHING}"


def equally(base: Result) -> str:
    """A sentence on where walks are taken to start; "" where there is one node."""
    readers = int(np.count_nonzero(base.reads.sum(axis=(0, 2, 3))))
    return f"The program is taken to walk{from_nodes(readers)}." if readers > 1 else ""


def from_nodes(readers: int) -> str:
    return f" equally from {readers} nodes" if readers > 1 else ""


def sentence_of(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."
