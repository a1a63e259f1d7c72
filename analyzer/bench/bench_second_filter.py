"""A second filter behind the strip: what it would leave out of a trace, and how wrong walks would then be.

A touch whose page was the last one in its set of a direct-mapped array of 128 sets, per thread, mostly hits
in a second-level TLB. Left out, it no longer refreshes the first level, so that walks come out different: by
how much is measured here, on bundled captures and random accesses, and on every machine whose TLB their strip
serves. No recorder uses it.
"""

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
CAPTURES = ("lookup", "sysbench-memory")


def all_touches(trace):
    """(page, write, count, chunk) of all touches."""
    batches = list(trace.batches(1 << 20))
    chunk = np.repeat(np.arange(len(trace.chunks)), trace.chunks["touches"])
    columns = ("page", "write", "count")
    return (*(np.concatenate([getattr(batch, name) for batch in batches]) for name in columns), chunk)


def kept(trace, page, chunk, sets):
    """bool[n]: not the page that its thread touched last in its set."""
    number = (trace.regions[page >> 9].astype(np.int64) << 9) | (page & 511)
    place = trace.chunks["thread"][chunk].astype(np.int64) * sets + number % sets
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
    space = address_space(snapshot, regions_with_passed(trace))
    where = place(trace, machine, topology=snapshot.topology)
    return int(TlbFilter(trace, space, where, machine.tlb).first().hits[:, 2].sum())


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
        yield f"{name}: {sets} sets, {model}", 100 * (found / exact - 1), "% more walks", f"than {exact:,}"


def run():
    with tempfile.TemporaryDirectory() as scratch:
        return [
            row
            for name, trace, snapshot in traces(Path(scratch))
            for sets in SETS
            for row in errors(name, trace, snapshot, sets)
        ]
