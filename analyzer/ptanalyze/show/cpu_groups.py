"""Latencies between CPUs, and groups of them, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..analysis.answer import Section
from ..capture.live.cacheline import cpu_list
from ..formats.node_latency import LatencyMatrix

SMALL = 16  # CPUs; a larger matrix does not fit a terminal


def measured(
    matrix: LatencyMatrix, result: Mapping[str, Any] | None, why_not: str | None
) -> Iterator[Section]:
    """The matrix if it is small, then its groups, or the reason for having none."""
    if len(matrix.cpus) <= SMALL:
        yield Section(rows=rows(matrix))
    yield Section(lines=[why_not or ""]) if result is None else groups(result)


def rows(matrix: LatencyMatrix) -> list[dict[str, str]]:
    return [
        {"ns": str(cpu)}
        | {str(to): "-" if ns != ns else f"{ns:.0f}" for to, ns in zip(matrix.cpus, row, strict=True)}
        for cpu, row in zip(matrix.cpus, matrix.ns.tolist(), strict=True)
    ]


def groups(result: Mapping[str, Any]) -> Section:
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
    return Section("Virtual NUMA groups", rows, [*lines, *beside_the_kernel(result)])


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
