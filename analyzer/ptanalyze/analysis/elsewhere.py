"""Answers without a trace about a machine with another number of nodes than the captured one has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import plural

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.snapshot import Snapshot

HOST_MODEL = "ptanalyze machines --from-host host.toml"


def elsewhere(snapshot: Snapshot, machine: Machine) -> str:
    """A line for people; "" where both have as many nodes.

    Without a trace each node of the machine is taken to walk as the captured process did.
    """
    captured, readers = len(snapshot.topology), len(machine.cpu_nodes)
    if captured == machine.nodes:
        return ""
    return (
        f"captured on {plural(captured, 'node')}, replayed on {machine.nodes} ({machine.name}); each of "
        f"{readers} is taken to walk as much as the process did, so this says nothing about the captured "
        "machine"
    )
