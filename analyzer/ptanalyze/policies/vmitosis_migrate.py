"""vmitosis-migrate: a single copy of each table page, on the node of most of its entries' targets.

Panwar et al., vMitosis, section 3.2. In each dimension that it acts on, table pages follow the data that a
NUMA-balancing kernel moves, the leaves first (3.2.1). In a NUMA-oblivious VM the guest's tables are ordinary
memory to the hypervisor and move as such (3.2.2): there only the host's are looked after. Moving a page takes
a few microseconds under a write lock (3.2.3) and rewrites an entry of its parent.
"""

from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ..core.machine import Strict
from ..kernels import PTE_WRITE, TABLE_MOVED, replay
from ..kernels.data_migration import NOWHERE, place_page
from ..world.page_homes import by_host, count_children
from . import static_replicas
from .contract import (
    LAYERS_ACT,
    GuestHooks,
    HostHooks,
    Policy,
    PolicySide,
    Scenario,
    called_hook,
    captured_nodes,
    guest_exists,
    guest_homes,
    hook,
)

LAYERS = "whose tables migrate: the guest's (natively the only ones), the host's, or both"
VERIFY = (
    "start: misplaced tables are put right before the first walk, as an occasional check of the whole table "
    "does (3.2.1), and then as data move; never: only as data move"
)


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    verify: Annotated[Literal["start", "never"], Meta(description=VERIFY)] = "start"


class State(NamedTuple):
    """
    tables   static_replicas.State of the single copies
    children int16[T, nodes]  valid entries of each table that point to each node
    data     int8[L, 512]     by row and slot (the guest's), by host_row and slot (the host's): node of the
                              data, negative where nothing is mapped, as in kernels.data_migration
    row      int32[T]         the host's host_row
    captured int16[T]         nodes of the tables before the first walk, when they are put right
    """

    tables: static_replicas.State
    children: np.ndarray
    data: np.ndarray
    row: np.ndarray
    captured: np.ndarray


@hook
def server_of(state, table, node):
    return state.tables.home[table]


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, row, slot, node, np.int64(fault) - 1, counters)
    return state.tables.home[leaf]


@hook
def on_nested(state, tables, table, slot, node, counters):
    return state.tables.home[table]


@called_hook
def install(state, tables, leaf, row, slot, node, made, counters):
    """A demand fault: new tables on the faulting node, the entry, and data where they are first touched."""
    static_replicas.install(state.tables, tables, leaf, node, made, counters)
    join(state, tables, leaf, made)
    if state.data[row, slot] < 0:
        state.children[leaf, place_page(state.data, row, slot, node)] += 1


@hook
def join(state, tables, leaf, made):
    """`made` tables from `leaf` upwards are children of their parents."""
    table = np.int64(leaf)
    for _ in range(made):
        parent = np.int64(tables.parent[table])
        if parent >= 0:
            state.children[parent, state.tables.home[table]] += 1
        table = parent


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, to = steps.kind[step], np.int64(steps.to[step])
    if mapped.changed[step] == 0:
        return
    if kind == replay.TABLE_DATA:
        return carry(state, tables, np.int64(steps.number[step]), to, counters.events)
    if kind == replay.FREE:
        leave(state, tables, np.int64(steps.number[step]))
    static_replicas.on_step(state.tables, tables, rows, steps, shootdowns, mapped, counters, step)
    row, lo, hi = replay.slot_range(steps, step)
    if kind == replay.MOVE:
        move_entries(state, tables, rows, steps, mapped, step)
    if kind in (replay.CLEAR, replay.MOVE):
        clear(state, rows, row, lo, hi)
    elif kind == replay.DATA:
        leaf = np.int64(rows.leaf[row])
        change(state, leaf, row, lo, to)
        put_right(state, tables, leaf, np.int64(steps.node[step]), counters.events)


@hook
def move_entries(state, tables, rows, steps, mapped, step):
    """mremap: the target's table gets the entries; their data stay where they are."""
    row, lo, hi = replay.slot_range(steps, step)
    target, to, each = replay.move_target(steps, step)
    leaf = np.int64(rows.leaf[target])
    join(state, tables, leaf, np.int64(mapped.made[step]))
    for slot in range(np.int64(lo), hi):
        there = np.int64(state.data[row, slot])
        if there >= 0:
            state.data[target, to + slot - lo : to + slot - lo + each] = there
            state.children[leaf, there] += each


@hook
def clear(state, rows, row, lo, hi):
    leaf = rows.leaf[row]
    for slot in range(lo, hi):
        there = np.int64(state.data[row, slot])
        if there >= 0:
            state.children[leaf, there] -= 1
            state.data[row, slot] = NOWHERE


@hook
def leave(state, tables, table):
    """A table is freed: its parent has a child less."""
    if tables.parent[table] >= 0:
        state.children[tables.parent[table], state.tables.home[table]] -= 1
    state.children[table] = 0


@hook
def change(state, table, row, slot, to):
    """The data behind an entry are on node `to` now."""
    before = np.int64(state.data[row, slot])
    if before >= 0:
        state.children[table, before] -= 1
    state.children[table, to] += 1
    state.data[row, slot] = to


@hook
def put_right(state, tables, table, node, events):
    """Move `table` to the node that most of its entries point to, then check its parent."""
    while table >= 0:
        home = np.int64(state.tables.home[table])
        best = most(state.children, table, home)
        if best == home:
            return
        carry(state, tables, table, best, events)
        table = np.int64(tables.parent[table])
        if table >= 0:
            events[PTE_WRITE, node, state.tables.home[table]] += 1


