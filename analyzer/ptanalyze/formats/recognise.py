"""Which foreign format a file or directory is in, from its first bytes."""

import gzip
import lzma
import re
import zlib
from os import PathLike
from pathlib import Path

from ..core.errors import UsageError
from .champsim import RECORD as CHAMPSIM
from .drmemtrace import RECORD as DRMEMTRACE
from .drmemtrace import trace_files
from .perf_data import MAGIC as PERF_DATA
from .table_dump import GUEST

HEAD = 1 << 16
ZIP, GZIP, XZ = b"PK\3\4", b"\x1f\x8b", b"\xfd7zXZ\0"
DRMEMTRACE_HEADER = b"\x19\0"  # the first record is of type 25
TEXTS = {
    "lackey": re.compile(rb"(?:I  | [LSM] )[0-9a-fA-F]+,\d+$"),
    "pinatrace": re.compile(rb"0x[0-9a-f]+: [RW] 0x[0-9a-f]+$"),
    "perf-script": re.compile(rb".*\s\d+\.\d{6,9}:\s"),
}
VMITOSIS = re.compile(rb"^<(?:numamap>|ptdump )", re.MULTILINE)
COMMENT = re.compile(rb"==|--|#")


def recognise(source: str | PathLike[str]) -> str:
    """Name of the format (capture.import_.FORMATS) of `source`; UsageError where none fits."""
    path = Path(source)
    found = of_directory(path) if path.is_dir() else of_file(path)
    if found is None:
        raise UsageError(
            f"{path}: in none of the formats that are recognised; name one: import FORMAT {path}"
        )
    return found


def of_directory(path: Path) -> str | None:
    if (path / "gpt.tables").exists() or (path / "vm.json").exists():
        return "ptdump"
    return "drmemtrace" if trace_files(path) else None


def of_file(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(GUEST):
        return "gptdump"
    if head.startswith(PERF_DATA):
        return "perf-data"
    if head.startswith(ZIP):
        return "drmemtrace"
    try:
        if head.startswith(GZIP):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD)
        elif head.startswith(XZ):
            head = lzma.LZMADecompressor().decompress(head, HEAD)
    except (zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        return None
    if head.startswith(DRMEMTRACE_HEADER) and len(head) >= DRMEMTRACE.itemsize:
        return "drmemtrace"
    if ".champsimtrace" in path.name or is_champsim(head):
        return "champsim"
    return of_text(head)


def is_champsim(head: bytes) -> bool:
    """Whether each instruction has an address and two flags of 0 or 1: text and most other files do not."""
    first = [head[at : at + 10] for at in range(0, len(head) - 63, CHAMPSIM.itemsize)]
    return b"\0" in head and len(first) > 3 and all(any(one[:8]) and max(one[8:]) <= 1 for one in first)


def of_text(head: bytes) -> str | None:
    if VMITOSIS.search(head):
        return "vmitosis"
    lines = [line.rstrip() for line in head.split(b"\n")[:-1] or [head]]
    for line in lines:
        if line and not COMMENT.match(line):
            return next((name for name, form in TEXTS.items() if form.match(line)), None)
    return None
