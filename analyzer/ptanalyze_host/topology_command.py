"""`ptanalyze topology`: which CPUs share a socket, from the latency of cache-line transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import ptanalyze as pt

from . import sysfs

if TYPE_CHECKING:
    from pandas import DataFrame

    from .cacheline import LatencyMatrix, Level

SLOW = 16  # CPUs; above, say how long it takes
SMALL = 16  # CPUs; a larger matrix does not fit a terminal
NOISY = 1.3  # a median this much above the minimum: the pair was disturbed most of the time


@click.command("topology")
@click.option("--cpus", metavar="LIST", help="CPUs such as 0-7,9. Default: all that this process may use.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 10**4),
    default=7,
    show_default=True,
    help="Number of repetitions per pair of CPUs.",
)
@click.option(
    "--nodes",
    type=click.IntRange(2),
    default=None,
    help="Number of groups to form. Default: as few as the latencies show.",
)
@pt.options.output_options()
def command(cpus: str | None, repeat: int, nodes: int | None, output: pt.options.Output) -> None:
    """Group CPUs by the latency of cache-line transfers between them.

    A guest that sees no NUMA nodes finds its virtual NUMA groups that way (vMitosis, 3.3.4). Two pinned
    threads hand one cache line back and forth; the fastest repetition of each pair counts, and pairs with a
    median of 1.3 times that are listed. The groups are valid as long as a guest's vCPUs stay on their CPUs.

    \b
    Examples:
      ptanalyze topology
      ptanalyze topology --cpus 0-7 --nodes 4
    """
    from . import cacheline

    chosen = cacheline.usable(None if cpus is None else sysfs.parse_cpus(cpus, "--cpus"))
    if len(chosen) > SLOW:
        pairs, about = len(chosen) * (len(chosen) - 1) // 2, cacheline.seconds(len(chosen), repeat)
        pt.options.echo(f"ptanalyze: {pairs:,} pairs of CPUs: about {about:.0f} s", err=True)
    with pt.terminal.progress_bar() as progress:
        matrix = cacheline.measure(chosen, repeat=repeat, progress=progress)
    for a, b in np.argwhere(np.triu(matrix.spread >= NOISY)):
        why = "disturbed most of the time; more --repeat makes the minimum surer"
        spread = f"median {matrix.spread[a, b]:.1f} times the minimum"
        pt.options.echo(f"ptanalyze: CPUs {chosen[a]} and {chosen[b]}: {spread}: {why}", err=True)
    emit(matrix, nodes, output)


def emit(matrix: LatencyMatrix, nodes: int | None, output: pt.options.Output) -> None:
    """The latencies, and the groups of the coarsest level, or of the level with as many groups as `nodes`."""
    from .cacheline import latency_levels, mean_latencies

    every, why, cpus = list["Level"](), "", matrix.cpus
    try:
        every = latency_levels(matrix.ns, cpus)
    except pt.UsageError as error:
        why = str(error)
    level = next((level for level in every if nodes in (None, len(level.groups))), None)
    if every and level is None:
        counts = ", ".join(str(len(level.groups)) for level in every)
        why = f"no groups: no level has {nodes} groups; there are levels with {counts}"
    members = level.groups if level else []
    groups = [
        {"cpus": group, "within_ns": within, "across_ns": across}
        for group, (within, across) in zip(members, mean_latencies(matrix, members), strict=True)
    ]

    def table() -> DataFrame:
        return pt.analysis.latency_frame({"measured": matrix.ns}, cpus)

    def view() -> Iterator[pt.columns.Section]:
        if len(cpus) <= SMALL:
            rows = [[f"{ns:.0f}" if ns == ns else "-" for ns in row] for row in matrix.ns.tolist()]
            columns = ["ns", *map(str, cpus)]
            yield pt.columns.Section(
                rows=[
                    dict(zip(columns, [str(a), *row], strict=True)) for a, row in zip(cpus, rows, strict=True)
                ]
            )
        yield of_groups(groups, level, every) if level else pt.columns.Section(lines=[why])

    def json() -> dict[str, Any]:
        return {
            "cpus": cpus,
            "ns": matrix.ns,
            "groups": groups,
            "slowest_within_ns": level and level.within_ns,
            "fastest_across_ns": level and level.across_ns,
            "no_groups": why or None,
        }

    output.emit("topology", table, json, view)


def of_groups(
    groups: Sequence[Mapping[str, Any]], level: Level, every: Sequence[Level]
) -> pt.columns.Section:
    """The groups of a Level, and the numbers of groups of the others."""
    from .node_latency import cpu_list

    rows = [
        {
            "group": number,
            "CPUs": cpu_list(group["cpus"]),
            "mean ns within": group["within_ns"],
            "mean ns across": group["across_ns"],
        }
        for number, group in enumerate(groups)
    ]
    lines = [f"within at most {level.within_ns:.4g} ns, across at least {level.across_ns:.4g} ns"]
    for other in every:
        if other is not level:
            count = len(other.groups)
            lines.append(f"another level: --nodes {count}, within at most {other.within_ns:.4g} ns")
    if max(len(group["cpus"]) for group in groups) <= 2:
        lines.append("groups of at most two CPUs: are they the hyperthreads of one core, not nodes?")
    return pt.columns.Section("Virtual NUMA groups", rows, lines)