@hook
def most(count, table, home):
    """The node that most entries of `table` point to: `home` unless another node has more."""
    best = home
    for other in range(count.shape[1]):
        if count[table, other] > count[table, best]:
            best = other
    return best


@hook
def carry(state, tables, table, to, events):
    """The table page is on node `to` now."""
    home, parent = np.int64(state.tables.home[table]), np.int64(tables.parent[table])
    if home >= 0 and home != to:
        events[TABLE_MOVED, home, to] += 1
        state.tables.home[table] = to
        if parent >= 0:
            state.children[parent, home] -= 1
            state.children[parent, to] += 1


@called_hook
def on_host_step(state, tables, rows, steps, mapped, counters, step):
    kind, node = steps.kind[step], np.int64(steps.node[step])
    if mapped.changed[step] == 0 or kind not in (replay.DATA, replay.HOST_DATA, replay.TABLE_DATA):
        return
    table, slot = replay.host_entry(steps, tables, step)
    if table < 0:
        return
    to = np.int64(steps.to[step])
    if kind != replay.DATA:
        counters.host_events[PTE_WRITE, node, state.tables.home[table]] += 1
    row = state.row[table]
    if slot != replay.ALL:
        change(state, table, row, slot, to)
    else:
        for each in range(512):
            if state.data[row, each] >= 0:
                change(state, table, row, each, to)
    put_right(state, tables, table, node, counters.host_events)


GUEST = GuestHooks(server_of, on_walk, on_step)
HOST = HostHooks(server_of, on_nested, on_host_step)


def start_guest(scenario: Scenario, params: Params) -> tuple[State, int]:
    space, past = scenario.space, scenario.history
    split, total = space.guest_tables, len(space.tables.level)
    exists = guest_exists(scenario)
    home, again = guest_homes(scenario)
    touched = np.zeros(total, bool)
    touched[past.rows.leaf] = True
    count = np.zeros((total, scenario.nodes), np.int16)
    skip = touched[:split] | ~exists[:split]
    count[:split] = count_children(scenario, space.snapshot.guest, skip, not space.native)
    data = scenario.data.guest.copy()
    for node in range(scenario.nodes):
        count[past.rows.leaf, node] = np.count_nonzero(data == node, axis=1)
    setup_events = params.verify == "start" and not by_host(scenario)
    state = _state(scenario, home, count, data, exists, space.sides[0], setup_events)
    return state._replace(tables=state.tables._replace(again=again)), int(np.count_nonzero(exists))


def start_host(scenario: Scenario, params: Params) -> tuple[State, int]:
    space = scenario.space
    mine, total = space.sides[1], len(space.tables.level)
    home, count = np.full(total, NOWHERE, np.int16), np.zeros((total, scenario.nodes), np.int16)
    exists = np.zeros(total, bool)
    if space.host_tables:
        home[mine], exists[mine] = captured_nodes(scenario, 1), True
        skip = scenario.data.host_row[mine] >= 0
        count[mine] = count_children(scenario, space.snapshot.nested, skip, False)
        rows = np.flatnonzero(scenario.data.host_row >= 0)
        for node in range(scenario.nodes):
            on_node = np.count_nonzero(scenario.data.host == node, axis=1)
            count[rows, node] = on_node[scenario.data.host_row[rows]]
    data = scenario.data.host.copy()
    return _state(scenario, home, count, data, exists, mine, params.verify == "start"), space.host_tables


def _state(
    scenario: Scenario,
    home: np.ndarray,
    count: np.ndarray,
    data: np.ndarray,
    exists: np.ndarray,
    mine: slice,
    setup_events: bool,
) -> State:
    """State whose tables are put right if `setup_events`, children first, and counted by their parents."""
    tables, captured = scenario.space.tables, home.copy()
    there = np.flatnonzero(exists & (home >= 0))
    there = there[(there >= mine.start) & (there < mine.stop)]
    for level in range(1, int(tables.level.max(initial=0)) + 1):
        at = there[tables.level[there] == level]
        best = count[at].argmax(axis=1)
        better = (count[at, best] > count[at, home[at]]) & setup_events
        home[at[better]] = best[better]
        below = at[tables.parent[at] >= 0]
        np.add.at(count, (tables.parent[below], home[below]), 1)
    copies = static_replicas.one_copy(scenario, home)
    copies.rule[2] = 0  # 4.17, on which vMitosis is, moves each entry
    return State(copies, count, data, scenario.data.host_row, captured)


def setup_events(state: State, scenario: Scenario, events: np.ndarray) -> None:
    """PolicySide.setup_events: tables are put right; their parents write the entries, on their nodes."""
    home, captured = state.tables.home, state.captured
    moved = np.flatnonzero(home != captured)
    np.add.at(events[TABLE_MOVED], (captured[moved], home[moved]), 1)
    parent = scenario.space.tables.parent[moved]
    writer = captured[parent[parent >= 0]]
    np.add.at(events[PTE_WRITE], (writer, writer), 1)


def initial_servers(state: State, ids: slice) -> np.ndarray:
    home = state.tables.home[ids]
    return np.broadcast_to(home[:, None], (len(home), state.children.shape[1]))


POLICY = Policy(
    "vmitosis-migrate",
    "one copy of each table page that follows most of its children, when data move: for one-socket workloads",
    PolicySide(GUEST, start_guest, None, initial_servers, setup_events=setup_events),
    PolicySide(HOST, start_host, None, initial_servers, setup_events=setup_events),
    Params,
    source="vMitosis, section 3.2",
    needs=("data nodes",),
    scope=lambda params: LAYERS_ACT[params.layers],
    extra_needs=lambda params: ("nested tables",) if params.layers == "ept" else (),
)
