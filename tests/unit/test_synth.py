"""Synthetic captures: their tables, patterns, shapes, and what they must add up to."""

import tempfile
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import pages_of
from naive import synth as naive
from ptanalyze.analysis.classify import walk_locality
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.check import FAILED, PARTIAL, check_capture
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import enclosing_tables, read_vm
from ptanalyze.world.address_space import address_space
from ptanalyze.world.reservations import measure
from ptanalyze.world.tlb_filter import FLUSH_CEILING
from ptanalyze_synth import kernels as kernels
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.kernels import FIRST_TOUCH, INTERLEAVE
from ptanalyze_synth.parameters import Parameters, whole_pages
from ptanalyze_synth.patterns import hashed, page_source
from ptanalyze_synth.plan import lay_out, left_to_chance
from ptanalyze_synth.plan import plan as plan_of
from ptanalyze_synth.process import ALL, START, frames_of, new_group
from replay_cases import invalidations

pytestmark = pytest.mark.twin


# A synthetic capture's page tables are what its own trace leads to, page by page, in any combination.

MIB = 1 << 20
PAGE = 4096
SHARES = st.sampled_from([0.0, 0.3, 1.0])


@st.composite
def asked(draw):
    """Parameters of small captures with everything that a trace can tell."""
    nodes, guest = draw(st.integers(1, 3)), draw(st.sampled_from(["native", "visible", "oblivious"]))
    threads = draw(st.integers(1, 3))
    bind = st.integers(0, nodes - 1).map(lambda node: f"bind:{node}")
    policy = st.sampled_from(["first-touch", "interleave"]) | bind
    chosen = {
        "size": draw(st.integers(threads * 512, threads * 512 + 600)) * PAGE,
        "nodes": nodes,
        "threads": threads,
        "levels": draw(st.sampled_from([4, 5])),
        "guest": guest,
        "placement": "first-touch" if guest == "oblivious" else draw(policy),
        "fragmentation": draw(SHARES),
        "thp": draw(SHARES),
        "mapped_by": draw(st.sampled_from(["main", "threads"])),
        "init": draw(st.sampled_from(["parallel", "single"])),
        "init_trace": True,
        "accesses": draw(st.integers(1, 400)),
        "sharing": draw(st.sampled_from(["shared", "private", "0.5"])),
        "seed": draw(st.integers(0, 9)),
    }
    if guest != "native":
        chosen["host_placement"] = draw(policy)
        chosen["host_thp"] = draw(SHARES)
    chosen["munmap_every"] = draw(st.none() | st.integers(20, 100)) if (chosen["thp"] == 0) else None
    chosen["mprotect_every"] = draw(st.none() | st.integers(20, 100))
    if nodes > 1 and threads > 1 and draw(st.booleans()):
        chosen["move"] = f"{draw(st.sampled_from([0, 0.25, 1]))}:1:0"
        if not chosen.get("host_thp") or guest == "visible":
            chosen["move_data"] = f"{draw(st.sampled_from([0, 0.5]))}:{draw(st.sampled_from([1e4, 1e6]))}"
    return Parameters(**chosen)


def make(parameters, directory, **options):
    """Capture of Parameters in a directory of its own."""
    out = Path(directory) / "synthetic"
    synthesize(parameters, out, **options)
    return open_capture(out)


def steps_of(trace, cpu_node):
    """What a trace says was done, in order: (touch, page, node), (unmap, page, 0), (move, page, target)."""
    events = iter([*trace.events, None])
    event = next(events)
    for batch in trace.batches(1 << 12):
        pages = pages_of(trace, batch.page) - (START >> 12)
        start = trace.chunks["first"][batch.chunks.start]
        for number in range(batch.chunks.start, batch.chunks.stop):
            while event is not None and event["chunk"] <= number:
                yield from steps_of_event(event)
                event = next(events)
            chunk = trace.chunks[number]
            node = int(cpu_node[chunk["cpu"]])
            first = chunk["first"] - start
            for page in pages[first : first + chunk["touches"]].tolist():
                yield "touch", page, node
    while event is not None:
        yield from steps_of_event(event)
        event = next(events)


