"""Read trace.ptt: frames to chunks, events and threads in time order; touches are decoded in batches."""

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Event, Trace
from ..kernels import decode
from .trace_decoder import TraceDecoder
from .trace_frames import CHUNK, EVENT, HIGHEST, PAYLOAD_DTYPE, map_file, read_frames, read_header


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
    base_page = int(index.facts["guest_base"]) >> 12
    where = index.chunks, index.payload, index.length, base_page
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
    chunks = make_chunks(frames[is_chunk])
    if not chunks["touches"].any():
        why = f"no access was traced (ended by {facts['ended']}); was the region of interest ever entered?"
        raise CaptureError(path, "touches", 0, why)
    payload = offset[is_chunk] + decode.FRAME_BYTES
    length = frames["bytes"][is_chunk].astype(np.int64)
    base_page = int(header["guest_base"]) >> 12
    where = chunks, payload, length, base_page
    decoder = TraceDecoder(path, data, *where, checked=True)
    return Index(chunks, payload, length, events, threads, decoder.find_regions(), facts)


def make_chunks(frames: np.ndarray) -> np.ndarray:
    chunks = np.zeros(len(frames), CHUNK_DTYPE)
    chunks["touches"] = frames["records"]
    chunks["first"] = np.cumsum(chunks["touches"]) - chunks["touches"]
    for name in ("accesses", "instructions", "time", "thread", "cpu"):
        chunks[name] = frames[name]
    return chunks


def read_events(
    path: Path,
    data: np.ndarray,
    frames: np.ndarray,
    offset: np.ndarray,
    is_chunk: np.ndarray,
    guest_base: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(EVENT_DTYPE[n], THREAD_DTYPE[threads]); addresses have guest_base added."""
    at = np.flatnonzero(~is_chunk)
    kind = frames["kind"][at]
    if (kind != EVENT).any() or (frames["bytes"][at] != PAYLOAD_DTYPE.itemsize).any():
        raise CaptureError(
            path, "frame kind", kind[kind != EVENT].tolist()[:1], "neither a chunk nor an event"
        )
    payload = np.empty(len(at), PAYLOAD_DTYPE)
    raw = payload.view(np.uint8).reshape(len(at), PAYLOAD_DTYPE.itemsize)
    for i, start in enumerate(offset[at].tolist()):
        raw[i] = data[start + decode.FRAME_BYTES :][: raw.shape[1]]
    known = {event.value for event in Event}
    if strange := set(payload["kind"].tolist()) - known:
        raise CaptureError(path, "event kind", strange.pop(), "no such event")
    events = np.zeros(len(at), EVENT_DTYPE)
    events["chunk"] = np.cumsum(is_chunk)[at]
    for name in ("time", "thread", "cpu"):
        events[name] = frames[name][at]
    for name in ("a", "b", "c", "d", "result", "kind"):
        events[name] = payload[name]
    add_base(events, guest_base)
    refuse_impossible(path, events)
    return events, make_threads(frames, events)


def add_base(events: np.ndarray, guest_base: int) -> None:
    if guest_base:
        moved = (events["kind"] >= Event.MMAP) & (events["kind"] <= Event.BRK)
        moved |= events["kind"] == Event.FIRST_TOUCH
        events["a"][moved & (events["a"] != 0)] += np.uint64(guest_base)
        placed = np.isin(events["kind"], (Event.MMAP, Event.MREMAP, Event.BRK)) & (events["result"] > 0)
        events["result"][placed] += guest_base


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
