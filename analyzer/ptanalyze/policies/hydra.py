"""hydra: lazy and partial replication (Gao et al., Hydra, sections 3 and 4).

A node's CPUs walk that node's own tables, so upper levels are always local. A leaf entry that is not there
yet is fetched from the owner of its VMA: one remote read, every later one local (3.2, 3.4, 4.1, 4.2).
In a VM it acts on the guest's tables; the host's stay as captured.
"""

from typing import Annotated, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Meta

from ..core.machine import Strict
from ..kernels import (
    BALANCING,
    FAULT,
    IPI,
    IPI_SAVED,
    PTE_COPY,
    PTE_FANOUT,
    PTE_WRITE,
    REPLICA_FAULT,
    TABLE_FREE,
    TABLE_NEW,
    replay,
)
from ..world.history import History
from .contract import GuestHooks, Policy, PolicySide, Scenario, called_hook, guest_exists, hook, owner_masks

FILTERS = ("off", "single", "munmap-all", "all", "all-or-none")
DEGREE = (
    "a copied entry brings along the aligned block of 2^degree entries, within its table page and VMA (3.4)"
)
WHEN = "prefetch with every copied entry (3.4), or only with the first of a table page (4.1)"
FILTER = (
    "which shootdowns spare CPUs on nodes that share no leaf table of the range: none; those of ranges "
    "within one leaf table page (4.2); munmap's and MADV_DONTNEED's, and others' of ranges that end before "
    "that page does (the paper's kernel); all; or all, but everyone as soon as another node shares one"
)


Filter: TypeAlias = Literal["off", "single", "munmap-all", "all", "all-or-none"]


class Params(Strict):
    prefetch: Annotated[int, Meta(ge=0, le=9, description=DEGREE)] = 9
    prefetch_on: Annotated[Literal["every", "first"], Meta(description=WHEN)] = "first"
    tlbflush: Annotated[Filter, Meta(description=FILTER)] = "munmap-all"


ONE = np.uint64(1)
OFF, SINGLE, MUNMAP_ALL, ALL, ALL_OR_NONE = range(5)
ROWS_AT_ONCE = 4096
NOTHING, SEVERAL = -1, -2  # of State.flushed


class State(NamedTuple):
    """
    entries    uint64[L, nodes, 8]  bit map of the entries that each node's copy of a row has
    sharers    uint64[L, nodes]     bit n of sharers[row, m]: copies on m and n are linked; 0: m has none
    tables     uint64[T]            bit n: node n has this guest table page
    vma        int32[L, 512], owner int16[V]: VMA of each slot, and its owner node, as in History
    options    int64[3]             prefetch degree; 1: only with a table's first copy; OFF ... ALL_OR_NONE
    sharing    uint64[2]            nodes that share a leaf table changed, or had a table freed, since the
                                    last FLUSH, by system calls and by NUMA balancing
    flushed    int64[2]             the only 2 MiB (a leaf table or a huge entry) that UPDATEs changed since
                                    then; NOTHING; SEVERAL, and wherever there were other steps
    """

    entries: np.ndarray
    sharers: np.ndarray
    tables: np.ndarray
    vma: np.ndarray
    owner: np.ndarray
    options: np.ndarray
    sharing: np.ndarray
    flushed: np.ndarray


@hook
def server_of(state, table, node):
    return node


@hook
def on_walk(state, tables, leaf, row, slot, node, fault, counters):
    at, by, entry = np.uint64(row), np.uint64(node), np.uint64(slot)
    if (state.entries[at, by, entry >> np.uint64(6)] >> (entry & np.uint64(63))) & ONE:
        return node
    return miss(state, tables, leaf, row, slot, node, fault, counters)


