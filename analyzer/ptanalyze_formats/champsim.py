"""Import ChampSim's traces: 64 bytes per instruction, or CloudSuite's 96; one thread, no clock.

Source: inc/trace_instruction.h of ChampSim (struct input_instr, cloudsuite_instr). A file may be in a tar.
"""

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from os import PathLike
from typing import IO

import numpy as np

from ptanalyze.core.errors import CaptureError, Strip
from ptanalyze.core.trace import Event
from ptanalyze.formats.trace_writer import UNKNOWN_THREAD, Damaged, damage, open_compressed, trace_writer

from . import Head

RECORD = np.dtype(
    [
        ("ip", "<u8"), ("is_branch", "u1"), ("taken", "u1"), ("to", "u1", 2), ("from", "u1", 4),
        ("store", "<u8", 2), ("load", "<u8", 4),
    ]
)  # fmt: skip
CLOUDSUITE = np.dtype(
    [
        ("ip", "<u8"), ("is_branch", "u1"), ("taken", "u1"), ("registers", "u1", 8), ("filling", "u1", 6),
        ("store", "<u8", 4), ("load", "<u8", 4), ("space", "<u2"), ("end", "u1", 6),
    ]
)  # fmt: skip
BLOCK = 192 << 16  # bytes: whole records of both
SMALL = 192 << 6  # to lose little before damage that is passed over
FEWEST = 4  # sound records: the first ones of another size may look like it
TOLD_BY = 16  # records
USER_HALF = 1 << 56
WHAT = "no ChampSim trace: 64 (CloudSuite: 96) bytes per instruction, address at byte 0, flags of 0 or 1 at 8"
TAR = 512  # bytes of a header; contents are filled up to as many


def is_trace(head: Head) -> bool:
    """Whether each instruction has an address and two flags of 0 or 1: text and most other files do not."""
    try:
        block = next(blocks(io.BytesIO(head.data), head.path), b"")
    except CaptureError:
        return False
    return ".champsimtrace" in head.path.name or (b"\0" in block and layout(block) is not None)


def layout(block: bytes) -> np.dtype | None:
    """RECORD or CLOUDSUITE, whichever the first records are in."""
    for form in (RECORD, CLOUDSUITE):
        records = np.frombuffer(block, form, min(len(block) // form.itemsize, TOLD_BY))
        if len(records) >= FEWEST and is_sound(records).all():
            return form
    return None


def is_sound(records: np.ndarray) -> np.ndarray:
    sound: np.ndarray = (records["is_branch"] <= 1) & (records["taken"] <= 1) & (records["ip"] != 0)
    return sound


def import_champsim(source: str | PathLike[str], out: str | PathLike[str], *, strip: Strip = Strip.ON) -> int:
    """Write the trace of `source` (.champsimtrace, also .xz or .gz) to `out`; returns the accesses.

    An instruction counts as a nanosecond. Its loads come before its stores; sizes are not recorded, so that
    none reaches into a second page. strip: what touches to leave out.
    CaptureError for what is no such trace, and for CloudSuite's of several address spaces; `out` is not made
    then.
    """
    done, form, spaces = 0, None, set[int]()
    facts = {"tracer": "ChampSim, 1 ns = 1 instruction", "instructions": True}
    with open_compressed(source) as file, trace_writer(out, strip=strip, **facts) as writer:
        writer.event(Event.THREAD_START, b=UNKNOWN_THREAD)
        for block in blocks(file, source):
            form = form or layout(block) or RECORD
            records = np.frombuffer(block, form, len(block) // form.itemsize)
            bad = np.flatnonzero(~is_sound(records))
            if len(bad) and done + bad[0] < FEWEST:
                raise CaptureError(source, "record", int(bad[0]), WHAT)
            if form is CLOUDSUITE and len(spaces := spaces | {*np.unique(records["space"]).tolist()}) > 1:
                raise CaptureError(source, "address spaces", len(spaces), "a capture has one")
            page, write, instruction = touches(records[: bad[0]] if len(bad) else records)
            time = done + instruction
            writer.accesses_of(page, write, thread=0, time=time, instructions=time)
            if len(bad):
                raise Damaged(source, "record", done + int(bad[0]), WHAT)
            if left := len(block) % form.itemsize:
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


def blocks(file: IO[bytes], source: str | PathLike[str]) -> Iterator[bytes]:
    """Blocks of a file, or of the only one in a tar; Damaged for damaged compression."""
    size = BLOCK if damage() is None else SMALL
    try:
        head = file.read(TAR)
        if is_header(head):
            yield from only_one(file, head, size, source)
        elif head:
            yield head + file.read(size - TAR)
            while block := file.read(size):
                yield block
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(source, "compressed data", "damaged", str(error)) from None


def is_header(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def only_one(file: IO[bytes], head: bytes, size: int, source: str | PathLike[str]) -> Iterator[bytes]:
    """Blocks of the file in a tar (POSIX ustar; GNU's sizes above 8 GiB) that begins with `head`."""
    known = ""
    while head.strip(b"\0"):
        number = head[124:136].strip(b"\0 ")
        if not is_header(head) or not (head[124] & 128 or re.fullmatch(b"[0-7]+", number)):
            raise Damaged(source, "tar", "damaged", "no header after a file")
        left = int.from_bytes(head[125:136], "big") if head[124] & 128 else int(number, 8)
        filling = -left % TAR
        is_file = head[156:157] in (b"0", b"\0")
        name = head[:100].rstrip(b"\0").decode("utf-8", "replace")
        if is_file and known:
            raise CaptureError(source, "files", f"{known}, {name}", "a tar of several: unpack and import one")
        known = name if is_file else known
        while left:
            block = file.read(min(size, left))
            if not block:
                raise Damaged(source, "tar", "cut off", f"{left} bytes are missing")
            if is_file:
                yield block
            left -= len(block)
        file.read(filling)
        head = file.read(TAR)
