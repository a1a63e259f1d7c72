"""The degree chooser: its bounds and sums, and what it says."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptanalyze
from naive import replay as naive
from naive.policies import Watched, least_faults
from ptanalyze.analysis.degrees import (
    DEGREES,
    NODE,
    ONE,
    SOCKET,
    Vmas,
    as_record,
    choose,
    chosen,
    degree_runs,
    grouped_runs,
    leads,
    rows,
    sentence,
)
from ptanalyze.analysis.degrees import settings as settings_of
from ptanalyze.analysis.replay import replay_walks
from ptanalyze.analysis.setup import Setup, baseline_of
from ptanalyze.analysis.whatif import replay_scenario
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.kernels.replay import PTE_COPY, REPLICA_FAULT
from ptanalyze.policies import plan_for
from ptanalyze.policies.hydra import HYDRA_OFFLINE as OFFLINE
from ptanalyze.show.advise import setting_lines
from replay_cases import HEAP, case, cases, events, reads_of, run, scenario_of
from strategies import PAGE, REGION, build_snapshot, build_trace, small_machine

# The degree chooser: bounds against twins and closed forms, sums against the replay.

EXAMPLES = 15 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 40
POLICIES = ("linux", "first-touch", "hydra")
CHANGES = (Event.MUNMAP, Event.MPROTECT, Event.MREMAP)
COSTS = load_costs(None, "server-2020")
WHEN = st.sampled_from(["first", "every"])


def setup_for(machine, **more):
    return Setup.of(machine=machine, costs=COSTS, **more)


@st.composite
def crowded(draw):
    """Three nodes walk a few pages of two table pages over and over, while some are unmapped, moved, ..."""
    places = [HEAP + region + slot * PAGE for region in (0, REGION) for slot in (0, 1, 2, 5, 64, 511)]
    pages = st.lists(st.sampled_from(places), min_size=1, max_size=5)
    chunks = draw(st.lists(st.tuples(st.integers(0, 2), pages), min_size=3, max_size=12))
    node, where = st.integers(0, 2), st.sampled_from(places)
    calls = [(0, draw(node), Event.MMAP, (0, 2 * REGION, 3, 0x22), HEAP)]
    for first, length in ((2, 3), (64, 448)):  # each table page may have several owners
        calls.append((0, draw(node), Event.MMAP, (0, length * PAGE, 1, 0x32), HEAP + first * PAGE))
    for _ in range(draw(st.integers(0, 4))):
        at, who, begin = draw(st.integers(1, len(chunks))), draw(node), draw(where)
        kind, length = draw(st.sampled_from(CHANGES)), draw(st.sampled_from([PAGE, 3 * PAGE]))
        if kind == Event.MREMAP:
            target = draw(where)
            target += 8 * PAGE if abs(target - begin) < length else 0
            calls.append((at, who, kind, (begin, length, length, 1), target))
            continue
        calls.append((at, who, kind, (begin, length, 1), 0))
        if kind == Event.MUNMAP:
            calls.append((at, who, Event.MMAP, (0, length, 3, 0x32), begin))
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(places)])
    calls.sort(key=lambda call: call[0])
    return case(snapshot, build_trace(chunks, calls), 3)


def watched(case, **params):
    """The twin after a whole run, and what it counted."""
    kept = []

    def made(memory, space, machine):
        kept.append(Watched(memory, space, machine.nodes, **params))
        return kept[0]

    whole = reads_of(case)[0][1]
    where = case.snapshot, case.trace, case.space, case.placement, whole, case.machine
    return naive.replay(made, {}, *where)[2], kept[0]


ANY = st.one_of(crowded(), crowded(), cases(True), cases(False))


@pytest.mark.twin
@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(process=ANY)
def test_the_bound_has_the_fewest_faults_that_hit_every_need_and_is_degree_0_besides(process):
    if not reads_of(process):
        return
    lazy, twin = watched(process, prefetch=0)
    found = events(run(process, OFFLINE).counters)
    faults = sum(count for (kind, _, _), count in found.items() if kind == "replica_faults")
    own = sum(  # the owner lacks an entry of its own: no prefetching helps
        count for (kind, a, b), count in lazy.items() if kind == "replica_faults" and a == b
    )
    least = sum(least_faults(needs, twin.comes[at]) for at, needs in twin.needs.items())
    assert faults == least + own
    assert {k: v for k, v in found.items() if k[0] != "replica_faults"} == {
        k: v for k, v in lazy.items() if k[0] != "replica_faults"
    }


@pytest.mark.twin
@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(process=ANY, degree=st.integers(0, 9), on=WHEN)
def test_what_degree_0_copies_is_what_every_degree_uses(process, degree, on):
    if not reads_of(process):
        return
    _, twin = watched(process, prefetch=degree, prefetch_on=on)
    none, some = (
        run(process, "hydra", {"prefetch": d, "prefetch_on": on}).counters.events[:, PTE_COPY].sum()
        for d in (0, degree)
    )
    assert (some, none) == (twin.copied, twin.used)


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    process=ANY, on=WHEN, repeat=st.sampled_from([0.0, 1.0, 50.0]), exposed=st.sampled_from([0.0, 0.5, 1.0])
)
def test_no_degree_of_a_tier_is_below_its_bound_for_any_vma(process, on, repeat, exposed):
    if not len(process.stream):
        return
    known = degree_runs(scenario_of(process), setup_for(process.machine), on, {})
    for bound in known.bounds:
        least = bound.cycles(exposed, repeat)
        for point in known.points:
            if point.tier == bound.tier:
                assert (least <= point.cycles(exposed, repeat) * (1 + 1e-12) + 1e-6).all()
                assert (bound.propagated <= point.propagated).all()
                assert bound.faults.sum() <= point.faults.sum()
    found = choose(known, repeat)
    assert (found.bound <= found.cycles.min(axis=0) * (1 + 1e-12) + 1e-6).all()
    assert (found.of_each - found.cycles.min(axis=0) <= 0.001 * found.cycles[0]).all()
    assert (found.of_each <= found.cycles[0]).all()


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    process=ANY,
    policy=st.sampled_from(["linux", "first-touch", "hydra"]),
    batch=st.sampled_from([3, 1 << 20]),
)
def test_counts_of_vmas_are_those_of_the_replay_cut_into_parts(process, policy, batch):
    plain = run(process, policy).counters
    scenario = scenario_of(process)
    vmas = Vmas(scenario)
    (cut,) = grouped_runs([plan_for(policy)], scenario, vmas, scenario.placement.cpu_node)
    replay_walks([cut], scenario, scenario.reads(batch))
    assert (cut.counters.events.sum(axis=0) == plain.events).all()
    assert (cut.counters.reads.sum(axis=(0, 1)) == plain.reads[::8].sum(axis=0)).all()
    assert cut.counters.classes.sum() == len(process.stream)
    for name, walks in zip(vmas.names, cut.counters.classes.sum(axis=(1, 2)).tolist(), strict=True):
        assert (walks > 0) == (name != "process")


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(process=ANY, on=WHEN)
def test_vmas_add_up_to_what_the_replay_counts(process, on):
    if not len(process.stream):
        return
    scenario = scenario_of(process)
    known = degree_runs(scenario, setup_for(process.machine), on, {})
    assert known.walks.sum() == len(process.stream)
    for degree in (0, 4, 9):
        point = next(p for p in known.points if (p.tier, p.degree) == (NODE, degree))
        assert point.tables.shape == (len(known.names),)
        plain = run(process, "hydra", {"prefetch": degree, "prefetch_on": on}).counters
        copied = plain.events[:, PTE_COPY].sum()
        again = point.propagated.sum() - copied
        assert again >= 0, "the further run copies what was unmapped between"
        if not len(process.trace.events):
            assert again == 0
            assert point.faults.sum() == plain.events[:, REPLICA_FAULT].sum()


@pytest.mark.twin
@settings(max_examples=EXAMPLES, deadline=None)
@given(process=ANY, degree=st.sampled_from([0, 9]), cold=st.booleans())
def test_degrees_and_whatif_have_one_price(process, degree, cold):
    """Of the run as traced, and of its steady part once more: walks, and calls with all that they cost."""
    if not len(process.stream):
        return
    setup = setup_for(process.machine, cold=cold)
    known = degree_runs(scenario_of(process), setup, "first", {})
    plans = [
        plan_for(baseline_of(scenario_of(process))),
        plan_for("hydra", {"prefetch": degree, "prefetch_on": "first"}),
    ]
    alone = replay_scenario(scenario_of(process), plans, setup)
    for result, tier, steps in zip(alone, (ONE, NODE), (None, degree), strict=True):
        point = next(p for p in known.points if (p.tier, p.degree) == (tier, steps))
        counted = point.traced if cold else point.steady
        assert counted.walks.sum() == pytest.approx(result.price.guest_walk_cycles)
        if not process.space.host_tables:
            assert counted.management.sum() == pytest.approx(result.price.management_cycles)


MACHINE = small_machine(2)


def two_nodes(pages, repeats=1):
    """Thread 0 maps and touches a leaf table on node 0; thread 1, on node 1, then walks `pages` of it."""
    every = [HEAP + k * PAGE for k in range(512)]
    vmas = [(HEAP, HEAP + 512 * PAGE, "heap")]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(every)], vmas=vmas)
    chunks = [(0, every)] + [(1, [HEAP + k * PAGE for k in pages])] * repeats
    trace = build_trace(chunks, [(0, 0, Event.MMAP, (0, 512 * PAGE, 3, 0x22), HEAP)])
    return case(snapshot, trace, 2, machine=MACHINE)


def degrees_of(process, on="first", **more):
    return degree_runs(scenario_of(process), setup_for(MACHINE, **more), on, {})


def counts(known, tier, degree):
    point = next(p for p in known.points if (p.tier, p.degree) == (tier, degree))
    return int(point.faults.sum()), int(point.propagated.sum())


@pytest.fixture(scope="module")
def in_order():
    """{prefetch_on: what each degree does to a table whose every page is walked, in order}"""
    return {on: degrees_of(two_nodes(range(512)), on) for on in ("every", "first")}


@pytest.mark.twin
@pytest.mark.parametrize("degree", DEGREES)
def test_a_table_walked_in_order_takes_a_fault_per_block_and_the_bound_a_single_one(in_order, degree):
    every, first = in_order["every"], in_order["first"]
    assert counts(every, NODE, degree) == (512 >> degree, 512)
    assert (int(every.bounds[0].faults.sum()), int(every.bounds[0].propagated.sum())) == (1, 512)
    assert counts(first, NODE, degree) == (1 + 512 - (1 << degree), 512)


@pytest.mark.twin
def test_what_moved_into_a_table_page_after_a_fault_there_takes_another_one():
    """Node 2 asks node 0 for an entry; then one of node 1's moves in, and node 2 asks for it."""
    there, new = HEAP + REGION, HEAP + 5 * PAGE
    snapshot = build_snapshot([(HEAP, 1), (there, 2), (new, 3)])
    maps = [(0, k, Event.MMAP, (0, PAGE, 3, 0x22), at) for k, at in ((0, HEAP), (1, there))]
    moved = [(3, 1, Event.MREMAP, (there, PAGE, PAGE, 1), new)]
    chunks = [(0, [HEAP]), (1, [there]), (2, [HEAP]), (2, [new])]
    process = case(snapshot, build_trace(chunks, maps + moved), 3)
    for policy, params in ((OFFLINE, {}), ("hydra", {"prefetch": 9, "prefetch_on": "every"})):
        assert events(run(process, policy, params).counters)["replica_faults", 2, 1] == 1
        assert events(run(process, policy, params).counters)["replica_faults", 2, 0] == 1


