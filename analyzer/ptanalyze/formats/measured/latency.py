"""Latencies of DRAM between NUMA nodes: JSON of `ptanalyze topology latency`, Intel MLC's text, or ACPI SLIT.

MLC: the output of `mlc --latency_matrix`, or all that `mlc` prints; rows are the reader's node, and a node
without CPUs has a column alone. SLIT: a
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

from ...core.errors import MOST_CPUS, MOST_NODES, InputError, UsageError
from ...core.machine import LEAST, Latency, Machine, Matrix, known_pairs, walk_faults
from ...core.safe_files import read_given
from ...core.sysfs import (
    LOCAL,
    HostNode,
    HostNodes,
    distances,
    groups_of,
    node_numbers,
    nodes_of,
    without_memory,
)
from ..record import decode_record, write_record

Rows = Sequence[Sequence[float]] | np.ndarray

FORMAT, VERSION = "ptanalyze-node-latency", 1
MOST_BYTES = 1 << 20
MOST = 10**12  # ns, as in a machine file: what is computed of it stays finite
ASYMMETRIC = 0.10  # directions of a pair that differ more are named
QUIETER = 0.05  # noise: a loaded node may seem this much faster than an idle node
SHOWN = 4  # asymmetric pairs
MLC_TITLE = re.compile(r"\s*Measuring idle .*latencies", re.IGNORECASE)
MLC_HEAD_WITHIN = 6  # lines from a title on, without blank ones
MLC_HEAD = re.compile(r"\s*(Numa node|Socket)((?:\s+\d{1,4})+)\s*", re.IGNORECASE | re.ASCII)
MLC_ROW = re.compile(r"\s*(\d{1,4})((?:\s+(?:\d{1,6}(?:\.\d+)?|-|N/A))+)\s*", re.ASCII)


@dataclass(frozen=True)
class NodeLatency:
    """ns of a dependent read, [reader's node][serving node].

    nodes      numbers of the nodes, in the order of rows and columns
    idle       float64[n, n]
    contended  float64[n, n]: with other threads streaming on the serving node, None where not measured
    source     a line: how the latencies are known
    flags      oddities, a line each
    memory_nodes  numbers of those of the nodes that have no CPUs: no reads start there, so their rows are
                  their columns, and their own memory is as near as to the node that reaches it fastest
    groups     of each of the nodes, itself and the nodes of CPUs alone that count with it; (): itself
    """

    nodes: tuple[int, ...]
    idle: np.ndarray
    contended: np.ndarray | None
    source: str
    flags: tuple[str, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str
    version: int
    nodes: tuple[int, ...]
    idle_ns: tuple[tuple[float, ...], ...]
    contended_ns: tuple[tuple[float, ...], ...] | None = None
    source: str
    memory_nodes: tuple[int, ...] = ()


def read_latency(path: str | PathLike[str], local_ns: float | None = None) -> NodeLatency:
    """NodeLatency of a file or SLIT directory; `local_ns` with SLIT only.

    InputError names file, pair of nodes and value: not square, not above 0, remote below local, loaded
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
        return tiered(path, found, record.memory_nodes)
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
    )
    write_record(path, record, given=True)


def _rows(matrix: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(value, 2) for value in row) for row in matrix.tolist())


