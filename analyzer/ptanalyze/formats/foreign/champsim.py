"""Import ChampSim's traces: 64 bytes per instruction, one thread, no clock.

Source: inc/trace_instruction.h of ChampSim (struct input_instr).
"""

import gzip
import lzma
import zlib
from os import PathLike
from typing import IO

import numpy as np

from ...core.errors import CaptureError, Strip
from ...core.trace import Event
from ..trace_writer import UNKNOWN_THREAD, Damaged, damage, open_compressed, trace_writer
from . import Head

RECORD = np.dtype(
    [
        ("ip", "<u8"), ("is_branch", "u1"), ("taken", "u1"), ("to", "u1", 2), ("from", "u1", 4),
        ("store", "<u8", 2), ("load", "<u8", 4),
    ]
)  # fmt: skip
BLOCK = 1 << 18  # records
SMALL = 1 << 8  # to lose little before damage that is passed over
FEWEST = 4  # sound records: the first ones of another size may look like it
USER_HALF = 1 << 56
WHAT = "no ChampSim trace: 64 bytes per instruction, its address at byte 0, two flags of 0 or 1 at byte 8"


def is_trace(head: Head) -> bool:
    """Whether each instruction has an address and two flags of 0 or 1: text and most other files do not."""
    first = [head.data[at : at + 10] for at in range(0, len(head.data) - 63, RECORD.itemsize)]
    sound = len(first) > 3 and all(any(one[:8]) and max(one[8:]) <= 1 for one in first)
    return ".champsimtrace" in head.path.name or (b"\0" in head.data and sound)


def import_champsim(source: str | PathLike[str], out: str | PathLike[str], *, strip: Strip = Strip.ON) -> int:
    """Write the trace of `source` (.champsimtrace, also .xz or .gz) to `out`; returns the accesses.

    An instruction counts as a nanosecond. Its loads come before its stores; sizes are not recorded, so that
    none reaches into a second page. strip: what touches to leave out.
    CaptureError for what is no such trace; `out` is not made then.
    """
    done = 0
    facts = {"tracer": "ChampSim, 1 ns = 1 instruction", "instructions": True}
    with open_compressed(source) as file, trace_writer(out, strip=strip, **facts) as writer:
        writer.event(Event.THREAD_START, b=UNKNOWN_THREAD)
        while block := whole(file, source):
            records = np.frombuffer(block, RECORD, len(block) // RECORD.itemsize)
            flags = (records["is_branch"] <= 1) & (records["taken"] <= 1)
            bad = np.flatnonzero(~flags | (records["ip"] == 0))
            if len(bad) and done + bad[0] < FEWEST:
                raise CaptureError(source, "record", int(bad[0]), WHAT)
            page, write, instruction = touches(records[: bad[0]] if len(bad) else records)
            time = done + instruction
            writer.accesses_of(page, write, thread=0, time=time, instructions=time)
            if len(bad):
                raise Damaged(source, "record", done + int(bad[0]), WHAT)
            if left := len(block) % RECORD.itemsize:
                raise Damaged(source, "bytes", left, "left over: it is cut off")
            done += len(records)
        if not writer.accesses:
            raise CaptureError(source, "accesses", 0, "nothing to import: no loads or stores")
        return writer.accesses


def touches(records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(page int64[n], write bool[n], instruction int64[n]) in the order of the accesses."""
    address = np.concatenate((records["load"], records["store"]), axis=1)
    instruction, column = np.nonzero((address != 0) & (address < USER_HALF))
    page = (address[instruction, column] >> np.uint64(12)).astype(np.int64)
    return page, column >= records["load"].shape[1], instruction


def whole(file: IO[bytes], source: str | PathLike[str]) -> bytes:
    """The next block, b"" at the end; CaptureError for damaged compression."""
    try:
        return file.read((BLOCK if damage() is None else SMALL) * RECORD.itemsize)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(source, "compressed data", "damaged", str(error)) from None
