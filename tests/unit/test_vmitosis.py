"""vMitosis: replication, migration, and the sizes and the interleaving of its tables."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from naive.policies import Misplaced
from ptanalyze.analysis.replay import start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.machine import Moves, load_costs, load_machine
from ptanalyze.core.snapshot import VMA_DTYPE, Snapshot, Tree
from ptanalyze.core.trace import Event
from ptanalyze.cost import price as cost
from ptanalyze.formats.capture import open_capture
from ptanalyze.kernels import LL, LR, PTE_FANOUT, PTE_WRITE, RL, RR, TABLE_MOVED
from ptanalyze.policies import find, plan_for
from ptanalyze.policies.vmitosis_replicate import drawn
from ptanalyze.world.scenario import untouched
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.plan import Parameters
from replay_cases import HEAP, case, cases, events, reads_of, run
from strategies import (
    FRAMES_PER_NODE,
    PAGE,
    REGION,
    Page,
    build_snapshot,
    build_topology,
    build_trace,
    small_machine,
)

# vMitosis' replication of both dimensions: what must hold (Panwar et al., section 3.3 and Table 6).

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
COSTS = load_costs(load_machine("sapphire-rapids"))
REPLICATE = "vmitosis-replicate"


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_replicating_both_dimensions_takes_n_times_the_pages_and_guest_writes_and_all_is_local(case):
    nodes = case.machine.nodes
    one, both = run(case, "first-touch"), run(case, REPLICATE)
    assert (both.counters.pages == nodes * one.counters.pages).all()
    assert both.counters.host_pages[0] == nodes * case.space.host_tables
    written = both.counters.events[:, [PTE_WRITE, PTE_FANOUT]].sum()
    assert written == nodes * one.counters.events[:, PTE_WRITE].sum()
    assert both.counters.classes[:, LL].sum() == both.counters.classes.sum()
    assert both.counters.reads.sum() == np.einsum("bnnd->", both.counters.reads)


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_an_ept_replicated_alone_is_read_locally_and_leaves_the_guest_as_captured(case):
    linux, ept = run(case, "linux").counters, run(case, REPLICATE, {"layers": "ept"}).counters
    host = [bit for bit in range(48) if bit % 8]
    assert ept.reads[host].sum() == np.einsum("bnnd->", ept.reads[host])
    assert (ept.reads[0::8] == linux.reads[0::8]).all()
    assert (ept.events == linux.events).all() and (ept.pages == linux.pages).all()
    assert ept.classes[:, [LR, RR]].sum() == 0


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), st.data())
def test_replicas_on_some_nodes_take_so_many_pages(case, data):
    some = data.draw(st.lists(st.integers(0, case.machine.nodes - 1), min_size=1, unique=True))
    one, few = run(case, "linux"), run(case, REPLICATE, {"nodes": ",".join(map(str, some))})
    assert (few.counters.pages == len(some) * one.counters.pages).all()
    assert (few.counters.host_pages == len(some) * one.counters.host_pages).all()


def counted(array):
    return {tuple(at.tolist()): int(array[tuple(at)]) for at in np.argwhere(array)}


@pytest.mark.twin
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
    done = run(case, REPLICATE, params).counters
    assert events(done) == happened and done.pages.tolist() == pages
    assert counted(done.reads) == found and counted(done.classes) == classes


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_all_modes_are_the_same_as_long_as_nothing_is_misplaced(case):
    each = ",".join(map(str, range(case.machine.nodes)))
    visible = run(case, REPLICATE).counters
    for params in ({"mode": "no-p"}, {"mode": "no-f"}, {"mode": "no-f", "groups": each}):
        found = run(case, REPLICATE, params).counters
        assert all((one == other).all() for one, other in zip(visible, found, strict=True))


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_at_worst_all_reads_of_the_guest_are_remote_and_the_hosts_as_they_were(case):
    """Section 4.2.2: every CPU walks another node's replica."""
    if case.machine.nodes == 1:
        return
    linux, nv = run(case, "linux").counters, run(case, REPLICATE).counters
    guest = run(case, REPLICATE, {"mode": "no-f", "misplaced": "1", "layers": "gpt"}).counters
    both = run(case, REPLICATE, {"mode": "no-f", "misplaced": "1"}).counters
    host = [bit for bit in range(48) if bit % 8]
    for done in (guest, both):
        assert np.einsum("bnnd->", done.reads[0::8]) == 0
        assert (done.pages == nv.pages).all()
        assert done.events[:, [PTE_WRITE, PTE_FANOUT]].sum() == nv.events[:, [PTE_WRITE, PTE_FANOUT]].sum()
    assert (guest.reads[host] == linux.reads[host]).all()
    assert both.classes[:, RL].sum() == both.classes.sum()


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), st.floats(0, 1), st.integers(0, 9))
def test_the_share_of_remote_leaf_reads_is_that_of_walks_through_misplaced_leaf_tables(case, share, seed):
    if case.machine.nodes == 1:
        return
    done = run(case, REPLICATE, {"mode": "no-f", "misplaced": str(share), "seed": str(seed)}).counters
    leaf = case.space.regions.leaf[case.stream.page >> 9]
    through = drawn(len(case.space.tables.level), share, seed)[leaf]
    assert done.classes[:, RL].sum() == np.count_nonzero(through)
    assert done.classes[:, LL].sum() == np.count_nonzero(~through)


