"""Demotion of idle data pages to nodes without CPUs, by a stated schedule.

Linux (6.12, /sys/kernel/mm/numa/demotion_enabled): kswapd of a node, on a CPU of that node, hands cold pages
to demote_folio_list (mm/vmscan.c), which migrates them to a node of the next lower tier (migrate_pages in
mm/migrate.c). Batches are what reclaim isolates at a time: SWAP_CLUSTER_MAX, 32 pages; MIN_LRU_BATCH, 64,
with the multi-generational LRU. DAMON's are larger, up to 512 (NR_MAX_BATCHED_MIGRATION).

Here every page that no walk has used from one look to the next is demoted, however much memory is free. A
walk sets the accessed bit and a hit in the TLB does not, in the kernel as here. Looking costs nothing.
"""

from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import UsageError
from ..kernels.steps import DATA, DEMOTION, FLUSH
from .history import History
from .site import Site

if TYPE_CHECKING:
    from ..kernels.demotion import Demotion


def check_demotion(site: Site) -> None:
    """UsageError where nothing can be demoted, or the replay could not tell what."""
    time = site.trace.chunks["time"]
    if not site.machine.memory_nodes:
        raise UsageError(
            f"demote-idle: machine {site.machine.name} has no slower memory; name nodes without CPUs in a "
            "machine file: memory_nodes = [2]"
        )
    if not site.captured.snapshot.native:
        raise UsageError("demote-idle: the capture is of a VM; demotion is modelled for native captures")
    if len(time) > 1 and time[0] == time[-1]:
        raise UsageError(
            "demote-idle: the trace has no times: record one with `ptanalyze record -o DIR -- COMMAND`"
        )


def demotion(site: Site) -> "Demotion":
    """Pages go to the nearest node without CPUs (next_demotion_node, mm/memory-tiers.c)."""
    from ..kernels.demotion import Demotion

    machine, moves = site.machine, site.moves
    target = np.full(machine.nodes, -1, np.int16)
    if moves.demote_idle_ms:
        cpus, slow = np.array(machine.cpu_nodes), np.array(machine.memory_nodes)
        target[cpus] = slow[machine.latency_cycles()[cpus][:, slow].argmin(axis=1)]
    return Demotion(round(moves.demote_idle_ms * 1e6), moves.demote_batch, target)


def first_look(site: Site) -> int:
    """Time in ns at which demotion looks for the first time: so long after the first walk."""
    walked = np.flatnonzero(np.diff(site.stream.offset))
    began = int(site.trace.chunks["time"][walked[0]]) if len(walked) else 0
    return began + round(site.moves.demote_idle_ms * 1e6)


def demotion_notes(site: Site, past: History) -> list[str]:
    """What was demoted, and what is left out; none without demotion."""
    if not site.moves.demote_idle_ms:
        return []
    steps, moves = past.steps, site.moves
    mine = steps.call == DEMOTION
    pages, batches = (int(np.count_nonzero(mine & (steps.kind == kind))) for kind in (DATA, FLUSH))
    return [
        f"demotion: {pages} pages that no walk used for {moves.demote_idle_ms / 1000:g} s went to slower "
        f"memory, with {batches} shootdowns, each of at most {moves.demote_batch} pages of 4 KiB or one of "
        "2 MiB; kswapd works beside the program and only interrupts its run; pages in tables that the trace "
        "never touches are left out"
    ]
