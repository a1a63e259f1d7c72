"""Walk streams on disk: a directory per stream, named when it is whole, memory-mapped when used."""

import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from contextlib import ExitStack, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from ..core.errors import UsageError, parse_size
from ..core.machine import Tlb
from ..core.safe_files import crc_of, remove_unfinished, temporary_directory, unfinished_directory
from ..core.trace import SLOT_BITS, Placement, Trace, WalkStream, blocks

VERSION = 7
BLOCK = 1 << 20  # walks that are looked at together
LONG = {"page": np.dtype(np.uint32), "write": np.dtype(np.bool_)}  # files of numbers alone, a walk each
REST = "rest.npz"  # offset int64[chunks + 1], hits int64[cpus, 3], sums: CRC-32 of the files in LONG
AGAIN = "-again-"  # ends the name of a further run's stream, its first chunk after it


def key(trace: Trace, placement: Placement, tlb: Tlb, tlb_level: np.ndarray, groups: np.ndarray) -> str:
    """Name of the stream of a trace on TLBs of this shape, with this placement and these pages."""
    digest = hashlib.sha256(b"walk stream %d " % VERSION)
    for array in (trace.chunks, trace.events, trace.regions, placement.chunk_cpu, tlb_level, groups):
        digest.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
    facts = json.dumps(trace.facts, sort_keys=True, default=str)
    digest.update(f"{facts} {len(placement.cpu_node)}".encode() + msgspec.json.encode(tlb))
    return digest.hexdigest()[:32]


def load(cache_dir: str | PathLike[str], name: str, chunks: int, regions: int) -> WalkStream | None:
    """WalkStream stored under `name`; None where there is none, or one that is no stream of such a trace.

    chunks, regions  of the trace. What kernels use as an index is looked at.
    """
    directory = Path(cache_dir) / f"walks-{name}"
    try:
        stream, sums = _opened(directory)
        for column, expected in zip(LONG, sums.tolist(), strict=True):
            with open(directory / column, "rb") as file:
                if crc_of(file) != expected:
                    return None
        os.utime(directory)  # trim removes the longest unused first
    except Exception:  # the kinds of NumPy and zipfile for what is no array or no archive are many
        return None
    offset, walks = stream.offset, len(stream.page)
    whole = offset.shape == (chunks + 1,) and offset[0] == 0 and offset[-1] == walks == len(stream.write)
    if not (whole and (offset[1:] >= offset[:-1]).all() and stream.hits.shape[1:] == (3,)):
        return None
    known = all(int(block.max()) >> SLOT_BITS < regions for block in blocks(stream.page, BLOCK))
    return stream if known else None


def _opened(directory: Path) -> tuple[WalkStream, np.ndarray]:
    """(the stream in a directory, int64[2] checksums that its files should have)."""
    page, write = (
        np.memmap(path, kind, "r") if (path := directory / column).stat().st_size else np.zeros(0, kind)
        for column, kind in LONG.items()
    )
    with np.load(directory / REST) as rest:  # a ZIP file, which has checksums of its own
        offset, hits, sums = (rest[name].astype(np.int64) for name in ("offset", "hits", "sums"))
    return WalkStream(page, write, offset, hits), sums


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
    used = {}
    captures = [path for path in place.glob("*") if CONTENTS.fullmatch(path.name) and not path.is_symlink()]
    for path in [path for capture in captures for path in capture.glob("*") if KEPT.fullmatch(path.name)]:
        with suppress(OSError):  # removed meanwhile
            files = [path] if path.is_file() else [*path.iterdir()]
            used[path] = (path.lstat().st_mtime_ns, sum(file.lstat().st_size for file in files))
    return {path: used[path][1] for path in sorted(used, key=lambda path: used[path][0])}


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
        self.sums = dict.fromkeys(LONG, 0)  # CRC-32 of what was appended

    def __enter__(self) -> "Writer":
        try:
            self.directory = self._directory()
            self.files = {column: self._create(column) for column in LONG}
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

    def seal(self, hits: np.ndarray) -> WalkStream:
        """Finish the stream, give it its name, and open it."""
        offset = np.cumsum(np.concatenate([np.zeros(1, np.int64), *self.misses]))
        try:
            with self._create(REST) as rest:
                np.savez(rest, offset=offset, hits=hits, sums=np.array([*self.sums.values()]))
                self._sync(rest)
            for file in self.files.values():
                self._sync(file)
            stream, _ = _opened(self.directory)  # before it has its name, under which another may replace it
            self._name()
            if self.target and CONTENTS.fullmatch(self.target.parent.name):
                trim(self.target.parents[1], self.bound)
            return stream
        except OSError as error:
            raise self._unwritable(error) from error

    def _create(self, name: str) -> BinaryIO:
        return open(os.open(self.directory / name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b")

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
