"""Time of a workload of system calls whose threads share a lock on the mappings of their process."""

from typing import NamedTuple

from ..cost.result import Result

WRITERS = ("mmap", "munmap", "mprotect")  # of mmap_sem, in Linux 4.17 for all of the call


class Work(NamedTuple):
    """ns per unit of work (an allocation and its freeing, a request): `busy` in a thread, of which `locked`
    while no other thread of the process may map, unmap or fault."""

    busy: float
    locked: float

    def ns(self, threads: int, own: float = 0.0) -> float:
        """Time between two units of all threads together; own  ns per unit outside the kernel.

        Threads work side by side until the lock is always held: the bound of a closed queueing network.
        """
        return max((own + self.busy) / threads, self.locked)


def work(before: Result, after: Result, units: int, ghz: float) -> Work:
    """Work of threads that did `units` units between two Results of the same process and policy.

    `busy` includes the time that shootdowns take from interrupted threads, which would have done other units.
    """
    busy = (spent(after) - spent(before)) / ghz
    return Work(busy / units, (held(after) - held(before)) / units)


def spent(result: Result) -> float:
    """Cycles of all CPUs for page tables: management and walks."""
    return result.price.management_cycles + result.price.walk_cycles


def held(result: Result) -> float:
    """ns that the lock was held for writing."""
    return sum(call.ns * call.calls for call in result.price.system_calls if call.call in WRITERS)
