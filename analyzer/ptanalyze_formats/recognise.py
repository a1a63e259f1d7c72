"""Which foreign format a file or directory is in, from its first bytes."""

import lzma
import os
import re
import zlib
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.snapshot import FRAME
from ptanalyze.core.snapshot import PAGEMAP_PRESENT as PRESENT

from . import FORMATS, Head

HEAD = 1 << 16
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\0"
COMMENT = re.compile(rb"==|--|#")


def recognise(source: str | PathLike[str]) -> str:
    """Name of the format (FORMATS) of `source`; UsageError where none fits."""
    head = head_of(Path(source))
    found = next((row.name for row in FORMATS.values() if head and row.knows(head)), None)
    if found is None:
        raise UsageError(
            f"{source}: in none of the formats that are recognised; name one: import FORMAT {source}"
        )
    return found


def head_of(path: Path) -> Head | None:
    """None where the file is packed and cannot be unpacked."""
    if path.is_dir():
        return Head(path, b"", b"", b"")
    with path.open("rb") as file:
        first = data = file.read(HEAD)
    try:
        if first.startswith(GZIP):
            data = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(first, HEAD)
        elif first.startswith(XZ):
            data = lzma.LZMADecompressor().decompress(first, HEAD)
    except (zlib.error, lzma.LZMAError):
        return None
    lines = [line.rstrip() for line in data.split(b"\n")[:-1] or [data]]
    return Head(path, first, data, next((line for line in lines if line and not COMMENT.match(line)), b""))


# Which pages of a process are mapped where, as other tools note it beside a trace; no table pages.
#
# `v2p.textproto` of DynamoRIO (clients/drcachesim/reader/v2p_reader.cpp): a page size, and pairs of lines
# "virtual_address: N", "physical_address: N", where a missing first line means address 0. `pagemap_*.bin` of
# DCPerf (pull request 585): pairs of u64, little endian: address, word of /proc/PID/pagemap.

PAGE, REGION = 1 << 12, 1 << 21
USER_HALF = 1 << 56
MOST_FRAME = 1 << 40
LONGEST_LINE = 1 << 12
PAIR = np.dtype([("address", "<u8"), ("word", "<u8")])
FIELD = re.compile(r"\s*(page_size|virtual_address|physical_address)\s*:\s*(\S+)\s*")
GROUP = re.compile(r"\s*(?:address_mapping_group|address_mapping|information)\s*\{\s*")
OTHER = re.compile(r"\s*(?:\}|(?:page_count|bytes_mapped)\s*:\s*\S+)?\s*")


class MappedPages(NamedTuple):
    """Sorted by address, each once.

    address  int64[n]; frame int64[n]: first page frame, 0 where it was hidden; size: bytes of every page, 4
    KiB or 2 MiB; absent: addresses listed that were not mapped
    """

    address: np.ndarray
    frame: np.ndarray
    size: int
    absent: int
    source: str


def read_mapped_pages(path: str | PathLike[str]) -> MappedPages:
    """MappedPages of a file of either kind; CaptureError names what is wrong where."""
    path = Path(path)
    if is_text(path):
        return read_v2p(path)
    return read_pagemap(path)


def is_text(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return (b"\0" not in head and b"address_mapping" in head) or path.name.endswith(".textproto")


def read_v2p(path: Path) -> MappedPages:
    address: list[int] = []
    physical: list[int] = []
    size = 0
    here, at = 0, 0
    for number, name, value in fields(path):
        if name == "page_size":
            if size not in (0, value) or value not in (PAGE, REGION):
                raise wrong(path, number, name, value, "4096 or 2 MiB, the same everywhere")
            size = value
        elif name == "virtual_address":
            here, at = value, number
        else:
            address.append(must_be_page(path, at or number, "virtual_address", here, size, USER_HALF))
            physical.append(must_be_page(path, number, name, value, size, MOST_FRAME << 12))
            here, at = 0, 0
    if at:
        raise wrong(path, at, "virtual_address", hex(here), "no physical_address follows: it is cut off")
    return sorted_pages(path, np.array(address, np.int64), np.array(physical, np.int64) >> 12, size, 0)


def fields(path: Path) -> Iterator[tuple[int, str, int]]:
    """(line, name, value) of the fields that matter."""
    depth = 0
    with path.open(encoding="ascii", errors="replace") as file:
        for number, whole in enumerate(iter(partial(file.readline, LONGEST_LINE), ""), 1):
            line = whole.partition("#")[0].rstrip("\n")
            depth += line.count("{") - line.count("}")
            if match := FIELD.fullmatch(line):
                try:
                    yield number, match[1], int(match[2], 0)
                except ValueError:
                    raise wrong(path, number, match[1], match[2], "no number") from None
            elif not GROUP.fullmatch(line) and not OTHER.fullmatch(line):
                raise wrong(path, number, "text", repr(line[:40]), "not a line of a v2p.textproto")
    if depth:
        raise CaptureError(path, "brackets", depth, "left open or closed too often: it is cut off")


def must_be_page(path: Path, line: int, name: str, value: int, size: int, end: int) -> int:
    if not size:
        raise wrong(path, line, name, hex(value), "no page_size before it")
    if value % size or not 0 <= value < end:
        raise wrong(path, line, name, hex(value), f"not the address of a page of {size} bytes")
    return value


def wrong(path: Path, line: int, field: str, value: object, why: str) -> CaptureError:
    return CaptureError(path, f"line {line}: {field}", value, why)


def read_pagemap(path: Path) -> MappedPages:
    left = os.path.getsize(path) % PAIR.itemsize
    if left:
        raise CaptureError(path, "bytes", left, "left over: it is cut off, or no file of pairs of u64")
    pairs = np.fromfile(path, PAIR)
    odd = (pairs["address"] % PAGE != 0) | (pairs["address"] >= 1 << 63)
    if odd.any():
        at = int(np.argmax(odd))
        why = "not the address of a page: this is no pagemap_*.bin"
        raise CaptureError(path, f"address of pair {at}", hex(int(pairs["address"][at])), why)
    here = pairs[(pairs["word"] & PRESENT != 0) & (pairs["address"] < USER_HALF)]
    frame = (here["word"] & FRAME).astype(np.int64)
    if (frame >= MOST_FRAME).any():
        at = int(np.argmax(frame >= MOST_FRAME))
        raise CaptureError(path, f"frame of mapped page {at}", frame[at], "beyond any machine's memory")
    return sorted_pages(path, here["address"].astype(np.int64), frame, PAGE, len(pairs) - len(here))


def sorted_pages(path: Path, address: np.ndarray, frame: np.ndarray, size: int, absent: int) -> MappedPages:
    """MappedPages; CaptureError where none is mapped, or one twice, to different frames."""
    if not len(address):
        raise CaptureError(path, "mapped pages", 0, "nothing to import")
    order = np.lexsort((frame, address))
    address, frame = address[order], frame[order]
    again = address[1:] == address[:-1]
    if (again & (frame[1:] != frame[:-1])).any():
        at = int(address[1:][np.argmax(again & (frame[1:] != frame[:-1]))])
        raise CaptureError(path, "address", hex(at), "mapped twice, to different frames")
    once = np.concatenate(([True], ~again))
    return MappedPages(address[once], frame[once], size, absent, path.name)
