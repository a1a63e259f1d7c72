"""Settings for moves of data pages between nodes while the trace runs; see data_moves."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..core.errors import UsageError
from ..core.machine import Strict


class Moves(Strict):
    """Moves of data pages, by default only by the trace's events; the rest are Linux's defaults."""

    autonuma: bool = False
    by: Annotated[
        Literal["auto", "guest", "host"],
        Meta(description="whose kernel moves data: auto is the hypervisor's for NUMA-oblivious guests"),
    ] = "auto"
    delay_ms: Annotated[float, Meta(ge=0, le=1e9, description="before the first scan")] = 1000.0
    scan_period_ms: Annotated[float, Meta(gt=0, le=1e9, description="from one scan to the next")] = 1000.0
    scan_size_mb: Annotated[float, Meta(gt=0, le=1e9, description="marked per scan")] = 256.0
    rate_limit_mb_s: Annotated[
        float, Meta(ge=0, le=1e9, description="data moved per second, 0: no limit")
    ] = 0.0


OF_AUTONUMA = ("by", "delay_ms", "scan_period_ms", "scan_size_mb", "rate_limit_mb_s")
NOTHING_MOVES = Moves()  # except by the trace's events


def moves_from(settings: Mapping[str, Any]) -> Moves:
    """Moves with autonuma from {key: text}; UsageError names an unknown key and the known keys."""
    for key in settings:
        if key not in OF_AUTONUMA:
            raise UsageError(
                f"autonuma: {key} = {settings[key]}: no such setting; it has: {', '.join(OF_AUTONUMA)}"
            )
    try:
        return msgspec.convert({"autonuma": True, **settings}, Moves, strict=False)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("`$.")[2].partition("`")[0]
        why = str(error).partition(" - at ")[0]
        raise UsageError(f"autonuma: {key} = {settings.get(key)}: {why}") from None
