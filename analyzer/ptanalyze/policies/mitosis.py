"""mitosis: a replica of every table page on each node of a set, written eagerly (Achermann et al., 2020).

mode = migrate keeps one copy where most of the process's threads run: when they go to another node, all
tables are replicated there, the roots are switched and the old copies freed (vMitosis, Table 3).
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from . import fixed_copies
from .base import Part, Policy, World, guest_exists
from .fixed_copies_hooks import State
from .mitosis_hooks import FOLLOW, HOOKS

MODE = "replicas at all times, or one copy that is replicated where the process goes and freed where it was"
NODES = 'nodes that get a replica, "0,2,3"; empty: all. CPUs elsewhere walk the nearest replica'


class Params(Strict):
    nodes: Annotated[str, Meta(description=NODES)] = ""
    mode: Annotated[Literal["replicate", "migrate"], Meta(description=MODE)] = "replicate"


def start(world: World, params: Params) -> tuple[State, int]:
    state = _state(world, params)
    return state, int(np.count_nonzero(guest_exists(world))) * len(state.copies)


def _state(world: World, params: Params) -> State:
    if params.mode == "replicate":
        copies = replica_nodes("mitosis", params.nodes, world.machine)
        return fixed_copies.replicas(world, copies, nearest(copies, world.machine))
    if params.nodes:
        raise UsageError(
            f"policy mitosis: nodes = {params.nodes}: with mode = migrate the copy follows the process; "
            "give nodes with mode = replicate"
        )
    state = fixed_copies.replicas(world, [world.history.home], np.full(world.nodes, world.history.home))
    state.rule[0] = FOLLOW
    return state


def at_rest(state: State, ids: slice) -> np.ndarray | None:
    """As Part.at_rest; where the process runs a snapshot does not say."""
    return None if state.rule[0] == FOLLOW else fixed_copies.at_rest(state, ids)


def replica_nodes(policy: str, text: str, machine: Machine) -> list[int]:
    """Sorted node numbers from "0,2"; UsageError names what is wrong."""
    if not text:
        return list(range(machine.nodes))
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not part.isdecimal() or int(part) >= machine.nodes]
    if wrong:
        allowed = f"machine {machine.name} has nodes 0..{machine.nodes - 1}"
        raise UsageError(f"policy {policy}: nodes = {text}: {wrong[0]!r} is no node, {allowed}")
    return sorted({int(part) for part in parts})


def nearest(copies: list[int], machine: Machine) -> np.ndarray:
    """int16[nodes]: whose replica each node's CPUs walk: their own node's, else that of least latency."""
    latency = machine.latency_cycles()
    near = np.array(copies)[latency[:, copies].argmin(axis=1)]
    return np.where(np.isin(np.arange(machine.nodes), copies), np.arange(machine.nodes), near)


POLICY = Policy(
    "mitosis",
    "eager, full replicas on every node: all reads local, every entry written everywhere; a VM's guest only",
    guest=Part(HOOKS, start, fixed_copies.settle, at_rest),
    params=Params,
    source="Mitosis, ASPLOS '20; a guest's tables only where the VM sees the nodes (vMitosis, Table 1)",
)
