"""Numbers of memory system calls in a trace, and of those that flushed TLBs."""

import numpy as np

from ..core.trace import Event
from ..cost.result import SystemCalls
from ..kernels.replay import Mapped
from ..kernels.steps import CALLS, FLUSH, shootdown
from ..world.mm_events import region_of_interest
from ..world.world import World

MEMORY_CALLS = (Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK)


def system_calls(world: World, mapped: Mapped, first: int = 0) -> SystemCalls:
    """SystemCalls of a World's region of interest from chunk `first` on; mapped: of kernels.faults."""
    events, steps = world.trace.events, world.history.steps
    region = region_of_interest(events)
    node = world.placement.cpu_node[world.placement.event_cpu]
    done = np.isin(events["kind"], MEMORY_CALLS) & (events["result"] >= 0)
    done[: region.first] = done[region.end :] = False
    done &= events["chunk"] >= first
    flushed = (steps.kind == FLUSH) & (mapped.changed > 0)
    others = np.zeros(len(steps.kind), bool)
    others[flushed] = world.history.shootdowns.live[shootdown(steps, flushed)].any(axis=1)
    return SystemCalls(
        _table(events["kind"][done], node[done], world.nodes),
        _table(steps.call[flushed], steps.node[flushed], world.nodes),
        _table(steps.call[others], steps.node[others], world.nodes),
    )


def _table(call: np.ndarray, node: np.ndarray, nodes: int) -> np.ndarray:
    counts = np.zeros((len(CALLS), nodes), np.int64)
    np.add.at(counts, (call, node), 1)
    return counts
