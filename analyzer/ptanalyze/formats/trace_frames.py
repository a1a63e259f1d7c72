"""Header and frames of a trace.ptt; the dtypes mirror the structs of pintool/records.h."""

import mmap
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import CaptureError, printable
from ..core.regular import open_inside
from ..core.trace import give_back
from ..kernels import decode

MAGIC = b"PTTRACE\n"
VERSION = 2
OLD = (1,)  # never stripped, else the same
RETIRED = (3, 4)  # of a part of the accesses: see "sample" and "every" of the header; filtered twice
BYTE_ORDER = 0x01020304
HEADER_BYTES = 4096
CHUNK, EVENT = 1, 2
INSTRUCTIONS, SAMPLED, WALKS = 1, 2, 4
ENDED = ("unfinished", "exit", "signal", "size limit", "disk full", "exec", "file lost")
ENDED_IMPORTED = 7
PIECE = 1 << 24  # bytes of the file that are looked at before they are given back

HEADER_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("byte_order", "<u4"),
        ("header_bytes", "<u4"),
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
        ("sample", "S16"),
        ("every", "<u8"),
        ("window", "<u8"),
        ("stripped", [("size", "<u2"), ("sets", "<u2"), ("ways", "<u2"), ("zero", "<u2")], 7),
        ("second", [("sets", "<u2"), ("one_in", "<u2"), ("run", "<u2"), ("zero", "<u2")]),
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
HIGHEST = (1 << 57) - 1  # address with five levels of tables
PAYLOAD_DTYPE = np.dtype(
    [
        ("kind", "<u4"),
        ("zero", "<u4"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("c", "<u8"),
        ("d", "<u8"),
        ("result", "<i8"),
    ]
)


def map_file(path: Path) -> np.ndarray:
    """uint8[bytes] over the file, mapped read-only."""
    with open_inside(path) as file:
        if file.seek(0, 2) < HEADER_BYTES:
            raise CaptureError(path, "bytes", file.tell(), f"shorter than the {HEADER_BYTES}-byte header")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def read_header(path: Path, data: np.ndarray) -> np.void:
    header: np.void = data[:HEADER_BYTES].view(HEADER_DTYPE)[0]
    expect = {
        "magic": MAGIC,
        "byte_order": BYTE_ORDER,
        "version": VERSION,
        "header_bytes": HEADER_BYTES,
    }
    for name, value in expect.items():
        if header[name] != value and not (name == "version" and header[name] in (*OLD, *RETIRED)):
            raise CaptureError(
                path, name, header[name], f"expected {value}; not a trace that this release reads"
            )
    blank = data[:HEADER_BYTES].copy().view(HEADER_DTYPE)
    blank["crc"] = 0
    crc = zlib.crc32(blank.tobytes())
    if crc != header["crc"]:
        raise CaptureError(path, "header crc", f"{header['crc']:08x}", f"the header's bytes give {crc:08x}")
    if header["version"] in RETIRED:
        raise CaptureError(
            path, "version", header["version"],
            f"recorded {retired(header)}, which this version does not replay; record it whole",
        )  # fmt: skip
    if header["guest_base"] > HIGHEST:
        raise CaptureError(path, "guest_base", hex(header["guest_base"]), "beyond 57-bit addresses")
    if header["ended"] > ENDED_IMPORTED:
        raise CaptureError(path, "ended", header["ended"], "no such way for a trace to end")
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
    }
    if header["lost_threads"]:
        facts["lost_threads"] = int(header["lost_threads"])
    if facts["lost_bytes"]:
        facts["ended"] = f"{facts['ended']}, file cut short"
    return facts


def retired(header: np.void) -> str:
    """How a trace of a RETIRED version was recorded."""
    if header["every"]:
        return f"in windows ({header['window'] / 1e9:g}s of {header['every'] / 1e9:g}s)"
    if sample := header["sample"].decode("ascii", "replace"):
        return f"as a sample ({printable(sample)})"
    return "with touches left out that hit in the second-level TLB (--strip l2)"


def reach(header: np.void) -> tuple[tuple[int, int, int], ...]:
    """(page size, sets, ways) of the first-level arrays that a stripped trace is exact for; () whole."""
    rows = header["stripped"]
    return tuple((int(row["size"]), int(row["sets"]), int(row["ways"])) for row in rows if row["size"])


def find_frames(data: np.ndarray, end: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(frames, offsets, end of the last whole frame) before `end`, found piece by piece."""
    at, frames, offsets = HEADER_BYTES, [np.empty((0, decode.FRAME_BYTES), np.uint8)], [np.empty(0, np.int64)]
    while at < end:
        for stop in (min(at + PIECE, end), end):  # a frame may be longer than a piece, where it is damaged
            n, _ = decode.scan_frames(data, at, stop, frames[0], offsets[0])
            if n:
                break
        if not n:
            break
        frames.append(np.empty((n, decode.FRAME_BYTES), np.uint8))
        offsets.append(np.empty(n, np.int64))
        before = at
        _, at = decode.scan_frames(data, at, stop, frames[-1], offsets[-1])
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
    """Whether the CRC-32 of the frame at a place, with a payload of so many bytes, is what the frame says."""
    found = zlib.crc32(b"\0\0\0\0", zlib.crc32(view[at : at + 4]))
    found = zlib.crc32(view[at + 8 : at + decode.FRAME_BYTES + length], found)
    return found == int.from_bytes(view[at + 4 : at + 8], "little")
