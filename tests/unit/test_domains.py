"""Domains of a socket (Hydra, section 6): nodes as to sharing and shootdowns, one place as to locality."""

import os

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.analysis.replay import by_socket
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import IPI, IPI_SAVED, RL, RR
from ptanalyze.policies import plan_for
from ptanalyze.policies.five_level import domain_of, split
from replay_cases import HEAP, case, cases, run, world_of
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
COSTS = load_costs(load_machine("sapphire-rapids"))


def folded(case, name, k, params=None):
    return by_socket(run(case, name, {"per_socket": k, **(params or {})}).counters, k)


def total(counters, kind):
    return int(counters.events[:, kind].sum())


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.sampled_from(["linux", "mitosis", "hydra"]))
def test_one_domain_a_socket_changes_nothing(case, name):
    whole, found = run(case, name).counters, folded(case, f"{name}+domains", 1)
    assert all((one == other).all() for one, other in zip(whole, found, strict=True))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.integers(2, 8))
def test_a_single_copy_of_each_table_is_as_far_away_in_domains(case, k):
    linux = run(case, "linux").counters
    for name in ("domains", "linux+domains"):
        found = folded(case, name, k)
        assert all((one == other).all() for one, other in zip(linux, found, strict=True))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.integers(2, 4), st.sampled_from(["off", "single", "all"]))
def test_hydra_in_domains_interrupts_fewer_cpus_and_takes_more_pages(case, k, tlbflush):
    params = {"tlbflush": tlbflush}
    hydra, found = run(case, "hydra", params).counters, folded(case, "hydra+domains", k, params)
    assert total(found, IPI) <= total(hydra, IPI)
    assert total(found, IPI) + total(found, IPI_SAVED) == total(hydra, IPI) + total(hydra, IPI_SAVED)
    assert hydra.pages[1] <= found.pages[1] <= k * run(case, "mitosis").counters.pages[1]


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.integers(2, 4))
def test_mitosis_in_domains_takes_as_many_times_the_pages_and_all_is_local(case, k):
    mitosis, found = run(case, "mitosis").counters, folded(case, "mitosis+domains", k)
    assert (found.pages == k * mitosis.pages).all()
    assert found.classes[:, [RL, RR]].sum() == 0
    assert (found.reads == mitosis.reads).all()


def test_threads_of_one_socket_that_share_nothing_do_not_interrupt_each_other():
    """Four threads on one socket; one flips the protection of a page of its own."""
    mine, other = HEAP, HEAP + REGION
    snapshot = build_snapshot([(mine, 1), (other, 2)], nodes=1, vmas=[(HEAP, HEAP + 2 * REGION, "h")])
    flips = [(4, 0, Event.MPROTECT, (mine, PAGE, k % 2), 0) for k in range(10)]
    trace = build_trace([(0, [mine]), *((t, [other]) for t in (1, 2, 3))], flips)
    process = case(snapshot, trace, 1, cpus=4)
    assert total(run(process, "hydra").counters, IPI) == 30
    sent = {k: total(folded(process, "hydra+domains", k), IPI) for k in (2, 4)}
    assert sent == {2: 10, 4: 0}


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 8))
def test_cpus_of_a_socket_are_dealt_out_in_even_blocks(socket, k):
    socket = np.array(socket, np.int16)
    domain = domain_of(socket, k)
    assert (domain // k == socket).all()
    for one in set(socket.tolist()):
        mine = domain[socket == one]
        assert (np.diff(mine) >= 0).all()
        counts = np.bincount(mine - one * k, minlength=k)
        assert counts.max() - counts.min() <= 1


def test_latency_within_a_socket_is_the_local_one():
    machine = split(small_machine(2), 2)
    near, far = small_machine(2).latency.idle[0]
    assert machine.nodes == 4
    assert machine.latency.idle == (
        (near, near, far, far), (near, near, far, far), (far, far, near, near), (far, far, near, near)
    )  # fmt: skip


def test_the_stream_of_tlb_misses_is_the_one_there_was():
    snapshot = build_snapshot([(HEAP, 1)])
    world = world_of(case(snapshot, build_trace([(0, [HEAP]), (1, [HEAP])])))
    shaped = plan_for("domains").reshape(world)
    assert shaped.stream is world.stream and shaped.space is world.space
    assert (shaped.nodes, shaped.sockets) == (4, 2)


def test_results_are_by_socket_and_what_goes_on_within_one_is_local():
    snapshot = build_snapshot([(HEAP, 1)], vmas=[(HEAP, HEAP + REGION, "h")])
    flips = [(4, 0, Event.MPROTECT, (HEAP, PAGE, k % 2), 0) for k in range(3)]
    trace = build_trace([(t, [HEAP]) for t in range(4)], flips)
    names = [("linux", {}), ("hydra", {}), ("hydra+domains", {}), ("domains", {})]
    machine = msgspec.structs.replace(small_machine(2), cpus_per_node=2)
    found = replay_snapshot(
        snapshot, trace, names, Setup.of(machine=machine, costs=COSTS, threads_on="0,0,1,1")
    )
    rows = [result.row() for result in found]
    assert all(result.reads.shape == (48, 2, 2, 2) for result in found)
    assert [(row["ipis_local"], row["ipis_remote"]) for row in rows] == [(3, 6)] * 4
    assert [row["pt_bytes"] // PAGE for row in rows] == [4, 8, 16, 4]
    assert "2 domains per socket" in rows[2]["placement"]
    linux, domains = rows[0], rows[3]
    own = ("policy", "params", "placement", "pays_back", "pays_back_walks", "pays_back_seconds")
    assert {k: v for k, v in linux.items() if k not in own} == {
        k: v for k, v in domains.items() if k not in own
    }


def test_what_domains_cannot_be_is_refused():
    snapshot = build_snapshot([(HEAP, 1)])
    trace = build_trace([(0, [HEAP])])
    with pytest.raises(UsageError, match="per_socket = 8: 9 sockets make 72 domains, at most 64"):
        run(case(snapshot, trace, 9), "domains", {"per_socket": 8})
    with pytest.raises(UsageError, match=r"per_socket = 9: .*allowed: 1\.\.8"):
        plan_for("domains", {"per_socket": 9})
    with pytest.raises(UsageError, match=r"domains: .*no trace tells"):
        replay_snapshot(
            snapshot, None, [("hydra+domains", {})], Setup.of(machine=small_machine(2), costs=COSTS)
        )