@pytest.mark.twin
def test_misplaced_tables_are_the_same_each_time_about_as_many_as_asked_and_more_with_more():
    few, many = drawn(100_000, 0.2, 1), drawn(100_000, 0.7, 1)
    assert few.mean() == pytest.approx(0.2, abs=0.01) and many.mean() == pytest.approx(0.7, abs=0.01)
    assert not (few & ~many).any()
    assert (few == drawn(100_000, 0.2, 1)).all() and (few != drawn(100_000, 0.2, 2)).any()
    assert drawn(1000, 1.0, 3).all() and not drawn(1000, 0.0, 3).any()


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_one_group_of_all_nodes_has_one_copy_of_the_guests_table(case):
    every = "+".join(map(str, range(case.machine.nodes)))
    one, grouped = (
        run(case, "linux").counters,
        run(case, REPLICATE, {"mode": "no-f", "groups": every}).counters,
    )
    assert (one.pages == grouped.pages).all()
    assert grouped.events[:, PTE_FANOUT].sum() == 0
    assert grouped.reads[0::8].sum() == grouped.reads[0::8, :, 0].sum()
    assert grouped.host_pages[0] == case.machine.nodes * case.space.host_tables


NO_F = {"mode": "no-f"}


@pytest.mark.twin
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
            [(REPLICATE, params)],
            Setup.of(machine=small_machine(2), costs=COSTS),
        )
    assert "\n" not in str(caught.value)