@pytest.mark.twin
def test_of_scattered_pages_degree_9_uses_as_many_entries_as_there_are_pages():
    pages = [0, 7, 100, 300, 511]
    found = choose(degrees_of(two_nodes(pages)))
    most = found.point(NODE, 9)
    runs = 2  # each maps the table
    assert (int(most.faults.sum()), int(most.propagated.sum())) == (runs, runs * 512)
    assert int(found.never_used(most).sum()) == runs * 507
    assert int(found.known.bounds[0].propagated.sum()) == runs * 5


@pytest.mark.twin
def test_the_cost_of_the_first_walks_is_that_of_their_faults_copies_and_table():
    """One remote read, then local ones: what degree 9 costs beyond the bound are the unused entries."""
    pages = [0, 7, 100, 300, 511]
    known = degrees_of(two_nodes(pages))
    found, costs = choose(known), known.costs
    at = known.points.index(found.point(NODE, 9))
    beyond = found.cycles[at].sum() - known.bounds[0].cycles(costs.exposed.middle, 0).sum()
    assert beyond == pytest.approx(507 * costs.pte_copy_ns * MACHINE.ghz)
    lazy = found.cycles[known.points.index(found.point(NODE, 0))].sum()
    remote = known.points[known.points.index(found.point(NODE, 0))].traced.walks.sum()
    spared = remote - known.bounds[0].traced.walks.sum()
    upkeep = 4 * costs.replica_fault_ns * MACHINE.ghz
    least = known.bounds[0].cycles(costs.exposed.middle, 0).sum()
    assert lazy - least == pytest.approx(upkeep + costs.exposed.middle * spared)


