"""`ptanalyze advise`: which placement policy to use for a capture, and why."""

import re

import click

from ..errors import UsageError
from .options import capture_argument, json_option
from .plotting import draw_results, plot_option
from .replaying import question, replay_options

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@click.command("advise")
@capture_argument
@click.option(
    "--memory",
    metavar="SIZE",
    help="Most that extra page tables and unused pages may take: 64M, 2G, or 1% of what its tables map.",
)
@click.option(
    "--updates", metavar="PERCENT", help="Most that extra updates of page tables may take of the run: 2%."
)
@replay_options
@plot_option("pareto", "speedup", "locality", "reads", "footprint", "roofline")
@json_option
def command(capture, memory, updates, plot, plot_kind, as_json, **options):
    """Rank all policies that CAPTURE allows by estimated run time, within a budget, and say why.

    Also says whether the workload is Thin (one node walks, its tables should follow it) or Wide (several
    nodes walk, each wants a copy), with the evidence: vMitosis, section 3.4.

    Example: ptanalyze advise app --memory 1% --updates 2%
    """
    from ..advise import Budget, advise
    from ..progress import progress_bar
    from ..whatif import captured_world
    from ..workload import workload

    asked = question(capture, **options)
    how = asked.how
    with progress_bar() as progress:
        world = captured_world(
            asked.snapshot,
            asked.trace,
            asked.machine,
            how["placement"],
            how["threads"],
            how["cache_dir"],
            progress,
            how["moves"],
            how["move_threads"],
        )
        mapped = workload(world).mapped_bytes
        budget = Budget(bytes_of(memory, mapped), share_of(updates))
        report = advise(
            world,
            budget,
            how["costs"],
            contended=how["contended"],
            progress=progress,
            provenance=how["provenance"],
            calibration=how["calibration"],
        )
    show_json(report) if as_json else show(report)
    if plot:
        draw_results(plot, plot_kind, [one.result for one in report.ranked], asked.machine)


def bytes_of(text, whole):
    """Bytes of "64M" or of "1%" of `whole`; no limit without text."""
    if text is None:
        return float("inf")
    found = re.fullmatch(
        r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?|(\d+(?:\.\d+)?)\s*%", text.strip(), re.IGNORECASE
    )
    if not found:
        raise UsageError(f"--memory {text}: write a size as 64M or 2G, or a share as 1%")
    number, unit, percent = found.groups()
    return float(number) * UNITS[unit.upper()] if percent is None else float(percent) / 100 * whole


def share_of(text):
    if text is None:
        return float("inf")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if not found:
        raise UsageError(f"--updates {text}: write a share of the run as 2%")
    return float(found[1]) / 100


def show(report):
    from ..tables import console, print_rows

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


def row_of(one):
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


def show_json(report):
    from ..tables import print_json

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
