"""Import DynamoRIO's offline memory traces (drmemtrace): a file per thread or per core.

Source: clients/drcachesim/common/trace_entry.h of DynamoRIO, versions 2 to 7 of its records.
"""

import gzip
import heapq
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

import ptanalyze as pt

from . import Head
from .inputs import open_compressed
from .trace_writer import UNKNOWN_THREAD, TraceWriter, new_trace

RECORD = np.dtype([("type", "<u2"), ("size", "<u2"), ("value", "<u8")])
BLOCK = 1 << 20  # records
VERSIONS = range(2, 8)
NOBODY = -1  # thread
LONGEST = (1 << 63) // 1000  # microseconds
USER_HALF = 1 << 56  # below: user addresses, with five levels of tables too

READ, WRITE, THREAD, THREAD_EXIT, PID, HEADER, FOOTER, MARKER, LAST_TYPE = 0, 1, 22, 23, 24, 25, 26, 28, 50
INSTRUCTIONS = (10, 11, 12, 13, 14, 15, 16, 31, 48, 49)
TIMESTAMP, CPU_ID, FILE_TYPE, PAGE_SIZE = 2, 3, 9, 18  # markers
KERNEL_BEGINS, KERNEL_ENDS = (27, 34), (28, 35)  # markers: of a system call's trace, of a context switch's
CUTS = (TIMESTAMP, CPU_ID, FILE_TYPE, PAGE_SIZE, *KERNEL_BEGINS, *KERNEL_ENDS)
REFUSED = {  # bits of the file type
    0x01 | 0x80 | 0x100: "its addresses were filtered while it was recorded: record it without -L0_filter",
    0x04: "it has instructions only: record it without -instr_only_trace",
    0x08 | 0x10 | 0x20 | 0x20000: "not a trace of x86-64",
    0x40000: "it is a trace of a whole system, not of a process",
}
DAMAGED = (
    *(EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, gzip.BadGzipFile),
    *(NotImplementedError, RuntimeError, UnicodeDecodeError),  # zipfile: of a packing, a password, a name
)


class Segment(NamedTuple):
    """Accesses of a thread between two changes of its state; `ends`: it exits then.

    page int64[n], write bool[n]; instructions int64[n]: executed in the segment up to each
    """

    time: int  # microseconds
    tid: int
    cpu: int
    page: np.ndarray
    write: np.ndarray
    instructions: np.ndarray
    ends: bool = False


def is_trace(head: Head) -> bool:
    """Whether a directory has trace files, or a file is a zip or begins with a header record (of type 25)."""
    if head.path.is_dir():
        return bool(trace_files(head.path))
    begins = head.data.startswith(b"\x19\0") and len(head.data) >= RECORD.itemsize
    return begins or head.first.startswith(b"PK\3\4")


def trace_files(source: str | PathLike[str]) -> list[Path]:
    """The trace files of a .tracedir or of the folder `trace` in it, or a single file."""
    path = Path(source)
    if not path.is_dir():
        return [path]
    inside = path / "trace" if (path / "trace").is_dir() else path
    return sorted(file for file in inside.iterdir() if file.name.endswith((".trace.zip", ".trace.gz")))


def import_drmemtrace(source: str | PathLike[str], out: str | PathLike[str]) -> int:
    """Write the trace of `source` (a directory of traces, or one file) to `out`; returns the accesses.

    Loads and stores become touches, those across pages touches of each; prefetches and what the kernel did
    are left out. Threads follow each other by the trace's timestamps. CaptureError names the file and the
    record that cannot be read; `out` is not made then.
    """
    files = trace_files(source)
    if not files:
        raise pt.errors.CaptureError(source, "files", "none", "no *.trace.zip or *.trace.gz inside")
    threads: dict[int, int] = {}
    begun = None
    with new_trace(out, tracer="DynamoRIO drmemtrace", instructions=True) as writer:
        for segment in heapq.merge(*map(segments, files), key=lambda segment: segment.time):
            begun = segment.time if begun is None else begun
            if segment.time - begun >= LONGEST:
                raise pt.errors.CaptureError(
                    source, "timestamp", segment.time, f"over 292 years after the first, {begun}"
                )
            write_segment(writer, segment, threads, 1000 * (segment.time - begun))
        if not writer.accesses:
            raise pt.errors.CaptureError(source, "accesses", 0, "nothing to import: no loads or stores")
        return writer.accesses


def write_segment(writer: TraceWriter, segment: Segment, threads: dict[int, int], time: int) -> None:
    if segment.tid not in threads:
        new = threads[segment.tid] = len(threads)
        writer.event(pt.trace.Event.THREAD_START, a=segment.tid, b=UNKNOWN_THREAD, thread=new, time=time)
    thread = threads[segment.tid]
    cpu, when = np.full(len(segment.page), segment.cpu), np.full(len(segment.page), time)
    writer.accesses_of(
        segment.page, segment.write, thread=thread, time=when, cpu=cpu, instructions=segment.instructions
    )
    if segment.ends:
        writer.event(pt.trace.Event.THREAD_EXIT, thread=thread, time=time)


