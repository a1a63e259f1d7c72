"""Hydra: domains, threads that move, and hydra-2d."""

import os
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import policies as naive
from ptanalyze.analysis.replay import by_socket, replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event, Placement
from ptanalyze.kernels import IPI, IPI_SAVED, LL, LR, PTE_COPY, PTE_FANOUT, REPLICA_FAULT, RL, RR
from ptanalyze.kernels.replay import HOST_DATA, TABLE_DATA, MmSteps
from ptanalyze.policies import plan_for
from ptanalyze.policies.five_level import domain_of, split
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


# Domains of a socket (Hydra, section 6): nodes as to sharing and shootdowns, one place as to locality.

DOMAIN_EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40


def folded(case, name, k, params=None):
    return by_socket(run(case, name, {"per_socket": k, **(params or {})}).counters, k)


def total(counters, kind):
    return int(counters.events[:, kind].sum())


@settings(max_examples=DOMAIN_EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.sampled_from(["linux", "mitosis", "hydra"]))
def test_one_domain_a_socket_changes_nothing(case, name):
    whole, found = run(case, name).counters, folded(case, f"{name}+domains", 1)
    assert all((one == other).all() for one, other in zip(whole, found, strict=True))


@settings(max_examples=DOMAIN_EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.integers(2, 8))
def test_a_single_copy_of_each_table_is_as_far_away_in_domains(case, k):
    linux = run(case, "linux").counters
    for name in ("domains", "linux+domains"):
        found = folded(case, name, k)
        assert all((one == other).all() for one, other in zip(linux, found, strict=True))


@settings(max_examples=2 * DOMAIN_EXAMPLES, deadline=None)
@given(st.booleans().flatmap(cases), st.integers(2, 4), st.sampled_from(["off", "single", "all"]))
def test_hydra_in_domains_interrupts_fewer_cpus_and_takes_more_pages(case, k, tlbflush):
    params = {"tlbflush": tlbflush}
    hydra, found = run(case, "hydra", params).counters, folded(case, "hydra+domains", k, params)
    assert total(found, IPI) <= total(hydra, IPI)
    assert total(found, IPI) + total(found, IPI_SAVED) == total(hydra, IPI) + total(hydra, IPI_SAVED)
    assert hydra.pages[1] <= found.pages[1] <= k * run(case, "mitosis").counters.pages[1]


@settings(max_examples=DOMAIN_EXAMPLES, deadline=None)
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
    scenario = scenario_of(case(snapshot, build_trace([(0, [HEAP]), (1, [HEAP])])))
    shaped = plan_for("domains").reshape(scenario)
    assert shaped.stream is scenario.stream and shaped.space is scenario.space
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
    with pytest.raises(UsageError, match=r"domains: .*so it needs a trace"):
        replay_snapshot(
            snapshot, None, [("hydra+domains", {})], Setup.of(machine=small_machine(2), costs=COSTS)
        )


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
