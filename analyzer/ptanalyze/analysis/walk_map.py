"""Walks by address and time: which memory is walked when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np

from ..core.columns import described
from ..core.errors import UsageError
from ..core.options import Keywords
from ..core.trace import REGION_SHIFT
from ..formats.capture import CaptureLike
from ..world import address_space
from .replay import windows_of
from .setup import Setup, from_the_beginning, open_replay_capture, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..world.scenario import Scenario

WINDOWS, ROWS = 40, 48
FINER = 8  # times as many parts as rows, as far as a part is a page or more
MAP_PAGE_BITS = 9  # of a page's number within its region
BATCH = 1 << 22  # walks counted at a time


def walk_map(
    capture: CaptureLike = None, setup: Setup | None = None, *, rows: int = ROWS, **options: Unpack[Keywords]
) -> DataFrame:
    """Walks by address and time: start, end (addresses), vma, time_ns (the window's end), walks.

    rows  the most rows of addresses; memory that no walk leads to is left out, and a row is within one VMA
          as far as there are rows enough
    40 windows of equal time unless the setup has another number (of equal walks, and time_ns 0, where the
    trace has no times). UsageError without a trace.
    """
    known = open_replay_capture(capture)
    how = setup_of(setup, options)
    if known.trace is None:
        raise UsageError(f"{known.capture.directory}: no trace, so no walks over time: record the program")
    table = counted(known.scenario(from_the_beginning(how)), how.windows or WINDOWS, rows)
    return described(table, provenance=known.provenance | {"machine": how.machine.name})


def counted(scenario: Scenario, windows: int, rows: int) -> DataFrame:
    from pandas import DataFrame

    times, ends, _ = windows_of(scenario, windows)
    va, vmas = scenario.space.regions.va, scenario.snapshot.vmas
    shift = MAP_PAGE_BITS - min((FINER * rows // max(len(va), 1)).bit_length(), MAP_PAGE_BITS)
    counts = by_part(scenario.stream.page, ends, shift, len(va) << (MAP_PAGE_BITS - shift))
    part = np.flatnonzero(counts.any(axis=1))
    inside = MAP_PAGE_BITS - shift
    start = (va[part >> inside] << np.uint64(REGION_SHIFT)) + (
        (part & ((1 << inside) - 1)).astype(np.uint64) << np.uint64(12 + shift)
    )
    order = np.argsort(start)
    start, counts = start[order], counts[part[order]]
    names, groups = address_space.groups(scenario.snapshot, "vma")
    vma = groups[address_space.vma_of(start, vmas)] if len(vmas) else np.zeros(len(start), np.int64)
    row = rows_of(vma, rows)
    first = np.flatnonzero(np.diff(row, prepend=-1))
    last = np.append(first[1:], len(row)) - 1 if len(row) else first
    summed = np.add.reduceat(counts, first, axis=0) if len(row) else counts
    return DataFrame(
        {
            "start": np.repeat(start[first], windows),
            "end": np.repeat(start[last] + np.uint64(1 << (12 + shift)), windows),
            "vma": np.repeat(np.array([names[k] for k in vma[first]], object), windows),
            "time_ns": np.tile(times, len(first)),
            "walks": summed.ravel(),
        }
    )


def by_part(page: np.ndarray, ends: np.ndarray, shift: int, parts: int) -> np.ndarray:
    """int64[parts, windows]: walks to each part of 2**shift pages."""
    counts = np.zeros((parts, len(ends)), np.int64)
    begin = 0
    for window, end in enumerate(ends.tolist()):
        for at in range(begin, end, BATCH):
            some = page[at : min(at + BATCH, end)] >> np.uint32(shift)
            counts[:, window] += np.bincount(some, minlength=parts)
        begin = end
    return counts


def rows_of(vma: np.ndarray, rows: int) -> np.ndarray:
    """int64: row of each part; VMAs share `rows` by their parts, the smallest of too many share one."""
    if len(vma) <= rows:
        return np.arange(len(vma))
    change = np.flatnonzero(np.diff(vma, prepend=vma[0] - 1))
    sizes = np.diff(np.append(change, len(vma)))
    if len(sizes) >= rows:
        return np.arange(len(vma)) * rows // len(vma)
    share = 1 + np.floor(sizes * (rows - len(sizes)) / len(vma)).astype(np.int64)
    before = np.repeat(np.cumsum(share) - share, sizes)
    within = np.arange(len(vma)) - np.repeat(change, sizes)
    row: np.ndarray = before + within * np.repeat(share, sizes) // np.repeat(sizes, sizes)
    return row
