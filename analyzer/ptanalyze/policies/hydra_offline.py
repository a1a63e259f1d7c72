"""The least that any prefetching of Hydra can cost: a bound, computed from walks that are all known.

Every degree copies the entries that a node needs and that updates do not bring it; degree 0 copies nothing
else. Degrees differ in how many faults these copies take. A fault of a node may bring any entry of
that table page that exists by then, so the least number of faults is that of points that hit all intervals
[entry made, entry first needed], of a table page and node. They are taken in order of their ends, and a fault
is put at the end of the first interval that no earlier fault hits, which is known to be the least. Demand
faults of the node come anyway, and bring entries too. Prefetching may cross VMAs here, so that the bound
holds for the kernel's, which may not.

Only for `degrees`: a kernel that knows the future cannot be built.
"""

from typing import NamedTuple

import numpy as np

from ..core.machine import Strict
from ..kernels.replay import REPLICA_FAULT, served
from ..kernels.steps import MOVE, move_target, slot_range
from . import hydra
from .base import GuestHooks, Part, Policy, World, called_hook, hook
from .hydra import ONE


class OfflineState(NamedTuple):
    """
    lazy    hydra.State of degree 0
    made    int32[L, 512]    clock when an entry was made, 0: before the trace
    asked   int32[L, nodes]  clock when a node last faulted on a row, -1: never
    clock   int32[1]         faults and moves so far
    """

    lazy: hydra.State
    made: np.ndarray
    asked: np.ndarray
    clock: np.ndarray


@hook
def locate(state, table, node):
    return node


@hook
def offline_on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if (state.lazy.entries[row, node, slot >> 6] >> np.uint64(slot & 63)) & ONE:
        return node
    return offline_miss(state, tables, leaf, row, slot, node, fault, counters)


@called_hook
def offline_miss(state, tables, leaf, row, slot, node, fault, counters):
    """As hydra.miss, but a fault that an earlier one could have spared does not happen."""
    walked = hydra.miss(state.lazy, tables, leaf, row, slot, node, fault, counters)
    server = served(walked)
    if not fault and server != node and state.made[row, slot] <= state.asked[row, node]:
        counters.events[REPLICA_FAULT, node, server] -= 1
        return np.int64(node)
    state.clock[0] += 1
    if fault:
        state.made[row, slot] = state.clock[0]
    if server != node:
        state.asked[row, node] = state.clock[0]
    return walked


@called_hook
def offline_on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    hydra.on_step(state.lazy, tables, rows, steps, shootdowns, mapped, counters, step)
    if steps.kind[step] == MOVE:
        _, lo, hi = slot_range(steps, step)
        target, to = move_target(steps, step)
        state.clock[0] += 1
        for slot in range(to, to + hi - lo):
            state.made[target, slot] = state.clock[0]


def start_offline(world: World, params: Strict) -> tuple[OfflineState, int]:
    lazy, pages = hydra.start(world, hydra.Params(prefetch=0))
    rows, nodes = len(lazy.ring), world.nodes
    made, asked = np.zeros((rows, 512), np.int32), np.full((rows, nodes), -1, np.int32)
    return OfflineState(lazy, made, asked, np.zeros(1, np.int32)), pages


def offline_settle(state: OfflineState, world: World, tables: np.ndarray) -> int:
    return hydra.settle(state.lazy, world, tables)


HYDRA_OFFLINE = Policy(
    "hydra-offline",
    "hydra that knows the walks to come: no degree of prefetching costs less",
    guest=Part(GuestHooks(locate, offline_on_walk, offline_on_step), start_offline, offline_settle),
    source="least points that hit intervals, of table pages and nodes",
    needs=hydra.POLICY.needs,
)
