"""`heat.bits`: accessed bits of a process, sample after sample, as dumps/heat.h describes them."""

from os import PathLike
from pathlib import Path

import numpy as np

from ..core.errors import CaptureError
from ..core.safe_files import open_inside
from ..core.snapshot import BATCHES, Heat
from .atomic import atomic_write

FILE = "heat.bits"
MAGIC = b"PTHEATBS"
VERSION = 2
BYTE_ORDER = 0x01020304
HEADER_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("byte_order", "<u4"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("words", "S488"),
    ]
)
RECORD_DTYPE = np.dtype([("base", "<u8"), ("level", "<u8"), ("window", "<u8"), ("word", "<u8", (8,))])
LENGTH, CLEARED, READ, TABLES, ASKED = range(5)  # words of the record that ends a sample, ns
ENDS = 0  # its level
MOST_LENGTHS, MOST_SAMPLES = 4, 1 << 15
EXPECTED = (MAGIC, VERSION, BYTE_ORDER, HEADER_DTYPE.itemsize, RECORD_DTYPE.itemsize)  # of a header
RECORDS_AT_ONCE = 1 << 19  # read together: 40 MiB
ROUNDED = 16  # ns
BLOCK = 256  # tables looked at together
LEVELS = 3  # tables above them map no pages


def read_heat(path: str | PathLike[str]) -> Heat:
    """Heat of the samples in the file `path`; an unfinished last sample is left out.

    CaptureError names file, field and value for a file that cannot be; pages are not looked for in a tree.
    """
    records = read_records(Path(path))
    ends = np.flatnonzero(records["level"] == ENDS)
    said = records["word"][ends].astype(np.int64)
    asked, length_of = np.unique(said[:, ASKED], return_inverse=True)
    if len(asked) > MOST_LENGTHS or len(ends) >= MOST_SAMPLES:
        wrong = f"{len(ends)} of {len(asked)} lengths"
        raise CaptureError(
            path, "samples", wrong, f"at most {MOST_SAMPLES - 1} of {MOST_LENGTHS} lengths are read"
        )
    batch = np.arange(len(ends)) * BATCHES // len(ends)
    samples = np.zeros((BATCHES, len(asked)), np.int64)
    np.add.at(samples, (batch, length_of), 1)
    seconds = np.bincount(length_of, said[:, LENGTH]) / samples.sum(axis=0) / 1e9
    handling = np.bincount(length_of, said[:, CLEARED] + said[:, READ]) / samples.sum(axis=0) / 1e9
    records = records[: ends[-1]]
    used = np.flatnonzero(records["level"] != ENDS)
    sample = np.searchsorted(ends, used)
    group = batch[sample] * len(asked) + length_of[sample]
    times = beyond_length(Path(path), records["window"][used], said[sample])
    address, level, seen, within = pages(records[used], group, samples, times)
    return Heat(address, level, seen.reshape(-1, *samples.shape), samples, seconds, handling, within)


def beyond_length(path: Path, window: np.ndarray, said: np.ndarray) -> np.ndarray:
    """float64[n, 2]: ns of records' windows in which their sample was cleared or read, and all such ns of it.

    window  uint64[n]; said: int64[n, 8], the words that end the samples. CaptureError for one that cannot be.
    """
    beyond, spent = window.astype(np.int64) - said[:, LENGTH], said[:, CLEARED] + said[:, READ]
    wrong = (beyond < -ROUNDED) | (beyond > spent + ROUNDED)
    if wrong.any():
        why = f"in a sample of {said[wrong][0][LENGTH]} ns and {spent[wrong][0]} ns to clear and read"
        raise CaptureError(path, "window", int(window[wrong][0]), why)
    return np.stack([np.clip(beyond, 0, spent), spent], axis=1).astype(float)


