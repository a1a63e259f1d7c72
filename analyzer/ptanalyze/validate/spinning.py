"""A thread calls mprotect or munmap again and again while others spin (Hydra, section 5.6.1)."""

import numpy as np

from ..core.machine import Costs
from ..cost.result import Result
from .designs import DESIGNS
from .script import READ, READ_WRITE, Script

TARGET, SPIN = 1 << 21, 1 << 22  # page numbers
REGION = 512  # pages
LOOPS = 3
ALONE, CROWDED = (0, 0), (35, 35)  # threads that spin on the caller's socket, and on each other socket
SOCKETS = 8


def calls(
    call: str, pages: int = 1, spinning: tuple[int, int] = ALONE, costs: Costs | None = None
) -> dict[str, float]:
    """{design: ns per call}, of a call that changes `pages` entries of 4 KiB pages.

    call  "mmap", "mprotect" or "munmap". A neighbour in the same leaf table keeps it from being freed; every
    thread has a page of its own, in a leaf table of its own.
    """
    near, far = spinning
    script = Script([0, *[0] * near, *[node for node in range(1, SOCKETS) for _ in range(far)]])
    script.mmap(0, SPIN, REGION * len(script.node))
    for thread in range(len(script.node)):
        script.touch(thread, SPIN + REGION * thread)
    script.mmap(0, TARGET, REGION)
    script.touch(0, TARGET + REGION - 1)
    for turn in range(LOOPS):
        loop(script, call, pages, turn)
    results = script.replay(DESIGNS, costs=costs)
    return {name: ns_of(result, call) for name, result in results.items()}


def loop(script: Script, call: str, pages: int, turn: int) -> None:
    """The range is mapped before and after; except for mmap it has entries at the call.

    mprotect makes it read-only and writable by turns, so that each call changes something.
    """
    if call != "mmap":
        script.touch(0, TARGET + np.arange(pages))
    if call == "mprotect":
        script.mprotect(0, TARGET, pages, prot=READ_WRITE if turn % 2 else READ)
        return
    script.munmap(0, TARGET, pages)
    script.mmap(0, TARGET, pages)


def ns_of(result: Result, call: str) -> float:
    (ns,) = (cost.ns for cost in result.price.system_calls if cost.call == call)
    return ns
