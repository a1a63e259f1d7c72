"""Changes of binary files of records, also of packed ones, and of NumPy's archives."""

import gzip
import io
import lzma
import zipfile

import numpy as np

from .changes import json_changed
from .noise import changed, number, put

UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile)


def record_changes(start, size, fields):
    """What changes a file of records of `size` bytes from byte `start` on; fields: [(offset, width)]."""

    def change(content, r):
        if len(content) < start + size or r.random() < 0.2:
            return changed(content, r)
        data, count, how = bytearray(content), (len(content) - start) // size, r.randrange(8)
        one, other = (start + r.randrange(count) * size for _ in range(2))
        if how == 0:
            put(data, r.randrange(0, max(start, 8), 4), r.choice([4, 8]), number(r))
        elif how == 1:
            del data[one : one + size]
        elif how == 2:
            data[one:one] = data[other : other + size]
        elif how == 3:
            data[one : one + size], data[other : other + size] = (
                data[other : other + size],
                data[one : one + size],
            )
        else:
            for _ in range(r.choice([1, 1, 2, 5])):
                offset, width = r.choice(fields)
                put(data, start + r.randrange(count) * size + offset, width, number(r))
        return bytes(data)

    return change


def packed(change, pack, unpack):
    """What changes a packed file: mostly what is in it."""

    def change_packed(content, r):
        if r.random() < 0.2:
            return changed(content, r)
        try:
            return pack(change(unpack(content), r))
        except UNREADABLE:
            return changed(content, r)

    return change_packed


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chunk.0000", content)
    return file.getvalue()


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


def in_gzip(change):
    return packed(change, lambda content: gzip.compress(content, 1), gzip.decompress)


def in_xz(change):
    return packed(change, lambda content: lzma.compress(content, preset=0), lzma.decompress)


def in_zip(change):
    return packed(change, zipped, unzipped)


def arrays_changed(content, r):
    """Of an .npz archive: numbers, lengths and types of its arrays; `said` is JSON."""
    with np.load(io.BytesIO(content)) as file:
        arrays = dict(file)
    for _ in range(r.choice([1, 1, 2])):
        name = r.choice(sorted(arrays))
        arrays[name] = array_changed(arrays[name], r)
    if r.random() < 0.4:
        arrays["said"] = np.frombuffer(json_changed(arrays["said"].tobytes(), r), np.uint8)
    if r.random() < 0.1:
        del arrays[r.choice(sorted(arrays))]
    file = io.BytesIO()
    np.savez(file, **arrays)
    return changed(file.getvalue(), r) if r.random() < 0.1 else file.getvalue()


def array_changed(array, r):
    how = r.randrange(6)
    if how == 0:
        return array[: r.choice([0, 1, max(len(array) - 1, 0)])]
    if how == 1:
        return np.concatenate([array, array[:1]])
    if how == 2 and array.dtype.names is None:
        return array.astype(r.choice(["<i4", "<u8", "<f8", "S8", ">i8"]))
    data = bytearray(array.tobytes())
    if not data:
        return array
    size = array.dtype.itemsize
    for _ in range(r.choice([1, 1, 2, 5])):
        width = r.choice([width for width in (1, 2, 4, 8) if width <= size])
        put(data, r.randrange(len(data) // width) * width, width, number(r))
    return np.frombuffer(bytes(data[: array.nbytes]), array.dtype)
