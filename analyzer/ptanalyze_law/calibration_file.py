"""Calibration files that predictions are made from: two runs of one must be of different placements."""

from typing import cast

import ptanalyze as pt

NEAR = 0.05  # of a table: what remote shares of two runs must differ by, to divide by it
WHOLE = 100.0  # seconds or cycles: shown without a fraction


def read_calibration(path: pt.formats.PathLike) -> pt.law.Calibration:
    """Calibration of a file; InputError where its runs do not tell placements, or for a page-size trial."""
    record = pt.measured.read_measured(path)
    if isinstance(record, pt.law.PageTrial):
        why = f"placements need a trace beside it: `ptanalyze whatif CAPTURE --calibration {path}`"
        raise pt.errors.InputError(path, "kind", pt.measured.PAGE_SIZE, why)
    local, remote = record.local, record.remote
    if remote is None:
        if None in (record.exposed, record.dram_share, local.walk, local.cycles):
            why = "one run is not enough without its cycles, walk cycles, exposed and dram_share"
            raise pt.errors.InputError(path, "remote", None, why)
        return record
    where = pt.law.placement(cast("str", record.placement))
    try:
        check_pair(local, remote, where, pt.law.placement(record.at) if record.at else None)
    except pt.UsageError as error:
        raise pt.errors.InputError(path, "remote", record.placement, str(error)) from None
    return record


def check_pair(
    local: pt.law.MeasuredRun,
    remote: pt.law.MeasuredRun,
    where: pt.law.Placement,
    base: pt.law.Placement | None = None,
) -> None:
    """UsageError where the runs have no time in common, are at one placement, or the one with more remote
    tables was not slower."""
    clocks = [c for c in ("seconds", "cycles") if getattr(local, c) and getattr(remote, c)]
    if not clocks:
        raise pt.UsageError("remote run: cycles of one run and seconds of the other: give the same of both")
    here, there = (0.0 if at is None else _far(at) for at in (base, where))
    if abs(here - there) < NEAR:
        also = "all tables are local" if not there else "its tables are as remote as the local run's"
        raise pt.UsageError(f"placement {where.name}: {also}; a second run needs other remote shares")
    if not any((getattr(remote, c) > getattr(local, c)) == (there > here) for c in clocks):
        clock, side = clocks[-1], "above" if there > here else "below"
        raise pt.UsageError(
            f"remote run: {clock} = {_shown(getattr(remote, clock))}: not {side} the local run's "
            f"{_shown(getattr(local, clock))}: is it {where.name}, or are the files swapped?"
        )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= WHOLE else f"{value:.4g}"


def _far(where: pt.law.Placement) -> float:
    """A number that grows with the remote share of either table and with load."""
    return sum(
        share * (0 if state == pt.law.LOCAL else 1 + (state != "remote")) for state, share in where.tables()
    )
