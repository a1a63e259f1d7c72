"""Time of a workload of system calls whose threads share a lock on the mappings of their process."""

from typing import NamedTuple

from ..cost.price import held_ns
from ..cost.result import Result


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
    return Work(busy / units, (held_ns(after.price) - held_ns(before.price)) / units)


def spent(result: Result) -> float:
    """Cycles of all CPUs for page tables: management and walks."""
    return result.price.management_cycles + result.price.walk_cycles
