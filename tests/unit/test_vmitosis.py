"""vMitosis: replication, migration, and the sizes and the interleaving of its tables."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import replay as naive
from naive.policies import Misplaced
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Moves, load_costs
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import open_capture
from ptanalyze.kernels import LL, LR
from ptanalyze.policies.vmitosis_replicate import drawn
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters
from replay_cases import HEAP, answered, case, cases, events, reads_of, run
from strategies import PAGE, REGION, Page, build_snapshot, build_trace

# vMitosis' replication of both dimensions: what must hold (Panwar et al., section 3.3 and Table 6).

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
REPLICATE = "vmitosis-replicate"


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


NO_F = {"mode": "no-f"}


@pytest.mark.twin
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"groups": "0,1"}, r"groups = 0,1: only where groups are discovered: --set mode=no-f \(mode = nv\)"),
        ({"misplaced": "0.5", "mode": "no-p"}, r"misplaced = 0.5: only where .* \(mode = no-p\)"),
        ({**NO_F, "groups": "0,1", "nodes": "0"}, "each group has a replica; leave out nodes = 0"),
        ({**NO_F, "groups": "0+2"}, r"groups = 0\+2: '2' is not a node, machine small has nodes 0\.\.1"),
        ({**NO_F, "groups": "0"}, "groups = 0: '1' is in no group"),
        ({**NO_F, "groups": "0+1,1"}, "'1' is in two"),
        ({**NO_F, "groups": "0+1,"}, "'' is not a node"),
        ({**NO_F, "groups": "0+1", "misplaced": "1"}, "misplaced = 1.0: one replica has no other's node"),
        ({**NO_F, "misplaced": "1.5"}, r"misplaced = 1.5: .*allowed: 0\.\.1"),
        ({"mode": "nf"}, "mode = nf: .*allowed: no-f, no-p, nv"),
    ],
)
def test_contradictory_modes_are_refused_in_one_line(params, why):
    snapshot = build_snapshot([(HEAP, 1)], [])
    with pytest.raises(UsageError, match=why):
        answered(snapshot, [(REPLICATE, params)], build_trace([(0, [HEAP])]))


# Page-table migration by counting on fingers: vMitosis, sections 2.1, 3.2 and 4.3.

SERVER_COSTS = load_costs(None, "server-2020")
MIGRATE, PAGES = "vmitosis-migrate", 40
VAS = [HEAP + k * PAGE for k in range(PAGES)] + [HEAP + (1 << 30) + k * PAGE for k in range(PAGES)]
BY_HOST = Moves(autonuma=True, delay_ms=0, scan_period_ms=0.001, scan_size_mb=64, by="host")


def thin(native=True):
    """One thread's workload, data and tables on node 0; the guest's frames lie together."""
    pages = [(va, 1000 + k) for k, va in enumerate(VAS)]
    return build_snapshot(pages, None if native else [], nodes=2, vmas=[(HEAP, HEAP + (2 << 30), "h")])


def passes(count, events=()):
    """Every page in each pass; the pages were mapped before."""
    return build_trace([(0, VAS)] * count, [(0, 0, Event.ROI_START, (), 0), *events])


def results(snapshot, trace, policies, moves=None, move_threads="0:1@50%", **options):
    moved = {"threads_on": "0", "autonuma": moves, "move_threads": move_threads}
    how = {"baseline": "linux", "costs": SERVER_COSTS, "cold": True}
    return answered(snapshot, policies, trace, **moved, **how, **options)


def last(result):
    """Classes of the last window as a list LL LR RL RR."""
    return result.series.classes[-1].sum(axis=0).tolist()


@pytest.mark.twin
def test_a_hypervisor_moves_the_gpt_with_the_data_and_the_ept_stays_unless_migrated():
    """vMitosis, Figure 6b: RI, then RI+M."""
    linux, moved = results(thin(native=False), passes(8), [(MIGRATE, {"layers": "ept"})], BY_HOST, windows=7)
    assert np.flatnonzero(last(linux)).tolist() == [LR]
    assert np.flatnonzero(last(moved)).tolist() == [LL]
    assert linux.count("tables_moved") == moved.count("tables_moved") == linux.pages["guest"]
    assert linux.count("ipis") == 0
    assert linux.finding("threads-move") is not None


@pytest.mark.twin
def test_guest_tables_that_share_a_page_of_the_hosts_move_together_by_one_write():
    pages = [(va, 1000 + k) for k, va in enumerate(VAS)]
    shared = [Page(1 << 32, 1 << 20, 2)]  # the guest's six tables have frames 1 << 20 and up
    snapshot = build_snapshot(pages, shared, nodes=2, vmas=[(HEAP, HEAP + (2 << 30), "h")])
    linux, moved = results(snapshot, passes(8), [(MIGRATE, {"layers": "ept"})], BY_HOST)
    assert linux.count("tables_moved") == linux.pages["guest"] == 6
    assert linux.count("pte_writes", host=True) == len(VAS) + 1
    assert moved.count("pte_writes", host=True) == len(VAS) + 1 + (moved.count("tables_moved", host=True) - 1)


@pytest.mark.twin
def test_what_cannot_be_is_refused_in_a_line():
    with pytest.raises(UsageError, match="vmitosis-migrate: a native capture has no host tables"):
        results(thin(), passes(1), [(MIGRATE, {"layers": "ept"})])
    one_node = build_snapshot([(HEAP, 1)], nodes=1)
    with pytest.raises(UsageError, match="all data of a single-node capture are on that node"):
        answered(one_node, [(MIGRATE, {})])
    with pytest.raises(UsageError, match="nodes = 1: with mode = migrate the copy follows"):
        results(thin(), passes(1), [("mitosis", {"mode": "migrate", "nodes": "1"})])
    with pytest.raises(UsageError, match="needs the order of accesses"):
        answered(thin(), [("mitosis", {"mode": "migrate"})])


# Interleaved tables: spread evenly in each dimension of a VM, and independently of each other.

MIB = 1 << 20


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_of_as_many_pairs_of_tables_as_there_are_pairs_of_nodes_each_has_one(nodes):
    vas = [HEAP + k * REGION for k in range(4 * nodes * nodes)]
    snapshot = build_snapshot([(va, 512 * k) for k, va in enumerate(vas)], [], nodes=nodes)
    found = run(case(snapshot, build_trace([(n, vas) for n in range(nodes)]), nodes), "interleave").counters
    per_pair = found.classes.sum() / nodes**2
    assert abs(found.classes[:, LL].sum() - per_pair) <= 2 * nodes  # the tables of the tables take turns too


def test_weights_hold_in_both_dimensions_independently(tmp_path):
    synthesize(
        Parameters(size=256 * MIB, nodes=4, threads=4, accesses=40_000, guest="visible", init_trace=False),
        tmp_path / "c",
    )
    capture = open_capture(tmp_path / "c")
    for trace in (None, capture.trace):
        asked, setup = [("interleave", {"weights": "5,1,1,1"})], Setup.of(baseline="interleave")
        results = replay_snapshot(capture.snapshot, trace, asked, setup)
        shares = results[0].classes[0] / results[0].classes[0].sum()  # seen from node 0
        assert shares[LL] == pytest.approx((5 / 8) ** 2, abs=0.03)
        assert shares[[LL, LR]].sum() == pytest.approx(5 / 8, abs=0.02)


@pytest.mark.parametrize(
    "weights", ["1,2", "1,1,x,1", "0,0,0,0", "1,1,1,256", "-1,1,1,1", "9" * 5000 + ",1,1,1"]
)
def test_impossible_weights_are_refused(weights):
    snapshot = build_snapshot([(HEAP, 5)], nodes=4)
    with pytest.raises(UsageError, match="policy interleave: weights = "):
        answered(snapshot, [("interleave", {"weights": weights})], nodes=4)
