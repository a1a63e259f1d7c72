"""`ptanalyze topology`: which CPUs share a socket, from the latency of cache-line transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import json_option
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from ..analysis.cpu_groups import Level
    from ..capture.live.kernel_groups import Groups
    from ..formats.latency_matrix import LatencyMatrix
    from ..formats.node_latency import NodeLatency

SMALL = 16  # CPUs; the matrix of more fits no terminal
SLOW = 16  # CPUs; above, say how long it takes


@click.group("topology")
def command() -> None:
    """Group CPUs by how long a cache line takes between them.

    A guest that sees no NUMA nodes finds its virtual NUMA groups that way (vMitosis, 3.3.4).
    """


@command.command("measure")
@click.option("-o", "--output", type=click.Path(), help="Keep the matrix in this JSON file.")
@click.option("--cpus", metavar="LIST", help="CPUs such as 0-7,9; default: all that this process may use.")
@click.option("--rounds", type=click.IntRange(1, 10**7), default=None, help="Round trips a repetition.")
@click.option("--repeat", type=click.IntRange(1, 10**4), default=None, help="Repetitions of each pair.")
@plot_option()
@json_option
def measure_command(
    output: str | None,
    cpus: str | None,
    rounds: int | None,
    repeat: int | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Measure every pair of CPUs: two pinned threads hand one cache line back and forth.

    Kept is the fastest repetition; pairs whose median is 1.3 times that are named. In a guest, what was
    measured holds as long as its vCPUs stay where they were.
    """
    from ..capture.live import cacheline
    from ..capture.live.kernel_groups import kernel_groups
    from ..formats.latency_matrix import write_matrix
    from ..show.progress import progress_bar

    check_place(output)
    chosen = cacheline.usable(None if cpus is None else cacheline.parse_cpu_list(cpus))
    options = {"rounds": rounds or cacheline.ROUNDS, "repeat": repeat or cacheline.REPEAT}
    if len(chosen) > SLOW:
        pairs, about = len(chosen) * (len(chosen) - 1) // 2, cacheline.seconds(len(chosen), **options)
        click.echo(f"ptanalyze: {pairs:,} pairs of CPUs: about {about:.0f} s", err=True)
    with progress_bar() as progress:
        matrix = cacheline.measure(chosen, progress=progress, **options)
    if output is not None:
        write_matrix(output, matrix)
    for a, b, spread in cacheline.noisy_pairs(matrix):
        why = "disturbed most of the time; more --repeat makes the minimum surer"
        click.echo(f"ptanalyze: CPUs {a} and {b}: median {spread:.1f} times the minimum: {why}", err=True)
    result = show_measured(matrix, kernel_groups(matrix.cpus), as_json)
    if output is not None:
        click.echo(f"{output}: written; next: ptanalyze topology groups {output}", err=True)
    if plot:
        draw_matrix(plot, matrix, result)


@command.command("latency")
@click.option("-o", "--output", type=click.Path(), help="Keep the matrices in this JSON file.")
@click.option("--mebibytes", type=click.IntRange(1, 65536), default=None, help="Buffer; default: 6 LLCs.")
@click.option("--bursts", type=click.IntRange(1, 10**4), default=100, help="Of 20,000 reads, for each pair.")
@plot_option()
@json_option
def latency_command(
    output: str | None, mebibytes: int | None, bursts: int, plot: str | None, as_json: bool
) -> None:
    """Measure memory latency between NUMA nodes, idle and under load: a pinned pointer chase.

    A thread on each node follows a random cycle through memory of each node; idle, and while the other CPUs
    of that node stream through its memory. `ptanalyze calibrate --latency FILE` takes the result.
    """
    from ..capture.live.chase import measure_nodes
    from ..formats.node_latency import write_latency
    from ..show.progress import progress_bar

    check_place(output)
    with progress_bar() as progress:
        latency = measure_nodes(mebibytes=mebibytes, bursts=bursts, progress=progress)
    if output is not None:
        write_latency(output, latency)
    show_latency(latency, as_json)
    if output is not None:
        click.echo(f"{output}: written; next: ptanalyze calibrate --latency {output} --local FILE", err=True)
    if plot:
        from ..analysis import answers as frames
        from ..show import plots

        table = frames.latency_frame({"idle": latency.idle, "contended": latency.contended}, latency.nodes)
        write_plot(plot, plots.latency(table))