def segments(path: Path) -> Iterator[Segment]:
    """Iterate the Segments of a file, in its order; CaptureError for what is no drmemtrace trace."""
    reader = Reader(path)
    try:
        for stream in streams(path):
            with stream as file:
                while block := file.read(BLOCK * RECORD.itemsize):
                    yield from reader.read(block)
        if reader.last != FOOTER:
            raise reader.wrong("footer", "none", "the trace is cut off, or its thread never ended")
    except DAMAGED as error:
        raise pt.errors.CaptureError(
            path, "compressed data", "damaged", str(error) or "ends too early"
        ) from None


def streams(path: Path) -> Iterator[IO[bytes]]:
    """Iterate open streams of records: the members of a .zip, or one."""
    if path.suffix != ".zip":
        yield open_compressed(path)
    else:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield archive.open(member)


class Reader:
    """State of a file from block to block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self.time = 0
        self.executed = 0  # instructions that no segment has yet
        self.tid, self.cpu, self.kernel = NOBODY, -1, False
        self.last = HEADER  # kind of the last record

    def read(self, block: bytes) -> Iterator[Segment]:
        """Iterate Segments of a block of whole records."""
        left = len(block) % RECORD.itemsize
        records = np.frombuffer(block, RECORD, len(block) // RECORD.itemsize)
        if not self.records and len(records):
            self.check_header(records[0])
        bad = np.flatnonzero(records["type"] > LAST_TYPE)
        yield from self.read_sound(records[: bad[0]] if len(bad) else records)
        if len(bad):
            raise self.wrong("type", int(records["type"][bad[0]]), "unknown kind of record")
        if left:
            raise self.wrong("bytes", left, "left over: the file is cut off")

    def read_sound(self, records: np.ndarray) -> Iterator[Segment]:
        kind = records["type"]
        marker = (kind == MARKER) & np.isin(records["size"], CUTS)
        cuts = np.flatnonzero(marker | np.isin(kind, (THREAD, THREAD_EXIT)))
        begin = 0
        for end in [*cuts.tolist(), len(records)]:
            exits = end < len(records) and kind[end] == THREAD_EXIT
            segment = self.segment(records[begin:end], bool(exits))
            if exits or (len(segment.page) and not self.kernel):
                if self.tid == NOBODY:
                    raise self.wrong("thread", "none", "accesses before any thread began", end)
                yield segment
            if end < len(records):
                self.change(records[end], end)
            begin = end + 1
        self.records += len(records)
        self.last = int(kind[-1]) if len(kind) else self.last

    def check_header(self, record: np.void) -> None:
        if record["type"] != HEADER:
            raise self.wrong("type", int(record["type"]), "no drmemtrace trace: it begins with a header")
        if record["value"] not in VERSIONS:
            known = f"versions {VERSIONS[0]} to {VERSIONS[-1]} can be read"
            if record["value"] & 0xFFFFFFFF in VERSIONS:
                known = "its records seem to be of a 32-bit machine; only those of x86-64 can be read"
            raise self.wrong("version", int(record["value"]), known)

    def change(self, record: np.void, at: int) -> None:
        """Take a record that changes the state."""
        kind, what, value = (int(record[name]) for name in ("type", "size", "value"))
        if kind == THREAD:
            self.tid = value & 0xFFFFFFFF
        elif kind == MARKER and what == TIMESTAMP:
            if value >> 62:
                raise self.wrong("timestamp", value, "no time in microseconds", at)
            if not self.kernel:
                if value < self.time:
                    raise self.wrong("timestamp", value, f"before the last, {self.time}", at)
                self.time = value
        elif kind == MARKER and what == CPU_ID:
            self.cpu = value if value < 1 << 15 else -1
        elif kind == MARKER and what == FILE_TYPE:
            for bits, why in REFUSED.items():
                if value & bits:
                    raise self.wrong("file type", hex(value), why, at)
        elif kind == MARKER and what == PAGE_SIZE and value != 4096:
            why = "only pages of 4096 bytes can be read"
            raise self.wrong("page size", value, why, at)
        elif kind == MARKER and what in (*KERNEL_BEGINS, *KERNEL_ENDS):
            self.kernel = what in KERNEL_BEGINS

    def segment(self, records: np.ndarray, ends: bool) -> Segment:
        kind, address = records["type"], records["value"]
        at = np.flatnonzero((kind <= WRITE) & (address < USER_HALF))
        begin = address[at].astype(np.int64)
        last = (begin + np.maximum(records["size"][at].astype(np.int64), 1) - 1) >> 12
        begin >>= 12
        pages = last - begin + 1
        row = np.repeat(np.arange(len(at)), pages)
        further = np.arange(len(row)) - np.repeat(np.cumsum(pages) - pages, pages)
        page, write = begin[row] + further, (kind[at] == WRITE)[row]
        return Segment(self.time, self.tid, self.cpu, page, write, self.instructions(kind, at[row]), ends)

    def instructions(self, kind: np.ndarray, row: np.ndarray) -> np.ndarray:
        """int64[n] of a Segment: the first is 0, the last all that were executed, earlier ones included."""
        all_of = np.cumsum(np.isin(kind, INSTRUCTIONS) & (not self.kernel))
        executed: np.ndarray = self.executed + all_of[row]
        self.executed += int(all_of[-1]) if len(all_of) else 0
        if len(row) > 1 and not self.kernel:
            executed[0], executed[-1], self.executed = 0, self.executed, 0
        return executed

    def wrong(self, field: str, value: object, why: str, at: int = 0) -> pt.errors.CaptureError:
        return pt.errors.CaptureError(self.path, f"record {self.records + at}: {field}", value, why)
