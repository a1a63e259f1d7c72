"""Lists of policies and machines; a file of its own, as asking for it loads neither pandas nor Numba."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core.columns import described, table_of
from ..core.machine import load_machine, machine_names

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..policies import Policy


def list_policies(chosen: Iterable[Policy] | None = None) -> DataFrame:
    """Placement policies: policy, doc, acts_on, needs, takes, source, parameters (with their defaults).

    chosen  None: all; needs: of a capture; takes: to have the policy on a machine
    """
    from ..policies import parameters
    from ..policies import policies as known

    rows = [
        {
            "policy": policy.name,
            "doc": policy.doc,
            "acts_on": ", ".join(sorted(policy.acts_on(policy.params()))),
            "needs": ", ".join(policy.needed(policy.params())),
            "availability": str(policy.had_by({})),
            "source": policy.source,
            "parameters": ", ".join(f"{name}={default}" for name, default, *_ in parameters(policy)),
        }
        for policy in (known().values() if chosen is None else chosen)
    ]
    return described(table_of(rows))


def list_machines() -> DataFrame:
    """Bundled machine files: machine, nodes, cpus_per_node, ghz, latencies, description."""
    from .frames import machine_limits

    rows = []
    for name in machine_names():
        machine = load_machine(name)
        about = {"machine": name, "nodes": machine.nodes, "cpus_per_node": machine.cpus_per_node}
        rows.append(about | machine_limits(machine) | {"description": machine.description})
    return described(table_of(rows).drop(columns="name"))
