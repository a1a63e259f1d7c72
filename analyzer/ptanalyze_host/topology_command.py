"""`ptanalyze topology`: which CPUs share a socket, from the latency of cache-line transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

import ptanalyze as pt

if TYPE_CHECKING:
    from pandas import DataFrame

    from .cacheline import LatencyMatrix
    from .cpu_levels import Groups, Level

SLOW = 16  # CPUs; above, say how long it takes
SMALL = 16  # CPUs; a larger matrix does not fit a terminal


@click.group("topology")
def command() -> None:
    """Group CPUs by the latency of cache-line transfers between them.

    A guest that sees no NUMA nodes finds its virtual NUMA groups that way (vMitosis, 3.3.4).
    """


@command.command("measure", short_help="Measure latencies between CPUs.")
@click.option(
    "-o",
    "--output",
    "matrix_file",
    type=click.Path(),
    callback=pt.output.must_end_with(),
    help="JSON file for the matrix. Default: none.",
)
@click.option("--cpus", metavar="LIST", help="CPUs such as 0-7,9. Default: all that this process may use.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 10**7),
    default=None,
    help="Number of round trips per repetition. Default: 1000.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 10**4),
    default=None,
    help="Number of repetitions per pair of CPUs. Default: 7.",
)
@pt.output.output_options(file=False)
def measure_command(
    matrix_file: str | None,
    cpus: str | None,
    rounds: int | None,
    repeat: int | None,
    output: pt.output.Output,
) -> None:
    """Measure every pair of CPUs: two pinned threads hand one cache line back and forth.

    The result is the fastest repetition; pairs with a median of 1.3 times that are listed. In a guest, the
    measurement is valid as long as its vCPUs stay on their CPUs.

    \b
    Examples:
      ptanalyze topology measure -o matrix.json
    """

    from . import cacheline
    from .cpu_levels import kernel_groups

    chosen = cacheline.usable(None if cpus is None else pt.sysfs.parse_cpus(cpus, "--cpus"))
    options = {"rounds": rounds or cacheline.ROUNDS, "repeat": repeat or cacheline.REPEAT}
    if len(chosen) > SLOW:
        pairs, about = len(chosen) * (len(chosen) - 1) // 2, cacheline.seconds(len(chosen), **options)
        pt.cli.echo(f"ptanalyze: {pairs:,} pairs of CPUs: about {about:.0f} s", err=True)
    with pt.terminal.progress_bar() as progress:
        matrix = cacheline.measure(chosen, progress=progress, **options)
    if matrix_file is not None:
        cacheline.write_matrix(matrix_file, matrix)
    for a, b, spread in cacheline.noisy_pairs(matrix):
        why = "disturbed most of the time; more --repeat makes the minimum surer"
        pt.cli.echo(f"ptanalyze: CPUs {a} and {b}: median {spread:.1f} times the minimum: {why}", err=True)
    result, why_not = grouped(matrix, kernel_groups(matrix.cpus))
    record = {"cpus": matrix.cpus, "ns": matrix.ns, "topology": result, "no_groups": why_not}

    def table() -> DataFrame:
        return pt.analysis.latency_frame({"measured": matrix.ns}, matrix.cpus)

    pt.output.emit(
        pt.columns.Answer(
            "topology measure",
            table,
            lambda: record,
            lambda: measured(matrix, result, why_not),
        ),
        output,
    )
    if matrix_file is not None:
        pt.cli.echo(
            f"{matrix_file}: written; {pt.cli.next_step('topology', 'groups', matrix_file)}", err=True
        )


@command.command("latency", short_help="Measure memory latencies between nodes.")
@click.option(
    "-o",
    "--output",
    "latency_file",
    type=click.Path(),
    callback=pt.output.must_end_with(),
    help="JSON file for the matrices. Default: none.",
)
@click.option(
    "--mebibytes",
    type=click.IntRange(1, 65536),
    default=None,
    help="Size of the buffer in MiB. Default: 6 times the last-level cache.",
)
@click.option(
    "--bursts",
    type=click.IntRange(1, 10**4),
    default=100,
    show_default=True,
    help="Number of bursts of 20,000 reads per pair of nodes.",
)
@pt.output.output_options(file=False)
def latency_command(
    latency_file: str | None, mebibytes: int | None, bursts: int, output: pt.output.Output
) -> None:
    """Measure memory latency between NUMA nodes, idle and under load: a pinned pointer chase.

    A thread on each node follows a random cycle through memory of each node; idle, and while the other CPUs
    of that node stream through its memory. `ptanalyze calibrate --latency FILE` takes the result.

    \b
    Examples:
      ptanalyze topology latency -o latency.json
    """

    from .node_latency import measure_nodes

    with pt.terminal.progress_bar() as progress:
        latency = measure_nodes(mebibytes=mebibytes, bursts=bursts, progress=progress)
    if latency_file is not None:
        pt.measured.write_latency(latency_file, latency)
    states = {"idle": latency.idle, "contended": latency.contended}

    def table() -> DataFrame:
        return pt.analysis.latency_frame(states, latency.nodes)

    def json() -> dict[str, Any]:
        values = {f"{state}_ns": matrix for state, matrix in states.items()}
        return {"nodes": latency.nodes, **values, "flags": latency.flags}

    pt.output.emit(
        pt.columns.Answer(
            "topology latency",
            table,
            json,
            lambda: pt.terminal.matrices("ns per read", latency.nodes, states),
        ),
        output,
    )
    if len(latency.nodes) == 1 and output.form == "table":
        pt.cli.echo("this machine has a single NUMA node: no remote memory, so no latency to measure")
    for flag in latency.flags if output.form == "table" else ():
        pt.cli.echo(f"ptanalyze: {flag}", err=True)
    if latency_file is not None:
        then = pt.cli.next_step("calibrate", "--latency", latency_file, "--local", "FILE")
        pt.cli.echo(f"{latency_file}: written; {then}", err=True)


@command.command("groups", short_help="Group CPUs by a latency matrix.")
@click.argument("file", type=click.Path())
@click.option(
    "--nodes",
    type=click.IntRange(2),
    default=None,
    help="Number of groups to form. Default: detected from the latencies.",
)
@click.option(
    "--one-group-ok", is_flag=True, help="Accept a single group of all CPUs if the latencies show no gap."
)
@click.option(
    "--compare-with-kernel",
    is_flag=True,
    help="Compare the groups with this machine's, as the kernel sees them.",
)
@pt.output.output_options()
def groups_command(
    file: str, nodes: int | None, one_group_ok: bool, compare_with_kernel: bool, output: pt.output.Output
) -> None:
    """Virtual NUMA groups of a latency matrix FILE, as `measure` writes it.

    \b
    Examples:
      ptanalyze topology groups matrix.json --nodes 4
    """

    from .cacheline import read_matrix
    from .cpu_levels import kernel_groups, level, levels

    matrix = read_matrix(file)
    best = level(matrix.ns, matrix.cpus, nodes=nodes, one_group_ok=one_group_ok, name=file)
    others = levels(matrix.ns, matrix.cpus, file)
    kernel = kernel_groups(matrix.cpus) if compare_with_kernel else None
    result = described(matrix, best, others, kernel)

    def table() -> DataFrame:
        return pt.analysis.latency_frame({"measured": matrix.ns}, matrix.cpus)

    pt.output.emit(
        pt.columns.Answer("topology groups", table, lambda: result, lambda: [groups(result)]),
        output,
    )


def grouped(matrix: LatencyMatrix, kernel: dict[str, Groups]) -> tuple[dict[str, Any] | None, str | None]:
    """(`described`, None), or (None, why there are no groups)."""
    from .cpu_levels import level, levels

    try:
        name = "no groups"
        best = level(matrix.ns, matrix.cpus, name=name)
        return described(matrix, best, levels(matrix.ns, matrix.cpus, name), kernel), None
    except pt.errors.PtanalyzeError as error:
        return None, str(error)


def described(
    matrix: LatencyMatrix,
    best: Level,
    others: list[Level],
    kernel: dict[str, Groups] | None,
) -> dict[str, Any]:
    """The groups of one Level, for JSON and for people."""
    from .cpu_levels import mean_latencies, mirrored

    means = mean_latencies(matrix.ns, matrix.cpus, best.groups)
    return {
        "groups": [
            {"cpus": cpus, "within_ns": within, "across_ns": across}
            for cpus, (within, across) in zip(best.groups, means, strict=True)
        ],
        "slowest_within_ns": best.within_ns,
        "fastest_across_ns": best.across_ns,
        "other_levels": [
            {"groups": len(level.groups), "slowest_within_ns": level.within_ns}
            for level in others
            if level != best
        ],
        "kernel": kernel,
        "mirrors": None if kernel is None else mirrored(best.groups, kernel),
    }


# Latencies between CPUs, and groups of them, for people.


def measured(
    matrix: LatencyMatrix, result: Mapping[str, Any] | None, why_not: str | None
) -> Iterator[pt.columns.Section]:
    """The matrix if it is small, then its groups, or the reason for having none."""
    if len(matrix.cpus) <= SMALL:
        yield pt.columns.Section(rows=rows(matrix))
    yield pt.columns.Section(lines=[why_not or ""]) if result is None else groups(result)


def rows(matrix: LatencyMatrix) -> list[dict[str, str]]:
    return [
        {"ns": str(cpu)}
        | {str(to): "-" if ns != ns else f"{ns:.0f}" for to, ns in zip(matrix.cpus, row, strict=True)}
        for cpu, row in zip(matrix.cpus, matrix.ns.tolist(), strict=True)
    ]


def groups(result: Mapping[str, Any]) -> pt.columns.Section:
    from .node_latency import cpu_list

    rows = [
        {
            "group": number,
            "CPUs": cpu_list(group["cpus"]),
            "mean ns within": group["within_ns"],
            "mean ns across": group["across_ns"],
        }
        for number, group in enumerate(result["groups"])
    ]
    lines = []
    if result["fastest_across_ns"] is not None:
        low, high = result["slowest_within_ns"], result["fastest_across_ns"]
        lines.append(f"within at most {low:.4g} ns, across at least {high:.4g} ns")
    for other in result["other_levels"]:
        count, low = other["groups"], other["slowest_within_ns"]
        lines.append(f"another level: --nodes {count}, within at most {low:.4g} ns")
    return pt.columns.Section("Virtual NUMA groups", rows, [*lines, *beside_the_kernel(result)])


def beside_the_kernel(result: Mapping[str, Any]) -> Iterator[str]:
    from .node_latency import cpu_list

    if result["kernel"] is None:
        if max(len(group["cpus"]) for group in result["groups"]) <= 2:
            yield "groups of at most two CPUs: are they the hyperthreads of one core, not nodes?"
        return
    if "NUMA nodes" in result["mirrors"]:
        yield "the groups mirror the kernel's NUMA nodes"
        return
    nodes = " ".join(f"({cpu_list(cpus)})" for cpus in result["kernel"].get("NUMA nodes", ()))
    others = f"; they mirror its {' and '.join(result['mirrors'])}" if result["mirrors"] else ""
    yield f"the groups do not mirror the kernel's NUMA nodes {nodes or '(it shows none)'}{others}"
