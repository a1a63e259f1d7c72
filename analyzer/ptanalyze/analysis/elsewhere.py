"""Answers without a trace about a machine with another number of nodes than the captured one has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .weights import weighed

if TYPE_CHECKING:
    from ..core.machine import Machine
    from ..core.snapshot import Snapshot
    from ..formats.capture import Capture
    from .setup import Setup

HOST_MODEL = "ptanalyze machines --from-host host.toml"


def elsewhere(snapshot: Snapshot, machine: Machine) -> str:
    """A line for people; "" where both have as many nodes.

    Without a trace each node of the machine is taken to walk as the captured process did.
    """
    captured, readers = len(snapshot.topology), len(machine.cpu_nodes)
    if captured == machine.nodes:
        return ""
    return (
        f"captured on {nodes(captured)}, replayed on {machine.nodes} ({machine.name}); each of {readers} is "
        "taken to walk as much as the process did, so this says nothing about the captured machine"
    )


def asked_elsewhere(capture: Capture, setup: Setup) -> str:
    """The same of a Capture, "" also where its trace is replayed."""
    if not capture.has_snapshot:
        return ""
    snapshot = capture.snapshot
    trace = weighed(snapshot, capture.trace if capture.has_trace else None, setup.weigh)[1]
    return "" if trace is not None else elsewhere(snapshot, setup.machine)


def nodes(number: int) -> str:
    return f"{number} node{'s' * (number != 1)}"
