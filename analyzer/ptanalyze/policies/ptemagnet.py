"""ptemagnet: the guest reserves aligned groups of frames (Margaritov et al., ASPLOS 2021).

It moves no table and writes no more entries: only the cache lines of the ePT with the leaf entries of
neighbouring pages change. So it goes together with every policy that places tables.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta

from ..core.columns import Finding, noted
from ..core.errors import UsageError
from ..core.machine import Strict
from ..world.reservations import Reservations, measure, reserve
from .contract import Policy, Scenario

SIZES = [2**k for k in range(1, 10)]
GROUP = "pages of a reservation, a power of two; 8: as many as a cache line of the ePT has entries"
LIMIT = "unused reserved pages above which reservations are reclaimed, oldest first; -1: no limit"
PAGE_BYTES = 4096


class Params(Strict):
    group: Annotated[int, Meta(ge=2, le=512, description=GROUP)] = 8
    reserve_limit: Annotated[int, Meta(ge=-1, description=LIMIT)] = -1


def reshape(scenario: Scenario, params: Params) -> Scenario:
    """The Scenario with other guest frames; facts tell reservations and the scatter of ePT entries."""
    if params.group not in SIZES:
        raise UsageError(f"policy ptemagnet: group = {params.group}: one of {', '.join(map(str, SIZES))}")
    groups = reserve(scenario, scenario.history, params.group, params.reserve_limit)
    space = replace(scenario.space, snapshot=groups.snapshot)
    return scenario.reshaped(
        snapshot=groups.snapshot,
        facts={
            **facts(groups),
            "ept_lines_per_gpt_line_before": measure(scenario.space).mean(),
            "ept_lines_per_gpt_line_after": measure(space, filled=True).mean(),
        },
        findings=list(findings(groups, scenario)),
    )


def facts(groups: Reservations) -> dict[str, Any]:
    """{name: number} of Reservations: made and ended, and unused reserved memory (section 6.2)."""
    counts, walks = groups.counts, max(groups.walks, 1)
    return {
        "reservations": counts["reservations"],
        "reservations_reclaimed": counts["reclaimed"],
        "reservations_split_by_mremap": counts["split"],
        "faults_served_from_a_reservation": counts["served"],
        "faults_without_a_block": counts["fallbacks"],
        "pages_kept": sum(groups.kept.values()),
        "unused_bytes_peak": counts["peak"] * PAGE_BYTES,
        "unused_share_at_peak": counts["peak"] / max(counts["peak_mapped"], 1),
        "unused_bytes_mean": counts["unused_walks"] / walks * PAGE_BYTES,
        "unused_bytes_end": counts["unused"] * PAGE_BYTES,
        "unused_share_end": counts["unused"] / max(counts["mapped"], 1),
    }


def findings(groups: Reservations, scenario: Scenario) -> Iterator[Finding]:
    """What a reader of the results must know."""
    kept = [f"{pages} {reason}" for reason, pages in groups.kept.items() if pages]
    for code, holds, number in (
        ("order-unknown", not scenario.traced, 0),
        ("mapped-first", scenario.traced and groups.early, groups.early),
        ("mapped-last", groups.late, groups.late),
        ("no-vmas", not len(scenario.snapshot.vmas), 0),
        ("frames-kept", kept, ", ".join(kept)),
        ("no-block", groups.counts["fallbacks"], groups.counts["fallbacks"]),
        ("forks-unseen", scenario.traced, 0),
    ):
        if holds:
            yield noted(code, policy="ptemagnet", pages=number)


POLICY = Policy(
    "ptemagnet",
    "the guest reserves aligned groups of frames, so that neighbours share cache lines of the ePT",
    params=Params,
    source="PTEMagnet, ASPLOS '21, section 4",
    needs=("nested tables",),
    reshape=reshape,
    scope=lambda params: {"guest frames"},
)