@command.command("groups")
@click.argument("file", type=click.Path())
@click.option("--nodes", type=click.IntRange(2), default=None, help="Take the level with this many groups.")
@click.option("--one-group-ok", is_flag=True, help="Latencies without a gap: all CPUs are one group.")
@click.option("--compare-with-kernel", is_flag=True, help="The file is of this machine: say what it mirrors.")
@plot_option()
@json_option
def groups_command(
    file: str,
    nodes: int | None,
    one_group_ok: bool,
    compare_with_kernel: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Virtual NUMA groups of a latency matrix: one that `measure` wrote, or a plain table.

    A table is text, cells apart by commas, tabs or blanks, `-` where a pair was not measured. The first line
    and first column name the CPUs if the corner is empty or a word. Rows, or one triangle, may be missing.
    """
    from ..analysis import cpu_groups as vcpu_groups
    from ..capture.live.kernel_groups import kernel_groups
    from ..formats.latency_matrix import read_matrix

    matrix = read_matrix(file)
    found = vcpu_groups.level(matrix.ns, matrix.cpus, nodes=nodes, one_group_ok=one_group_ok, name=file)
    others = vcpu_groups.levels(matrix.ns, matrix.cpus, file)
    kernel = kernel_groups(matrix.cpus) if compare_with_kernel else None
    result = described(matrix, found, others, kernel)
    if as_json:
        from ..show.terminal import print_json

        print_json("topology groups", result)
    else:
        show_groups(result)
    if plot:
        draw_matrix(plot, matrix, result)


def draw_matrix(path: str, matrix: LatencyMatrix, result: dict[str, Any] | None) -> None:
    from ..analysis import answers as frames
    from ..show import plots

    groups = [] if result is None else [group["cpus"] for group in result["groups"]]
    write_plot(path, plots.latency(frames.latency_frame({"measured": matrix.ns}, matrix.cpus, "CPU", groups)))


def check_place(output: str | None) -> None:
    """Before minutes of measuring: UsageError where nothing can be written."""
    from ..core.errors import UsageError

    if output is not None and (Path(output).is_dir() or not Path(output).parent.is_dir()):
        raise UsageError(f"{output}: no file can be made there; give -o FILE.json in a directory that exists")


def described(
    matrix: LatencyMatrix, found: Level, others: list[Level], kernel: dict[str, Groups] | None
) -> dict[str, Any]:
    """What is known about the groups of one Level, for JSON and for people."""
    from ..analysis.cpu_groups import mean_latencies
    from ..capture.live.kernel_groups import mirrored

    means = mean_latencies(matrix.ns, matrix.cpus, found.groups)
    return {
        "groups": [
            {"cpus": cpus, "within_ns": within, "across_ns": across}
            for cpus, (within, across) in zip(found.groups, means, strict=True)
        ],
        "slowest_within_ns": found.within_ns,
        "fastest_across_ns": found.across_ns,
        "other_levels": [
            {"groups": len(level.groups), "slowest_within_ns": level.within_ns}
            for level in others
            if level != found
        ],
        "kernel": kernel,
        "mirrors": None if kernel is None else mirrored(found.groups, kernel),
    }


def show_measured(matrix: LatencyMatrix, kernel: dict[str, Groups], as_json: bool) -> dict[str, Any] | None:
    """Print them; returns what is known of the groups, if there are any."""
    from ..analysis.cpu_groups import level, levels
    from ..core.errors import PtanalyzeError
    from ..show.terminal import print_json

    result: dict[str, Any] | None
    why: str | None
    try:
        name = "no groups"
        found = level(matrix.ns, matrix.cpus, name=name)
        result, why = described(matrix, found, levels(matrix.ns, matrix.cpus, name), kernel), None
    except PtanalyzeError as error:
        result, why = None, str(error)
    if as_json:
        cells = [[None if value != value else value for value in row] for row in matrix.ns.tolist()]
        seen = {"cpus": matrix.cpus, "ns": cells, "topology": result, "no_groups": why}
        print_json("topology measure", seen)
        return result
    if len(matrix.cpus) <= SMALL:
        show_matrix(matrix)
    if result is None:
        click.echo(why)
    else:
        show_groups(result)
    return result


def show_matrix(matrix: LatencyMatrix) -> None:
    from ..show.terminal import print_rows

    rows = [
        {"ns": str(cpu)}
        | {str(to): "-" if ns != ns else f"{ns:.0f}" for to, ns in zip(matrix.cpus, row, strict=True)}
        for cpu, row in zip(matrix.cpus, matrix.ns.tolist(), strict=True)
    ]
    print_rows("", rows)


def show_latency(latency: NodeLatency, as_json: bool) -> None:
    from ..show.terminal import print_json

    matrices = {"idle": latency.idle, "contended": latency.contended}
    if as_json:
        values = {f"{which}_ns": matrix for which, matrix in matrices.items()}
        print_json("topology latency", {"nodes": latency.nodes, **values, "flags": latency.flags})
        return
    lists = {which: None if matrix is None else matrix.tolist() for which, matrix in matrices.items()}
    show_matrices("ns a read", latency.nodes, lists)
    if len(latency.nodes) == 1:
        click.echo("one NUMA node: there is no remote memory here, its latency cannot be measured")
    for flag in latency.flags:
        click.echo(f"ptanalyze: {flag}", err=True)


def show_matrices(title: str, nodes: Sequence[int], matrices: Mapping[str, Any]) -> None:
    """Tables of {state: [reader's node][serving node]}; None where there is no such matrix."""
    from ..show.terminal import print_rows

    for which, matrix in matrices.items():
        if matrix is not None:
            rows = [
                {"reader": f"node {a}"} | {f"node {b}": ns for b, ns in zip(nodes, row, strict=True)}
                for a, row in zip(nodes, matrix, strict=True)
            ]
            print_rows(f"{title}, {which}", rows)


def show_groups(result: dict[str, Any]) -> None:
    from ..capture.live.cacheline import cpu_list
    from ..show.terminal import print_rows

    rows = [
        {
            "group": number,
            "CPUs": cpu_list(group["cpus"]),
            "mean ns within": group["within_ns"],
            "mean ns across": group["across_ns"],
        }
        for number, group in enumerate(result["groups"])
    ]
    print_rows("Virtual NUMA groups", rows)
    if result["fastest_across_ns"] is not None:
        low, high = result["slowest_within_ns"], result["fastest_across_ns"]
        click.echo(f"within at most {low:.4g} ns, across at least {high:.4g} ns")
    for other in result["other_levels"]:
        count, low = other["groups"], other["slowest_within_ns"]
        click.echo(f"another level: --nodes {count}, within at most {low:.4g} ns")
    show_kernel(result)


def show_kernel(result: dict[str, Any]) -> None:
    from ..capture.live.cacheline import cpu_list

    if result["kernel"] is None:
        if max(len(group["cpus"]) for group in result["groups"]) <= 2:
            click.echo("groups of at most two CPUs: are they the hyperthreads of one core, not nodes?")
        return
    if "NUMA nodes" in result["mirrors"]:
        click.echo("the groups mirror the kernel's NUMA nodes")
        return
    nodes = " ".join(f"({cpu_list(cpus)})" for cpus in result["kernel"].get("NUMA nodes", ()))
    others = f"; they mirror its {' and '.join(result['mirrors'])}" if result["mirrors"] else ""
    click.echo(f"the groups do not mirror the kernel's NUMA nodes {nodes or '(it shows none)'}{others}")