def steps_of_event(event):
    first, count = (int(event["a"]) - START) >> 12, int(event["b"]) >> 12
    if event["kind"] == Event.MUNMAP:
        yield from (("unmap", page, 0) for page in range(first, first + count))
    if event["kind"] == Event.MOVE_PAGES:
        yield from (("move", page, int(event["c"])) for page in range(first, first + count))


def modelled(parameters):
    """The naive Machine for Parameters: the same draws, nothing else in common."""
    plan = plan_of(parameters)
    frames = frames_of(plan)
    data, host_data, other = (int(k) for k in plan.rng(3).integers(0, 1 << 32, 3))
    span = frames.guest or frames.host
    memory = naive.Memory(frames.guest_nodes, span, frames.room.tolist(), plan.policy, data)
    guest = naive.Table(parameters.levels, memory, lambda region: bool(plan.huge[region]))
    host = None
    if parameters.guest != "native":
        nodes = parameters.nodes
        behind = naive.Memory(nodes, frames.host, [frames.host] * nodes, plan.host_policy, host_data)
        drawn = plan.rng(2).random(span // 512 * frames.guest_nodes) < (parameters.host_thp or 0)
        host = naive.Table(parameters.levels, behind, lambda region: bool(drawn[region]))
    share = int(parameters.fragmentation * ALL)
    return naive.Machine(guest, host, parameters.guest == "visible", share, other)


@settings(deadline=None, max_examples=30)
@given(asked())
def test_the_tables_on_disk_are_what_the_trace_leads_to(parameters):
    with tempfile.TemporaryDirectory() as place:
        capture = make(parameters, place)
        snapshot, trace = capture.snapshot, capture.trace
        machine = modelled(parameters)
        naive.run(machine, steps_of(trace, snapshot.topology.node_of_cpu()))
        assert naive.contents(snapshot.guest, START) == (machine.guest.tables, machine.guest.leaves)
        if machine.host:
            assert naive.contents(snapshot.host) == (machine.host.tables, machine.host.leaves)
        bad = {f.name for f in check_capture(capture) if f.verdict in (FAILED, PARTIAL)}
        assert bad <= {"trace: pages in the dump"}  # what was unmapped again is in no dump


@settings(deadline=None, max_examples=10)
@given(asked())
def test_an_init_phase_that_is_not_traced_leaves_the_same_tables(parameters):
    untraced = Parameters(**{**parameters.facts(), "init_trace": False})
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        traced, begun = make(parameters, one), make(untraced, other)
        for name in ("guest", "host"):
            left, right = (getattr(capture.snapshot, name) for capture in (traced, begun))
            if left is not None:
                assert np.array_equal(left.entries, right.entries)
                assert np.array_equal(left.node, right.node)
        kinds = begun.trace.events["kind"].tolist()
        assert kinds.count(Event.ROI_START) == 1
        assert begun.trace.accesses == parameters.accesses
        assert traced.trace.accesses == parameters.accesses + parameters.size // PAGE
        noted = begun.trace.events[begun.trace.events["kind"] == Event.FIRST_TOUCH]
        touchers = {}  # by address >> 21, in the order of first touches
        for batch in traced.trace.batches(1):
            thread = int(traced.trace.chunks["thread"][batch.chunks][0])
            for region in traced.trace.regions[batch.page >> 9].tolist():
                touchers.setdefault(region, thread)
        regions = (noted["a"] >> np.uint64(21)).tolist()
        assert [*zip(regions, noted["thread"].tolist(), strict=True)] == [*touchers.items()]
        assert (noted["chunk"] == 0).all() and kinds.index(Event.ROI_START) > len(noted)


def test_a_region_begins_after_calls_of_a_loader_that_take_translations_away(tmp_path):
    """A region of all recorded programs begins so: what repeats them, or counts them, is wrong of
    synthetic captures too."""
    asked = Parameters(size=4 << 20, nodes=1, threads=1, accesses=100, init_trace=False)
    events = make(asked, tmp_path).trace.events
    before = events["kind"][: events["kind"].tolist().index(Event.ROI_START)]
    assert {Event.MMAP, Event.MPROTECT, Event.MUNMAP} <= set(before.tolist())
    assert not len(invalidations(events))
    kept = events[events["kind"] != Event.ROI_START]
    assert (invalidations(kept)["end"] - invalidations(kept)["start"]).max() > FLUSH_CEILING * PAGE


def test_calls_change_private_memory_of_their_own_thread_alone(tmp_path):
    asked = Parameters(size=64 << 20, threads=16, accesses=20_000, sharing="private", mprotect_every=200)
    events = make(asked, tmp_path).trace.events
    calls = events[events["kind"] == Event.MPROTECT][-200:]
    assert ((calls["a"] - START) // (4 << 20) == calls["thread"]).all()


@settings(deadline=None, max_examples=5)
@given(asked())
def test_the_same_options_and_seed_give_the_same_bytes(parameters):
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        left, right = make(parameters, one), make(parameters, other)
        assert left.manifest.files == right.manifest.files
        assert {"gpt.entries", "gpt.tables", "maps", "snapshot.json", "trace.ptt"} <= set(left.manifest.files)


def test_every_parameter_and_the_seed_are_kept(tmp_path):
    parameters = Parameters(size=8 * MIB, nodes=2, guest="visible", accesses=10, seed=77)
    capture = make(parameters, tmp_path)
    assert capture.snapshot.facts["method"] == "synth"
    assert capture.snapshot.facts["synth"] == parameters.facts()
    assert capture.manifest.kind == "vm"
    assert "--seed=77" in capture.trace.facts["command"]


def test_an_oblivious_guest_sees_one_node_of_all_the_memory(tmp_path):
    capture = make(Parameters(size=8 * MIB, nodes=4, guest="oblivious", accesses=10), tmp_path)
    facts = capture.snapshot.facts["vm"]
    assert facts["numa_oblivious"] and len(facts["guest_nodes"]) == 1
    assert len(read_vm(capture.directory).slots) == 1


@pytest.mark.compiled
def test_threads_that_move_go_on_on_cpus_of_the_other_node(tmp_path):
    moves = {"move": "0.5:1:0", "move_data": "0.5:1000", "init_trace": False}
    capture = make(Parameters(size=8 * MIB, nodes=2, threads=2, accesses=20000, **moves), tmp_path)
    trace, node_of = capture.trace, capture.snapshot.topology.node_of_cpu()
    nodes = node_of[trace.chunks["cpu"][trace.chunks["thread"] == 1]]
    assert set(nodes.tolist()) == {0, 1} and (np.diff(nodes) <= 0).all()
    moves = trace.events[trace.events["kind"] == Event.MOVE_PAGES]
    moved = int(moves["b"].sum()) // PAGE
    assert (moves["c"] == 0).all() and (np.diff(moves["a"].astype(np.int64)) > 0).all()
    assert moved == 10  # 1000 pages a million accesses, 10,000 accesses
    frames = naive.contents(capture.snapshot.guest, START)[1].values()
    topology = capture.snapshot.topology.node_of_frame(np.array(list(frames)))
    assert np.count_nonzero(topology == 0) == 1024 + moved


# Graph kernels, lookups and annealing touch what an independent model of them touches.

THREADS = 3
GRAPHS = st.sampled_from(["kron16", "uni16", "kron17"])
GAP = {"pr": naive.page_rank, "cc": naive.components, "bc": naive.search, "back": naive.dependencies}
BACK = {"back": ("bc", 1)}  # a bc of a single access has its first half behind it


def planned(pattern, **options):
    size = None if pattern.partition(":")[0] in GAP else 8 * MIB
    return plan_of(Parameters(**{"size": size, "nodes": 1, "threads": 1, "pattern": pattern} | options))


def taken(source, n, most=4096):
    """(pages, written) of the first n accesses, asked for in turns of at most `most`."""
    pages, wrote = [], []
    while len(pages) < n:
        pages += source(min(most, n - len(pages))).tolist()
        wrote += source.wrote.tolist()
    return pages, wrote


def key_of(plan):
    return int(plan.rng(13).integers(0, 1 << 32))


def graph_of(plan):
    kind, _, name = plan.asked.pattern.partition(":")
    return naive.Graph(kind, int(name[-2:]), name.startswith("kron"), key_of(plan))


def part_of(graph, thread, threads):
    return range(graph.vertices * thread // threads, graph.vertices * (thread + 1) // threads)


def pages_and_writes(accesses, n):
    bytes_and_writes = list(islice(accesses, n))
    return [byte // 4096 for byte, _ in bytes_and_writes], [write for _, write in bytes_and_writes]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(GAP)), GRAPHS, st.integers(0, 99), st.integers(1, 3), st.integers(1, 5000))
def test_graph_kernels_touch_what_the_twin_touches(kernel, name, seed, threads, most):
    kind, accesses = BACK.get(kernel, (kernel, 1 << 20))
    plan = planned(f"{kind}:{name}", seed=seed, threads=threads, accesses=accesses)
    graph = graph_of(plan)
    for thread in range(threads):
        expected = pages_and_writes(GAP[kernel](graph, part_of(graph, thread, threads)), 3000)
        assert taken(page_source(plan, thread), 3000, most) == expected


def test_a_part_that_is_done_begins_again_and_components_go_on_to_the_second_neighbour():
    plan = planned("cc:uni16", threads=2, accesses=1 << 20)
    graph, n = graph_of(plan), 5 * 32768 + 500
    expected = pages_and_writes(naive.components(graph, part_of(graph, 1, 2)), n)
    assert taken(page_source(plan, 1), n) == expected


def test_betweenness_goes_forward_in_the_first_half_and_backward_in_the_second():
    plan = planned("bc:kron16", accesses=60_000)
    graph, source = graph_of(plan), page_source(plan, 0)
    forward, between, backward = (written_arrays(graph, *taken(source, n)) for n in (30_000, 4096, 25_904))
    assert forward == {"depths", "paths", "successors"}
    assert backward == {"dependencies", "scores"}
    assert between <= forward | backward


def written_arrays(graph, pages, wrote):
    names = list(graph.width)
    begins = np.array([graph.byte(name, 0) // 4096 for name in names])
    where = np.searchsorted(begins, np.array(pages)[wrote], side="right") - 1
    return {names[at] for at in where}


@pytest.mark.parametrize("pattern", ["btree", "btree:4", "btree:256", "anneal"])
@settings(deadline=None, max_examples=5)
@given(st.integers(0, 99), st.integers(0, 2))
def test_lookups_and_annealing_touch_what_the_twin_touches(pattern, seed, thread):
    plan = planned(pattern, seed=seed, threads=THREADS)
    fan = int(pattern.partition(":")[2] or 16)
    if pattern == "anneal":
        twin = naive.swaps(8 * MIB, key_of(plan), thread)
    else:
        twin = naive.lookups(8 * MIB, fan, key_of(plan), thread)
    assert taken(page_source(plan, thread), 2000) == pages_and_writes(twin, 2000)


def test_few_tables_that_are_interleaved_over_many_nodes_are_said_to_be_spread_by_chance(tmp_path, capsys):
    def said(**options):
        return left_to_chance(plan_of(Parameters(**{"size": 16 * MIB, "nodes": 16, "threads": 1} | options)))

    line = said(placement="interleave")
    assert line.startswith("8 leaf tables are interleaved over 16 nodes: ") and "--size 1G has 32" in line
    assert said(placement="interleave", size=1 << 30) == said() == said(placement="interleave", nodes=1) == ""
    assert said(guest="oblivious", host_placement="interleave")


@pytest.mark.compiled
def test_targets_of_a_kronecker_graph_are_skewed_as_r_mat_is_and_its_hot_vertices_scattered():
    graph = naive.Graph("pr", 14, True, 5)
    seen = np.array([graph.neighbour(u, k) for u in range(1500) for k in range(8)])
    counts = np.sort(np.bincount(seen, minlength=graph.vertices))[::-1] / len(seen)
    assert counts[0] == pytest.approx(0.76**14, rel=0.15)
    assert counts[1:15].sum() == pytest.approx(14 * 0.24 * 0.76**13, rel=0.1)
    assert np.diff(np.sort(np.argsort(np.bincount(seen, minlength=graph.vertices))[-8:])).min() > 8


def test_a_graph_of_2_to_30_vertices_takes_as_much_room_as_its_arrays():
    assert planned("pr:kron30").pages == (8 + 128 + 8) << 30 >> 12
    assert planned("bc:uni27").pages == (8 + 128 + 4 + 8 + 4 + 4 + 4 + 4) << 27 >> 12


@pytest.mark.compiled
def test_a_capture_of_a_shape_passes_every_check_and_comes_out_the_same_again(tmp_path):
    asked = Parameters(nodes=2, threads=2, pattern="bc:kron16", accesses=20_000, init_trace=False)
    process, _ = synthesize(asked, tmp_path / "graph")
    plan = process.plan
    assert process.recorder.accesses == 20_000
    found = check_capture(open_capture(tmp_path / "graph"))
    assert found and not [check for check in found if check.verdict in (FAILED, PARTIAL)]
    synthesize(plan.asked, tmp_path / "again")
    for name in ("trace.ptt", "gpt.entries"):
        assert (tmp_path / "graph" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(
    "options, words",
    [
        ({"pattern": "pr"}, "--pattern pr: pr:GRAPH, cc:GRAPH, bc:GRAPH (GRAPH as kron27 or uni27, 14 to"),
        ({"pattern": "bc:kron33"}, "14 to 32"),
        ({"pattern": "btree:5", "size": 8 * MIB}, "FAN one of 4, 8, 16"),
        ({"pattern": "anneal:3", "size": 8 * MIB}, "--pattern anneal:3: uniform, zipf:S"),
        ({"pattern": "btree"}, "--pattern btree: give the size of the dataset with --size"),
        ({"pattern": "pr:uni14", "size": 8 * MIB}, "--size 8388608: pr:uni14 has 2359296 bytes"),
        ({"pattern": "pr:uni14", "sharing": "private"}, "--sharing private: shared with --pattern pr:uni14"),
        ({"pattern": "pr:uni14", "writes": 0.5}, "--writes 0.5: leave it out"),
    ],
    ids=str,
)
def test_what_contradicts_a_shape_is_refused_with_what_is_allowed(options, words):
    with pytest.raises(UsageError) as refused:
        plan_of(Parameters(**{"nodes": 1, "threads": 1} | options))
    assert words in str(refused.value)


# What threads of a synthetic capture touch, and what is refused.

WORD = st.integers(0, (1 << 32) - 1)


def source(thread=0, **options):
    return page_source(plan_of(Parameters(**{"size": 8 * MIB, "nodes": 2} | options)), thread)


@given(WORD, WORD)
def test_numbers_are_drawn_as_the_twin_draws_them(key, n):
    assert kernels.draw(key, n) == naive.draw(key, n)


def test_drawn_numbers_are_even_over_nodes_and_unlike_those_of_the_next_key():
    n = np.arange(20000)
    one, other = (np.array([naive.draw(key, int(i)) for i in n]) for key in (5, 6))
    for nodes in (2, 3, 4, 8):
        counts = np.bincount(one * nodes >> 32, minlength=nodes)
        assert np.abs(counts / len(n) - 1 / nodes).max() < 5 * np.sqrt(1 / nodes / len(n))
    both = np.bincount((one * 4 >> 32) * 4 + (other * 4 >> 32), minlength=16) / len(n)
    assert np.abs(both - 1 / 16).max() < 5 * np.sqrt(1 / 16 / len(n))


@given(st.integers(1, 3000), WORD)
def test_a_permutation_reaches_every_number_once(n, key):
    assert sorted(hashed(np.arange(n), n, key).tolist()) == list(range(n))


@pytest.mark.parametrize("sharing", ["shared", "private"])
def test_once_touches_every_page_once_and_in_no_order(sharing):
    take = source(1, pattern="once", sharing=sharing)
    pages = np.concatenate([take(700), take(700), take(700), take(700)])
    first, last = (0, 2048) if sharing == "shared" else (1024, 2048)
    assert sorted(pages.tolist()) == list(range(first, last))
    assert np.count_nonzero(np.diff(pages) == 1) < 20
    assert len(take(5)) == 0


@pytest.mark.parametrize("pattern", ["uniform", "zipf:0.9", "zipf:1", "zipf:2"])
def test_private_accesses_stay_in_a_thread_s_own_part(pattern):
    pages = source(1, pattern=pattern, sharing="private")(5000)
    assert pages.min() >= 1024 and pages.max() < 2048


@pytest.mark.parametrize("pattern", ["uniform", "zipf:1"])
def test_a_share_of_the_accesses_goes_anywhere(pattern):
    pages = source(1, pattern=pattern, sharing="0.5")(20000)
    assert np.mean(pages < 1024) == pytest.approx(0.25, abs=0.1)
    assert pages.min() >= 0 and pages.max() < 2048


@pytest.mark.compiled
@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.4])
def test_the_popularity_of_pages_falls_as_a_power_of_their_rank(exponent):
    pages = source(pattern=f"zipf:{exponent}", size=64 * MIB)(400000)
    counts = np.sort(np.bincount(pages, minlength=16384))[::-1]
    ranks = np.array([2, 64])
    slope = np.diff(np.log(counts[ranks - 1].astype(float)))[0] / np.diff(np.log(ranks + 0.5))[0]
    assert slope == pytest.approx(-exponent, abs=0.12)


@pytest.mark.compiled
@pytest.mark.parametrize("exponent", [0.8, 1.2])
@pytest.mark.parametrize("sets", [512, 8192])
def test_entries_of_popular_pages_share_out_the_sets_of_a_cache_as_chance_has_it(exponent, sets):
    """However tables are numbered: by address, or with the table above 512 of them in between."""
    lines = np.unique(source(pattern=f"zipf:{exponent}", size=16384 * MIB)(200_000) >> 3)
    for number in (lines, lines + (lines >> 15 << 6)):
        each = np.bincount(number % sets, minlength=sets)
        assert each.var() / each.mean() == pytest.approx(1 - len(lines) / (1 << 19), abs=0.2)


def test_sequential_goes_round_from_the_thread_s_own_part_on():
    assert source(1, pattern="sequential")(1026).tolist() == [*range(1024, 2048), 0, 1]
    assert source(1, pattern="sequential", sharing="private")(1026)[-2:].tolist() == [1024, 1025]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"size": MIB}, "--size 1M: 2M to 4T"),
        ({"nodes": 0}, "--nodes 0: 1 to 60"),
        ({"mapped_by": "all"}, "--mapped-by all: one of main, threads"),
        ({"writes": float("nan")}, "--writes nan: a share, 0 to 1"),
        ({"threads": 5}, "--threads 5: at most 4"),
        ({"threads_to_nodes": "0,2"}, "--threads-to-nodes 0,2: round-robin, block"),
        ({"threads_to_nodes": "0"}, "--threads-to-nodes 0: 1 nodes for 2 threads"),
        ({"placement": "bind:2"}, "NODE of 0..1"),
        ({"host_placement": "interleave"}, "--host-placement interleave: needs a VM"),
        ({"guest": "oblivious", "placement": "interleave"}, "the guest sees one node"),
        ({"pattern": "zipf:0"}, "zipf:S (S above 0, at most 8)"),
        ({"pattern": "once:2"}, "THREAD of 0..1"),
        ({"pattern": "once", "accesses": 5}, "--accesses 5: --pattern once"),
        ({"pattern": "once", "sharing": "0.5"}, "shared or private with --pattern once"),
        ({"pattern": "once:0", "sharing": "private"}, "--sharing private"),
        ({"sharing": "some"}, "shared, private, or a share"),
        ({"move": "0.5:0:0"}, "two different nodes of 0..1"),
        ({"move": "2:0:1"}, "T a fraction of the access phase"),
        ({"move_data": "0.5:10"}, "give --move as well"),
        ({"move": "0:0:1", "move_data": "0.5:0"}, "RATE above 0"),
        ({"thp": 1.0, "munmap_every": 5}, "--thp leaves no 4 KiB pages"),
        ({"rate": 0.0}, "--rate 0.0: above 0"),
        ({"accesses": 1 << 39, "munmap_every": 1}, "--munmap-every 1: at least"),
        ({"node_memory": 1 << 20}, "--node-memory 1M: 16M to 16T"),
        ({"node_memory": 12 << 40, "guest": "visible"}, "memory ends below 16T"),
    ],
    ids=str,
)
def test_what_is_out_of_range_or_contradicts_itself_is_refused_with_what_is_allowed(options, words):
    with pytest.raises(UsageError) as refused:
        frames_of(plan_of(Parameters(**{"size": 8 * MIB, "nodes": 2} | options)))
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["", "12", "1X", "0G", "1.5K", "-1G", "infG", "9" * 400 + "T"])
def test_a_size_is_whole_pages(text):
    with pytest.raises(UsageError, match="give whole 4 KiB pages"):
        whole_pages(text)


