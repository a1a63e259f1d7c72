"""Walk streams on disk: a directory per stream, sealed last, memory-mapped when used."""

import hashlib
import json
import os
import re
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from ..core.errors import CaptureError, UsageError, parse_size
from ..core.machine import Tlb
from ..core.safe_files import (
    open_inside,
    read_inside,
    remove_unfinished,
    temporary_directory,
    unfinished_directory,
)
from ..core.trace import SLOT_BITS, Placement, Trace, WalkStream, blocks

VERSION = 6
BLOCK = 1 << 20  # walks that are looked at together
COLUMNS = {"page": np.uint32, "write": np.bool_, "offset": np.int64, "hits": np.int64}
HEADER = 128  # bytes of a .npy file before its numbers
MOST_CPUS = 1 << 16
SEAL, LONGEST_SEAL = "seal", 1 << 12
AGAIN = "-again-"  # ends the name of a further run's stream, its first chunk after it


def key(trace: Trace, placement: Placement, tlb: Tlb, tlb_level: np.ndarray, groups: np.ndarray) -> str:
    """Name of the stream of a trace on TLBs of this shape, with this placement and these pages."""
    digest = hashlib.sha256(b"walk stream %d " % VERSION)
    for array in (trace.chunks, trace.events, trace.regions, placement.chunk_cpu, tlb_level, groups):
        digest.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
    facts = json.dumps(trace.facts, sort_keys=True, default=str)
    digest.update(f"{facts} {len(placement.cpu_node)}".encode() + msgspec.json.encode(tlb))
    return digest.hexdigest()[:32]


def load(
    cache_dir: str | PathLike[str], name: str, chunks: int, regions: int, walks: int
) -> WalkStream | None:
    """WalkStream stored under `name`, or None where there is none, it is damaged, or of another trace.

    chunks, regions  of the trace; walks: the most that it can have

    No more is read than a stream can have, and what kernels use as an index is looked at.
    """
    most = {"page": walks, "write": walks, "offset": chunks + 1, "hits": 3 * MOST_CPUS}
    try:
        stream = _load(Path(cache_dir) / f"walks-{name}", most)
        os.utime(Path(cache_dir) / f"walks-{name}")  # trim removes the longest unused first
    except (OSError, ValueError, KeyError, TypeError, CaptureError):
        return None
    return stream if _fits(stream, chunks, regions) else None


def _fits(stream: WalkStream, chunks: int, regions: int) -> bool:
    """Whether every page is in a region, and chunks and walks are those of the columns."""
    page, write, offset, hits = (np.asarray(getattr(stream, name)) for name in COLUMNS)
    if [column.ndim for column in (page, write, offset, hits)] != [1, 1, 1, 2]:
        return False
    kinds = [column.dtype for column in (page, write, offset, hits)] == list(map(np.dtype, COLUMNS.values()))
    whole = len(offset) == chunks + 1 and offset[0] == 0 and offset[-1] == len(page) == len(write)
    known = all(int(block.max()) >> SLOT_BITS < regions for block in blocks(page, BLOCK))
    return kinds and bool(whole) and known and bool((offset[1:] >= offset[:-1]).all()) and hits.shape[1] == 3


def _load(directory: Path, most: Mapping[str, int]) -> WalkStream:
    seal, sums = read_inside(directory / SEAL, LONGEST_SEAL), {}
    for column in COLUMNS:
        path = directory / f"{column}.npy"
        if path.stat().st_size > HEADER + most[column] * np.dtype(COLUMNS[column]).itemsize:
            raise ValueError(f"{path} has more than {most[column]} numbers")
        sums[column] = _sum(path)
    if seal != _seal(sums):
        raise ValueError(f"{directory} is damaged")
    return _opened(directory)


def _seal(sums: Mapping[str, int]) -> bytes:
    """Contents of SEAL, whose every bit counts."""
    return json.dumps({"version": VERSION, **{column: sums[column] for column in COLUMNS}}).encode()


def _opened(directory: Path) -> WalkStream:
    columns = {}
    for column in COLUMNS:
        path = directory / f"{column}.npy"
        try:
            with warnings.catch_warnings(action="error"):  # of a header as no NumPy of ours writes it
                columns[column] = np.load(path, mmap_mode="r" if path.stat().st_size > 4096 else None)
        except OSError:
            raise
        except Exception as error:  # each of NumPy's kinds: the file holds no array
            raise ValueError(f"{path}: {error}") from None
    return WalkStream(**columns)


def _sum(path: Path) -> int:
    """CRC-32 of a column: its numbers, then its header, which is known last."""
    crc = 0
    with open_inside(path) as file:
        header = file.read(HEADER)
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return zlib.crc32(header, crc)


# Bound on what a user's streams take together: the longest unused go first.

BOUND, USUAL = "PTANALYZE_CACHE_SIZE", 4 << 30
CONTENTS = re.compile(r"[0-9a-f]{32}")  # a capture's directory
KEPT = re.compile(r"walks-[0-9a-f]{32}(-again-\d+)?|trace\.index")


def bound() -> int:
    """Bytes that a user's streams may take; UsageError for what is no size."""
    text = os.environ.get(BOUND)
    size = parse_size(text) if text else USUAL
    if size is None:
        raise UsageError(f"{BOUND} = {text}: expected a size, as 4G")
    return int(size)


