"""Coefficients of the run-time law for a program on a machine, to predict any placement."""

import msgspec

from ..core.interval import Interval
from .closed_forms import Run


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Made by calibrate.calibrate_runs, kept by formats/calibration_file.py, used by predict.py.

    local            the run that predictions are relative to: all local, or at the placement `at`
    remote           a run with tables at `placement`, or None
    walkers          page walkers per busy hardware thread, by the middle of what is known of its threads
    busy             CPUs that were busy with the program in the local run, None where not known
    exposed          e: share of the walk cycles that the program waits for; None where walks were not counted
    shared           s: part of the time that another thread competes for the page walker
    dram_share       f: share of the walk cycles that waits for DRAM, over both tables; None as above
    gpt_part         the gPT's share of that waiting: 1 for a native run
    remote_stretch   k of an idle remote node
    contended_stretch  k of a remote node under load
    data_share, data_loaded  growth of the cycles outside walks with data on an idle, on a contended remote
                     node, over (k - 1) of an idle one
    noise            the ratio of two runs of one placement is in 1 - noise .. 1 + noise
    counted_noise    the same where the walk cycles of the run to predict are known
    repair           the same with tables that were repaired
    identified, assumed, flags   measured by the runs, assumed, and warned of
    sources          files of the runs and latencies
    """

    name: str
    machine: str
    native: bool
    local: Run
    at: str | None = None
    remote: Run | None = None
    placement: str | None = None
    walkers: float
    busy: float | None = None
    exposed: Interval | None
    shared: Interval
    dram_share: Interval | None
    gpt_part: Interval
    remote_stretch: Interval
    contended_stretch: Interval
    data_share: Interval
    data_loaded: Interval
    noise: float
    counted_noise: float
    repair: float
    identified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    sources: dict[str, str] = {}