# What synthetic captures must add up to, by arithmetic.

NODES = 4


def made(directory, **options):
    """(Plan, Capture) of a small VM, by default with page tables alone."""
    trace = options.pop("trace", False)
    parameters = Parameters(**{"size": 64 * MIB, "guest": "visible", "accesses": 1} | options)
    process, _ = synthesize(parameters, directory / "made", trace=trace)
    return process.plan, open_capture(directory / "made")


def test_tables_made_on_disk_are_not_read_into_memory(tmp_path):
    parameters = Parameters(size=64 * MIB, guest="visible", accesses=1, fragmentation=0.1)
    process, snapshot = synthesize(parameters, tmp_path / "made", trace=False)
    space = process.state.space
    assert np.shares_memory(snapshot.guest.entries, space.guest.entries)
    assert np.shares_memory(snapshot.host.entries, space.host.entries) and (space.host.frame < 0).any()


def space_of(capture):
    return address_space(capture.snapshot, np.zeros(0, np.uint64))


def shares(capture):
    """float64[sockets, classes] of all leaf entries."""
    seen = classify_pages(space_of(capture)).by_class()[0]
    return seen / seen.sum(axis=1, keepdims=True)


def expected_shares(plan):
    """float64[nodes, classes]: first touch follows the threads' parts, interleaving is even; two dimensions
    are independent unless both follow the threads (vMitosis, section 2.2: 1/N^2)."""
    host = expected_nodes(plan, plan.host_policy)
    if not plan.nested:
        local = expected_nodes(plan, plan.policy)
        return np.stack([local, 1 - local], axis=1)
    policy = plan.host_policy if plan.asked.guest == "oblivious" else plan.policy
    guest = expected_nodes(plan, policy)
    both = guest if policy == plan.host_policy == FIRST_TOUCH else guest * host
    return np.stack([both, guest - both, host - both, 1 - guest - host + both], axis=1)


