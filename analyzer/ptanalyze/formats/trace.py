"""trace.ptt: frames to chunks, events and threads in time order, touches decoded in batches."""

import contextlib
import json
import mmap
import os
import shutil
import zlib
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import CaptureError
from ..core.safe_files import PACKED, open_inside
from ..core.trace import (
    CHUNK_DTYPE,
    EVENT_DTYPE,
    THREAD_DTYPE,
    Batches,
    Event,
    Piece,
    Scratch,
    Touches,
    Trace,
    chunk_runs,
    give_back,
)
from .atomic import atomic_write
from .record import BYTE_ORDER as BYTE_ORDER  # of trace_writer, too
from .record import HEAD, must_say

# Header and frames of a trace.ptt; the dtypes mirror the structs of pintool/records.h.

MAGIC = b"PTTRACE\n"
VERSION = 2
VERSIONS = (1, VERSION)  # 1: never stripped, else the same
HEADER_BYTES = 4096
CHUNK, EVENT = 1, 2
INSTRUCTIONS, SAMPLED, WALKS = 1, 2, 4
ENDED = ("unfinished", "exit", "signal", "size limit", "disk full", "exec", "file lost")
ENDED_IMPORTED = 7
PIECE = 1 << 24  # bytes of the file that are looked at before they are given back

HEADER_DTYPE = np.dtype(
    [
        *HEAD,
        ("crc", "<u4"),
        ("pid", "<u4"),
        ("ended", "<u4"),
        ("detail", "<i4"),
        ("flags", "<u4"),
        ("start", "<u8"),
        ("end", "<u8"),
        ("bytes", "<u8"),
        ("records", "<u8"),
        ("accesses", "<u8"),
        ("dropped", "<u8"),
        ("guest_base", "<u8"),
        ("arch", "S16"),
        ("tracer", "S48"),
        ("command", "S1024"),
        ("rules", "S2808"),
        ("lost_threads", "<u8"),
        ("lines", "<u4", 4),
        ("unused", "S16"),
        ("stripped", [("size", "<u2"), ("sets", "<u2"), ("ways", "<u2"), ("zero", "<u2")], 7),
        ("more", "S8"),
    ]
)
FRAME_DTYPE = np.dtype(
    [
        ("magic", "<u4"),
        ("crc", "<u4"),
        ("bytes", "<u4"),
        ("records", "<u4"),
        ("kind", "<u2"),
        ("thread", "<u2"),
        ("cpu", "<i2"),
        ("zero", "<u2"),
        ("time", "<u8"),
        ("accesses", "<u8"),
        ("instructions", "<u8"),
    ]
)
FRAME_BYTES = FRAME_DTYPE.itemsize
HIGHEST = (1 << 57) - 1  # address with five levels of tables
PAYLOAD_DTYPE = np.dtype(
    [("kind", "<u4"), ("zero", "<u4"), *((name, "<u8") for name in "abcd"), ("result", "<i8")]
)


def map_file(path: Path) -> np.ndarray:
    """uint8[bytes] over the file, mapped read-only."""
    with open_inside(path) as file:
        if file.seek(0, 2) < HEADER_BYTES:
            raise CaptureError(path, "bytes", file.tell(), f"shorter than the {HEADER_BYTES}-byte header")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def read_header(path: Path, data: np.ndarray) -> np.void:
    header: np.void = data[:HEADER_BYTES].view(HEADER_DTYPE)[0]
    foreign = "; not a trace that this release reads"
    must_say(path, header, foreign, magic=MAGIC, byte_order=BYTE_ORDER, header_bytes=HEADER_BYTES)
    if header["version"] not in VERSIONS:
        why = f"expected {' or '.join(map(str, VERSIONS))}; record it again, whole"
        raise CaptureError(path, "version", header["version"], why)
    blank = data[:HEADER_BYTES].copy().view(HEADER_DTYPE)
    blank["crc"] = 0
    crc = zlib.crc32(blank.tobytes())
    if crc != header["crc"]:
        raise CaptureError(path, "header crc", f"{header['crc']:08x}", f"the header's bytes give {crc:08x}")
    if header["guest_base"] > HIGHEST:
        raise CaptureError(path, "guest_base", hex(header["guest_base"]), "beyond 57-bit addresses")
    if header["ended"] > ENDED_IMPORTED:
        raise CaptureError(path, "ended", header["ended"], "no such way for a trace to end")
    pages, pages_again, lines, lines_again = header["lines"].tolist()
    if not (pages_again <= pages <= lines <= 64 * pages and lines_again <= min(lines, 64 * pages_again)):
        why = "not 1 to 64 lines of each sampled page; record the program again"
        raise CaptureError(path, "lines", header["lines"].tolist(), why)
    return header


