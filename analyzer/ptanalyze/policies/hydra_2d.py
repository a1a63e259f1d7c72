"""hydra-2d: Hydra's lazy copies in both dimensions of a VM's walks, which its section 6 leaves to others.

The guest does as Hydra does. The host does the same with its nested table: a table page's owner is the node
of the vCPU that took the violation, where KVM allocates it and the dump found it; a node's CPUs walk that
node's own table; the first use of an entry there is an ePT violation that copies it from the owner. The host
has no VMAs of the guest's, so that prefetching is limited to the table page.

A guest's table pages are guest memory themselves. What a replica's own nested entry is, no capture says: the
nested reads of a replica are those of the captured table page, as under every policy here.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.arrays import read_only
from ..kernels.entries import CODES
from . import hydra, hydra_hooks
from .base import Part, Policy, World, captured_nodes
from .hydra_2d_hooks import HOOKS, State
from .vmitosis import ACTS

LAYERS = "what is copied lazily: the guest's table, the host's, or both; the other stays as captured"
DEGREE = "as prefetch, of the host's entries, within their table page"


class Params(hydra.Params):
    host_prefetch: Annotated[int, Meta(ge=0, le=9, description=DEGREE)] = 9
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"


def start_host(world: World, params: Params) -> tuple[State, int]:
    """Memory: 30 bytes a table, and 64 bytes a node for each host table that not only its owner reads."""
    space, host = world.space, world.snapshot.nested
    total = len(space.tables.level)
    owner = np.zeros(total, np.int16)
    owner[space.guest_tables :][: space.host_tables] = captured_nodes(world, 1)
    tables, own = _owners_tables(world, owner), np.uint64(1) << owner.astype(np.uint64)
    first = params.prefetch_on == "first"
    state = State(
        own,
        np.full(total, -1, np.int32),
        np.zeros((space.host_tables, world.nodes, 8), np.uint64),  # pages never written take no memory
        own.copy(),
        owner,
        tables,
        read_only(host.entries),
        np.array([params.host_prefetch, first, CODES[host.encoding], space.guest_tables, 0], np.int64),
    )
    return state, int(np.bitwise_count(tables).sum())


def _owners_tables(world: World, owner: np.ndarray) -> np.ndarray:
    """uint64[T]: nodes with each host table page at the start: its owner, and owners of what it leads to.

    All have the root.
    """
    space, tables = world.space, world.space.tables
    ids = np.arange(space.guest_tables, space.guest_tables + space.host_tables)
    have = np.zeros(len(tables.level), np.uint64)
    have[ids] = np.uint64(1) << owner[ids].astype(np.uint64)
    for level in range(1, int(tables.level[ids].max(initial=1))):
        below = ids[(tables.level[ids] == level) & (tables.parent[ids] >= 0)]
        np.bitwise_or.at(have, tables.parent[below], have[below])
    have[ids[tables.parent[ids] < 0]] = np.uint64((1 << world.nodes) - 1)
    return have


POLICY = Policy(
    "hydra-2d",
    "lazy, partial replicas in both dimensions of a VM: an entry is copied to a node at its first use there",
    guest=Part(hydra_hooks.HOOKS, hydra.start, hydra.settle),
    host=Part(HOOKS, start_host),
    params=Params,
    source="Hydra, ATC '24, sections 3, 4 and (an outlook) 6",
    needs=("trace", "nested tables"),
    acts=lambda params: ACTS[params.layers],
)
