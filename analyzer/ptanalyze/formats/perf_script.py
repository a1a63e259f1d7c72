"""Import `perf script` output with data addresses (from `perf record -d` or `perf mem record`)."""

import re
from os import PathLike
from typing import IO

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import Event
from ..kernels.parse import parse_perf
from .text_blocks import bad_line, blocks, open_input
from .trace_writer import UNKNOWN_THREAD, TraceWriter, trace_writer

SHORTEST_LINE = 8
EVENT_NAME = re.compile(rb"^[^#\n]*?\d\.\d+:[ \t]+(?:\d+[ \t]+)?([^\s:]\S*):[ \t]", re.MULTILINE)
# Loads and stores that missed every TLB: Intel's PEBS (mem_inst_retired.stlb_miss_loads; before Skylake
# mem_uops_retired), and what perf makes of Arm's SPE records with a table walk (tlb-miss, perf-arm-spe(1)).
WALKS = re.compile(rb"stlb_miss_(loads|stores)|^tlb-miss")
WHAT = "no sample with thread, time, data address; print them with `perf script -F tid,cpu,time,event,addr`"
MOST_CPU, MOST_THREADS = (1 << 15) - 1, 1 << 16  # that trace.ptt has room for


def import_perf_script(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> int:
    """Write the samples of `source` (path or binary stream) to the trace file `out`; returns their number.

    perf samples: the trace holds a fraction of all accesses, and facts["sampled"] says so; facts["walks"] if
    all are of precise events that count TLB misses (WALKS): then each is a walk. Samples are grouped by
    thread within a block of text; chunks keep the times of their first samples. Samples without an address
    (0) or with a kernel address are left out. CaptureError names the first line that lacks a field, and
    refuses a mixture of TLB misses with other events.
    """
    threads: dict[int, int] = {}
    events: set[bytes] = set()
    start = None
    with open_input(source) as (file, name), trace_writer(out, tracer="perf script", sampled=True) as writer:
        for block, before in blocks(file, name):
            columns, bad = parse_block(block, name)
            events |= set(EVENT_NAME.findall(block[: None if bad < 0 else bad].tobytes()))
            writer.facts["walks"] = are_walks(name, events)
            if len(columns["time"]):
                start = int(columns["time"].min()) if start is None else start
                write_samples(writer, columns, start, threads, name)
            if bad >= 0:
                raise bad_line(name, block, before, bad, WHAT)
        if not writer.accesses:
            raise CaptureError(name, "samples", 0, WHAT)
        return writer.accesses


def are_walks(name: str | PathLike[str], events: set[bytes]) -> bool:
    """Whether the samples of these events are TLB misses; CaptureError if only some are."""
    walks = {event for event in events if WALKS.search(event)}
    if walks and walks != events:
        mixture = b", ".join(sorted(events)).decode("ascii", "replace")
        why = (
            "some count TLB misses, some do not; import each kind from a file of its own: "
            "grep -E 'stlb_miss|tlb-miss' has the misses"
        )
        raise CaptureError(name, "events", mixture, why)
    return bool(walks)


def parse_block(block: np.ndarray, name: str | PathLike[str]) -> tuple[dict[str, np.ndarray], int]:
    """(columns of the samples, position of the first line that is none or -1)"""
    room = len(block) // SHORTEST_LINE + 1
    columns: dict[str, np.ndarray] = {key: np.empty(room, np.int64) for key in ("tid", "cpu", "time", "page")}
    columns["write"] = np.empty(room, np.bool_)
    n, bad = parse_perf(block, *columns.values())
    for at in np.flatnonzero(columns["cpu"][:n] > MOST_CPU)[:1]:
        raise CaptureError(name, f"CPU of sample {at + 1}", columns["cpu"][at], f"at most {MOST_CPU}")
    kept = columns["page"][:n] != 0
    return {key: column[:n][kept] for key, column in columns.items()}, bad


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
            by_write=True,
        )
