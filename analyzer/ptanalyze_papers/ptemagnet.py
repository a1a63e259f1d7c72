"""PTEMagnet (ASPLOS 2021), figure by figure."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import ptanalyze as pt

from .bench import Bench
from .row import Row, published
from .wide import ALONE, BESIDE_OBJDET, BESIDE_STRESS, Graph, corunner, slower

PAPER = published("ptemagnet")
MEASURES = {
    "walk-cycles": "walk_cycles", "host-cycles": "host_walk_cycles", "guest-dram": "guest_dram_reads",
    "host-dram": "host_dram_reads",
}  # fmt: skip

graph = cache(Graph)


def section_3(bench: Bench) -> Iterator[Row]:
    """Scatter of pagerank's neighbours."""
    alone, stress = (graph(bench).scattered(lines) for lines in (ALONE, BESIDE_STRESS))
    yield PAPER.row("scattered-alone", lines_of(alone))
    yield PAPER.row("scattered-stress", lines_of(stress))
    histogram = stress.histogram().sum(axis=0)
    share = 100 * histogram[-1] / histogram.sum()
    yield PAPER.row("regions-at-8", share, share=100 * corunner(BESIDE_STRESS))
    reads = counts(bench, BESIDE_STRESS)
    yield PAPER.row("host-over-guest", reads["host_dram_reads"] / reads["guest_dram_reads"])


def table_1(bench: Bench) -> Iterator[Row]:
    """pagerank scattered by stress-ng, which is then stopped, over pagerank alone."""
    alone, stress = counts(bench, ALONE), counts(bench, BESIDE_STRESS)
    for name, column in MEASURES.items():
        yield PAPER.row(name, stress[column] / alone[column])
    added, share = stress["walk_cycles"] / alone["walk_cycles"] - 1, replayed(bench, ALONE).walk_share
    assert share is not None, "a replayed trace has a run time"
    yield PAPER.row("time", share.through(lambda walks: 1 + walks * added))


def table_4(bench: Bench) -> Iterator[Row]:
    """pagerank beside objdet, with PTEMagnet over without."""
    before, after = counts(bench, BESIDE_OBJDET), counts(bench, BESIDE_OBJDET, "ptemagnet")
    yield PAPER.row("objdet-scattered", lines_of(graph(bench).scattered(BESIDE_OBJDET)))
    yield PAPER.row("objdet-repaired", repaired(bench))
    for name, column in MEASURES.items():
        yield PAPER.row(f"objdet-{name}", after[column] / before[column])
    yield PAPER.row("objdet-time", slower(replayed(bench, BESIDE_OBJDET, "ptemagnet")))


def lines_of(scattered: pt.reservations.Fragmentation) -> float:
    """Mean of ePT lines per gPT line, of a capture that has pages."""
    mean = scattered.mean()
    assert mean is not None
    return mean


def replayed(bench: Bench, lines: float, policy: str = "linux") -> pt.Result:
    return graph(bench).replayed(lines)[policy]


def counts(bench: Bench, lines: float, policy: str = "linux") -> dict[str, Any]:
    return replayed(bench, lines, policy).row()


def repaired(bench: Bench) -> float:
    return float(replayed(bench, BESIDE_OBJDET, "ptemagnet").facts["ept_lines_per_gpt_line_after"])


FIGURES = {"section 3.3": section_3, "Table 1": table_1, "Table 4": table_4}