def checked(
    path: str | PathLike[str], nodes: Sequence[int], idle_rows: Rows, contended_rows: Rows | None, source: str
) -> NodeLatency:
    """NodeLatency of rows of numbers; InputError names the impossible pair."""
    if len(set(nodes)) < len(nodes) or not all(0 <= node < MOST_NODES for node in nodes):
        raise InputError(path, "nodes", list(nodes), f"expected different numbers from 0 to {MOST_NODES - 1}")
    idle = _square(path, "idle", nodes, idle_rows)
    contended = None if contended_rows is None else _square(path, "contended", nodes, contended_rows)
    flags = [*_asymmetric("idle", nodes, idle)]
    for a, b in np.ndindex(idle.shape):
        if idle[a, b] < idle[a, a]:
            why = f"below node {nodes[a]}'s own memory, {idle[a, a]:g} ns: rows are readers, columns serve"
            raise InputError(path, f"idle, node {nodes[a]} to {nodes[b]}", f"{idle[a, b]:g} ns", why)
        if contended is not None and contended[a, b] < idle[a, b] * (1 - QUIETER):
            why = f"faster than idle, {idle[a, b]:g} ns: measure again"
            raise InputError(
                path, f"contended, node {nodes[a]} to {nodes[b]}", f"{contended[a, b]:g} ns", why
            )
    if contended is not None:
        flags += _asymmetric("contended", nodes, contended)
    return NodeLatency(tuple(nodes), idle, contended, source, tuple(flags))


def tiered(path: str | PathLike[str], latency: NodeLatency, memory_nodes: Sequence[int]) -> NodeLatency:
    """NodeLatency with nodes without CPUs; InputError names what cannot be."""
    nodes = latency.nodes
    if not set(memory_nodes) < set(nodes) or len(set(memory_nodes)) < len(memory_nodes):
        why = f"expected some of the nodes {list(nodes)}, each once, and one left with CPUs"
        raise InputError(path, "memory_nodes", list(memory_nodes), why)
    return replace(latency, memory_nodes=tuple(memory_nodes))


def with_columns_as_rows(ns: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """float64[n, n]: `ns` with rows for nodes without CPUs (bool[n]): see NodeLatency.memory_nodes."""
    full = ns.copy()
    full[np.ix_(memory, ~memory)] = ns[np.ix_(~memory, memory)].T
    nearest = ns[~memory][:, memory].min(axis=0)
    full[np.ix_(memory, memory)] = np.maximum.outer(nearest, nearest)
    return full


def _square(path: str | PathLike[str], which: str, nodes: Sequence[int], rows: Rows) -> np.ndarray:
    """float64[n, n], ns."""
    if not nodes or len(rows) != len(nodes) or any(len(row) != len(nodes) for row in rows):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows})}"
        raise InputError(path, f"{which} latencies", shape, f"expected {len(nodes)} rows of {len(nodes)}")
    matrix = np.array(rows, np.float64)
    for a, b in np.argwhere(~((matrix >= LEAST) & (matrix <= MOST))):
        where = f"{which}, node {nodes[a]} to {nodes[b]}"
        why = f"expected a number from {LEAST:g}, at most {MOST:,}"
        raise InputError(path, where, f"{matrix[a, b]:g} ns", why)
    return matrix


def _asymmetric(which: str, nodes: Sequence[int], matrix: np.ndarray) -> Iterator[str]:
    """A line for each of the worst pairs."""
    pairs = np.argwhere(np.triu(abs(matrix - matrix.T) > ASYMMETRIC * matrix.T))
    pairs = pairs[np.argsort([-abs(np.log(matrix[a, b] / matrix[b, a])) for a, b in pairs], kind="stable")]
    for a, b in pairs[:SHOWN]:
        yield (
            f"{which}: node {nodes[a]} to {nodes[b]} takes {matrix[a, b]:g} ns, back {matrix[b, a]:g} ns: "
            "asymmetric; the mean is used"
        )
    if len(pairs) > SHOWN:
        yield f"{which}: {len(pairs) - SHOWN} more pairs are asymmetric"


def _slit(path: Path, local_ns: float | None) -> NodeLatency:
    nodes = nodes_of(path) or {node: HostNode((node,), True) for node in node_numbers(path)}
    if not nodes:
        raise InputError(path, "node*/distance", "none", "no directory of NUMA nodes")
    if local_ns is None or not 0 < local_ns < float("inf"):
        raise UsageError(f"{path}: SLIT distances are relative; say with --local-ns what 10 is in ns")
    source = f"ACPI SLIT, {local_ns:g} ns local as given: distances, not measurements"
    return of_firmware(path, nodes, apart(path, nodes) * local_ns / LOCAL, source)