def expected_nodes(plan, policy):
    share = np.zeros(plan.asked.nodes)
    if policy == INTERLEAVE:
        share[:] = 1 / len(share)
    elif policy >= 0 or plan.asked.init == "single":
        share[policy if policy >= 0 else plan.threads.node[0]] = 1
    else:
        np.add.at(share, plan.threads.node, np.diff(plan.threads.part) / plan.pages)
    return share


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "bind:2", "host_placement": "bind:1"},
        {"placement": "first-touch"},
        {"placement": "first-touch", "init": "single"},
        {"guest": "oblivious", "host_placement": "bind:3"},
        {"guest": "oblivious", "init": "single"},
        {"placement": "first-touch", "host_placement": "bind:0"},
        {"guest": "native", "placement": "bind:1"},
        {"guest": "native", "threads": 3},
    ],
    ids=str,
)
def test_placement_that_draws_nothing_gives_exact_shares(options, tmp_path):
    plan, capture = made(tmp_path, **options)
    assert np.allclose(shares(capture), expected_shares(plan), atol=0.002)


@pytest.mark.parametrize("guest", ["visible", "oblivious"])
def test_two_interleaved_dimensions_are_both_local_once_in_n_squared(guest, tmp_path):
    options = {"host_placement": "interleave", "size": 256 * MIB}
    if guest == "visible":
        options["placement"] = "interleave"
    plan, capture = made(tmp_path, guest=guest, **options)
    assert np.allclose(expected_shares(plan)[:, 0], 1 / NODES**2)
    spread = np.sqrt(1 / NODES**2 * (1 - 1 / NODES**2) / plan.regions)
    assert np.abs(shares(capture)[:, 0] - 1 / NODES**2).max() < 5 * spread
    assert np.abs(shares(capture)[:, 0].mean() - 1 / NODES**2) < 5 * spread / 2


