"""Advice for people, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..analysis.answer import Cell, Section
from ..analysis.ranking import Advice, Report


def view(report: Report) -> Iterator[Section]:
    refused = [f"- not for this capture: {name}: {why}" for name, why in report.refused.items()]
    ranked = [row_of(one) for one in report.ranked]
    yield Section("Policies, fastest first, those over the budget last", ranked, refused)
    notes = dict.fromkeys((*report.base.notes, report.base.price.assumptions))
    lines = [f"- {line}" for line in (*report.workload.evidence(), *notes)]
    yield Section(f"\n{report.workload.name} workload", (), [*lines, f"\n{report.sentence}"])


def row_of(one: Advice) -> dict[str, Cell]:
    row, speedup = one.result.row(), one.result.price.speedup
    return {
        "policy": one.result.policy,
        "estimated speed-up": f"{speedup.middle:.3f} ({speedup.low:.3f} to {speedup.high:.3f})"
        if speedup
        else "-",
        "cycles/walk": row["cycles_per_walk"],
        "leaf LL": f"{100 * row['leaf_LL_share']:.1f} %",
        "remote DRAM reads": row["remote_dram_reads"],
        "extra memory KiB": one.extra_bytes >> 10,
        "extra updates": f"{100 * one.extra_updates + 0:z.2f} %",
        "budget": f"over: {one.over}" if one.over else "within",
    }


def as_record(report: Report) -> dict[str, Any]:
    return {
        "sentence": report.sentence,
        "workload": report.workload.name,
        "evidence": report.workload.evidence(),
        "ranked": [
            {
                **one.result.row(),
                "extra_bytes": one.extra_bytes,
                "extra_updates": one.extra_updates,
                "over": one.over,
            }
            for one in report.ranked
        ],
        "refused": report.refused,
    }
