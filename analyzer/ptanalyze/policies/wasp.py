"""wasp: Mitosis with steering: a node's CPUs may walk another node's replica (Qu and Yu, WASP, ASPLOS 2024).

WASP's own decision, replicas on or off by performance counters, is a whole run's: compare linux with this.
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from . import fixed_copies
from .base import LAYERS_ACT, NEEDS, Policy, World
from .fixed_copies import State
from .node_lists import node_numbers, nodes_of

STEER = (
    'the node whose replica each node walks, "1,1,2,3": node 0 that of node 1; auto: the node of least '
    "latency, under load where the machine file knows it, its own unless that is slower"
)
LAYERS = "what is replicated: the guest's table (or, native, the only one), a VM's nested table, or both"


class Params(Strict):
    steer: Annotated[str, Meta(description=STEER)] = "auto"
    layers: Annotated[Literal["gpt", "ept", "both"], Meta(description=LAYERS)] = "gpt"


def start(world: World, params: Params) -> State:
    every = np.arange(world.nodes)
    return fixed_copies.replicas(world, every, steering(params.steer, world.machine))


def start_host(world: World, params: Params) -> State:
    if world.snapshot.native:
        _, what, how = NEEDS["nested tables"]
        raise UsageError(f"policy wasp: layers = {params.layers}: {what}: {how}")
    return start(world, params)


def steering(text: str, machine: Machine) -> np.ndarray:
    """int16[nodes]: whose replica each node's CPUs walk. UsageError names the wrong part of `text`."""
    if text == "auto":
        latency = machine.latency_cycles(contended=machine.latency.contended is not None)
        own = np.diagonal(latency)
        return np.where(own <= latency.min(axis=1), np.arange(machine.nodes), latency.argmin(axis=1))
    setting, hint = f"policy wasp: steer = {text}", "; give one for each, or auto"
    steered = node_numbers(text.split(","), machine, setting, hint)
    if len(steered) != machine.nodes:
        raise UsageError(f"{setting}: {len(steered)} nodes for {machine.nodes}, {nodes_of(machine)}{hint}")
    return np.array(steered, np.int16)


POLICY = Policy(
    "wasp",
    "replicas as mitosis's, and a steering matrix: which node's replica the CPUs of each node walk",
    fixed_copies.guest_part(start),
    fixed_copies.host_part(start_host),
    Params,
    source="WASP, ASPLOS '24; steering by latency is this package's reading of it",
    acts=lambda params: LAYERS_ACT[params.layers],
)
