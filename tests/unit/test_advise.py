"""Advice: ranks, the verdict, lines to type, and why a policy gains."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from captures import TRIAL
from ptanalyze.analysis import counting, verdict
from ptanalyze.analysis.advise import advise, advise_scenario
from ptanalyze.analysis.ranking import as_sentence, because, by_the_kernel, memory_limit
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay, replay_scenario, whatif
from ptanalyze.core.columns import CAREFUL, GONE, MEASURED, UNWRITTEN, Section, message, messages, noted
from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.cost.counts import DRAM
from ptanalyze.policies import plan_for
from ptanalyze.show.advise import view as advised_view
from ptanalyze.show.whatif import table, view
from ptanalyze.world.scenario import ScenarioOptions, captured_scenario
from ptanalyze_synth.capture import synth
from replay_cases import HEAP, case, cases, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_topology, build_trace, small_machine

# Advice: ranked by time within a budget, Thin or Wide with its evidence.

COSTS = load_costs(load_machine("sapphire-rapids"))
VAS = [HEAP + k * REGION for k in range(30)]


def captured(chunks, nodes=2, host=None, placement="round-robin", cpus=1, moves=""):
    pages, vmas = [(va, 512 * k) for k, va in enumerate(VAS)], [(HEAP, HEAP + 64 * REGION, "h")]
    snapshot = build_snapshot(pages, host, nodes=nodes, vmas=vmas)
    trace = build_trace(chunks) if chunks else None
    if placement == "recorded":
        trace.chunks["cpu"] = trace.chunks["thread"]
    machine = msgspec.structs.replace(small_machine(nodes), cpus_per_node=cpus)
    options = ScenarioOptions(machine=machine, threads_on=placement, move_threads=moves)
    return captured_scenario(snapshot, trace, options)


def test_a_program_that_one_node_walks_for_is_thin_and_one_that_all_walk_for_is_wide():
    thin = verdict.workload(captured([(0, VAS)] * 30 + [(1, VAS[:1])]))
    wide = verdict.workload(captured([(0, VAS * 5), (1, VAS * 5)] * 8))
    assert (thin.name, wide.name) == ("Thin", "Wide")
    assert wide.assumed == "threads round-robin over 2 nodes" and wide.assumed in wide.evidence()[0]
    assert wide.walks[0] == wide.walks[1] and not wide_on(1, placement="recorded").assumed
    assert wide.at_once == pytest.approx(2) and wide.shared == 1
    assert thin.shared == pytest.approx(1 / 30) and thin.at_once < 1.1
    moved = verdict.workload(moves := captured([(0, VAS * 5)] * 8, moves="0:1@40%"))
    assert moved.at_once == counting.at_work(moves, 0) == 1 and moved.walks.min() > 0, "one thread at a time"
    assert verdict.workload(captured(None)).name == "unknown"


@settings(max_examples=30, deadline=None)
@given(cases())
def test_sharing_is_counted_table_by_table_as_by_hand(case):
    found = verdict.workload(scenario_of(case))
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
    free = advise_scenario(scenario, math.inf, Setup.of(machine=scenario.machine, costs=COSTS))
    times = [one.result.speedup.middle for one in free.ranked]
    assert times == sorted(times, reverse=True) and not any(one.over for one in free.ranked)
    poor = advise_scenario(scenario, 0, Setup.of(machine=scenario.machine, costs=COSTS))
    split = [bool(one.over) for one in poor.ranked]
    assert split == sorted(split) and any(split)
    assert all(one.extra_bytes > 0 for one in poor.ranked if one.over) and not poor.ranked[0].extra_bytes


def test_the_sentence_names_the_best_policy_within_the_budget_and_why():
    scenario = captured([(0, VAS), (1, VAS * 200)])
    report = advise_scenario(scenario, math.inf, Setup.of(machine=scenario.machine, costs=COSTS))
    assert report.ranked[0].result.policy in report.sentence and report.why.code == "remote"
    found = advise("lookup", policies=["hydra"]).verdict
    cached = replace(found.base, reads=found.base.reads * (np.arange(DRAM + 1) != DRAM))
    for one, none in ((found.base, False), (cached, True)):
        assert ("no page-table read" in str(found._replace(base=one).limits)) == none
    single = captured([(0, VAS)], nodes=1)
    nothing = advise_scenario(single, math.inf, Setup.of(machine=single.machine, costs=COSTS))
    assert nothing.sentence == str(message("asked", "one-node"))


@pytest.mark.parametrize(
    ("asked", "best", "within"),
    [
        ({}, "hydra", None),
        ({"horizon": 1e-6}, "first-touch", " over the horizon"),
        ({"memory": 0}, "first-touch", " within the budget"),
    ],
)
def test_the_sentences_rest_on_the_horizon_and_the_budget(asked, best, within):
    policies = ["hydra", "mitosis", "interleave"]
    if not asked:  # hydra has paid back, mitosis not yet
        free = advise("lookup", policies=policies).replayed.results
        paid = [one.break_even_seconds.middle for one in free if one.policy in ("hydra", "mitosis")]
        asked = {"horizon": sum(paid) / 2}
    found = advise("lookup", policies=policies, **asked)
    said = found.verdict.research.numbers
    assert (found.best.policy, said.get("within")) == (best, within)
    assert "mitosis" not in said.get("names", "")
    assert best in found.sentence
    bound = advise("lookup", policies=["ideal"], **asked)
    assert (bound.best.policy, bound.why.code) == ("first-touch", "none"), "ideal is no policy to use"


def test_what_the_capture_lacks_rules_policies_out_by_name():
    native = captured([(0, VAS)])
    found = advise_scenario(native, math.inf, Setup.of(machine=native.machine, costs=COSTS))
    assert "mitosis" in {one.result.policy for one in found.ranked}
    assert found.refused["vmitosis-replicate"].startswith("a native capture has no host tables")
    guest = captured(None, host=[])
    report = advise_scenario(guest, math.inf, Setup.of(machine=guest.machine, costs=COSTS))
    assert {"hydra", "first-touch"} <= {*report.refused} and report.workload == "unknown"
    assert "vmitosis-replicate" in {one.result.policy for one in report.ranked}


def test_budgets_are_numbers_sizes_or_shares():
    assert memory_limit(None, 1) == math.inf and memory_limit(4096, 1) == 4096
    assert memory_limit("64M", 0) == 64 << 20 and memory_limit("1.5GiB", 0) == 1.5 * 2**30
    assert memory_limit("1%", 1000) == 10
    for wrong in ("", "x", "-1M", "1%%", "64Q"):
        with pytest.raises(UsageError, match="--memory"):
            memory_limit(wrong, 1)


def wide_on(cpus, nodes=2, **options):
    """Workload of two threads on as many nodes, each of `cpus` CPUs."""
    return verdict.workload(captured([(0, VAS * 5), (1, VAS * 5)], nodes, cpus=cpus, **options))


def test_a_gain_of_today_with_doubts_of_its_own_is_marked_and_cautioned():
    found = advise("vm-numa-visible", policies=["thp", "shadow"])
    own = [(one.policy, one.code) for one in found.verdict.cautions if one.policy]
    assert found.best.policy == "thp" and own == [("shadow", "unmodelled")]
    rows = [line.split() for line in table(found.replayed.results)]
    assert [row[-1] for row in rows if row[0] in ("thp", "shadow")] == ["today", "today*"]


def test_a_wide_workload_whose_threads_fit_one_node_could_run_there():
    found = wide_on(2)
    assert found.fits and found.threads == 2
    assert not replace(found, node_bytes=found.memory_bytes - 1).fits
    assert replace(found, node_bytes=found.memory_bytes).fits
    thin = verdict.workload(captured([(0, VAS), (1, VAS)], cpus=2, placement="0,0"))
    assert thin.name == "Thin" and not thin.fits
    assert not wide_on(2, host=[]).fits, "numactl in a guest places nothing of the host's"


def test_memory_in_huge_pages_counts_and_the_tracers_does_not():
    far = 1 << 40
    pages = [(HEAP, 0), (HEAP + REGION, 512, 2), (HEAP + 2 * REGION, 1024, 2), (far, 1 << 18, 3)]
    end = HEAP + 2 * REGION
    vmas = [(far, 2 * far, "g"), (HEAP, end, "h"), (end, end + REGION, "t", True)]
    options = ScenarioOptions(machine=small_machine(2), threads_on="round-robin")
    scenario = captured_scenario(build_snapshot(pages, vmas=vmas), build_trace([(0, [HEAP])]), options)
    assert verdict.workload(scenario).memory_bytes == PAGE + REGION + (1 << 30)


def test_the_memory_of_a_host_with_one_node_is_not_compared_with():
    scenario = captured([(0, VAS)], nodes=2)
    one = scenario.reshaped(snapshot=replace(scenario.snapshot, topology=build_topology(1)))
    assert verdict.workload(scenario).node_bytes and not verdict.workload(one).node_bytes


# Whether a policy gains by shorter walks or by less work of the kernel, and how advice says so.

CASCADE_LAKE_COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
ALL = [HEAP + k * PAGE for k in range(512)]


def results(*names, calls=(), frames=range(512, 1024)):
    """Results of one thread that touches 2 MiB three times, on one node of two."""
    pages, vmas = list(zip(ALL, frames, strict=True)), [(HEAP, HEAP + 512 * PAGE, "[heap]")]
    snapshot = build_snapshot(pages, nodes=2, vmas=vmas)
    trace = build_trace([(0, ALL)] * 3, [(0, 0, Event.ROI_START, (), 0), *calls], 2)
    plans = [plan_for(name) for name in ("linux", *names)]
    setup = Setup.of(machine=small_machine(2), costs=CASCADE_LAKE_COSTS)
    return replay_scenario(scenario_of(case(snapshot, trace, 2)), plans, setup)


def test_a_gain_by_fewer_faults_is_said_to_be_the_kernels():
    linux, thp = results("thp", calls=[(1, 0, Event.MADVISE, (HEAP, 512 * PAGE, 4), 0)])
    share = by_the_kernel(linux, thp)
    spared = linux.management_cycles - thp.management_cycles
    assert linux.count("faults") == 512 and thp.count("faults") < 10
    assert share > 0.5 and abs(share * (linux.run_cycles - thp.run_cycles) / spared - 1) < 1e-6
    why = because(linux, thp)
    assert why.code == "kernel" and why.numbers["now"] == thp.count("faults")
    gaining, *_ = view([linux, replace(thp, speedup=Interval(1.1, 1.2, 1.3))])
    unsure, *_ = view([linux, replace(thp, speedup=Interval(0.9, 1.2, 1.3))])
    assert gaining.lines[0].endswith(as_sentence(why)) and not unsure.lines[0].endswith(as_sentence(why))
    about = dict.fromkeys(("figure", "date", "kernel", "cpu"), "x") | {"gain": Interval(1.1, 1.2, 1.3)}
    measured = replace(thp, speedup=about["gain"], findings=(noted(MEASURED, nodes=1, pairs=3, **about),))
    assert because(linux, measured).code == "walks", "the figure has no page faults"
    assert not next(view([linux, measured])).lines[0].endswith(as_sentence(why))


def test_a_gain_by_fewer_walks_alone_says_nothing_about_the_kernel():
    linux, thp = results("thp")
    assert linux.walk_cycles > thp.walk_cycles
    assert because(linux, thp) == message("why", "walks", was=linux.walks, now=thp.walks)


def test_without_run_times_or_savings_there_is_no_part_of_the_kernel():
    linux, thp = results("thp")
    assert by_the_kernel(linux, linux) == 0
    assert by_the_kernel(linux, replace(thp, kernel_share=None)) == 0


@pytest.mark.parametrize(
    ("command", "name"),
    [("redis-server '*:6379'", "redis-server"), ("'/opt/my app/run' x", "run"), ("'/opt/it is' x", "'it is'"),
     ("python3.11 x.py", "PID"), ("/usr/bin/java -jar x", "PID"), ("'/opt/cut amid", "comm"), ("", "comm")],
)  # fmt: skip
def test_a_process_is_named_only_where_its_name_says_which_program_it_is(command, name):
    assert verdict.process_of({"comm": "comm"}, command) == name


# What limits a run: captures made so that one thing does.

FAR_DATA = {"nodes": 4, "threads": 4, "thp": 1.0, "init": "single", "init_trace": False, "scale": 32}
SMALL_PAGES = {"nodes": 4, "threads": 4, "sharing": "private", "mapped_by": "threads", "scale": 32}
MOVED = {"nodes": 2, "threads": 1, "init_trace": False, "scale": 64}
MOVED |= {"move": "0.01:0:1", "move_data": "0.01:1000000"}
FOUR = {"nodes": 4, "threads": 4, "pattern": "sequential"}
CACHED = {"nodes": 4, "threads": 4, "sharing": "private", "init_trace": False}


def of_asked(report):
    """The Verdict by the policies that were asked for, nothing besides."""
    return verdict.verdict(report.replayed.results, report.program)


def test_page_size_is_named_beside_what_was_asked_for_as_whatif_names_it():
    advised = advise("lookup", policies=["hydra"])
    assert advised.verdict.record() == replay("lookup", "hydra", judged=True).verdict.record()
    assert advised.verdict.kind == verdict.PAGES
    assert of_asked(advised).kind == verdict.TABLES and "thp" not in set(advised.frame["policy"])
    how = {"memory": "4K", "machine": "vmitosis-cascade-lake"}
    alone, beside = advise("vm-numa-visible", **how), advise("vm-numa-visible", policies=["hydra"], **how)
    assert alone.verdict.action == beside.verdict.action, "what is beside keeps to the budget, too"


@pytest.mark.parametrize(("kernel", "collapses"), [("5.15.0-91-generic", False), ("6.1.0-38-amd64", True)])
@pytest.mark.parametrize("traced", [False, True])
def test_what_the_captured_kernel_can_do_is_known_without_a_trace_too(kernel, collapses, traced):
    case = captured([(0, VAS)])
    snapshot = replace(case.snapshot, facts={**case.snapshot.facts, "kernel": kernel})
    options = ScenarioOptions(machine=small_machine(2))
    about = verdict.workload(captured_scenario(snapshot, case.trace if traced else None, options))
    assert (about.started, about.collapses) == (traced, collapses)


@pytest.mark.parametrize(
    ("vm", "policy", "kind", "action"),
    [
        ("visible", "ept-reset", verdict.TABLES, "reset"),
        ("oblivious", "ept-reset", verdict.TABLES, "reset"),
        ("visible", "first-touch", verdict.TABLES, "relocate"),
        ("oblivious", "first-touch", verdict.TABLES, "migrate-vm"),
        ("visible", "thp", verdict.PAGES, "in-both"),
    ],
)
def test_the_verdict_of_a_vm_names_who_can_do_something_on_mainline(vm, policy, kind, action):
    """Its threads moved to node 1; first-touch as such is not named, it needs a further start."""
    found = of_asked(advise(f"vm-numa-{vm}", policies=[policy], threads_on="1,1,1,1,1"))
    assert (found.kind, found.action.code) == (kind, action)
    assert ("as-started" in [one.code for one in found.cautions][:2]) is (policy == "first-touch")


@pytest.mark.parametrize(
    ("size", "made", "policies", "kind", "action"),
    [
        ("128M", FAR_DATA, ["thp", "hydra"], verdict.DATA, "bind"),
        ("128M", SMALL_PAGES, ["thp", "hydra"], verdict.PAGES, "anonymous"),
        ("256M", MOVED, ["hydra", "interleave"], verdict.TABLES, "relocate"),
        ("8M", CACHED, ["thp", "hydra"], verdict.NOTHING, None),
    ],
)
def test_the_verdict_is_what_the_capture_was_made_for(tmp_path, size, made, policies, kind, action):
    capture = synth(tmp_path / "made", size, accesses=60_000 if made is not MOVED else 200_000, **made)
    report = advise(capture, policies=policies)
    found = of_asked(report)
    assert found.kind == kind and (found.action and found.action.code) == action
    assert ("page tables alone" in report.sentence) is (kind == verdict.DATA), "the action places data, too"
    gains = {part.kind: part.gain for part in found.parts}
    others = [gain.middle for name, gain in gains.items() if name != kind]
    assert max(others) < 1.02 and (kind == verdict.NOTHING or gains[kind].middle > 1.1)
    assert found.record()["limit"] == kind
    assert (found.research.code == "gain") is (kind == verdict.TABLES)


@pytest.mark.parametrize(("by", "action"), [("glibc", "relocate"), ("file", None), ("", None)])
def test_tables_are_rebuilt_of_private_memory_alone(by, action):
    base = replace(results("thp")[0], local_tables=Interval(1.1, 1.2, 1.3), local_data=Interval.exactly(1.0))
    found = verdict.verdict([base], verdict.Workload(np.array([9, 0]), np.array([0, 9, 0]), allocator=by))
    assert found.kind == verdict.TABLES and (found.action and found.action.code) == action


def test_a_service_whose_misses_were_sampled_was_not_started_by_the_tracer():
    scenario = captured([(0, VAS)])
    facts = {**scenario.trace.facts, "sampled": True, "walks": True}
    seen = replace(scenario, trace=replace(scenario.trace, facts=facts))
    assert verdict.workload(scenario).started and not verdict.workload(seen).started


def sampled(scenario, gain):
    """Result of accessed bits, by which huge pages give at most `gain` in reads of leaf entries."""
    run = Interval.exactly(1.0)
    [base] = replay_scenario(scenario, [plan_for("linux")], Setup.of(machine=scenario.machine, costs=COSTS))
    known = {"local_tables": run, "local_data": None, "walk_share": None}
    return replace(base, cached_tables=Interval(1.0, gain, gain), **known)


@pytest.mark.parametrize(("gain", "code"), [(1.0003, "walks-uncounted"), (1.01, "beyond"), (1.01, "already")])
def test_a_gain_that_cannot_be_read_is_not_known_either(gain, code):
    """Notes on huge pages by accessed bits: "beyond 1.000x" would say that a gain is known."""
    base, settled = sampled(scenario := captured([(0, VAS)]), gain), code == "already"
    already = message("unknown", code, huge=1, memory=1, more=0) if settled else None
    about = replace(verdict.workload(scenario), already=already)
    bases = base, replace(base, classes=base.classes[:1])
    found, single = (verdict.verdict([one], about) for one in bases)
    assert found.notes[0].code == code and found.of_page_size is single.of_page_size is not settled
    assert found.limit.code == "nothing-tables" and single.limit.code == "single-open"
    beside = Interval(1.0, 1.0, 1.5)
    placed = verdict.verdict([replace(base, local_tables=beside)], verdict.workload(scenario))
    assert placed.limit.code == "perhaps-placed"
    shared = verdict.verdict([base], replace(about, allocator="file")).notes[0].numbers
    assert code != "walks-uncounted" or shared["way"].code == "shared", "no trial makes that huge"


@pytest.mark.parametrize(
    ("pages", "vma", "settled"), [(512, "[heap]", False), (300, "[heap]", True), (512, "/lib/x.so", True)]
)
def test_what_could_be_huge_counts_not_what_is_not(pages, vma, settled):
    """Seven blocks are huge, 88 %: a trial tells more only where the eighth could be."""
    end = HEAP + 7 * REGION
    mapped = [(HEAP + k * REGION, 512 * k, 2) for k in range(7)]
    mapped += [(end + k * PAGE, 8000 + k) for k in range(pages)]
    snapshot = build_snapshot(mapped, vmas=[(HEAP, end, "[heap]"), (end, end + REGION, vma)])
    scenario = captured_scenario(snapshot, None, ScenarioOptions(machine=small_machine(2)))
    [note, *_] = verdict.verdict([sampled(scenario, 1.0)], verdict.workload(scenario)).notes
    assert (note.code, note.numbers.get("more")) == (("already", 0) if settled else ("walks-uncounted", None))


@pytest.mark.parametrize(("data", "code"), [(1.2, "tables"), (1.4, "tables-unsure")])
def test_what_limits_is_sure_where_nothing_else_may_gain_as_much(data, code):
    """Both depend on the LLC's share, which is not known: at another one their order turns."""
    base = sampled(scenario := captured([(0, VAS)]), 1.0)
    parts = {"local_tables": Interval(1.06, 1.22, 1.45), "local_data": Interval(1.0, 1.15, data)}
    assert verdict.verdict([replace(base, **parts)], verdict.workload(scenario)).limit.code == code


