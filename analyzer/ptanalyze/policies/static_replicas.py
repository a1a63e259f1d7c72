"""Hooks and states of policies that keep every table page in a fixed set of copies, whoever asks for it.

One copy at a home node: linux, first-touch, interleave, bind, ideal. A copy on each node of a set: mitosis,
vmitosis-replicate; of some tables: `masked`. The guest's and the host's tables share a compiled loop.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..core.errors import RefusedError
from ..core.machine import Machine
from ..kernels import FAULT, IPI, PTE_COPY, PTE_FANOUT, PTE_WRITE, TABLE_FREE, TABLE_MOVED, TABLE_NEW, replay
from .contract import (
    GuestHooks,
    HostHooks,
    PolicySide,
    Scenario,
    called_hook,
    captured_nodes,
    guest_exists,
    guest_homes,
    hook,
    must_exist,
    nodes_of,
    wrong_return,
)

NOWHERE, MOVED, REPLICATED, MISPLACED = -1, -2, -3, -4
FIRST_TOUCH, INTERLEAVE, BIND, SKIPPING, FOLLOW = range(5)


class State(NamedTuple):
    """
    home     int16[T]      node of the single copy; NOWHERE: placed by `rule` when it is first needed;
                           MOVED: as that, and mremap took the page elsewhere; REPLICATED: on each node of
                           `copies`; MISPLACED: the same, and each is on another's node
    again    int16[T]      `home` of a table that is made again after it was freed
    serve    int16[nodes]  reader's node -> node whose copy it reads, of every table; NOWHERE: as `home` says
    copies   int16[k]      nodes that hold a copy of tables that are REPLICATED or MISPLACED
    rule     int64[3]      FIRST_TOUCH, INTERLEAVE, BIND, SKIPPING; FOLLOW: the copy goes where the process
                           runs. Tables placed so far (INTERLEAVE and SKIPPING) or the node (BIND). Whether
                           mremap may move a leaf table as it is
    turns    int16[n]      nodes of a round (INTERLEAVE and SKIPPING); where `serve` is NOWHERE, `serve` of
                           tables that are REPLICATED, then of MISPLACED ones
    """

    home: np.ndarray
    again: np.ndarray
    serve: np.ndarray
    copies: np.ndarray
    rule: np.ndarray
    turns: np.ndarray


@called_hook
def place(state, table, node):
    """Give a table without a home one, needed by a CPU of `node`; of replicas, the node of its copy."""
    if state.home[table] <= REPLICATED:
        return np.int64(state.turns[node + (state.serve.size if state.home[table] == MISPLACED else 0)])
    rule = state.rule[0]
    if rule == BIND:
        node = state.rule[1]
    elif rule != FIRST_TOUCH:
        node = state.turns[in_turn(rule, state.rule[1], state.turns.size)]
        state.rule[1] += 1
    state.home[table] = node
    return np.int64(node)


@replay.view
def in_turn(rule: int, placed: Any, turns: int) -> Any:
    """Turn of the table after `placed` others: round-robin; SKIPPING leaves a turn out after each round."""
    return (placed + placed // turns if rule == SKIPPING else placed) % turns


@hook
def server_of(state, table, node):
    server = state.serve[np.uint64(node)]
    if server < 0:
        server = state.home[np.uint64(table)]
        if server < 0:
            server = place(state, table, node)
    return server


@hook
def copies_of(state, table):
    """How many of the nodes `copies` have a table: all of them or none."""
    return state.copies.size if state.home[table] <= REPLICATED else 0


@hook
def count_pages(state, kind, table, node, events):
    """Count an event of each page of a table, caused by a CPU of `node`; how many there are."""
    copies = copies_of(state, table)
    if copies == 0:
        events[kind, node, server_of(state, table, node)] += 1
    for copy in range(copies):
        events[kind, node, state.copies[copy]] += 1
    return max(copies, 1)


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    if fault:
        install(state, tables, leaf, node, np.int64(fault) - 1, counters)
    return server_of(state, leaf, node)


@hook
def on_nested(state, tables, table, slot, node, counters):
    return server_of(state, table, node)


@called_hook
def install(state, tables, leaf, node, made, counters):
    """A demand fault: make `made` tables from the top down, then write the entry into every copy."""
    made = missing(state, leaf, made)
    make(state, tables, leaf, node, made, counters)
    counters.events[FAULT, node, server_of(state, leaf, node)] += 1
    write(state, leaf, node, 1, counters.events)


@hook
def missing(state, leaf, made):
    """How many tables must be made where `made` never were; one that was moved away, too."""
    if state.home[leaf] == MOVED:
        state.home[leaf] = NOWHERE
        return np.int64(1)
    return made


@hook
def make(state, tables, leaf, node, made, counters):
    for above in range(made - 1, -1, -1):
        table = leaf
        for _ in range(above):
            table = tables.parent[table]
        replay.grow(counters.pages, count_pages(state, TABLE_NEW, table, node, counters.events))


@hook
def write(state, leaf, node, entries, events):
    """Write `entries` entries of `leaf` from a CPU of `node`, in every copy."""
    first = server_of(state, leaf, node)
    events[PTE_WRITE, node, first] += entries
    for copy in range(copies_of(state, leaf)):
        if state.copies[copy] != first:
            events[PTE_FANOUT, node, state.copies[copy]] += entries


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, node, changed = steps.kind[step], steps.node[step], mapped.changed[step]
    if changed == 0:
        return
    if kind == replay.MOVE:
        row, _, each = replay.move_target(steps, step)
        made = missing(state, rows.leaf[row], np.int64(mapped.made[step]))
        if state.rule[2] and replay.moves_table(steps, step):
            move_leaf(state, tables, rows.leaf[steps.row[step]], rows.leaf[row], node, made, counters)
            return
        write(state, rows.leaf[steps.row[step]], node, changed, counters.events)
        make(state, tables, rows.leaf[row], node, made, counters)
        write(state, rows.leaf[row], node, each * changed, counters.events)
    elif kind in (replay.CLEAR, replay.UPDATE, replay.DATA, replay.HINT):
        write(state, rows.leaf[steps.row[step]], node, replay.stores(kind) * changed, counters.events)
    elif kind == replay.FREE:
        free(state, steps.number[step], node, counters)
    elif kind == replay.FLUSH:
        live = shootdowns.live[steps.number[step]]
        for there in range(live.size):
            counters.events[IPI, node, there] += changed * live[there]
    elif kind == replay.TABLE_DATA:
        move(state, steps.number[step], steps.to[step], counters)
    elif kind == replay.RUN and state.rule[0] == FOLLOW:
        follow(state, np.int64(steps.to[step]), counters)


@called_hook
def move_leaf(state, tables, leaf, target, node, made, counters):
    """The table page stays as it is, entries of the tables above it change (move_normal_pmd, mm/mremap.c).

    Kernels with copies are of 4.17 (vMitosis, Mitosis) or not known to do so: they move each entry.
    """
    home = server_of(state, leaf, node)
    if made:
        make(state, tables, tables.parent[target], node, made - 1, counters)
    else:
        counters.events[TABLE_FREE, node, server_of(state, target, node)] += 1
        replay.grow(counters.pages, -1)
    state.home[leaf], state.home[target] = MOVED, home
    write(state, tables.parent[leaf], node, 1, counters.events)
    write(state, tables.parent[target], node, 1, counters.events)


@hook
def free(state, table, node, counters):
    if state.home[table] != MOVED:
        replay.grow(counters.pages, -count_pages(state, TABLE_FREE, table, node, counters.events))
    state.home[table] = state.again[table]


@hook
def move(state, table, to, counters):
    """The hypervisor moves the single copy, as any page of the guest; replicas stay where they belong."""
    home = state.home[table]
    if home >= 0 and home != to:
        counters.events[TABLE_MOVED, home, to] += 1
        state.home[table] = to


@called_hook
def follow(state, to, counters):
    """Replicate every table on `to`, switch the roots, free what was (vMitosis, Table 3)."""
    pages, before = counters.pages[0], np.int64(state.copies[0])
    replay.grow(counters.pages, pages)
    counters.events[TABLE_MOVED, before, to] += pages
    counters.events[TABLE_FREE, to, before] += pages
    replay.grow(counters.pages, -pages)
    state.copies[0] = to
    state.serve[:] = to


@called_hook
def on_host_step(state, tables, rows, steps, mapped, counters, step):
    if mapped.changed[step] and steps.kind[step] in (replay.HOST_DATA, replay.TABLE_DATA):
        table, _ = replay.host_entry(steps, tables, step)
        if table >= 0:
            write(state, table, steps.node[step], 1, counters.host_events)


GUEST = GuestHooks(server_of, on_walk, on_step)
HOST = HostHooks(server_of, on_nested, on_host_step)

Begin: TypeAlias = Callable[[Scenario, Any], State]  # of a Scenario and the policy's parameters
Start: TypeAlias = Callable[[Scenario, Any], tuple[State, int]]


def implicit_tables(state: State, scenario: Scenario, tables: np.ndarray | slice) -> int:
    """Number of pages that `tables` (flat ids, bool[T] or a slice) take: one a copy."""
    home = state.home[tables]
    return len(home) + (len(state.copies) - 1) * int(np.count_nonzero(home <= REPLICATED))


def initial_servers(state: State, ids: slice) -> np.ndarray | None:
    """PolicySide.initial_servers: homes in the order of the tables where the rule is round-robin.

    None where that depends on who touches a table first, or on where the process runs.
    """
    home, nodes, (rule, node, _) = state.home[ids], len(state.serve), state.rule.tolist()
    if rule == FOLLOW:
        return None
    if (state.serve >= 0).all():
        return np.broadcast_to(state.serve, (len(home), nodes))
    copied, misplaced = home <= REPLICATED, home == MISPLACED
    if rule == FIRST_TOUCH and (home[~copied] < 0).any():
        return None
    placed: np.ndarray | int = node
    if rule in (INTERLEAVE, SKIPPING):
        placed = state.turns[in_turn(rule, np.arange(len(home)), len(state.turns))]
    home = np.where(home < 0, placed, home).astype(np.int16)
    servers = np.where(state.serve < 0, home[:, None], state.serve).astype(np.int16)
    servers[copied] = state.turns[np.arange(nodes) + nodes * misplaced[copied, None]]
    return servers


def copy_guest(state: State, scenario: Scenario, events: np.ndarray) -> None:
    """PolicySide.setup_events: replicas of the guest's tables that exist when the trace begins."""
    copied = guest_exists(scenario) & (state.home <= REPLICATED)
    copy_tables(scenario, np.flatnonzero(copied[: scenario.space.guest_tables]), state.copies, events)


