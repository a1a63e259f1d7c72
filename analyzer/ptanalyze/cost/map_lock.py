"""The lock on a process's mappings: calls that change them hold it, and their callers wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Price

WRITERS = ("mmap", "munmap", "mprotect", "mremap", "brk")  # of mmap_sem, in Linux 4.17 for all of the call
BUSY = 0.3  # of the run: above, calls of other threads find the lock taken often enough to matter


def held_ns(price: Price) -> float:
    """Time that the lock is held for writing by all calls."""
    return sum(call.ns * call.calls for call in price.system_calls if call.call in WRITERS)


def lock_note(price: Price, cpus: int, ghz: float) -> str:
    """A line where the lock is held for much of a run on so many CPUs: the wait for it is in no speed-up."""
    if cpus < 2 or not price.run_cycles:
        return ""
    share = held_ns(price) * ghz * cpus / price.run_cycles
    if share < BUSY:
        return ""
    return (
        f"system calls hold the lock on the mappings for {100 * min(share, 1):.0f} % of the run: threads "
        "would wait for each other, which speed-ups leave out"
    )
