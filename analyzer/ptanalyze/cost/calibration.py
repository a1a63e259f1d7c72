"""Coefficients of the run-time law for a program on a machine, to predict any placement."""

import msgspec

from ..core.interval import Interval
from .closed_forms import Run


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Made by calibrate.calibrate_runs, kept by formats/calibration_file.py, used by predict.py.

    local            the all-local run
    remote           a run with tables at `placement`, or None
    walkers          page walkers per hardware thread: bounds the walk cycles
    exposed          e: share of the walk cycles that adds to run time; None where walks were not counted
    dram_share       f: share of the walk cycles that waits for DRAM, over both tables; None as above
    gpt_part         the gPT's share of that waiting: 1 for a native run
    remote_stretch   k of an idle remote node
    contended_stretch  k of a remote node under load
    identified, assumed, flags   measured by the runs, assumed, and suspicious
    sources          files of the runs and latencies
    """

    name: str
    machine: str
    native: bool
    local: Run
    remote: Run | None = None
    placement: str | None = None
    walkers: float
    exposed: Interval | None
    dram_share: Interval | None
    gpt_part: Interval
    remote_stretch: Interval
    contended_stretch: Interval
    identified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    sources: dict[str, str] = {}
