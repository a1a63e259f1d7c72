"""Chunks of a trace.ptt to batches of touches, region ids instead of page numbers."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from ..core.errors import CaptureError
from ..core.trace import Batches, Piece, Scratch, Touches, give_back
from ..kernels import decode
from .trace_frames import holds

LEARN_TOUCHES = 1 << 16
ANY_NUMBER = 1 << 62
SALT = int.from_bytes(os.urandom(4), "big") >> 2  # another in each process: no writer of a trace knows it
DAMAGE = {
    decode.PAST_END: "the touches run past the chunk's end",
    decode.BAD_LENGTH: "bytes are left over after the last touch",
    decode.BAD_PAGE: "a page number beyond 57-bit addresses",
    decode.BAD_COUNT: "a touch of more than 2^18 - 1 accesses",
    decode.BAD_SUM: "the touches do not add up to the chunk's accesses",
    decode.UNKNOWN_REGION: "memory that the trace's index lacks: it is of another trace",
}


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
        self.known, self.most = 0, ANY_NUMBER  # regions that are numbered, that may be
        self.regions = np.empty(0, np.int64)
        self.grow(1 << 10)

    def damaged(self, chunk: int, why: str) -> CaptureError:
        return CaptureError(self.path, f"chunk {chunk}", f"at byte {self.payload[chunk]}", why)

    def grow(self, room: int) -> None:
        """Room for `room` regions (a power of two); ids stay."""
        if room > 1 << decode.ID_BITS:
            raise CaptureError(
                self.path, "regions", f"over {self.known}", "at most 2^23 regions (16 TiB) can be told apart"
            )
        regions, known = np.empty(room, np.int64), self.known
        table = np.full(2 * room + 1, decode.EMPTY, np.int64)
        table[-1] = SALT
        scratch = np.empty(known, np.uint32)
        decode.number_pages(self.regions[:known] << 9, known, table, regions, 0, known, scratch)
        self.table, self.regions = table, regions

    def know(self, regions: np.ndarray) -> None:
        """Number these regions (uint64[R], address >> 21) from 0 on, before the first pass: all there are."""
        self.regions, self.known = regions.astype(np.int64), len(regions)
        self.most = len(regions)
        self.grow(1 << max(2 * self.known, 1 << 10).bit_length())

    def check(self, first: int, last: int) -> None:
        """CaptureError unless the CRC-32 of these chunks' frames holds; each is compared once."""
        for chunk in (first + np.flatnonzero(~self.checked[first:last])).tolist():
            at = int(self.payload[chunk]) - decode.FRAME_BYTES
            if not holds(self.data.data, at, int(self.length[chunk])):
                raise self.damaged(chunk, "its CRC-32 is another")
        self.checked[first:last] = True

    def decode(self, first: int, last: int, page: np.ndarray, write: np.ndarray, count: np.ndarray) -> None:
        """Decode chunks first..last-1 into page, write, count (uint32, bool, uint32), from their start on."""
        number = np.empty(int(self.touches[first:last].max(initial=0)), np.int64)
        at = first
        while at < last:
            done = int(self.chunks["first"][at] - self.chunks["first"][first])
            at, self.known, error = decode.decode_chunks(
                self.data, self.payload, self.length, self.touches, self.accesses, at, last,
                self.base_page, self.table, self.regions, self.known, self.most, page[done:], write[done:],
                count[done:], number,
            )  # fmt: skip
            if error == decode.MANY_REGIONS:
                need = self.known + int(self.touches[at])
                self.grow(1 << need.bit_length())
            elif error:
                raise self.damaged(at, DAMAGE[error])

    def find_regions(self) -> np.ndarray:
        """uint64[R]: address >> 21 of each region by first touch; decodes and so checks the whole trace."""
        for _ in self.batches(LEARN_TOUCHES):
            pass
        return self.regions[: self.known].astype(np.uint64)

    def batches(self, least: int) -> Batches:
        """Touches of consecutive whole chunks, each of at least `least` touches but the last."""
        return Batches(Piece(run, partial(self._touches, run)) for run in self._runs(least))

    def _runs(self, least: int) -> Iterator[slice]:
        at = 0
        while at < len(self.chunks):
            start = int(self.chunks["first"][at])
            last = int(np.searchsorted(self.chunks["first"], start + max(least, 1), side="left"))
            yield slice(at, last)
            at = last

    def _touches(self, run: slice, scratch: Scratch) -> Touches:
        n, empty = int(self.touches[run].sum()), scratch.empty
        page, write, count = (
            empty("page", n, np.uint32),
            empty("write", n, np.bool_),
            empty("count", n, np.uint32),
        )
        self.check(run.start, run.stop)
        self.decode(run.start, run.stop, page, write, count)
        end = self.payload[run] + self.length[run]
        give_back(self.data[int(self.payload[run].min()) : int(end.max())])
        return Touches(run, page, write, count)