def test_threads_that_touch_their_own_part_first_walk_locally_in_both_dimensions(tmp_path):
    _, capture = made(tmp_path, size=32 * MIB, trace=True, sharing="private", accesses=10000)
    seen, walked = walk_locality(capture, Setup.of(machine=load_machine("vmitosis-cascade-lake")))
    assert walked.placement.how.startswith("recorded")
    local, *rest = seen.by_class()[0].T
    assert local.sum() > 32 * MIB // 4096 and not any(count.any() for count in rest)


def metric_of(capture):
    lines = measure(space_of(capture)).counts[0].sum(axis=0)
    return float(lines @ np.arange(len(lines)) / lines.sum())


def test_one_thread_without_a_co_runner_is_not_fragmented_at_all(tmp_path):
    assert metric_of(made(tmp_path, threads=1)[1]) == 1.0


def test_fragmentation_follows_its_closed_form_from_1_to_8(tmp_path):
    found = []
    for chance in (0.0, 0.05, 0.2, 0.5, 0.9, 1.0):
        place = tmp_path / str(chance)
        place.mkdir()
        _, capture = made(place, threads=1, size=32 * MIB, fragmentation=chance)
        found.append(metric_of(capture))
        assert found[-1] == pytest.approx(1 + 7 * new_group(chance) if chance else 1, rel=0.06)
    assert found == sorted(found) and found[-1] == 8.0


