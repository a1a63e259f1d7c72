"""vmitosis-replicate: both dimensions of a VM's walks replicated (Panwar et al., vMitosis, 3.3.1 and 3.3.2).

The hypervisor keeps a replica of every ePT page on each node, written under the same lock as the master. A
guest that sees the nodes (NUMA-visible) does as Mitosis does with its gPT. The host's tables are taken as
fully built: a trace holds no ePT violations, so writes to ePT replicas are not counted, their pages are.
"""

from typing import Annotated, Literal

from msgspec import Meta

from ..machine import Strict
from . import fixed_copies
from .base import Policy
from .mitosis import NODES, nearest, replica_nodes

LAYERS = "what is replicated: the guest's table, the host's, or both; the other stays as captured"
ACTS = {"both": {"gPT", "ePT"}, "gpt": {"gPT"}, "ept": {"ePT"}}


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    nodes: Annotated[str, Meta(description=NODES)] = ""


def start(world, params):
    copies = replica_nodes("vmitosis-replicate", params.nodes, world.machine)
    return fixed_copies.replicas(world, copies, nearest(copies, world.machine))


POLICY = Policy(
    "vmitosis-replicate",
    "a VM's guest and host tables replicated eagerly on every node: both dimensions of all walks local",
    fixed_copies.guest_part(start),
    fixed_copies.host_part(start),
    Params,
    source="vMitosis, sections 3.3.1 and 3.3.2",
    needs=("nested tables",),
    acts=lambda params: ACTS[params.layers],
)
