"""Interleaved tables: spread evenly in each dimension of a VM, and independently of each other."""

import numpy as np
import pytest

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.kernels.replay import LL, LR, RL
from replay_cases import HEAP, case, run
from strategies import REGION, build_snapshot, build_trace, small_machine

MIB = 1 << 20
COSTS = load_costs(load_machine("sapphire-rapids"))
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
        Parameters(size=256 * MIB, nodes=4, threads=4, accesses=40_000, guest="visible"), tmp_path / "c"
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
