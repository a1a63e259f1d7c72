"""Import ChampSim's traces: 64 bytes per instruction, one thread, no clock.

Source: inc/trace_instruction.h of ChampSim (struct input_instr).
"""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from os import PathLike
from typing import IO

import numpy as np

import ptanalyze as pt

from . import Head
from .inputs import open_compressed
from .trace_writer import UNKNOWN_THREAD, new_trace

RECORD = np.dtype(
    [
        ("ip", "<u8"), ("is_branch", "u1"), ("taken", "u1"), ("to", "u1", 2), ("from", "u1", 4),
        ("store", "<u8", 2), ("load", "<u8", 4),
    ]
)  # fmt: skip
BLOCK = RECORD.itemsize << 17  # bytes
FEWEST = 4  # sound records that begin a trace
CHECKED = 16  # records that a file is recognised by
USER_HALF = 1 << 56
WHAT = "no ChampSim trace: 64 bytes per instruction, address at byte 0, flags of 0 or 1 at 8"


def is_trace(head: Head) -> bool:
    """Whether each instruction has an address and two flags of 0 or 1: text and most other files do not."""
    if ".champsimtrace" in head.path.name:
        return True
    records = np.frombuffer(head.data, RECORD, min(len(head.data) // RECORD.itemsize, CHECKED))
    return b"\0" in head.data and len(records) >= FEWEST and bool(is_sound(records).all())


def is_sound(records: np.ndarray) -> np.ndarray:
    return np.asarray((records["is_branch"] <= 1) & (records["taken"] <= 1) & (records["ip"] != 0))


def import_champsim(source: str | PathLike[str], out: str | PathLike[str]) -> int:
    """Write the trace of `source` (.champsimtrace, also .xz or .gz) to `out`; returns the accesses.

    An instruction counts as a nanosecond. Its loads come before its stores; sizes are not recorded, so no
    access reaches into a second page. CaptureError for any other file; `out` is not made then.
    """
    done = 0
    facts = {"tracer": "ChampSim, 1 ns = 1 instruction", "instructions": True}
    with open_compressed(source) as file, new_trace(out, **facts) as writer:
        writer.event(pt.trace.Event.THREAD_START, b=UNKNOWN_THREAD)
        for block in blocks(file, source):
            records = np.frombuffer(block, RECORD, len(block) // RECORD.itemsize)
            if len(bad := np.flatnonzero(~is_sound(records))):
                raise pt.errors.CaptureError(source, "record", done + int(bad[0]), WHAT)
            if left := len(block) % RECORD.itemsize:
                raise pt.errors.CaptureError(source, "bytes", left, "left over: the file is cut off")
            page, write, instruction = touches(records)
            time = done + instruction
            writer.accesses_of(page, write, thread=0, time=time, instructions=time)
            done += len(records)
        if not writer.accesses:
            raise pt.errors.CaptureError(source, "accesses", 0, "nothing to import: no loads or stores")
        return writer.accesses


def touches(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(page int64[n], write bool[n], instruction int64[n]) in the order of the accesses."""
    address = np.concatenate((records["load"], records["store"]), axis=1)
    instruction, column = np.nonzero((address != 0) & (address < USER_HALF))
    page = (address[instruction, column] >> np.uint64(12)).astype(np.int64)
    return page, column >= records["load"].shape[1], instruction


def blocks(file: IO[bytes], source: str | PathLike[str]) -> Iterator[bytes]:
    """Blocks of a file; CaptureError for damaged compression."""
    try:
        while block := file.read(BLOCK):
            yield block
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise pt.errors.CaptureError(source, "compressed data", "damaged", str(error)) from None
