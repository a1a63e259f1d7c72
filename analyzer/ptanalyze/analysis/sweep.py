"""One question at many points: every combination of machine sizes, placements and policy parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from ..policies import has_parameter, members, parameters
from .whatif import whatif

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..core.machine import Machine
    from ..core.progress import Progress
    from ..core.snapshot import Snapshot
    from ..core.trace import Trace
    from ..cost.result import Result

MACHINE_KEYS = ("nodes", "placement", "contended")


def sweep(
    snapshot: Snapshot,
    trace: Trace | None,
    machine: Machine,
    names: Sequence[str],
    grid: Mapping[str, Sequence[Any]],
    *,
    progress: Progress = None,
    **options: Any,
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Yield ({key: value}, Result) for each policy at each point that concerns it, the baseline's included.

    names    policies as "hydra" or "ptemagnet+hydra"
    grid     {key: [value]}: nodes (of the machine), placement, contended, or a parameter of a policy, as
             "prefetch" or "hydra.prefetch"
    options  as whatif's

    One run of whatif a machine and placement: the walks are filtered once for all policies there.
    UsageError for a key that is neither the machine's nor any policy's.
    """
    options = dict(options)
    outer = {key: grid[key] for key in MACHINE_KEYS if key in grid}
    inner = {key: values for key, values in grid.items() if key not in outer}
    wanted = [one for name in names for one in _points(name, inner)]
    _all_used(inner, names)
    for values in product(*outer.values()):
        point = dict(zip(outer, values, strict=True))
        there = machine.resized(_number("nodes", point["nodes"])) if "nodes" in point else machine
        if "placement" in point:
            options["placement"] = point["placement"]
        if "contended" in point:
            options["contended"] = _truth("contended", point["contended"])
        policies = [(name, settings) for name, settings in wanted]
        results = whatif(snapshot, trace, there, policies, progress=progress, **options)
        yield from ((point, result) for result in results)


def _points(name: str, inner: Mapping[str, Sequence[Any]]) -> list[tuple[str, dict[str, Any]]]:
    """[(name, settings)]: every combination of the values of parameters that the policy has."""
    own = {key: values for key, values in inner.items() if _has(name, key)}
    return [(name, dict(zip(own, values, strict=True))) for values in product(*own.values())]


def _has(name: str, key: str) -> bool:
    return any(has_parameter(policy, key) for policy in members(name))


def _all_used(inner: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
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
    found: list[str] = []
    for part in text.split(","):
        bounds = part.strip().split(":")
        if len(bounds) in (2, 3) and all(_is_whole(bound) for bound in bounds):
            first, last, step = (*map(int, bounds), 1)[:3]
            if step < 1 or last < first:
                raise UsageError(
                    f"{part}: a range is FIRST:LAST or FIRST:LAST:STEP, upward, both ends included"
                )
            found += map(str, range(first, last + 1, step))
        elif part.strip():
            found.append(part.strip())
    if not found:
        raise UsageError(f"{text!r}: no value; write 0:9, 2,4,8 or 0,1;2,3")
    return found


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _number(key: str, text: str | int) -> int:
    if not _is_whole(str(text)):
        raise UsageError(f"{key} = {text}: must be a whole number")
    return int(text)


def _truth(key: str, text: str | int) -> bool:
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if str(text).lower() not in known:
        raise UsageError(f"{key} = {text}: true or false")
    return known[str(text).lower()]


def frame(points: Sequence[tuple[Mapping[str, Any], Result]]) -> DataFrame:
    """pandas.DataFrame of [(point, Result)]: the point's columns, then the Result's row."""
    import pandas

    return pandas.DataFrame([{**point, **result.row()} for point, result in points])
