"""The second filter (`record --strip l2`): what it leaves out, how wrong walks are, and what is said of it.

Traces that were filtered once are filtered again, as a recorder would. The error of their walks is known, as
the whole trace is there, and is held against the interval that the filtered trace alone gives: of random
accesses, in chunks of 256 that drift and come in phases, on every machine whose TLB the first strip serves.

CAPTURES="DIR ..." in the environment: captures of your own, made with --strip on, of 8,192 chunks or more.
"""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.core.second import ONE_IN, RUN, SETS, numbers, spared
from ptanalyze.core.strip import Strip
from ptanalyze.formats.capture import load
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.formats.trace_writer import trace_writer
from ptanalyze.kernels.second import keep_again
from ptanalyze.world.address_space import address_space
from ptanalyze.world.bare_trace import bare_snapshot
from ptanalyze.world.passed_regions import regions_with_passed
from ptanalyze.world.placement import place
from ptanalyze.world.second_filter import filtered, filtered_throughout, measured
from ptanalyze.world.tlb_filter import TlbFilter

CAPTURES = os.environ.get("CAPTURES", "").split()
CHUNKS, LENGTH = 12_000, 256
SMALLEST = {"CHUNKS": 8192, "LENGTH": 4}


def random_accesses():
    """Yield (name, page int64[CHUNKS, LENGTH])."""
    rng = np.random.default_rng(6)
    shape, chunk = (CHUNKS, LENGTH), np.arange(CHUNKS)[:, None]
    far = rng.integers(0, 1 << 14, shape)
    yield "uniform", far
    yield "Zipf 1.1", rng.zipf(1.1, shape) % (1 << 14)
    hot = rng.integers(0, 48, shape)
    yield "95 % within 48 pages", np.where(rng.random(shape) < 0.95, hot, far)
    yield "a drifting 400 pages", chunk // 30 * 11 + np.minimum(rng.zipf(1.3, shape), 400)
    phase = np.where(chunk // 700 % 3 == 0, 0.3, 0.02)
    yield "phases", np.where(rng.random(shape) < phase, far, chunk // 90 * 7 + hot * 3)


def traces(scratch):
    """Yield (name, Trace, Snapshot), filtered once."""
    for name in CAPTURES:
        capture = load(name)
        yield Path(name).name, capture.trace, bare_snapshot(capture.trace)
    for name, pages in random_accesses():
        with trace_writer(scratch / "t.ptt", strip=Strip.ON) as writer:
            for time, page in enumerate(pages):
                when = np.full(len(page), time)
                writer.accesses_of(page.astype(np.int64), page % 7 == 0, thread=0, time=when)
        trace = read_trace(scratch / "t.ptt")
        yield name, trace, bare_snapshot(trace)


def recorded_twice(trace):
    """The Trace as --strip l2 would have written it."""
    known = replace(trace, facts={**trace.facts, "second": (SETS, ONE_IN, RUN)})
    thread = trace.chunks["thread"]
    return filtered(known, ~spared(thread, numbers(thread), ONE_IN, RUN))


def share_left(trace):
    """Of the records, outside chunks that are spared."""
    left = 0
    for batch in trace.batches(1 << 20):
        ends = np.cumsum(trace.chunks["touches"][batch.chunks]).tolist()
        for begin, end in zip([0, *ends], ends, strict=False):
            page, count = (column[begin:end].astype(np.int64) for column in (batch.page, batch.count))
            left += int(keep_again(page, batch.write[begin:end], count, SETS).sum())
    return left / trace.touches


def walks(trace, snapshot, machine):
    """int64[chunks]"""
    space = address_space(snapshot, regions_with_passed(trace))
    where = place(trace, machine, topology=snapshot.topology)
    return np.diff(TlbFilter(trace, space, where, machine.tlb).first().offset)


def rows(name, trace, snapshot):
    twice = recorded_twice(trace)
    everywhere = filtered_throughout(twice)
    yield (
        name,
        100 * share_left(trace),
        "% of records left",
        f"of {trace.touches:,}; {len(trace.chunks):,} chunks",
    )
    held = []
    for model in machine_names():
        machine = load_machine(model).resized(len(snapshot.topology))
        try:
            exact, found, throughout = (walks(one, snapshot, machine) for one in (trace, twice, everywhere))
        except UsageError:
            continue  # not served by the first strip
        error = 100 * (found.sum() / exact.sum() - 1)
        said_of = measured(twice, found, throughout, 0, machine.tlb.l2.entries)
        known = said_of.percent
        if known is None:
            yield f"{name}, {model}", error, "% more walks", "too short to be measured"
            continue
        held.append(known.low <= error <= known.high)
        said = f"measured {known.middle:+.3f} ({known.low:+.3f} to {known.high:+.3f})"
        yield (
            f"{name}, {model}",
            error,
            "% more walks",
            said + ("" if said_of.settles else "?") + ("" if held[-1] else ": outside"),
        )
    if held:
        yield name, 100 * np.mean(held), "% of intervals hold", f"of {len(held)} machines"


def run():
    with tempfile.TemporaryDirectory() as scratch:
        every = [row for one in traces(Path(scratch)) for row in rows(*one)]
    shares = [share for _, share, unit, _ in every if unit == "% of intervals hold"]
    return [*every, ("all", float(np.mean(shares)), "% of intervals hold", f"mean of {len(shares)} traces")]