@pytest.mark.twin
@pytest.mark.parametrize(("reserve", "unused", "refills"), [(10, 12, 0), (4, 0, 0), (3, 0, 2)])
def test_page_caches_say_what_was_reserved_for_nothing_and_what_was_missing(reserve, unused, refills):
    """Two nodes' replicas of 4 guest tables."""
    snapshot = build_snapshot([(HEAP, 1)], [])
    for trace in (build_trace([(0, [HEAP])]), None):
        params = {"page_cache": reserve, "mode": "no-f", "misplaced": 1.0}
        _, done = replay_snapshot(
            snapshot,
            trace,
            [(REPLICATE, params)],
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


@pytest.mark.twin
def test_a_native_capture_is_refused_with_the_way_out():
    snapshot = build_snapshot([(HEAP, 1)])
    for trace in (None, build_trace([(0, [HEAP])])):
        with pytest.raises(UsageError, match="vmitosis-replicate: a native capture has no host tables"):
            replay_snapshot(
                snapshot,
                trace,
                [(REPLICATE, {})],
                Setup.of(machine=small_machine(2), costs=COSTS, threads_on="round-robin"),
            )


@pytest.mark.twin
def test_nodes_that_the_machine_lacks_are_named():
    snapshot = build_snapshot([(HEAP, 1)], [])
    with pytest.raises(UsageError, match=r"vmitosis-replicate: nodes = 0,7: '7' is no node, .* 0\.\.1"):
        replay_snapshot(
            snapshot, None, [(REPLICATE, {"nodes": "0,7"})], Setup.of(machine=small_machine(2), costs=COSTS)
        )


@pytest.mark.twin
def test_rows_split_walk_cycles_and_dram_reads_by_dimension():
    snapshot = build_snapshot([(HEAP + k * PAGE, k) for k in range(8)], [], table_nodes=(1,))
    trace = build_trace([(0, [HEAP + k * PAGE for k in range(8)])])
    rows = [
        r.row()
        for r in replay_snapshot(
            snapshot,
            trace,
            [(REPLICATE, {})],
            Setup.of(machine=small_machine(2), costs=COSTS, threads_on="round-robin", cold=True),
        )
    ]
    for row in rows:
        assert row["guest_walk_cycles"] + row["host_walk_cycles"] == pytest.approx(row["walk_cycles"])
        assert row["guest_dram_reads"] + row["host_dram_reads"] == row["dram_reads"]
        assert row["guest_walk_cycles"] > 0 < row["host_walk_cycles"]
    assert rows[0]["host_walk_cycles"] == rows[1]["host_walk_cycles"]
    assert rows[0]["guest_walk_cycles"] > rows[1]["guest_walk_cycles"]


# Page-table migration by counting on fingers: vMitosis, sections 2.1, 3.2 and 4.3.

SERVER_COSTS = load_costs(None, "server-2020")
MIGRATE, PAGES = "vmitosis-migrate", 40
VAS = [HEAP + k * PAGE for k in range(PAGES)] + [HEAP + (1 << 30) + k * PAGE for k in range(PAGES)]
AUTONUMA = Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001, scan_size_mb=64)
BY_HOST = Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001, scan_size_mb=64, by="host")


def thin(native=True):
    """One thread's workload, data and tables on node 0; the guest's frames lie together."""
    pages = [(va, 1000 + k) for k, va in enumerate(VAS)]
    vmas = [(HEAP, HEAP + (2 << 30), "h")]
    return build_snapshot(pages, None if native else [], nodes=2, vmas=vmas)


def passes(count, events=()):
    """Every page in each pass; the pages were mapped before."""
    return build_trace([(0, VAS)] * count, [(0, 0, Event.ROI_START, (), 0), *events])


def results(snapshot, trace, policies, moves=None, move_threads="0:1@50%", **options):
    return replay_snapshot(
        snapshot,
        trace,
        policies,
        Setup.of(
            machine=small_machine(2),
            baseline="linux",
            costs=SERVER_COSTS,
            threads_on="0",
            autonuma=moves,
            move_threads=move_threads,
            cold=True,
            **options,
        ),
    )


def last(result):
    """Classes of the last window as a list LL LR RL RR."""
    return result.series.classes[-1].sum(axis=0).tolist()


@pytest.mark.twin
def test_natively_all_reads_are_local_again_once_the_data_have_followed_the_threads():
    linux, moved = results(thin(), passes(8), [(MIGRATE, {})], AUTONUMA, windows=7)
    assert linux.series.classes[0].sum(axis=0).tolist()[RL] == 0
    assert last(linux)[LL] == last(moved)[RL] == 0
    assert last(moved)[LL] == last(linux)[RL] > 0
    assert moved.series.data_moved[-1] == len(VAS)
    assert moved.count("tables_moved") == moved.series.tables_moved[-1] == moved.table_pages == 6
    assert moved.events[9].tolist() == [[0, 6], [0, 0]], "each table once, from node 0 to node 1"
    assert moved.table_pages_peak == linux.table_pages_peak
    assert moved.count("pte_writes") == linux.count("pte_writes") + 5, (
        "one parent's entry each but the root's"
    )
    assert moved.count("pte_fanout") == 0


