"""What pages count by where no event is replayed: the trace, samples of accessed bits, or each once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from .heat_classes import heat_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core.snapshot import Snapshot
    from ..core.trace import Trace

AUTO = "auto"
WEIGHTINGS = (AUTO, "walks", "heat", "leaf")
UNTRACED = ("no trace", "the trace is left out")  # how notes on answers without a trace begin
NO_TRACE = "{why}: every mapped page counts once for each node, events are not known"
RESHAPED = (
    "its pages are not those whose accessed bits were sampled: a trace tells how they are walked; "
    "--weight leaf counts each mapped page once"
)
EACH_ONCE = (
    "Each mapped page counts once, used or not, so larger pages may seem to gain more than they do: "
    "`ptanalyze heat` or a trace tells which pages are walked."
)
SAMPLED = (
    "{why}: every page counts for each node by its walks, estimated from {samples} samples of accessed "
    "bits, {seconds:.3g} s in all; {saturated:.0%} of them of pages that every sample found used, whose "
    "walks may be far more; events are not known"
)


def weighed_by(weight: str, has_trace: bool, has_heat: bool) -> str:
    """By what a capture's pages count, "walks", "heat" or "leaf": for AUTO the best that it has."""
    if weight != AUTO:
        return weight
    return "walks" if has_trace else "heat" if has_heat else "leaf"


def weighed(snapshot: Snapshot, trace: Trace | None, weight: str) -> tuple[Snapshot, Trace | None]:
    """(Snapshot, Trace or None) so that pages count by `weight`, one of WEIGHTS.

    "auto": the trace, where there is none heat, where there is none each page once. UsageError where the
    capture lacks what is asked for.
    """
    if weight not in WEIGHTINGS:
        raise UsageError(f"weight = {weight}: one of {', '.join(WEIGHTINGS)}")
    if weight == "walks" and trace is None:
        raise UsageError("weight = walks: the capture has no trace; record one with `ptanalyze record`")
    if weight == "heat":
        heat_of(snapshot)
    if weight == "leaf":
        snapshot = replace(snapshot, heat=None)
    return snapshot, trace if weight in (AUTO, "walks") else None


def note(snapshots: Sequence[Snapshot], left_out: bool = False) -> str:
    """Line for people: by what pages count without a trace, which the capture lacks or which is left out."""
    why = UNTRACED[left_out]
    each = [snapshot.heat for snapshot in snapshots if snapshot.heat]
    if not each:
        return NO_TRACE.format(why=why)
    total = max(sum(int(heat.walks.sum()) for heat in each), 1)
    return SAMPLED.format(
        why=why,
        samples=sum(int(heat.samples.sum()) for heat in each),
        seconds=sum(heat.sampled_seconds for heat in each),
        saturated=sum(int(heat.walks[heat.saturated].sum()) for heat in each) / total,
    )
