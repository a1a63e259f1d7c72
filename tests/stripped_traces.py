"""Traces written again without what can be left out, and their walks."""

import numpy as np

from ptanalyze.core.errors import Strip
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.formats.trace import read_trace
from ptanalyze.formats.trace_writer import trace_writer
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


def of_small_chunks(path, seed, chunks, strip, length=200):
    """A trace of chunks that dwell on a few pages and stray to others, more or less in phases."""
    rng = np.random.default_rng(seed)
    pages = 300 + 150 * (seed % 3)
    with trace_writer(path, strip=strip) as writer:
        for chunk in range(chunks):
            near = (chunk // 40 * 17 + rng.zipf(1.4, length)) % pages
            far = rng.integers(0, 8 * pages, length)
            page = np.where(rng.random(length) < 0.04 + 0.03 * (chunk // 500 % 2), far, near) * 3
            writer.accesses_of(page.astype(np.int64), page % 5 == 0, thread=0, time=np.full(length, chunk))
    return read_trace(path)


def walks_by_chunk(trace, snapshot, tlb):
    space = address_space(snapshot, trace.regions)
    return np.diff(TlbFilter(trace, space, place(trace, 2, 2), tlb).first().offset)
