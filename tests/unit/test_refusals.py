"""Policies that cannot run on a capture are refused by name, and the others compared without them."""

import pytest

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.sweep import sweep_snapshot
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import RefusedError, UsageError
from ptanalyze.core.machine import load_costs, load_machine
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace, small_machine

SETUP = Setup.of(machine=small_machine(2), costs=load_costs(load_machine("sapphire-rapids")))
VAS = [HEAP + k * PAGE for k in range(8)]
TRACE = build_trace([(0, VAS), (1, VAS)])
EPT = {"layers": "ept"}


def guest(oblivious):
    snapshot = build_snapshot(
        [(va, k) for k, va in enumerate(VAS)], [], vmas=[(HEAP, HEAP + PAGE * 8, "heap")]
    )
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
        ("steering", {}),
        ("steering", {"layers": "both"}),
        ("hydra", {}),
        ("hydra-2d", {}),
        ("hydra-2d", {"layers": "gpt"}),
        ("vmitosis-replicate", {}),
        ("vmitosis-replicate", {"mode": "nv", "layers": "gpt"}),
        ("hydra+vmitosis-replicate", EPT),
        ("thp+mitosis", {}),
    ],
)
def test_a_guest_that_sees_no_nodes_cannot_place_tables_by_them(name, settings):
    with pytest.raises(
        RefusedError, match=r"NUMA-oblivious\): use vmitosis-replicate:mode=no-p .*mode=no-f"
    ) as why:
        replayed(guest(oblivious=True), (name, settings))
    assert "\n" not in str(why.value) and why.value.exit_code == 2
    assert name in replayed(guest(oblivious=False), (name, settings))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vmitosis-replicate", {"mode": "no-p"}),
        ("vmitosis-replicate", {"mode": "no-f", "groups": "0,1"}),
        ("vmitosis-replicate", EPT),
        ("steering", EPT),
        ("hydra-2d", EPT),
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
    alone = replayed(guest(oblivious=True), wanted[1])
    one, same = found["vmitosis-replicate"], alone["vmitosis-replicate"]
    assert (one.reads == same.reads).all() and one.price.speedup == same.price.speedup
    for result in found.values():
        assert [note for note in result.notes if "NUMA-oblivious" in note] == [
            f"policy {name}: {why}" for name, why in refused.items()
        ]


def test_without_a_trace_it_does_not_either():
    refused = {}
    wanted = [("first-touch", {}), ("interleave", {}), ("hydra", {})]
    found = replayed(guest(oblivious=True), *wanted, refused=refused, trace=None)
    assert list(found) == ["linux", "interleave"] and list(refused) == ["first-touch", "hydra"]


def test_a_comparison_of_refused_policies_alone_is_an_error_with_all_reasons():
    wanted = [("hydra", {}), ("mitosis", {})]
    with pytest.raises(UsageError, match=r"policy hydra: .*; policy mitosis: .*no-f") as why:
        replayed(guest(oblivious=True), *wanted, refused={})
    assert "\n" not in str(why.value)
    assert list(replayed(guest(oblivious=True), ("linux", {}), *wanted, refused={})) == ["linux"]


def test_a_wrong_parameter_is_no_refusal():
    for trace in (TRACE, None):
        with pytest.raises(UsageError, match="bind: node = 9"):
            replayed(guest(True), ("bind", {"node": 9}), ("linux", {}), refused={}, trace=trace)


def test_a_sweep_goes_on_and_names_the_points_that_are_refused():
    refused = {}
    points = sweep_snapshot(
        guest(oblivious=True),
        TRACE,
        ["vmitosis-replicate", "hydra"],
        {"mode": ["nv", "no-p", "no-f"], "placement": ["round-robin", "block"]},
        SETUP,
        refused=refused,
    )
    found = [(result.params.get("mode"), point["placement"]) for point, result in points]
    assert found == [(mode, how) for how in ("round-robin", "block") for mode in (None, "no-p", "no-f")]
    assert list(refused) == ["vmitosis-replicate:mode=nv", "hydra"]
