"""vmitosis-replicate: both dimensions of a VM's walks replicated (Panwar et al., vMitosis, section 3.3).

The hypervisor keeps a replica of every ePT page on each node, written under the same lock as the master. The
host's tables are taken as fully built: a trace holds no ePT violations, so writes to ePT replicas are not
counted, their pages are. The guest replicates its gPT as Mitosis does. How it comes by nodes is its mode:

nv    the VM shows them (3.3.2)
no-p  it shows none; hypercalls say on which node each vCPU runs and pin the replicas' pages there (3.3.3):
      every replica is where it belongs, as with nv
no-f  nobody says: groups of vCPUs are discovered from cache-line latencies, one vCPU of each touches the
      pages of its group's replica first, and the host's local allocation places them (3.3.4). Where a node
      had no memory left, a page of a replica is elsewhere: `misplaced`
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from . import fixed_copies, fixed_copies_hooks, misplaced
from .base import Policy, World
from .misplaced_hooks import State
from .mitosis import NODES, nearest, replica_nodes

NAME = "vmitosis-replicate"
LAYERS = "what is replicated: the guest's table, the host's, or both; the other stays as captured"
ACTS = {"both": {"gPT", "ePT"}, "gpt": {"gPT"}, "ept": {"ePT"}}
MODE = "how the guest comes by nodes: the VM shows them, it asks the hypervisor, or it discovers groups"
GROUPS = (
    'no-f: nodes of each discovered group, "0+1,2+3"; a group has one replica of the gPT, on its first node. '
    "Empty: each node is a group"
)
MISPLACED = (
    "no-f: share of the gPT's table pages whose replicas are on the next replica's node; 1: every CPU walks "
    "another node's replica (4.2.2)"
)
SEED = "which table pages are misplaced"
CACHE = "pages reserved on each node for replicas, in each dimension (3.3.1); 0: taken when needed"


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    nodes: Annotated[str, Meta(description=NODES)] = ""
    mode: Annotated[Literal["nv", "no-p", "no-f"], Meta(description=MODE)] = "nv"
    groups: Annotated[str, Meta(description=GROUPS)] = ""
    misplaced: Annotated[float, Meta(ge=0, le=1, description=MISPLACED)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=SEED)] = 0
    page_cache: Annotated[int, Meta(ge=0, le=2**40, description=CACHE)] = 0


def start_guest(world: World, params: Params) -> State:
    """State of the hooks; UsageError for parameters that the mode or the machine does not allow."""
    _check(params)
    if params.groups:
        copies, serve = grouped(params.groups, world.machine)
    else:
        copies = replica_nodes(NAME, params.nodes, world.machine)
        serve = nearest(copies, world.machine)
    if params.misplaced and len(copies) == 1:
        raise UsageError(
            f"policy {NAME}: misplaced = {params.misplaced}: one replica has no other's node to be on"
        )
    following = np.zeros(world.nodes, np.int16)
    following[copies] = np.roll(copies, -1)
    return State(
        fixed_copies.replicas(world, copies, serve),
        fixed_copies.replicas(world, copies, following[serve]),
        misplaced.drawn(len(world.space.tables.level), params.misplaced, params.seed),
    )


def start_host(world: World, params: Params) -> fixed_copies_hooks.State:
    copies = replica_nodes(NAME, params.nodes, world.machine)
    return fixed_copies.replicas(world, copies, nearest(copies, world.machine))


def _check(params: Params) -> None:
    for key in ("groups", "misplaced"):
        value = getattr(params, key)
        if value and params.mode != "no-f":
            raise UsageError(
                f"policy {NAME}: {key} = {value}: only where groups are discovered: --set mode=no-f "
                f"(mode = {params.mode})"
            )
    if params.groups and params.nodes:
        raise UsageError(
            f"policy {NAME}: groups = {params.groups}: each group has a replica; leave out "
            f"nodes = {params.nodes}"
        )


def grouped(text: str, machine: Machine) -> tuple[list[int], np.ndarray]:
    """(first node of each group, int16[nodes]: first node of each node's group) of "0+1,2+3".

    UsageError where a node is unknown, missing or in two groups.
    """
    groups = [[node.strip() for node in group.split("+")] for group in text.split(",")]
    flat = [node for group in groups for node in group]
    every = [str(node) for node in range(machine.nodes)]
    for node in [*flat, *every]:
        if node not in every or flat.count(node) != 1:
            why = "is no node" if node not in every else "is in no group" if node not in flat else "is in two"
            raise UsageError(
                f"policy {NAME}: groups = {text}: {node!r} {why}; machine {machine.name} has nodes "
                f"0..{machine.nodes - 1}, each to be in one group"
            )
    serve = np.zeros(machine.nodes, np.int16)
    for group in groups:
        serve[[int(node) for node in group]] = int(group[0])
    return [int(group[0]) for group in groups], serve


def guest_facts(state: State, world: World, params: Params, pages: np.ndarray) -> dict[str, int]:
    """Facts of the guest's page caches, and how many of its table pages have misplaced replicas."""
    found = _cache_facts("gpt", state.here, params, pages)
    if params.misplaced:
        away = state.misplaced[: world.space.guest_tables] & world.space.program_tables
        found["gpt_tables_misplaced"] = int(np.count_nonzero(away))
    return found


def host_facts(
    state: fixed_copies_hooks.State, world: World, params: Params, pages: np.ndarray
) -> dict[str, int]:
    return _cache_facts("ept", state, params, pages)


def _cache_facts(
    tree: str, state: fixed_copies_hooks.State, params: Params, pages: np.ndarray
) -> dict[str, int]:
    """What all nodes' page caches hold, by the most pages that replicas took: freed ones go back (3.3.4)."""
    if not params.page_cache:
        return {}
    copies = len(state.copies)
    need, have = int(pages[1]), copies * params.page_cache
    return {
        f"{tree}_page_cache_bytes_reserved": have * 4096,
        f"{tree}_page_cache_bytes_unused": max(have - need, 0) * 4096,
        f"{tree}_page_cache_refills": max(need - have, 0),  # pages that the reserve did not hold
    }


POLICY = Policy(
    NAME,
    "a VM's guest and host tables replicated eagerly on every node: both dimensions of all walks local",
    misplaced.guest_part(start_guest)._replace(facts=guest_facts),
    fixed_copies.host_part(start_host)._replace(facts=host_facts),
    Params,
    source="vMitosis, sections 3.3 and 4.2.2",
    needs=("nested tables",),
    acts=lambda params: ACTS[params.layers],
)
