"""vmitosis-replicate: both dimensions of a VM's walks replicated (Panwar et al., vMitosis, section 3.3).

The hypervisor keeps a replica of every ePT page on each node, written under the same lock as the master. The
host's tables are taken as fully built: a trace holds no ePT violations, so writes to ePT replicas are not
counted, their pages are. The guest replicates its gPT as Mitosis does. The mode is its way to learn nodes:

nv    the VM shows them (3.3.2)
no-p  it shows none; hypercalls say on which node each vCPU runs and pin the replicas' pages there (3.3.3):
      every replica is where it belongs, as with nv
no-f  not told: groups of vCPUs are discovered from cache-line latencies, a vCPU of each touches the
      pages of its group's replica first, and the host's local allocation places them (3.3.4). Where a node
      had no memory left, a page of a replica is elsewhere: `misplaced`
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from ..world.trees import GOLDEN, hashed
from . import contract
from .static_replicas import MISPLACED, NOWHERE, State, guest_part, host_part, nearest, replicas

NAME = "vmitosis-replicate"
LAYERS = "what is replicated: the guest's table, the host's, or both; the other stays as captured"
MODE = "how the guest comes by nodes: the VM shows them, it asks the hypervisor, or it discovers groups"
GROUPS = (
    'no-f: nodes of each discovered group, "0+1,2+3"; a group has one replica of the gPT, on its first node. '
    "Empty: each node is a group"
)
SHARE = (
    "no-f: share of the gPT's table pages whose replicas are on the next replica's node; 1: every CPU walks "
    "another node's replica (4.2.2)"
)
SEED = "which table pages are misplaced"


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    nodes: Annotated[str, Meta(description=contract.NODES)] = ""
    mode: Annotated[Literal["nv", "no-p", "no-f"], Meta(description=MODE)] = "nv"
    groups: Annotated[str, Meta(description=GROUPS)] = ""
    misplaced: Annotated[float, Meta(ge=0, le=1, description=SHARE)] = 0.0
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description=SEED)] = 0


def drawn(tables: int, share: float, seed: int) -> np.ndarray:
    """bool[tables]: ids whose hash with `seed` is below `share`."""
    return hashed(np.arange(1, tables + 1, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(seed)) < share


def start_guest(scenario: contract.Scenario, params: Params) -> State:
    """State of the hooks; UsageError for parameters that the mode or the machine does not allow.

    A misplaced table page has as many copies on the same nodes as any other, but each node's CPUs are served
    by another node's (3.3.4, 4.2.2).
    """
    _check(params)
    if params.groups:
        copies, serve = grouped(params.groups, scenario.machine)
    else:
        copies = contract.replica_nodes(NAME, params.nodes, scenario.machine)
        serve = nearest(copies, scenario.machine)
    state = replicas(scenario, copies, serve)
    if not params.misplaced:
        return state
    if len(copies) == 1:
        why = "one replica has no other's node to be on"
        raise UsageError(f"policy {NAME}: misplaced = {params.misplaced}: {why}")
    following = np.zeros(scenario.nodes, np.int16)
    following[copies] = np.roll(copies, -1)
    state.serve[:] = NOWHERE
    for home in state.home, state.again:
        home[drawn(len(home), params.misplaced, params.seed)] = MISPLACED
    return state._replace(turns=np.concatenate([serve, following[serve]]).astype(np.int16))


def start_host(scenario: contract.Scenario, params: Params) -> State:
    copies = contract.replica_nodes(NAME, params.nodes, scenario.machine)
    return replicas(scenario, copies, nearest(copies, scenario.machine))


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
    setting, hint = f"policy {NAME}: groups = {text}", ", each to be in one group"
    groups = [contract.node_numbers(group.split("+"), machine, setting, hint) for group in text.split(",")]
    flat = [node for group in groups for node in group]
    for node in range(machine.nodes):
        if flat.count(node) != 1:
            why = "is in two" if node in flat else "is in no group"
            raise UsageError(f"{setting}: '{node}' {why}; {contract.nodes_of(machine)}{hint}")
    serve = np.zeros(machine.nodes, np.int16)
    for group in groups:
        serve[group] = group[0]
    return [group[0] for group in groups], serve


def guest_facts(
    state: State, scenario: contract.Scenario, params: Params, pages: np.ndarray
) -> dict[str, int]:
    """Number of table pages with misplaced replicas."""
    if not params.misplaced:
        return {}
    away = (state.home == MISPLACED)[: scenario.space.guest_tables] & scenario.space.program_tables
    return {"gpt_tables_misplaced": int(np.count_nonzero(away))}


POLICY = contract.Policy(
    NAME,
    "a VM's guest and host tables replicated eagerly on every node: both dimensions of all walks local",
    guest_part(start_guest)._replace(facts=guest_facts),
    host_part(start_host),
    Params,
    source="vMitosis, sections 3.3 and 4.2.2",
    needs=("nested tables",),
    scope=lambda params: contract.LAYERS_ACT[params.layers],
    extra_needs=lambda params: ("node numbers",) * (params.mode == "nv" and params.layers != "ept"),
)