@pytest.mark.twin
def test_copies_that_do_not_pay_in_the_trace_pay_after_as_many_runs_as_they_say():
    process = two_nodes(range(0, 512, 2), repeats=3)
    known = degrees_of(process)
    found = choose(known)
    after = float(found.break_even[-1])
    assert found.overall.tier == ONE and 0 < after < np.inf
    assert choose(known, np.floor(after)).overall.tier == ONE
    assert choose(known, np.ceil(after) + 1).overall.tier == NODE
    assert f"break even after {after:,.3g} further runs" in sentence(found)


@pytest.mark.twin
def test_two_vmas_of_a_table_page_get_degrees_of_their_own():
    """One is walked whole, of the other a single page is: prefetching pays in the first alone."""
    half = HEAP + 256 * PAGE
    every = [HEAP + k * PAGE for k in range(512)]
    vmas = [(HEAP, half, "dense"), (half, HEAP + 512 * PAGE, "sparse")]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(every)], vmas=vmas)
    maps = [(0, 0, Event.MMAP, (0, 256 * PAGE, prot, 0x22), at) for at, prot in ((HEAP, 3), (half, 1))]
    chunks = [(0, every)] + [(1, [*every[:256], every[300]])] * 4
    known = degrees_of(case(snapshot, build_trace(chunks, maps), 2, machine=MACHINE), "every")
    found = choose(known, 10_000)
    names = [name.split()[-1] for name in known.names]
    assert names[:2] == ["dense", "sparse"]
    assert found.best(0).degree >= 8 and found.best(1).degree == 0
    assert int(found.never_used(found.point(NODE, 9))[1]) == 255


