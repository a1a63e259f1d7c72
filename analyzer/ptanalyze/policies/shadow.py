"""shadow: one table gVA -> hPA instead of two dimensions (vMitosis, section 5.2).

Walks read one dimension. The price: the hypervisor write-protects the guest's own table, so that each entry
written there is a VM exit, which writes the shadow entry too. The guest's table stays (Result.aside_pages).

What is counted where: `pte_writes`, `faults`, `tables_new`, ... are the shadow table's; `vm_exits` are
entries written in the guest's own, one for each page mapped, changed or unmapped and one for each table
linked or unlinked; those writes are counted nowhere else. Of a guest's huge page that the shadow table maps
by small ones, the guest writes one entry; each further small page that is touched is an exit, as a fault of
the hypervisor's.

Another policy that acts on "gPT" then acts on the shadow table: shadow+mitosis, shadow+hydra.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from ..core.machine import Strict
from ..world.shadow_table import shadow_table, split_tables
from .base import Part, Policy, World
from .fixed_copies import AS_CAPTURED
from .shadow_hooks import State, trapping
from .single_copy import BY_FIRST_TOUCH

PLACE = (
    "where the hypervisor allocates a page of the shadow table: on the node of the vCPU whose fault it "
    "serves, or of the guest's table page that it stands for"
)


class Params(Strict):
    place: Annotated[Literal["first-touch", "guest"], Meta(description=PLACE)] = "first-touch"


def over_guest(part: Part | None, params: Any, mine: Params) -> tuple[Part, Any]:
    """(Part, its parameters) of the shadow table: that of the policy that acts on it, else its own place."""
    place, _ = BY_FIRST_TOUCH if mine.place == "first-touch" else AS_CAPTURED
    acting = part or place

    def start(world: World, params: Any) -> tuple[State, int]:
        state, pages = acting.start(world, params)
        return State(state, _split(world)), pages

    def inner(ask: Callable[..., Any] | None) -> Callable[..., Any] | None:
        return ask and (lambda state, *others: ask(state.inner, *others))

    return Part(trapping(acting.hooks), start, *(inner(ask) for ask in acting[2:])), params


def _split(world: World) -> np.ndarray:
    """bool[T], as shadow_table.split_tables."""
    before = world
    while before.snapshot.native and before.origin is not None:
        before = before.origin
    return split_tables(before.space, world.space)


def reshape(world: World, params: Params) -> World:
    """The World with one dimension; facts say what its table lacks and has more than the guest's."""
    found = shadow_table(world.space)
    notes = []
    if found.unmapped:
        notes.append(f"shadow: {found.unmapped} pages of the guest that the host does not map are not mapped")
    return world.reshaped(
        snapshot=found.snapshot,
        aside_pages=int(np.count_nonzero(world.space.program_tables)),
        facts={"shadow_tables_of_split_pages": found.split_tables, "shadow_pages_unmapped": found.unmapped},
        notes=tuple(notes),
    )


POLICY = Policy(
    "shadow",
    "shadow paging: one table for both dimensions, a VM exit for every entry that the guest writes",
    params=Params,
    source="vMitosis, section 5.2; arch/x86/kvm/mmu/mmu.c",
    needs=("nested tables",),
    reshape=reshape,
    acts=lambda params: {"paging mode", "ePT", "levels of ePT"},
    over_guest=over_guest,
)
