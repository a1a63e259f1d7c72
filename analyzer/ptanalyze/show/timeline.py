"""Locality over time as a view for people, and as rows for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..analysis.answer import Section
from ..analysis.run_notes import owned_notes
from ..core.walks import threads_placed
from ..cost.result import Result
from .whatif import labels

SPEED = (
    "- per second: by the middle of the assumptions, all CPUs of the window busy; data on another node cost "
    "the difference in latency once per walk; their interval is in --json and --csv"
)
CLASSES = "- LL: share of walks that are Local-Local (gPT, then ePT); LR, RL and RR alike"


def rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per policy and window."""
    return [
        {"policy": name, **row}
        for name, result in zip(labels(results), results, strict=True)
        for row in (result.series.rows() if result.series else ())
    ]


def view(results: Sequence[Result]) -> Iterator[Section]:
    """A table per policy, then the notes."""
    for name, result in zip(labels(results), results, strict=True):
        windows = result.series.rows() if result.series else []
        title = f"{name} ({result.machine}; {threads_placed(result.placement)})"
        yield Section(title, [shown(row, bool(result.host_pages)) for row in windows])
    notes = owned_notes(results, assumptions=False)
    nested = any(result.host_pages for result in results)
    yield Section(lines=[*([CLASSES] if nested else []), SPEED, *(f"- {note}" for note in notes)])


def shown(row: dict[str, Any], nested: bool) -> dict[str, Any]:
    kinds = ("LL", "LR", "RL", "RR") if nested else ("LL", "RL")
    names = kinds if nested else ("local", "remote")
    remote = {"gPT DRAM remote": "guest_remote_share", "ePT DRAM remote": "host_remote_share"}
    remote = remote if nested else {"DRAM remote": "guest_remote_share"}
    return {
        "ms": row["time_ns"] / 1e6,
        "walks": row["walks"],
        **{name: percent(row[f"leaf_{kind}_share"]) for name, kind in zip(names, kinds, strict=True)},
        **{name: percent(row[share]) for name, share in remote.items()},
        "data remote": percent(row["data_remote_share"]),
        "M walks/s": millions(row["walks_per_s"]),
        "M accesses/s": millions(row["accesses_per_s"]),
        "data moved": row["data_moved"],
        "of data": percent(row["data_moved_share"]),
        "tables moved": row["tables_moved"],
    }


def millions(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second / 1e6:.4g}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
