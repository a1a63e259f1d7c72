"""What was chosen as a sentence, and as settings of kernels that exist: one setting for a whole process."""

from __future__ import annotations

from typing import Any

import numpy as np

from .degree_choice import TIERS, Chosen
from .degree_runs import NODE, ONE, SOCKET, Point

MOST = 9  # the degree of a whole table page
OPTION = {"off": 0, "single": 1, "all": 2}  # filters as /proc/hydra/tlbflush_opt numbers them
COMMAND = "COMMAND"


def sentence(found: Chosen) -> str:
    """What costs least and by how much; when copies pay; how many of them are of use."""
    best, total = found.overall, found.cycles.sum(axis=1)
    one, mine = float(total[0]), float(total[found.of_all])
    several, least = float(found.of_each.sum()), float(found.bound.sum())
    if best.tier == ONE:
        first = "One copy costs least for all VMAs together"
    else:
        first = f"{capital(said(best))} costs least: {share(mine, one)} of one copy's cycles"
    unsure = "" if found.all_sure else " (not at both ends of the exposed share)"
    rest = f"; with the best of each VMA {share(several, one)}, bound {share(least, one)}"
    return f"{first}{unsure}{rest}. {payback(found)} {copies(found)}"


def payback(found: Chosen) -> str:
    after = float(found.pays_back[-1])
    if after == 0:
        return "Copies pay within the trace."
    if not found.known.steady:
        return "Threads move while the trace runs: nothing is said of a longer run."
    if np.isinf(after):
        return "Copies never pay: the steady part is no faster with them."
    return f"Copies pay once the steady part of the trace has run {after:,.3g} more times."


def copies(found: Chosen) -> str:
    """How many of the entries that the highest degree copies are never used, and what is saved."""
    most = found.point(tier_of(found.overall), MOST)
    copied, unused = int(most.propagated.sum()), int(found.never_used(most).sum())
    if not copied:
        return "No entry is ever copied: no node uses what another owns."
    saved = saved_entries(found)
    return (
        f"Of {copied:,} entries that degree {MOST} propagates, {share(unused, copied)} are never used; the "
        f"choice by VMA propagates {saved:,} fewer ({share(saved, copied)})."
    )


def saved_entries(found: Chosen) -> int:
    """Entries that degree 9 of the tier (of one copy: per node) propagates beyond the choice."""
    most = found.point(tier_of(found.overall), MOST)
    mine = sum(int(found.best(vma).propagated[vma]) for vma in range(len(found.known.names)))
    return int(most.propagated.sum()) - mine


def tier_of(point: Point) -> str:
    """The tier whose degrees are of interest."""
    return NODE if point.tier == ONE else point.tier


def said(point: Point) -> str:
    return TIERS[point.tier] + ("" if point.degree is None else f" with degree {point.degree}")


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def settings(found: Chosen) -> dict[str, Any]:
    """Plain values: what to set for the cheapest point that all VMAs share.

    hydra    repl_order and tlbflush_opt of its kernels, by the cheapest degree of a copy per node
    wasp     node whose replica each node's CPUs walk (PR_SET_PGTABLE_REPL_STEERING); None: no replicas
    numactl  a line; --pgtablerepl needs the numactl of Mitosis
    """
    at = [k for k, point in enumerate(found.known.points) if point.tier == NODE]
    order = found.known.points[at[int(found.cycles[at].sum(axis=1).argmin())]].degree
    option = flush_option(found)
    commands = [f"echo {order} > /proc/hydra/repl_order", f"echo {option} > /proc/hydra/tlbflush_opt"]
    hydra = {"repl_order": order, "tlbflush_opt": option, "commands": commands}
    return {"tier": found.overall.tier, "hydra": hydra, "wasp": steering(found), "numactl": numactl(found)}


def flush_option(found: Chosen) -> int:
    """The filter of shootdowns that costs least; of equal ones the paper's, 1."""
    exposed = found.known.costs.exposed.middle
    cycles = {name: p.cycles(exposed, found.repeat).sum() for name, p in found.known.filters.items()}
    least = min(cycles, key=lambda name: (cycles[name], abs(OPTION[name] - 1)))
    return OPTION[least]


def steering(found: Chosen) -> list[int] | None:
    if found.overall.tier == ONE:
        return None
    nodes = np.arange(found.known.machine.nodes)
    serving = found.known.sockets if found.overall.tier == SOCKET else nodes
    return [int(node) for node in serving]


def numactl(found: Chosen) -> str:
    """Where threads run, as in the trace; for one node its memory, else Mitosis's replicas where they pay."""
    used = np.flatnonzero(found.known.walks.sum(axis=0)).tolist()
    where, serving = f"numactl --cpunodebind={listed(used)}", steering(found)
    if len(used) == 1:
        return f"{where} --membind={listed(used)} -- {COMMAND}"
    if serving is None:
        return f"{where} --localalloc -- {COMMAND}"
    return f"{where} --pgtablerepl={listed(sorted({serving[node] for node in used}))} -- {COMMAND}"


def listed(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))
