"""vMitosis' replication of both dimensions: what must hold (Panwar et al., section 3.3 and Table 6)."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.errors import UsageError
from ptanalyze.kernels.replay import LL, LR, PTE_FANOUT, PTE_WRITE, RR
from ptanalyze.machine import load_costs, load_machine
from ptanalyze.policies import plan_for
from ptanalyze.replay import start
from ptanalyze.snapshot import VMA_DTYPE, Snapshot, Tree
from ptanalyze.whatif import whatif
from ptanalyze.world.world import untouched
from replay_cases import HEAP, cases, run
from strategies import PAGE, build_snapshot, build_topology, build_trace, small_machine

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
COSTS = load_costs(load_machine("sapphire-rapids"))
NAME = "vmitosis-replicate"
GIB = 1 << 30


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_replicating_both_dimensions_takes_n_times_the_pages_and_guest_writes_and_all_is_local(case):
    nodes = case.machine.nodes
    one, both = run(case, "first-touch"), run(case, NAME)
    assert (both.counters.pages == nodes * one.counters.pages).all()
    assert both.counters.host_pages[0] == nodes * case.space.host_tables
    written = both.counters.events[:, [PTE_WRITE, PTE_FANOUT]].sum()
    assert written == nodes * one.counters.events[:, PTE_WRITE].sum()
    assert both.counters.classes[:, LL].sum() == both.counters.classes.sum()
    assert both.counters.reads.sum() == np.einsum("bnnd->", both.counters.reads)


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_an_ept_replicated_alone_is_read_locally_and_leaves_the_guest_as_captured(case):
    linux, ept = run(case, "linux").counters, run(case, NAME, {"layers": "ept"}).counters
    host = [bit for bit in range(48) if bit % 8]
    assert ept.reads[host].sum() == np.einsum("bnnd->", ept.reads[host])
    assert (ept.reads[0::8] == linux.reads[0::8]).all()
    assert (ept.events == linux.events).all() and (ept.pages == linux.pages).all()
    assert ept.classes[:, [LR, RR]].sum() == 0


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), st.data())
def test_replicas_on_some_nodes_take_so_many_pages(case, data):
    some = data.draw(st.lists(st.integers(0, case.machine.nodes - 1), min_size=1, unique=True))
    one, few = run(case, "linux"), run(case, NAME, {"nodes": ",".join(map(str, some))})
    assert (few.counters.pages == len(some) * one.counters.pages).all()
    assert (few.counters.host_pages == len(some) * one.counters.host_pages).all()


def test_a_native_capture_is_refused_with_the_way_out():
    snapshot = build_snapshot([(HEAP, 1)])
    for trace in (None, build_trace([(0, [HEAP])])):
        with pytest.raises(UsageError, match="vmitosis-replicate: a native capture has no host tables"):
            whatif(snapshot, trace, small_machine(2), [(NAME, {})], costs=COSTS, placement="round-robin")


def test_nodes_that_the_machine_lacks_are_named():
    snapshot = build_snapshot([(HEAP, 1)], [])
    with pytest.raises(UsageError, match=r"vmitosis-replicate: nodes = 0,7: '7' is no node, .* 0\.\.1"):
        whatif(snapshot, None, small_machine(2), [(NAME, {"nodes": "0,7"})], costs=COSTS)


def test_rows_split_walk_cycles_and_dram_reads_by_dimension():
    snapshot = build_snapshot([(HEAP + k * PAGE, k) for k in range(8)], [], table_nodes=(1,))
    trace = build_trace([(0, [HEAP + k * PAGE for k in range(8)])])
    rows = [r.row() for r in whatif(snapshot, trace, small_machine(2), [(NAME, {})], costs=COSTS,
                                    placement="round-robin")]  # fmt: skip
    for row in rows:
        assert row["guest_walk_cycles"] + row["host_walk_cycles"] == pytest.approx(row["walk_cycles"])
        assert row["guest_dram_reads"] + row["host_dram_reads"] == row["dram_reads"]
        assert row["guest_walk_cycles"] > 0 < row["host_walk_cycles"]
    assert rows[0]["host_walk_cycles"] == rows[1]["host_walk_cycles"]
    assert rows[0]["guest_walk_cycles"] > rows[1]["guest_walk_cycles"]


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
    taken = start(plan_for(NAME, {"nodes": replicas}), world)
    pages = gigabytes // 6 * (1536 * 512 + 1536 + 3 + 1)
    assert taken.counters.pages[0] == taken.counters.host_pages[0] == pages
    assert 2 * pages * PAGE / GIB == pytest.approx(gigabytes, rel=0.003)