ONE_NODES = {"init": "single", "sharing": "private"}  # each thread has its part, on the node of one


@pytest.mark.parametrize(
    ("made", "larger", "kind", "action"),
    [
        ({"nodes": 16, "threads": 16, "init": "single"}, "1x", verdict.SERVER, "interleave"),
        ({"nodes": 16, "threads": 16, "init": "single"}, "200x", verdict.SERVER, "interleave"),
        (FOUR | {"placement": "interleave"}, "1x", verdict.DATA, "anonymous"),
        (FOUR | {"placement": "interleave", "guest": "visible"}, "1x", verdict.DATA, None),
        (FOUR | {"placement": "bind:0", "guest": "visible"}, "1x", verdict.SERVER, "interleave"),
        ({"nodes": 4, "threads": 112} | ONE_NODES, "1x", verdict.SERVER, "interleave"),
        ({"nodes": 4, "threads": 4, "guest": "oblivious"} | ONE_NODES, "1x", verdict.SERVER, "interleave"),
    ],
)
def test_interleaving_is_typed_where_it_changes_what_one_node_serves(tmp_path, made, larger, kind, action):
    capture = synth(tmp_path / "made", "1G", accesses=400_000, init_trace=False, **made)
    machine = "epyc-7543-16-nodes" if made["nodes"] == 16 else "vmitosis-cascade-lake"
    policies = ["vmitosis-migrate"] if "guest" in made else ["thp", "hydra"]
    found = of_asked(advise(capture, policies=policies, stands_for=larger, machine=machine))
    assert found.kind == kind and (found.action and found.action.code) == action


