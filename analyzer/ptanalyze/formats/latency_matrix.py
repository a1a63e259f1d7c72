"""Cache-line transfer latencies between CPUs: JSON from `ptanalyze topology measure`, or a plain table.

A plain table is UTF-8 text, cells separated by commas, tabs or blanks (the first of these that it has); lines
that begin with # are skipped. `-`, `nan` or nothing stands for a pair that was not measured and for the
diagonal. A missing row is filled from the other direction of its pairs. The first line and column name the
CPUs, as in vMitosis, Table 4, if the corner is empty, a word or left out; else CPUs are 0, 1, 2...
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import msgspec
import numpy as np

from ..core.cpu_pairs import known_pairs
from ..core.errors import CaptureError
from ..core.regular import read_given
from .json_record import decode_record, write_record

MATRIX_FORMAT = "ptanalyze-topology"
MATRIX_VERSION = 1
MATRIX_MOST_BYTES = 1 << 28
FEW, FEWEST_ROWS = 64, 4  # more CPUs than that need a row for at least every fourth
MOST_CPUS = 8192  # the largest NR_CPUS of x86, arch/x86/Kconfig
UNKNOWN = ("", "-", "nan")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII)
CPU = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class LatencyMatrix:
    """One row and column per CPU, symmetric, nan where unknown and on the diagonal.

    ns      float64[n, n]: one-way transfer
    spread  float64[n, n]: median over minimum of the repetitions, or None
    """

    cpus: tuple[int, ...]
    ns: np.ndarray
    spread: np.ndarray | None = None
    method: "Method | None" = None


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """Each pair `repeat` times `rounds` round trips, in shuffled order; the fastest burst of 100 is kept."""

    rounds: int
    repeat: int
    cpu: str
    kernel: str


class MatrixRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`ns` and `spread`: a row per CPU, a value per column, null where unknown and on the diagonal."""

    format: str
    version: int
    cpus: tuple[int, ...]
    ns: tuple[tuple[float | None, ...], ...]
    spread: tuple[tuple[float | None, ...], ...] | None = None
    method: Method | None = None


