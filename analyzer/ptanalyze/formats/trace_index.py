"""A trace's Index beside it, so that opening the trace reads none of its touches.

Written when a capture is sealed; for a capture without one, once into its directory for derived data.
"""

import contextlib
import json
import warnings
import zipfile
import zlib
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..core.decode import plain_json
from ..core.errors import CaptureError
from ..core.safe_files import content_of, open_inside, read_inside, signed
from ..core.trace import CHUNK_DTYPE, EVENT_DTYPE, REGION_SHIFT, THREAD_DTYPE, Event, Trace
from ..kernels.trace_codec import FRAME_BYTES
from .atomic import atomic_write
from .manifest import TRACE
from .trace import (
    HEADER_BYTES,
    HIGHEST,
    Index,
    facts_of,
    map_file,
    read_header,
    read_index,
    refuse_impossible,
    trace_of,
)

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
WRONG = (OSError, ValueError, KeyError, TypeError, CaptureError)  # of files that are no index
LARGEST = 8  # times the trace: a chunk has 68 bytes for 49, an event 47 for 96, a region 8 for 2
THREADS = 1 << 21  # bytes: more than those of 65,536 threads


def open_trace(path: str | PathLike[str], cache: Path | None) -> Trace:
    """Trace of a capture's trace.ptt, by the Index beside it or in `cache`, where one is made otherwise.

    cache  directory for derived data, None: there is none

    Errors as of read_trace; damaged touches are found when they are decoded.
    """
    path = Path(path)
    index = stored_index(path.with_name(INDEX), path)
    if index is None and cache:
        index = stored_index(cache / INDEX, path, kept=True)
    if index is not None:
        return trace_of(path, index)
    index = read_index(path)
    if cache:
        with contextlib.suppress(OSError):  # made again next time
            write_index(cache / INDEX, path, index, kept=True)
    return trace_of(path, index, checked=True)


def write_index(out: Path, path: Path, index: Index, *, kept: bool = False) -> None:
    """Write the Index of the trace at `path` to the file `out`: arrays in NumPy's .npz format, compressed.

    kept  it is derived data, which the user signs
    """
    arrays = {name: getattr(index, name) for name in DTYPES}
    said = json.dumps({"version": VERSION, **identity(path), "facts": index.facts})
    content = BytesIO()
    np.savez_compressed(content, said=np.frombuffer(said.encode(), np.uint8), **arrays)
    with atomic_write(out) as file:
        file.write(signed(out, content.getvalue()) if kept else content.getvalue())


def add_index(directory: Path) -> None:
    """Write the Index of a capture's trace beside it, before the capture is sealed."""
    write_index(directory / INDEX, directory / TRACE, read_index(directory / TRACE))


def identity(path: Path) -> dict[str, Any]:
    """What tells one trace from another: its length and its header, which has counts and times."""
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
        return {"bytes": file.seek(0, 2), "header": zlib.crc32(header)}


def stored_index(place: Path, path: Path, *, kept: bool = False) -> Index | None:
    """The Index in a file, or None where there is none, or none of the trace at `path`.

    kept  it is derived data: None unless the user signed it

    It travels with captures, and so do its checksums: what kernels use as an index is looked at, and facts
    are those of the trace's header.
    """
    try:
        data = map_file(path)
        arrays = stored_arrays(place, most_bytes(len(data)), kept)
        said = plain_json(arrays.pop("said").tobytes())
        facts = facts_of(read_header(path, data), lost_bytes(said["facts"]))
        same = {"version": VERSION, **identity(path), "facts": json.loads(json.dumps(facts))} == said
        if same and fits(arrays, len(data)):
            refuse_impossible(path, arrays["events"])
            return Index(**arrays, facts=facts)
    except WRONG:
        pass
    return None


def stored_arrays(place: Path, most: int, kept: bool) -> dict[str, np.ndarray]:
    """The arrays of an index, of at most `most` bytes together; ValueError for any other file."""
    with kept_file(place, most) if kept else open_inside(place) as file:
        try:
            with warnings.catch_warnings(action="error"), zipfile.ZipFile(file) as archive:
                if sum(member.file_size for member in archive.infolist()) > most:
                    raise ValueError(f"over {most} bytes")
                return {name: array_in(archive, f"{name}.npy") for name in ("said", *DTYPES)}
        except Exception as error:  # each of zipfile's and NumPy's own kinds: the file is no index
            raise ValueError(str(error)) from None


def most_bytes(trace: int) -> int:
    """More than the index of a trace of so many bytes can have."""
    return LARGEST * trace + THREADS


def kept_file(place: Path, most: int) -> BytesIO:
    content = content_of(place, read_inside(place, most))
    if content is None:
        raise ValueError("not made by this user")
    return BytesIO(content)


def array_in(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """As np.load, but without room for more than is there."""
    with archive.open(name) as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        return np.frombuffer(bytearray(member.read()), dtype).reshape(shape)


def lost_bytes(facts: dict[str, Any]) -> int:
    lost = facts["lost_bytes"]
    if type(lost) is not int or lost < 0:
        raise ValueError(lost)
    return lost


def fits(arrays: dict[str, np.ndarray], size: int) -> bool:
    """Whether decoding by these arrays stays inside `size` bytes, and every number inside its array."""
    if any(arrays[name].dtype != dtype or arrays[name].ndim != 1 for name, dtype in DTYPES.items()):
        return False
    chunks, payload, length, regions = (arrays[name] for name in ("chunks", "payload", "length", "regions"))
    if not len(chunks) == len(payload) == len(length) > 0:
        return False
    inside = (payload >= HEADER_BYTES + FRAME_BYTES) & (length >= 0) & (payload <= size - length)
    touches, ends = chunks["touches"], np.cumsum(chunks["touches"])
    in_order = (touches >= 0) & (ends >= touches) & (ends - touches == chunks["first"])
    parts = bool(inside.all() and in_order.all() and touches.any())
    once = len(np.unique(regions)) == len(regions) and int(regions.max(initial=0)) <= HIGHEST >> REGION_SHIFT
    return parts and once and known(chunks, arrays["events"], arrays["threads"])


def known(chunks: np.ndarray, events: np.ndarray, threads: np.ndarray) -> bool:
    """Whether chunks and events are of these threads, and events of these chunks, in their order."""
    at, kinds = events["chunk"], [event.value for event in Event]
    of_threads = all(int(rows["thread"].max(initial=0)) < len(threads) for rows in (chunks, events))
    parents = (threads["parent"] >= -1) & (threads["parent"] < len(threads))
    in_order = (at[1:] >= at[:-1]).all() and (at >= 0).all() and (at <= len(chunks)).all()
    return bool(of_threads and parents.all() and in_order and np.isin(events["kind"], kinds).all())
