"""A question at many points: every combination of machine sizes, placements and policy parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from ..core.errors import UsageError, is_whole
from ..core.machine import at_latency_ratio
from ..core.options import Keywords
from ..cost.result import Result
from ..formats.capture import Capture, CaptureLike, load
from ..policies import Policy, members, parameters, speaks_to
from .frames import sweep_frame
from .replay import with_refusals
from .setup import Policies, Setup, asked_or_usual, open_replay_capture, policies_of, setup_of
from .whatif import chosen, replay_scenario

if TYPE_CHECKING:
    from pandas import DataFrame


AXES: dict[str, tuple[Any, str]] = {  # of the machine: type of the values, and what they are
    "nodes": (int, "must be a whole number"),
    "placement": (str, ""),
    "contended": (bool, "true or false"),
    "latency_ratio": (float, "must be a number, remote over local latency, such as 1.9"),
}


def sweep(
    capture: CaptureLike = None,
    policies: Policies = (),
    grid: Mapping[str, Iterable[Any]] | None = None,
    setup: Setup | None = None,
    **options: Unpack[Keywords],
) -> DataFrame:
    """`whatif` at every combination of a grid: a column for each of its keys, then whatif's.

    grid  {"prefetch": range(10), "nodes": [2, 4]}: nodes (the machine's), placement, contended, latency_ratio
          (remote over local DRAM latency, core.machine), or a parameter of a policy, "prefetch"
          or "hydra.prefetch"; default: Hydra's prefetch degrees, 0 to 9. A key that a policy lacks is None.
    Other arguments as in `replay`; windows are ignored.
    """
    refused = dict[str, str]()
    axes = {key: list(values) for key, values in (grid or {"prefetch": range(10)}).items()}
    known = load(capture)
    points = swept(known, policies, axes, setup_of(setup, options, known), refused)
    return sweep_frame(points, list(axes), refused)


def swept(
    capture: Capture,
    policies: Policies,
    grid: Mapping[str, Sequence[Any]],
    setup: Setup,
    refused: dict[str, str],
) -> list[tuple[dict[str, Any], Result]]:
    """[({key: value}, Result)] behind `sweep`; refused: {} gets policies that the capture does not allow.

    The walks are filtered once for all policies of a point.
    """
    known = open_replay_capture(capture)
    wanted, points = points_of(asked_or_usual(policies, known.snapshot), grid, setup)
    rows = []
    for point, there in points:
        not_here = dict[str, str]()
        scenario = known.scenario(there)
        plans = chosen(wanted, scenario, there)
        results = replay_scenario(scenario, plans, there, known.provenance, not_here, known.others(there))
        refused |= not_here
        asked = len(results) - len(plans) + len(wanted)
        rows += [(point, result) for result in with_refusals(results, not_here, asked)]
    return rows


def points_of(
    asked: Policies, grid: Mapping[str, Sequence[Any]], setup: Setup
) -> tuple[list[tuple[str | Policy, dict[str, Any]]], list[tuple[dict[str, Any], Setup]]]:
    """([(policy, settings)], [(machine and placement, their Setup)]) of a grid.

    grid  as of `sweep`; UsageError for a key that belongs neither to the machine nor to any policy
    """
    outer = {key: grid[key] for key in AXES if key in grid}
    inner = {key: values for key, values in grid.items() if key not in outer}
    pairs = policies_of(asked)
    each = [{key: values for key, values in inner.items() if _has(name, key)} for name, _ in pairs]
    wanted = [
        (name, {**own, **dict(zip(keys, values, strict=True))})
        for (name, own), keys in zip(pairs, each, strict=True)
        for values in product(*keys.values())
    ]
    for key, values in inner.items():
        if not any(_has(name, key) for name, _ in pairs):
            has = sorted({p[0] for name, _ in pairs for policy in members(name) for p in parameters(policy)})
            raise UsageError(
                f"--set {key}={','.join(map(str, values))}: neither {', '.join(AXES)} nor a "
                f"parameter of the policies asked for; they have: {', '.join(has) or 'none'}"
            )
    points = [dict(zip(outer, values, strict=True)) for values in product(*outer.values())]
    return wanted, [(point, _there(setup, point)) for point in points]


def _there(setup: Setup, point: Mapping[str, Any]) -> Setup:
    """The Setup at a point of the grid's machine keys; UsageError for a value of another type."""
    machine, at = setup.machine, dict[str, Any]()
    for key, value in point.items():
        kind, what = AXES[key]
        try:
            at[key] = msgspec.convert(str(value), kind, strict=False)  # NumPy's numbers, too
        except msgspec.ValidationError:
            raise UsageError(f"{key} = {value}: {what}") from None
    if "nodes" in at:
        machine = machine.resized(at["nodes"])
    if "latency_ratio" in at:
        machine = at_latency_ratio(machine, at["latency_ratio"])
    contended, threads_on = at.get("contended", setup.contended), at.get("placement", setup.threads_on)
    return replace(setup, machine=machine, contended=contended, threads_on=threads_on, windows=0)


def _has(name: str | Policy, key: str) -> bool:
    last = key.rpartition(".")[2]
    return any(speaks_to(key, one) and last in one.params.__struct_fields__ for one in members(name))


def values(text: str) -> list[str]:
    """["0", "1", ...] from "0:9" (both ends), "0:8:2", "2,4,8"; values with commas: "0,1;2,3"."""
    if ";" in text:
        return [part.strip() for part in text.split(";") if part.strip()]
    texts: list[str] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        if len(bounds) in (2, 3) and all(is_whole(bound.removeprefix("-")) for bound in bounds):
            first, last, step = (*map(int, bounds), 1)[:3]
            if step < 1 or last < first:
                how = "a range is FIRST:LAST or FIRST:LAST:STEP, upward, both ends included"
                raise UsageError(f"{part}: {how}")
            texts += map(str, range(first, last + 1, step))
        elif part.strip():
            texts.append(part.strip())
    if not texts:
        raise UsageError(f"{text!r}: no value; write 0:9, 2,4,8 or 0,1;2,3")
    return texts
