"""Advice, and whether what a policy saves is walks or work of the kernel."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings

from ptanalyze.analysis.advise import advise, advise_scenario
from ptanalyze.analysis.limits import DATA, NOTHING, PAGES, TABLES, _verdict, limits_of_advice
from ptanalyze.analysis.ranking import Budget, because, by_the_kernel, causes, workload
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_scenario
from ptanalyze.core.errors import UsageError, budget
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.policies import plan_for
from ptanalyze.policies.baselines import RESET
from ptanalyze.world.scenario import ScenarioOptions, captured_scenario
from ptanalyze_synth.capture import synth
from replay_cases import HEAP, case, cases, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_topology, build_trace, small_machine

# Advice: ranked by time within a budget, Thin or Wide with its evidence.

COSTS = load_costs(load_machine("sapphire-rapids"))
VAS = [HEAP + k * REGION for k in range(30)]


def captured(chunks, nodes=2, host=None, placement="round-robin", cpus=1):
    snapshot = build_snapshot(
        [(va, 512 * k) for k, va in enumerate(VAS)], host, nodes=nodes, vmas=[(HEAP, HEAP + 64 * REGION, "h")]
    )
    trace = build_trace(chunks) if chunks else None
    if placement == "recorded":
        trace.chunks["cpu"] = trace.chunks["thread"]
    machine = msgspec.structs.replace(small_machine(nodes), cpus_per_node=cpus)
    return captured_scenario(snapshot, trace, ScenarioOptions(machine=machine, threads_on=placement))


def test_a_program_that_one_node_walks_for_is_thin_and_one_that_all_walk_for_is_wide():
    thin = workload(captured([(0, VAS)] * 30 + [(1, VAS[:1])]))
    wide = workload(captured([(0, VAS * 5), (1, VAS * 5)]))
    assert thin.title == "Nearly all walks come from one node (Thin)" and wide.title.endswith("nodes (Wide)")
    assert wide.evidence()[0] == "assumed: threads round-robin over 2 nodes"
    assert wide.evidence()[1] == (
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
    found = workload(scenario_of(case))
    by_table = {}
    for chunk in range(len(case.trace.chunks)):
        node = int(case.placement.cpu_node[case.placement.chunk_cpu[chunk]])
        for page in case.stream.page[case.stream.offset[chunk] : case.stream.offset[chunk + 1]].tolist():
            by_table.setdefault(int(case.space.regions.leaf[page >> 9]), []).append(node)
    counts = [len(set(nodes)) for nodes in by_table.values()]
    assert found.tables.tolist() == [0, *(counts.count(n) for n in range(1, case.machine.nodes + 1))]
    assert found.walks.sum() == len(case.stream)


def test_the_fastest_comes_first_and_what_is_over_the_budget_last():
    scenario = captured([(0, VAS), (1, VAS * 200)])
    free = advise_scenario(scenario, Budget(), Setup.of(machine=scenario.machine, costs=COSTS))
    times = [one.result.speedup.middle for one in free.ranked]
    assert times == sorted(times, reverse=True) and not any(one.over for one in free.ranked)
    poor = advise_scenario(scenario, Budget(bytes=0), Setup.of(machine=scenario.machine, costs=COSTS))
    split = [bool(one.over) for one in poor.ranked]
    assert split == sorted(split) and any(split)
    assert all(one.extra_bytes > 0 for one in poor.ranked if one.over)
    assert next(one for one in poor.ranked).extra_bytes == 0


def test_the_sentence_names_the_best_policy_within_the_budget_and_why():
    scenario = captured([(0, VAS), (1, VAS * 200)])
    report = advise_scenario(scenario, Budget(), Setup.of(machine=scenario.machine, costs=COSTS))
    assert report.ranked[0].result.policy in report.sentence
    assert "remote" in report.sentence and "\n" not in report.sentence
    nothing = advise_scenario(
        captured([(0, VAS)], nodes=1),
        Budget(),
        Setup.of(machine=captured([(0, VAS)], nodes=1).machine, costs=COSTS),
    )
    assert nothing.sentence == "Stay with first-touch: no policy is faster."


def test_what_the_capture_lacks_rules_policies_out_by_name():
    native = captured([(0, VAS)])
    found = advise_scenario(native, Budget(), Setup.of(machine=native.machine, costs=COSTS))
    assert "mitosis" in {one.result.policy for one in found.ranked}
    assert found.refused["vmitosis-replicate"].startswith("a native capture has no host tables")
    report = advise_scenario(
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


def wide_on(cpus, nodes=2, **options):
    """Workload of two threads on as many nodes, each of `cpus` CPUs."""
    return workload(captured([(0, VAS * 5), (1, VAS * 5)], nodes, cpus=cpus, **options))


def test_a_wide_workload_says_where_its_placement_is_assumed():
    found = wide_on(1)
    assert found.doubt == "Walks come from several nodes by assumption: threads round-robin over 2 nodes."
    recorded = wide_on(1, placement="recorded")
    assert recorded.name == "Wide" and recorded.doubt == "" and "walks come from" in recorded.evidence()[0]


def test_a_wide_workload_whose_threads_fit_one_node_could_run_there():
    found = wide_on(2)
    assert (
        found.evidence()[-1]
        == found.fits
        == (
            "its 2 threads fit one node: if its memory does, too, run it there (numactl --cpunodebind=0 "
            "--preferred=0 ./app), and all walks are local"
        )
    )
    assert found.doubt.endswith(f". I{found.fits[1:]}.")
    assert not replace(found, node_bytes=found.mapped_bytes - 1).fits
    assert replace(found, node_bytes=found.mapped_bytes).fits
    thin = workload(captured([(0, VAS), (1, VAS)], cpus=2, placement="0,0"))
    assert thin.name == "Thin" and not thin.fits
    assert not wide_on(2, host=[]).fits, "numactl in a guest places nothing of the host's"


def test_memory_in_huge_pages_counts_and_the_tracers_does_not():
    far = 1 << 40
    pages = [(HEAP, 0), (HEAP + REGION, 512, 2), (HEAP + 2 * REGION, 1024, 2), (far, 1 << 18, 3)]
    vmas = [
        (far, 2 * far, "g"),
        (HEAP, HEAP + 2 * REGION, "h"),
        (HEAP + 2 * REGION, HEAP + 3 * REGION, "t", True),
    ]
    trace = build_trace([(0, [HEAP])])
    scenario = captured_scenario(
        build_snapshot(pages, vmas=vmas),
        trace,
        ScenarioOptions(machine=small_machine(2), threads_on="round-robin"),
    )
    assert workload(scenario).mapped_bytes == 2 * REGION + (1 << 30)


def test_the_memory_of_a_host_with_one_node_is_not_compared_with():
    scenario = captured([(0, VAS)], nodes=2)
    assert "largest node has" in " ".join(workload(scenario).evidence())
    one = replace(scenario.snapshot, topology=build_topology(1))
    assert "largest node has" not in " ".join(workload(scenario.reshaped(snapshot=one)).evidence())


# Whether a policy gains by shorter walks or by less work of the kernel, and how advice says so.

CASCADE_LAKE_COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
ALL = [HEAP + k * PAGE for k in range(512)]


def results(*names, calls=()):
    """Of one thread that touches 2 MiB three times, on one node of two."""
    snapshot = build_snapshot(
        [(va, 512 + k) for k, va in enumerate(ALL)], nodes=2, vmas=[(HEAP, HEAP + 512 * PAGE, "[heap]")]
    )
    trace = build_trace([(0, ALL)] * 3, [(0, 0, Event.ROI_START, (), 0), *calls], 2)
    plans = [plan_for(name) for name in ("linux", *names)]
    return replay_scenario(
        scenario_of(case(snapshot, trace, 2)),
        plans,
        Setup.of(machine=small_machine(2), costs=CASCADE_LAKE_COSTS),
    )


def test_a_gain_by_fewer_faults_is_said_to_be_the_kernels():
    freed = [(1, 0, Event.MADVISE, (HEAP, 512 * PAGE, 4), 0)]
    linux, thp = results("thp", calls=freed)
    kernel = by_the_kernel(linux, thp)
    spared = linux.management_cycles - thp.management_cycles
    assert linux.count("faults") == 512 and thp.count("faults") < 10
    assert kernel.share > 0.5 and abs(kernel.share * (linux.run_cycles - thp.run_cycles) / spared - 1) < 1e-6
    said = because(linux, thp)
    assert f"{thp.count('faults')} page faults instead of 512" in said
    assert "% of what it saves is work of the kernel" in said and "it walks" in said


def test_a_gain_by_fewer_walks_alone_says_nothing_about_the_kernel():
    linux, thp = results("thp")
    assert linux.walk_cycles > thp.walk_cycles
    assert because(linux, thp).startswith(f"it walks {thp.walks:,} times instead of {linux.walks:,}")


def test_how_long_a_call_takes_is_one_number_and_what_it_takes_from_other_cpus_another():
    linux, thp = results("thp", calls=[(1, 0, Event.MADVISE, (HEAP, 512 * PAGE, 4), 0)])
    assert causes(linux, linux) == []

    def with_call(result, **values):
        [call] = result.system_calls
        return replace(result, system_calls=(call._replace(**values),))

    linux = with_call(linux, ns=2402.0, stolen_ns=750.0, calls=10**9)
    thp = with_call(thp, ns=1777.0, stolen_ns=0.0, slowdown=1777 / 2402, calls=10**9)
    taken = "madvise takes 0 ns instead of 750 from other CPUs"
    assert causes(linux, thp) == [taken, "madvise takes 0.74 times as long"]


def test_without_run_times_or_savings_there_is_no_part_of_the_kernel():
    linux, thp = results("thp")
    assert by_the_kernel(linux, linux) is None
    assert by_the_kernel(linux, replace(thp, kernel_share=None)) is None


# What limits a run: captures made so that one thing does.

FAR_DATA = {"nodes": 4, "threads": 4, "thp": 1.0, "init": "single", "init_trace": False, "scale": 32}
SMALL_PAGES = {"nodes": 4, "threads": 4, "sharing": "private", "mapped_by": "threads", "scale": 32}
MOVED = {
    "nodes": 2,
    "threads": 1,
    "move": "0.01:0:1",
    "move_data": "0.01:1000000",
    "init_trace": False,
    "scale": 64,
}
FOUR = {"nodes": 4, "threads": 4, "pattern": "sequential"}
CACHED = {"nodes": 4, "threads": 4, "sharing": "private", "init_trace": False}


@pytest.mark.parametrize(
    ("vm", "policy", "kind", "typed"),
    [
        ("visible", "ept-reset", TABLES, [RESET, "rebuilds its tables", "guest: sudo ", " relocate PID"]),
        ("oblivious", "ept-reset", TABLES, [RESET, "the guest's own tables: migratepages VMM_PID all 1"]),
        ("visible", "first-touch", TABLES, ["in the guest: sudo ", " relocate PID --dry-run"]),
        ("oblivious", "first-touch", TABLES, ["migratepages VMM_PID all 1"]),
        ("visible", "thp", PAGES, ["in the guest: GLIBC_TUNABLES", "on the host: echo madvise | sudo tee"]),
    ],
)
def test_the_verdict_of_a_vm_names_who_can_do_something_on_mainline(vm, policy, kind, typed):
    """Its threads moved to node 1; first-touch as such is not named, it needs a further start."""
    found = limits_of_advice(advise(f"vm-numa-{vm}", policies=[policy], threads_on="main=1,rest=1").report)
    assert found.kind == kind and found.today.startswith(typed[0])
    assert all(words in found.today for words in typed), found.today


@pytest.mark.parametrize(
    ("size", "made", "policies", "kind", "typed"),
    [
        ("128M", FAR_DATA, ["thp", "hydra"], DATA, "numactl --cpunodebind=0 --preferred=0 ./app"),
        ("128M", SMALL_PAGES, ["thp", "hydra"], PAGES, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 ./app"),
        ("256M", MOVED, ["hydra", "interleave"], TABLES, " relocate PID --dry-run"),
        ("8M", CACHED, ["thp", "hydra"], NOTHING, ""),
    ],
)
def test_the_verdict_is_what_the_capture_was_made_for(tmp_path, size, made, policies, kind, typed):
    capture = synth(tmp_path / "made", size, accesses=60_000 if made is not MOVED else 200_000, **made)
    report = advise(capture, policies=policies).report
    found = limits_of_advice(report)
    assert found.kind == kind and typed in found.today and bool(found.today) == bool(typed)
    unsure = [part._replace(gain=Interval(1.0, 1.01, 1.31)) for part in found.parts]
    assert ": 1.01x, at most 1.31x;" in _verdict(NOTHING, unsure, report.base, None, True)
    gains = {part.kind: part.gain for part in found.parts}
    others = [gain.middle for name, gain in gains.items() if name != kind]
    assert max(others) < 1.02 and (kind == NOTHING or gains[kind].middle > 1.1)
    assert found.lines[0] == found.sentence and found.record()["limit"] == kind
    words = {
        DATA: "your data, not",
        TABLES: "your page tables, not",
        PAGES: "page size, not",
        NOTHING: "nothing to",
    }
    assert words[kind] in found.sentence.lower()
    assert ("research kernel instead: hydra" in found.research) is (kind == TABLES)


@pytest.mark.parametrize(
    ("made", "larger", "typed"),
    [
        ({"nodes": 16, "threads": 16, "init": "single"}, "1x", "numactl --interleave=all ./app"),
        ({"nodes": 16, "threads": 16, "init": "single"}, "200x", "numactl --interleave=all ./app"),
        (FOUR | {"placement": "interleave"}, "1x", "GLIBC"),
        (FOUR | {"placement": "interleave", "guest": "visible"}, "1x", ""),
        (FOUR | {"placement": "bind:0", "guest": "visible"}, "1x", "in the guest: numactl --interleave=all"),
    ],
)
def test_interleaving_is_typed_where_it_changes_what_one_node_serves(tmp_path, made, larger, typed):
    capture = synth(tmp_path / "made", "1G", accesses=400_000, init_trace=False, **made)
    machine = "epyc-7543-16-nodes" if made["nodes"] == 16 else "vmitosis-cascade-lake"
    policies = ["mitosis"] if "guest" in made else ["thp", "hydra"]
    found = limits_of_advice(advise(capture, policies=policies, stands_for=larger, machine=machine).report)
    assert found.kind == DATA and found.today.startswith(typed) and bool(found.today) == bool(typed)


def test_memory_is_bound_to_no_node_that_it_is_not_known_to_fit(tmp_path):
    capture = synth(tmp_path / "made", "64M", accesses=50_000, **SMALL_PAGES)
    asked = [advise(capture, policies=["hydra"], stands_for=size) for size in ("1x", "24000x")]
    small, large = (one.report.workload for one in asked)
    assert small.may_fit_one_node and "--preferred=0" in small.on_its_node
    assert not large.may_fit_one_node and not large.fits