def apart(folder: Path, nodes: HostNodes) -> np.ndarray:
    """float64[n, n]: the firmware's distances between nodes."""
    rows = distances(folder, nodes)
    return np.array([[row[to] for to in nodes] for row in rows.values()], np.float64)


def of_firmware(folder: Path, nodes: HostNodes, ns: np.ndarray, source: str) -> NodeLatency:
    """NodeLatency of float64[n, n] of all nodes: of those with memory, to which the CPUs of others count.

    Such CPUs count by their number. Both ways of a pair are averaged; none is below the reader's own.
    """
    groups, ids = groups_of(folder, nodes), [*nodes]
    cpus = np.array([[len(nodes[node].cpus) * (node in group) for node in ids] for group in groups], float)
    memory, homes = cpus.sum(axis=1) == 0, [group[0] for group in groups]
    if memory.all():
        raise InputError(folder, "node*/cpulist", "empty", "no node with CPUs: is this a whole copy?")
    at = [ids.index(home) for home in homes]
    mean = cpus / np.maximum(cpus.sum(axis=1, keepdims=True), 1) @ ns[:, at]
    with_cpus = [home for home, none in zip(homes, memory, strict=True) if not none]
    flags = [*_asymmetric("idle", with_cpus, mean[~memory][:, ~memory]), without_memory(groups)]
    both = np.ix_(~memory, ~memory)
    mean[both] = (mean[both] + mean[both].T) / 2
    own = np.where(memory, 0, mean.diagonal())
    mean = np.maximum(mean, np.maximum.outer(own, own))
    if memory.any():
        mean = with_columns_as_rows(mean, memory)
    slow = tuple(home for home in homes if home not in with_cpus)
    return NodeLatency(tuple(homes), mean, None, source, tuple(filter(None, flags)), slow, tuple(groups))


def _mlc(path: Path, text: str) -> NodeLatency:
    lines = text.splitlines()
    found = _matrix(path, lines, MLC_TITLE)
    if found is None:
        why = f"neither {FORMAT} nor what `mlc --latency_matrix` prints (Measuring idle latencies ...)"
        raise InputError(path, "contents", repr(text[:30]), why)
    nodes, rows = found
    memory = [node for node in nodes if node not in rows]
    read = {node: [_cell(path, at, cell) for cell in cells] for node, (at, cells) in rows.items()}
    if not read:
        raise InputError(path, f"node {nodes[0]}", "no latencies", "no row of numbers: the text was cut")
    if len(set(nodes)) < len(nodes):
        raise InputError(path, "nodes", nodes, "a column twice")
    _must_fit(path, "idle latencies", nodes, read)
    ns = np.array([read.get(node, [0.0] * len(nodes)) for node in nodes])
    slow = np.isin(nodes, memory)
    square = with_columns_as_rows(ns, slow) if memory else ns
    latency = checked(path, nodes, square, None, "Intel MLC, idle")
    flags = tuple(f"node {node} has no row: taken as a node without CPUs" for node in memory)
    latency = replace(latency, flags=latency.flags + flags)
    return tiered(path, latency, memory)


def _matrix(
    path: Path, lines: Sequence[str], title: re.Pattern[str]
) -> tuple[list[int], dict[int, tuple[int, list[str]]]] | None:
    """(nodes of the columns, {node of a row: (its line, cells)}) below a title; None without the title."""
    written = [(at, line) for at, line in enumerate(lines) if line.strip()]
    start = next((k for k, (_, line) in enumerate(written) if title.match(line)), None)
    if start is None:
        return None
    heads = (
        (k, match)
        for k, (_, line) in enumerate(written[start : start + MLC_HEAD_WITHIN], start)
        if (match := MLC_HEAD.fullmatch(line))
    )
    head, names = next(heads, (start, None))
    at, line = written[start]
    if names is None:
        raise InputError(path, f"line {at + 1}", repr(line.strip()[:40]), "no line of NUMA nodes after it")
    rows = {}
    for at, line in written[head + 1 :]:
        match = MLC_ROW.fullmatch(line)
        if not match:
            break
        rows[int(match[1])] = at, match[2].split()
    nodes = [int(cell) for cell in names[2].split()]
    if names[1].lower() == "socket" and {*rows} != {*nodes}:
        why = f"{len(rows)} sockets read {len(nodes)} nodes: a newer mlc prints nodes"
        raise InputError(path, f"line {written[head][0] + 1}", "Socket", why)
    return nodes, rows


