"""Latencies of DRAM between NUMA nodes: JSON of `ptanalyze topology latency`, and machines with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import msgspec
import numpy as np

from ...core.errors import MOST_NODES, InputError, UsageError
from ...core.machine import LEAST, Latency, Machine, Matrix, walk_faults
from ...core.safe_files import read_given
from ...core.sysfs import HostNodes, distances, groups_of, without_memory
from ..record import decode_record, write_record

Rows = Sequence[Sequence[float]] | np.ndarray

FORMAT, VERSION = "ptanalyze-node-latency", 1
MOST_BYTES = 1 << 20
MOST = 10**12  # ns, as in a machine file: what is computed of it stays finite
ASYMMETRIC = 0.10  # directions of a pair that differ more are named
QUIETER = 0.05  # noise: a loaded node may seem this much faster than an idle node
SHOWN = 4  # asymmetric pairs


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


def read_latency(path: str | PathLike[str]) -> NodeLatency:
    """NodeLatency of a file.

    InputError names file, pair of nodes and value: not square, not above 0, remote below local, loaded
    below idle.
    """
    record = decode_record(path, read_given(path, MOST_BYTES), Record, FORMAT, VERSION, InputError)
    latency = checked(path, record.nodes, record.idle_ns, record.contended_ns, record.source)
    nodes = latency.nodes
    if not set(record.memory_nodes) < set(nodes) or len(set(record.memory_nodes)) < len(record.memory_nodes):
        why = f"expected some of the nodes {list(nodes)}, each once, and one left with CPUs"
        raise InputError(path, "memory_nodes", list(record.memory_nodes), why)
    return replace(latency, memory_nodes=record.memory_nodes)


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
        raise InputError(folder, "node*/cpulist", "empty", "no node with CPUs")
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
