"""A sweep in units that workers replay apart: a point of the grid, and some of its policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .opened import opened
from .refusals import label, told
from .replay import chosen, replay_world
from .workers import Workers, carried_out, received, sent

if TYPE_CHECKING:
    from ..cost.result import Result
    from ..formats.capture import Capture
    from ..policies import Policy
    from .opened import Opened
    from .setup import Setup

Asked = Sequence["tuple[str | Policy, Mapping[str, Any]]"]
UNITS_PER_WORKER = 2  # so that the last unit of one is not waited for by all others


@dataclass(frozen=True)
class Unit:
    """asked: all policies of the point, of which plans first to last - 1 are replayed, and the baseline."""

    capture: Capture
    provenance: Mapping[str, str]
    setup: Setup
    asked: Asked
    first: int
    last: int


@dataclass(frozen=True)
class Part:
    """Results of a unit, the baseline's first; refused: {policy: why}; plans: number of the whole point's."""

    results: list[Result]
    refused: dict[str, str]
    plans: int


def swept_apart(
    known: Opened,
    points: Sequence[tuple[dict[str, Any], Setup]],
    asked: Asked,
    refused: dict[str, str],
    workers: Workers,
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Yield ({key: value}, Result) as sweep_snapshot does, in the same order, replayed by workers.

    points  [(point, its Setup)]; refused: gets {policy: why}
    """
    cuts = _cuts(len(asked), len(points), workers.count)
    progress = points[0][1].progress if points else None
    capture = sent(known.capture)
    units = [
        Unit(capture, known.provenance, replace(setup, progress=None), asked, first, last)
        for _, setup in points
        for first, last in cuts
    ]
    parts = carried_out(workers, replayed_unit, units, progress, "units of a sweep")
    for k, (point, _) in enumerate(points):
        of_point = parts[k * len(cuts) : (k + 1) * len(cuts)]
        for part in of_point:
            refused |= part.refused
        base, plans = of_point[0].results[0], of_point[0].plans
        results = [base, *(result for part in of_point for result in part.results[1:])]
        for result in told(results, refused, len(results) - plans + len(asked)):
            yield point, result


def _cuts(policies: int, points: int, workers: int) -> list[tuple[int, int]]:
    """[(first, last)] of plans, the baseline being 0: as few pieces as keep all workers busy.

    A piece of a point filters and caches the walks of that point again, so that fewer are cheaper.
    """
    pieces = max(1, min(policies, -(-UNITS_PER_WORKER * workers // max(points, 1))))
    bounds = [1 + policies * k // pieces for k in range(pieces + 1)]
    return list(pairwise(bounds))


def replayed_unit(unit: Unit) -> Part:
    """Replay a Unit; each of its Results is what a replay of the whole point would give."""
    known = opened(received(unit.capture))
    world = known.world(unit.setup)
    plans = chosen(unit.asked, world, unit.setup)
    mine = [plans[0], *plans[unit.first : unit.last]]
    refused: dict[str, str] = {}
    results = replay_world(world, mine, unit.setup, unit.provenance, refused, known.others(unit.setup))
    whole = {label(plan, mine): label(plan, plans) for plan in mine}
    return Part(results, {whole[name]: why for name, why in refused.items()}, len(plans))