def _must_fit(path: Path, which: str, nodes: Sequence[int], rows: Mapping[int, Sequence[float]]) -> None:
    if odd := [node for node in rows if node not in nodes]:
        raise InputError(path, f"{which}, node {odd[0]}", "a row", f"no column: expected {list(nodes)}")
    if any(len(row) != len(nodes) for row in rows.values()):
        shape = f"{len(rows)} rows of {sorted({len(row) for row in rows.values()})}"
        raise InputError(path, which, shape, f"expected rows of {len(nodes)}, one number per node")


def _cell(path: Path, at: int, cell: str) -> float:
    if not cell[0].isdigit():
        raise InputError(path, f"line {at + 1}", cell, "a pair that MLC did not measure")
    return float(cell)


# Machines with latencies that were measured.


def with_latency(machine: Machine, measured: NodeLatency, name: str) -> Machine:
    """Machine with the nodes and latencies of a NodeLatency; both directions of a pair averaged.

    No latencies under load where none were measured. UsageError where a remote node is nearer than the local.
    """
    sized = machine.resized(len(measured.nodes))
    slow = tuple(measured.nodes.index(node) for node in measured.memory_nodes)
    own = measured.groups or tuple((node,) for node in measured.nodes)
    idle = _both_ways(measured.idle)
    contended = None if measured.contended is None else _both_ways(measured.contended)
    odd = np.array(idle) < np.array(idle).diagonal()[:, None]
    if odd.any():
        a, b = (int(at) for at in np.argwhere(odd)[0])
        raise UsageError(
            f"latency: [{a}][{b}] = {idle[a][b]:g} ns is below node {a}'s own memory: measure again"
        )
    none = "not measured: no latencies under load"
    said = {"latency_idle": measured.source, "latency_contended": measured.source if contended else none}
    said |= {"oddities": "; ".join(measured.flags)} if measured.flags else {}
    return msgspec.structs.replace(
        sized,
        name=name,
        description=f"{machine.name} with latencies measured elsewhere",
        latency=Latency(idle=idle, contended=contended),
        memory_nodes=slow,
        host_nodes=() if own == tuple((node,) for node in range(len(own))) else own,
        sources={**machine.sources, **said},
    )


def with_walks(
    machine: Machine, nodes: Sequence[int], walks: Mapping[tuple[int, int], float], source: str
) -> tuple[Machine, str]:
    """(Machine with measured Latency.walk, "" or why they cannot be: in words).

    walks  ns by (reader's node, node of the leaf tables), of all `nodes`, in the machine's order
    """
    ns = np.array([[walks[a, b] for b in nodes] for a in nodes])
    latency = msgspec.structs.replace(machine.latency, walk=_both_ways(ns))
    made = msgspec.structs.replace(
        machine, latency=latency, sources={**machine.sources, "latency_walk": source}
    )
    for field, value, why in walk_faults(made):
        return msgspec.structs.replace(made, latency=machine.latency), f"{field} = {value:g}: {why}"
    return made, ""


def _both_ways(matrix: np.ndarray) -> Matrix:
    return tuple(map(tuple, ((matrix + matrix.T) / 2).tolist()))