def copy_host(state: State, scenario: Scenario, events: np.ndarray) -> None:
    """PolicySide.setup_events: replicas of all captured tables of the host."""
    copy_tables(scenario, np.arange(len(state.home))[scenario.space.sides[1]], state.copies, events)


def copy_tables(
    scenario: Scenario, tables: np.ndarray, copies: Sequence[int] | np.ndarray, events: np.ndarray
) -> None:
    """Count what it takes to copy `tables` (flat ids) to the nodes `copies`, but to those they are on.

    events  int64[kinds, nodes, nodes] as PolicySide.setup_events gets them: tables made, entries copied

    RefusedError where a table was captured on a node that the machine lacks: how far it is, no file says.
    """
    copies = np.asarray(copies)
    if not len(copies) or not len(tables):
        return
    entries = scenario.entries[tables]
    captured = scenario.space.tables.node[tables]
    must_exist(scenario, captured, "gpt.tables" if tables[0] < scenario.space.guest_tables else "ept.tables")
    home = np.where(captured < 0, copies[0], captured)
    for copy in copies.tolist():
        new = home != copy
        events[TABLE_NEW, copy, copy] += np.count_nonzero(new)
        np.add.at(events[PTE_COPY, copy], home[new], entries[new])


def guest_part(begin: Begin) -> PolicySide:
    """Part of the guest's tables; begin(scenario, params) -> State."""
    start = _start(begin, guest_exists)
    return PolicySide(GUEST, start, implicit_tables, initial_servers, setup_events=copy_guest)


