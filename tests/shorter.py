"""Copies of captures with the beginning of their trace, for tests of commands and not of numbers."""

import json
import shutil
from dataclasses import replace

from ptanalyze.core.errors import bundled
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import MANIFEST, seal
from trace_copy import write_trace

TOUCHES = {  # enough for tables to be read from DRAM when warm
    "lookup": 300_000,
    "sysbench-memory": 50_000,
    "vm-numa-visible": 50_000,
    "vm-numa-oblivious": 50_000,
}


def shorter_samples(place):
    """The bundled captures in `place`, of traces the whole chunks that hold the first TOUCHES."""
    for sample, touches in TOUCHES.items():
        shorter(bundled("samples") / sample, place / sample, touches)
    return place


def shorter(capture, copy, touches):
    shutil.copytree(capture, copy, ignore=shutil.ignore_patterns(".*", "trace.*", MANIFEST))
    known = open_capture(capture)
    if known.has_trace:
        write_trace(copy / "trace.ptt", beginning(known.trace, touches))
    manifest = json.loads((capture / MANIFEST).read_text())
    seal(copy, manifest["kind"], manifest["provenance"])
    return copy


def beginning(trace, touches):
    """Trace of the whole chunks that hold the first `touches`."""
    count = int(trace.chunks["first"].searchsorted(touches))
    chunks = trace.chunks[:count]

    def batches(least):
        for batch in trace.batches(least):
            if batch.chunks.start >= count:
                return
            stop = min(batch.chunks.stop, count)
            n = int(chunks["touches"][batch.chunks.start : stop].sum())
            yield replace(
                batch,
                chunks=slice(batch.chunks.start, stop),
                page=batch.page[:n],
                write=batch.write[:n],
                count=batch.count[:n],
            )

    events = trace.events[trace.events["chunk"] <= count]
    return replace(trace, chunks=chunks, events=events, batches=batches)
