"""shadow: one table gVA -> hPA instead of two dimensions (vMitosis, section 5.2).

Walks read one dimension. The price: the hypervisor write-protects the guest's own table, so that each entry
written there is a VM exit, which writes the shadow entry too. The guest's table stays, unwalked.

Counts: `pte_writes`, `faults`, `tables_new`, ... are the shadow table's; `vm_exits` are entries written in
the guest's own, one for each page mapped, changed or unmapped and one for each table linked or unlinked;
those writes are counted nowhere else. For a guest's huge page that the shadow table maps by small pages, the
guest writes one entry; each further small page that is touched is an exit, as a fault of the hypervisor's.

Not modelled: the guest's context switches, forks, and accessed and dirty bits, all of which cost VM exits.

Another policy that acts on "gPT" then acts on the shadow table: shadow+mitosis, shadow+hydra.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ptanalyze import kernels
from ptanalyze.core import snapshot as bits
from ptanalyze.core.columns import CAREFUL, Finding
from ptanalyze.core.machine import Strict
from ptanalyze.kernels import replay
from ptanalyze.policies import baselines, contract, static_replicas
from ptanalyze.world.address_space import AddressSpace, Nested
from ptanalyze.world.trees import with_frame

PLACE = (
    "where the hypervisor allocates a page of the shadow table: on the node of the vCPU whose fault it "
    "serves, or of the guest's table page that it stands for"
)
UNMODELLED = Finding(
    "unmodelled",
    "context switches, forks and exits for accessed and dirty bits are not modelled, and "
    "each costs VM exits: it can be far slower than this",
    CAREFUL,
    "not all VM exits are modelled",
    policy="shadow",
)


class Params(Strict):
    place: Annotated[Literal["first-touch", "guest"], Meta(description=PLACE)] = "first-touch"


class State(NamedTuple):
    """
    inner  the state of the policy that acts on the shadow table
    split  bool[T]  tables that stand for a huge leaf of the guest
    """

    inner: Any
    split: np.ndarray


@cache
def trapping(hooks: contract.GuestHooks) -> contract.GuestHooks:
    """GuestHooks that do the same as `hooks` and count VM exits."""
    inner_locate, inner_walk, inner_step = hooks

    @contract.hook
    def server_of(state, table, node):
        return inner_locate(state.inner, table, node)

    @contract.hook
    def on_walk(state, tables, leaf, row, slot, node, fault, counters):
        if fault:
            counters.events[kernels.VM_EXIT, node, node] += max(np.int64(fault) - state.split[leaf], 1)
        return inner_walk(state.inner, tables, leaf, row, slot, node, fault, counters)

    @contract.called_hook
    def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
        node = steps.node[step]
        counters.events[kernels.VM_EXIT, node, node] += written(state.split, rows, steps, mapped, step)
        inner_step(state.inner, tables, rows, steps, shootdowns, mapped, counters, step)

    return contract.GuestHooks(server_of, on_walk, on_step)


@contract.called_hook
def written(split, rows, steps, mapped, step):
    """int64: entries of the guest's own table that a step writes."""
    kind, changed = steps.kind[step], np.int64(mapped.changed[step])
    if changed == 0:
        return np.int64(0)
    if kind == replay.FREE:
        return np.int64(not split[steps.number[step]])
    if kind in (replay.CLEAR, replay.UPDATE, replay.MOVE, replay.DATA, replay.HINT):
        entries = replay.stores(kind) * entries_of(split, rows.leaf[steps.row[step]], changed)
        if kind == replay.MOVE:
            row, _, each = replay.move_target(steps, step)
            target = rows.leaf[row]
            entries += entries_of(split, target, each * changed) + np.int64(mapped.made[step])
            entries -= split[target] and mapped.made[step] > 0
        return entries
    return np.int64(0)


@contract.hook
def entries_of(split, table, changed):
    return np.int64(1) if split[table] else changed


