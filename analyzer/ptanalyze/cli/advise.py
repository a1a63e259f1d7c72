"""`ptanalyze advise`: which placement policy to use for a capture, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import capture_argument, json_option
from .plotting import draw_results, plot_option
from .replaying import budget_options, capture_of, limits, replay_options, setup_from

if TYPE_CHECKING:
    from ..analysis.ranking import Advice, Report


@click.command("advise")
@capture_argument
@budget_options
@replay_options
@plot_option("pareto", "speedup", "locality", "reads", "footprint", "roofline")
@json_option
def command(
    capture: str | None,
    memory: str | None,
    updates: str | None,
    plot: str | None,
    plot_kind: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Rank all policies that CAPTURE allows by estimated run time, within a budget, and say why.

    Also says whether the workload is Thin (one node walks, its tables should follow it) or Wide (several
    nodes walk, each wants a copy), with the evidence: vMitosis, section 3.4.

    Example: ptanalyze advise app --memory 1% --updates 2%
    """
    from ..analysis.advise import advise
    from ..show.progress import progress_bar

    opened = capture_of(capture)
    with progress_bar() as progress:
        found = advise(opened, setup_from(options, progress), **limits(memory, updates))
    show_json(found.report) if as_json else show(found.report)
    if plot:
        draw_results(plot, plot_kind, found.replayed)


def show(report: Report) -> None:
    from ..show.terminal import console, print_rows

    print_rows("Policies, fastest first, those over the budget last", [row_of(one) for one in report.ranked])
    out = console()
    for name, why in report.refused.items():
        out.print(f"- not for this capture: {name}: {why}")
    out.print(f"\n{report.workload.name} workload", style="bold")
    for line in report.workload.evidence():
        out.print(f"- {line}")
    for note in dict.fromkeys((*report.base.notes, report.base.price.assumptions)):
        out.print(f"- {note}")
    out.print(f"\n{report.sentence}")


def row_of(one: Advice) -> dict[str, Any]:
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


def show_json(report: Report) -> None:
    from ..show.terminal import print_json

    print_json(
        "advise",
        {
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
        },
    )
