"""Fragmentation of a capture: ePT cache lines per gPT cache line, before and after reservations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..formats.capture import Capture, CaptureLike, load
from ..policies import plan_for
from ..world.address_space import address_space
from ..world.reservations import Fragmentation, measure
from .frames import fragmentation_frame
from .setup import Settings, Setup, opened, provenance_of, setup_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..world.world import World


def fragmentation(
    capture: CaptureLike = None,
    *,
    by: str = "all",
    after: bool | Settings = False,
    setup: Setup | None = None,
    **options: Any,
) -> DataFrame:
    """gPT cache lines by number of their ePT cache lines: group, lines, ept_lines, count, share, state.

    lines is "all", or "full" for lines with all eight pages; ept_lines is 1 to 8; state "before" or "after".
    after  also with PTEMagnet's allocator: True, or its parameters ({"group": 4})
    The metric of PTEMagnet (ASPLOS '21), section 3.2.
    attrs: "means" {state: {lines: mean}}, "facts" of the reservations. The capture must be of a VM.
    """
    known = load(capture)
    settings = after if isinstance(after, Mapping) else {} if after else None
    measured, reshaped = fragmented(known, by, settings, setup_of(setup, options))
    table = fragmentation_frame(measured, provenance_of(known))
    table.attrs["facts"] = dict(reshaped.facts) if reshaped else {}
    return table


def fragmented(
    capture: Capture, by: str, settings: Settings | None, setup: Setup
) -> tuple[dict[str, Fragmentation], World | None]:
    """({"before": Fragmentation}, with settings of ptemagnet also "after"; its World) of a capture."""
    before = {"before": measure(address_space(capture.snapshot, np.zeros(0, np.uint64)), by=by)}
    if settings is None:
        return before, None
    reshaped = plan_for("ptemagnet", dict(settings)).reshape(opened(capture).world(setup))
    return before | {"after": measure(reshaped.space, by=by, filled=True)}, reshaped