@pytest.mark.parametrize(
    ("server", "at_once", "gain", "kind", "nodes"),
    [
        (4, 4.0, 1.0, verdict.SERVER, "0,1,2,3"),  # node 4 has no CPUs
        (0, 4.0, 0.9, verdict.SERVER, None),  # replayed, it loses
        (0, 1.0, 1.0, verdict.DATA, None),  # a thread that moved
        (slice(4), 4.0, 1.0, verdict.DATA, None),  # 25.5 % from one, as interleaved
    ],
)
def test_data_are_spread_over_nodes_with_cpus_if_several_read_at_a_time(server, at_once, gain, kind, nodes):
    (linux, thp), reads = results("thp"), np.zeros((5, 5, 4), int)
    reads[:4, server], reads[0, 0] = 9, 10
    base = replace(linux, data=reads, local_tables=Interval.exactly(1.0), local_data=Interval(1.1, 1.2, 1.3))
    about = verdict.Workload(reads.sum(axis=(1, 2)), np.array([0, 0, 9]), at_once=at_once, cpu_nodes=range(4))
    tried = replace(thp, policy="interleave", speedup=Interval(0.4, gain, 1.0))
    found = verdict.verdict([base, tried], about)
    assert found.kind == kind and (found.action and found.action.numbers["nodes"]) == nodes