@called_hook
def miss(state, tables, leaf, row, slot, node, fault, counters):
    """The node lacks the entry: the owner's is copied, and the walk repeated (handle_pte_fault, 4.1).

    Returns the owner where that is `node`, else COPIED + owner.
    """
    owner = owner_of(state, row, slot)
    if fault:
        need_table(state, tables, leaf, row, owner, node, counters)
        counters.events[FAULT, node, owner] += 1
        write(state, row, owner, node, 1, counters)
        state.entries[row, owner, slot >> 6] |= ONE << np.uint64(slot & 63)
        propagate(state, row, owner, slot, slot + 1)
    else:
        counters.events[REPLICA_FAULT, node, owner] += 1
    if node != owner:
        first = need_table(state, tables, leaf, row, node, node, counters)
        counters.events[PTE_COPY, node, owner] += copy(state, row, slot, node, owner, first)
        link(state, row, node, owner)
        return replay.COPIED + owner
    return np.int64(owner)


@hook
def owner_of(state, row, slot):
    return state.owner[state.vma[row, slot]]


@hook
def need_table(state, tables, leaf, row, node, by, counters):
    """Make sure `node` has `leaf` and what leads to it; True if it had no copy of the row."""
    bit = ONE << np.uint64(node)
    table = leaf
    while table >= 0 and not state.tables[table] & bit:
        state.tables[table] |= bit
        counters.events[TABLE_NEW, by, node] += 1
        replay.grow(counters.pages, 1)
        table = tables.parent[table]
    first = state.sharers[row, node] == 0
    if first:
        state.sharers[row, node] = bit
    return first


@hook
def copy(state, row, slot, node, owner, first):
    """Copy the entry, and those of its aligned block of 2^degree that the owner has in this VMA."""
    degree = state.options[0]
    if state.options[1] and not first:
        degree = 0
    lo = slot >> degree << degree
    hi = lo + (1 << degree)
    lo, hi = same_vma(state.vma[row], slot, lo, hi)
    copied = 0
    for word in range(lo >> 6, (hi + 63) >> 6):
        new = (
            state.entries[row, owner, word] & replay.word_mask(lo, hi, word) & ~state.entries[row, node, word]
        )
        state.entries[row, node, word] |= new
        copied += replay.popcount(new)
    return copied


@hook
def same_vma(vma, slot, lo, hi):
    """(first, one past the last) of the slots lo..hi around `slot` that belong to its VMA."""
    begin, end = slot, slot + 1
    while begin > lo and vma[begin - 1] == vma[slot]:
        begin -= 1
    while end < hi and vma[end] == vma[slot]:
        end += 1
    return begin, end


@hook
def link(state, row, node, owner):
    """Merge the circular lists of the two copies."""
    joined = state.sharers[row, node] | state.sharers[row, owner]
    for member in range(state.sharers.shape[1]):
        if (joined >> np.uint64(member)) & ONE:
            state.sharers[row, member] = joined


@called_hook
def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
    kind, node, by = steps.kind[step], steps.node[step], np.int64(steps.call[step] == BALANCING)
    if kind == replay.SET:
        belong(state, steps, step)
    elif mapped.changed[step] == 0:
        return
    elif kind == replay.FREE:
        free(state, steps.row[step], steps.number[step], by, node, counters)
    elif kind == replay.FLUSH:
        shoot_down(state, steps.number[step], by, node, shootdowns, mapped.changed[step], counters)
    elif kind in (replay.DATA, replay.HINT):
        row, slot = steps.row[step], steps.lo[step]
        owner = owner_of(state, row, slot)
        write(state, row, owner, node, mapped.changed[step], counters)
        state.sharing[by] |= state.sharers[row, owner]
        state.flushed[by] = SEVERAL
        propagate(state, row, owner, slot, slot + 1)
    elif kind in (replay.CLEAR, replay.UPDATE, replay.MOVE):
        row, lo, hi = replay.slot_range(steps, step)
        owner = steps.was[step]
        write(state, row, owner, node, replay.stores(kind) * mapped.changed[step], counters)
        state.sharing[by] |= state.sharers[row, owner]
        if kind == replay.MOVE:
            move(state, tables, rows, steps, mapped, counters, step)
        if kind == replay.UPDATE:
            rewritten(state, tables, rows, row, lo, by)
            propagate(state, row, owner, lo, hi)
        else:
            state.flushed[by] = SEVERAL
            forget(state, row, lo, hi)


