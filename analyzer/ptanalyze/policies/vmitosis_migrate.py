"""vmitosis-migrate: one copy of each table page, on the node that most of its entries point to.

Panwar et al., vMitosis, section 3.2. In each dimension that it acts on, table pages follow the data that a
NUMA-balancing kernel moves, the leaves first (3.2.1). In a NUMA-oblivious VM the guest's tables are ordinary
memory to the hypervisor and move as such (3.2.2): there only the host's are looked after. Moving a page takes
a few microseconds under a write lock (3.2.3) and one entry of its parent.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Strict
from ..kernels.replay import PTE_WRITE, TABLE_MOVED
from ..world.data_moves import by_host
from ..world.data_nodes import count_children
from . import vmitosis_hooks as hooks
from .base import Part, Policy, World, captured_nodes, guest_exists
from .vmitosis import ACTS

LAYERS = "whose tables migrate: the guest's (natively the only ones), the host's, or both"
VERIFY = (
    "start: misplaced tables are put right before the first walk, as an occasional check of the whole table "
    "does (3.2.1), and then as data move; never: only as data move"
)


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    verify: Annotated[Literal["start", "never"], Meta(description=VERIFY)] = "start"


def start_guest(world: World, params: Params) -> tuple[hooks.State, int]:
    space, past = world.space, world.history
    split, total = space.guest_tables, len(space.tables.level)
    exists = guest_exists(world)
    home = np.full(total, hooks.NOWHERE, np.int16)
    home[:split] = captured_nodes(world, 0)
    touched = np.zeros(total, bool)
    touched[past.rows.leaf] = True
    count = np.zeros((total, world.nodes), np.int16)
    skip = touched[:split] | ~exists[:split]
    count[:split] = count_children(world, space.snapshot.guest, skip, not space.native)
    data = world.data.guest.copy()
    for node in range(world.nodes):
        count[past.rows.leaf, node] = np.count_nonzero(data == node, axis=1)
    at_once = params.verify == "start" and not by_host(world)
    state = _state(world, home, count, data, exists, (0, split), at_once)
    return state, int(np.count_nonzero(exists))


def start_host(world: World, params: Params) -> tuple[hooks.State, int]:
    space = world.space
    if space.native and params.layers == "ept":
        raise UsageError(
            "policy vmitosis-migrate: layers = ept: a native capture has no host tables; use gpt or both"
        )
    split, tables = space.guest_tables, space.host_tables
    total = len(space.tables.level)
    home, count = np.full(total, hooks.NOWHERE, np.int16), np.zeros((total, world.nodes), np.int16)
    exists = np.zeros(total, bool)
    if tables:
        mine = slice(split, split + tables)
        home[mine], exists[mine] = captured_nodes(world, 1), True
        count[mine] = count_children(world, space.snapshot.nested, world.data.host_row[mine] >= 0, False)
        rows = np.flatnonzero(world.data.host_row >= 0)
        for node in range(world.nodes):
            found = np.count_nonzero(world.data.host == node, axis=1)
            count[rows, node] = found[world.data.host_row[rows]]
    data = world.data.host.copy()
    state = _state(world, home, count, data, exists, (split, split + tables), params.verify == "start")
    return state, tables


def _state(
    world: World,
    home: np.ndarray,
    count: np.ndarray,
    data: np.ndarray,
    exists: np.ndarray,
    span: tuple[int, int],
    at_once: bool,
) -> hooks.State:
    again = home.copy()
    moved, written = np.zeros((world.nodes, world.nodes), np.int64), np.zeros(world.nodes, np.int64)
    hooks.add_up(world.space.tables, *span, exists, home, count, at_once, moved, written)
    return hooks.State(home, again, count, data, world.data.host_row, moved, written)


def at_once(state: hooks.State, events: np.ndarray) -> None:
    """Part.at_once: the tables put right; their parents' entries are written on the parents' nodes."""
    events[TABLE_MOVED] += state.moved
    events[PTE_WRITE][np.diag_indices(len(state.written))] += state.written


def settle(state: hooks.State, world: World, tables: np.ndarray) -> int:
    return len(tables)


def at_rest(state: hooks.State, ids: slice) -> np.ndarray:
    home = state.home[ids]
    return np.broadcast_to(home[:, None], (len(home), state.count.shape[1]))


POLICY = Policy(
    "vmitosis-migrate",
    "one copy of each table page that follows most of its children, when data move: for one-socket workloads",
    Part(hooks.GUEST, start_guest, settle, at_rest, at_once=at_once),
    Part(hooks.HOST, start_host, None, at_rest, at_once=at_once),
    Params,
    source="vMitosis, section 3.2",
    needs=("data nodes",),
    acts=lambda params: ACTS[params.layers],
)