@pytest.mark.parametrize("levels", [4, 5])
def test_the_table_count_of_the_paper_s_largest_workload(levels):
    """vMitosis, Table 6: 1.5 TiB of 4 KiB pages take 3 GB a dimension."""
    regions = (START >> 21) + np.arange(whole_pages("1.5T") >> 21)
    layout = lay_out(regions, np.zeros(len(regions), bool), levels)
    by_level = {int(level): int(np.count_nonzero(layout.level == level)) for level in np.unique(layout.level)}
    assert by_level == {1: 786432, 2: 1536, 3: 3, 4: 1} | ({5: 1} if levels == 5 else {})
    assert round(len(layout) * 4096 / 1e9, 1) == 3.2 and round(len(layout) * 4096 / 2**30, 1) == 3.0
    assert (layout.parent == enclosing_tables(layout.level.astype(np.int64), levels)).all()


def test_only_a_remainder_has_small_pages_when_all_regions_are_huge(tmp_path):
    _, capture = made(tmp_path, guest="native", size=16 * MIB + 5 * 4096, thp=1.0, threads=1)
    guest = capture.snapshot.guest
    assert np.count_nonzero(guest.level == 1) == 1
    assert np.count_nonzero(guest.entries[guest.level == 1]) == 5


def test_a_machine_that_is_full_spills_to_the_next_node(tmp_path):
    nodes = {"nodes": 2, "placement": "bind:0", "node_memory": whole_pages("16M")}
    _, capture = made(tmp_path, guest="native", size=24 * MIB, **nodes)
    assert set(capture.snapshot.guest.node.tolist()) == {0}
    leaves = capture.snapshot.guest.entries[capture.snapshot.guest.level == 1]
    frames = (leaves >> np.uint64(12) & np.uint64((1 << 40) - 1)).astype(np.int64)
    assert set(np.unique(capture.snapshot.topology.node_of_frame(frames)).tolist()) == {0, 1}


@pytest.mark.parametrize("nodes, guest", [(4, "oblivious"), (16, "oblivious"), (60, "visible")])
def test_the_largest_workload_fits_a_guest_by_default(nodes, guest):
    plan = plan_of(Parameters(size=whole_pages("1.5T"), nodes=nodes, guest=guest))
    frames = frames_of(plan)
    assert frames.guest * frames.guest_nodes <= 1 << 32
    assert frames.room.max() <= frames.guest and frames.room.sum() > plan.pages
    assert frames.host * nodes >= frames.guest * frames.guest_nodes
