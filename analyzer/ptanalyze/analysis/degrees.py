"""Which degree of prefetching and which sharing tier costs least, by VMA: the question, and its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..formats.capture import CaptureLike
from .degree_choice import Chosen, chosen
from .degree_settings import sentence, settings
from .setup import Options, Setup, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame


def degrees(
    capture: CaptureLike = None,
    setup: Setup | None = None,
    *,
    prefetch_on: str = "first",
    repeat: float = 0,
    **options: Unpack[Options],
) -> DataFrame:
    """Cost of every degree of Hydra's prefetching and every sharing tier, by VMA; the capture needs a trace.

    prefetch_on  "first": prefetch with the first copy of a table page (the paper's 4.1), or "every" copy
    repeat       how often the steady part of the trace runs once more: copies are made once

    One row per VMA, tier and degree. Columns: vma, tier (one: a single copy, as captured; socket, node: lazy
    copies), degree, walks (as traced), walk_cycles, management_cycles (faults, copies, tables, updates and
    shootdowns, as whatif has them), cycles (the exposed share of the former, and the latter),
    bound_cycles (of the VMA: no tier with any prefetching costs less), replica_faults, entries_propagated,
    never_used (of these), tables_new, chosen (the cheapest of its VMA), sure (the ends of the exposed share
    agree), pays_back_runs (of the VMA: further runs after which copies are cheaper; infinite: never). Counts
    are of the run as traced and one further run. The last VMA, "process", is what belongs to no walked page.
    attrs: sentence, settings. Other arguments as in `replay`; of a VM, its guest's tables.
    """
    return frame(chosen(capture, setup_of(setup, options), prefetch_on, repeat))


def frame(found: Chosen) -> DataFrame:
    """The table of `degrees`."""
    from pandas import DataFrame

    from ..core.units import described

    table = DataFrame(rows(found)).astype({"degree": "Int64"})
    machine, placement = found.known.machine.name, found.known.placement
    source = found.known.provenance | {"machine": machine, "placement": placement}
    return described(table, found.known.notes, source, sentence=sentence(found), settings=settings(found))


def rows(found: Chosen) -> list[dict[str, Any]]:
    """One row per VMA, tier and degree, as `degrees` describes them."""
    vmas, points = range(len(found.known.names)), range(len(found.known.points))
    return [row(found, vma, at) for vma in vmas for at in points]


def row(found: Chosen, vma: int, at: int) -> dict[str, Any]:
    point, repeat = found.known.points[at], found.repeat
    traced, again, cycles = point.traced, point.again, float(found.cycles[at, vma])
    return {
        "vma": found.known.names[vma],
        "tier": point.tier,
        "degree": point.degree,
        "walks": int(found.known.walks[vma].sum()),
        "walk_cycles": float(traced.walks[vma] + repeat * again.walks[vma]),
        "management_cycles": float(traced.management[vma] + repeat * again.management[vma]),
        "cycles": cycles,
        "bound_cycles": float(found.bound[vma]),
        "replica_faults": int(point.faults[vma]),
        "entries_propagated": int(point.propagated[vma]),
        "never_used": int(found.never_used(point)[vma]),
        "tables_new": int(point.tables[vma]),
        "chosen": bool(found.by_vma[vma] == at),
        "sure": bool(found.sure[vma]),
        "pays_back_runs": float(found.pays_back[vma]),
    }


def as_record(found: Chosen) -> dict[str, Any]:
    """For JSON: the sentence, the settings, and the rows, where None stands for an infinite number."""
    plain = [{key: None if value == np.inf else value for key, value in row.items()} for row in rows(found)]
    return {"sentence": sentence(found), "settings": settings(found), "vmas": plain}