def host_part(begin: Begin) -> PolicySide:
    """Part of the host's tables; begin(scenario, params) -> State."""
    start = _start(begin, lambda scenario: scenario.space.sides[1])
    return PolicySide(HOST, start, initial_servers=initial_servers, setup_events=copy_host)


def _start(begin: Begin, tables: Callable[[Scenario], np.ndarray | slice]) -> Start:
    """PolicySide.start of tables (flat ids); UsageError where `begin` returns something else than a State."""

    def start(scenario: Scenario, params: Any) -> tuple[State, int]:
        state = begin(scenario, params)
        if not isinstance(state, State):
            raise wrong_return(begin, "a State, as masked(scenario, mask, nodes) makes", state)
        return state, implicit_tables(state, scenario, tables(scenario))

    return start


def one_copy(
    scenario: Scenario,
    home: np.ndarray,
    serve: np.ndarray | int = NOWHERE,
    rule: tuple[int, int] = (FIRST_TOUCH, 0),
    turns: Sequence[int] = (),
) -> State:
    """State of a single copy of each table at `home` (int16[T]), or read at `serve`."""
    readers = np.broadcast_to(np.asarray(serve, np.int16), (scenario.nodes,)).copy()
    none, how = np.zeros(0, np.int16), np.array([*rule, 1], np.int64)
    return State(home, home.copy(), readers, none, how, np.array(turns, np.int16))


