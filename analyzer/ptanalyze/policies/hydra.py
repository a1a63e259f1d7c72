"""hydra: lazy and partial replication (Gao et al., Hydra, sections 3 and 4).

In a VM it acts on the guest's tables; the host's stay as captured.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.machine import Strict
from ..world.history import History
from .base import Part, Policy, World, guest_exists, owner_masks
from .hydra_hooks import HOOKS, State

FILTERS = ("off", "single", "all", "all-or-none")
DEGREE = (
    "a copied entry brings along the aligned block of 2^degree entries, within its table page and VMA (3.4)"
)
WHEN = "prefetch with every copied entry (3.4), or only with the first of a table page (4.1)"
FILTER = (
    "which shootdowns spare CPUs on nodes that share no leaf table of the range: none; those of ranges "
    "within one leaf table page (4.2); all; or all, but everyone as soon as another node shares one"
)


class Params(Strict):
    prefetch: Annotated[int, Meta(ge=0, le=9, description=DEGREE)] = 9
    prefetch_on: Annotated[Literal["every", "first"], Meta(description=WHEN)] = "every"
    tlbflush: Annotated[Literal["off", "single", "all", "all-or-none"], Meta(description=FILTER)] = "single"


def start(world: World, params: Params) -> tuple[State, int]:
    history, nodes = world.history, world.nodes
    entries = _owners_entries(history, nodes)
    ring = np.where(entries.any(axis=2), np.uint64(1) << np.arange(nodes, dtype=np.uint64), np.uint64(0))
    tables = _owners_tables(world, ring)
    options = np.array(
        [params.prefetch, params.prefetch_on == "first", FILTERS.index(params.tlbflush)], np.int64
    )
    state = State(
        entries,
        ring,
        tables,
        history.vma.copy(),
        history.mixed_row,
        history.mixed.copy(),
        history.vma_owner,
        options,
        np.zeros(2, np.uint64),
    )
    return state, int(np.bitwise_count(tables).sum())


def _owners_entries(history: History, nodes: int) -> np.ndarray:
    """uint64[L, nodes, 8]: what was mapped before the trace began is in its owner's tables."""
    entries = np.zeros((len(history.vma), nodes, 8), np.uint64)
    owner = history.vma_owner[history.vma]
    plain = np.flatnonzero(history.mixed_row < 0)
    entries[plain, owner[plain]] = history.valid[plain]
    rows = np.flatnonzero(history.mixed_row >= 0)
    by_slot = history.vma_owner[history.mixed[history.mixed_row[rows]]]
    for node in range(nodes):
        mine = np.packbits(by_slot == node, axis=1, bitorder="little").view(np.uint64)
        entries[rows, node] = history.valid[rows] & mine.reshape(-1, 8)
    return entries


def _owners_tables(world: World, ring: np.ndarray) -> np.ndarray:
    """uint64[T]: nodes with each guest table page at the start: all have the root, owners what they map."""
    tables, history = world.space.tables, world.history
    exists = guest_exists(world)
    have = np.zeros(len(exists), np.uint64)
    childless = exists.copy()
    childless[tables.parent[exists & (tables.parent >= 0)]] = False
    childless[history.rows.leaf] = False
    ids = np.flatnonzero(childless)
    have[ids] = owner_masks(world, ids)
    have[history.rows.leaf] |= np.bitwise_or.reduce(ring, axis=1)
    for level in range(1, int(tables.level.max(initial=1))):
        below = np.flatnonzero(exists & (tables.level == level) & (tables.parent >= 0))
        np.bitwise_or.at(have, tables.parent[below], have[below])
    have[exists & (tables.parent < 0)] = np.uint64((1 << world.nodes) - 1)
    return have


def settle(state: State, world: World, tables: np.ndarray) -> int:
    """The kernel filled these tables for their VMAs' owners, upper levels included."""
    parent, made = world.space.tables.parent, 0
    for table, mask in zip(tables.tolist(), owner_masks(world, tables).tolist(), strict=True):
        while table >= 0 and mask & ~int(state.tables[table]):
            made += (mask & ~int(state.tables[table])).bit_count()
            state.tables[table] |= np.uint64(mask)
            table = int(parent[table])
    return made


POLICY = Policy(
    "hydra",
    "lazy, partial replicas: an entry is copied to a node at its first use there; shootdowns go to sharers",
    guest=Part(HOOKS, start, settle),
    params=Params,
    source="Hydra, ATC '24, sections 3 and 4",
    needs=("trace",),
)