def read_matrix(path: str | PathLike[str]) -> LatencyMatrix:
    """LatencyMatrix of a file in either form; CaptureError names file, field and value."""
    content = read_given(path, MATRIX_MOST_BYTES)
    if content.lstrip()[:1] == b"{":
        return read_record(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        why = f"neither a {MATRIX_FORMAT} file nor a table of latencies"
        raise CaptureError(path, "contents", content[:30], why)
    cpus, ns = parse_table(path, text)
    return LatencyMatrix(cpus, known_pairs(ns, cpus, path))


def write_matrix(path: str | PathLike[str], matrix: LatencyMatrix) -> None:
    """Write a LatencyMatrix as JSON: whole, synced, 0600."""
    spread = None if matrix.spread is None else rows_of(matrix.spread)
    record = MatrixRecord(
        format=MATRIX_FORMAT,
        version=MATRIX_VERSION,
        cpus=matrix.cpus,
        ns=rows_of(matrix.ns),
        spread=spread,
        method=matrix.method,
    )
    write_record(path, record, given=True)


def rows_of(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """Rows for JSON: two decimals, null for nan."""
    return tuple(tuple(None if np.isnan(v) else round(v, 2) for v in row) for row in values.tolist())


def read_record(path: str | PathLike[str], content: bytes) -> LatencyMatrix:
    record = decode_record(path, content, MatrixRecord, MATRIX_FORMAT, MATRIX_VERSION)
    ns = square(path, "ns", record.ns, record.cpus)
    spread = None if record.spread is None else square(path, "spread", record.spread, record.cpus)
    for cpu in record.cpus:
        if not 0 <= cpu < MOST_CPUS:
            raise CaptureError(path, "cpus", cpu, f"expected CPU numbers from 0 to {MOST_CPUS - 1}")
    return LatencyMatrix(record.cpus, known_pairs(ns, record.cpus, path), spread, record.method)


def square(
    path: str | PathLike[str], field: str, rows: Sequence[Sequence[float | None]], cpus: Sequence[int]
) -> np.ndarray:
    widths = {len(row) for row in rows} or {0}
    if len(rows) != len(cpus) or widths != {len(cpus)}:
        shape = f"{len(rows)} rows of {'/'.join(map(str, sorted(widths)))}"
        raise CaptureError(path, field, shape, f"expected {len(cpus)} rows of {len(cpus)}, one per CPU")
    return np.array(rows, np.float64).reshape(len(cpus), len(cpus))


def parse_table(path: str | PathLike[str], text: str) -> tuple[tuple[int, ...], np.ndarray]:
    """(CPU numbers, float64[n, n] with nan where unknown) of a plain table."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip(" ")]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        raise CaptureError(path, "contents", repr(text[:30]), "no latencies in it")
    mark = next((mark for mark in (",", "\t") if any(mark in line for _, line in lines)), None)
    table = [(number, [cell.strip().lower() for cell in line.split(mark)]) for number, line in lines]
    named = names(table)
    if named is None:
        cpus = tuple(range(must_be_possible(path, table[0][0], len(table[0][1]))))
        rows = [(number, at, cells) for at, (number, cells) in enumerate(table)]
    else:
        must_be_possible(path, table[0][0], len(named))
        cpus = tuple(cpu_of(path, table[0][0], cell) for cell in named)
        rows = [(number, cpu_of(path, number, cells[0]), cells[1:]) for number, cells in table[1:]]
    return cpus, fill(path, cpus, rows)


def must_be_possible(path: str | PathLike[str], line: int, cpus: int) -> int:
    if cpus > MOST_CPUS:
        raise CaptureError(path, f"line {line}: CPUs", cpus, f"expected at most {MOST_CPUS}")
    return cpus


def names(table: list[tuple[int, list[str]]]) -> list[str] | None:
    """The cells of the first line that name the CPUs, or None where it is a row like the others."""
    head = table[0][1]
    widths = {len(cells) for _, cells in table[1:]}
    if widths == {len(head) + 1} and all(map(CPU.fullmatch, head)):
        return head
    word = head[0] not in UNKNOWN and not NUMBER.fullmatch(head[0])
    return head[1:] if word or (not head[0] and any(head)) else None


def cpu_of(path: str | PathLike[str], line: int, cell: str) -> int:
    if not CPU.fullmatch(cell) or int(cell) >= MOST_CPUS:
        why = f"expected a CPU, 0 to {MOST_CPUS - 1}, where an empty corner says that CPUs are named"
        raise CaptureError(path, f"line {line}", repr(cell[:30]), why)
    return int(cell)


def fill(
    path: str | PathLike[str], cpus: tuple[int, ...], rows: list[tuple[int, int, list[str]]]
) -> np.ndarray:
    """float64[n, n] from (line, CPU, cells) of each row; every row has a cell for each CPU."""
    at = {cpu: index for index, cpu in enumerate(cpus)}
    if len(at) < len(cpus):
        twice = next(cpu for cpu in cpus if cpus.count(cpu) > 1)
        raise CaptureError(path, "CPU", twice, "named twice in the first line")
    if len(cpus) > FEW and len(rows) < len(cpus) // FEWEST_ROWS:
        raise CaptureError(path, "rows", len(rows), f"too few for {len(cpus)} CPUs in the first line")
    ns, seen = np.full((len(cpus), len(cpus)), np.nan), set()
    for line, cpu, cells in rows:
        if cpu not in at or cpu in seen:
            why = "a second row for it" if cpu in seen else f"not square: only {len(cpus)} CPUs have a column"
            raise CaptureError(path, f"line {line}: CPU", cpu, why)
        if len(cells) != len(cpus):
            why = f"expected {len(cpus)}, one for each column of the first line"
            raise CaptureError(path, f"line {line}: latencies", len(cells), why)
        seen.add(cpu)
        ns[at[cpu]] = [latency(path, line, cell) for cell in cells]
    return ns


def latency(path: str | PathLike[str], line: int, cell: str) -> float:
    if cell in UNKNOWN:
        return np.nan
    if not NUMBER.fullmatch(cell):
        why = "expected a latency in ns, or - where there is none"
        raise CaptureError(path, f"line {line}", repr(cell[:30]), why)
    return float(cell)