@pytest.mark.twin
@pytest.mark.parametrize(
    ("layers", "kind"), [("both", LL), ("gpt", LR), ("ept", RL)], ids=["both", "gPT only", "ePT only"]
)
def test_in_a_vm_that_sees_the_nodes_each_layer_brings_its_own_reads_back(layers, kind):
    linux, moved, ready = results(
        thin(native=False),
        passes(8),
        [(MIGRATE, {"layers": layers}), ("vmitosis-replicate", {})],
        AUTONUMA,
        windows=7,
    )
    assert np.flatnonzero(last(linux)).tolist() == [RR]
    assert np.flatnonzero(last(moved)).tolist() == [kind]
    assert all((ready.series.classes[k].sum(axis=0)[1:] == 0).all() for k in range(7))
    assert (moved.table_pages, moved.host_pages) == (linux.table_pages, linux.host_pages)
    assert moved.count("tables_moved") == (0 if layers == "ept" else moved.table_pages)
    host = moved.count("tables_moved", host=True)
    assert (host == 0) if layers == "gpt" else (0 < host <= moved.host_pages)


@pytest.mark.twin
def test_a_hypervisor_moves_the_gpt_with_the_data_and_the_ept_stays_unless_migrated():
    """vMitosis, Figure 6b: RI, then RI+M."""
    linux, moved = results(thin(native=False), passes(8), [(MIGRATE, {"layers": "ept"})], BY_HOST, windows=7)
    assert np.flatnonzero(last(linux)).tolist() == [LR]
    assert np.flatnonzero(last(moved)).tolist() == [LL]
    assert linux.count("tables_moved") == moved.count("tables_moved") == linux.table_pages
    assert linux.count("ipis") == 0


@pytest.mark.twin
def test_guest_tables_that_share_a_page_of_the_hosts_move_together_by_one_write():
    pages = [(va, 1000 + k) for k, va in enumerate(VAS)]
    shared = [Page(1 << 32, 1 << 20, 2)]  # the guest's six tables have frames 1 << 20 and up
    snapshot = build_snapshot(pages, shared, nodes=2, vmas=[(HEAP, HEAP + (2 << 30), "h")])
    linux, moved = results(snapshot, passes(8), [(MIGRATE, {"layers": "ept"})], BY_HOST)
    assert linux.count("tables_moved") == linux.table_pages == 6
    assert linux.count("pte_writes", host=True) == len(VAS) + 1
    tables = moved.count("tables_moved", host=True)
    assert moved.count("pte_writes", host=True) == len(VAS) + 1 + tables - 1, (
        "and each one's parent but the root"
    )


@pytest.mark.twin
def test_nothing_migrates_while_no_data_move():
    linux, moved = results(thin(native=False), passes(4), [(MIGRATE, {})])
    assert moved.count("tables_moved") == moved.count("tables_moved", host=True) == 0
    assert (linux.classes == moved.classes).all() and (linux.reads == moved.reads).all()


def half_moved(count):
    """`count` of the 40 pages of the first region were moved to node 1 by an event."""
    event = (2, 0, Event.MOVE_PAGES, (HEAP, count * PAGE, 1), 0)
    return results(thin(), passes(4, [event]), [(MIGRATE, {})], move_threads="")[1]


@pytest.mark.twin
@pytest.mark.parametrize(("count", "moved"), [(20, 0), (21, 2), (40, 2)])
def test_a_tie_stays_and_one_page_more_moves_the_table_and_the_one_above_that_holds_only_it(count, moved):
    assert half_moved(count).count("tables_moved") == moved