@pytest.mark.twin
def test_sockets_are_nodes_that_are_near_and_the_busiest_has_the_copy():
    epyc = load_machine("epyc-7543-16-nodes")
    trace = build_trace([(k % 4, [HEAP]) for k in (0, 1, 1, 2, 3, 3, 3)])
    process = case(build_snapshot([(HEAP, 1)]), trace, 16, cpus=16, machine=epyc)
    assert leads(scenario_of(process)).tolist() == [3] * 8 + [8] * 8
    for name in ("hydra-haswell", "vmitosis-cascade-lake"):
        machine = load_machine(name)
        alone = case(build_snapshot([(HEAP, 1)]), trace, machine.nodes, cpus=4, machine=machine)
        assert leads(scenario_of(alone)).tolist() == list(range(machine.nodes))


@pytest.mark.twin
def test_nodes_of_a_socket_that_share_a_copy_copy_nothing():
    """Four nodes of one socket walk what one of them mapped: per node three copies, per socket none."""
    epyc = load_machine("epyc-7543-16-nodes")
    every = [HEAP + k * PAGE for k in range(16)]
    trace = build_trace([(k, every) for k in range(4)], [(0, 0, Event.MMAP, (0, 16 * PAGE, 3, 0x22), HEAP)])
    snapshot = build_snapshot(
        [(va, 1 + k) for k, va in enumerate(every)], vmas=[(HEAP, HEAP + 16 * PAGE, "h")]
    )
    process = case(snapshot, trace, 16, cpus=16, machine=epyc)
    known = degree_runs(scenario_of(process), setup_for(epyc), "first", {})
    assert counts(known, SOCKET, 9) == (0, 0) and counts(known, NODE, 9) == (3, 48)
    assert counts(known, NODE, 0) == (48, 48)
    found = choose(known, 1e6)
    assert settings_of(found)["wasp"] in (None, [0] * 8 + [8] * 8, list(range(16)))


# What the degree chooser says of a capture: its table, its record, its settings, and what it refuses.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    place = tmp_path_factory.mktemp("degrees") / "app"
    return ptanalyze.synth(
        place, "16M", threads=4, accesses=6000, init="single", init_trace=False, scale=1000
    )