def wrap_guest(
    part: contract.PolicySide | None, params: Any, mine: Params
) -> tuple[contract.PolicySide, Any]:
    """(PolicySide, its parameters) of the shadow table: of the policy that acts on it, else of `place`."""
    place, _ = baselines.BY_FIRST_TOUCH if mine.place == "first-touch" else static_replicas.AS_CAPTURED
    acting = part or place

    def start(scenario: contract.Scenario, params: Any) -> tuple[State, int]:
        state, pages = acting.start(scenario, params)
        return State(state, _split(scenario)), pages

    def inner(ask: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return ask and (lambda state, *others: ask(state.inner, *others))

    def setup_events(state: State, scenario: contract.Scenario, events: np.ndarray) -> None:
        """Every mapped page traps once as its entry is built, after the switch to shadow paging."""
        _build(scenario, events)
        if acting.setup_events:
            acting.setup_events(state.inner, scenario, events)

    part = contract.PolicySide(trapping(acting.hooks), start, *(inner(ask) for ask in acting[2:]))
    return part._replace(setup_events=setup_events), params


def _build(scenario: contract.Scenario, events: np.ndarray) -> None:
    """Count the shadow table's pages and entries that are there when the trace begins, and their exits."""
    exists = np.flatnonzero(contract.guest_exists(scenario))
    entries = scenario.entries[exists]
    pages, small = len(exists), int(entries[scenario.space.tables.level[exists] == 1].sum())
    node = scenario.history.home
    events[kernels.TABLE_NEW, node, node] += pages
    events[kernels.PTE_WRITE, node, node] += int(entries.sum())
    events[kernels.VM_EXIT, node, node] += small


def _split(scenario: contract.Scenario) -> np.ndarray:
    """bool[T], as shadow_table.split_tables."""
    before = scenario
    while before.snapshot.native and before.origin is not None:
        before = before.origin
    return split_tables(before.space, scenario.space)


def reshape(scenario: contract.Scenario, params: Params) -> contract.Scenario:
    """The Scenario with a single dimension; facts compare its table with the guest's."""
    table = shadow_table(scenario.space)
    found = [UNMODELLED]
    if table.unmapped:
        text = f"{table.unmapped} pages of the guest that the host does not map are not mapped"
        found.append(Finding("unmapped", text, policy="shadow", numbers={"pages": table.unmapped}))
    return scenario.reshaped(
        snapshot=table.snapshot,
        unwalked_table_pages=int(np.count_nonzero(scenario.space.program_tables)),
        facts={"shadow_tables_of_split_pages": table.split_tables, "shadow_pages_unmapped": table.unmapped},
        findings=found,
    )


POLICY = contract.Policy(
    "shadow",
    "shadow paging: one table for both dimensions, a VM exit for every entry that the guest writes",
    params=Params,
    source="vMitosis, section 5.2; arch/x86/kvm/mmu/mmu.c",
    availability=contract.Availability(
        "modprobe -r kvm_intel; modprobe kvm_intel ept=0 (AMD: kvm_amd npt=0)", "with all VMs off"
    ),
    needs=("nested tables",),
    reshape=reshape,
    scope=lambda params: {"paging mode", "ePT"},
    wrap_guest=wrap_guest,
)


# The table of a hypervisor without nested paging: guest-virtual to host-physical, in a single tree.


class ShadowTable(NamedTuple):
    """
    snapshot      the shadow tree as the only one
    split_tables  table pages that stand for a huge leaf of the guest
    unmapped      4 KiB pages of the guest that the host does not map: the shadow table lacks them
    """

    snapshot: bits.Snapshot
    split_tables: int
    unmapped: int


def shadow_table(space: AddressSpace) -> ShadowTable:
    """ShadowTable of a two-dimensional AddressSpace.

    It has the guest's shape, but a leaf is the smaller of the guest's and the host's, as in the TLB
    (Linux: kvm_mmu_hugepage_adjust in arch/x86/kvm/mmu/mmu.c). A table page is on the node of the guest's
    that it stands for, in an unknown frame. Memory: 4 KiB for each of its table pages, twice that while
    leaves are split.
    """
    tree, before = space.snapshot.guest, space.guest_tables
    for level in (3, 2):
        tables, slots = _to_split(tree, space, level)
        if len(tables):
            tree = with_small_leaves(tree, tables, slots)
    entries, unmapped = _to_host_frames(tree, space)
    guest = replace(tree, entries=entries, frame=np.full(len(tree), -1, tree.frame.dtype))
    return ShadowTable(replace(space.snapshot, guest=guest, host=None), len(tree) - before, unmapped)


def split_tables(space: AddressSpace, shadow: AddressSpace) -> np.ndarray:
    """bool[T]: tables of the AddressSpace `shadow` that stand for a huge leaf of the guest in `space`."""
    own, tree = space.snapshot.guest, shadow.snapshot.guest
    split = np.zeros(len(shadow.tables.level), bool)
    for level in (1, 2):
        mine = np.flatnonzero(tree.level == level)
        split[mine] = ~np.isin(tree.base[mine], own.base[own.level == level])
    return split


def _to_split(tree: bits.Tree, space: AddressSpace, level: int) -> tuple[np.ndarray, np.ndarray]:
    """(tables, slots) of the leaves of a level that the host maps partly by smaller leaves."""
    tables, slots = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for _, ids, raw in bits.blocks(tree, (level,)):
        row, slot = np.nonzero(bits.leaf(raw, level, tree.encoding))
        region = bits.frame(raw[row, slot], level, tree.encoding) >> 9
        host = _host_levels(space, region[:, None] + np.arange(512 ** (level - 2)))
        split = ((host > 0) & (host < level)).any(axis=1)
        tables.append(ids[row[split]])
        slots.append(slot[split])
    return np.concatenate(tables), np.concatenate(slots)


def _host_levels(space: AddressSpace, regions: np.ndarray) -> np.ndarray:
    """uint8, the shape of `regions` (guest frame >> 9): level of the host's leaf entries, 0 for none."""
    inside = regions < len(space.host_of)
    table = np.where(inside, space.host_of[np.where(inside, regions, 0)], -1) if len(space.host_of) else -1
    return np.where(table >= 0, space.tables.level[table], 0)


def _to_host_frames(tree: bits.Tree, space: AddressSpace) -> tuple[np.ndarray, int]:
    """(uint64[T, 512] entries with the host frames behind them, 4 KiB pages without a host frame)."""
    entries, nested, unmapped = np.array(tree.entries), Nested(space.snapshot.nested), 0
    for level, ids, raw in bits.blocks(tree, (1, 2, 3)):
        row, slot = np.nonzero(bits.leaf(raw, level, tree.encoding))
        raw = raw[row, slot]
        frame = nested.host_frames(bits.frame(raw, level, tree.encoding))
        entries[ids[row], slot] = np.where(frame < 0, bits.NONE, with_frame(raw, frame, tree.encoding))
        unmapped += int(np.count_nonzero(frame < 0)) << 9 * (level - 1)
    return entries, unmapped


TO_TABLE = np.uint64(0x67)  # flags of an x86 entry that points to a table


def with_small_leaves(tree: bits.Tree, tables: np.ndarray, slots: np.ndarray) -> bits.Tree:
    """The Tree with tables of 512 leaves in place of huge leaves of a level.

    tables, slots  int64[k]: the places of those leaves. The new tables are on the nodes of their parents,
    in unknown frames.
    """
    (level,) = np.unique(tree.level[tables]).tolist()
    base = tree.base[tables] + (slots.astype(np.uint64) << np.uint64(3 + 9 * level))
    raw = tree.entries[tables, slots]
    own = np.arange(len(tree)), np.arange(len(tables)) + len(tree)
    columns = {"frame": np.full(len(tables), -1), "parent": tables, "level": np.full(len(tables), level - 1)}
    columns |= {"base": base, "node": tree.node[tables], "flags": tree.flags[tables]}
    columns = {
        name: np.concatenate([getattr(tree, name), value.astype(getattr(tree, name).dtype)])
        for name, value in columns.items()
    }
    order = np.lexsort((-columns["level"].astype(np.int64), columns["base"]))  # depth first
    place = np.argsort(order)
    entries = np.empty((len(order), 512), np.uint64)
    entries[place[own[0]]] = tree.entries
    entries[place[tables], slots] = TO_TABLE
    entries[place[own[1]]] = _smaller(raw, level, tree.encoding)
    parent = columns.pop("parent")
    parent = np.where(parent == bits.NO_PARENT, bits.NO_PARENT, place[parent]).astype(np.int32)[order]
    columns = {name: value[order] for name, value in columns.items()}
    return bits.Tree(entries, parent=parent, levels=tree.levels, encoding=tree.encoding, **columns)


def _smaller(raw: np.ndarray, level: int, encoding: str) -> np.ndarray:
    """uint64[k, 512]: the leaves of level - 1 that together map what each leaf of `level` does."""
    frames = bits.frame(raw, level, encoding)[:, None] + (np.arange(512) << 9 * (level - 2))
    if encoding == "x86":
        raw = np.where(raw & bits.PRESENT == bits.NONE, raw | bits.PROTNONE, raw)
    if level == 2:
        raw = raw & ~bits.HUGE
    return with_frame(raw[:, None], frames, encoding)