def test_accesses_that_the_tlbs_hold_do_not_tell_what_limits_a_run(tmp_path, monkeypatch):
    advised = advise(synth(tmp_path / "made", "1G", accesses=100, init_trace=False, **FOUR))
    few, first = advised.verdict, next(advised_view(advised, Section())).lines
    assert (few.kind, few.action, few.limit.numbers["entries"]) == (verdict.FEW, None, 1536)
    assert first == [advised.sentence] == [few.record()["sentence"]] and (few.answers, few.parts) == ([], [])
    monkeypatch.setattr("ptanalyze.core.trace.Trace.sampled_walks", True)  # each sample is many
    assert advise(synth(tmp_path / "few", "8M", accesses=5000, init_trace=False)).verdict.kind != verdict.FEW


def test_memory_is_bound_to_no_node_that_it_is_not_known_to_fit(tmp_path):
    capture = synth(tmp_path / "made", "64M", accesses=50_000, **SMALL_PAGES)
    asked = [advise(capture, policies=["hydra"], stands_for=size) for size in ("1x", "24000x")]
    small, large = (one.program for one in asked)
    assert small.may_fit_one_node
    assert not large.may_fit_one_node and not large.fits
    base = replace(results("thp")[0], local_tables=Interval.exactly(1.0), local_data=Interval(1.1, 1.2, 1.3))
    for memory, action in ((1 << 30, "migrate"), (3 << 30, None)):
        about = verdict.Workload(np.array([9, 0]), np.array([0, 9]), memory, 2 << 30)
        assert getattr(verdict.verdict([base], about).action, "code", None) == action