@pytest.mark.twin
def test_the_root_moves_last_and_only_when_most_of_it_has():
    both = [(2, 0, Event.MOVE_PAGES, (HEAP + k * (1 << 30), PAGES * PAGE, 1), 0) for k in range(2)]
    one, two = (results(thin(), passes(4, both[:n]), [(MIGRATE, {})], move_threads="")[1] for n in (1, 2))
    assert one.count("tables_moved") == 2, "leaf and level 2; level 3 has a tie"
    assert two.count("tables_moved") == 6


@pytest.mark.twin
def test_put_right_at_once_on_a_dump_is_a_majority_of_children():
    """Two leaf tables with data on nodes 1 and 1, one on 0; everything was made on node 0."""
    frames = [FRAMES_PER_NODE + 7, FRAMES_PER_NODE + 8, 9]
    snapshot = build_snapshot([(HEAP + k * REGION, frame) for k, frame in enumerate(frames)], nodes=2)
    linux, right = replay_snapshot(
        snapshot, None, [(MIGRATE, {})], Setup.of(machine=small_machine(2), costs=SERVER_COSTS)
    )
    assert linux.classes.tolist() == [[3, 0, 0, 0], [0, 0, 3, 0]]
    assert right.classes.tolist() == [[1, 0, 2, 0], [2, 0, 1, 0]]
    assert right.one_time.count(TABLE_MOVED) == 5, (
        "two leaves, level 2 by majority, level 3 and the root with it"
    )
    never = replay_snapshot(
        snapshot,
        None,
        [(MIGRATE, {"verify": "never"})],
        Setup.of(machine=small_machine(2), costs=SERVER_COSTS),
    )[1]
    assert (never.classes == linux.classes).all() and never.one_time.count(TABLE_MOVED) == 0


@pytest.mark.twin
def test_put_right_at_once_in_both_dimensions():
    gpa = 1000 << 12
    snapshot = build_snapshot([(HEAP, 1000)], [Page(gpa, FRAMES_PER_NODE + 3)], nodes=2)
    linux, right = replay_snapshot(
        snapshot, None, [(MIGRATE, {})], Setup.of(machine=small_machine(2), costs=SERVER_COSTS)
    )
    assert linux.classes[1].tolist() == [0, 0, 0, 1] and right.classes[1].tolist() == [1, 0, 0, 0]
    assert right.one_time.count(TABLE_MOVED) == 4 and right.one_time.count(TABLE_MOVED, host=True) >= 1


@pytest.mark.twin
def test_mitosis_migrates_by_replicating_everything_and_freeing_what_was():
    moved = results(thin(), passes(4), [("mitosis", {"mode": "migrate"})])[1]
    assert moved.count("tables_moved") == moved.count("tables_freed") == moved.table_pages == 6
    assert moved.table_pages_peak == 2 * moved.table_pages
    assert moved.classes[:, RL].sum() == 0
    assert moved.price.management_cycles > 0


@pytest.mark.twin
def test_hydra_copies_entries_at_the_first_touch_after_the_move_and_is_local_from_then_on():
    moved = results(thin(), passes(6), [("hydra", {"prefetch": 0})], windows=5)[1]
    assert moved.count("replica_faults") == len(VAS)
    assert moved.classes[1][RL] == 0 == last(moved)[RL], "the walk after a fault is in the copy"


@pytest.mark.twin
def test_threads_that_moved_keep_their_tables_under_linux_and_need_none_under_mitosis():
    linux, mitosis = results(thin(), passes(4), [("mitosis", {})])
    assert linux.classes[1][LL] == 0 and linux.classes[1][RL] > 0
    assert mitosis.classes[:, RL].sum() == 0


@pytest.mark.twin
def test_moving_costs_what_it_costs():
    linux, moved = results(thin(), passes(8), [(MIGRATE, {})], AUTONUMA)
    assert moved.price.management_cycles > linux.price.management_cycles
    assert cost.walk_cycles(moved.reads, small_machine(2)) < cost.walk_cycles(linux.reads, small_machine(2))


