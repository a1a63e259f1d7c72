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
from ptanalyze.kernels import LL, LR, PTE_COPY, PTE_FANOUT, REPLICA_FAULT, RL, RR
from ptanalyze.kernels.replay import HOST_DATA, TABLE_DATA, MmSteps
from ptanalyze.policies import plan_for
from replay_cases import HEAP, case, cases, events, reads_of, run, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

pytestmark = pytest.mark.twin


# hydra-2d: its host part against a naive twin, and what it must add up to between linux and vMitosis.

EXAMPLES = 15 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 50
NAME = "hydra-2d"
GUEST = [bit for bit in range(48) if bit % 8 == 0]
HOST = [bit for bit in range(48) if bit % 8]
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


def without(counters, *names):
    return {name: array for name, array in counters._asdict().items() if name not in names}


def same(one, other):
    return all((one[name] == other[name]).all() for name in one)


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


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), degrees)
def test_it_takes_pages_between_those_of_linux_and_of_replication(case, params):
    linux, lazy, eager = (run(case, n, p) for n, p in [
        ("linux", {}), (NAME, params), ("vmitosis-replicate", {}),
    ])  # fmt: skip
    for which in ("pages", "host_pages"):
        one, some, every = (getattr(done.counters, which)[1] for done in (linux, lazy, eager))
        assert one <= some <= every


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_layers_restrict_it_to_one_dimension(case):
    linux, hydra = run(case, "linux").counters, run(case, "hydra").counters
    both, guest = run(case, NAME).counters, run(case, NAME, {"layers": "gpt"}).counters
    host = run(case, NAME, {"layers": "ept"}).counters
    assert same(without(guest), without(hydra))
    assert (host.reads[GUEST] == linux.reads[GUEST]).all() and (host.events == linux.events).all()
    assert (host.reads[HOST] == both.reads[HOST]).all() and (host.host_events == both.host_events).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False))
def test_mitosis_takes_the_guest_where_it_only_acts_on_the_host(case):
    mixed = run(case, f"mitosis+{NAME}", {"layers": "ept"}).counters
    mitosis, host = run(case, "mitosis").counters, run(case, NAME, {"layers": "ept"}).counters
    assert (mixed.reads[GUEST] == mitosis.reads[GUEST]).all() and (mixed.events == mitosis.events).all()
    assert (mixed.reads[HOST] == host.reads[HOST]).all()
    assert (mixed.host_pages == host.host_pages).all() and (mixed.pages == mitosis.pages).all()


@settings(max_examples=EXAMPLES, deadline=None)
@given(cases(native=False), st.integers(1, 4))
def test_it_depends_neither_on_batches_nor_on_threads(case, batch):
    one, other = run(case, NAME).counters, run(case, NAME, batch=batch, threads=2).counters
    assert same(without(one), without(other))


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_nodes_first_touch_is_one_remote_read_in_each_dimension_and_the_next_is_local(nodes):
    pages, lazy = 5, {"prefetch": 0, "host_prefetch": 0}
    done = run(touching_all(nodes, pages, passes=3), NAME, lazy).counters
    assert (done.classes == [3 * pages, 0, 0, 0]).all(), "walks that copied end in their own tables"
    for bit in (8, 1):  # the guest's leaf entry, and the host's of the data
        assert (done.reads[bit, 1:, 0].sum(axis=1) == pages).all()
        assert done.reads[bit].sum() == 3 * pages * nodes
    tables = 4  # of the guest's, each of which has a nested entry of its own
    assert done.host_events[:, REPLICA_FAULT].sum(axis=0)[1:, 0].tolist() == [pages + tables] * (nodes - 1)
    assert done.host_events[:, PTE_COPY].sum() == done.host_events[:, REPLICA_FAULT].sum()


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("host_nodes", [(0,), (1, 0)])
def test_once_everything_was_touched_it_is_as_local_as_replication(nodes, host_nodes):
    once, twice = (
        run(touching_all(nodes, passes=n, host_nodes=host_nodes), NAME, {"host_prefetch": 0}).counters
        for n in (1, 2)
    )
    again = twice.classes - once.classes
    assert again[:, LL].sum() == again.sum() == nodes * 40
    second = twice.reads - once.reads
    assert second.sum() == np.einsum("bnnd->", second)
    eager = run(touching_all(nodes, host_nodes=host_nodes), "vmitosis-replicate").counters
    assert (twice.pages == eager.pages).all() and (twice.host_pages == eager.host_pages).all()


def test_with_full_prefetch_a_node_takes_one_violation_a_table_page_and_copies_all_it_maps():
    process = touching_all(2, pages=40)
    done = run(process, NAME, {"host_prefetch": 9}).counters
    leaves = np.unique(reads_of(process)[0][1].host_leaf)
    leaves = np.union1d(leaves, process.space.tables.host_leaf[: process.space.guest_tables])
    assert done.host_events[:, REPLICA_FAULT, 1, 0].sum() == len(leaves)
    assert done.host_events[:, PTE_COPY, 1, 0].sum() == 40 + 4


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
    vars(scenario)["history"] = replace(scenario.history, steps=steps)
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


def test_a_thread_that_came_back_finds_its_tables_as_it_left_them():
    there = run(one_thread([0, 1]), "hydra", {"prefetch": 0}).counters
    back = run(one_thread([0, 1, 0, 1]), "hydra", {"prefetch": 0}).counters
    assert (back.classes - there.classes).tolist() == [[40, 0, 0, 0], [40, 0, 0, 0]]
    assert (back.events == there.events).all() and (back.pages == there.pages).all()


def test_what_a_thread_maps_belongs_to_the_node_it_runs_on_then():
    mapped = [(1, 0, Event.MMAP, (0, REGION, 3, 0x32), HEAP)]
    process = one_thread([1, 1], [[], PAGES], mapped, [1])
    done = events(run(process, "hydra").counters)
    assert done["faults", 1, 1] == 40 and ("replica_faults", 1, 0) not in done
    earlier = one_thread([0, 1], [[], PAGES], [(1, 0, Event.MMAP, (0, REGION, 3, 0x32), HEAP)], [0])
    assert events(run(earlier, "hydra").counters)["faults", 1, 0] == 40


def test_both_nodes_copies_are_written_after_the_move_and_only_the_cpu_it_is_on_is_left_to_interrupt():
    flips = [(k, 0, Event.MPROTECT, (HEAP, PAGE, k % 2), 0) for k in (1, 2)]
    done = run(one_thread([0, 1], happened=flips, nodes_of_events=[0, 1]), "hydra").counters
    assert done.events[:, PTE_FANOUT].sum() == 2, "the second flip clears and sets on node 0 and on node 1"
    assert not any(key[0].startswith("ipis") for key in events(done))
