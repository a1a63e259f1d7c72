"""Which foreign format a file or directory is in, from its first bytes."""

import lzma
import re
import zlib
from os import PathLike
from pathlib import Path

import ptanalyze as pt

from . import FORMATS, Head

HEAD = 1 << 16
GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\0"
COMMENT = re.compile(rb"==|--|#")


def recognise(source: str | PathLike[str]) -> str:
    """Name of the format (FORMATS) of `source`; UsageError where none fits."""
    head = head_of(Path(source))
    found = next((row.name for row in FORMATS.values() if head and row.knows(head)), None)
    if found is None:
        raise pt.UsageError(
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
