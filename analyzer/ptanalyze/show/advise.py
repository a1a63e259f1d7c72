"""Advice as a view for people, and as a record for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..analysis.advise import Advice, Report, label_of, missing
from ..analysis.answer import Cell, Section
from ..analysis.leaf_classes import RESHAPED
from ..analysis.run_notes import owned_notes
from ..core.errors import show_duration
from ..core.interval import interval
from .first_screen import beware, earned, table, worth
from .whatif import labels

LL = "- LL: share of walks that are Local-Local, without a VM: local"


def view(report: Report, further: Section | None = None, whose: str = "") -> Iterator[Section]:
    """The advice, whether it is worth it, a small table, and what to type next.

    further  what to type next; None: all columns, refusals, the workload and what is assumed instead
    whose    a sentence before all else; "" none
    """
    others = [one for one in report.ranked if one.result is not report.base]
    results = [report.base, *(one.result for one in others)]
    worthwhile = worth(results, {k for k, one in enumerate(others, 1) if one.over})
    said = " ".join(filter(None, (missing(report.base), report.placement, report.sentence)))
    doubt = [report.workload.doubt] if report.workload.doubt else []
    said_first = [line for text in ([said], doubt, worthwhile) if text for line in (*text, "")]
    yield Section(lines=[*beware(report.base, whose), *said_first])
    yield from table(dict(zip(labels(results), results, strict=True)), said=said)
    if further:
        over = [label_of(advice.result) for advice in report.ranked if advice.over]
        if over:
            yield Section(lines=[f"Over the budget: {', '.join(over)}."])
        if report.refused:
            yield Section(lines=[f"Not for this capture: {', '.join(report.refused)} (--full says why)."])
        yield Section(lines=[f"Left out: {name}: {why}." for name, why in report.left_out.items()])
        if sampled := [name for name, why in report.refused.items() if why == RESHAPED]:
            ranks = f"--weight leaf ranks {', '.join(sampled)} too, with each mapped page counted once."
            yield Section(lines=[ranks])
        yield Section(lines=[f"Assumed: {report.base.price.assumptions}."])
        yield Section(lines=[""])
        yield further
        return
    yield Section(lines=[""])
    yield from everything(report)


def everything(report: Report) -> Iterator[Section]:
    refused = [f"- not for this capture: {name}: {why}" for name, why in report.refused.items()]
    refused += [f"- left out: {name}: {why}" for name, why in report.left_out.items()]
    ranked = [row_of(advice) for advice in report.ranked]
    yield Section("Policies, fastest first, those over the budget last", ranked, [LL, *refused])
    notes = owned_notes([report.base, *(advice.result for advice in report.ranked)])
    lines = [f"- {line}" for line in (*report.workload.evidence(), *notes)]
    yield Section(lines=[""])
    yield Section(f"{report.workload.name} workload", (), lines)


def row_of(advice: Advice) -> dict[str, Cell]:
    row, speedup = advice.result.row(), advice.result.price.speedup
    return {
        "policy": label_of(advice.result),
        "estimated speed-up": interval(speedup) if speedup else "-",
        f"over {show_duration(advice.horizon)}": "-" if advice.gain is None else f"{advice.gain:.3f}",
        "earned back after": earned(row),
        "cycles/walk": row["cycles_per_walk"],
        "LL": f"{100 * row['leaf_LL_share']:.1f} %",
        "remote DRAM reads": row["remote_dram_reads"],
        "extra peak memory KiB": advice.extra_bytes >> 10,
        "extra updates": f"{100 * advice.extra_updates + 0:z.2f} %",
        "budget": f"over: {advice.over}" if advice.over else "within",
    }


def as_record(report: Report) -> dict[str, Any]:
    return {
        "sentence": report.sentence,
        "placement_alone": report.placement,
        "workload": report.workload.name,
        "evidence": report.workload.evidence(),
        "ranked": [
            {
                **advice.result.row(),
                "extra_bytes": advice.extra_bytes,
                "extra_updates": advice.extra_updates,
                "over": advice.over,
                "horizon_seconds": advice.horizon,
                "gain": advice.gain,
            }
            for advice in report.ranked
        ],
        "refused": report.refused | report.left_out,
    }
