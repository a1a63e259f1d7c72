"""Import `perf script` output with data addresses (from `perf record -d` or `perf mem record`)."""

from os import PathLike
from typing import IO

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import Event
from ..kernels.parse import parse_perf
from .text_blocks import bad_line, blocks, open_input
from .trace_writer import UNKNOWN_THREAD, TraceWriter, trace_writer

SHORTEST_LINE = 8
WHAT = "no sample with thread, time, data address; print them with `perf script -F tid,cpu,time,event,addr`"
MOST_CPU, MOST_THREADS = (1 << 15) - 1, 1 << 16  # that trace.ptt has room for


def import_perf_script(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> int:
    """Write the samples of `source` (path or binary stream) to the trace file `out`; returns their number.

    perf samples: the trace holds a fraction of all accesses, and facts["sampled"] says so. Samples are
    grouped by thread within a block of text; chunks keep the times of their first samples. Samples without
    an address (0) or with a kernel address are left out. CaptureError names the first line that lacks a
    field.
    """
    threads: dict[int, int] = {}
    start = None
    with open_input(source) as (file, name), trace_writer(out, tracer="perf script", sampled=True) as writer:
        for block, before in blocks(file, name):
            columns = parse_block(block, before, name)
            if not len(columns["time"]):
                continue
            if start is None:
                start = int(columns["time"].min())
            write_samples(writer, columns, start, threads, name)
        if not writer.accesses:
            raise CaptureError(name, "samples", 0, WHAT)
        return writer.accesses


def parse_block(block: np.ndarray, before: int, name: str | PathLike[str]) -> dict[str, np.ndarray]:
    room = len(block) // SHORTEST_LINE + 1
    columns: dict[str, np.ndarray] = {key: np.empty(room, np.int64) for key in ("tid", "cpu", "time", "page")}
    columns["write"] = np.empty(room, np.bool_)
    n, bad = parse_perf(block, *columns.values())
    if bad >= 0:
        raise bad_line(name, block, before, bad, WHAT)
    for at in np.flatnonzero(columns["cpu"][:n] > MOST_CPU)[:1]:
        raise CaptureError(name, f"CPU of sample {at + 1}", columns["cpu"][at], f"at most {MOST_CPU}")
    kept = columns["page"][:n] != 0
    return {key: column[:n][kept] for key, column in columns.items()}


def write_samples(
    writer: TraceWriter,
    columns: dict[str, np.ndarray],
    start: int,
    threads: dict[int, int],
    name: str | PathLike[str],
) -> None:
    order = np.argsort(columns["tid"], kind="stable")  # perf script prints in order of time
    columns = {key: column[order] for key, column in columns.items()}
    tids, first = np.unique(columns["tid"], return_index=True)
    ends = [*first[1:].tolist(), len(order)]
    for tid, begin, end in zip(tids.tolist(), first.tolist(), ends, strict=True):
        part = slice(begin, end)
        time = np.maximum(columns["time"][part] - start, 0)
        if tid not in threads:
            if len(threads) == MOST_THREADS:
                why = f"a trace has at most {MOST_THREADS} threads; take fewer: perf script --tid"
                raise CaptureError(name, "threads", f"over {MOST_THREADS}", why)
            threads[tid] = len(threads)
            writer.event(Event.THREAD_START, a=tid, b=UNKNOWN_THREAD, thread=threads[tid], time=time[0])
        writer.accesses_of(
            columns["page"][part],
            columns["write"][part],
            thread=threads[tid],
            time=time,
            cpu=columns["cpu"][part],
        )
