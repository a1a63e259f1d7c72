"""What two runs with tables in different places identify together."""

from ..core.interval import Interval, combined
from .closed_forms import Run, exposed_share, outside_cycles, sharing, waited_cycles, waiting_of
from .placement import CONTENDED, LOCAL, Placement
from .run_checks import STILL

MOST_SHARED = 2.0  # s: beyond, something else than the page walker is waited for


def waiting_shares(
    local: Run, remote: Run, exposed: Interval | None, competing: Interval, alone: bool
) -> tuple[Interval | None, Interval]:
    """(e, s) where walk cycles changed, else those of one run; e None where not counted.

    More cycles lost than walked mean a walker that is shared, from not at all (the straight line through both
    runs) to as much as explains them; `alone`: not with one thread per core.
    """
    if local.walk is None or remote.walk is None or local.cycles is None or remote.cycles is None:
        return exposed, competing
    if abs(remote.walk - local.walk) <= local.walk * STILL:
        return exposed, competing
    lost = exposed_share(local, remote)
    if lost <= 0 or lost * local.walk >= local.cycles * (1 + competing.high):
        return exposed, competing
    if lost <= 1 or alone:
        return Interval.exactly(min(lost, 1.0)), Interval.exactly(0.0)
    found = min(sharing(local, remote), MOST_SHARED)
    return Interval.exactly(1.0), Interval(0.0, found, found)


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
    rate, slower = local.walk / local.cycles, remote.cycles / local.cycles
    base, where = places

    def share(e: float, s: float, part: float, far: float, loaded: float) -> float:
        waited = e * rate
        added = waited_cycles(slower, outside_cycles(1.0, waited, s), s) - waited
        here = 0.0 if base is None else waiting_of(part, *base.stretches(far, loaded))
        waiting = added / (waiting_of(part, *where.stretches(far, loaded)) - here)
        rest = waited - waiting * here
        return max(waiting / rest, 0.0) if rest else 0.0

    return combined(share, exposed, competing, part, far, loaded)


def identified_by(where: Placement, local: Run, remote: Run) -> tuple[str, ...]:
    """Sentences: what the second run at `where` measures."""
    tables = ("gPT",) if where.ept is None else ("gPT", "ePT")
    far = [t for t, (state, _) in zip(tables, where.tables(), strict=True) if state != LOCAL]
    state = "contended" if where.state == CONTENDED else "remote"
    known = [f"what waiting for the {state} {' and '.join(far)} costs" if far else "what local tables save"]
    if local.walk is not None and remote.walk is not None:
        known.append("cycles lost per walk cycle, from added cycles over added walk cycles")
    return tuple(known)
