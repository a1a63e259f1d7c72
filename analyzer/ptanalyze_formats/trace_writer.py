"""trace.ptt in the format of the native writer, for importers and made traces."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any

import numpy as np

import ptanalyze as pt

from .kernels import encode_chunk

RULES = "See the frame and touch encoding in pintool/records.h, format version 1."
CHUNK_TOUCHES = 4096
UNKNOWN_THREAD = (1 << 64) - 1
FRAME_MAGIC = 0x46545450
COUNT_MAX = (1 << 18) - 1  # accesses of a touch
RECORD_BYTES_MAX = 10


@contextmanager
def new_trace(path: str | PathLike[str], **facts: Any) -> Iterator["TraceWriter"]:
    """A TraceWriter whose file becomes `path` (0600) when the block ends; facts as in Trace.facts, and
    whatever the block puts into TraceWriter.facts.
    """
    with pt.formats.atomic_write(path) as file:
        writer = TraceWriter(file)
        yield writer
        writer.finish(facts | writer.facts)


class TraceWriter:
    """Writes trace.ptt, frame by frame; `new_trace` opens one."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.bytes = pt.formats.trace.HEADER_BYTES
        self.records = self.accesses = self.end = 0
        self.facts: dict[str, Any] = {}
        file.write(b"\0" * pt.formats.trace.HEADER_BYTES)

    def chunk(
        self,
        page: np.ndarray,
        write: np.ndarray,
        count: np.ndarray,
        *,
        thread: int = 0,
        cpu: int = -1,
        time: int = 0,
        instructions: int = 0,
    ) -> None:
        """Append a chunk: page int64[n] (page numbers), write bool[n], count int64[n] (1 to 2^18 - 1)."""
        out = np.empty(len(page) * RECORD_BYTES_MAX, np.uint8)
        count = np.ascontiguousarray(count, np.int64)
        page, write = np.ascontiguousarray(page, np.int64), np.ascontiguousarray(write, np.bool_)
        payload = out[: encode_chunk(page, write, count, out)].tobytes()
        accesses = int(count.sum())
        self.frame(payload, pt.formats.trace.CHUNK, thread, cpu, time, len(page), accesses, instructions)
        self.records += len(page)
        self.accesses += accesses

    def accesses_of(
        self,
        page: np.ndarray,
        write: np.ndarray,
        *,
        thread: int,
        time: np.ndarray,
        cpu: np.ndarray | None = None,
        instructions: np.ndarray | None = None,
        by_write: bool = False,
    ) -> None:
        """Append accesses of a thread, merged (by_write: loads and stores apart) and cut into chunks.

        page int64[n], write bool[n], time int64[n] (ns); cpu int[n]; instructions int64[n]: executed up to
        each access, from a start of the caller's choice.
        """
        if not len(page):
            return
        new = np.concatenate(([True], page[1:] != page[:-1]))
        if by_write:
            new[1:] |= write[1:] != write[:-1]
        new[::COUNT_MAX] = True  # so that no touch stands for more than that
        first = np.flatnonzero(new)
        count = np.diff(np.append(first, len(page)))
        write = np.logical_or.reduceat(write, first)
        for start in range(0, len(first), CHUNK_TOUCHES):
            part = slice(start, start + CHUNK_TOUCHES)
            at = first[start]
            after = first[part.stop] if part.stop < len(first) else len(page) - 1
            self.chunk(
                page[first[part]],
                write[part],
                count[part],
                thread=thread,
                cpu=-1 if cpu is None else cpu[at],
                time=time[at],
                instructions=0 if instructions is None else instructions[after] - instructions[at],
            )

    def event(
        self,
        kind: int,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        d: int = 0,
        *,
        result: int = 0,
        thread: int = 0,
        cpu: int = -1,
        time: int = 0,
    ) -> None:
        """Append an event (core.trace.Event)."""
        payload = np.array((kind, 0, a, b, c, d, result), pt.formats.trace.PAYLOAD_DTYPE)
        self.frame(payload.tobytes(), pt.formats.trace.EVENT, thread, cpu, time, 0, 0, 0)

    def frame(
        self,
        payload: bytes,
        kind: int,
        thread: int,
        cpu: int,
        time: int,
        records: int,
        accesses: int,
        instructions: int,
    ) -> None:
        head = np.zeros((), pt.formats.trace.FRAME_DTYPE)
        head["magic"], head["bytes"], head["kind"] = FRAME_MAGIC, len(payload), kind
        head["thread"], head["cpu"], head["time"] = thread, cpu, time
        head["records"], head["accesses"], head["instructions"] = records, accesses, instructions
        head["crc"] = zlib.crc32(payload, zlib.crc32(head.tobytes()))
        self.file.write(head.tobytes() + payload)
        self.bytes += pt.formats.trace.FRAME_DTYPE.itemsize + len(payload)
        self.end = max(self.end, int(time))

    def finish(self, facts: dict[str, Any]) -> None:
        """Write the header over its place."""
        form = pt.formats.trace
        header = np.zeros((), form.HEADER_DTYPE)
        header["magic"], header["version"], header["byte_order"] = form.MAGIC, form.VERSION, form.BYTE_ORDER
        header["header_bytes"], header["bytes"] = form.HEADER_BYTES, self.bytes
        header["records"], header["accesses"], header["end"] = self.records, self.accesses, self.end
        ended = facts.get("ended", "imported")
        header["ended"] = form.ENDED_IMPORTED if ended == "imported" else form.ENDED.index(ended)
        header["pid"], header["start"] = facts.get("pid", 0), facts.get("started", 0)
        header["dropped"] = facts.get("dropped_touches", 0)
        header["lost_threads"] = facts.get("lost_threads", 0)
        header["lines"] = facts.get("lines", 0)
        flags = {"instructions": form.INSTRUCTIONS, "sampled": form.SAMPLED, "walks": form.WALKS}
        header["flags"] = sum(flag for name, flag in flags.items() if facts.get(name))
        for row, served in zip(header["stripped"], facts.get("stripped", ()), strict=False):
            row["size"], row["sets"], row["ways"] = served
        header["arch"] = facts.get("arch", "x86_64").encode()
        header["tracer"] = facts.get("tracer", "").encode()[:47]
        header["command"] = facts.get("command", "").encode()[:1023]
        header["rules"] = RULES.encode()
        header["crc"] = zlib.crc32(header.tobytes())
        self.file.seek(0)
        self.file.write(header.tobytes())
