"""How far a trace has come while its program runs: bytes and accesses, from the heads of its frames."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...formats.trace_file import FRAME_DTYPE, HEADER_BYTES
from ...kernels.decode import FRAME_MAGIC

MOST = 20_000  # frames looked at in one go: some milliseconds


@dataclass(frozen=True)
class Grown:
    """seconds since the start, bytes of all traces, accesses of the main one as far as it was read, and bytes
    that are free beside it."""

    seconds: float
    bytes: int
    accesses: int
    free: int


class Growth:
    """A trace file that is being written; `look` reads on from where it stopped."""

    def __init__(self, path: Path) -> None:
        self.path, self.at, self.accesses = path, HEADER_BYTES, 0

    def look(self, seconds: float) -> Grown:
        written = sum(path.stat().st_size for path in self.path.parent.glob("*.ptt"))
        if written > HEADER_BYTES and self.path.exists():
            self.read_on()
        place = os.statvfs(self.path.parent)
        return Grown(seconds, written, self.accesses, place.f_bavail * place.f_frsize)

    def read_on(self) -> None:
        with open(self.path, "rb", buffering=0) as file:
            for _ in range(MOST):
                head = os.pread(file.fileno(), FRAME_DTYPE.itemsize, self.at)
                if len(head) < FRAME_DTYPE.itemsize or field(head, "magic") != FRAME_MAGIC:
                    return
                self.accesses += field(head, "accesses")
                self.at += FRAME_DTYPE.itemsize + field(head, "bytes")


def field(head: bytes, name: str) -> int:
    """A number of a frame's head."""
    return int(np.frombuffer(head, FRAME_DTYPE)[name][0])
