"""Node lists among the parameters of policies: "0,2,3" names nodes, "0+1,2+3" groups of them."""

from collections.abc import Iterable

from ..core.errors import UsageError, is_whole
from ..core.machine import Machine

NODES = 'nodes that get a replica, "0,2,3"; empty: all with CPUs. CPUs elsewhere walk the nearest replica'


def node_numbers(parts: Iterable[str], machine: Machine, setting: str, hint: str = "") -> list[int]:
    """Node of each part. UsageError: `setting` ("policy P: KEY = TEXT"), wrong part, machine."""
    names = [part.strip() for part in parts]
    for name in names:
        if not is_whole(name) or int(name) >= machine.nodes:
            raise UsageError(f"{setting}: {name!r} is no node, {nodes_of(machine)}{hint}")
    return [int(name) for name in names]


def nodes_of(machine: Machine) -> str:
    return f"machine {machine.name} has nodes 0..{machine.nodes - 1}"


def replica_nodes(policy: str, text: str, machine: Machine) -> list[int]:
    """Sorted node numbers from "0,2", all nodes if empty."""
    if not text:
        return list(machine.cpu_nodes)
    return sorted(set(node_numbers(text.split(","), machine, f"policy {policy}: nodes = {text}")))


def node_groups(policy: str, text: str, machine: Machine) -> list[list[int]]:
    """[[node]] from "0+1,2+3"; UsageError where a node is unknown, missing or in two groups."""
    setting, hint = f"policy {policy}: groups = {text}", ", each to be in one group"
    groups = [node_numbers(group.split("+"), machine, setting, hint) for group in text.split(",")]
    flat = [node for group in groups for node in group]
    for node in range(machine.nodes):
        if flat.count(node) != 1:
            why = "is in two" if node in flat else "is in no group"
            raise UsageError(f"{setting}: '{node}' {why}; {nodes_of(machine)}{hint}")
    return groups
