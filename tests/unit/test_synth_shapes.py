"""Graph kernels, lookups and annealing touch what an independent model of them touches."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import shapes as naive
from ptanalyze.capture.check import FAILED, PARTIAL, check_capture
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.patterns import page_source
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.capture.synth.plan import plan as plan_of
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture

pytestmark = pytest.mark.twin

MIB, THREADS = 1 << 20, 3
GRAPHS = st.sampled_from(["kron16", "uni16", "kron17"])
GAP = {"pr": naive.page_rank, "cc": naive.components, "bc": naive.search, "back": naive.dependencies}
ALL = {"back": ("bc", 1)}  # a bc of a single access has its first half behind it


def planned(pattern, **options):
    size = None if pattern[:2] in GAP else 8 * MIB
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


def pages_of(accesses, n):
    bytes_and_writes = list(islice(accesses, n))
    return [byte // 4096 for byte, _ in bytes_and_writes], [write for _, write in bytes_and_writes]


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(GAP)), GRAPHS, st.integers(0, 99), st.integers(1, 3), st.integers(1, 5000))
def test_graph_kernels_touch_what_the_twin_touches(kernel, name, seed, threads, most):
    kind, accesses = ALL.get(kernel, (kernel, 1 << 20))
    plan = planned(f"{kind}:{name}", seed=seed, threads=threads, accesses=accesses)
    graph = graph_of(plan)
    for thread in range(threads):
        expected = pages_of(GAP[kernel](graph, part_of(graph, thread, threads)), 3000)
        assert taken(page_source(plan, thread), 3000, most) == expected


def test_a_part_that_is_done_begins_again_and_components_go_on_to_the_second_neighbour():
    plan = planned("cc:uni16", threads=2, accesses=1 << 20)
    graph, n = graph_of(plan), 5 * 32768 + 500
    expected = pages_of(naive.components(graph, part_of(graph, 1, 2)), n)
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


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.integers(0, 2), st.sampled_from(["btree", "btree:4", "btree:256"]))
def test_lookups_touch_what_the_twin_touches(seed, thread, pattern):
    plan = planned(pattern, seed=seed, threads=THREADS)
    fan = int(pattern.partition(":")[2] or 16)
    expected = pages_of(naive.lookups(8 * MIB, fan, key_of(plan), thread), 2000)
    assert taken(page_source(plan, thread), 2000) == expected


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 99), st.integers(0, 2))
def test_annealing_touches_what_the_twin_touches(seed, thread):
    plan = planned("anneal", seed=seed, threads=THREADS)
    expected = pages_of(naive.swaps(8 * MIB, key_of(plan), thread), 2000)
    assert taken(page_source(plan, thread), 2000) == expected


def targets(pattern, n=200_000):
    """The vertices that PageRank reads contributions of, by page."""
    plan = planned(pattern, accesses=n)
    graph = graph_of(plan)
    pages, wrote = map(np.array, taken(page_source(plan, 0), n))
    first = graph.byte("contributions", 0) // 4096
    pages = pages[~wrote]
    return np.bincount(pages[pages >= first] - first, minlength=graph.vertices * 4 // 4096)


def test_targets_of_a_kronecker_graph_are_skewed_as_r_mat_is_and_its_hot_vertices_scattered():
    graph = naive.Graph("pr", 14, True, 5)
    seen = np.array([graph.neighbour(u, k) for u in range(1500) for k in range(8)])
    counts = np.sort(np.bincount(seen, minlength=graph.vertices))[::-1] / len(seen)
    assert counts[0] == pytest.approx(0.76**14, rel=0.15)
    assert counts[1:15].sum() == pytest.approx(14 * 0.24 * 0.76**13, rel=0.1)
    hot = np.argsort(np.bincount(seen, minlength=graph.vertices))[-8:]
    assert np.diff(np.sort(hot)).min() > 8


def test_targets_of_a_uniform_graph_are_even_over_pages_and_those_of_a_kronecker_graph_are_not():
    uniform, skewed = targets("pr:uni16"), targets("pr:kron16")
    spread = [np.std(counts) / np.mean(counts) for counts in (uniform, skewed)]
    assert spread[0] < 0.05 < 2 * spread[0] < spread[1]


def test_upper_levels_of_a_b_tree_are_hot_and_its_leaves_are_not():
    pages, _ = taken(page_source(planned("btree"), 0), 40_000)
    counts = np.bincount(pages, minlength=2048)
    levels = naive.tree_levels(8 * MIB, 16)
    assert counts[0] >= 40_000 / len(levels)
    leaves = counts[(sum(levels[:-1]) * 256) // 4096 + 1 :]
    assert leaves.max() < 40


def test_a_thread_s_own_part_of_the_graph_is_read_in_order():
    plan = planned("pr:uni16", threads=2, accesses=1 << 20)
    graph = graph_of(plan)
    pages, _ = taken(page_source(plan, 1), 60_000)
    rows = [p for p in pages if graph.byte("neighbours", 0) // 4096 <= p < graph.byte("scores", 0) // 4096]
    assert rows[0] == graph.byte("neighbours", graph.vertices // 2) // 4096
    assert (np.diff(rows) >= 0).all()


def test_a_graph_of_2_to_30_vertices_takes_as_much_room_as_its_arrays():
    assert planned("pr:kron30").pages == (8 + 128 + 8) << 30 >> 12
    assert planned("bc:uni27").pages == (8 + 128 + 4 + 8 + 4 + 4 + 4 + 4) << 27 >> 12


def test_a_capture_of_a_shape_passes_every_check_and_comes_out_the_same_again(tmp_path):
    asked = Parameters(nodes=2, threads=2, pattern="bc:kron16", accesses=20_000, init_trace=False)
    plan, made = synthesize(asked, tmp_path / "graph")
    assert made.accesses == 20_000
    found = check_capture(open_capture(tmp_path / "graph"))
    assert found and not [check for check in found if check.verdict in (FAILED, PARTIAL)]
    synthesize(plan.asked, tmp_path / "again")
    for name in ("trace.ptt", "gpt.entries"):
        assert (tmp_path / "graph" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize(
    "options, words",
    [
        (
            {"pattern": "pr"},
            "--pattern pr: pr:GRAPH, cc:GRAPH, bc:GRAPH (GRAPH as kron27 or uni27, 14 to 32)",
        ),
        ({"pattern": "bc:kron33"}, "14 to 32"),
        ({"pattern": "cc:web"}, "GRAPH as kron27"),
        ({"pattern": "btree:5", "size": 8 * MIB}, "FAN one of 4, 8, 16"),
        ({"pattern": "anneal:3", "size": 8 * MIB}, "--pattern anneal:3: uniform, zipf:S"),
        ({"pattern": "btree"}, "--pattern btree: give the size of the dataset with --size"),
        ({"pattern": "uniform"}, "--pattern uniform: give the size"),
        ({"pattern": "pr:uni14", "size": 8 * MIB}, "--size 8388608: pr:uni14 has 2359296 bytes"),
        ({"pattern": "pr:uni14", "sharing": "private"}, "--sharing private: shared with --pattern pr:uni14"),
        ({"pattern": "pr:uni14", "writes": 0.5}, "--writes 0.5: leave it out"),
    ],
    ids=str,
)
def test_what_contradicts_a_shape_is_refused_with_what_is_allowed(options, words):
    with pytest.raises(UsageError) as refused:
        plan_of(Parameters(**{"nodes": 1, "threads": 1} | options))
    assert words in str(refused.value) and "\n" not in str(refused.value)
