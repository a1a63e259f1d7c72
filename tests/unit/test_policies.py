"""Policies in closed form, those that a capture does not allow, the ideal."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.analysis.replay import at_shares, replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import RefusedError, UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.cost import counts as cost
from ptanalyze.kernels import LL, PTE_FANOUT, PTE_WRITE
from ptanalyze.policies import find, plan_for, policies
from ptanalyze.policies.contract import Policy, check_needs
from replay_cases import HEAP, case, cases, events, run, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

# What the policies must add up to, by the papers and by counting on fingers.

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40


def touching_all(nodes, pages=600, passes=2, events=()):
    """One VMA of the main thread's; every node touches every page, `passes` times."""
    vas = [HEAP + k * PAGE for k in range(pages)]
    pages, vmas = [(va, 1000 + k) for k, va in enumerate(vas)], [(HEAP, HEAP + 2 * REGION, "h")]
    snapshot = build_snapshot(pages, nodes=nodes, vmas=vmas)
    chunks = [(thread, vas) for _ in range(passes) for thread in range(nodes)]
    return case(snapshot, build_trace(chunks, events, nodes), nodes)


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=True))
def test_mitosis_takes_n_times_the_pages_and_the_writes_and_every_read_is_local(case):
    nodes = case.machine.nodes
    one, all_ = run(case, "first-touch").counters, run(case, "mitosis").counters
    assert (all_.pages == nodes * one.pages).all()
    assert all_.events[:, [PTE_WRITE, PTE_FANOUT]].sum() == nodes * one.events[:, PTE_WRITE].sum()
    assert all_.classes[:, LL].sum() == all_.classes.sum()
    assert all_.reads.sum() == np.einsum("bnnd->", all_.reads)


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases))
def test_walks_and_reads_are_the_same_under_every_policy_and_ideal_takes_the_fewest_cycles(case):
    lacked = {"slow nodes", "nested tables"} if case.snapshot.native else {"slow nodes"}
    alike = [p.name for p in policies().values() if p.reshape is None and not lacked & set(p.needs)]
    scenario = scenario_of(case)
    runs = {name: start(plan_for(name), scenario) for name in alike}
    replay_walks([*runs.values()], scenario, scenario.reads())
    found = {name: run.counters for name, run in runs.items()}
    read = cost.read_cycles(case.machine)
    reads = {name: at_shares(one.reads, case.machine.llc)[0] for name, one in found.items()}
    cycles = {name: cost.walk_cycles(of_all, read, 0.0).sum() for name, of_all in reads.items()}
    for name, other in found.items():
        assert (other.classes.sum(axis=1) == found["ideal"].classes.sum(axis=1)).all()
        assert (other.reads.sum(axis=2) == found["ideal"].reads.sum(axis=2)).all()
        assert cycles[name] >= cycles["ideal"]


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=True))
def test_wider_shootdown_filters_send_fewer_ipis_and_account_for_all(case):
    sent = {}
    for name in ("off", "single", "munmap-all", "all", "all-or-none"):
        done = events(run(case, "hydra", {"tlbflush": name}).counters)
        sent[name] = sum(n for key, n in done.items() if key[0] == "ipis")
        assert sent[name] + sum(n for key, n in done.items() if key[0] == "ipis_saved") == sent["off"]
    assert sent["all"] <= sent["single"] <= sent["off"]
    assert sent["all"] <= sent["munmap-all"] <= sent["off"]
    assert sent["all"] <= sent["all-or-none"] <= sent["off"]


@pytest.mark.twin
def test_a_mapping_made_before_the_region_of_interest_holds_mapped_pages_of_its_own_owner():
    snapshot = build_snapshot([(HEAP, 1), (HEAP + PAGE, 2)], vmas=[(HEAP, HEAP + REGION, "h")])
    before = (0, 1, Event.MMAP, (0, REGION, 3, 0x22), HEAP)
    begin = (0, 0, Event.ROI_START, (), 0)
    after = (0, 0, Event.MMAP, (0, PAGE, 3, 0x32), HEAP + PAGE)
    trace = build_trace([(0, [HEAP, HEAP + PAGE])], [before, begin, after], threads=2)
    counted = events(run(case(snapshot, trace), "hydra", {"prefetch": 0}).counters)
    assert counted["replica_faults", 0, 1] == 1, "the first page was mapped by thread 1, on node 1"
    assert counted["faults", 0, 0] == 1, "the second page was mapped anew"


@pytest.mark.twin
def test_an_unknown_parameter_names_the_allowed_ones():
    with pytest.raises(UsageError, match="prefech = 3: no such parameter; it has: prefetch, prefetch_on, "):
        find("hydra").configure({"prefech": "3"})


@pytest.mark.twin
@pytest.mark.parametrize(
    ("name", "key", "value", "allowed"),
    [
        ("hydra", "prefetch", "10", "0..9"),
        ("hydra", "prefetch", "many", "0..9"),
        ("hydra", "tlbflush", "sometimes", "all, all-or-none, munmap-all, off, single"),
        ("bind", "node", "-1", "0 or more"),
    ],
)
def test_a_value_out_of_range_names_the_range(name, key, value, allowed):
    with pytest.raises(UsageError) as caught:
        find(name).configure({key: value})
    assert f"{key} = {value}" in str(caught.value) and allowed in str(caught.value)