@pytest.mark.twin
@pytest.mark.parametrize(
    ("params", "said"), [({"layers": "neither"}, "both, ept, gpt"), ({"verify": "often"}, "never, start")]
)
def test_unknown_parameters_name_the_allowed_ones(params, said):
    with pytest.raises(UsageError, match=said):
        find(MIGRATE).configure(params)


@pytest.mark.twin
def test_what_cannot_be_is_refused_in_a_line():
    with pytest.raises(UsageError, match="vmitosis-migrate: a native capture has no host tables"):
        results(thin(), passes(1), [(MIGRATE, {"layers": "ept"})])
    one_node = build_snapshot([(HEAP, 1)], nodes=1)
    with pytest.raises(UsageError, match="all data of a single-node capture are on that node"):
        replay_snapshot(
            one_node, None, [(MIGRATE, {})], Setup.of(machine=small_machine(2), costs=SERVER_COSTS)
        )
    with pytest.raises(UsageError, match="nodes = 1: with mode = migrate the copy follows"):
        results(thin(), passes(1), [("mitosis", {"mode": "migrate", "nodes": "1"})])
    with pytest.raises(UsageError, match="needs the order of accesses"):
        replay_snapshot(
            thin(),
            None,
            [("mitosis", {"mode": "migrate"})],
            Setup.of(machine=small_machine(2), costs=SERVER_COSTS),
        )


# Interleaved tables: spread evenly in each dimension of a VM, and independently of each other.

MIB = 1 << 20
GUESTS = (
    {"guest": "visible"},
    {"guest": "oblivious"},
    {"guest": "visible", "init": "single"},
    {"guest": "visible", "placement": "interleave", "host_placement": "interleave"},
)


def interleaved(capture, policy="interleave", trace=None):
    """(shares LL, LR, RL, RR of the walks, number of the host's tables)."""
    machine = load_machine("vmitosis-cascade-lake")
    results = replay_snapshot(capture.snapshot, trace, [(policy, {})], Setup.of(machine=machine))
    found = next(result for result in results if result.policy == policy)
    return found.classes.sum(axis=0) / found.classes.sum(), found.host_single_copy


def deviation(tables, nodes=4):
    """Three standard deviations of the share of LL, if each host table drew one of the nodes by itself."""
    return 3 * np.sqrt((1 / nodes) * (1 - 1 / nodes) / tables) / nodes


@pytest.mark.parametrize("guest", GUESTS)
def test_one_walk_in_sixteen_is_local_in_both_dimensions_on_four_nodes(guest, tmp_path):
    synthesize(Parameters(size=256 * MIB, nodes=4, threads=4, accesses=40_000, **guest), tmp_path / "c")
    capture = open_capture(tmp_path / "c")
    for trace in (None, capture.trace):
        shares, tables = interleaved(capture, trace=trace)
        assert shares[LL] == pytest.approx(1 / 16, abs=min(deviation(tables), 0.01))
        assert shares[[LL, LR]].sum() == pytest.approx(1 / 4, abs=0.02)
        assert shares[[LL, RL]].sum() == pytest.approx(1 / 4, abs=0.02)


@pytest.mark.parametrize("name", ["vm-numa-visible", "vm-numa-oblivious"])
def test_so_it_is_in_the_bundled_vms_as_far_as_their_few_tables_allow(name):
    shares, tables = interleaved(open_capture(bundled("samples") / name))
    assert shares[LL] == pytest.approx(1 / 16, abs=deviation(tables))


