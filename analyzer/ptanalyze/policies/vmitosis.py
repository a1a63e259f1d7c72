"""vmitosis-replicate: both dimensions of a VM's walks replicated (Panwar et al., vMitosis, 3.3.1 and 3.3.2).

The hypervisor keeps a replica of every ePT page on each node, written under the same lock as the master. A
guest that sees the nodes (NUMA-visible) does as Mitosis does with its gPT. The host's tables are taken as
fully built: a trace holds no ePT violations, so writes to ePT replicas are not counted, their pages are.
"""

from typing import Annotated, Literal

from msgspec import Meta

from ..errors import UsageError
from ..machine import Strict
from . import fixed_copies
from .base import Policy
from .mitosis import NODES, nearest, replica_nodes

LAYERS = "what is replicated: the guest's table, the host's, or both; the other stays as captured"


class Params(Strict):
    layers: Annotated[Literal["both", "gpt", "ept"], Meta(description=LAYERS)] = "both"
    nodes: Annotated[str, Meta(description=NODES)] = ""


def start(world, params):
    """UsageError for a native capture: there is no ePT to replicate."""
    if world.space.native:
        raise UsageError(
            "policy vmitosis-replicate: a native capture has no host tables (ept.tables): dump the VM with "
            "`ptanalyze dump vm` and `ptanalyze join` it with the guest's capture, or use mitosis"
        )
    copies = replica_nodes("vmitosis-replicate", params.nodes, world.machine)
    serve = nearest(copies, world.machine)
    guest, host = params.layers != "ept", params.layers != "gpt"
    home = fixed_copies.captured_homes(world, guest=not guest, host=not host)
    return fixed_copies.start(
        world,
        home,
        home.copy(),
        serve_guest=serve if guest else fixed_copies.NOWHERE,
        serve_host=serve if host else fixed_copies.NOWHERE,
        copies=copies if guest else (),
        host_copies=len(copies) if host else 1,
    )


POLICY = Policy(
    "vmitosis-replicate",
    "a VM's guest and host tables replicated eagerly on every node: both dimensions of all walks local",
    fixed_copies.HOOKS,
    start,
    fixed_copies.settle,
    Params,
)