@hook
def belong(state, steps, step):
    """Slots now belong to another VMA."""
    row, lo, hi = replay.slot_range(steps, step)
    state.vma[row, lo:hi] = steps.number[step]


@hook
def write(state, row, owner, node, entries, counters):
    """Write `entries` entries of the owner's copy and of every linked copy, whether it has them or not."""
    counters.events[PTE_WRITE, node, owner] += entries
    for sharer in range(state.sharers.shape[1]):
        if sharer != owner and (state.sharers[row, owner] >> np.uint64(sharer)) & ONE:
            counters.events[PTE_FANOUT, node, sharer] += entries


@hook
def rewritten(state, tables, rows, row, slot, by):
    """mprotect flushes what it changed, not all it was called for (tlb_flush_pte_range in mm/mprotect.c)."""
    region = np.int64(row) << 9 | (slot if tables.level[rows.leaf[row]] > 1 else 0)
    state.flushed[by] = region if state.flushed[by] in (NOTHING, region) else SEVERAL


@hook
def propagate(state, row, owner, lo, hi):
    """Slots lo..hi were written in every linked copy: all have what the owner has (4.1)."""
    for word in range(lo >> 6, (hi + 63) >> 6):
        new = state.entries[row, owner, word] & replay.word_mask(lo, hi, word)
        for sharer in range(state.sharers.shape[1]):
            if (state.sharers[row, owner] >> np.uint64(sharer)) & ONE:
                state.entries[row, sharer, word] |= new


@hook
def forget(state, row, lo, hi):
    for word in range(lo >> 6, (hi + 63) >> 6):
        mask = ~replay.word_mask(lo, hi, word)
        for node in range(state.entries.shape[1]):
            state.entries[row, node, word] &= mask


@hook
def move(state, tables, rows, steps, mapped, counters, step):
    """The entries' new VMA has the old one's owner: its table gets them, and all that are linked to it."""
    row, lo, hi = replay.slot_range(steps, step)
    target, to, each = replay.move_target(steps, step)
    node, before = steps.node[step], steps.was[step]
    owner = owner_of(state, target, to)
    need_table(state, tables, rows.leaf[target], target, owner, node, counters)
    write(state, target, owner, node, each * mapped.changed[step], counters)
    for slot in range(lo, hi):
        if (state.entries[row, before, slot >> 6] >> np.uint64(slot & 63)) & ONE:
            for there in range(to + slot - lo, to + slot - lo + each):
                state.entries[target, owner, there >> 6] |= ONE << np.uint64(there & 63)
    propagate(state, target, owner, to, to + each * (hi - lo))


@hook
def free(state, row, table, by, node, counters):
    for sharer in range(state.sharers.shape[1]):
        if (state.tables[table] >> np.uint64(sharer)) & ONE:
            counters.events[TABLE_FREE, node, sharer] += 1
    replay.grow(counters.pages, -replay.popcount(state.tables[table]))
    state.sharing[by] |= state.tables[table]
    state.flushed[by] = SEVERAL
    state.tables[table] = 0
    if row >= 0:
        state.sharers[row] = 0


@hook
def shoot_down(state, number, by, node, shootdowns, times, counters):
    """Interrupt the CPUs of the sharers' nodes where the filter applies, every live one elsewhere (4.2)."""
    mode, sharing = state.options[2], state.sharing[by]
    several = state.flushed[by] == SEVERAL
    state.sharing[by], state.flushed[by] = 0, NOTHING
    too_wide = mode == SINGLE and several and not shootdowns.single[number]
    too_wide = too_wide or (mode == MUNMAP_ALL and not shootdowns.kernel[number])
    shared = mode == ALL_OR_NONE and (sharing & ~(ONE << np.uint64(node))) != 0
    if mode == OFF or too_wide or shared:
        sharing = ~np.uint64(0)
    live = shootdowns.live[number]
    for there in range(live.size):
        kind = IPI if (sharing >> np.uint64(there)) & ONE else IPI_SAVED
        counters.events[kind, node, there] += times * live[there]


