"""Latencies of DRAM between NUMA nodes: JSON of `ptanalyze topology latency`, Intel MLC's text, or ACPI SLIT.

MLC: the output of `mlc --latency_matrix`, or all that `mlc` prints; rows are the reader's node, and a node
without CPUs has a column alone. `mlc --bandwidth_matrix` in the same file is read too. SLIT: a
directory such as /sys/devices/system/node with node*/distance; only relative, 10 = local (ACPI, 5.2.17), so
it needs the local latency in ns. Neither knows latencies under load.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np

from ..core.errors import CaptureError, UsageError
from ..core.regular import read_given
from .json_record import decode_record, write_record

Rows = Sequence[Sequence[float]] | np.ndarray

FORMAT, VERSION = "ptanalyze-node-latency", 1
MOST_BYTES = 1 << 20
MOST = 10**12  # ns, as in a machine file: what is computed of it stays finite
MOST_NODES = 1024  # MAX_NUMNODES of x86, arch/x86/Kconfig
ASYMMETRIC = 0.10  # directions of a pair that differ more are named
QUIETER = 0.05  # noise: a loaded node may seem this much faster than an idle node
SLIT_LOCAL = 10
MLC_TITLE = re.compile(r"\s*Measuring idle .*latencies", re.IGNORECASE)
MLC_BANDWIDTH = re.compile(r"\s*Measuring Memory Bandwidths between nodes", re.IGNORECASE)
MLC_HEAD_WITHIN = 8  # lines after a title
MLC_HEAD = re.compile(r"\s*Numa node((?:\s+\d{1,4})+)\s*", re.IGNORECASE | re.ASCII)
MLC_ROW = re.compile(r"\s*(\d{1,4})((?:\s+(?:\d{1,6}(?:\.\d+)?|-|N/A))+)\s*", re.ASCII)


@dataclass(frozen=True)
class NodeLatency:
    """ns of a dependent read, [reader's node][serving node].

    nodes      numbers of the nodes, in the order of rows and columns
    idle       float64[n, n]
    contended  float64[n, n]: with other threads streaming on the serving node, None where not measured
    source     a line: how the latencies are known
    flags      oddities, a line each
    memory_nodes  numbers of those of the nodes that have no CPUs: nobody reads from there, so their rows are
                  their columns, and their own memory is as near as to the node that reaches it fastest
    bandwidth  float64[n, n]: GB/s of reads, 0 where nobody reads, or None
    """

    nodes: tuple[int, ...]
    idle: np.ndarray
    contended: np.ndarray | None
    source: str
    flags: tuple[str, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    bandwidth: np.ndarray | None = None


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str
    version: int
    nodes: tuple[int, ...]
    idle_ns: tuple[tuple[float, ...], ...]
    contended_ns: tuple[tuple[float, ...], ...] | None = None
    source: str
    memory_nodes: tuple[int, ...] = ()
    bandwidth_gb_per_s: tuple[tuple[float, ...], ...] | None = None


def read_latency(path: str | PathLike[str], local_ns: float | None = None) -> NodeLatency:
    """NodeLatency of a file or SLIT directory; `local_ns` with SLIT only.

    CaptureError names file, pair of nodes and value: not square, not above 0, remote below local, loaded
    below idle. UsageError for a SLIT without local_ns.
    """
    path = Path(path)
    if path.is_dir():
        return _slit(path, local_ns)
    if local_ns is not None:
        raise UsageError(f"{path}: has latencies of its own: the local latency is for SLIT directories only")
    content = read_given(path, MOST_BYTES)
    if content.lstrip()[:1] == b"{":
        record = decode_record(path, content, Record, FORMAT, VERSION)
        found = checked(path, record.nodes, record.idle_ns, record.contended_ns, record.source)
        return tiered(path, found, record.memory_nodes, record.bandwidth_gb_per_s)
    return _mlc(path, content.decode("utf-8", "replace"))


def write_latency(path: str | PathLike[str], latency: NodeLatency) -> None:
    """Write a NodeLatency as JSON: whole, synced, 0600."""
    contended = None if latency.contended is None else _rows(latency.contended)
    record = Record(
        format=FORMAT,
        version=VERSION,
        nodes=latency.nodes,
        idle_ns=_rows(latency.idle),
        contended_ns=contended,
        source=latency.source,
        memory_nodes=latency.memory_nodes,
        bandwidth_gb_per_s=None if latency.bandwidth is None else _rows(latency.bandwidth),
    )
    write_record(path, record, given=True)


def _rows(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(value, 2) for value in row) for row in matrix.tolist())


def checked(
    path: str | PathLike[str], nodes: Sequence[int], idle_rows: Rows, contended_rows: Rows | None, source: str
) -> NodeLatency:
    """NodeLatency of rows of numbers; CaptureError names the impossible pair."""
    if len(set(nodes)) < len(nodes) or not all(0 <= node < MOST_NODES for node in nodes):
        raise CaptureError(
            path, "nodes", list(nodes), f"expected different numbers from 0 to {MOST_NODES - 1}"
        )
    idle = _square(path, "idle", nodes, idle_rows)
    contended = None if contended_rows is None else _square(path, "contended", nodes, contended_rows)
    flags = [*_asymmetric("idle", nodes, idle)]
    for a, b in np.ndindex(idle.shape):
        if idle[a, b] < idle[a, a]:
            why = f"below node {nodes[a]}'s own memory, {idle[a, a]:g} ns: rows are readers, columns serve"
            raise CaptureError(path, f"idle, node {nodes[a]} to {nodes[b]}", f"{idle[a, b]:g} ns", why)
        if contended is not None and contended[a, b] < idle[a, b] * (1 - QUIETER):
            why = f"faster than idle, {idle[a, b]:g} ns: measure again"
            raise CaptureError(
                path, f"contended, node {nodes[a]} to {nodes[b]}", f"{contended[a, b]:g} ns", why
            )
    if contended is not None:
        flags += _asymmetric("contended", nodes, contended)
    return NodeLatency(tuple(nodes), idle, contended, source, tuple(flags))


def tiered(
    path: str | PathLike[str], latency: NodeLatency, memory_nodes: Sequence[int], bandwidth: Rows | None
) -> NodeLatency:
    """NodeLatency with nodes without CPUs and bandwidths in GB/s; CaptureError names what cannot be."""
    nodes = latency.nodes
    if not set(memory_nodes) < set(nodes) or len(set(memory_nodes)) < len(memory_nodes):
        why = f"expected some of the nodes {list(nodes)}, each once, and one left with CPUs"
        raise CaptureError(path, "memory_nodes", list(memory_nodes), why)
    gb_per_s = None if bandwidth is None else _square(path, "bandwidth", nodes, bandwidth, "GB/s", 0.0)
    return replace(latency, memory_nodes=tuple(memory_nodes), bandwidth=gb_per_s)


def with_columns_as_rows(ns: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """float64[n, n]: `ns` with rows for nodes without CPUs (bool[n]): see NodeLatency.memory_nodes."""
    full = ns.copy()
    full[np.ix_(memory, ~memory)] = ns[np.ix_(~memory, memory)].T
    nearest = ns[~memory][:, memory].min(axis=0)
    full[np.ix_(memory, memory)] = np.maximum.outer(nearest, nearest)
    return full


def _square(
    path: str | PathLike[str],
    which: str,
    nodes: Sequence[int],
    rows: Rows,
    unit: str = "ns",
    least: float | None = None,
) -> np.ndarray:
    """float64[n, n]; least: None: above 0."""
    if not nodes or len(rows) != len(nodes) or any(len(row) != len(nodes) for row in rows):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows})}"
        what = which if unit != "ns" else f"{which} latencies"
        raise CaptureError(path, what, shape, f"expected {len(nodes)} rows of {len(nodes)}")
    matrix = np.array(rows, np.float64)
    possible = matrix > 0 if least is None else matrix >= least
    for a, b in np.argwhere(~(possible & (matrix <= MOST))):
        where = f"{which}, node {nodes[a]} to {nodes[b]}"
        why = "expected a number above 0" if least is None else "expected a number, 0 where nobody reads"
        raise CaptureError(path, where, f"{matrix[a, b]:g} {unit}", f"{why}, at most {MOST:,}")
    return matrix


def _asymmetric(which: str, nodes: Sequence[int], matrix: np.ndarray) -> Iterator[str]:
    for a, b in np.argwhere(np.triu(abs(matrix - matrix.T) > ASYMMETRIC * matrix.T)):
        yield (
            f"{which}: node {nodes[a]} to {nodes[b]} takes {matrix[a, b]:g} ns, back {matrix[b, a]:g} ns: "
            "asymmetric; the mean is used"
        )


def _slit(path: Path, local_ns: float | None) -> NodeLatency:
    ids = sorted(int(p.name[4:]) for p in path.glob("node[0-9]*") if p.name[4:].isdigit())
    if not ids:
        raise CaptureError(path, "node*/distance", "none", "no directory of NUMA nodes")
    if local_ns is None or not 0 < local_ns < float("inf"):
        raise UsageError(f"{path}: SLIT distances are relative; say with --local-ns what 10 is in ns")
    rows = []
    for node in ids:
        file = path / f"node{node}" / "distance"
        text = read_given(file, MOST_BYTES).decode("ascii", "replace")
        if not re.fullmatch(r"\s*\d{1,3}(\s+\d{1,3})*\s*", text, re.ASCII):
            raise CaptureError(file, "distances", repr(text[:30]), "expected numbers")
        rows.append([int(cell) * local_ns / SLIT_LOCAL for cell in text.split()])
    source = f"ACPI SLIT, {local_ns:g} ns local as given: distances, not measurements"
    return checked(path, ids, rows, None, source)


def _mlc(path: Path, text: str) -> NodeLatency:
    lines = text.splitlines()
    found = _matrix(path, lines, MLC_TITLE)
    if found is None:
        why = f"neither {FORMAT} nor what `mlc --latency_matrix` prints (Measuring idle latencies ...)"
        raise CaptureError(path, "contents", repr(text[:30]), why)
    nodes, rows = found
    memory = [node for node in nodes if node not in rows]
    read = {node: [_cell(path, at, cell) for cell in cells] for node, (at, cells) in rows.items()}
    if not read:
        raise CaptureError(path, f"node {nodes[0]}", "no latencies", "no row of numbers: the text was cut")
    if len(set(nodes)) < len(nodes):
        raise CaptureError(path, "nodes", nodes, "a column twice")
    _must_fit(path, "idle latencies", nodes, read)
    ns = np.array([read.get(node, [0.0] * len(nodes)) for node in nodes])
    slow = np.isin(nodes, memory)
    square = with_columns_as_rows(ns, slow) if memory else ns
    latency = checked(path, nodes, square, None, "Intel MLC, idle")
    loaded = _matrix(path, lines, MLC_BANDWIDTH)
    flags = tuple(f"node {node} has no row: taken as a node without CPUs" for node in memory)
    latency = replace(latency, flags=latency.flags + flags)
    return tiered(path, latency, memory, None if loaded is None else _bandwidths(path, nodes, *loaded))


def _matrix(
    path: Path, lines: Sequence[str], title: re.Pattern[str]
) -> tuple[list[int], dict[int, tuple[int, list[str]]]] | None:
    """(nodes of the columns, {node of a row: (its line, cells)}) below a title; None without the title."""
    start = next((at for at, line in enumerate(lines) if title.match(line)), None)
    if start is None:
        return None
    heads = (
        (at, match)
        for at, line in enumerate(lines[start : start + MLC_HEAD_WITHIN], start)
        if (match := MLC_HEAD.fullmatch(line))
    )
    head, names = next(heads, (start, None))
    if names is None:
        raise CaptureError(
            path, f"line {start + 1}", repr(lines[start].strip()[:40]), "no line of NUMA nodes after it"
        )
    rows = {}
    for at in range(head + 1, len(lines)):
        match = MLC_ROW.fullmatch(lines[at])
        if not match:
            break
        rows[int(match[1])] = at, match[2].split()
    return [int(cell) for cell in names[1].split()], rows


def _must_fit(path: Path, which: str, nodes: Sequence[int], rows: Mapping[int, Sequence[float]]) -> None:
    if odd := [node for node in rows if node not in nodes]:
        raise CaptureError(path, f"{which}, node {odd[0]}", "a row", f"no column: expected {list(nodes)}")
    if any(len(row) != len(nodes) for row in rows.values()):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows.values()})}"
        raise CaptureError(path, which, shape, f"expected rows of {len(nodes)}, one number per node")


def _bandwidths(
    path: Path, nodes: Sequence[int], columns: Sequence[int], rows: Mapping[int, tuple[int, list[str]]]
) -> np.ndarray:
    """float64[n, n]: GB/s of MLC's MB/s, 0 for readers without a row."""
    read = {node: [_cell(path, at, cell) / 1000 for cell in cells] for node, (at, cells) in rows.items()}
    if list(columns) != list(nodes):
        raise CaptureError(path, "bandwidths, nodes", list(columns), f"latencies are of {list(nodes)}")
    _must_fit(path, "bandwidths", nodes, read)
    return np.array([read.get(node, [0.0] * len(nodes)) for node in nodes])


def _cell(path: Path, at: int, cell: str) -> float:
    if not cell[0].isdigit():
        raise CaptureError(path, f"line {at + 1}", cell, "a pair that MLC did not measure")
    return float(cell)