def replicas(scenario: Scenario, copies: Sequence[int] | np.ndarray, serve: np.ndarray) -> State:
    """State of a copy of each table on the nodes `copies`, readers served as `serve` (int16[nodes]) says."""
    state = one_copy(scenario, np.full_like(nowhere(scenario), REPLICATED), serve)
    state.rule[2] = 0
    return state._replace(copies=np.array(copies, np.int16))


def masked(scenario: Scenario, mask: np.ndarray, nodes: Sequence[int] | np.ndarray) -> State:
    """State of a copy of the guest's tables in `mask` (bool[T], by flat id), and of those above them, through
    which a CPU finds a copy, on each of `nodes`; CPUs of other nodes read the copy of least latency. The
    other tables are where guest_homes has them.

    With all in it, the policy mitosis with these nodes. RefusedError where it holds no table of the guest.
    """
    space, total = scenario.space, len(scenario.space.tables.parent)
    mask, nodes = np.array(mask), np.asarray(nodes)
    if mask.dtype != bool or mask.shape != (total,):
        how = f"tables_of makes one, np.isin(np.arange({total}), IDS) of table ids"
        raise ValueError(f"mask: {mask.dtype}{list(mask.shape)}, not bool[{total}]: {how}")
    mask[space.sides[1]] = False
    if not mask.any() or not nodes.size:
        empty = "nodes" if mask.any() else "mask"
        raise RefusedError(f"{empty}: none of the program's page tables is copied")
    copies = [node for node in range(scenario.nodes) if node in nodes]
    if nodes.dtype.kind not in "iu" or sorted(nodes.tolist()) != copies:
        raise ValueError(f"nodes = {nodes.tolist()}: name some, each once; {nodes_of(scenario.machine)}")
    for _ in range(int(space.tables.level.max())):
        above = space.tables.parent[mask]
        mask[above[above >= 0]] = True
    home, again = guest_homes(scenario)
    home[mask] = again[mask] = REPLICATED
    state = replicas(scenario, copies, np.full(scenario.nodes, NOWHERE))
    return state._replace(home=home, again=again, turns=nearest(copies, scenario.machine).astype(np.int16))


def nearest(copies: list[int], machine: Machine) -> np.ndarray:
    """int16[nodes]: whose replica each node's CPUs walk: their own node's, else that of least latency."""
    near = np.array(copies)[machine.latency_cycles()[:, copies].argmin(axis=1)]
    return np.where(np.isin(np.arange(machine.nodes), copies), np.arange(machine.nodes), near)


def nowhere(scenario: Scenario) -> np.ndarray:
    """int16[T]: tables that are placed when they are first needed."""
    return np.full(len(scenario.space.tables.level), NOWHERE, np.int16)


def captured_guest(scenario: Scenario, params: object = None) -> State:
    """State of the guest's tables where they were captured.

    Tables that were gone when the snapshot was taken are placed by first touch, as Linux had done.
    """
    home = nowhere(scenario)
    home[: scenario.space.guest_tables] = captured_nodes(scenario, 0)
    return one_copy(scenario, home)


def captured_host(scenario: Scenario, params: object = None) -> State:
    """State of the host's tables where they were captured."""
    home = nowhere(scenario)
    home[scenario.space.sides[1]] = captured_nodes(scenario, 1)
    return one_copy(scenario, home)


AS_CAPTURED = guest_part(captured_guest), host_part(captured_host)
