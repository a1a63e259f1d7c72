"""Header and frames of a trace.ptt; the dtypes mirror the structs of pintool/records.h."""

import mmap
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import CaptureError
from ..core.regular import open_inside
from ..kernels import decode

MAGIC = b"PTTRACE\n"
VERSION = 1
BYTE_ORDER = 0x01020304
HEADER_BYTES = 4096
CHUNK, EVENT = 1, 2
INSTRUCTIONS, SAMPLED = 1, 2
ENDED = ("unfinished", "exit", "signal", "size limit", "disk full", "exec", "file lost")
ENDED_IMPORTED = 7

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
        ("rules", "S2912"),
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
        if header[name] != value:
            raise CaptureError(
                path, name, header[name], f"expected {value}; not a trace that this release reads"
            )
    blank = data[:HEADER_BYTES].copy().view(HEADER_DTYPE)
    blank["crc"] = 0
    crc = zlib.crc32(blank.tobytes())
    if crc != header["crc"]:
        raise CaptureError(path, "header crc", f"{header['crc']:08x}", f"the header's bytes give {crc:08x}")
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
    none = np.empty((0, decode.FRAME_BYTES), np.uint8), np.empty(0, np.int64)
    n, _ = decode.scan_frames(data, HEADER_BYTES, end, *none)
    frames = np.empty((n, decode.FRAME_BYTES), np.uint8)
    offset = np.empty(n, np.int64)
    _, stop = decode.scan_frames(data, HEADER_BYTES, end, frames, offset)
    frames = frames.reshape(-1).view(FRAME_DTYPE)
    if stop < end and ended and end == promised:
        raise CaptureError(path, "frame", f"at byte {stop}", "no frame where one must begin: damaged")
    good = count_good(data, frames, offset)
    if good < n and (good < n - 1 or ended):
        raise CaptureError(path, "frame crc", f"{frames['crc'][good]:08x}", f"damaged at byte {offset[good]}")
    if good < n:
        stop = int(offset[good])
    facts = {
        "ended": "imported" if ended == ENDED_IMPORTED else ENDED[ended],
        "lost_bytes": max(promised, len(data)) - stop if promised > stop else 0,
        "dropped_touches": int(header["dropped"]),
        "arch": header["arch"].decode("ascii", "replace"),
        "tracer": header["tracer"].decode("utf-8", "replace"),
        "command": header["command"].decode("utf-8", "replace"),
        "pid": int(header["pid"]),
        "started": int(header["start"]),
        "guest_base": int(header["guest_base"]),
        "instructions": bool(header["flags"] & INSTRUCTIONS),
        "sampled": bool(header["flags"] & SAMPLED),
    }
    if facts["lost_bytes"]:
        facts["ended"] = f"{facts['ended']}, file cut short"
    return frames[:good], offset[:good], facts


def count_good(data: np.ndarray, frames: np.ndarray, offset: np.ndarray) -> int:
    """Number of leading frames whose CRC-32 holds."""
    view = data.data
    columns = zip(offset.tolist(), frames["bytes"].tolist(), frames["crc"].tolist(), strict=True)
    for i, (at, length, crc) in enumerate(columns):
        sum_ = zlib.crc32(b"\0\0\0\0", zlib.crc32(view[at : at + 4]))
        sum_ = zlib.crc32(view[at + 8 : at + decode.FRAME_BYTES + length], sum_)
        if sum_ != crc:
            return i
    return len(frames)