def kept(place: Path) -> dict[Path, int]:
    """{stream or index in the user's cache: bytes}, the longest unused first."""
    found = {}
    captures = [one for one in place.glob("*") if CONTENTS.fullmatch(one.name) and not one.is_symlink()]
    for path in [path for one in captures for path in one.glob("*") if KEPT.fullmatch(path.name)]:
        with suppress(OSError):  # removed meanwhile
            files = [path] if path.is_file() else [*path.iterdir()]
            found[path] = (path.lstat().st_mtime_ns, sum(file.lstat().st_size for file in files))
    return {path: found[path][1] for path in sorted(found, key=lambda path: found[path][0])}


def trim(place: Path, most: int) -> None:
    """Remove streams from the user's cache until at most `most` bytes are left. Who reads one keeps it."""
    sizes = kept(place)
    total = sum(sizes.values())
    for path, size in sizes.items():
        if total <= most:
            break
        total -= size
        with suppress(OSError):  # another process removes it
            path.unlink() if path.is_file() else shutil.rmtree(path)
    for contents in place.iterdir():
        if CONTENTS.fullmatch(contents.name):
            remove_unfinished(contents)
            with suppress(OSError):  # not empty
                contents.rmdir()


class Writer:
    """Grows a stream batch by batch in a temporary directory; `seal` renames it, else nothing remains."""

    def __init__(self, cache_dir: str | PathLike[str] | None, name: str) -> None:
        self.target = Path(cache_dir) / f"walks-{name}" if cache_dir else None
        self.bound = bound()
        self.unfinished = ExitStack()
        self.misses: list[np.ndarray] = []
        self.walks = 0
        self.sums = {"page": 0, "write": 0}  # CRC-32 of what was appended

    def __enter__(self) -> "Writer":
        try:
            self.directory = self._directory()
            self.files = {column: self._open(column) for column in ("page", "write")}
        except OSError as error:
            self.unfinished.close()
            raise self._unwritable(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            with suppress(OSError):  # what was buffered may find no room
                file.close()
        self.unfinished.close()

    def _directory(self) -> Path:
        """Where the stream is to be kept, or, if that cannot be written to, among temporary files."""
        if self.target:
            with suppress(OSError):
                self.target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                return self.unfinished.enter_context(unfinished_directory(self.target.parent, "walks"))
            self.target = None
        return self.unfinished.enter_context(temporary_directory())

    def append(self, page: np.ndarray, write: np.ndarray, misses: np.ndarray) -> None:
        """Walks of the next chunks: uint32[n], bool[n], and their number by chunk."""
        try:
            for column, array in (("page", page), ("write", write)):
                self.files[column].write(array.data)
                if self.target:
                    self.sums[column] = zlib.crc32(array.data, self.sums[column])
        except OSError as error:
            raise self._unwritable(error) from error
        self.misses.append(misses)
        self.walks += len(page)

    def seal(self, hits: np.ndarray) -> WalkStream:
        """Finish the stream, give it its name, and open it."""
        try:
            for column, file in self.files.items():
                self.sums[column] = zlib.crc32(self._header(file, column, self.walks), self.sums[column])
                self._sync(file)
            offset = np.concatenate([[0], np.cumsum(np.concatenate([np.zeros(0, np.int64), *self.misses]))])
            for column, array in (("offset", offset), ("hits", hits)):
                with self._create(f"{column}.npy") as file:
                    np.save(file, array.astype(COLUMNS[column]))
                    self._sync(file)
            if self.target:
                self._write_seal()
            stream = _opened(self.directory)  # before it has its name, under which another may replace it
            self._name()
            if self.target and CONTENTS.fullmatch(self.target.parent.name):
                trim(self.target.parents[1], self.bound)
            return stream
        except OSError as error:
            raise self._unwritable(error) from error

    def _write_seal(self) -> None:
        more = {column: _sum(self.directory / f"{column}.npy") for column in ("offset", "hits")}
        with self._create(SEAL) as file:
            file.write(_seal(self.sums | more))
            self._sync(file)

    def _open(self, column: str) -> BinaryIO:
        file = self._create(f"{column}.npy")
        self._header(file, column, 0)
        return file

    def _create(self, name: str) -> BinaryIO:
        return open(os.open(self.directory / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b")

    def _header(self, file: BinaryIO, column: str, length: int) -> bytes:
        """Write the .npy header; NumPy pads it, so that its size does not depend on the length."""
        header = {"descr": np.dtype(COLUMNS[column]).str, "fortran_order": False, "shape": (length,)}
        text = BytesIO()
        np.lib.format.write_array_header_1_0(text, header)
        file.seek(0)
        file.write(text.getvalue())
        return text.getvalue()

    def _sync(self, file: BinaryIO) -> None:
        file.flush()
        if self.target:  # else the file is gone when it is closed
            os.fsync(file.fileno())

    def _name(self) -> None:
        if not self.target:
            return
        with suppress(OSError):  # another process was quicker, or may write here and we may not
            if self.target.exists():
                with unfinished_directory(self.target.parent, "walks") as damaged:
                    os.rename(self.target, damaged / "old")
            os.rename(self.directory, self.target)

    def _unwritable(self, error: OSError) -> UsageError:
        where, way_out = tempfile.gettempdir(), "name another TMPDIR"
        if self.target:
            where, way_out = str(self.target.parent), "name another XDG_CACHE_HOME"
        why = error.strerror or error
        return UsageError(f"{where}: walk stream cannot be stored: {why}; free space there, or {way_out}")
