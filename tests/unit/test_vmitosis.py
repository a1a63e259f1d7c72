"""vMitosis' replication of both dimensions: what must hold (Panwar et al., section 3.3 and Table 6)."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from naive.misplaced import Misplaced
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.kernels.replay import LL, LR, PTE_FANOUT, PTE_WRITE, RL, RR
from ptanalyze.policies.vmitosis_replicate import drawn
from replay_cases import HEAP, cases, events, reads_of, run
from strategies import PAGE, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
COSTS = load_costs(load_machine("sapphire-rapids"))
NAME = "vmitosis-replicate"


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


def counted(array):
    return {tuple(at.tolist()): int(array[tuple(at)]) for at in np.argwhere(array)}


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(cases(native=False), st.data(), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_misplaced_replicas_of_groups_count_what_their_twin_counts(case, data, share, seed):
    reads, nodes = reads_of(case), case.machine.nodes
    if not reads:
        return
    group_of = data.draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    groups = [[n for n in range(nodes) if group_of[n] == g] for g in dict.fromkeys(group_of)]
    share = share if len(groups) > 1 else 0
    chosen = drawn(len(case.space.tables.level), share, seed)
    chosen[case.space.guest_tables : case.space.guest_tables + case.space.host_tables] = False
    found, classes, happened, pages = naive.replay(
        lambda memory, space, machine: Misplaced(memory, space, nodes, np.flatnonzero(chosen), groups),
        {}, case.snapshot, case.trace, case.space, case.placement, reads[0][1], case.machine,
    )  # fmt: skip
    text = ",".join("+".join(map(str, group)) for group in groups)
    params = {"mode": "no-f", "groups": text, "misplaced": str(share), "seed": str(seed)}
    done = run(case, NAME, params).counters
    assert events(done) == happened and done.pages.tolist() == pages
    assert counted(done.reads) == found and counted(done.classes) == classes


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_all_modes_are_the_same_as_long_as_nothing_is_misplaced(case):
    each = ",".join(map(str, range(case.machine.nodes)))
    visible = run(case, NAME).counters
    for params in ({"mode": "no-p"}, {"mode": "no-f"}, {"mode": "no-f", "groups": each}):
        found = run(case, NAME, params).counters
        assert all((one == other).all() for one, other in zip(visible, found, strict=True))


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_at_worst_all_reads_of_the_guest_are_remote_and_the_hosts_as_they_were(case):
    """Section 4.2.2: every CPU walks another node's replica."""
    if case.machine.nodes == 1:
        return
    linux, nv = run(case, "linux").counters, run(case, NAME).counters
    guest = run(case, NAME, {"mode": "no-f", "misplaced": "1", "layers": "gpt"}).counters
    both = run(case, NAME, {"mode": "no-f", "misplaced": "1"}).counters
    host = [bit for bit in range(48) if bit % 8]
    for done in (guest, both):
        assert np.einsum("bnnd->", done.reads[0::8]) == 0
        assert (done.pages == nv.pages).all()
        assert done.events[:, [PTE_WRITE, PTE_FANOUT]].sum() == nv.events[:, [PTE_WRITE, PTE_FANOUT]].sum()
    assert (guest.reads[host] == linux.reads[host]).all()
    assert both.classes[:, RL].sum() == both.classes.sum()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), st.floats(0, 1), st.integers(0, 9))
def test_the_share_of_remote_leaf_reads_is_that_of_walks_through_misplaced_leaf_tables(case, share, seed):
    if case.machine.nodes == 1:
        return
    done = run(case, NAME, {"mode": "no-f", "misplaced": str(share), "seed": str(seed)}).counters
    leaf = case.space.regions.leaf[case.stream.page >> 9]
    through = drawn(len(case.space.tables.level), share, seed)[leaf]
    assert done.classes[:, RL].sum() == np.count_nonzero(through)
    assert done.classes[:, LL].sum() == np.count_nonzero(~through)


def test_misplaced_tables_are_the_same_each_time_about_as_many_as_asked_and_more_with_more():
    few, many = drawn(100_000, 0.2, 1), drawn(100_000, 0.7, 1)
    assert few.mean() == pytest.approx(0.2, abs=0.01) and many.mean() == pytest.approx(0.7, abs=0.01)
    assert not (few & ~many).any()
    assert (few == drawn(100_000, 0.2, 1)).all() and (few != drawn(100_000, 0.2, 2)).any()
    assert drawn(1000, 1.0, 3).all() and not drawn(1000, 0.0, 3).any()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_one_group_of_all_nodes_has_one_copy_of_the_guests_table(case):
    every = "+".join(map(str, range(case.machine.nodes)))
    one, grouped = run(case, "linux").counters, run(case, NAME, {"mode": "no-f", "groups": every}).counters
    assert (one.pages == grouped.pages).all()
    assert grouped.events[:, PTE_FANOUT].sum() == 0
    assert grouped.reads[0::8].sum() == grouped.reads[0::8, :, 0].sum()
    assert grouped.host_pages[0] == case.machine.nodes * case.space.host_tables


