"""The share of the LLC that holds page-table lines: an estimate, so answers cover its bounds."""

from msgspec.structs import replace

from .errors import UsageError
from .machine import Machine


def at_own_share(machine: Machine) -> Machine:
    """The machine without bounds of that share, for questions whose answers have no such interval."""
    return _sharing(machine, machine.llc.share, None)


def at_least_share(machine: Machine) -> Machine:
    """The machine with the least of its LLC that may be left to page tables."""
    return _sharing(machine, min(machine.llc.shares or (machine.llc.share,)), None)


def at_other_shares(machine: Machine) -> tuple[Machine, ...]:
    """The machine with the least and the most of its LLC left to page tables; none without such bounds."""
    ends = set(machine.llc.shares or ()) - {machine.llc.share}
    return tuple(_sharing(machine, share, None) for share in sorted(ends))


def sharing(machine: Machine, text: str) -> Machine:
    """The machine with another share of its LLC left to page tables, "0.25", or other bounds, "0.1:0.5".

    UsageError for other texts, and for bounds that leave out the machine's own share.
    """
    shares = _numbers(text)
    if len(shares) not in (1, 2) or not all(0 < share <= 1 for share in shares):
        raise UsageError(
            f"--cache-share {text}: write the share of the LLC that holds page-table lines, above 0, at most "
            "1, as 0.25, or its bounds, as 0.1:0.5"
        )
    if len(shares) == 1:
        return _sharing(machine, shares[0], None)
    own, (low, high) = machine.llc.share, shares
    if not low <= own <= high:
        raise UsageError(
            f"--cache-share {text}: leaves out the machine's own share, {own:g}; give bounds around it, or a "
            "single share"
        )
    return _sharing(machine, own, (low, high))


def cache_note(machine: Machine) -> str:
    """A line for readers of results; empty where the share has no bounds."""
    if machine.llc.shares is None:
        return ""
    low, high = machine.llc.shares
    return (
        f"{machine.llc.share:g} of the LLC holds page-table lines, an estimate; bounds of speed-ups cover "
        f"{low:g} to {high:g} (--cache-share)"
    )


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(":")]
    except ValueError:
        return []


def _sharing(machine: Machine, share: float, shares: tuple[float, float] | None) -> Machine:
    return replace(machine, llc=replace(machine.llc, share=share, shares=shares))