def test_the_table_has_a_row_per_vma_tier_and_degree_and_one_choice_per_vma(made):
    table = ptanalyze.degrees(made, repeat=5)
    vmas = table["vma"].unique()
    assert len(table) == 11 * len(vmas) and vmas[-1] == "process"
    assert (table.groupby("vma")["chosen"].sum() == 1).all()
    assert table.loc[table["tier"] == ONE, "degree"].isna().all()
    assert (table["bound_cycles"] <= table["cycles"] + 1e-6).all()
    assert table.attrs["units"]["cycles"] == "cycles" and table.attrs["sentence"]
    assert table.attrs["settings"]["hydra"]["repl_order"] in range(10)


def test_json_says_the_same_with_null_for_never(made):
    found = chosen(made, Setup.of(), "first", 0)
    record = as_record(found)
    assert [row["cycles"] for row in record["vmas"]] == [row["cycles"] for row in rows(found)]
    never = [row["pays_back_runs"] for row in record["vmas"] if row["vma"] == "process"]
    assert set(never) == {None}


def test_settings_are_those_of_the_cheapest_point(made):
    found = chosen(made, Setup.of(), "first", 1e6)
    known = settings_of(found)
    assert found.overall.tier == NODE and known["wasp"] == [0, 1, 2, 3]
    order = found.overall.degree
    assert known["hydra"]["commands"][0] == f"echo {order} > /proc/hydra/repl_order"
    assert known["numactl"] == "numactl --cpunodebind=0,1,2,3 --pgtablerepl=0,1,2,3 -- COMMAND"
    alone = chosen(made, Setup.of(threads_on="2,2,2,2"))
    assert settings_of(alone)["numactl"] == "numactl --cpunodebind=2 --membind=2 -- COMMAND"
    assert "No entry is ever copied" in sentence(chosen(made, Setup.of(threads_on="0,0,0,0")))


def test_where_one_copy_is_cheapest_the_settings_of_hydras_kernel_say_so(made):
    alone, copies = chosen(made, Setup.of(threads_on="0,0,0,0")), chosen(made, Setup.of(), "first", 1e6)
    said = "mainline without replicas costs less"
    assert said in setting_lines(alone)[0] and said not in setting_lines(copies)[0]


def test_a_trace_so_short_that_the_caches_hold_its_lines_says_so(tmp_path):
    app = ptanalyze.synth(
        tmp_path / "app", "256M", threads=4, accesses=6000, init="single", init_trace=False, scale=20
    )
    found = chosen(app, Setup.of())
    assert any("the caches hold what a short region reads" in one.text for one in found.known.findings)


def test_of_threads_that_move_only_the_trace_is_counted(made):
    found = chosen(made, Setup.of(move_threads="0:1@50%"))
    assert all(not point.steady.walks.any() for point in found.known.points)
    assert "no estimate for a longer run" in sentence(found)


def test_a_filter_of_shootdowns_is_chosen_where_there_are_any(tmp_path):
    app = ptanalyze.synth(
        tmp_path / "app", "8M", threads=4, accesses=4000, sharing="private", mapped_by="threads",
        munmap_every=500, init_trace=False,
    )  # fmt: skip
    found = chosen(app, Setup.of())
    off, single = (found.known.filters[name].traced.management.sum() for name in ("off", "single"))
    assert single < off and settings_of(found)["hydra"]["tlbflush_opt"] in (1, 2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prefetch_on": "never"}, "prefetch_on = never: first or every"),
        ({"repeat": -1}, "repeat = -1: 0 to 1e"),
        ({"repeat": float("nan")}, "repeat = nan"),
        ({"repeat": float("inf")}, "repeat = inf"),
        ({"repeat": 2, "move_threads": "0:1@50%"}, "repeat = 2: threads that move"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(made, asked, said):
    with pytest.raises(UsageError) as caught:
        ptanalyze.degrees(made, **asked)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_capture_without_a_trace_and_a_vm_that_hides_its_nodes_are_refused(tmp_path):
    still = ptanalyze.synth(tmp_path / "still", "8M", trace=False)
    with pytest.raises(UsageError, match="holds no trace"):
        ptanalyze.degrees(still)
    flat = ptanalyze.synth(tmp_path / "flat", "8M", guest="oblivious", accesses=1000)
    with pytest.raises(UsageError, match="NUMA-oblivious"):
        ptanalyze.degrees(flat)
