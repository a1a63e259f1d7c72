"""malloc by mmap: segments of random size are mapped, written and unmapped (Hydra, section 5.6.2)."""

from bisect import insort
from collections import deque

import numpy as np

from ..core.machine import load_machine
from .designs import DESIGNS
from .locking import Work, work
from .script import PAGE, Script

MEAN_BYTES = 3.3e6  # published
SHAPE = 2.0  # of the Gamma distribution: assumed
LIVE = 256  # segments of each thread, where the benchmark is stateful: published
UNITS = 24  # allocations of each thread that are measured
TOP = 1 << 34  # page number below which the kernel maps, downwards


class Holes:
    """The kernel maps into the highest hole that is large enough (vm_unmapped_area, top down)."""

    def __init__(self) -> None:
        self.holes = [(0, TOP)]

    def take(self, pages: int) -> int:
        for k in range(len(self.holes) - 1, -1, -1):
            start, end = self.holes[k]
            if end - start >= pages:
                self.holes[k : k + 1] = [(start, end - pages)] if end - start > pages else []
                return end - pages
        raise AssertionError("no hole is large enough")

    def give(self, start: int, pages: int) -> None:
        insort(self.holes, (start, start + pages))
        merged: list[tuple[int, int]] = []
        for hole in self.holes:
            if merged and merged[-1][1] == hole[0]:
                hole = merged.pop()[0], hole[1]
            merged.append(hole)
        self.holes = merged


def allocations(
    sockets: int, stateful: bool, touched: bool = True, live: int = LIVE, units: int = UNITS
) -> dict[str, Work]:
    """{design: Work} per allocation, with a thread on each of `sockets` sockets.

    touched  every page of a segment is written, otherwise only its first
    """
    script, holes = Script(range(sockets)), Holes()
    sizes = np.random.default_rng(0)
    held: list[deque[tuple[int, int]]] = [deque() for _ in range(sockets)]

    def allocate(thread: int) -> None:
        pages = int(np.ceil(sizes.gamma(SHAPE, MEAN_BYTES / SHAPE) / PAGE)) or 1
        at = holes.take(pages)
        script.mmap(thread, at, pages)
        script.touch(thread, at + np.arange(pages if touched else 1))
        held[thread].append((at, pages))

    def free(thread: int) -> None:
        at, pages = held[thread].popleft()
        script.munmap(thread, at, pages)
        holes.give(at, pages)

    for thread in range(sockets):
        for _ in range(live if stateful else 0):
            allocate(thread)
    for thread in range(sockets):
        script.touch(thread, TOP + thread)  # its stack
    script.mark()
    for _ in range(units):
        for thread in range(sockets):
            steps = (free, allocate) if stateful else (allocate, free)
            for step in steps:
                step(thread)
    ghz, done = load_machine("hydra-haswell").ghz, units * sockets
    return {name: work(*both, done, ghz) for name, both in script.before_and_after(DESIGNS).items()}
