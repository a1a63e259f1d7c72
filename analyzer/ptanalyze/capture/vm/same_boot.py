"""Whether the clocks of host and guest speak against their dumps being of one VM, and of one boot of it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

SLACK = 120.0  # seconds by which clocks of host and guest may differ
WAY_OUT = "another VM's guest, or another boot, unless the two clocks differ: dump host and guest again"


def doubts(host: Mapping[str, Any], guest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each contradiction between the facts of a HostDump and of its guest's Snapshot.

    A guest boots after its VMM was started, and before the host's dump was made. Where a dumper did not note
    times (older captures, guests read from outside) nothing is said. Two VMs that both ran all the time are
    not told apart.
    """
    dumped, vmm = _when(host), host.get("process_s")
    looked, up = _when(guest), guest.get("uptime_s")
    if dumped is None or looked is None or up is None:
        return
    booted = looked - up
    if booted > dumped + SLACK:
        yield f"the guest booted {span(booted - dumped)} after the host's dump was made: {WAY_OUT}"
    elif vmm is not None and booted < dumped - vmm - SLACK:
        ago = span(dumped - vmm - booted)
        yield f"the guest booted {ago} before the VMM was started, as after a migration; else {WAY_OUT}"


def _when(facts: Mapping[str, Any]) -> float | None:
    """Seconds since 1970 at which a dump was made, by the clock of its machine; None unknown."""
    try:
        return datetime.fromisoformat(facts["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None


def span(seconds: float) -> str:
    """A time in its largest unit: "3 hours"."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            number = round(seconds / length)
            return f"{number:,} {unit}{'s' if number != 1 else ''}"
    return f"{seconds:.0f} seconds"
