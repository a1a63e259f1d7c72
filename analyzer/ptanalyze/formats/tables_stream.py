"""`NAME.entries` filled in place, in any order, by a writer that knows the largest number of tables."""

import os
from os import PathLike
from pathlib import Path

import numpy as np

from ..core.snapshot import ENTRIES_PER_TABLE, Tree
from .room import map_new
from .tables_file import ENTRIES_HEADER, ENTRIES_MAGIC, ENTRIES_WORDS, header_of

TABLE_BYTES = ENTRIES_PER_TABLE * 8
BLOCK = 4096  # tables moved at a time: 16 MiB


def reserve_entries(directory: str | PathLike[str], name: str, room: int) -> np.ndarray:
    """uint64[room, 512], all zero: the writable map of a new `name`.entries (0600), with its blocks on disk.

    The directory must not be in use yet (capture_dir.new_capture); close_entries completes the file. OSError
    if the disk is full.
    """
    path = Path(directory) / f"{name}.entries"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    with os.fdopen(fd, "r+b") as file:
        return np.asarray(map_new(file, "<u8", (room, ENTRIES_PER_TABLE), ENTRIES_HEADER))


def keep_tables(entries: np.ndarray, kept: np.ndarray) -> None:
    """Move tables `kept` (int64[n], ascending) to the front of uint64[room, 512], in place, in blocks."""
    moved = np.flatnonzero(kept != np.arange(len(kept)))
    for start in range(moved[0] if len(moved) else len(kept), len(kept), BLOCK):
        end = min(start + BLOCK, len(kept))
        entries[start:end] = entries[kept[start:end]]


def close_entries(directory: str | PathLike[str], name: str, tree: Tree) -> None:
    """Cut the file to the tables of `tree`, write its header, sync."""
    with open(Path(directory) / f"{name}.entries", "r+b") as file:
        head = header_of(tree, ENTRIES_MAGIC, ENTRIES_HEADER, TABLE_BYTES, ENTRIES_WORDS)
        file.write(head.ljust(ENTRIES_HEADER, b"\0"))
        file.truncate(ENTRIES_HEADER + len(tree) * TABLE_BYTES)
        file.flush()
        os.fsync(file.fileno())