# Lines about huge pages: only for what the program allocates with, where they are allowed, and worth it.

LIBC, JEMALLOC = "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"


@pytest.mark.parametrize(
    ("name", "others", "by"),
    [
        ("[heap]", ["/bin/app", LIBC], "glibc"),
        ("", ["/bin/app", LIBC], "malloc"),  # a piece above malloc's threshold is a mapping of its own
        ("", ["/bin/app", LIBC], "arenas"),
        ("", ["/bin/app"], "anonymous"),
        ("[heap]", ["/bin/app", LIBC, JEMALLOC], "jemalloc"),
        ("", ["/usr/bin/redis-check-rdb", LIBC, JEMALLOC], "redis"),
        ("", ["/usr/lib/jvm/lib/server/libjvm.so", LIBC], "java"),
        ("", ["/usr/lib/libtcmalloc.so.4", LIBC], "tcmalloc"),
        ("/dev/shm/data", ["/bin/app", LIBC], "file"),
    ],
)
def test_the_allocator_is_read_from_the_mappings(name, others, by):
    vmas = [(2 * HEAP + k * REGION, 2 * HEAP + (k + 1) * REGION, of) for k, of in enumerate(others)]
    vmas.insert(0, (HEAP, HEAP + (32 if by == "arenas" else 64) * REGION, name))
    assert verdict.allocator(build_snapshot([(va, 512 * k) for k, va in enumerate(VAS)], vmas=vmas)) == by


