"""vMitosis, Table 6: what the page tables of its largest VM take; nothing is walked."""

import numpy as np
import pytest

from ptanalyze.analysis.replay import start
from ptanalyze.core.snapshot import VMA_DTYPE, Snapshot, Tree
from ptanalyze.policies import plan_for
from ptanalyze.world.world import untouched
from strategies import PAGE, build_topology, small_machine

GIB = 1 << 30


def tree_over(gib, encoding):
    """A 4-level tree over `gib` GiB of 4 KiB pages; its entries, all zero, take no memory."""
    leaves, middle, upper = gib * 512, gib, -(-gib // 512)
    level = np.concatenate([[4], np.full(upper, 3), np.full(middle, 2), np.full(leaves, 1)]).astype(np.uint8)
    first = 1, 1 + upper, 1 + upper + middle
    parent = np.concatenate(
        [[-1], np.zeros(upper), first[0] + np.arange(middle) // 512, first[1] + np.arange(leaves) // 512]
    ).astype(np.int32)
    base = np.concatenate(
        [[0], *(np.arange(n) << bits for n, bits in ((upper, 39), (middle, 30), (leaves, 21)))]
    )
    rows = len(level)
    zero = np.broadcast_to(np.zeros(1, np.uint64), (rows, 512))
    plain = np.zeros(rows, np.int16), level, np.zeros(rows, np.uint8)
    return Tree(zero, base.astype(np.uint64), np.arange(rows), parent, *plain, 4, encoding)


@pytest.mark.parametrize(("replicas", "gigabytes"), [("0", 6), ("0,2", 12), ("", 24)])
def test_table_6_page_tables_of_a_vm_of_a_tebibyte_and_a_half(replicas, gigabytes):
    """Both dimensions of 1.5 TiB at 4 KiB pages take 6, 12, 24 GB with 1, 2, 4 replicas."""
    empty = tree_over(1536, "x86"), np.zeros(0, VMA_DTYPE), (), build_topology(4), tree_over(1536, "ept")
    world = untouched(Snapshot(*empty), small_machine(4))
    taken = start(plan_for("vmitosis-replicate", {"nodes": replicas}), world)
    pages = gigabytes // 6 * (1536 * 512 + 1536 + 3 + 1)
    assert taken.counters.pages[0] == taken.counters.host_pages[0] == pages
    assert 2 * pages * PAGE / GIB == pytest.approx(gigabytes, rel=0.003)
