"""shadow: one table gVA -> hPA instead of two dimensions (vMitosis, section 5.2).

Walks read one dimension. The price: the hypervisor write-protects the guest's own table, so that each entry
written there is a VM exit, which writes the shadow entry too. The guest's table stays, unwalked.

Counts: `pte_writes`, `faults`, `tables_new`, ... are the shadow table's; `vm_exits` are
entries written in the guest's own, one for each page mapped, changed or unmapped and one for each table
linked or unlinked; those writes are counted nowhere else. For a guest's huge page that the shadow table maps
by small pages, the guest writes one entry; each further small page that is touched is an exit, as a fault of
the hypervisor's.

Not modelled: the guest's context switches, forks, and accessed and dirty bits, all of which cost VM exits.

Another policy that acts on "gPT" then acts on the shadow table: shadow+mitosis, shadow+hydra.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from ..core.columns import CAREFUL, Finding
from ..core.machine import Strict
from ..kernels import PTE_WRITE, TABLE_NEW, VM_EXIT
from ..kernels.replay import CLEAR, DATA, FREE, HINT, MOVE, UPDATE, freed_table, move_target, stores
from ..world.trees import shadow_table, split_tables
from .baselines import BY_FIRST_TOUCH
from .contract import Availability, GuestHooks, Policy, PolicySide, Scenario, called_hook, guest_exists, hook
from .static_replicas import AS_CAPTURED

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
def trapping(hooks: GuestHooks) -> GuestHooks:
    """GuestHooks that do the same as `hooks` and count VM exits."""
    inner_locate, inner_walk, inner_step = hooks

    @hook
    def server_of(state, table, node):
        return inner_locate(state.inner, table, node)

    @hook
    def on_walk(state, tables, leaf, row, slot, node, fault, counters):
        if fault:
            counters.events[VM_EXIT, node, node] += max(np.int64(fault) - state.split[leaf], 1)
        return inner_walk(state.inner, tables, leaf, row, slot, node, fault, counters)

    @called_hook
    def on_step(state, tables, rows, steps, shootdowns, mapped, counters, step):
        node = steps.node[step]
        counters.events[VM_EXIT, node, node] += written(state.split, rows, steps, mapped, step)
        inner_step(state.inner, tables, rows, steps, shootdowns, mapped, counters, step)

    return GuestHooks(server_of, on_walk, on_step)


@called_hook
def written(split, rows, steps, mapped, step):
    """int64: entries of the guest's own table that a step writes."""
    kind, changed = steps.kind[step], np.int64(mapped.changed[step])
    if changed == 0:
        return np.int64(0)
    if kind == FREE:
        return np.int64(not split[freed_table(steps, step)])
    if kind in (CLEAR, UPDATE, MOVE, DATA, HINT):
        entries = stores(kind) * entries_of(split, rows.leaf[steps.row[step]], changed)
        if kind == MOVE:
            row, _, each = move_target(steps, step)
            target = rows.leaf[row]
            entries += entries_of(split, target, each * changed) + np.int64(mapped.made[step])
            entries -= split[target] and mapped.made[step] > 0
        return entries
    return np.int64(0)


@hook
def entries_of(split, table, changed):
    return np.int64(1) if split[table] else changed


def wrap_guest(part: PolicySide | None, params: Any, mine: Params) -> tuple[PolicySide, Any]:
    """(PolicySide, its parameters) of the shadow table: of the policy that acts on it, else of `place`."""
    place, _ = BY_FIRST_TOUCH if mine.place == "first-touch" else AS_CAPTURED
    acting = part or place

    def start(scenario: Scenario, params: Any) -> tuple[State, int]:
        state, pages = acting.start(scenario, params)
        return State(state, _split(scenario)), pages

    def inner(ask: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return ask and (lambda state, *others: ask(state.inner, *others))

    def setup_events(state: State, scenario: Scenario, events: np.ndarray) -> None:
        """Every mapped page traps once as its entry is built, after the switch to shadow paging."""
        _build(scenario, events)
        if acting.setup_events:
            acting.setup_events(state.inner, scenario, events)

    part = PolicySide(trapping(acting.hooks), start, *(inner(ask) for ask in acting[2:]))
    return part._replace(setup_events=setup_events), params


def _build(scenario: Scenario, events: np.ndarray) -> None:
    """Count the shadow table's pages and entries that are there when the trace begins, and their exits."""
    exists = np.flatnonzero(guest_exists(scenario))
    entries = scenario.entries[exists]
    pages, small = len(exists), int(entries[scenario.space.tables.level[exists] == 1].sum())
    node = scenario.history.home
    events[TABLE_NEW, node, node] += pages
    events[PTE_WRITE, node, node] += int(entries.sum())
    events[VM_EXIT, node, node] += small


def _split(scenario: Scenario) -> np.ndarray:
    """bool[T], as shadow_table.split_tables."""
    before = scenario
    while before.snapshot.native and before.origin is not None:
        before = before.origin
    return split_tables(before.space, scenario.space)


def reshape(scenario: Scenario, params: Params) -> Scenario:
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


POLICY = Policy(
    "shadow",
    "shadow paging: one table for both dimensions, a VM exit for every entry that the guest writes",
    params=Params,
    source="vMitosis, section 5.2; arch/x86/kvm/mmu/mmu.c",
    availability=Availability(
        "modprobe -r kvm_intel; modprobe kvm_intel ept=0 (AMD: kvm_amd npt=0)", "with all VMs off"
    ),
    caveat="The whole host: all VMs on it run with shadow paging, until the module is loaded without ept=0",
    needs=("nested tables",),
    reshape=reshape,
    scope=lambda params: {"paging mode", "ePT", "levels of ePT"},
    wrap_guest=wrap_guest,
)
