"""Import `perf script` output with data addresses (from `perf record -d` or `perf mem record`)."""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

import ptanalyze as pt

from .inputs import bad_line, blocks, open_input
from .kernels import BY_NAME, GONE, TLB_MISSED, parse_perf
from .trace_writer import UNKNOWN_THREAD, TraceWriter, new_trace

# Which of perf's samples are TLB misses, and which accesses.

EVENT_NAME = re.compile(rb"^[^#\n]*?\d\.\d+:[ \t]+(?:\d+[ \t]+)?([^\s:]\S*):[ \t]", re.MULTILINE)


class Kinds:
    """Whether the samples of a text are TLB misses, over its blocks.

    missed  samples so far that missed by their data source
    """

    def __init__(self, name: str | PathLike[str]) -> None:
        self.name = name
        self.events: set[bytes] = set()
        self.seen: set[int] = set()
        self.missed = 0

    def are_walks(self, walk: np.ndarray, text: bytes) -> bool:
        """Whether all samples so far are: by their data sources, else by their events.

        walk  int8[n] of parse_perf
        Samples of accesses of which some missed are accesses. CaptureError for events that count TLB misses
        among others: what both count would be there twice.
        """
        self.events |= set(EVENT_NAME.findall(text))
        self.seen |= set(np.unique(walk).tolist())
        self.missed += int(np.count_nonzero(walk & TLB_MISSED))
        walks = {kind for kind in self.seen if kind & TLB_MISSED or kind == BY_NAME}
        if walks != self.seen and any(kind & BY_NAME for kind in walks):
            mixture = b", ".join(sorted(self.events)).decode("ascii", "replace")
            why = (
                "some count TLB misses, some do not; import each kind from a file of its own: "
                "grep -E 'stlb_miss|tlb-miss' has the misses"
            )
            raise pt.errors.CaptureError(self.name, "events", mixture, why)
        return bool(walks) and walks == self.seen


# Samples that count different numbers of events, written so that each stands for as many.

NOT_PRINTED = -1
MOST_PERIOD = 1 << 40  # 2**21 samples of a block add up to less than 2**63
MOST_COPIES = 1 << 10  # of one sample