def read_frames(
    path: Path, data: np.ndarray, header: np.void
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """(frames, offsets, facts): every frame checked against its CRC-32, in the order of the file."""
    ended = int(header["ended"])
    promised = int(header["bytes"]) if ended else len(data)
    end = min(promised, len(data))
    frames, offset, stop = find_frames(data, end)
    n = len(frames)
    if stop < end and ended and end == promised:
        raise CaptureError(path, "frame", f"at byte {stop}", "no frame where one must begin: damaged")
    good = count_good(data, frames, offset)
    if good < n and (good < n - 1 or ended):
        raise CaptureError(path, "frame crc", f"{frames['crc'][good]:08x}", f"damaged at byte {offset[good]}")
    if good < n:
        stop = int(offset[good])
    lost = max(promised, len(data)) - stop if promised > stop else 0
    return frames[:good], offset[:good], facts_of(header, lost)


def facts_of(header: np.void, lost: int) -> dict[str, Any]:
    """Trace.facts of a header and the number of bytes that the file lacks or that are damaged at its end."""
    ended = int(header["ended"])
    facts = {
        "ended": "imported" if ended == ENDED_IMPORTED else ENDED[ended],
        "lost_bytes": lost,
        "dropped_touches": int(header["dropped"]),
        "arch": header["arch"].decode("ascii", "replace"),
        "tracer": header["tracer"].decode("utf-8", "replace"),
        "command": header["command"].decode("utf-8", "replace"),
        "pid": int(header["pid"]),
        "started": int(header["start"]),
        "guest_base": int(header["guest_base"]),
        "instructions": bool(header["flags"] & INSTRUCTIONS),
        "sampled": bool(header["flags"] & SAMPLED),
        "walks": bool(header["flags"] & WALKS),
        "stripped": reach(header),
        "lines": header["lines"].tolist(),
    }
    if header["lost_threads"]:
        facts["lost_threads"] = int(header["lost_threads"])
    if facts["lost_bytes"]:
        facts["ended"] = f"{facts['ended']}, file cut short"
    return facts


def reach(header: np.void) -> tuple[tuple[int, int, int], ...]:
    """(page size, sets, ways) of the first-level arrays that a stripped trace is exact for; () whole."""
    rows = header["stripped"]
    return tuple((int(row["size"]), int(row["sets"]), int(row["ways"])) for row in rows if row["size"])


def find_frames(data: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(frames, offsets, end of the last whole frame) before `end`, found piece by piece."""
    from ..kernels import trace_codec

    at, frames = HEADER_BYTES, [np.empty((0, FRAME_BYTES), np.uint8)]
    offsets = [np.empty(0, np.int64)]
    while at < end:
        for stop in (min(at + PIECE, end), end):  # a frame may be longer than a piece, where it is damaged
            n, _ = trace_codec.scan_frames(data, at, stop, frames[0], offsets[0])
            if n:
                break
        if not n:
            break
        frames.append(np.empty((n, FRAME_BYTES), np.uint8))
        offsets.append(np.empty(n, np.int64))
        before = at
        _, at = trace_codec.scan_frames(data, at, stop, frames[-1], offsets[-1])
        give_back(data[before:at])
    return np.concatenate(frames).reshape(-1).view(FRAME_DTYPE), np.concatenate(offsets), at


def count_good(data: np.ndarray, frames: np.ndarray, offset: np.ndarray) -> int:
    """Number of leading frames whose CRC-32 holds."""
    given = HEADER_BYTES
    for i, (at, length) in enumerate(zip(offset.tolist(), frames["bytes"].tolist(), strict=True)):
        if not holds(data.data, at, length):
            return i
        if at - given > PIECE:
            give_back(data[given:at])
            given = at
    return len(frames)


def holds(view: memoryview, at: int, length: int) -> bool:
    """Whether the frame at `place`, with `size` bytes of payload, matches its CRC-32."""
    found = zlib.crc32(b"\0\0\0\0", zlib.crc32(view[at : at + 4]))
    found = zlib.crc32(view[at + 8 : at + FRAME_BYTES + length], found)
    return found == int.from_bytes(view[at + 4 : at + 8], "little")


# Chunks of a trace.ptt to batches of touches, region ids instead of page numbers.

LEARN_TOUCHES = 1 << 16
FEW = 1 << 22  # touches: 36 MiB
ANY_NUMBER = 1 << 62
SALT = int.from_bytes(os.urandom(4), "big") >> 2  # another in each process: no writer of a trace knows it


class TraceDecoder:
    """Decodes chunks, in order until all regions are known, then in any order and on several threads.

    data    uint8[bytes], the file
    chunks  CHUNK_DTYPE[n]; payload, length int64[n]: where each chunk's touches are in the file
    base_page  added to every page
    checked    the CRC-32 of every frame was compared; else the first pass does that
    """

    def __init__(
        self,
        path: Path,
        data: np.ndarray,
        chunks: np.ndarray,
        payload: np.ndarray,
        length: np.ndarray,
        base_page: int,
        *,
        checked: bool,
    ) -> None:
        self.path, self.data, self.chunks, self.base_page = path, data, chunks, base_page
        self.payload = np.ascontiguousarray(payload, np.int64)
        self.length = np.ascontiguousarray(length, np.int64)
        self.touches = np.ascontiguousarray(chunks["touches"])
        self.accesses = np.ascontiguousarray(chunks["accesses"])
        over = np.flatnonzero(self.touches > self.length)
        if len(over):
            raise self.damaged(int(over[0]), "more touches than bytes")
        self.checked = np.full(len(chunks), checked)
        self.kept: dict[tuple[int, int], Touches] = {}
        self.known, self.most = 0, ANY_NUMBER  # regions that are numbered, that may be
        self.regions = np.empty(0, np.int64)

    def damaged(self, chunk: int, why: str) -> CaptureError:
        return CaptureError(self.path, f"chunk {chunk}", f"at byte {self.payload[chunk]}", why)

    def grow(self, room: int) -> None:
        """Room for `room` regions (a power of two); ids stay."""
        from ..kernels import trace_codec

        if room > 1 << trace_codec.ID_BITS:
            why = "at most 2^23 regions (16 TiB) are possible"
            raise CaptureError(self.path, "regions", f"over {self.known}", why)
        regions, known = np.empty(room, np.int64), self.known
        table = np.full(2 * room + 1, trace_codec.EMPTY, np.int64)
        table[-1] = SALT
        scratch = np.empty(known, np.uint32)
        trace_codec.number_pages(self.regions[:known] << 9, known, table, regions, 0, known, scratch)
        self.regions, self.table = regions, table

    def know(self, regions: np.ndarray) -> None:
        """Number these regions (uint64[R], address >> 21) from 0 on, before the first pass: all there are."""
        self.regions, self.known = regions.astype(np.int64), len(regions)
        self.most = len(regions)

    def check(self, first: int, last: int) -> None:
        """CaptureError unless the CRC-32 of these chunks' frames holds; each is compared once."""
        for chunk in (first + np.flatnonzero(~self.checked[first:last])).tolist():
            if not holds(self.data.data, int(self.payload[chunk]) - FRAME_BYTES, int(self.length[chunk])):
                raise self.damaged(chunk, "its CRC-32 is another")
        self.checked[first:last] = True

    def decode(self, first: int, last: int, page: np.ndarray, write: np.ndarray, count: np.ndarray) -> None:
        """Decode chunks first..last-1 into page, write, count (uint32, bool, uint32), from their start on."""
        from ..kernels import trace_codec

        if not hasattr(self, "table"):
            self.grow(1 << max(2 * self.known, 1 << 10).bit_length())
        number = np.empty(int(self.touches[first:last].max(initial=0)), np.int64)
        at = first
        while at < last:
            done = int(self.chunks["first"][at] - self.chunks["first"][first])
            at, self.known, error = trace_codec.decode_chunks(
                self.data, self.payload, self.length, self.touches, self.accesses, at, last,
                self.base_page, self.table, self.regions, self.known, self.most, page[done:], write[done:],
                count[done:], number,
            )  # fmt: skip
            if error == trace_codec.MANY_REGIONS:
                self.grow(1 << (self.known + int(self.touches[at])).bit_length())
            elif error:
                raise self.damaged(at, trace_codec.DAMAGE[error])

    def find_regions(self) -> np.ndarray:
        """uint64[R]: address >> 21 of each region by first touch; decodes and so checks the whole trace."""
        for _ in self.batches(LEARN_TOUCHES):
            pass
        return self.regions[: self.known].astype(np.uint64)

    def batches(self, least: int) -> Batches:
        """Touches of consecutive whole chunks, each of at least `least` touches but the last."""
        ends = np.append(self.chunks["first"], self.chunks["touches"].sum())
        runs = [slice(*run) for run in chunk_runs(ends, max(least, 1))]
        return Batches(iter([Piece(run, partial(self._touches, run)) for run in runs]))

    def _touches(self, run: slice, scratch: Scratch) -> Touches:
        """Touches of chunks; of a small trace they are kept, as every TLB filter asks for them."""
        if kept := self.kept.get((run.start, run.stop)):
            return kept
        few = self.touches.sum() <= FEW and not scratch.once
        touches, scratch = int(self.touches[run].sum()), Scratch() if few else scratch
        page, write, count = scratch.empty(touches, page=np.uint32, write=np.bool_, count=np.uint32)
        self.check(run.start, run.stop)
        self.decode(run.start, run.stop, page, write, count)
        give_back(self.data[int(self.payload[run].min()) : int((self.payload[run] + self.length[run]).max())])
        page.flags.writeable = write.flags.writeable = False
        decoded = Touches(run, page, write, count)
        return self.kept.setdefault((run.start, run.stop), decoded) if few else decoded


class Index(NamedTuple):
    """All of a trace but its touches.

    chunks, events, threads, regions, facts  as in core.trace.Trace
    payload, length  int64[chunks]: where each chunk's touches are in the file, bytes
    """

    chunks: np.ndarray
    payload: np.ndarray
    length: np.ndarray
    events: np.ndarray
    threads: np.ndarray
    regions: np.ndarray
    facts: dict[str, Any]


def read_trace(path: str | PathLike[str]) -> Trace:
    """Trace of a trace.ptt; CaptureError when damaged, foreign, of an unknown version or without touches.

    A file cut short (a crash, a copy that stopped) is a shorter trace: facts["lost_bytes"] says by how much.
    One pass decodes everything to check it and to number the regions; batches() decodes again, in batches.
    Memory: 68 bytes per chunk, 100 per event, 32-64 per region, and a batch.
    """
    return trace_of(path, read_index(path), checked=True)


def trace_of(path: str | PathLike[str], index: Index, *, checked: bool = False) -> Trace:
    """Trace of a trace.ptt whose Index is known. Unless `checked`, the first pass compares every CRC-32."""
    path = Path(path)
    where = index.chunks, index.payload, index.length, int(index.facts["guest_base"]) >> 12
    decoder = TraceDecoder(path, map_file(path), *where, checked=checked)
    decoder.know(index.regions)
    return Trace(index.chunks, index.events, index.threads, index.regions, decoder.batches, index.facts)


def read_index(path: str | PathLike[str]) -> Index:
    """Index of a trace.ptt, from its frames and by decoding all touches once; errors as of read_trace."""
    path = Path(path)
    data = map_file(path)
    header = read_header(path, data)
    frames, offset, facts = read_frames(path, data, header)
    order = np.lexsort((np.arange(len(frames)), frames["time"]))
    frames, offset = frames[order], offset[order]
    is_chunk = frames["kind"] == CHUNK
    events, threads = read_events(path, data, frames, offset, is_chunk, int(header["guest_base"]))
    rows = frames[is_chunk]
    chunks = np.zeros(len(rows), CHUNK_DTYPE)
    chunks["touches"] = rows["records"]
    chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
    for name in ("accesses", "instructions", "time", "thread", "cpu"):
        chunks[name] = rows[name]
    if not chunks["touches"].any():
        why = f"no access was traced (ended by {facts['ended']}); was the region of interest ever entered?"
        raise CaptureError(path, "touches", 0, why)
    payload = offset[is_chunk] + FRAME_BYTES
    length = frames["bytes"][is_chunk].astype(np.int64)
    base_page = int(header["guest_base"]) >> 12
    decoder = TraceDecoder(path, data, chunks, payload, length, base_page, checked=True)
    return Index(chunks, payload, length, events, threads, decoder.find_regions(), facts)


def read_events(
    path: Path, data: np.ndarray, frames: np.ndarray, offset: np.ndarray, chunk: np.ndarray, guest_base: int
) -> tuple[np.ndarray, np.ndarray]:
    """(EVENT_DTYPE[n], THREAD_DTYPE[threads]); addresses have guest_base added."""
    at = np.flatnonzero(~chunk)
    kind = frames["kind"][at]
    if (kind != EVENT).any() or (frames["bytes"][at] != PAYLOAD_DTYPE.itemsize).any():
        wrong = kind[kind != EVENT].tolist()[:1]
        raise CaptureError(path, "frame kind", wrong, "neither a chunk nor an event")
    payload = np.empty(len(at), PAYLOAD_DTYPE)
    raw = payload.view(np.uint8).reshape(len(at), PAYLOAD_DTYPE.itemsize)
    for i, start in enumerate(offset[at].tolist()):
        raw[i] = data[start + FRAME_BYTES :][: raw.shape[1]]
    if strange := set(payload["kind"].tolist()) - {event.value for event in Event}:
        raise CaptureError(path, "event kind", strange.pop(), "no such event")
    events = np.zeros(len(at), EVENT_DTYPE)
    events["chunk"] = np.cumsum(chunk)[at]
    for name in ("time", "thread", "cpu"):
        events[name] = frames[name][at]
    for name in ("a", "b", "c", "d", "result", "kind"):
        events[name] = payload[name]
    if guest_base:
        moved = (events["kind"] >= Event.MMAP) & (events["kind"] <= Event.BRK)
        moved |= events["kind"] == Event.FIRST_TOUCH
        events["a"][moved & (events["a"] != 0)] += np.uint64(guest_base)
        placed = np.isin(events["kind"], (Event.MMAP, Event.MREMAP, Event.BRK)) & (events["result"] > 0)
        events["result"][placed] += guest_base
    refuse_impossible(path, events)
    return events, make_threads(frames, events)


def refuse_impossible(path: Path, events: np.ndarray) -> None:
    """CaptureError for memory that a call gave beyond what has addresses."""
    for kind, length in ((Event.MMAP, "b"), (Event.MREMAP, "c"), (Event.BRK, None)):
        given = events[(events["kind"] == kind) & (events["result"] > 0)]
        start = given["result"].astype(np.uint64)
        long = given[length] if length else np.zeros(len(given), np.uint64)
        for event in given[(start > HIGHEST) | (long > HIGHEST)][:1]:
            got = f"{int(event[length]):,} bytes at " if length else ""
            why = "beyond 57-bit addresses"
            raise CaptureError(path, kind.name.lower(), f"{got}{int(event['result']):#x}", why)


def make_threads(frames: np.ndarray, events: np.ndarray) -> np.ndarray:
    """A row per thread index in the trace; fields that no event sets stay unknown (-1)."""
    threads = np.zeros(int(frames["thread"].max(initial=0)) + 1, THREAD_DTYPE)
    threads["tid"] = threads["parent"] = threads["end"] = -1
    for event in events[events["kind"] == Event.THREAD_START]:
        row = threads[event["thread"]]
        row["tid"], row["start"] = event["a"].astype(np.int32), event["time"]
        row["parent"] = -1 if event["b"] >= len(threads) else event["b"]
    for event in events[events["kind"] == Event.THREAD_EXIT]:
        threads[event["thread"]]["end"] = event["time"]
    return threads


# A trace's Index in the user's cache, so that opening the trace again reads none of its touches.

INDEX = "trace.index"
INDEX_VERSION = 4
KEPT = 256  # captures whose indexes are


def open_trace(path: str | PathLike[str], cache: Path | None) -> Trace:
    """Trace of a capture's trace.ptt, by the Index in `cache`, where one is made otherwise, and old ones go.

    cache  directory for data derived from this capture, None: there is none

    Errors as read_trace; damaged touches are found when they are decoded.
    """
    path = Path(path)
    index = stored_index(cache / INDEX, path) if cache else None
    if index is not None:
        return trace_of(path, index)
    index = read_index(path)
    if cache:
        with contextlib.suppress(OSError):  # made again next time
            arrays = {name: getattr(index, name) for name in Index._fields if name != "facts"}
            with atomic_write(cache / INDEX) as file:
                np.savez(file, identity=identity(path), facts=np.array(json.dumps(index.facts)), **arrays)
            indexes = sorted(cache.parent.glob("[0-9a-f]" * 32), key=lambda place: place.stat().st_mtime)
            for old in indexes[:-KEPT]:
                shutil.rmtree(old, ignore_errors=True)
    return trace_of(path, index, checked=True)


def identity(path: Path) -> np.ndarray:
    """int64[3]: version of an Index, length of its trace, CRC-32 of its header, inode and mtime."""
    with open_inside(path) as file:
        about = os.stat(path if path.exists() else f"{path}{PACKED}")
        header = file.read(HEADER_BYTES) + b"%d %d" % (about.st_ino, about.st_mtime_ns)
        return np.array([INDEX_VERSION, file.seek(0, 2), zlib.crc32(header)])


def stored_index(place: Path, path: Path) -> Index | None:
    """The Index in a file of the user's cache; None where there is none, or none of the trace at `path`."""
    try:
        with open_inside(place) as file, np.load(file) as stored:  # a ZIP file, which has checksums
            if (stored["identity"] == identity(path)).all():
                facts = json.loads(str(stored["facts"]))
                facts["stripped"] = tuple(map(tuple, facts["stripped"]))
                return Index(**{name: stored[name] for name in Index._fields if name != "facts"}, facts=facts)
    except Exception:  # the kinds of NumPy and zipfile for what is no array or no archive are many
        pass
    return None
