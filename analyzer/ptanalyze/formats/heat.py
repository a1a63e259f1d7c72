"""`heat.bits`: accessed bits of a process, reading after reading, as dumps/heat.h describes them."""

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from ..core.errors import CaptureError
from ..core.footprint import Footprint, Rounds, footprint_of
from ..core.safe_files import open_inside
from ..core.snapshot import BATCHES, Heat
from .atomic import atomic_write
from .record import BYTE_ORDER, HEAD, must_say

FILE = "heat.bits"
MAGIC = b"PTHEATBS"
VERSION = 3
HEADER_DTYPE = np.dtype([*HEAD, ("record_bytes", "<u4"), ("words", "S488")])
RECORD_DTYPE = np.dtype(
    [("base", "<u8"), ("level", "<u4"), ("cpu", "<u4"), ("window", "<u8"), ("word", "<u8", (8,))]
)
LENGTH, CLEARED, READ, TABLES, ASKED, ROUND, CPU, AT = range(8)  # words of the record that ends a reading, ns
CPU_NS = 100  # unit of `cpu`
ENDS = 0  # its level
MOST_LENGTHS, MOST_SAMPLES = 16, 1 << 15
PAGE_LENGTHS = 5  # that pages are told apart by
WHOLE = 0.98  # of the tables were read: the rest were new, or gone
EVEN = 0.1  # standard deviation over mean of the CPU time of rounds, where it goes on evenly
SIZES = HEADER_DTYPE.itemsize, RECORD_DTYPE.itemsize
RECORDS_AT_ONCE = 1 << 19  # read together: 40 MiB
ROUNDED = 16  # ns
BLOCK = 256  # tables looked at together
LEVELS = 3  # tables above them map no pages


def read_heat(path: str | PathLike[str]) -> Heat:
    """Heat of the readings in the file `path`, with their Footprint; an unfinished last one is left out.

    CaptureError names file, field and value for a file that cannot be; pages are not looked for in a tree.
    Pages count by one reading of each clearing, so that samples do not depend on each other.
    """
    records = read_records(Path(path))
    ends = np.flatnonzero(records["level"] == ENDS)
    said = records["word"][ends].astype(np.int64)
    lengths = len(np.unique(said[:, ASKED]))
    if lengths > MOST_LENGTHS or len(ends) >= MOST_SAMPLES:
        wrong, most = f"{len(ends)} of {lengths} lengths", f"{MOST_SAMPLES - 1} of {MOST_LENGTHS} lengths"
        raise CaptureError(path, "samples", wrong, f"at most {most} are read")
    records = records[: ends[-1] + 1]
    whole, place = rounds_of(Path(path), said)
    picked, kind = by_turns(Path(path), records[ends], whole, place)
    heat = heat_of(Path(path), records, ends, picked, kind)
    return replace(heat, footprint=footprint(Path(path), records, ends, said, whole, place))


