"""Page-table migration by counting on fingers: vMitosis, sections 2.1, 3.2 and 4.3."""

import numpy as np
import pytest

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs
from ptanalyze.core.trace import Event
from ptanalyze.cost import price as cost
from ptanalyze.kernels.replay import LL, LR, RL, RR, TABLE_MOVED
from ptanalyze.policies import find
from ptanalyze.world.moves import Moves
from replay_cases import HEAP
from strategies import FRAMES_PER_NODE, PAGE, REGION, Page, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

COSTS = load_costs(None, "server-2020")
NAME, PAGES = "vmitosis-migrate", 40
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
            costs=COSTS,
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


def test_natively_all_reads_are_local_again_once_the_data_have_followed_the_threads():
    linux, moved = results(thin(), passes(8), [(NAME, {})], AUTONUMA, windows=7)
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


@pytest.mark.parametrize(
    ("layers", "kind"), [("both", LL), ("gpt", LR), ("ept", RL)], ids=["both", "gPT only", "ePT only"]
)
def test_in_a_vm_that_sees_the_nodes_each_layer_brings_its_own_reads_back(layers, kind):
    linux, moved, ready = results(
        thin(native=False),
        passes(8),
        [(NAME, {"layers": layers}), ("vmitosis-replicate", {})],
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


def test_a_hypervisor_moves_the_gpt_with_the_data_and_the_ept_stays_unless_migrated():
    """vMitosis, Figure 6b: RI, then RI+M."""
    linux, moved = results(thin(native=False), passes(8), [(NAME, {"layers": "ept"})], BY_HOST, windows=7)
    assert np.flatnonzero(last(linux)).tolist() == [LR]
    assert np.flatnonzero(last(moved)).tolist() == [LL]
    assert linux.count("tables_moved") == moved.count("tables_moved") == linux.table_pages
    assert linux.count("ipis") == 0


def test_guest_tables_that_share_a_page_of_the_hosts_move_together_by_one_write():
    pages = [(va, 1000 + k) for k, va in enumerate(VAS)]
    shared = [Page(1 << 32, 1 << 20, 2)]  # the guest's six tables have frames 1 << 20 and up
    snapshot = build_snapshot(pages, shared, nodes=2, vmas=[(HEAP, HEAP + (2 << 30), "h")])
    linux, moved = results(snapshot, passes(8), [(NAME, {"layers": "ept"})], BY_HOST)
    assert linux.count("tables_moved") == linux.table_pages == 6
    assert linux.count("pte_writes", host=True) == len(VAS) + 1
    tables = moved.count("tables_moved", host=True)
    assert moved.count("pte_writes", host=True) == len(VAS) + 1 + tables - 1, (
        "and each one's parent but the root"
    )


def test_nothing_migrates_while_no_data_move():
    linux, moved = results(thin(native=False), passes(4), [(NAME, {})])
    assert moved.count("tables_moved") == moved.count("tables_moved", host=True) == 0
    assert (linux.classes == moved.classes).all() and (linux.reads == moved.reads).all()


def half_moved(count):
    """`count` of the 40 pages of the first region were moved to node 1 by an event."""
    event = (2, 0, Event.MOVE_PAGES, (HEAP, count * PAGE, 1), 0)
    return results(thin(), passes(4, [event]), [(NAME, {})], move_threads="")[1]


@pytest.mark.parametrize(("count", "moved"), [(20, 0), (21, 2), (40, 2)])
def test_a_tie_stays_and_one_page_more_moves_the_table_and_the_one_above_that_holds_only_it(count, moved):
    assert half_moved(count).count("tables_moved") == moved


def test_the_root_moves_last_and_only_when_most_of_it_has():
    both = [(2, 0, Event.MOVE_PAGES, (HEAP + k * (1 << 30), PAGES * PAGE, 1), 0) for k in range(2)]
    one, two = (results(thin(), passes(4, both[:n]), [(NAME, {})], move_threads="")[1] for n in (1, 2))
    assert one.count("tables_moved") == 2, "leaf and level 2; level 3 has a tie"
    assert two.count("tables_moved") == 6


def test_put_right_at_once_on_a_dump_is_a_majority_of_children():
    """Two leaf tables with data on nodes 1 and 1, one on 0; everything was made on node 0."""
    frames = [FRAMES_PER_NODE + 7, FRAMES_PER_NODE + 8, 9]
    snapshot = build_snapshot([(HEAP + k * REGION, frame) for k, frame in enumerate(frames)], nodes=2)
    linux, right = replay_snapshot(
        snapshot, None, [(NAME, {})], Setup.of(machine=small_machine(2), costs=COSTS)
    )
    assert linux.classes.tolist() == [[3, 0, 0, 0], [0, 0, 3, 0]]
    assert right.classes.tolist() == [[1, 0, 2, 0], [2, 0, 1, 0]]
    assert right.once.count(TABLE_MOVED) == 5, "two leaves, level 2 by majority, level 3 and the root with it"
    never = replay_snapshot(
        snapshot, None, [(NAME, {"verify": "never"})], Setup.of(machine=small_machine(2), costs=COSTS)
    )[1]
    assert (never.classes == linux.classes).all() and never.once.count(TABLE_MOVED) == 0


def test_put_right_at_once_in_both_dimensions():
    gpa = 1000 << 12
    snapshot = build_snapshot([(HEAP, 1000)], [Page(gpa, FRAMES_PER_NODE + 3)], nodes=2)
    linux, right = replay_snapshot(
        snapshot, None, [(NAME, {})], Setup.of(machine=small_machine(2), costs=COSTS)
    )
    assert linux.classes[1].tolist() == [0, 0, 0, 1] and right.classes[1].tolist() == [1, 0, 0, 0]
    assert right.once.count(TABLE_MOVED) == 4 and right.once.count(TABLE_MOVED, host=True) >= 1


def test_mitosis_migrates_by_replicating_everything_and_freeing_what_was():
    moved = results(thin(), passes(4), [("mitosis", {"mode": "migrate"})])[1]
    assert moved.count("tables_moved") == moved.count("tables_freed") == moved.table_pages == 6
    assert moved.table_pages_peak == 2 * moved.table_pages
    assert moved.classes[:, RL].sum() == 0
    assert moved.price.management_cycles > 0


def test_hydra_copies_entries_at_the_first_touch_after_the_move_and_is_local_from_then_on():
    moved = results(thin(), passes(6), [("hydra", {"prefetch": 0})], windows=5)[1]
    assert moved.count("replica_faults") == len(VAS)
    assert moved.classes[1][RL] == 0 == last(moved)[RL], "the walk after a fault is in the copy"


def test_threads_that_moved_keep_their_tables_under_linux_and_need_none_under_mitosis():
    linux, mitosis = results(thin(), passes(4), [("mitosis", {})])
    assert linux.classes[1][LL] == 0 and linux.classes[1][RL] > 0
    assert mitosis.classes[:, RL].sum() == 0


def test_moving_costs_what_it_costs():
    linux, moved = results(thin(), passes(8), [(NAME, {})], AUTONUMA)
    assert moved.price.management_cycles > linux.price.management_cycles
    assert cost.walk_cycles(moved.reads, small_machine(2)) < cost.walk_cycles(linux.reads, small_machine(2))


@pytest.mark.parametrize(
    ("params", "said"),
    [({"layers": "neither"}, "both, ept, gpt"), ({"verify": "often"}, "never, start")],
)
def test_unknown_parameters_name_the_allowed_ones(params, said):
    with pytest.raises(UsageError, match=said):
        find(NAME).configure(params)


def test_what_cannot_be_is_refused_in_a_line():
    with pytest.raises(UsageError, match="vmitosis-migrate: a native capture has no host tables"):
        results(thin(), passes(1), [(NAME, {"layers": "ept"})])
    one_node = build_snapshot([(HEAP, 1)], nodes=1)
    with pytest.raises(UsageError, match="all data of a single-node capture are on that node"):
        replay_snapshot(one_node, None, [(NAME, {})], Setup.of(machine=small_machine(2), costs=COSTS))
    with pytest.raises(UsageError, match="nodes = 1: with mode = migrate the copy follows"):
        results(thin(), passes(1), [("mitosis", {"mode": "migrate", "nodes": "1"})])
    with pytest.raises(UsageError, match="depends on what threads touch"):
        replay_snapshot(
            thin(), None, [("mitosis", {"mode": "migrate"})], Setup.of(machine=small_machine(2), costs=COSTS)
        )
