"""A trace's Index beside it, so that opening the trace reads none of its touches.

Written when a capture is sealed; for a capture without one, once into its directory for derived data.
"""

import contextlib
import json
import zlib
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..core.trace import CHUNK_DTYPE, EVENT_DTYPE, THREAD_DTYPE, Trace
from ..kernels.decode import FRAME_BYTES
from .atomic import atomic_write
from .trace_file import Index, read_index, trace_of
from .trace_frames import HEADER_BYTES, map_file, read_header

INDEX = "trace.index"
VERSION = 1
DTYPES = {
    "chunks": CHUNK_DTYPE,
    "payload": np.dtype(np.int64),
    "length": np.dtype(np.int64),
    "events": EVENT_DTYPE,
    "threads": THREAD_DTYPE,
    "regions": np.dtype(np.uint64),
}
WRONG = (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile)  # of files that are no index


def open_trace(path: str | PathLike[str], cache: Path | None) -> Trace:
    """Trace of a capture's trace.ptt, by the Index beside it or in `cache`, where one is made otherwise.

    cache  directory for derived data, None: there is none

    Errors as of read_trace; damaged touches are found when they are decoded.
    """
    path = Path(path)
    derived = [] if cache is None else [cache / INDEX]
    for place in (path.with_name(INDEX), *derived):
        index = stored_index(place, path)
        if index is not None:
            return trace_of(path, index)
    index = read_index(path)
    for place in derived:
        with contextlib.suppress(OSError):  # made again next time
            write_index(place, path, index)
    return trace_of(path, index, checked=True)


def write_index(out: Path, path: Path, index: Index) -> None:
    """Write the Index of the trace at `path` to the file `out`: arrays in NumPy's .npz format, compressed."""
    arrays = {name: getattr(index, name) for name in DTYPES}
    said = json.dumps({"version": VERSION, **identity(path), "facts": index.facts})
    with atomic_write(out) as file:
        np.savez_compressed(file, said=np.frombuffer(said.encode(), np.uint8), **arrays)


def identity(path: Path) -> dict[str, Any]:
    """What tells one trace from another: its length and its header, which has counts and times."""
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
        return {"bytes": file.seek(0, 2), "header": zlib.crc32(header)}


def stored_index(place: Path, path: Path) -> Index | None:
    """The Index in a file, or None where there is none, or none of the trace at `path`."""
    try:
        with np.load(place, allow_pickle=False) as file:
            said = json.loads(file["said"].tobytes())
            arrays = {name: file[name] for name in DTYPES}
        if {"version": VERSION, **identity(path)}.items() <= said.items() and fits(arrays, path):
            return Index(**arrays, facts=said["facts"] | {"stripped": reach(said["facts"])})
    except WRONG:
        pass
    return None


def reach(facts: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in facts["stripped"])


def fits(arrays: dict[str, np.ndarray], path: Path) -> bool:
    """Whether decoding by these arrays stays inside the file, and every number inside its array."""
    if any(arrays[name].dtype != dtype or arrays[name].ndim != 1 for name, dtype in DTYPES.items()):
        return False
    data = map_file(path)
    read_header(path, data)
    chunks, payload, length = arrays["chunks"], arrays["payload"], arrays["length"]
    if not len(chunks) == len(payload) == len(length) > 0:
        return False
    inside = (payload >= HEADER_BYTES + FRAME_BYTES) & (length >= 0) & (payload <= len(data) - length)
    in_order = np.cumsum(chunks["touches"]) - chunks["touches"] == chunks["first"]
    known = chunks["thread"] < len(arrays["threads"])
    events = (arrays["events"]["chunk"] >= 0) & (arrays["events"]["chunk"] <= len(chunks))
    return bool(inside.all() and in_order.all() and known.all() and events.all())
