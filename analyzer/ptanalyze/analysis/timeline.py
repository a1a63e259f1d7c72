"""Locality over time: targets of walks in each window of the trace."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING, Unpack

from ..core.errors import UsageError
from ..core.machine import at_own_share
from ..formats.capture import CaptureLike, load
from ..world.phases import ALL, LAST
from .setup import Options, Policies, Setup, setup_of
from .whatif import replay

if TYPE_CHECKING:
    from pandas import DataFrame

    from .frames import Replayed

WINDOWS = 20


def timeline(
    capture: CaptureLike = None,
    policies: Policies = (),
    setup: Setup | None = None,
    **options: Unpack[Options],
) -> DataFrame:
    """Locality over time: one row per policy and window of equal time; the capture needs a trace.

    Columns: policy, params, time_ns (the window's end), walks, leaf_*_share of its walks, DRAM reads and the
    share of remote reads by dimension, share of walks whose data are on another socket, walks and data
    accesses per second (cost.throughput says how; accesses with their interval), tables and data pages moved
    so far, data also as a share of those mapped in the end. Arguments as in `replay`; 20 windows unless the
    setup has another number; of the run as traced (Setup.cold). vMitosis, Figure 6.
    """
    return replayed_over_time(capture, policies, setup_of(setup, options)).timeline


def replayed_over_time(capture: CaptureLike, policies: Policies, setup: Setup) -> Replayed:
    """The Replayed behind `timeline`; UsageError without a trace."""
    known = load(capture)
    known.trace  # noqa: B018 - UsageError without a trace
    if setup.phase not in (LAST, ALL):
        raise UsageError(f"phase {setup.phase}: a timeline shows all phases of the trace; leave --phase out")
    windows = setup.windows or WINDOWS
    cold = changed(setup, machine=at_own_share(setup.machine), windows=windows, cold=True)
    return replay(known, policies, cold)