@pytest.mark.twin
@pytest.mark.parametrize("nodes", ["2", "0,x", "-1", "0,,1"])
def test_mitosis_refuses_nodes_that_the_machine_does_not_have(nodes):
    with pytest.raises(UsageError, match="is not a node"):
        run(touching_all(2, pages=1), "mitosis", {"nodes": nodes})


@pytest.mark.twin
def test_linux_refuses_a_capture_whose_tables_have_no_known_node():
    process = touching_all(2, pages=1)
    process.space.tables.node[:] = -1
    with pytest.raises(UsageError, match="node unknown for 4 of 4 table pages"):
        run(process, "linux")
    assert run(process, "hydra").counters.classes.sum() == 4


# Policies that cannot run on a capture are refused by name, and the others compared without them.

SETUP = Setup.of(machine=small_machine(2), costs=load_costs(load_machine("sapphire-rapids")))
VAS = [HEAP + k * PAGE for k in range(8)]
TRACE = build_trace([(0, VAS), (1, VAS)])
EPT = {"layers": "ept"}


def guest(oblivious):
    pages = [(va, k) for k, va in enumerate(VAS)]
    snapshot = build_snapshot(pages, [], vmas=[(HEAP, HEAP + PAGE * 8, "heap")])
    snapshot.facts["vm"] = {"numa_oblivious": oblivious}
    return snapshot


def replayed(snapshot, *policies, refused=None, trace=TRACE):
    results = replay_snapshot(snapshot, trace, policies, SETUP, refused=refused)
    return {result.policy: result for result in results}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mitosis", {}),
        ("mitosis", {"mode": "migrate"}),
        ("hydra", {}),
        ("vmitosis-replicate", {}),
        ("vmitosis-replicate", {"mode": "nv", "layers": "gpt"}),
        ("hydra+vmitosis-replicate", EPT),
        ("thp+mitosis", {}),
    ],
)
def test_a_guest_that_sees_no_nodes_cannot_place_tables_by_them(name, settings):
    said = r"NUMA-oblivious\): use vmitosis-replicate:mode=no-p .*mode=no-f"
    with pytest.raises(RefusedError, match=said) as why:
        replayed(guest(oblivious=True), (name, settings))
    assert why.value.exit_code == 2
    assert name in replayed(guest(oblivious=False), (name, settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vmitosis-replicate", {"mode": "no-p"}),
        ("vmitosis-replicate", {"mode": "no-f", "groups": "0,1"}),
        ("vmitosis-replicate", EPT),
        ("vmitosis-migrate", {}),
        ("shadow+mitosis", {}),
        ("shadow+hydra", {}),
    ],
)
def test_what_the_hypervisor_does_needs_no_nodes_in_the_guest(name, settings):
    assert name in replayed(guest(oblivious=True), (name, settings))


def test_a_refused_policy_does_not_end_the_comparison_of_the_others():
    wanted = [("hydra", {}), ("vmitosis-replicate", {"mode": "no-p"}), ("mitosis", {})]
    refused = {}
    found = replayed(guest(oblivious=True), *wanted, refused=refused)
    assert list(found) == ["linux", "vmitosis-replicate"] and list(refused) == ["hydra", "mitosis"]
    one, same = found["vmitosis-replicate"], [*replayed(guest(oblivious=True), wanted[1]).values()][-1]
    assert (one.reads == same.reads).all() and one.speedup == same.speedup
    for result in found.values():
        (note,) = [note for note in result.notes if "NUMA-oblivious" in note]
        assert note == f"policies hydra, mitosis: {refused['hydra']}" and len({*refused.values()}) == 1


def test_a_comparison_of_refused_policies_alone_is_an_error_with_all_reasons():
    wanted = [("hydra", {}), ("mitosis", {})]
    with pytest.raises(UsageError, match=r"policies hydra, mitosis: .*no-f"):
        replayed(guest(oblivious=True), *wanted, refused={})
    assert list(replayed(guest(oblivious=True), ("linux", {}), *wanted, refused={})) == ["linux"]
    wanted, refused = [*wanted, (find("thp")._replace(name="hydra"), {})], {}
    replayed(guest(oblivious=True), *wanted, refused=refused)
    assert {name.split("=")[0] for name in refused} == {"hydra:prefetch", "mitosis"}


def test_a_wrong_parameter_is_no_refusal():
    for trace in (TRACE, None):
        with pytest.raises(UsageError, match="bind: node = 9"):
            replayed(guest(True), ("bind", {"node": 9}), ("linux", {}), refused={}, trace=trace)


def test_a_need_that_is_not_known_is_named_beside_those_that_are():
    with pytest.raises(UsageError, match=r"coffee.*trace, events"):
        check_needs(Policy("mine", "", needs=("coffee",)), None, None)