@pytest.mark.parametrize(
    ("by", "allowed", "memory", "action"),
    [
        ("glibc", "madvise", 4 << 30, "glibc"),
        ("arenas", "madvise", 4 << 30, "malloc"),
        ("jemalloc", "madvise", 4 << 30, "jemalloc"),
        ("malloc", "madvise", 4 << 30, "malloc"),
        ("malloc", "never", 4 << 30, "anonymous"),  # madvise gets none there
        ("anonymous", "never", 4 << 30, "anonymous"),
        ("anonymous", "always", 4 << 30, None),
        ("glibc", "never", 4 << 30, None),
        ("glibc", None, 4 << 30, None),
        ("tcmalloc", "madvise", 4 << 30, None),
        ("file", "madvise", 4 << 30, None),
        ("glibc", "madvise", 0, None),  # more memory than it gains
    ],
)
def test_huge_pages_are_typed_where_each_condition_is_known_to_hold(by, allowed, memory, action):
    linux, thp = results("thp")
    tables = Interval.exactly(1.0)
    base = replace(linux, local_tables=tables, local_data=tables)
    huge = replace(thp, speedup=Interval(1.1, 1.2, 1.3), facts={"bloat_bytes": 1 << 20})
    how = {"allocator": by, "huge_pages": allowed, "process": "app"}
    about = verdict.Workload(np.array([9, 0]), np.array([0, 9, 0]), memory, **how)
    found = verdict.verdict([base, huge], about)
    assert found.kind == verdict.PAGES and (found.action and found.action.code) == action
    assert "PID" not in str(found.today)
    dear = verdict.verdict([base, huge], about, over={"thp"})
    assert dear.kind == found.kind and not dear.action, "a budget changes what is to be done"
    service = verdict.verdict([base, huge], replace(about, started=False)).action
    assert (service and service.code) == (action and "malloc") and "./app" not in str(service)
    assert ("GLIBC_TUNABLES" in str(found.action)) is (action == "glibc"), "for mmap of its own it is nothing"
    old = verdict.verdict([base, huge], replace(about, started=False, collapses=False)).action
    assert (old and old.code) == (None if action == "malloc" else action), "from the next start on"


