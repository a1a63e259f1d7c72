"""A question at many points: every combination of machine sizes, placements and policy parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Unpack

from ..core.errors import UsageError, is_whole
from ..core.machine import at_latency_ratio
from ..formats.capture import CaptureLike
from ..policies import Policy, has_parameter, members, parameters
from .answers import sweep_frame
from .asked_policies import Policies, asked_or_usual, policies_of
from .opened import opened
from .processes import together
from .setup import Options, Setup, setup_of
from .sweep_units import swept_apart
from .whatif import replay_snapshot
from .workers import workers_on

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.result import Result

MACHINE_KEYS = ("nodes", "placement", "contended", "latency_ratio")


def sweep(
    capture: CaptureLike = None,
    policies: Policies = (),
    grid: Mapping[str, Iterable[Any]] | None = None,
    setup: Setup | None = None,
    *,
    on: str = "",
    **options: Unpack[Options],
) -> DataFrame:
    """`whatif` at every combination of a grid: a column for each of its keys, then whatif's.

    grid  {"prefetch": range(10), "nodes": [2, 4]}: nodes (the machine's), placement, contended, latency_ratio
          (remote over local DRAM latency, core.latency_ratio), or a parameter of a policy, "prefetch"
          or "hydra.prefetch"; default: Hydra's prefetch degrees, 0 to 9. A key that a policy lacks is None
          in its rows.
    on    "dask:HOST:PORT": points are replayed by the workers of that cluster, with the same results
    Other arguments as in `replay`; windows are ignored.
    """
    points = {key: list(values) for key, values in (grid or {"prefetch": range(10)}).items()}
    return sweep_frame(swept(capture, policies, points, setup_of(setup, options), on=on), list(points))


def swept(
    capture: CaptureLike,
    policies: Policies,
    grid: Mapping[str, Sequence[Any]],
    setup: Setup,
    refused: dict[str, str] | None = None,
    on: str = "",
) -> list[tuple[dict[str, Any], Result]]:
    """[({key: value}, Result)] behind `sweep`; refused: {} gets policies that the capture does not allow."""
    known = opened(capture)
    asked = asked_or_usual(policies, known.snapshot)
    if on:
        wanted, there = points_of(asked, grid, setup)
        with workers_on(on) as workers:
            return list(swept_apart(known, there, wanted, {} if refused is None else refused, workers))
    points = sweep_snapshot(
        known.snapshot,
        known.trace,
        asked,
        grid,
        setup,
        cache_dir=known.capture.cache,
        provenance=known.provenance,
        refused={} if refused is None else refused,
        others=together(known.capture, setup.weigh),
    )
    return list(points)


def sweep_snapshot(
    snapshot: Snapshot,
    trace: Trace | None,
    asked: Policies,
    grid: Mapping[str, Sequence[Any]],
    setup: Setup,
    **kept: Any,
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Yield ({key: value}, Result) for each policy, including the baseline, at each of its points.

    asked  as `replay`'s policies; kept: cache_dir, provenance, refused and others, as replay_snapshot's
    grid   {key: [value]}: nodes (of the machine), placement, contended, latency_ratio, or a parameter of a
           policy, as "prefetch" or "hydra.prefetch"

    One replay_snapshot per machine and placement: the walks are filtered once for all its policies.
    UsageError for a key that belongs neither to the machine nor to any policy.
    """
    wanted, points = points_of(asked, grid, setup)
    for point, there in points:
        for result in replay_snapshot(snapshot, trace, wanted, there, **kept):
            yield point, result


def points_of(
    asked: Policies, grid: Mapping[str, Sequence[Any]], setup: Setup
) -> tuple[list[tuple[str | Policy, dict[str, Any]]], list[tuple[dict[str, Any], Setup]]]:
    """([(policy, settings)], [(machine and placement, their Setup)]) of a grid, as sweep_snapshot's."""
    outer = {key: grid[key] for key in MACHINE_KEYS if key in grid}
    inner = {key: values for key, values in grid.items() if key not in outer}
    pairs = policies_of(asked)
    wanted = [(name, {**own, **at}) for name, own in pairs for at in _points(name, inner)]
    _all_used(inner, [name for name, _ in pairs])
    points = [dict(zip(outer, values, strict=True)) for values in product(*outer.values())]
    return wanted, [(point, _there(setup, point)) for point in points]


def _there(setup: Setup, point: Mapping[str, Any]) -> Setup:
    """The Setup at a point of the grid's machine keys."""
    machine = setup.machine
    if "nodes" in point:
        machine = machine.resized(_number("nodes", point["nodes"]))
    if "latency_ratio" in point:
        machine = at_latency_ratio(machine, _ratio(point["latency_ratio"]))
    contended = _truth("contended", point["contended"]) if "contended" in point else setup.contended
    threads_on = point.get("placement", setup.threads_on)
    return replace(setup, machine=machine, contended=contended, threads_on=threads_on, windows=0)


def _points(name: str | Policy, inner: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """[settings]: every combination of values of the policy's parameters."""
    own = {key: values for key, values in inner.items() if _has(name, key)}
    return [dict(zip(own, values, strict=True)) for values in product(*own.values())]


def _has(name: str | Policy, key: str) -> bool:
    return any(has_parameter(policy, key) for policy in members(name))


def _all_used(inner: Mapping[str, Sequence[Any]], names: Sequence[str | Policy]) -> None:
    for key, values in inner.items():
        if not any(_has(name, key) for name in names):
            has = sorted({p[0] for name in names for policy in members(name) for p in parameters(policy)})
            raise UsageError(
                f"--set {key}={','.join(map(str, values))}: neither {', '.join(MACHINE_KEYS)} nor a "
                f"parameter of the policies asked for; they have: {', '.join(has) or 'none'}"
            )


def values(text: str) -> list[str]:
    """["0", "1", ...] from "0:9" (both ends), "0:8:2", "2,4,8"; values with commas: "0,1;2,3"."""
    if ";" in text:
        return [part.strip() for part in text.split(";") if part.strip()]
    texts: list[str] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        if len(bounds) in (2, 3) and all(_is_whole(bound) for bound in bounds):
            first, last, step = (*map(int, bounds), 1)[:3]
            if step < 1 or last < first:
                raise UsageError(
                    f"{part}: a range is FIRST:LAST or FIRST:LAST:STEP, upward, both ends included"
                )
            texts += map(str, range(first, last + 1, step))
        elif part.strip():
            texts.append(part.strip())
    if not texts:
        raise UsageError(f"{text!r}: no value; write 0:9, 2,4,8 or 0,1;2,3")
    return texts


def _is_whole(text: str) -> bool:
    return is_whole(text.removeprefix("-"))


def _number(key: str, text: str | int) -> int:
    if not _is_whole(str(text)):
        raise UsageError(f"{key} = {text}: must be a whole number")
    return int(text)


def _ratio(text: str | float) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not math.isfinite(ratio):
        raise UsageError(f"latency_ratio = {text}: must be a number, remote over local latency, such as 1.9")
    return ratio


def _truth(key: str, text: str | int) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(text).lower() not in known:
        raise UsageError(f"{key} = {text}: true or false")
    return known[str(text).lower()]
