"""mitosis: a replica of every table page on each node of a set, written eagerly (Achermann et al., 2020)."""

from typing import Annotated

import numpy as np
from msgspec import Meta

from ..errors import UsageError
from ..machine import Strict
from . import fixed_copies
from .base import Policy

NODES = 'nodes that get a replica, "0,2,3"; empty: all. CPUs elsewhere walk the nearest replica'


class Params(Strict):
    nodes: Annotated[str, Meta(description=NODES)] = ""


def start(world, params):
    copies = replica_nodes("mitosis", params.nodes, world.machine)
    return fixed_copies.replicas(world, copies, nearest(copies, world.machine))


def replica_nodes(policy, text, machine):
    """Sorted node numbers from "0,2"; UsageError names what is wrong."""
    if not text:
        return list(range(machine.nodes))
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not part.isdecimal() or int(part) >= machine.nodes]
    if wrong:
        allowed = f"machine {machine.name} has nodes 0..{machine.nodes - 1}"
        raise UsageError(f"policy {policy}: nodes = {text}: {wrong[0]!r} is no node, {allowed}")
    return sorted({int(part) for part in parts})


def nearest(copies, machine):
    """int16[nodes]: whose replica each node's CPUs walk: their own node's, else that of least latency."""
    latency = machine.latency_cycles()
    near = np.array(copies)[latency[:, copies].argmin(axis=1)]
    return np.where(np.isin(np.arange(machine.nodes), copies), np.arange(machine.nodes), near)


POLICY = Policy(
    "mitosis",
    "eager, full replicas on every node: all reads local, every entry written everywhere; a VM's guest only",
    guest=fixed_copies.guest_part(start),
    params=Params,
    source="Mitosis, ASPLOS '20; a guest's tables only where the VM sees the nodes (vMitosis, Table 1)",
)