def test_what_huge_pages_give_to_memory_that_was_never_written_is_not_known():
    base, thp, both, hydra = results(
        "thp", "thp+hydra", "hydra", frames=[512 + k * (k % 2) for k in range(512)]
    )
    assert thp.speedup is both.speedup is None and base.speedup and hydra.speedup
    base = replace(base, classes=base.classes[:1])
    about = verdict.Workload(np.array([9]), np.array([0, 9]), allocator="glibc", huge_pages="madvise")
    found = verdict.verdict([base, thp], about)
    assert [one.kind for one in found.answers] == [verdict.UNPRICED] and found.action is None
    assert [note.code for note in found.notes] == [UNWRITTEN] and found.limit.code == "single-open"
    assert UNWRITTEN in {one.code for one in found.cautions}
    trial = msgspec.structs.asdict(TRIAL) | {"gain": (gain := Interval(1.3, 1.7, 2.5))}
    tried = replace(thp, speedup=gain, findings=(*thp.findings, noted(MEASURED, **trial)))
    assert verdict.verdict([base, tried], about).kind == verdict.PAGES, "a trial has measured it"


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("why", "barred", "made", "said"),
    [("forbidden", 127, 1, True), ("forbidden", 4, 40, False), ("forbidden", 0, 9, False),
     ("split", 127, 128, True), ("split", 4, 44, False)],
)  # fmt: skip
def test_page_size_is_not_judged_of_memory_that_the_program_keeps_small(nodes, why, barred, made, said):
    linux, thp = results("thp")
    none = Interval.exactly(1.0)
    base = replace(linux, local_tables=none, local_data=none, classes=linux.classes[:nodes])
    huge = replace(thp, speedup=none, facts={f"regions_{why}": barred, "regions_promoted": made})
    walks, how = np.array([9, 0][:nodes]), {"allocator": "glibc", "huge_pages": "madvise"}
    about = verdict.Workload(walks, np.array([0, 9]), **how)
    found = verdict.verdict([base], about, [huge])
    assert [note.code for note in found.notes] == [why] * said
    assert found.of_page_size is (why == "split" if said else nodes == 1)
    assert (verdict.PAGES in {part.kind for part in found.parts}) is not said
    unasked = verdict.verdict([base], about).limit
    assert (nodes == 1) is (unasked.code == "single-open"), "nobody asked what huge pages do"
    judged = {1: ("single", "single-open"), 2: ("nothing", "nothing-placed")}[nodes]
    assert found.limit.code == judged[said]
    better = verdict.verdict([base], about, [replace(huge, speedup=Interval(1.1, 1.2, 1.3))])
    assert better.kind == verdict.PAGES and len(better.notes) == said, "the rest gains, as far as is known"
    assert (better.action is None) is (said and why == "split"), "no line keeps huge what calls split"
    freed = noted(GONE, CAREFUL, line="tables-gone-much", tables=9, share=0.57)
    found = verdict.verdict([replace(base, findings=(freed,))], about, [replace(huge, facts={})])
    assert found.limit.code == judged[True] and [note.code for note in found.notes] == ["gone"]
    assert found.of_page_size, "a trial can tell"


