"""Latencies between CPUs, and groups of them, for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import ptanalyze as pt

from .cacheline import LatencyMatrix
from .node_latency import cpu_list

if TYPE_CHECKING:
    from .survey import Surveyed


SMALL = 16  # CPUs; a larger matrix does not fit a terminal


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


# A survey as Prometheus text, for node_exporter's textfile collector.

PREFIX = "ptanalyze_"
METRICS = {
    "page_table_bytes": "bytes of page tables, without the root",
    "leaf_tables": "table pages that map 4 KiB pages, by node",
    "leaf_remote_share": "share of walks with a remote leaf table, if all leaf tables are walked alike",
    "upper_remote_share": "the same of the tables above leaf tables",
    "huge_bytes": "bytes mapped by huge pages",
    "rss_bytes": "resident memory",
}
HOST = {
    "numa_nodes": "NUMA nodes of this host",
    "survey_processes": "processes and VMs of this host",
    "survey_timestamp_seconds": "when this survey was made, seconds since 1970",
}


def prometheus_text(surveyed: Sequence[Surveyed], nodes: int, at: float, top: int | None = None) -> str:
    """One gauge per metric and process, and of the host; node_exporter wants a file of its own for them.

    nodes  of the host; at: seconds since 1970, by which an alert tells that surveys fail
    top    processes at most, so that a host with many makes few series; None: all
    """
    lines = []
    for (metric, meaning), number in zip(HOST.items(), (nodes, len(surveyed), int(at)), strict=True):
        lines += [f"# HELP {PREFIX}{metric} {meaning}", f"# TYPE {PREFIX}{metric} gauge"]
        lines.append(f"{PREFIX}{metric} {number}")
    for metric, meaning in METRICS.items():
        lines += [f"# HELP {PREFIX}{metric} {meaning}", f"# TYPE {PREFIX}{metric} gauge"]
        for one in surveyed[:top]:
            for more, value in samples(metric, one):
                labels = {
                    "pid": str(one.pid),
                    "name": one.name,
                    "kind": one.kind,
                    "cgroup": one.cgroup,
                } | more
                inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
                lines.append(f"{PREFIX}{metric}{{{inside}}} {value:.15g}")
    return "\n".join(lines) + "\n"


def samples(metric: str, one: Surveyed) -> Iterator[tuple[dict[str, str], float]]:
    if metric == "page_table_bytes":
        yield {}, one.table_bytes
    elif metric == "huge_bytes":
        yield {}, one.huge_bytes
    elif metric == "leaf_tables":
        for node, count in sorted(one.leaf.items()):
            yield {"node": str(node)}, count
    elif metric == "rss_bytes":
        yield {}, one.rss_bytes
    elif (
        share := one.upper_remote_share if metric == "upper_remote_share" else one.remote_share
    ) is not None:
        yield {}, share


def escaped(text: str) -> str:
    return pt.errors.printable(text).replace("\\", "\\\\").replace('"', '\\"')


def write_prometheus(
    path: str | PathLike[str], surveyed: Sequence[Surveyed], nodes: int, at: float, top: int | None = None
) -> None:
    """Replace the file at once; node_exporter, another user, may read it: it holds no addresses."""
    with pt.formats.atomic_write(path, given=True) as file:
        file.write(prometheus_text(surveyed, nodes, at, top).encode())
        os.fchmod(file.fileno(), 0o644)
