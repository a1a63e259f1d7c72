"""domains: parts of a socket that replicate and shoot down like nodes (Hydra, section 6, an outlook).

Where parameters of other policies name nodes, they name domains then: those of socket s are s * per_socket
and up. Results are by socket.
"""

from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Latency, Machine, Strict
from .base import Policy, World

DOMAINS = "domains of a socket: blocks of neighbouring CPUs, as many of those in use in each"
MOST = 64  # bits of a mask of nodes


class DomainsParams(Strict):
    per_socket: Annotated[int, Meta(ge=1, le=8, description=DOMAINS)] = 2


def reshape(world: World, params: DomainsParams) -> World:
    """The World in which every domain is a node; tables captured on a socket are on its first domain."""
    k, sockets = params.per_socket, world.machine.nodes
    if k * sockets > MOST:
        raise UsageError(
            f"policy domains: per_socket = {k}: {sockets} sockets make {k * sockets} domains, at most {MOST}"
        )
    if k == 1:
        return world
    placed = world.placement
    placement = replace(
        placed, cpu_node=domain_of(placed.cpu_node, k), how=f"{placed.how}, {k} domains per socket"
    )
    return world.reshaped(machine=split(world.machine, k), placement=placement, domains=k)


def split(machine: Machine, k: int) -> Machine:
    """The Machine with k nodes per socket, among which the latency is the local latency."""
    latency = {
        name: matrix and tuple(map(tuple, np.kron(matrix, np.ones((k, k))).tolist()))
        for name, matrix in msgspec.structs.asdict(machine.latency).items()
    }
    return msgspec.structs.replace(
        machine,
        nodes=k * machine.nodes,
        cpus_per_node=max(machine.cpus_per_node // k, 1),
        latency=Latency(**latency),
    )


def domain_of(socket: np.ndarray, k: int) -> np.ndarray:
    """int16[cpus]: domain of each CPU: the CPUs of its socket are in k blocks, as even as can be."""
    domain = np.zeros(len(socket), np.int16)
    for number in np.unique(socket):
        mine = np.flatnonzero(socket == number)
        domain[mine] = number * k + np.arange(len(mine)) * k // len(mine)
    return domain


DOMAINS_POLICY = Policy(
    "domains",
    "each socket's CPUs in domains that share and shoot down as nodes do; results are by socket",
    params=DomainsParams,
    source="Hydra, ATC '24, section 6 (an outlook)",
    needs=("trace",),
    reshape=reshape,
    acts=lambda params: {"domains"},
)