# Cache-line transfer latencies between CPUs: JSON from `ptanalyze topology measure`, or a plain table.
#
# A plain table is UTF-8 text, cells separated by commas, tabs or blanks (the first of these that it has);
# lines that begin with # are skipped. `-`, `nan` or nothing stands for a pair that was not measured and for
# the diagonal. A missing row is filled from the other direction of its pairs. The first line and column name
# the CPUs, as in vMitosis, Table 4, if the corner is empty, a word or left out; else CPUs are 0, 1, 2...

MATRIX_FORMAT = "ptanalyze-topology"
MATRIX_VERSION = 1
MATRIX_MOST_BYTES = 1 << 28
FEW, FEWEST_ROWS = 64, 4  # more CPUs than that need a row for at least every fourth
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
    """LatencyMatrix of a file in either form; InputError names file, field and value."""
    content = read_given(path, MATRIX_MOST_BYTES)
    if content.lstrip()[:1] == b"{":
        return read_record(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        why = f"neither a {MATRIX_FORMAT} file nor a table of latencies"
        raise InputError(path, "contents", content[:30], why)
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
            raise InputError(path, "cpus", cpu, f"expected CPU numbers from 0 to {MOST_CPUS - 1}")
    return LatencyMatrix(record.cpus, known_pairs(ns, record.cpus, path), spread, record.method)


def square(
    path: str | PathLike[str], field: str, rows: Sequence[Sequence[float | None]], cpus: Sequence[int]
) -> np.ndarray:
    widths = {len(row) for row in rows} or {0}
    if len(rows) != len(cpus) or widths != {len(cpus)}:
        shape = f"{len(rows)} rows of {'/'.join(map(str, sorted(widths)))}"
        raise InputError(path, field, shape, f"expected {len(cpus)} rows of {len(cpus)}, one per CPU")
    return np.array(rows, np.float64).reshape(len(cpus), len(cpus))


def parse_table(path: str | PathLike[str], text: str) -> tuple[tuple[int, ...], np.ndarray]:
    """(CPU numbers, float64[n, n] with nan where unknown) of a plain table."""
    lines = [
        (number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() or "\t" in line
    ]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        raise InputError(path, "contents", repr(text[:30]), "no latencies in it")
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
        raise InputError(path, f"line {line}: CPUs", cpus, f"expected at most {MOST_CPUS}")
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
        raise InputError(path, f"line {line}", repr(cell[:30]), why)
    return int(cell)


def fill(
    path: str | PathLike[str], cpus: tuple[int, ...], rows: list[tuple[int, int, list[str]]]
) -> np.ndarray:
    """float64[n, n] from (line, CPU, cells) of each row; every row has a cell for each CPU."""
    at = {cpu: index for index, cpu in enumerate(cpus)}
    if len(at) < len(cpus):
        twice = next(cpu for cpu in cpus if cpus.count(cpu) > 1)
        raise InputError(path, "CPU", twice, "named twice in the first line")
    if len(cpus) > FEW and len(rows) < len(cpus) // FEWEST_ROWS:
        raise InputError(path, "rows", len(rows), f"too few for {len(cpus)} CPUs in the first line")
    ns, seen = np.full((len(cpus), len(cpus)), np.nan), set()
    for line, cpu, cells in rows:
        if cpu not in at or cpu in seen:
            why = "a second row for it" if cpu in seen else f"not square: only {len(cpus)} CPUs have a column"
            raise InputError(path, f"line {line}: CPU", cpu, why)
        if len(cells) != len(cpus):
            why = f"expected {len(cpus)}, one for each column of the first line"
            raise InputError(path, f"line {line}: latencies", len(cells), why)
        seen.add(cpu)
        ns[at[cpu]] = [latency(path, line, cell) for cell in cells]
    return ns


def latency(path: str | PathLike[str], line: int, cell: str) -> float:
    if cell in UNKNOWN:
        return np.nan
    if not NUMBER.fullmatch(cell):
        why = "expected a latency in ns, or - where there is none"
        raise InputError(path, f"line {line}", repr(cell[:30]), why)
    return float(cell)
