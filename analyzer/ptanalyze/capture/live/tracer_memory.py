"""Which memory of a recorded process is the tracer's, and not the program's."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.trace import REGION_SHIFT, Event, Trace
from ...formats.atomic import atomic_write
from ...formats.snapshot_file import FILE as SNAPSHOT
from ...formats.snapshot_file import parse_maps

Ranges = tuple[NDArray[np.uint64], NDArray[np.uint64]]  # starts, lengths in bytes


def mark_emulator(directory: Path, trace: Trace) -> None:
    """Add to snapshot.json of `directory` the VMAs that are the tracer's."""
    path = directory / SNAPSHOT
    record = json.loads(path.read_bytes())
    vmas, _ = parse_maps((directory / "maps").read_bytes(), directory / "maps")
    record["facts"]["emulator"] = emulator_ranges(trace, vmas)
    with atomic_write(path, "w") as file:
        json.dump(record, file, indent=1)


def emulator_ranges(trace: Trace, vmas: np.ndarray) -> list[list[int]]:
    """[[start, end]], merged, of the VMAs (VMA_DTYPE) in which the program mapped nothing, and which the
    tracer had when it began, or whose 2 MiB regions the program never touched.

    A VMA right behind one of the program falls under the latter alone: zeroed data may be in no event.
    """
    mapped = overlaps(vmas, *program_maps(trace))
    behind = np.isin(vmas["start"], vmas["end"][mapped])
    noted = trace.events[trace.events["kind"] == Event.TRACER_MAP]
    installed = overlaps(vmas, noted["a"], noted["b"]) & ~behind
    touched = trace.regions << np.uint64(REGION_SHIFT)
    used = overlaps(vmas, touched, np.full(len(touched), 1 << REGION_SHIFT, np.uint64))
    ranges: list[list[int]] = []
    for vma in vmas[~mapped & (installed | ~used)]:
        if ranges and ranges[-1][1] == vma["start"]:
            ranges[-1][1] = int(vma["end"])
        else:
            ranges.append([int(vma["start"]), int(vma["end"])])
    return ranges


def program_maps(trace: Trace) -> Ranges:
    """What the program mapped, as far as its trace knows."""
    starts, lengths = zip(*_program_maps(trace), strict=True)
    return np.concatenate(starts), np.concatenate(lengths)


def _program_maps(trace: Trace) -> Iterator[Ranges]:
    given = trace.events[trace.events["result"] > 0]
    for kind, length in ((Event.MMAP, "b"), (Event.MREMAP, "c")):
        mapped = given[given["kind"] == kind]
        yield mapped["result"].astype(np.uint64), mapped[length]
    heap = given["result"][given["kind"] == Event.BRK].astype(np.uint64)
    if len(heap):
        yield heap.min(keepdims=True), heap.max(keepdims=True) - heap.min()


def overlaps(vmas: np.ndarray, starts: NDArray[np.uint64], lengths: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool per VMA: it shares a byte with one of the ranges."""
    some = np.flatnonzero(lengths > 0)
    if not len(some):
        return np.zeros(len(vmas), bool)
    order = some[np.argsort(starts[some])]
    start = starts[order]
    end = np.maximum.accumulate(start + lengths[order])
    before = np.searchsorted(start, vmas["end"], side="left") - 1  # the last that starts below the VMA's end
    found: NDArray[np.bool_] = (before >= 0) & (end[np.maximum(before, 0)] > vmas["start"])
    return found
