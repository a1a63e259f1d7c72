"""A Trace written again as a trace.ptt, or without what its program called outside the region of interest."""

from dataclasses import replace

import numpy as np

from ptanalyze.core.errors import Strip
from ptanalyze.core.trace import SLOT_BITS, Event
from ptanalyze.formats.trace_writer import trace_writer

BATCH = 1 << 16
CALLS = (Event.MMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK)


def without_calls_outside(trace):
    """The Trace less the memory calls before its first ROI_START and after its last ROI_END."""
    kind, at = trace.events["kind"], np.arange(len(trace.events))
    starts, ends = np.flatnonzero(kind == Event.ROI_START), np.flatnonzero(kind == Event.ROI_END)
    outside = (at < min(starts, default=0)) | (at > max(ends, default=len(at)))
    return replace(trace, events=trace.events[~(outside & np.isin(kind, CALLS))])


def write_trace(path, trace, strip=Strip.OFF):
    """Write a Trace; reading it again gives the same chunks, events, touches and regions.

    strip  without the touches that it leaves out of each chunk
    """
    with trace_writer(path, strip=strip, **trace.facts) as writer:
        events = iter(trace.events)
        event = next(events, None)
        for batch in trace.batches(BATCH):
            page = (trace.regions[batch.page >> SLOT_BITS] << np.uint64(SLOT_BITS)).astype(np.int64)
            page |= batch.page & ((1 << SLOT_BITS) - 1)
            start = int(trace.chunks["first"][batch.chunks.start])
            for number in range(batch.chunks.start, batch.chunks.stop):
                while event is not None and event["chunk"] <= number:
                    write_event(writer, event)
                    event = next(events, None)
                write_chunk(writer, trace.chunks[number], page, batch, start)
        while event is not None:
            write_event(writer, event)
            event = next(events, None)


def write_chunk(writer, chunk, page, batch, start):
    part = slice(int(chunk["first"]) - start, int(chunk["first"] + chunk["touches"]) - start)
    page, write, count = page[part], batch.write[part], batch.count[part].astype(np.int64)
    writer.chunk(
        *writer.stripped(page, write, count),
        thread=chunk["thread"],
        cpu=chunk["cpu"],
        time=chunk["time"],
        instructions=chunk["instructions"],
    )


def write_event(writer, event):
    fields = (event[name] for name in ("kind", "a", "b", "c", "d", "result"))
    writer.event(*fields, thread=event["thread"], cpu=event["cpu"], time=event["time"])