NO_F = {"mode": "no-f"}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"groups": "0,1"}, r"groups = 0,1: only where groups are discovered: --set mode=no-f \(mode = nv\)"),
        ({"misplaced": "0.5", "mode": "no-p"}, r"misplaced = 0.5: only where .* \(mode = no-p\)"),
        ({**NO_F, "groups": "0,1", "nodes": "0"}, "each group has a replica; leave out nodes = 0"),
        ({**NO_F, "groups": "0+2"}, r"groups = 0\+2: '2' is no node, machine small has nodes 0\.\.1"),
        ({**NO_F, "groups": "0"}, "groups = 0: '1' is in no group"),
        ({**NO_F, "groups": "0+1,1"}, "'1' is in two"),
        ({**NO_F, "groups": "0+1,"}, "'' is no node"),
        ({**NO_F, "groups": "0+1", "misplaced": "1"}, "misplaced = 1.0: one replica has no other's node"),
        ({**NO_F, "misplaced": "1.5"}, r"misplaced = 1.5: .*allowed: 0\.\.1"),
        ({"mode": "nf"}, "mode = nf: .*allowed: no-f, no-p, nv"),
    ],
)
def test_contradictory_modes_are_refused_in_one_line(params, why):
    snapshot = build_snapshot([(HEAP, 1)], [])
    with pytest.raises(UsageError, match=why) as caught:
        replay_snapshot(
            snapshot,
            build_trace([(0, [HEAP])]),
            [(NAME, params)],
            Setup.of(machine=small_machine(2), costs=COSTS),
        )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("reserve", "unused", "refills"), [(10, 12, 0), (4, 0, 0), (3, 0, 2)])
def test_page_caches_say_what_was_reserved_for_nothing_and_what_was_missing(reserve, unused, refills):
    """Two nodes' replicas of 4 guest tables."""
    snapshot = build_snapshot([(HEAP, 1)], [])
    for trace in (build_trace([(0, [HEAP])]), None):
        params = {"page_cache": reserve, "mode": "no-f", "misplaced": 1.0}
        _, done = replay_snapshot(
            snapshot,
            trace,
            [(NAME, params)],
            Setup.of(machine=small_machine(2), costs=COSTS, threads_on="round-robin"),
        )
        assert done.facts["gpt_page_cache_bytes_reserved"] == 2 * reserve * PAGE
        assert done.facts["gpt_page_cache_bytes_unused"] == unused * PAGE
        assert done.facts["gpt_page_cache_refills"] == refills
        assert done.facts["gpt_tables_misplaced"] == 4
        spare = 2 * reserve - done.host_pages
        assert done.facts["ept_page_cache_bytes_unused"] == max(spare, 0) * PAGE
        assert done.facts["ept_page_cache_refills"] == max(-spare, 0)
        assert done.classes[:, RL].sum() == done.walks


def test_a_native_capture_is_refused_with_the_way_out():
    snapshot = build_snapshot([(HEAP, 1)])
    for trace in (None, build_trace([(0, [HEAP])])):
        with pytest.raises(UsageError, match="vmitosis-replicate: a native capture has no host tables"):
            replay_snapshot(
                snapshot,
                trace,
                [(NAME, {})],
                Setup.of(machine=small_machine(2), costs=COSTS, threads_on="round-robin"),
            )


def test_nodes_that_the_machine_lacks_are_named():
    snapshot = build_snapshot([(HEAP, 1)], [])
    with pytest.raises(UsageError, match=r"vmitosis-replicate: nodes = 0,7: '7' is no node, .* 0\.\.1"):
        replay_snapshot(
            snapshot, None, [(NAME, {"nodes": "0,7"})], Setup.of(machine=small_machine(2), costs=COSTS)
        )


def test_rows_split_walk_cycles_and_dram_reads_by_dimension():
    snapshot = build_snapshot([(HEAP + k * PAGE, k) for k in range(8)], [], table_nodes=(1,))
    trace = build_trace([(0, [HEAP + k * PAGE for k in range(8)])])
    rows = [
        r.row()
        for r in replay_snapshot(
            snapshot,
            trace,
            [(NAME, {})],
            Setup.of(machine=small_machine(2), costs=COSTS, threads_on="round-robin", cold=True),
        )
    ]
    for row in rows:
        assert row["guest_walk_cycles"] + row["host_walk_cycles"] == pytest.approx(row["walk_cycles"])
        assert row["guest_dram_reads"] + row["host_dram_reads"] == row["dram_reads"]
        assert row["guest_walk_cycles"] > 0 < row["host_walk_cycles"]
    assert rows[0]["host_walk_cycles"] == rows[1]["host_walk_cycles"]
    assert rows[0]["guest_walk_cycles"] > rows[1]["guest_walk_cycles"]
