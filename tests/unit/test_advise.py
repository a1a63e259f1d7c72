"""Advice: ranked by time within a budget, Thin or Wide with its evidence."""

import pytest
from hypothesis import given, settings

from ptanalyze.analysis.advise import Budget, advise_world
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.workload import workload
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.sizes import budget
from ptanalyze.world.captured_world import captured_world
from replay_cases import HEAP, cases, world_of
from strategies import REGION, build_snapshot, build_trace, small_machine

COSTS = load_costs(load_machine("sapphire-rapids"))
VAS = [HEAP + k * REGION for k in range(30)]


def captured(chunks, nodes=2, host=None, placement="round-robin"):
    snapshot = build_snapshot(
        [(va, 512 * k) for k, va in enumerate(VAS)], host, nodes=nodes, vmas=[(HEAP, HEAP + 64 * REGION, "h")]
    )
    trace = build_trace(chunks) if chunks else None
    return captured_world(snapshot, trace, small_machine(nodes), placement)


def test_a_program_that_one_node_walks_for_is_thin_and_one_that_all_walk_for_is_wide():
    thin = workload(captured([(0, VAS)] * 30 + [(1, VAS[:1])]))
    wide = workload(captured([(0, VAS * 5), (1, VAS * 5)]))
    assert (thin.name, wide.name) == ("Thin", "Wide")
    assert wide.evidence()[0] == (
        "walks come from 2 nodes (node 0 50.0 %, node 1 50.0 %), as spread as over 2.00 nodes of equal shares"
    )
    assert workload(captured([(0, VAS)])).evidence()[0] == "all walks come from node 0"
    assert wide.walks.tolist()[0] == wide.walks.tolist()[1]
    assert wide.spread == pytest.approx(2) and wide.shared == 1
    assert thin.shared == pytest.approx(1 / 30) and thin.spread < 1.1
    assert workload(captured(None)).name == "unknown"


@settings(max_examples=30, deadline=None)
@given(cases())
def test_sharing_is_counted_table_by_table_as_by_hand(case):
    found = workload(world_of(case))
    by_table = {}
    for chunk in range(len(case.trace.chunks)):
        node = int(case.placement.cpu_node[case.placement.chunk_cpu[chunk]])
        for page in case.stream.page[case.stream.offset[chunk] : case.stream.offset[chunk + 1]].tolist():
            by_table.setdefault(int(case.space.regions.leaf[page >> 9]), []).append(node)
    counts = [len(set(nodes)) for nodes in by_table.values()]
    assert found.tables.tolist() == [0, *(counts.count(n) for n in range(1, case.machine.nodes + 1))]
    assert found.walks.sum() == len(case.stream)


def test_the_fastest_comes_first_and_what_is_over_the_budget_last():
    world = captured([(0, VAS), (1, VAS * 200)])
    free = advise_world(world, Budget(), Setup.of(machine=world.machine, costs=COSTS))
    times = [one.result.price.speedup.middle for one in free.ranked]
    assert times == sorted(times, reverse=True) and not any(one.over for one in free.ranked)
    poor = advise_world(world, Budget(bytes=0), Setup.of(machine=world.machine, costs=COSTS))
    split = [bool(one.over) for one in poor.ranked]
    assert split == sorted(split) and any(split)
    assert all(one.extra_bytes > 0 for one in poor.ranked if one.over)
    assert next(one for one in poor.ranked).extra_bytes == 0


def test_the_sentence_names_the_best_policy_within_the_budget_and_why():
    world = captured([(0, VAS), (1, VAS * 200)])
    report = advise_world(world, Budget(), Setup.of(machine=world.machine, costs=COSTS))
    assert report.ranked[0].result.policy in report.sentence
    assert "remote" in report.sentence and "\n" not in report.sentence
    nothing = advise_world(
        captured([(0, VAS)], nodes=1),
        Budget(),
        Setup.of(machine=captured([(0, VAS)], nodes=1).machine, costs=COSTS),
    )
    assert nothing.sentence == "Stay with first-touch: no policy is estimated to be faster."


def test_what_the_capture_lacks_rules_policies_out_by_name():
    native = captured([(0, VAS)])
    found = advise_world(native, Budget(), Setup.of(machine=native.machine, costs=COSTS))
    assert "mitosis" in {one.result.policy for one in found.ranked}
    assert found.refused["vmitosis-replicate"].startswith("a native capture has no host tables")
    report = advise_world(
        captured(None, host=[]), Budget(), Setup.of(machine=captured(None, host=[]).machine, costs=COSTS)
    )
    assert "hydra" in report.refused and "first-touch" in report.refused
    assert "vmitosis-replicate" in {one.result.policy for one in report.ranked}
    assert report.workload.name == "unknown"


def test_budgets_are_numbers_sizes_or_shares():
    free = float("inf")
    assert budget(free, free, 1) == Budget()
    assert budget(4096, 0.02, 1) == Budget(4096, 0.02)
    assert budget("64M", free, 0).bytes == 64 << 20 and budget("1.5GiB", free, 0).bytes == 1.5 * 2**30
    assert budget("1%", "2.5 %", 1000) == Budget(10, 0.025)
    for wrong in ("", "x", "-1M", "1%%", "64Q"):
        with pytest.raises(UsageError, match="--memory"):
            budget(wrong, free, 1)
        with pytest.raises(UsageError, match="--updates"):
            budget(free, wrong, 1)
