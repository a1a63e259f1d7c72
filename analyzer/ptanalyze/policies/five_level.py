"""five-level: page tables of five levels, as of Linux with CONFIG_X86_5LEVEL and of 5-level EPT.

A table above the root with a single used entry: cold walks read more (vMitosis, section 1: 24 -> 35).
"""

from dataclasses import replace
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from ..core.columns import Finding
from ..core.errors import UsageError
from ..core.machine import Latency, Machine, Strict
from ..world.trees import MAX_LEVELS, free_frame, with_root_above
from .contract import Availability, Policy, Scenario

LAYERS = "which table gets a fifth level: the guest's (or, native, the only one), the host's, or both"
ACTS = {"gpt": {"levels of gPT"}, "ept": {"levels of ePT"}}
ACTS["both"] = ACTS["gpt"] | ACTS["ept"]


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"


def reshape(scenario: Scenario, params: Params) -> Scenario:
    """The Scenario with a root above the roots; in a VM the guest's new root is in a frame beside the old."""
    snapshot = scenario.snapshot
    found: list[Finding] = []
    if params.layers != "ept":
        if snapshot.guest.levels < MAX_LEVELS:
            frame = -1 if snapshot.native else free_frame(snapshot.guest, scenario.space.host_of)
            snapshot = replace(snapshot, guest=with_root_above(snapshot.guest, frame))
        else:
            found.append(
                Finding("five-levels", "the guest's tables have five levels already", policy="five-level")
            )
    if params.layers != "gpt" and snapshot.host is not None:
        if snapshot.host.levels < MAX_LEVELS:
            snapshot = replace(snapshot, host=with_root_above(snapshot.host))
        else:
            found.append(
                Finding("five-levels", "the host's tables have five levels already", policy="five-level")
            )
    return scenario.reshaped(snapshot=snapshot, findings=found)


POLICY = Policy(
    "five-level",
    "page tables of five levels in the guest, the host, or both: cold walks read up to 35 entries for 24",
    params=Params,
    source="Intel 5-Level Paging and 5-Level EPT, white paper 335252; vMitosis, section 1",
    availability=Availability("a CPU and a kernel with la57"),
    caveat="The whole machine, from boot (no5lvl turns it off): every process walks one more level",
    reshape=reshape,
    scope=lambda params: ACTS[params.layers],
    extra_needs=lambda params: ("nested tables",) if params.layers == "ept" else (),
)


# domains: parts of a socket that replicate and shoot down like nodes (Hydra, section 6, an outlook).
#
# Where parameters of other policies name nodes, they name domains then: those of socket s are s * per_socket
# and up. Results are by socket.

PER_SOCKET = "domains of a socket: blocks of neighbouring CPUs, as many of those in use in each"
MOST = 64  # bits of a mask of nodes


class DomainsParams(Strict):
    per_socket: Annotated[int, Meta(ge=1, le=8, description=PER_SOCKET)] = 2


def reshape_domains(scenario: Scenario, params: DomainsParams) -> Scenario:
    """The Scenario in which every domain is a node; tables captured on a socket are on its first domain."""
    k, sockets = params.per_socket, scenario.machine.nodes
    if k * sockets > MOST:
        raise UsageError(
            f"policy domains: per_socket = {k}: {sockets} sockets make {k * sockets} domains, at most {MOST}"
        )
    if k == 1:
        return scenario
    placed = scenario.placement
    placement = replace(
        placed, cpu_node=domain_of(placed.cpu_node, k), how=f"{placed.how}, {k} domains per socket"
    )
    return scenario.reshaped(machine=split(scenario.machine, k), placement=placement, domains=k)


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


DOMAINS = Policy(
    "domains",
    "each socket's CPUs in domains that share and shoot down as nodes do; results are by socket",
    params=DomainsParams,
    source="Hydra, ATC '24, section 6 (an outlook)",
    needs=("trace",),
    reshape=reshape_domains,
    scope=lambda params: {"domains"},
)
