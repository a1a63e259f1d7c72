"""Sweeps: every combination once, each equal to the what-if asked alone."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.analysis.counting import idle_nodes
from ptanalyze.analysis.frames import sweep_frame
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.sweep import points_of, swept, values
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import interval
from ptanalyze.core.machine import at_latency_ratio, load_costs, load_machine
from ptanalyze.formats.capture import load
from ptanalyze.show.whatif import rows
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace, small_machine

COSTS = load_costs(load_machine("sapphire-rapids"))
VAS = [HEAP + k * PAGE for k in range(40)]
SNAPSHOT = build_snapshot([(va, k) for k, va in enumerate(VAS)], vmas=[(HEAP, HEAP + 64 * PAGE, "h")])
TRACE = build_trace([(0, VAS), (1, VAS), (2, VAS[:8])], threads=3)


def swept_rows(names, grid, **how):
    wanted, points = points_of(names, grid, Setup.of(machine=small_machine(2), costs=COSTS, **how))
    each = ((point, replay_snapshot(SNAPSHOT, TRACE, wanted, there)) for point, there in points)
    return [(point, one) for point, results in each for one in results]


def test_every_combination_is_replayed_once_with_the_baseline_at_each_size_of_the_machine():
    points = swept_rows(["hydra", "mitosis"], {"prefetch": ["0", "3", "9"], "nodes": ["1", "2", "3"]})
    found = [(point["nodes"], r.policy, r.params.get("prefetch")) for point, r in points]
    once = [("linux", None), *(("hydra", d) for d in (0, 3, 9)), ("mitosis", None)]
    assert found == [(nodes, *one) for nodes in ("1", "2", "3") for one in once]
    assert len(sweep_frame(points, ["prefetch", "nodes"])) == 15


def test_the_columns_of_a_sweep_have_the_values_of_joined_policies_too():
    for key in ("prefetch", "hydra.prefetch"):
        points = swept_rows(["thp+hydra", "mitosis"], {key: ["0", "3"]})
        assert sweep_frame(points, [key])[key].fillna(-1).tolist() == [-1, 0, 3, -1]
        assert [row[key] for row in rows(points, [key])] == ["-", "0", "3", "-"]


def test_policies_of_a_point_are_told_apart_by_what_differs():
    points = swept_rows(["hydra:prefetch=0", "hydra:prefetch=3", "mitosis"], {"nodes": ["2"]})
    assert [row["policy"] for row in rows(points, ["nodes"])][1:3] == ["hydra:prefetch=0", "hydra:prefetch=3"]


def test_a_sweep_for_people_has_the_interval_of_each_gain():
    for point in swept_rows(["mitosis"], {"latency_ratio": ["1.5", "3"]}):
        [row], result = rows([point], ["latency_ratio"]), point[1]
        assert row["speed-up"] == interval(result.speedup)
        assert row["remote DRAM reads"] == result.row()["remote_dram_reads"]


def test_a_point_of_a_sweep_is_what_the_what_if_alone_says():
    for point, result in swept_rows(["hydra"], {"prefetch": ["0", "2"], "nodes": ["2", "3"]}):
        machine = small_machine(2).resized(int(point["nodes"]))
        asked, setup = [(result.policy, result.params)], Setup.of(machine=machine, costs=COSTS)
        assert replay_snapshot(SNAPSHOT, TRACE, asked, setup)[-1].row() == result.row()


@pytest.mark.parametrize(
    ("grid", "why"),
    [
        ({"prefetsch": ["1"]}, "prefetsch=1: neither nodes, placement, contended, latency_ratio nor a"),
        ({"nodes": ["two"]}, "nodes = two: must be a whole number"),
        ({"nodes": ["65"]}, "nodes = 65: a machine has 1 to 64 nodes"),
        ({"latency_ratio": ["0.5"]}, "latency_ratio = 0.5: remote over local latency, from 1 to 1000"),
        ({"latency_ratio": ["far"]}, "latency_ratio = far: must be a number"),
        ({"latency_ratio": ["nan"]}, "latency_ratio = nan: remote over local"),
        ({"latency_ratio": ["2"], "nodes": ["1"]}, "latency_ratio = 2: machine small, 1 node has no remote"),
        ({"contended": ["maybe"]}, "contended = maybe: true or false"),
        ({"prefetch": ["10"]}, "prefetch = 10"),
    ],
)
def test_axes_and_values_that_do_not_exist_are_named(grid, why):
    with pytest.raises(UsageError, match=why):
        swept_rows(["hydra"], grid)


def test_axes_of_numpy_are_those_of_python():
    axes = {"nodes": np.arange(2, 4), "latency_ratio": np.linspace(1.5, 2, 2), "contended": np.array([False])}
    plain = {key: values.tolist() for key, values in axes.items()}
    found, expected = (swept_rows(["mitosis"], each) for each in (axes, plain))
    assert [result.row() for _, result in found] == [result.row() for _, result in expected]
    assert len(found) == 8 and found[-1][1].machine == "small, 3 nodes, remote 2 times local"


def test_a_latency_ratio_changes_what_remote_reads_take_and_nothing_else():
    points = swept_rows(["mitosis"], {"latency_ratio": ["1", "1.5", "3"], "placement": ["1,1,1"]}, cold=True)
    linux = {point["latency_ratio"]: r for point, r in points if r.policy == "linux"}
    mitosis = [r for _, r in points if r.policy == "mitosis"]
    local = small_machine(2).latency_cycles().diagonal()[0]
    remote = linux["1"].row()["remote_dram_reads"]
    assert remote > 0 and len({r.walk_cycles for r in mitosis}) == 1
    for ratio in ("1.5", "3"):
        more = linux[ratio].walk_cycles - linux["1"].walk_cycles
        assert more == pytest.approx(remote * local * (float(ratio) - 1))
        assert linux[ratio].machine == f"small, remote {ratio} times local"


def test_a_latency_ratio_leaves_slow_nodes_and_own_memory_as_they_are():
    machine = msgspec.structs.replace(load_machine("vmitosis-cascade-lake"), memory_nodes=(3,))
    there = at_latency_ratio(machine, 3)
    for before, after in ((machine.latency.idle, there.latency.idle),
                          (machine.latency.contended, there.latency.contended)):  # fmt: skip
        for a, b in np.ndindex(4, 4):
            assert after[a][b] == (3 * before[a][a] if (a != b and 3 not in (a, b)) else before[a][b])


def test_a_node_with_a_handful_of_the_walks_counts_as_silent_too():
    walks = np.array([[2, 0, 0, 0], [0, 0, 9000, 0], [0, 0, 0, 0]])
    (silent,) = idle_nodes(walks, np.array([0, 1]))
    assert silent.numbers["nodes"] == "0"
    assert idle_nodes(walks, np.array([1, 1])) == []
    assert idle_nodes(walks * [[50], [1], [1]], np.array([0, 1])) == []


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 7))
def test_a_range_has_both_ends_and_its_step(first, more, step):
    assert values(f"{first}:{first + more}") == [str(n) for n in range(first, first + more + 1)]
    assert values(f"{first}:{first + more}:{step}") == [str(n) for n in range(first, first + more + 1, step)]


def test_lists_mix_with_ranges_and_semicolons_keep_commas():
    assert values("1:3,7") == ["1", "2", "3", "7"]
    assert values("0,1;2,3") == ["0,1", "2,3"]
    for wrong in ("", ",", "5:2", "1:9:0"):
        with pytest.raises(UsageError):
            values(wrong)


def test_a_resized_machine_keeps_its_latencies_and_puts_new_nodes_as_far_as_the_farthest():
    machine = load_machine("hydra-haswell")
    small, big = machine.resized(4), machine.resized(16)
    assert small.latency.idle == tuple(row[:4] for row in machine.latency.idle[:4])
    assert (small.nodes, big.nodes, len(big.latency.contended)) == (4, 16, 16)
    assert [row[8:] for row in big.latency.idle[8:]] == list(machine.latency.idle)
    assert {value for row in big.latency.idle[:8] for value in row[8:]} == {320.0}
    assert machine.resized(8) is machine


def test_points_of_a_capture_are_those_of_its_whatif_and_what_a_point_refuses_is_told(tmp_path):
    synthesize(Parameters(size=4 << 20, accesses=4000, threads=2, nodes=2), tmp_path / "made")
    capture, refused = load(tmp_path / "made"), {}
    setup = Setup.of(machine=load_machine("sapphire-rapids").resized(2))
    points = swept(capture, ["hydra", "vmitosis-replicate"], {"prefetch": ["0", "4"]}, setup, refused)
    alone = [("hydra", {"prefetch": "0"}), ("hydra", {"prefetch": "4"})]
    expected = replay_snapshot(capture.snapshot, capture.trace, alone, setup)
    assert [result.row() for _, result in points] == [result.row() for result in expected]
    assert "no host tables" in refused["vmitosis-replicate"]