def rounds_of(path: Path, said: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[n] number of the round of each reading, -1: not finished; int64[n] its place in the round).

    said  int64[n, 8], the words that end readings
    """
    asked, place = np.unique(said[:, ASKED], return_inverse=True)
    size = len(asked)
    _, number, times = np.unique(said[:, ROUND], return_inverse=True, return_counts=True)
    if (number != np.arange(len(said)) // size).any() or (place != np.arange(len(said)) % size).any():
        why = "rounds of one reading of each length are expected"
        raise CaptureError(path, "round", "in another order", why)
    if (np.diff(said[:, AT].reshape(-1)[place == size - 1]) < 0).any():
        raise CaptureError(path, "time", "of a later round before an earlier one's", "sample again")
    return np.where(times[number] == size, number, -1), place


def by_turns(
    path: Path, ended: np.ndarray, number: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(int64[rounds] one reading of each finished round, int64[rounds] its kind of length).

    Of those that read all tables, in turn one near each of PAGE_LENGTHS; kinds are of lengths as they were: a
    busy machine reads later than asked, and a mean of short and long windows tells of neither.
    ended  RECORD_DTYPE[n], the records that end readings
    """
    said = ended["word"].astype(np.int64)
    tables, spread = ended["base"].astype(np.int64), ended["window"].astype(np.int64)
    size = int(place.max()) + 1
    full = [k for k in range(size) if (said[:, TABLES] >= WHOLE * tables)[(place == k) & (number >= 0)].all()]
    if not full:
        why = f"expected {tables[-1]} at the end of each round; sample again for longer"
        raise CaptureError(path, "tables read", said[-1, TABLES], why)
    asked = np.log(said[full, ASKED])
    even = np.linspace(asked[0], asked[-1], PAGE_LENGTHS)
    even = asked[np.unique(np.abs(asked[:, None] - even).argmin(axis=0))]
    turn = np.arange(int(number.max()) + 1)
    readings = turn[:, None] * size + np.array(full)
    lengths = np.log(np.maximum(said[readings, LENGTH] + spread[readings] // 2, 1))
    nearest = np.abs(lengths - even[turn % len(even), None]).argmin(axis=1)
    kind = np.abs(lengths[turn, nearest, None] - even).argmin(axis=1)
    return readings[turn, nearest], np.unique(kind, return_inverse=True)[1]


def heat_of(path: Path, records: np.ndarray, ends: np.ndarray, picked: np.ndarray, kind: np.ndarray) -> Heat:
    """Heat of the readings that are picked, as of samples of their own.

    ends    int64[n] records that end readings
    picked  int64[k] of them; kind: int64[k] of length, of each
    """
    said = records["word"][ends[picked]].astype(np.int64)
    batch = np.arange(len(picked)) * BATCHES // len(picked)
    samples = np.zeros((BATCHES, kind.max() + 1), np.int64)
    np.add.at(samples, (batch, kind), 1)
    seconds = np.bincount(kind, said[:, LENGTH]) / samples.sum(axis=0) / 1e9
    spread = records["window"][ends[picked]].astype(np.int64)
    mean_spread = np.bincount(kind, spread) / samples.sum(axis=0) / 1e9
    which = np.full(len(ends), -1)
    which[picked] = np.arange(len(picked))
    of = which[np.searchsorted(ends, np.arange(len(records)))]
    used = np.flatnonzero((records["level"] != ENDS) & (of >= 0))
    sample = of[used]
    group = batch[sample] * samples.shape[1] + kind[sample]
    spread, window = spread[sample], records["window"][used].astype(np.int64)
    window = np.where(window > 0, window, said[sample, LENGTH] + spread // 2)  # some are not known
    times = beyond_length(path, window, said[sample], spread)
    address, level, seen, within = pages(records[used], group, samples, times)
    return Heat(address, level, seen.reshape(-1, *samples.shape), samples, seconds, mean_spread, within)


def beyond_length(path: Path, window: np.ndarray, said: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """float64[n, 2]: ns of records' windows beyond their samples' length, and the most that is of any.

    window  int64[n]; said: int64[n, 8], the words that end the samples. CaptureError for one that cannot be.
    """
    beyond = window - said[:, LENGTH]
    wrong = (beyond < -ROUNDED) | (beyond > spread + ROUNDED)
    if wrong.any():
        why = f"expected {said[wrong][0][LENGTH]} ns or up to {spread[wrong][0]} ns more"
        raise CaptureError(path, "window", int(window[wrong][0]), why)
    return np.stack([np.clip(beyond, 0, spread), spread], axis=1).astype(float)


def footprint(
    path: Path, records: np.ndarray, ends: np.ndarray, said: np.ndarray, number: np.ndarray, place: np.ndarray
) -> Footprint | None:
    """Footprint of the tables that were read repeatedly in finished rounds; None for one length.

    number, place  int64[n] of each reading, as rounds_of returns them
    """
    size, rounds = int(place.max()) + 1, int(number.max()) + 1
    if size < 2 or not rounds:
        return None
    reading = np.searchsorted(ends, np.arange(len(records)))
    used = np.flatnonzero((records["level"] != ENDS) & (number[reading] >= 0))
    of, at = number[reading[used]], place[reading[used]]
    base, level = records["base"][used].astype(np.int64), records["level"][used].astype(np.int64)
    order = np.lexsort([at, level, base, of])
    used, of, at, base, level = (column[order] for column in (used, of, at, base, level))
    new = np.append(True, (np.diff(of) != 0) | (np.diff(base) != 0) | (np.diff(level) != 0))[: len(used)]
    first = np.flatnonzero(new)
    times = np.diff(np.append(first, len(used)))
    wrong = ~np.isin(times, (1, size)) | ((times == 1) & (at[first] != size - 1))
    if wrong.any():
        why = f"of a table in a round: 1, at its end, or {size}"
        raise CaptureError(path, "records", int(times[wrong][0]), why)
    rows = first[times == size][:, None] + np.arange(size)
    if (at[rows] != np.arange(size)).any():
        raise CaptureError(path, "records", "twice", f"of a table in one of the {size} readings of a round")
    words = records["word"][used[rows]]
    lines = (words.view(np.uint8).reshape(*rows.shape, 64) != 0).sum(axis=2, dtype=np.uint8)
    pages = np.bitwise_count(words).sum(axis=2, dtype=np.int64)
    windows = records["window"][used[rows]] / 1e9
    if (np.diff(np.where(windows > 0, windows, 0.0), axis=1) < 0).any():
        raise CaptureError(path, "window", "shorter than an earlier one", "of the same clearing")
    cpu = records["cpu"][used[rows]] * (CPU_NS / 1e9)
    last = np.flatnonzero(number >= 0)[place[number >= 0] == size - 1]
    cpus, steady = cpu_rate(windows[:, -1], cpu[:, -1], of[rows[:, 0]], said[last])
    every = used[(at == size - 1)]
    known = Rounds(
        rounds,
        np.unique(said[:, ASKED]) / 1e9,
        records["base"][ends[last - 1]] / np.maximum(said[last - 1, TABLES], 1),
        cpus,
        steady,
        float(np.median(records["cpu"][ends])) / 1e9,
        lines_ever(records[every]),
    )
    keys = np.stack([of[rows[:, 0]], base[rows[:, 0]], level[rows[:, 0]]], axis=1)
    return footprint_of(keys, lines, pages, windows, cpu, known)


def cpu_rate(windows: np.ndarray, cpu: np.ndarray, of: np.ndarray, said: np.ndarray) -> tuple[float, bool]:
    """(seconds of CPU time per second, whether rounds differ by less than EVEN).

    windows, cpu  float64[G] of the longest windows, s; of: int64[G] their rounds; said: int64[R, 8]
    """
    time, used = np.bincount(of, windows), np.bincount(of, cpu)
    rate = used[time > 0] / time[time > 0]
    if not len(rate):
        return 0.0, True
    passed = float(said[-1, AT] - said[0, AT])
    mean = float(said[-1, CPU] - said[0, CPU]) / passed if len(said) > 1 and passed else float(rate.mean())
    return max(mean, 0.0), bool(rate.std() <= EVEN * rate.mean())


def lines_ever(records: np.ndarray) -> int:
    """Lines that any of the records found used."""
    records = records[np.lexsort([records["level"], records["base"]])]
    if not len(records):
        return 0
    new = np.append(True, (np.diff(records["base"]) != 0) | (np.diff(records["level"].astype(np.int64)) != 0))
    union = np.bitwise_or.reduceat(records["word"], np.flatnonzero(new), axis=0)
    return int(np.count_nonzero(np.ascontiguousarray(union).view(np.uint8)))


def pages(
    records: np.ndarray, group: np.ndarray, samples: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(uint64[P] address, uint8[P] level, uint8 or uint16[P, groups]: records with the page's bit set,
    float32[P, L]: the part of the spread within its window, in samples of each length).

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
        pages_of(records[some], group[some], samples.shape, dtype, times[some])
        for k in range(0, len(first), BLOCK)
        for some in [slice(first[k], last[min(k + BLOCK, len(first)) - 1])]
    ]
    empty = [np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros((0, samples.size), dtype)]
    empty.append(np.zeros((0, samples.shape[1]), np.float32))
    address, level, seen, within = (np.concatenate(column) for column in zip(empty, *found, strict=True))
    order = np.argsort(address, kind="stable")
    return address[order], level[order], seen[order], within[order]


def pages_of(
    records: np.ndarray, group: np.ndarray, shape: tuple[int, int], dtype: type, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pages of few tables, whose records follow one another; shape: batches, lengths.

    Of a length in which a table has no record its windows are taken to be as in all others together.
    """
    starts = np.append(True, records["base"][1:] != records["base"][:-1])
    starts[1:] |= records["level"][1:] != records["level"][:-1]
    tables, which = records[starts], np.cumsum(starts) - 1
    bits = np.unpackbits(records["word"].view(np.uint8), axis=1, bitorder="little").reshape(-1, 512)
    counts: np.ndarray = np.zeros((len(tables), shape[0] * shape[1], 512), dtype)
    np.add.at(counts, (which, group), bits)
    counts = counts.transpose(0, 2, 1)
    table, slot = np.nonzero(counts.any(axis=2))
    level = tables["level"][table]
    address = tables["base"][table] + (slot.astype(np.uint64) << (np.uint64(3) + np.uint64(9) * level))
    beyond, spread = np.zeros((2, len(tables), shape[1]))
    np.add.at(beyond, (which, group % shape[1]), times[:, 0])
    np.add.at(spread, (which, group % shape[1]), times[:, 1])
    every = beyond.sum(axis=1, keepdims=True) / np.maximum(spread.sum(axis=1, keepdims=True), 1)
    within = np.where(spread > 0, beyond / np.maximum(spread, 1), every).astype(np.float32)
    return address, level.astype(np.uint8), counts[table, slot], within[table]


def read_records(path: Path) -> np.ndarray:
    """RECORD_DTYPE[n], validated; CaptureError if there is no whole reading."""
    with open_inside(path) as file:
        if len(head := file.read(HEADER_DTYPE.itemsize)) < HEADER_DTYPE.itemsize:
            raise CaptureError(path, "size", len(head), f"no header of {HEADER_DTYPE.itemsize} bytes")
        header = np.frombuffer(head, HEADER_DTYPE)[0]
        must_say(path, header, magic=MAGIC)
        is_older = bool(header["version"] < VERSION)
        older = " (older samples have one reading per clearing): sample again" * is_older
        must_say(path, header, older, version=VERSION)
        must_say(path, header, byte_order=BYTE_ORDER, header_bytes=SIZES[0], record_bytes=SIZES[1])
        parts = [np.zeros(0, RECORD_DTYPE)]
        while block := file.read(RECORDS_AT_ONCE * RECORD_DTYPE.itemsize):
            records = np.frombuffer(block, RECORD_DTYPE, len(block) // RECORD_DTYPE.itemsize)
            must_be_sound(path, records)  # at once, so that no hole is read to its end
            parts.append(records)
    records = np.concatenate(parts)
    if not (records["level"] == ENDS).any():
        raise CaptureError(path, "samples", 0, "no sample was finished; sample again for longer")
    return records


def must_be_sound(path: Path, records: np.ndarray) -> None:
    level, base = records["level"].astype(np.uint64), records["base"]
    if (high := int(level.max(initial=0))) > LEVELS:
        raise CaptureError(path, "level", high, f"tables of levels 1 to {LEVELS} map pages")
    ends = level == ENDS
    span = np.uint64(1) << (np.uint64(12) + np.uint64(9) * level)
    if (wrong := ~ends & ((base & (span - np.uint64(1))) != 0)).any():
        raise CaptureError(path, "base", hex(int(base[wrong][0])), "no table begins there")
    said = records["word"][ends]
    if not ((said[:, LENGTH] > 0) & (said[:, ASKED] > 0) & (said[:, : READ + 1] < 1 << 60).all(axis=1)).all():
        raise CaptureError(path, "sample", "empty", "samples last 1 ns or longer")


def copy_samples(source: Path, target: Path) -> None:
    """Write the finished readings of `source` to the new file `target`, and nothing else that is there."""
    records = read_records(source)
    records = records[: np.flatnonzero(records["level"] == ENDS)[-1] + 1]
    header = np.array([(MAGIC, VERSION, BYTE_ORDER, *SIZES, b"")], HEADER_DTYPE)
    with atomic_write(target) as file:
        file.write(header.tobytes())
        file.write(records.data)


def costs(path: str | PathLike[str]) -> dict[str, float]:
    """{"samples": clearings, "readings", "seconds" in all, "clear_ms", "read_ms" per clearing, "tables"}."""
    records = read_records(Path(path))
    said = records["word"][records["level"] == ENDS].astype(float)
    rounds = said[np.unique(said[:, ROUND], return_index=True)[1]]
    return {
        "samples": len(rounds),
        "readings": len(said),
        "seconds": len(rounds) * said[:, ASKED].max() / 1e9,
        "clear_ms": rounds[:, CLEARED].mean() / 1e6,
        "read_ms": said[:, READ].sum() / len(rounds) / 1e6,
        "tables": said[-1, TABLES],
    }
