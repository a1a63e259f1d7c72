"""five-level: page tables of five levels, as of Linux with CONFIG_X86_5LEVEL and of 5-level EPT.

A table above the root with a single used entry: cold walks read more (vMitosis, section 1: 24 -> 35).
"""

from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from ..core.machine import Strict
from ..world.trees import MAX_LEVELS, free_frame, with_root_above
from .base import Policy, World

LAYERS = "which table gets a fifth level: the guest's (or, native, the only one), the host's, or both"
ACTS = {"gpt": {"levels of gPT"}, "ept": {"levels of ePT"}}
ACTS["both"] = ACTS["gpt"] | ACTS["ept"]


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"


def reshape(world: World, params: Params) -> World:
    """The World with a root above the roots; in a VM the guest's new root is in a frame beside the old."""
    snapshot = world.snapshot
    notes: list[str] = []
    if params.layers != "ept":
        if snapshot.guest.levels < MAX_LEVELS:
            frame = -1 if snapshot.native else free_frame(snapshot.guest, world.space.host_of)
            snapshot = replace(snapshot, guest=with_root_above(snapshot.guest, frame))
        else:
            notes.append("five-level: the guest's tables have five levels already")
    if params.layers != "gpt" and snapshot.host is not None:
        if snapshot.host.levels < MAX_LEVELS:
            snapshot = replace(snapshot, host=with_root_above(snapshot.host))
        else:
            notes.append("five-level: the host's tables have five levels already")
    return world.reshaped(snapshot=snapshot, notes=tuple(notes))


POLICY = Policy(
    "five-level",
    "page tables of five levels in the guest, the host, or both: cold walks read up to 35 entries for 24",
    params=Params,
    source="Intel 5-Level Paging and 5-Level EPT, white paper 335252; vMitosis, section 1",
    takes="today: a CPU and a kernel with la57",
    besides="The whole machine, from boot (no5lvl turns it off): every process walks one more level",
    reshape=reshape,
    acts=lambda params: ACTS[params.layers],
    needs_with=lambda params: ("nested tables",) if params.layers == "ept" else (),
)
