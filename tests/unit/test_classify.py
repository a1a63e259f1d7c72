"""Classification against the naive translation of every page, and in closed form."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.classify import classify as naive_classify
from naive.classify import host_node, leaves, vma_of
from ptanalyze.analysis.classify import remote_by_first_touch
from ptanalyze.analysis.leaf_classes import Classification, classify_pages, classify_walks
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.walk import explain
from ptanalyze.core.errors import UNKNOWN_NODE, UsageError
from ptanalyze.show.classify import jointly, sentence
from ptanalyze.world.address_space import address_space
from ptanalyze_synth.capture import synth
from replay_cases import every_touch_walks
from strategies import FRAMES_PER_NODE, Page, build_snapshot, place, snapshots, traces, with_vmas

pytestmark = pytest.mark.twin

GIB, MIB2, KIB4 = 1 << 30, 1 << 21, 1 << 12
NOWHERE = np.zeros(0, np.uint64)


def as_counter(result):
    """(group index, guest node, host node or None) -> count, unknown nodes as -1, of the first socket."""
    nodes, found = [*result.nodes, -1], Counter()
    for group, guest, host in np.argwhere(result.counts[:, 0]):
        key = (int(group), nodes[guest], None if result.native else nodes[host])
        found[key] += int(result.counts[group, 0, guest, host])
    return found


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from(["vma", "all"]))
def test_every_mapped_page_is_counted_where_the_naive_translation_finds_it(data, by):
    snapshot = with_vmas(data.draw(snapshots()), data.draw)
    snapshot.guest.node[:: data.draw(st.sampled_from([3, 100]))] = -1
    expected = naive_classify(snapshot)
    if by == "all":
        merged = Counter()
        for (_, guest, host), count in expected.items():
            merged[0, guest, host] += count
        expected = merged
    result = classify_pages(address_space(snapshot, NOWHERE), by=by)
    unmapped = sum(count for (_, _, host), count in expected.items() if host == "unmapped")
    assert as_counter(result) == Counter({key: n for key, n in expected.items() if key[2] != "unmapped"})
    assert result.unresolved.get("guest leaf unmapped in the host", 0) == unmapped


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_walks_are_counted_by_the_socket_that_walked(data):
    snapshot = with_vmas(data.draw(snapshots()), data.draw)
    trace = data.draw(traces(snapshot))
    space, placement = address_space(snapshot, trace.regions), place(trace, 3, 2)
    stream = every_touch_walks(trace)
    where = {}
    for table, level, address, frame in leaves(snapshot.guest):
        where[level, address] = table, frame
    expected, gone, unmapped = Counter(), 0, 0
    for chunk in range(len(trace.chunks)):
        thread = int(trace.chunks["thread"][chunk])
        for page in stream.page[stream.offset[chunk] : stream.offset[chunk + 1]].tolist():
            address = int(trace.regions[page >> 9]) << 21 | (page & 511) << 12
            vma = vma_of(snapshot, address)
            if vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]:
                continue
            sizes = [(level, address >> (3 + 9 * level) << (3 + 9 * level)) for level in (1, 2, 3)]
            leaf = next((size for size in sizes if size in where), None)
            if leaf is None:
                gone += 1
                here = (snapshot.guest.level == 1) & (snapshot.guest.base == address >> 21 << 21)
                if snapshot.native and here.any():
                    expected[thread, thread % 3 % 2, int(snapshot.guest.node[here][0]), None] += 1
                continue
            table, frame = where[leaf]
            host = None
            if not snapshot.native:
                host = host_node(snapshot, frame + ((address - leaf[1]) >> 12))
                if host == "unmapped":
                    unmapped += 1
                    continue
            expected[thread, thread % 3 % 2, int(snapshot.guest.node[table]), host] += 1
    batch = data.draw(st.sampled_from([1, 99]))
    result = classify_walks(space, stream, placement, trace, by="thread", batch=batch)
    got = Counter()
    for index in np.argwhere(result.counts):
        thread, socket, guest, host = map(int, index)
        if guest < len(result.nodes):
            got[thread, socket, guest, None if snapshot.native else host] += int(result.counts[tuple(index)])
    assert got == expected
    if not snapshot.native:
        assert result.unresolved["guest leaf gone from the snapshot"] == gone
        assert result.unresolved["guest leaf unmapped in the host"] == unmapped
    by_vma = classify_walks(space, stream, placement, trace, by="vma")
    assert by_vma.counts.sum() == result.counts.sum() and by_vma.unresolved == result.unresolved


def test_figure_2_of_vmitosis_uniform_placement_on_4_nodes_is_one_sixteenth_local_local():
    """16 leaf tables, one for each pair of nodes: LL 1, LR 3, RL 3, RR 9 of 16 for a thread on any socket."""
    snapshot = build_snapshot([Page(GIB + k * MIB2, (k << 9) + 8) for k in range(16)], [], nodes=4)
    snapshot.guest.node[np.flatnonzero(snapshot.guest.level == 1)] = np.arange(16) % 4
    space = address_space(snapshot, NOWHERE)
    for k in range(16):
        snapshot.host.node[space.host_of[k] - space.guest_tables] = k // 4
    result = classify_pages(address_space(snapshot, NOWHERE))
    assert result.by_class()[0].tolist() == [[1, 3, 3, 9]] * 4
    assert set(result.unresolved.values()) == {0}


@pytest.mark.parametrize("change", ["none", "absent", "hint", "outside"])
@pytest.mark.parametrize("host", [0, 5 * 512], ids=["holes", "full"])
def test_a_leaf_table_with_another_entry_is_counted_as_the_naive_translation_does(change, host):
    """A leaf table of 512 pages, one entry of which is another; host tables have holes or are full."""
    backed = [(k * KIB4, k) for k in range(host)]
    pages = [Page(GIB + k * KIB4, 5 + 37 * k % 2048) for k in range(512)]
    at = 77
    if change == "absent":
        del pages[at]
    if change == "hint":
        pages[at] = replace(pages[at], protnone=True)
    snapshot = build_snapshot(pages, backed, nodes=4, host_table_nodes=(0, 1, 2, 3))
    if change == "outside":
        snapshot.guest.entries[3, at] = (1 << 51) | 0x67
    expected = naive_classify(snapshot)
    result = classify_pages(address_space(snapshot, NOWHERE))
    assert as_counter(result) == Counter({key: n for key, n in expected.items() if key[2] != "unmapped"})
    assert result.counts[0, 0].sum() == 512 - (change in ("absent", "outside"))


@pytest.mark.compiled
@pytest.mark.parametrize("threads", [1, 3])
def test_walks_remote_by_first_touch_are_those_from_other_nodes_than_each_tables_first(tmp_path, threads):
    capture = synth(tmp_path / "c", "64M", threads=threads, accesses=4000)
    scenario = Setup.of(machine="vmitosis-cascade-lake").scenario(capture.snapshot, capture.trace)
    stream, placement, first, remote = scenario.stream, scenario.placement, {}, 0
    for chunk, (begin, end) in enumerate(pairwise(stream.offset.tolist())):
        node = int(placement.cpu_node[placement.chunk_cpu[chunk]])
        for region in (stream.page[begin:end] >> np.uint64(9)).tolist():
            remote += first.setdefault(region, node) != node
    found = remote_by_first_touch(scenario)
    assert found == pytest.approx(remote / len(stream), abs=1e-9) and (found > 0) == (threads > 1)
    counts = np.full((1, 2, 2, 1), 4)
    line = sentence(Classification("walks", True, ("all",), (0, 1), (0,), counts, {}), found)
    assert line.numbers["both"].code == "first-touch"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_counted_and_the_tracers_are_all_that_is_mapped(data):
    snapshot = with_vmas(data.draw(snapshots()), data.draw)
    pages = Counter()
    for _, _, address, _ in leaves(snapshot.guest):
        vma = vma_of(snapshot, address)
        pages[(vma < len(snapshot.vmas) and bool(snapshot.vmas["emulator"][vma]))] += 1
    result = classify_pages(address_space(snapshot, NOWHERE))
    assert result.tracers == pages[True]
    known = int(result.by_class()[:, 0].sum()) if result.counts.size else 0
    assert known + sum(result.unresolved.values()) + result.tracers == pages.total()


def test_more_nodes_than_fit_the_quick_counters_give_the_same_counts():
    pages = [(GIB + k * KIB4, k * 3) for k in range(512)]
    few, many = (classify_pages(address_space(build_snapshot(pages, [], nodes=n), NOWHERE)) for n in (2, 20))
    assert few.by_class()[0, 0].tolist() == many.by_class()[0, 0].tolist() == [512, 0, 0, 0]


@pytest.mark.parametrize(
    ("pages", "local", "chance"),
    [
        ([[25, 25], [25, 25]], "25 %", "25 %"),
        ([[50, 0], [0, 50]], "50 %", "25 %"),
        ([[30, 10], [0, 0]], "75 %", "75 %"),
    ],
)
def test_locality_of_both_dimensions_is_compared_with_independence(pages, local, chance):
    counts = np.zeros((1, 1, 3, 3), np.int64)
    counts[0, 0, :2, :2] = pages
    said = jointly(Classification("leaf", False, ("all",), (0,), (0, 1), counts, {}))
    assert (said.numbers["local"], said.numbers["chance"]) == (local, chance)


VA = 0x7F12_3456_7000


@pytest.mark.parametrize(
    ("levels", "host_levels", "reads"), [(4, None, 4), (5, None, 5), (4, 4, 24), (5, 5, 35), (4, 5, 29)]
)
def test_a_cold_walk_reads_every_level_of_both_dimensions(levels, host_levels, reads):
    host = None if host_levels is None else []
    path = explain(build_snapshot([(VA, 77)], host, levels=levels, host_levels=host_levels or 4), VA + 0x123)
    assert len(path.steps) == reads
    assert (path.page_frame, path.page_bytes, path.stopped) == (77, 4096, "")


def test_a_huge_page_ends_the_walk_one_level_early_at_the_frame_of_the_address():
    path = explain(build_snapshot([Page(VA & -(1 << 21), 512 * 9, 2)]), VA)
    assert [step.level for step in path.steps] == [4, 3, 2]
    assert path.page_frame == 512 * 9 + (VA >> 12) % 512
    assert path.page_bytes == 2 << 20


@given(guest=st.integers(1, 3), host=st.integers(1, 3))
@settings(max_examples=9, deadline=None)
def test_mixed_leaf_sizes_map_the_smaller_of_both(guest, host):
    address = 5 << 30
    frame = 3 << 18
    path = explain(build_snapshot([Page(address, frame, guest)], [Page(frame << 12, 7 << 18, host)]), address)
    assert path.page_frame == 7 << 18
    assert path.page_bytes == 1 << (3 + 9 * min(guest, host))


def test_an_unmapped_address_says_at_which_level_it_stops():
    path = explain(build_snapshot([(VA, 77)]), VA + (1 << 12))
    assert path.page_frame is None
    assert path.stopped == "the PT entry at level 1 is not present"


def test_a_guest_table_that_the_host_does_not_map_ends_the_walk():
    snapshot = build_snapshot([(VA, 77)], [])
    snapshot.host.entries[snapshot.host.level == 1] = 0
    path = explain(snapshot, VA)
    assert path.page_frame is None
    assert "ePT entry at level 1 is not present" in path.stopped


def test_a_page_that_the_host_does_not_map_has_no_frame():
    snapshot = build_snapshot([(VA, 77)], [])
    leaf = int(np.flatnonzero((snapshot.host.level == 1) & (snapshot.host.base == 0))[0])
    snapshot.host.entries[leaf, 77] = 0
    path = explain(snapshot, VA)
    assert [step.dimension for step in path.steps].count("gPT") == 4
    assert (path.page_frame, path.page_bytes, path.page_node) == (None, None, UNKNOWN_NODE)
    assert path.stopped == "the ePT entry at level 1 is not present"


def test_a_guest_table_whose_frame_nobody_knows_ends_the_walk_before_the_host():
    snapshot = build_snapshot([(VA, 77)], [])
    snapshot.guest.frame[snapshot.guest.level == 3] = -1
    path = explain(snapshot, VA)
    assert [step.dimension for step in path.steps] == ["ePT"] * 4 + ["gPT"]
    assert path.stopped == "the frame of the gPT table at level 3 is unknown"


def test_each_step_knows_the_node_of_its_table_and_the_page_its_own():
    path = explain(build_snapshot([(VA, FRAMES_PER_NODE + 5)], table_nodes=(0, 1)), VA)
    assert [step.node for step in path.steps] == [0, 1, 0, 1]
    assert path.page_node == 1


@pytest.mark.parametrize("address", [-1, 1 << 48])
def test_an_address_beyond_the_levels_is_refused(address):
    with pytest.raises(UsageError, match="outside what 4 levels map"):
        explain(build_snapshot([(VA, 1)]), address)