def pages(
    records: np.ndarray, group: np.ndarray, samples: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(uint64[P] address, uint8[P] level, uint8 or uint16[P, groups]: records with the page's bit set,
    float64[P]: the part of the time to clear and read within its window).

    group  int64[records], below samples.size; `samples` int64: how many there are of each
    times  float64[records, 2] of beyond_length
    """
    order = np.lexsort([records["base"], records["level"]])
    records, group, times = records[order], group[order], times[order]
    new = (records["base"][1:] != records["base"][:-1]) | (records["level"][1:] != records["level"][:-1])
    first = np.append(0, np.flatnonzero(new) + 1) if len(records) else np.zeros(0, np.int64)
    last = np.append(first[1:], len(records))
    dtype = np.uint8 if samples.max() < 256 else np.uint16
    found = [
        pages_of(records[some], group[some], samples.size, dtype, times[some])
        for k in range(0, len(first), BLOCK)
        for some in [slice(first[k], last[min(k + BLOCK, len(first)) - 1])]
    ]
    empty = np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros((0, samples.size), dtype), np.zeros(0)
    address, level, seen, within = (np.concatenate(column) for column in zip(empty, *found, strict=True))
    order = np.argsort(address, kind="stable")
    return address[order], level[order], seen[order], within[order]


def pages_of(
    records: np.ndarray, group: np.ndarray, groups: int, dtype: type, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same of few tables, whose records follow one another."""
    starts = np.append(True, records["base"][1:] != records["base"][:-1])
    starts[1:] |= records["level"][1:] != records["level"][:-1]
    tables, which = records[starts], np.cumsum(starts) - 1
    bits = np.unpackbits(records["word"].view(np.uint8), axis=1, bitorder="little").reshape(-1, 512)
    counts: np.ndarray = np.zeros((len(tables), groups, 512), dtype)
    np.add.at(counts, (which, group), bits)
    counts = counts.transpose(0, 2, 1)
    table, slot = np.nonzero(counts.any(axis=2))
    level = tables["level"][table]
    address = tables["base"][table] + (slot.astype(np.uint64) << (np.uint64(3) + np.uint64(9) * level))
    beyond, spent = (np.bincount(which, column) for column in times.T)
    return address, level.astype(np.uint8), counts[table, slot], (beyond / np.maximum(spent, 1))[table]


def read_records(path: Path) -> np.ndarray:
    """RECORD_DTYPE[n], validated; CaptureError if there is no whole sample."""
    with open_inside(path) as file:
        must_be_header(path, file.read(HEADER_DTYPE.itemsize))
        parts = [np.zeros(0, RECORD_DTYPE)]
        while block := file.read(RECORDS_AT_ONCE * RECORD_DTYPE.itemsize):
            records = np.frombuffer(block, RECORD_DTYPE, len(block) // RECORD_DTYPE.itemsize)
            must_be_sound(path, records)  # at once, so that no hole is read to its end
            parts.append(records)
    records = np.concatenate(parts)
    if not (records["level"] == ENDS).any():
        raise CaptureError(path, "samples", 0, "no sample was finished; sample again for longer")
    return records


def must_be_header(path: Path, head: bytes) -> None:
    if len(head) < HEADER_DTYPE.itemsize:
        raise CaptureError(path, "size", len(head), f"no header of {HEADER_DTYPE.itemsize} bytes")
    header = np.frombuffer(head, HEADER_DTYPE)[0]
    for name, value in zip(HEADER_DTYPE.names or (), EXPECTED, strict=False):
        if header[name] != value:
            older = name == "version" and header[name] < VERSION
            why = " (older samples do not tell when a table was cleared): sample again" if older else ""
            raise CaptureError(path, name, header[name], f"expected {value!r}{why}")


def must_be_sound(path: Path, records: np.ndarray) -> None:
    level, base = records["level"], records["base"]
    if (high := int(level.max(initial=0))) > LEVELS:
        raise CaptureError(path, "level", high, f"tables of levels 1 to {LEVELS} map pages")
    ends = level == ENDS
    span = np.uint64(1) << (np.uint64(12) + np.uint64(9) * level)
    if (wrong := ~ends & ((base & (span - np.uint64(1))) != 0)).any():
        raise CaptureError(path, "base", hex(int(base[wrong][0])), "no table begins there")
    said = records["word"][ends]
    if not ((said[:, LENGTH] > 0) & (said[:, ASKED] > 0) & (said[:, : READ + 1] < 1 << 60).all(axis=1)).all():
        raise CaptureError(path, "sample", "of no length", "samples last 1 ns or longer")


def copy_samples(source: Path, target: Path) -> None:
    """Write the finished samples of `source` to the new file `target`, and nothing else that stands in it."""
    records = read_records(source)
    ends = np.flatnonzero(records["level"] == ENDS)
    records = records[: ends[-1] + 1].copy()
    records["base"][ends] = records["window"][ends] = 0
    records["word"][ends, ASKED + 1 :] = 0
    header = np.array([(*EXPECTED, b"")], HEADER_DTYPE)
    with atomic_write(target) as file:
        file.write(header.tobytes())
        file.write(records.data)


def costs(path: str | PathLike[str]) -> dict[str, float]:
    """{"samples", "seconds" sampled, "clear_ms", "read_ms" per sample, "tables" read in the last}."""
    records = read_records(Path(path))
    said = records["word"][records["level"] == ENDS].astype(float)
    return {
        "samples": len(said),
        "seconds": said[:, LENGTH].sum() / 1e9,
        "clear_ms": said[:, CLEARED].mean() / 1e6,
        "read_ms": said[:, READ].mean() / 1e6,
        "tables": said[-1, TABLES],
    }
