"""A second filter behind the strip: what it would leave out of a trace, and how wrong walks would then be.

A touch whose page was the last one in its set of a direct-mapped array of 128 sets, since its chunk began,
mostly hits in a second-level TLB. Left out, it no longer refreshes the first level, so that walks come out
different: by how much is measured here, on bundled captures and random accesses, and on every machine whose
TLB their strip serves. No recorder uses it (analyzer/docs/adr/0017-no-second-filter.md).

CAPTURES="DIR ..." in the environment: captures of your own, too.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.core.trace import Touches
from ptanalyze.formats.capture import load
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.formats.trace_writer import trace_writer
from ptanalyze.world.address_space import address_space
from ptanalyze.world.bare_trace import bare_snapshot
from ptanalyze.world.passed_regions import regions_with_passed
from ptanalyze.world.placement import place
from ptanalyze.world.tlb_filter import TlbFilter

from .bench_others import accesses

SETS = (128,)
CAPTURES = ("lookup", "sysbench-memory", *os.environ.get("CAPTURES", "").split())


def all_touches(trace):
    """(page, write, count, chunk) of all touches."""
    batches = list(trace.batches(1 << 20))
    chunk = np.repeat(np.arange(len(trace.chunks)), trace.chunks["touches"])
    columns = ("page", "write", "count")
    return (*(np.concatenate([getattr(batch, name) for batch in batches]) for name in columns), chunk)


def kept(trace, page, chunk, sets):
    """bool[n]: not the page that its chunk touched last in its set.

    A chunk ends at memory calls, and where another thread's may follow on its CPU. A filter that remembers
    more leaves out first touches of memory that was unmapped and mapped again.
    """
    number = (trace.regions[page >> 9].astype(np.int64) << 9) | (page & 511)
    place = chunk * sets + number % sets
    order = np.argsort(place, kind="stable")
    again = (np.diff(place[order]) == 0) & (np.diff(number[order]) == 0)
    keep = np.ones(len(page), bool)
    keep[order[1:]] = ~again
    return keep


def filtered(trace, sets):
    """The Trace without what the second filter leaves out."""
    page, write, count, chunk = all_touches(trace)
    keep = kept(trace, page, chunk, sets)
    chunks = trace.chunks.copy()
    chunks["touches"] = np.bincount(chunk[keep], minlength=len(chunks))
    touches = Touches(slice(0, len(chunks)), page[keep], write[keep], count[keep])
    return replace(trace, chunks=chunks, batches=lambda least: iter([touches]))


def walks(trace, snapshot, machine):
    """int64[R]: walks by region."""
    space = address_space(snapshot, regions_with_passed(trace))
    where = place(trace, machine, topology=snapshot.topology)
    page = TlbFilter(trace, space, where, machine.tlb).first().page
    return np.bincount(page >> np.uint32(9), minlength=len(space.regions.va))


def traces(place):
    """Yield (name, Trace, Snapshot)."""
    for name in CAPTURES:
        capture = load(name)
        yield name, capture.trace, capture.snapshot
    for name, page in accesses().items():
        with trace_writer(place / "t.ptt", strip=True) as writer:
            number, when = page.astype(np.int64), np.arange(len(page))
            writer.accesses_of(number, page % 7 == 0, thread=0, time=when)
        trace = read_trace(place / "t.ptt")
        yield name, trace, bare_snapshot(trace)


def errors(name, trace, snapshot, sets):
    less = filtered(trace, sets)
    part = less.chunks["touches"].sum() / trace.touches
    yield f"{name}: {sets} sets", 100 * part, "% of records", f"of {trace.touches:,}"
    for model in machine_names():
        machine = load_machine(model).resized(len(snapshot.topology))
        try:
            exact, found = walks(trace, snapshot, machine), walks(less, snapshot, machine)
        except UsageError:
            continue  # not served by the strip
        moved = np.abs(found / found.sum() - exact / exact.sum()).sum() / 2
        note = f"than {exact.sum():,}; {100 * moved:.3f} % of walks in other regions"
        yield f"{name}: {sets} sets, {model}", 100 * (found.sum() / exact.sum() - 1), "% more walks", note


def run():
    with tempfile.TemporaryDirectory() as scratch:
        return [
            row
            for name, trace, snapshot in traces(Path(scratch))
            for sets in SETS
            for row in errors(name, trace, snapshot, sets)
        ]