class Periods:
    """How often each sample is written, over the blocks of one text.

    unit  events that a written sample stands for: 99 in 100 of the first samples have at most this period, so
          that few are written twice, and one that is out of proportion costs no others; 0 before them, and
          where no period is printed: each sample is written once then
    Systematic resampling: every sample adds period / unit to a credit that begins at one half, and takes
    what is whole of it. A period of 0 is 1.
    """

    def __init__(self, name: str | PathLike[str]) -> None:
        self.name = name
        self.unit = 0
        self.credit = 0  # in events, below unit
        self.printed: bool | None = None

    def copies(self, period: np.ndarray, thread: np.ndarray, page: np.ndarray) -> np.ndarray:
        """int64[n]: how often each sample is written.

        period  int64[n], NOT_PRINTED without one; thread, page  int64[n]
        The credit goes through each thread's pages, and through a page's samples in the order of the text: in
        that of the text alone, two pages that take turns at half of a unit would be one.
        CaptureError for periods that only some samples have, and for those out of proportion.
        """
        if not len(period):
            return np.zeros(0, np.int64)
        printed = period != NOT_PRINTED
        if self.printed is None:
            self.printed = bool(printed[0])
        if (printed != self.printed).any():
            raise self.bad("only some samples have one", "print all with the same fields")
        if not self.printed:
            return np.ones(len(period), np.int64)
        most = int(period.max())
        if most > MOST_PERIOD:
            raise self.bad(
                most, f"at most 2**{MOST_PERIOD.bit_length() - 1}; print the samples without periods"
            )
        if not self.unit:
            usual = len(period) - 1 - (len(period) - 1) // 100
            self.unit = max(int(np.partition(period, usual)[usual]), most // MOST_COPIES + 1)
            self.credit = self.unit // 2
        if most >= self.unit * MOST_COPIES:
            why = f"{MOST_COPIES} times those before it ({self.unit}); print the samples without periods"
            raise self.bad(most, why)
        order = np.lexsort((page, thread))
        reached = np.cumsum(np.maximum(period, 1)[order]) + self.credit
        copies = np.empty(len(period), np.int64)
        copies[order] = np.diff(reached // self.unit, prepend=0)
        self.credit = int(reached[-1]) % self.unit
        return copies

    def bad(self, value: object, why: str) -> pt.errors.CaptureError:
        return pt.errors.CaptureError(self.name, "period", value, why)


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
    gone      samples of tasks that had exited (PID -1): left out
    levels    {where the data came from: samples}, of those whose data source says so
    """

    accesses: int = 0
    unit: int = 0
    missed: int = 0
    gone: int = 0
    levels: Counter[str] = field(default_factory=Counter)

    def provenance(self) -> dict[str, Any]:
        """Facts for a manifest that the trace itself has no room for."""
        what: dict[str, Any] = {"period_unit": self.unit} if self.unit else {"periods": "not printed"}
        if self.missed:
            what["missed_tlb"] = self.missed
        if self.gone:
            what["gone"] = self.gone
        total = sum(self.levels.values())
        shares = [
            f"{name} {100 * count / total:.0f} %" for name, count in self.levels.most_common(SAID_LEVELS)
        ]
        return what | ({"data_from": ", ".join(shares)} if shares else {})


def import_samples(source: str | PathLike[str] | IO[bytes], out: str | PathLike[str]) -> Samples:
    """Write the samples of `source` (path or binary stream) to the trace file `out`.

    perf samples: the trace holds a fraction of all accesses, and facts["sampled"] says so; facts["walks"] if
    all are TLB misses (Kinds): then each is a walk. Each that is written stands for as many events (Periods).
    Samples are grouped by thread within a block of text; chunks keep the times of their first samples.
    Samples without an address (0) or with a kernel address are left out. CaptureError names the first line
    that lacks a field, and refuses a mixture of events that count TLB misses with others.
    """
    threads: dict[int, int] = {}
    start = -1
    samples = Samples()
    with open_input(source) as (file, name), new_trace(out, tracer="perf script", sampled=True) as writer:
        kinds, periods = Kinds(name), Periods(name)
        for block, before in blocks(file, name):
            columns, gone, bad = parse_block(block, name)
            samples.gone += gone
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
            why = f"{samples.gone:,} left out, of threads that were gone (PID -1)" if samples.gone else WHAT
            raise pt.errors.CaptureError(name, "samples", 0, why)
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


def parse_block(block: np.ndarray, name: str | PathLike[str]) -> tuple[dict[str, np.ndarray], int, int]:
    """(columns of the samples, how many of gone tasks are not among them, position of the first bad line)"""
    room = len(block) // SHORTEST_LINE + 1
    columns: dict[str, np.ndarray] = {
        key: np.empty(room, np.int64) for key in ("tid", "cpu", "time", "page", "period")
    }
    columns |= {"write": np.empty(room, np.bool_), "walk": np.empty(room, np.int8)}
    n, bad = parse_perf(block, *columns.values())
    for at in np.flatnonzero(columns["cpu"][:n] > MOST_CPU)[:1]:
        raise pt.errors.CaptureError(
            name, f"CPU of sample {at + 1}", columns["cpu"][at], f"at most {MOST_CPU}"
        )
    gone = columns["tid"][:n] == GONE
    kept = (columns["page"][:n] != 0) & ~gone
    return {key: column[:n][kept] for key, column in columns.items()}, int(gone.sum()), bad


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
    for tid, begin, end in zip(tids.tolist(), first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        part = slice(begin, end)
        time = np.maximum(columns["time"][part] - start, 0)
        if tid not in threads:
            if len(threads) == MOST_THREADS:
                why = f"a trace has at most {MOST_THREADS} threads; take fewer: perf script --tid"
                raise pt.errors.CaptureError(name, "threads", f"over {MOST_THREADS}", why)
            threads[tid] = len(threads)
            writer.event(
                pt.trace.Event.THREAD_START, a=tid, b=UNKNOWN_THREAD, thread=threads[tid], time=time[0]
            )
        writer.accesses_of(
            columns["page"][part],
            columns["write"][part],
            thread=threads[tid],
            time=time,
            cpu=columns["cpu"][part],
            by_write=True,
        )


# Import perf.data through perf itself, whose `perf script` prints the fields that its samples have.

HEADER = struct.Struct("<8s6Q")  # magic, size, attr_size, attrs and data as (offset, size)
PIPED = 16
SAMPLE_TYPE = re.compile(r"\bsample_type: ([A-Z0-9_|]+)")
NEEDED = {"TID": "tid", "TIME": "time", "ADDR": "addr"}  # of perf_event_attr.sample_type -> of perf script -F
LOST = re.compile(rb"(?i)truncated|incompatible|corrupt|failed|invalid|error|properly terminated|unexpected")


def import_perf_data(source: str | PathLike[str], out: str | PathLike[str]) -> Samples:
    """Write the samples of a perf.data file to the trace file `out`, as import_samples.

    Errors as print_samples and import_samples.
    """
    with tempfile.TemporaryFile() as text:
        print_samples(source, text)
        return import_samples(text, out)


def print_samples(source: str | PathLike[str], text: IO[bytes], pid: int | None = None) -> None:
    """Let perf print the samples of a perf.data file into an empty file, which is at its start then.

    UsageError where perf is not installed; CaptureError for what perf cannot read in full, and for samples
    without thread, time or data address. The CPU and the data source are taken where all events have them;
    the period always: perf knows it where all samples of an event have the same.
    """
    perf = shutil.which("perf")
    if perf is None:
        raise pt.UsageError(
            f"{source}: perf.data is read by perf, which is not installed; print it where it is, and import "
            f"that: perf script -F {FIELDS} > samples.txt"
        )
    path = Path(source).absolute()
    must_be_whole(path)
    fields = fields_of(perf, path)
    with tempfile.TemporaryFile() as said:
        command = [perf, "--no-pager", "script", "-i", str(path), "-F", fields]
        command += [] if pid is None else ["--pid", str(pid)]  # not of what it forks meanwhile
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=text, stderr=said).returncode
        said.seek(0)
        complaint = next((line for line in said.read().splitlines() if LOST.search(line)), b"")
        if code or complaint:
            why = complaint.decode("utf-8", "replace").strip() or f"perf script ended with {code}"
            raise unreadable(source, why)
    text.seek(0)


def must_be_whole(path: Path) -> None:
    """CaptureError where the samples are cut off, which perf reads in silence.

    perf_file_header of tools/perf/util/header.h; what comes through a pipe has no sizes.
    """
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < PIPED:
        raise pt.errors.CaptureError(path, "size", len(head), f"a perf.data has at least {PIPED} bytes")
    if int.from_bytes(head[8:16], "little") == PIPED:
        return
    *_, begin, length = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
    size = os.path.getsize(path)
    if not length or begin + length > size:
        why = f"its samples end at byte {begin + length}" if length else "perf record was killed as it wrote"
        raise pt.errors.CaptureError(path, "size", size, why)


def fields_of(perf: str, path: Path) -> str:
    """What perf script is asked to print, by the events' sample types."""
    done = subprocess.run(
        [perf, "--no-pager", "evlist", "-v", "-i", str(path)], capture_output=True, text=True
    )
    types = [set(found.split("|")) for found in SAMPLE_TYPE.findall(done.stdout)]
    if done.returncode or not types:
        lines = done.stderr.strip().splitlines()
        raise unreadable(path, lines[0] if lines else "no event in it")
    for kind, needed in NEEDED.items():
        if not all(kind in one for one in types):
            how = (
                "record them with `perf record -d`" if kind == "ADDR" else "record them with `perf record -T`"
            )
            raise pt.errors.CaptureError(path, "samples", f"without {needed}", how)
    cpu, source = (
        [field] if all(kind in one for one in types) else []
        for kind, field in (("CPU", "cpu"), ("DATA_SRC", "data_src"))
    )
    return ",".join(["tid", *cpu, "time", "period", "event", "addr", *source])


def unreadable(path: str | PathLike[str], why: str) -> pt.errors.CaptureError:
    return pt.errors.CaptureError(path, "perf.data", "cannot be read in full", why)
