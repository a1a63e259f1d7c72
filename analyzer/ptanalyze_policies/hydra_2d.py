"""hydra-2d: Hydra's lazy copies in both dimensions of a VM's walks, which its section 6 leaves to others.

The guest does as Hydra does. The host does the same with its nested table: a table page's owner is the node
of the vCPU that took the violation, where KVM allocates it and the dump found it; a node's CPUs walk that
node's own table; the first use of an entry there is an ePT violation that copies it from the owner. The host
has no VMAs of the guest's, so that prefetching is limited to the table page.

A guest's table pages are guest memory themselves. What a replica's own nested entry is, no capture says: the
nested reads of a replica are those of the captured table page, as under every policy here.
"""

from typing import Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ptanalyze import kernels
from ptanalyze.core.trace import read_only
from ptanalyze.kernels import replay, walker
from ptanalyze.policies import contract, hydra

LAYERS = "what is copied lazily: the guest's table, the host's, or both; the other stays as captured"
HOST_DEGREE = "as prefetch, of the host's entries, within their table page"


class Params(hydra.Params):
    host_prefetch: Annotated[int, Meta(ge=0, le=9, description=HOST_DEGREE)] = 9
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"


ONE = np.uint64(1)
DEGREE, ONLY_FIRST, CODE, FIRST, ROWS = range(5)  # of State.options
WHOLE_TABLE = 9  # degree whose block is the table page


class State(NamedTuple):
    """T flat tables, H host tables, rows of which are given out as walks reach them.

    whole    uint64[T]            bit n: node n's copy of this host table has every leaf entry, as the owner,
                                  even those that are used but were not mapped at the dump
    row      int32[T]             row of each host table in `entries`; -1: only its owner has read it
    entries  uint64[H, nodes, 8]  bit map of the leaf entries that each node's copy has
    sharers  uint64[T]            bit n: node n has copied an entry, its copy is linked to the owner's
    owner    int16[T]             node of each host table as captured
    tables   uint64[T]            bit n: node n has this host table page
    raw      uint64[H, 512]       entries as captured: what the owner has
    options  int64[5]             prefetch degree; 1: only with a table's first copy; kernels.walker.CODES;
                                  flat id of the first host table; rows given out
    """

    whole: np.ndarray
    row: np.ndarray
    entries: np.ndarray
    sharers: np.ndarray
    owner: np.ndarray
    tables: np.ndarray
    raw: np.ndarray
    options: np.ndarray


@contract.hook
def server_of(state, table, node):
    return node


@contract.hook
def on_walk(state, tables, table, slot, node, counters):
    if (state.whole[table] >> np.uint64(node)) & ONE:
        return node
    return use(state, tables, table, slot, node, counters)


@contract.called_hook
def use(state, tables, table, slot, node, counters):
    """on_walk of a table that `node` may have only in part.

    What was not mapped at the dump came later, and then to every linked copy.
    """
    row, word, bit = np.int64(state.row[table]), slot >> 6, ONE << np.uint64(slot & 63)
    if row >= 0 and (state.entries[row, node, word] & bit):
        return node
    linked = (state.sharers[table] >> np.uint64(node)) & ONE
    if row >= 0 and linked and not state.entries[row, state.owner[table], word] & bit:
        return node
    return violate(state, tables, table, slot, node, counters)


@contract.called_hook
def violate(state, tables, table, slot, node, counters):
    """The node lacks the entry: the owner's is read to copy it, and the walk done again."""
    owner, bit, events = np.int64(state.owner[table]), ONE << np.uint64(node), counters.host_events
    events[kernels.REPLICA_FAULT, node, owner] += 1
    above = table
    while above >= 0 and not state.tables[above] & bit:
        state.tables[above] |= bit
        events[kernels.TABLE_NEW, node, node] += 1
        replay.grow(counters.host_pages, 1)
        above = np.int64(tables.parent[above])
    row = reach(state, np.int64(tables.level[table]), table, owner)
    degree = state.options[DEGREE]
    if state.options[ONLY_FIRST] and state.sharers[table] & bit:
        degree = 0
    elif degree == WHOLE_TABLE:
        state.whole[table] |= bit
    events[kernels.PTE_COPY, node, owner] += copy(state, row, slot, degree, node, owner)
    state.sharers[table] |= bit
    return replay.COPIED + owner


