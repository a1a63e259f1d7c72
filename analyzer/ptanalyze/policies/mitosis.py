"""mitosis: a replica of every table page on each node of a set, written eagerly (Achermann et al., 2020).

mode = migrate keeps one copy where most of the process's threads run: when they go to another node, all
tables are replicated there, the roots are switched and the old copies freed (vMitosis, Table 3).
"""

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Strict
from . import static_replicas
from .contract import NODES, Policy, Scenario, replica_nodes

MODE = "replicas at all times, or one copy that is replicated where the process goes and freed where it was"


class Params(Strict):
    nodes: Annotated[str, Meta(description=NODES)] = ""
    mode: Annotated[Literal["replicate", "migrate"], Meta(description=MODE)] = "replicate"


def start(scenario: Scenario, params: Params) -> static_replicas.State:
    """State of the hooks; UsageError for nodes that the machine lacks or the mode has no use for."""
    if params.mode == "replicate":
        copies = replica_nodes("mitosis", params.nodes, scenario.machine)
        return static_replicas.replicas(scenario, copies, static_replicas.nearest(copies, scenario.machine))
    if params.nodes:
        raise UsageError(
            f"policy mitosis: nodes = {params.nodes}: with mode = migrate the copy follows the process; "
            "give nodes with mode = replicate"
        )
    home = scenario.history.home
    state = static_replicas.replicas(scenario, [home], np.full(scenario.nodes, home))
    state.rule[0] = static_replicas.FOLLOW
    return state


POLICY = Policy(
    "mitosis",
    "eager, full replicas on every node: all reads local, every entry written everywhere; a VM's guest only",
    guest=static_replicas.guest_part(start),
    params=Params,
    needs=("node numbers",),
    source="Mitosis, ASPLOS '20; a guest's tables only where the VM sees the nodes (vMitosis, Table 1)",
)
