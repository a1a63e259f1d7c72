"""Classifying a whole capture: its mapped pages, and the walks of its trace on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.progress import Progress, adding_up
from ..world.address_space import address_space
from ..world.placement import AUTO, place
from ..world.tlb_filter import filter_trace
from .classify import Classification, classify, classify_walks

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..formats.capture import Capture


def mapped_locality(capture: Capture, *, weight: str = "leaf", by: str = "all") -> Classification:
    """Classification of every mapped page of a Capture; see classify.classify."""
    return classify(address_space(capture.snapshot, np.zeros(0, np.uint64)), weight=weight, by=by)


def walk_locality(
    capture: Capture,
    machine: Machine,
    *,
    by: str = "all",
    placement: str = AUTO,
    threads: int = 1,
    progress: Progress = None,
) -> tuple[Classification, str]:
    """(Classification, how threads were placed) of the trace's TLB misses on a Machine."""
    trace, snapshot = capture.trace, capture.snapshot
    placed = place(trace, machine, placement, snapshot.topology)
    space = address_space(snapshot, trace.regions)
    tick = adding_up(progress, trace.touches, "filtering touches")
    stream = filter_trace(
        trace, space, placed, machine.tlb, threads=threads, cache_dir=capture.cache, progress=tick
    )
    return classify_walks(space, stream, placed, trace=trace, by=by), placed.how