@contract.hook
def reach(state, level, table, owner):
    """Row of a host table, given out if it has none yet: then the owner's entries are looked up."""
    row = np.int64(state.row[table])
    if row < 0:
        row = state.options[ROWS]
        state.options[ROWS] += 1
        state.row[table] = row
        raw, code = state.raw[table - state.options[FIRST]], state.options[CODE]
        for slot in range(raw.size):
            if walker.leaf(raw[slot], level, code):
                state.entries[row, owner, slot >> 6] |= ONE << np.uint64(slot & 63)
    return row


@contract.hook
def copy(state, row, slot, degree, node, owner):
    """Copy the entry, and those of its aligned block of 2^degree that the owner has; returns how many."""
    state.entries[row, node, slot >> 6] |= ONE << np.uint64(slot & 63)
    lo = slot >> degree << degree
    hi, copied = lo + (1 << degree), 1
    for word in range(lo >> 6, (hi + 63) >> 6):
        new = (
            state.entries[row, owner, word] & replay.word_mask(lo, hi, word) & ~state.entries[row, node, word]
        )
        state.entries[row, node, word] |= new
        copied += replay.popcount(new)
    return copied


@contract.called_hook
def on_host_step(state, tables, rows, steps, mapped, counters, step):
    if mapped.changed[step] and steps.kind[step] in (replay.HOST_DATA, replay.TABLE_DATA):
        table, _ = replay.host_entry(steps, tables, step)
        if table >= 0:
            update(state, table, steps.node[step], counters.host_events)


@contract.hook
def update(state, table, node, events):
    """Write an entry of the owner's copy and of every linked copy, whether it has the entry or not."""
    owner = state.owner[table]
    events[kernels.PTE_WRITE, node, owner] += 1
    for sharer in range(state.entries.shape[1]):
        if sharer != owner and (state.sharers[table] >> np.uint64(sharer)) & ONE:
            events[kernels.PTE_FANOUT, node, sharer] += 1


HOOKS = contract.HostHooks(server_of, on_walk, on_host_step)


def start_host(scenario: contract.Scenario, params: Params) -> tuple[State, int]:
    """Memory: 30 bytes a table, and 64 bytes a node for each host table that not only its owner reads."""
    space, host = scenario.space, scenario.snapshot.nested
    total = len(space.tables.level)
    owner = np.zeros(total, np.int16)
    owner[space.guest_tables :][: space.host_tables] = contract.captured_nodes(scenario, 1)
    tables, own = _owners_tables(scenario, owner), np.uint64(1) << owner.astype(np.uint64)
    first = params.prefetch_on == "first"
    state = State(
        own,
        np.full(total, -1, np.int32),
        np.zeros((space.host_tables, scenario.nodes, 8), np.uint64),  # pages never written take no memory
        own.copy(),
        owner,
        tables,
        read_only(host.entries),
        np.array([params.host_prefetch, first, walker.CODES[host.encoding], space.guest_tables, 0], np.int64),
    )
    return state, int(np.bitwise_count(tables).sum())


def _owners_tables(scenario: contract.Scenario, owner: np.ndarray) -> np.ndarray:
    """uint64[T]: nodes with each host table page at the start: its owner, and owners of what it leads to.

    All have the root.
    """
    space, tables = scenario.space, scenario.space.tables
    ids = np.arange(space.guest_tables, space.guest_tables + space.host_tables)
    have = np.zeros(len(tables.level), np.uint64)
    have[ids] = np.uint64(1) << owner[ids].astype(np.uint64)
    for level in range(1, int(tables.level[ids].max(initial=1))):
        below = ids[(tables.level[ids] == level) & (tables.parent[ids] >= 0)]
        np.bitwise_or.at(have, tables.parent[below], have[below])
    have[ids[tables.parent[ids] < 0]] = np.uint64((1 << scenario.nodes) - 1)
    return have


POLICY = contract.Policy(
    "hydra-2d",
    "lazy, partial replicas in both dimensions of a VM: an entry is copied to a node at its first use there",
    guest=contract.PolicySide(hydra.HOOKS, hydra.start, hydra.implicit_tables),
    host=contract.PolicySide(HOOKS, start_host),
    params=Params,
    source="Hydra, ATC '24, sections 3, 4 and (an outlook) 6",
    needs=("trace", "nested tables"),
    scope=lambda params: contract.LAYERS_ACT[params.layers],
    extra_needs=contract.nodes_in_guest,
)