@pytest.mark.parametrize("guest", GUESTS[-1:])
def test_a_capture_that_was_interleaved_has_independent_dimensions_too(guest, tmp_path):
    synthesize(
        Parameters(size=256 * MIB, nodes=4, threads=4, accesses=1, **guest), tmp_path / "c", trace=False
    )
    shares, tables = interleaved(open_capture(tmp_path / "c"), "linux")
    assert shares[LL] == pytest.approx(1 / 16, abs=deviation(tables))


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_of_as_many_pairs_of_tables_as_there_are_pairs_of_nodes_each_has_one(nodes):
    vas = [HEAP + k * REGION for k in range(4 * nodes * nodes)]
    snapshot = build_snapshot([(va, 512 * k) for k, va in enumerate(vas)], [], nodes=nodes)
    found = run(case(snapshot, build_trace([(n, vas) for n in range(nodes)]), nodes), "interleave").counters
    per_pair = found.classes.sum() / nodes**2
    assert abs(found.classes[:, LL].sum() - per_pair) <= 2 * nodes  # the tables of the tables take turns too


def test_a_native_table_goes_round_the_nodes_in_the_order_of_first_use():
    vas = [HEAP + k * REGION for k in range(12)]
    snapshot = build_snapshot([(va, 512 * k) for k, va in enumerate(vas)], nodes=4)
    done = run(case(snapshot, build_trace([(0, vas)]), 4), "interleave")
    home = done.states[0].home
    assert home.tolist() == [k % 4 for k in range(len(home))]


def test_a_weight_is_the_number_of_turns_that_a_node_has_in_a_round():
    vas = [HEAP + k * REGION for k in range(20)]
    snapshot = build_snapshot([(va, 512 * k) for k, va in enumerate(vas)], nodes=3)
    done = run(case(snapshot, build_trace([(0, vas)]), 3), "interleave", {"weights": "3,0,1"})
    home = done.states[0].home
    assert home.tolist() == [(0, 0, 0, 2)[k % 4] for k in range(len(home))]
    rest = replay_snapshot(
        snapshot,
        None,
        [("interleave", {"weights": "3,0,1"})],
        Setup.of(machine=small_machine(3), costs=COSTS),
    )[1]
    assert np.count_nonzero(rest.reads.sum(axis=(0, 1, 3))) == 2


def test_weights_hold_in_both_dimensions_independently(tmp_path):
    synthesize(
        Parameters(size=256 * MIB, nodes=4, threads=4, accesses=40_000, guest="visible", init_trace=False),
        tmp_path / "c",
    )
    capture = open_capture(tmp_path / "c")
    for trace in (None, capture.trace):
        results = replay_snapshot(
            capture.snapshot, trace, [("interleave", {"weights": "5,1,1,1"})], Setup.of(baseline="interleave")
        )
        shares = results[0].classes[0] / results[0].classes[0].sum()  # seen from node 0
        assert shares[LL] == pytest.approx((5 / 8) ** 2, abs=0.03)
        assert shares[[LL, LR]].sum() == pytest.approx(5 / 8, abs=0.02)


@pytest.mark.parametrize(
    "weights", ["1,2", "1,1,x,1", "0,0,0,0", "1,1,1,256", "-1,1,1,1", "9" * 5000 + ",1,1,1"]
)
def test_impossible_weights_are_refused(weights):
    snapshot = build_snapshot([(HEAP, 5)], nodes=4)
    with pytest.raises(UsageError, match="policy interleave: weights = "):
        replay_snapshot(
            snapshot,
            None,
            [("interleave", {"weights": weights})],
            Setup.of(machine=small_machine(4), costs=COSTS),
        )


# vMitosis, Table 6: what the page tables of its largest VM take; nothing is walked.

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
    scenario = untouched(Snapshot(*empty), small_machine(4))
    taken = start(plan_for("vmitosis-replicate", {"nodes": replicas}), scenario)
    pages = gigabytes // 6 * (1536 * 512 + 1536 + 3 + 1)
    assert taken.counters.pages[0] == taken.counters.host_pages[0] == pages
    assert 2 * pages * PAGE / GIB == pytest.approx(gigabytes, rel=0.003)
