"""Import `perf script` output with data addresses (from `perf record -d` or `perf mem record`)."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import IO, Any

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import Event
from ..kernels.parse import parse_perf
from .sample_kinds import Kinds
from .sample_periods import Periods
from .text_blocks import bad_line, blocks, open_input
from .trace_writer import UNKNOWN_THREAD, TraceWriter, trace_writer

SHORTEST_LINE = 8
LEVEL = re.compile(rb"\|LVL ([\w/() -]+)\|")  # where the data came from, in the text of a data source
FIELDS = "tid,cpu,time,period,event,addr"
WHAT = f"no sample with thread, time, data address; print them with `perf script -F {FIELDS}`"
MOST_CPU, MOST_THREADS = (1 << 15) - 1, 1 << 16  # that trace.ptt has room for
PIECE = 1 << 20  # samples that are written at a time
MOST_LEVELS, SAID_LEVELS = 100, 4


@dataclass
class Samples:
    """What a text of samples was.

    accesses  samples written; unit  events that each stands for, 0 where periods were not printed
    missed    samples of accesses that missed the TLB by their data sources; 0 where all samples did
    levels    {where the data came from: samples}, of those whose data source says so
    """

    accesses: int = 0
    unit: int = 0
    missed: int = 0
    levels: Counter[str] = field(default_factory=Counter)

    def said(self) -> dict[str, Any]:
        """For a manifest: what the trace itself has no room for."""
        what: dict[str, Any] = {"period_unit": self.unit} if self.unit else {"periods": "not printed"}
        if self.missed:
            what["missed_tlb"] = self.missed
        total = sum(self.levels.values())
        shares = [f"{name} {count / total:.0%}" for name, count in self.levels.most_common(SAID_LEVELS)]
        return what | ({"data_from": ", ".join(shares)} if shares else {})


def import_perf_script(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> int:
    """Write the samples of `source` to the trace file `out` as import_samples; returns their number."""
    return import_samples(source, out).accesses


def import_samples(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> Samples:
    """Write the samples of `source` (path or binary stream) to the trace file `out`.

    perf samples: the trace holds a fraction of all accesses, and facts["sampled"] says so; facts["walks"] if
    all are TLB misses (sample_kinds.Kinds): then each is a walk. Each that is written stands for as many
    events (sample_periods.Periods). Samples are grouped by thread within a block of text; chunks keep the
    times of their first samples. Samples without an address (0) or with a kernel address are left out.
    CaptureError names the first line that lacks a field, and refuses a mixture of events that count TLB
    misses with others.
    """
    threads: dict[int, int] = {}
    start = -1
    samples = Samples()
    with open_input(source) as (file, name), trace_writer(out, tracer="perf script", sampled=True) as writer:
        kinds, periods = Kinds(name), Periods(name)
        for block, before in blocks(file, name):
            columns, bad = parse_block(block, name)
            text = block[: None if bad < 0 else bad].tobytes()
            count_levels(samples.levels, text)
            writer.facts["walks"] = kinds.are_walks(columns.pop("walk"), text)
            copies = periods.copies(columns.pop("period"), columns["tid"], columns["page"])
            if start < 0 and len(columns["time"]):
                start = int(columns["time"].min())
            for piece in pieces(copies):
                write_samples(
                    writer, {k: column[piece] for k, column in columns.items()}, start, threads, name
                )
            samples.accesses, samples.unit = writer.accesses, periods.unit
            samples.missed = 0 if writer.facts["walks"] else kinds.missed
            if bad >= 0:
                raise bad_line(name, block, before, bad, WHAT)
        if not writer.accesses:
            raise CaptureError(name, "samples", 0, WHAT)
    return samples


def pieces(copies: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of the samples, each as often as `copies` has it, about PIECE at a time."""
    reached = np.cumsum(copies)
    begin = 0
    while begin < len(copies):
        done = int(reached[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(reached, done + PIECE, "right")), begin + 1)
        if int(reached[end - 1]) > done:
            yield np.repeat(np.arange(begin, end), copies[begin:end])
        begin = end


def count_levels(levels: Counter[str], text: bytes) -> None:
    """Add where the data of samples came from: "L3 or L3 hit" is L3, and a miss is a level of its own."""
    for said, count in Counter(LEVEL.findall(text)).items():
        words = said.decode("ascii", "replace").strip().removesuffix(" hit")
        name = " or ".join(dict.fromkeys(words.split(" or ")))
        if name != "N/A" and (name in levels or len(levels) < MOST_LEVELS):
            levels[name] += count


def parse_block(block: np.ndarray, name: str | PathLike[str]) -> tuple[dict[str, np.ndarray], int]:
    """(columns of the samples, position of the first line that is none or -1)"""
    room = len(block) // SHORTEST_LINE + 1
    columns: dict[str, np.ndarray] = {
        key: np.empty(room, np.int64) for key in ("tid", "cpu", "time", "page", "period")
    }
    columns |= {"write": np.empty(room, np.bool_), "walk": np.empty(room, np.int8)}
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
