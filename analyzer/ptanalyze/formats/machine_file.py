"""Writes machine files: a known machine with latencies that were measured on another."""

from os import PathLike
from pathlib import Path

import msgspec
import numpy as np

from ..core.errors import UsageError
from ..core.machine import Latency, Machine, Matrix
from .atomic import atomic_write
from .node_latency import NodeLatency
from .toml_text import toml


def with_latency(machine: Machine, measured: NodeLatency, name: str) -> Machine:
    """Machine with the nodes and latencies of a NodeLatency; both directions of a pair averaged.

    No latencies under load where none were measured. UsageError where a remote node is nearer than the local.
    """
    sized = machine.resized(len(measured.nodes))
    slow = tuple(measured.nodes.index(node) for node in measured.memory_nodes)
    gb_per_s = None if measured.bandwidth is None else _plain(measured.bandwidth)
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
    said |= {"bandwidth": measured.source} if gb_per_s else {}
    return msgspec.structs.replace(
        sized,
        name=name,
        description=f"{machine.name} with latencies measured elsewhere",
        latency=Latency(idle=idle, contended=contended),
        memory_nodes=slow,
        bandwidth=gb_per_s,
        sources={**machine.sources, **said},
    )


def _both_ways(matrix: np.ndarray) -> Matrix:
    return _plain((np.asarray(matrix, np.float64) + np.asarray(matrix, np.float64).T) / 2)


def _plain(matrix: np.ndarray) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in matrix)


def write_machine(path: str | PathLike[str], machine: Machine) -> None:
    """Write a Machine as a file that load_machine reads; UsageError unless it is named FILE.toml."""
    if Path(path).suffix != ".toml" or not Path(path).parent.is_dir():
        raise UsageError(f"{path}: expected FILE.toml in a directory that exists")
    with atomic_write(path, given=True) as out:
        out.write(toml(msgspec.to_builtins(machine)).encode())