@pytest.mark.parametrize(
    ("speedup", "kind"),
    [
        ((1.1, 1.2, 1.3), verdict.GAIN),
        ((0.9, 1.1, 1.2), verdict.UNSURE),
        ((0.8, 0.9, 1.0), verdict.NONE),
        ((0.8, 0.9, 0.95), verdict.LOSS),
    ],
)
def test_an_answer_is_as_sure_as_its_interval(speedup, kind):
    linux, thp = results("thp")
    found = verdict.answer(replace(thp, speedup=Interval(*speedup)), linux)
    assert found.kind == kind and str(found.message).startswith("thp: ")
    assert messages()["type"].keys() == messages()["because"].keys()


@pytest.mark.parametrize(("nodes", "code"), [(1, verdict.PAGES), (2, f"{verdict.PAGES}-asked")])
def test_huge_pages_alone_are_named_though_asked_for(nodes, code):
    """On one node no other part can be named beside the answer: "more than placement: ." said nothing."""
    linux, thp = results("thp")
    tables = Interval.exactly(1.0)
    base = replace(linux, local_tables=tables, local_data=tables, classes=linux.classes[:nodes])
    huge = replace(thp, speedup=Interval(1.1, 1.2, 1.3))
    limit = verdict.verdict([base, huge], verdict.Workload(np.array([9, 0][:nodes]), np.array([0, 9]))).limit
    assert limit.code == code and limit.numbers["parts"]


def test_walks_in_order_are_said_of_the_run_and_not_again_of_its_huge_pages():
    pages = [va + k * PAGE for va in VAS for k in range(4)]
    snapshot = build_snapshot([(va, k) for k, va in enumerate(pages)], nodes=2)
    machine = small_machine(2)
    run = captured_scenario(snapshot, build_trace([(0, pages)] * 9), ScenarioOptions(machine=machine))
    plans = [plan_for("linux"), plan_for("thp", {"min_pages": 1})]
    found = replay_scenario(run, plans, Setup.of(machine=machine, costs=COSTS))
    assert [bool(one.finding("in-order")) for one in found] == [True, False]
    assert found[1].walks > 100, "in order, too"


def test_a_verdict_does_not_turn_because_huge_pages_could_not_be_asked():
    linux, _ = results("thp")
    base = replace(linux, local_tables=Interval(1.1, 1.2, 1.3), local_data=Interval.exactly(1.0))
    about = verdict.Workload(np.array([9, 0]), np.array([0, 9, 0]), allocator="glibc", huge_pages="madvise")
    least = replace(base, local_tables=Interval(1, 1, 1), local_data=None, cached_tables=base.local_tables)
    for notes, kind in (([], verdict.TABLES), ([message("unknown", verdict.UNTOLD)], verdict.UNKNOWN)):
        assert verdict.verdict([base], about, notes=notes).kind == kind
        service = verdict.verdict([least], replace(about, started=False), notes=notes)
        assert (service.action is None) is bool(notes), "a process is changed for what is known to gain"


def test_what_a_policy_does_not_act_on_is_as_under_its_baseline(tmp_path):
    """Captured on one node, private: else it loses what first touch gains. A start-up has no break-even."""
    how = {"nodes": 1, "threads": 4, "sharing": "private", "accesses": 20000}
    private = synth(tmp_path / "c", "256M", init_trace=False, **how)
    for baseline in ("auto", "bind", "linux"):
        assert whatif(private, "thp:fragmentation=1", baseline=baseline)["leaf_LL_share"].nunique() == 1
    assert whatif(synth(tmp_path / "d", "64M", **how), "mitosis")["pays_back_seconds"].isna().all()