HOOKS = GuestHooks(server_of, on_walk, on_step)


def start(scenario: Scenario, params: Params) -> tuple[State, int]:
    history, nodes = scenario.history, scenario.nodes
    unchanged = not (len(history.steps.at) or len(scenario.undone))
    vmas = history.vmas if unchanged else history.vmas.copy()
    entries = _owners_entries(history, nodes)
    sharers = np.where(entries.any(axis=2), np.uint64(1) << np.arange(nodes, dtype=np.uint64), np.uint64(0))
    tables = _owners_tables(scenario, sharers)
    first_only, mode = params.prefetch_on == "first", FILTERS.index(params.tlbflush)
    options = np.array([params.prefetch, first_only, mode], np.int64)
    state = State(
        entries,
        sharers,
        tables,
        vmas,
        history.vma_owner,
        options,
        np.zeros(2, np.uint64),
        np.full(2, NOTHING),
    )
    return state, int(np.bitwise_count(tables).sum())


def _owners_entries(history: History, nodes: int) -> np.ndarray:
    """uint64[L, nodes, 8]: what was mapped before the trace began is in its owner's tables."""
    entries = np.zeros((len(history.vmas), nodes, 8), np.uint64)
    for begin in range(0, len(entries), ROWS_AT_ONCE):
        rows = np.arange(begin, min(begin + ROWS_AT_ONCE, len(entries)))
        by_slot = history.owners(rows)
        for node in range(nodes):
            mine = np.packbits(by_slot == node, axis=1, bitorder="little").view(np.uint64)
            entries[rows, node] = history.valid[rows] & mine
    return entries


def _owners_tables(scenario: Scenario, sharers: np.ndarray) -> np.ndarray:
    """uint64[T]: nodes with each guest table page at the start: all have the root, owners what they map."""
    tables, history = scenario.space.tables, scenario.history
    exists = guest_exists(scenario)
    have = np.zeros(len(exists), np.uint64)
    childless = exists.copy()
    childless[tables.parent[exists & (tables.parent >= 0)]] = False
    childless[history.rows.leaf] = False
    ids = np.flatnonzero(childless)
    have[ids] = owner_masks(scenario, ids)
    have[history.rows.leaf] |= np.bitwise_or.reduce(sharers, axis=1)
    for level in range(1, int(tables.level.max(initial=1))):
        below = np.flatnonzero(exists & (tables.level == level) & (tables.parent >= 0))
        np.bitwise_or.at(have, tables.parent[below], have[below])
    have[exists & (tables.parent < 0)] = np.uint64((1 << scenario.nodes) - 1)
    return have


def implicit_tables(state: State, scenario: Scenario, tables: np.ndarray) -> int:
    """The kernel filled these tables for their VMAs' owners, upper levels included."""
    parent, made = scenario.space.tables.parent, 0
    for table, mask in zip(tables.tolist(), owner_masks(scenario, tables).tolist(), strict=True):
        while table >= 0 and mask & ~int(state.tables[table]):
            made += (mask & ~int(state.tables[table])).bit_count()
            state.tables[table] |= np.uint64(mask)
            table = int(parent[table])
    return made


POLICY = Policy(
    "hydra",
    "lazy, partial replicas: an entry is copied to a node at its first use there; shootdowns go to sharers",
    guest=PolicySide(HOOKS, start, implicit_tables),
    params=Params,
    source="Hydra, ATC '24, sections 3 and 4",
    needs=("trace", "node numbers"),
)
