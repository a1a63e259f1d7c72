"""Hydra: threads that move, and hydra-2d."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import policies as naive
from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event, Placement
from ptanalyze.kernels import LR, PTE_COPY, PTE_FANOUT, REPLICA_FAULT, RL, RR
from ptanalyze.kernels.replay import HOST_DATA, TABLE_DATA, MmSteps
from ptanalyze.policies import plan_for
from replay_cases import HEAP, case, cases, events, reads_of, run, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin


# hydra-2d: its host part against a naive twin, and what it must add up to between linux and vMitosis.

EXAMPLES = 15 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 50
NAME = "hydra-2d"
GUEST = [bit for bit in range(48) if bit % 8 == 0]
COSTS = load_costs(load_machine("sapphire-rapids"))
degrees = st.fixed_dictionaries(
    {
        "prefetch": st.integers(0, 9),
        "host_prefetch": st.integers(0, 9),
        "prefetch_on": st.sampled_from(["every", "first"]),
    }
)


def touching_all(nodes, pages=40, passes=1, host_nodes=(0,)):
    """A VM in which every node touches every page of the main thread's VMA, `passes` times."""
    vas = [HEAP + k * PAGE for k in range(pages)]
    snapshot = build_snapshot(
        [(va, 1000 + k) for k, va in enumerate(vas)], [], nodes=nodes, host_table_nodes=host_nodes,
        vmas=[(HEAP, HEAP + REGION, "h")],
    )  # fmt: skip
    return case(snapshot, build_trace([(t, vas) for _ in range(passes) for t in range(nodes)]), nodes)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(cases(native=False), degrees)
def test_the_host_part_counts_what_its_twin_counts_and_the_guest_part_what_hydra_counts(case, params):
    reads = reads_of(case)
    if not reads:
        return
    degree, first = params["host_prefetch"], params["prefetch_on"] == "first"
    twin = naive.LazyHost(case.snapshot, case.space, case.machine.nodes, degree, first)
    found = naive.replay(twin, case.space, case.placement, reads[0][1])
    done = run(case, NAME, params).counters
    hydra = run(case, "hydra", {k: v for k, v in params.items() if k != "host_prefetch"}).counters
    host = done.reads.copy()
    host[GUEST] = 0
    assert {tuple(at.tolist()): int(host[tuple(at)]) for at in np.argwhere(host)} == found
    assert events(done, host=True) == twin.events
    assert done.host_pages.tolist() == [len(twin.has), len(twin.has)]
    assert not done.classes[:, [LR, RR]].any()
    assert (done.classes[:, [RL, RR]].sum(axis=1) == hydra.classes[:, [RL, RR]].sum(axis=1)).all()
    assert (done.reads[GUEST] == hydra.reads[GUEST]).all()
    assert (done.events == hydra.events).all() and (done.pages == hydra.pages).all()


@pytest.mark.parametrize("kind", [HOST_DATA, TABLE_DATA])
def test_an_entry_that_the_hypervisor_rewrites_is_written_on_the_owner_and_on_who_copied_of_its_table(kind):
    process = touching_all(3, pages=3)
    plan = plan_for(NAME)
    scenario = scenario_of(process)
    reads = reads_of(process)[0][1]
    host = int(reads.host_leaf[0]) if kind == HOST_DATA else int(reads.leaf[0])
    row = [
        len(reads.page) - 3,
        0,
        kind,
        0,
        1 if kind == TABLE_DATA else int(reads.slot[0]),
        -1,
        0,
        host,
        2,
        1,
        11,
    ]
    steps = MmSteps(
        *(np.array([value], old.dtype) for value, old in zip(row, scenario.history.steps, strict=True))
    )
    scenario = scenario.keeping(history=replace(scenario.history, steps=steps))
    done = start(plan, scenario)
    replay_walks([done], scenario, scenario.reads())
    found = {key: n for key, n in events(done.counters, host=True).items() if key[0].startswith("pte_")}
    written = {key: n for key, n in found.items() if key[0] != "pte_copies"}
    assert written == {("pte_writes", 1, 0): 1, ("pte_fanout", 1, 1): 1}, "node 2 walks only later"


def test_what_it_lacks_is_named():
    process = touching_all(2, pages=1)
    with pytest.raises(UsageError, match="hydra-2d: a native capture has no host tables"):
        run(case(build_snapshot([(HEAP, 1)]), build_trace([(0, [HEAP])])), NAME)
    with pytest.raises(UsageError, match="hydra-2d: needs the order of accesses, so it needs a trace"):
        replay_snapshot(process.snapshot, None, [(NAME, {})], Setup.of(machine=small_machine(2), costs=COSTS))
    with pytest.raises(UsageError, match=r"hydra-2d: host_prefetch = 10: .*allowed: 0\.\.9"):
        plan_for(NAME, {"host_prefetch": "10"})
    with pytest.raises(UsageError, match="mitosis and hydra-2d both act on the program's page table"):
        plan_for(f"mitosis+{NAME}")


# Hydra when threads move between nodes: copies follow by themselves (Gao et al., sections 3.1 and 5.4).

PAGES = [HEAP + k * PAGE for k in range(40)]


def one_thread(nodes_of_chunks, chunks=None, happened=(), nodes_of_events=()):
    """A thread that runs each chunk (by default all pages) on the node given; node n has CPU n."""
    snapshot = build_snapshot([(va, k) for k, va in enumerate(PAGES)], vmas=[(HEAP, HEAP + REGION, "h")])
    touched = chunks or [PAGES] * len(nodes_of_chunks)
    process = case(snapshot, build_trace([(0, vas) for vas in touched], list(happened)))
    cpus = [np.array(nodes, np.int32) for nodes in (nodes_of_chunks, nodes_of_events)]
    return process._replace(placement=Placement(cpus[0], np.array([0, 1], np.int16), cpus[1], "by chunk"))


@pytest.mark.parametrize(("prefetch", "remote"), [(0, 40), (1, 20), (3, 5), (9, 1)])
def test_a_thread_that_moved_reads_each_entry_remotely_once_and_with_prefetching_each_block(prefetch, remote):
    """Figure 7: Linux stays remote, Mitosis is local at once, Hydra after its first touches."""
    process = one_thread([0, 1, 1])
    hydra = run(process, "hydra", {"prefetch": prefetch, "prefetch_on": "every"}).counters
    assert hydra.classes.tolist() == [[40, 0, 0, 0], [80, 0, 0, 0]], "walks end in their own tables"
    leaf = hydra.reads[8, 1].sum(axis=1)
    assert leaf.tolist() == [remote, 80 - remote]
    assert hydra.events[:, REPLICA_FAULT, 1, 0].sum() == remote
    assert hydra.events[:, PTE_COPY, 1, 0].sum() == 40
    assert run(process, "linux").counters.classes[1].tolist() == [0, 0, 80, 0]
    assert run(process, "mitosis").counters.classes[1].tolist() == [80, 0, 0, 0]


def test_both_nodes_copies_are_written_after_the_move_and_only_the_cpu_it_is_on_is_left_to_interrupt():
    flips = [(k, 0, Event.MPROTECT, (HEAP, PAGE, k % 2), 0) for k in (1, 2)]
    done = run(one_thread([0, 1], happened=flips, nodes_of_events=[0, 1]), "hydra").counters
    assert done.events[:, PTE_FANOUT].sum() == 2, "the second flip clears and sets on node 0 and on node 1"
    assert not any(key[0].startswith("ipis") for key in events(done))
