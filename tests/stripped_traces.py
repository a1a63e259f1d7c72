"""Traces written again without what can be left out, and their walks."""

import numpy as np

from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.core.strip import Strip
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import place
from trace_copy import write_trace


def stripped(trace, path):
    """The trace written again without what can be left out, chunk by chunk."""
    write_trace(path, trace, strip=Strip.ON)
    return read_trace(path)


def walks(trace, snapshot, machine):
    space, placement = address_space(snapshot, trace.regions), place(trace, 3, 2)
    return TlbFilter(trace, space, placement, machine.tlb).first()


def same_walks(trace, snapshot, path):
    """Fewer touches; under the TLB of every machine of the package, the same walks in the same chunks."""
    short = stripped(trace, path)
    assert short.touches < trace.touches and short.regions.tolist() == trace.regions.tolist()
    assert (short.chunks["accesses"] == trace.chunks["accesses"]).all()
    for machine in {machine.tlb: machine for machine in map(load_machine, machine_names())}.values():
        expected, found = (walks(t, snapshot, machine) for t in (trace, short))
        for column in ("page", "write", "offset", "hits"):
            assert np.array_equal(getattr(found, column), getattr(expected, column)), (machine.name, column)
    return short.touches / trace.touches
