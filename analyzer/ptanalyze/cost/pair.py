"""What two runs with tables in different places identify together."""

from ..core.interval import Interval
from .closed_forms import Run, exposed_share, outside_cycles, sharing, waited_cycles, waiting_of
from .placement import CONTENDED, LOCAL, Placement
from .run_checks import STILL
from .spread import combined

MOST_SHARED = 2.0  # s: beyond, something else than the page walker is waited for


def waiting_shares(
    local: Run, remote: Run, exposed: Interval | None, competing: Interval
) -> tuple[Interval | None, Interval]:
    """(e, s): exact where walk cycles changed, else those of one run; e None where not counted."""
    if local.walk is None or remote.walk is None or local.cycles is None or remote.cycles is None:
        return exposed, competing
    if abs(remote.walk - local.walk) <= local.walk * STILL:
        return exposed, competing
    lost = exposed_share(local, remote)
    if lost <= 0 or lost * local.walk >= local.cycles * (1 + competing.high):
        return exposed, competing
    if lost <= 1:
        return Interval.exactly(lost), Interval.exactly(0.0)
    return Interval.exactly(1.0), Interval.exactly(min(sharing(local, remote), MOST_SHARED))


def dram_share(
    local: Run,
    remote: Run,
    places: tuple[Placement | None, Placement],
    unknown: tuple[Interval | None, Interval, Interval, Interval, Interval],
) -> Interval | None:
    """Interval of f from the cycles of two runs; None where walk cycles were not counted.

    places   of the local run, None: all local, and of the remote one
    unknown  e, s, the gPT's part of the waiting, k of an idle and of a contended remote node
    """
    exposed, competing, part, far, loaded = unknown
    if exposed is None or not local.walk or not local.cycles or not remote.cycles:
        return None
    waited, slower = exposed.middle * local.walk / local.cycles, remote.cycles / local.cycles
    outside = outside_cycles(1.0, waited, competing.middle)
    added = waited_cycles(slower, outside, competing.middle) - waited
    base, where = places

    def share(part: float, far: float, loaded: float) -> float:
        here = 0.0 if base is None else waiting_of(part, *base.stretches(far, loaded))
        waiting = added / (waiting_of(part, *where.stretches(far, loaded)) - here)
        rest = waited - waiting * here
        return max(waiting / rest, 0.0) if rest else 0.0

    return combined(share, part, far, loaded)


def identified_by(where: Placement, local: Run, remote: Run) -> tuple[str, ...]:
    """Sentences: what the second run at `where` measures."""
    tables = ("gPT",) if where.ept is None else ("gPT", "ePT")
    far = [t for t, (state, _) in zip(tables, where.tables(), strict=True) if state != LOCAL]
    state = "contended" if where.state == CONTENDED else "remote"
    known = [f"what waiting for the {state} {' and '.join(far)} costs" if far else "what local tables save"]
    if local.walk is not None and remote.walk is not None:
        known.append("cycles lost per walk cycle, from added cycles over added walk cycles")
    return tuple(known)
