"""Foreign files that may be packed; large texts as blocks of whole lines."""

import gzip
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, cast

import numpy as np

import ptanalyze as pt

BLOCK = 1 << 24
LONGEST_LINE = 1 << 16


def open_compressed(source: str | PathLike[str]) -> IO[bytes]:
    """A binary stream of a file, unpacked as the ending of its name says: .xz, .gz or neither."""
    ending = Path(source).suffix
    if ending == ".xz":
        return lzma.open(source)
    return cast("IO[bytes]", gzip.open(source) if ending == ".gz" else open(source, "rb"))


@contextmanager
def open_input(source: str | PathLike[str] | IO[bytes]) -> Iterator[tuple[IO[bytes], str | PathLike[str]]]:
    """(binary stream, name) of a path or of a stream that is open already."""
    if isinstance(source, str | PathLike):
        with open(source, "rb") as file:
            yield file, source
    else:
        yield source, getattr(source, "name", "standard input")


def blocks(file: IO[bytes], name: str | PathLike[str]) -> Iterator[tuple[np.ndarray, int]]:
    """Yield uint8[n] blocks that end at a line's end, with the number of bytes before each.

    CaptureError where the last line has no end: half an address would be another one.
    """
    rest = b""
    before = 0
    while chunk := file.read(BLOCK):
        chunk = rest + chunk
        cut = chunk.rfind(b"\n") + 1
        rest = chunk[cut:]
        if len(rest) > LONGEST_LINE:
            why = f"longer than {LONGEST_LINE} bytes: not text"
            raise pt.errors.CaptureError(name, "line", f"at byte {before + cut}", why)
        yield np.frombuffer(chunk, np.uint8, cut), before
        before += cut
    if rest:
        raise bad_line(name, np.frombuffer(rest, np.uint8), before, 0, "cut off: no newline at its end")


def bad_line(
    name: str | PathLike[str], block: np.ndarray, before: int, at: int, what: str
) -> pt.errors.CaptureError:
    """Error about the line at block[at], with `before` bytes of the text before the block."""
    line = bytes(block[at : at + 80]).split(b"\n")[0].decode("utf-8", "replace")
    return pt.errors.CaptureError(name, f"line at byte {before + at}", repr(line), what)
