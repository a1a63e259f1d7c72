"""Writes machine files: a known machine with latencies that were measured on another."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...core.errors import InputError, UsageError
from ...core.interval import Interval
from ...core.machine import Latency, Machine, Matrix, walk_faults
from ...core.safe_files import Undecodable, plain_toml, read_given, struct_of
from ...cost.calibrate import check_pair
from ...cost.law import LEAST as LEAST_MEASURED
from ...cost.law import Calibration, MeasuredRun, impossible, placement
from ..atomic import atomic_write
from ..text_output import toml
from .latency import NodeLatency


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
    return _plain((np.asarray(matrix, np.float64) + np.asarray(matrix, np.float64).T) / 2)


def _plain(matrix: np.ndarray) -> Matrix:
    return tuple(tuple(float(value) for value in row) for row in matrix)


def write_machine(path: str | PathLike[str], machine: Machine) -> None:
    """Write a Machine as a file that load_machine reads; UsageError unless it is named FILE.toml."""
    if Path(path).suffix != ".toml" or not Path(path).parent.is_dir():
        raise UsageError(f"{path}: expected FILE.toml in a directory that exists")
    with atomic_write(path, given=True) as out:
        out.write(toml(msgspec.to_builtins(machine)).encode())


# Calibration files: TOML with fixed fields, written by `ptanalyze calibrate`, read strictly.

FORMAT, VERSION = "ptanalyze-calibration", 2
INTERVALS = (
    "exposed",
    "shared",
    "dram_share",
    "gpt_part",
    "remote_stretch",
    "contended_stretch",
    "data_share",
    "data_loaded",
)
NUMBERS = ("walkers", "busy", "noise", "counted_noise", "repair")
LEAST = {"remote_stretch": 1.0, "contended_stretch": 1.0}
MOST = {"exposed": 1.0, "gpt_part": 1.0}
FACTOR = 1e6  # no coefficient is beyond


class Record(Calibration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: str
    version: int
    exposed: Interval | None = None
    dram_share: Interval | None = None


def write_calibration(path: str | PathLike[str], calibration: Calibration) -> None:
    """Write a Calibration as TOML: whole, synced, 0600."""
    fields = {"format": FORMAT, "version": VERSION, **msgspec.to_builtins(calibration)}
    with atomic_write(path, given=True) as out:
        out.write(toml(fields).encode())


def read_calibration(path: str | PathLike[str]) -> Calibration:
    """Calibration of a file; InputError names file, field and value where it is damaged."""
    try:
        return _checked(path, plain_toml(read_given(path)))
    except Undecodable as error:
        raise error.of(path, InputError) from None


def _checked(path: str | PathLike[str], raw: dict[str, Any]) -> Calibration:
    if raw.get("format") != FORMAT:
        raise InputError(path, "format", raw.get("format"), f"expected {FORMAT}")
    if raw.get("version") != VERSION:
        raise InputError(path, "version", raw.get("version"), f"this release reads version {VERSION}")
    record = struct_of(raw, Record)
    _check(path, record)
    return Calibration(**{field: getattr(record, field) for field in Calibration.__struct_fields__})


def _check(path: str | PathLike[str], record: Record) -> None:
    for field in INTERVALS:
        interval = getattr(record, field)
        low, high = LEAST.get(field, 0.0), MOST.get(field, FACTOR)
        if interval is not None and not (low <= interval.low <= interval.middle <= interval.high <= high):
            shown = ", ".join(f"{value:g}" for value in interval)
            raise InputError(
                path, field, shown, f"expected low, middle, high in this order from {low:g} to {high:g}"
            )
    for field in NUMBERS:
        value = getattr(record, field)
        known = bool(value) if field != "walkers" else value is not None
        if known and not LEAST_MEASURED <= value <= FACTOR:
            raise InputError(path, field, value, f"expected a number from {LEAST_MEASURED:g} to {FACTOR:g}")
    for which in ("local", "remote"):
        _check_run(path, which, getattr(record, which))
    if (record.remote is None) != (record.placement is None):
        raise InputError(path, "placement", record.placement, "a remote run and its placement go together")
    for field in ("placement", "at"):
        name = getattr(record, field)
        if name is not None and not _fits(name, record.native):
            raise InputError(path, field, name, "does not fit the rest of the file")
    _check_pair(path, record)


def _check_pair(path: str | PathLike[str], record: Record) -> None:
    """One run needs its counters; two need a time in common and different placements."""
    local, remote = record.local, record.remote
    if remote is None:
        if None in (record.exposed, record.dram_share, local.walk, local.cycles):
            why = "one run is not enough without its cycles, walk cycles, exposed and dram_share"
            raise InputError(path, "remote", None, why)
        return
    try:
        check_pair(
            local, remote, placement(record.placement or ""), placement(record.at) if record.at else None
        )
    except UsageError as error:
        raise InputError(path, "remote", record.placement, str(error)) from None


def _fits(name: str, native: bool) -> bool:
    try:
        where = placement(name)
    except UsageError:
        return False
    return (where.ept is None) == native


def _check_run(path: str | PathLike[str], which: str, run: MeasuredRun | None) -> None:
    if run is None:
        return
    if run.cycles is None and run.seconds is None:
        raise InputError(path, f"{which}.cycles", None, "expected cycles, or seconds")
    for field, value, why in impossible(run):
        raise InputError(path, f"{which}.{field}", value, why)
