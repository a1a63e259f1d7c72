"""steering: Mitosis's replicas, but a node's CPUs may walk another node's (Qu and Yu, WASP, ASPLOS 2024).

The replicas are there at all times; WASP itself switches them on and off (wasp.py).
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Machine, Strict
from . import fixed_copies
from .base import LAYERS_ACT, Policy, World, nodes_in_guest
from .fixed_copies import State
from .node_lists import node_numbers, nodes_of

STEER = (
    'the node whose replica each node walks, "1,1,2,3": node 0 that of node 1; auto: the node of least '
    "latency, under load where the machine file knows it, its own unless that is slower"
)
LAYERS = "what is replicated: the guest's table (or, native, the only one), a VM's nested table, or both"


class SteeringParams(Strict):
    steer: Annotated[str, Meta(description=STEER)] = "auto"
    layers: Annotated[Literal["gpt", "ept", "both"], Meta(description=LAYERS)] = "gpt"


def start(world: World, params: SteeringParams) -> State:
    every = np.arange(world.nodes)
    return fixed_copies.replicas(world, every, steering(params.steer, world.machine))


def needs(params: SteeringParams) -> tuple[str, ...]:
    nested = () if params.layers == "gpt" else ("nested tables",)
    return (*nested, *nodes_in_guest(params))


def steering(text: str, machine: Machine, policy: str = "steering") -> np.ndarray:
    """int16[nodes]: whose replica each node's CPUs walk. UsageError names the wrong part of `text`."""
    if text == "auto":
        latency = machine.latency_cycles(contended=machine.latency.contended is not None)
        own = np.diagonal(latency)
        return np.where(own <= latency.min(axis=1), np.arange(machine.nodes), latency.argmin(axis=1))
    setting, hint = f"policy {policy}: steer = {text}", "; give one for each, or auto"
    steered = node_numbers(text.split(","), machine, setting, hint)
    if len(steered) != machine.nodes:
        raise UsageError(f"{setting}: {len(steered)} nodes for {machine.nodes}, {nodes_of(machine)}{hint}")
    return np.array(steered, np.int16)


STEERING = Policy(
    "steering",
    "replicas as mitosis's, and a steering matrix: which node's replica the CPUs of each node walk",
    fixed_copies.guest_part(start),
    fixed_copies.host_part(start),
    SteeringParams,
    source="the steering matrix of WASP, ASPLOS '24, without its switching",
    acts=lambda params: LAYERS_ACT[params.layers],
    needs_with=needs,
)
