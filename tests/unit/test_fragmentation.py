"""Fragmentation of the ePT against the naive translation of every gPTE, and in closed form."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.classify import leaves
from naive.fragmentation import fragmentation as naive_fragmentation
from ptanalyze.core.errors import UsageError
from ptanalyze.core.snapshot import VMA_DTYPE
from ptanalyze.world.address_space import address_space
from ptanalyze.world.fragmentation import line_runs, measure
from strategies import Page, build_snapshot, snapshots

pytestmark = pytest.mark.twin

GIB, MIB2, KIB4 = 1 << 30, 1 << 21, 1 << 12


def space_of(snapshot):
    return address_space(snapshot, np.zeros(0, np.uint64))


def measured(pages, host_pages=(), **options):
    return measure(space_of(build_snapshot(pages, host_pages)), **options)


def with_cut_lines(snapshot, draw):
    """VMAs that begin and end within gPT lines, some the tracer's, with gaps between them."""
    near = sorted({address + k * KIB4 for _, _, address, _ in leaves(snapshot.guest) for k in (0, 1, 3)})
    cuts = [*sorted(draw(st.sets(st.sampled_from(near), max_size=8))), near[-1] + 64 * GIB]
    kept = [pair for pair in pairwise(cuts) if draw(st.integers(0, 4))]
    rows = [(start, end, 3, False, draw(st.integers(0, 3)) == 0) for start, end in kept]
    return replace(snapshot, vmas=np.array(rows, VMA_DTYPE), vma_names=("x",) * len(rows))


@st.composite
def dense(draw):
    """A snapshot with gPT lines of several pages, near and far frames, holes, and host leaves of any size."""
    slots = draw(st.lists(st.integers(0, 40), min_size=1, max_size=24, unique=True))
    frame = st.integers(0, 40) | st.integers(505, 520) | st.sampled_from([4095, 4096, 8191, 1 << 18, 1 << 21])
    pages = [Page(GIB + s * KIB4, draw(frame), protnone=draw(st.booleans())) for s in slots]
    huge = draw(st.lists(st.sampled_from([(MIB2, 2), (GIB, 3), (0, 2)]), unique=True))
    snapshot = build_snapshot(
        pages, [Page(at, at >> 12, level) for at, level in huge],
        host_encoding=draw(st.sampled_from(["ept", "kvm"])),
    )  # fmt: skip
    for table in np.flatnonzero(snapshot.host.level == 1)[: draw(st.integers(0, 2))]:
        snapshot.host.entries[table, draw(st.integers(0, 40))] = 0
    return snapshot


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["vma", "all"]))
def test_every_line_is_counted_as_the_naive_translation_counts_it(data, by):
    snapshot = with_cut_lines(data.draw(snapshots(native=False) | dense()), data.draw)
    lines, unresolved = naive_fragmentation(snapshot, by == "vma")
    found = measure(space_of(snapshot), by=by)
    counted = Counter({tuple(map(int, at)): int(found.counts[tuple(at)]) for at in np.argwhere(found.counts)})
    assert counted == lines
    assert Counter({k: int(n) for k, n in enumerate(found.unresolved) if n}) == unresolved


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 511), st.integers(1, 512)), max_size=8))
def test_runs_cover_each_slot_of_each_segment_once(segments):
    taken, rows = set(), []
    for row, lo, length in segments:
        mine = set(range(lo, min(lo + length, 512)))
        if not mine & taken:
            taken |= mine
            rows.append((7, lo, max(mine) + 1, row))
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    runs = list(zip(*line_runs(*columns), strict=True))
    slots = [
        (int(table), 8 * line + k, int(row))
        for table, first, last, mask, row in runs
        for line in range(first, last)
        for k in range(8)
        if mask >> k & 1
    ]
    assert sorted(slots) == sorted((7, slot, row) for _, lo, hi, row in rows for slot in range(lo, hi))
    cut = [(int(first), int(row)) for _, first, _, mask, row in runs if mask < 255]
    assert len(cut) == len(set(cut))


def test_eight_neighbours_in_one_aligned_block_have_one_ept_line():
    assert measured([(GIB + k * KIB4, 64 + k) for k in range(64)]).mean() == 1


def test_a_block_that_is_not_aligned_lies_in_two():
    assert measured([(GIB + k * KIB4, 67 + k) for k in range(8)]).mean() == 2


def test_frames_eight_apart_are_fully_scattered():
    found = measured([(GIB + k * KIB4, 8 * k) for k in range(8)])
    assert found.histogram().tolist() == [[0, 0, 0, 0, 0, 0, 0, 1]]
    assert found.summary()[0]["fully scattered"] == 1


def test_pages_of_one_program_between_those_of_k_others_are_k_plus_1_times_as_scattered():
    """Section 3.2: co-runners that fault in turn push neighbours apart."""
    for others in range(8):
        pages = [(GIB + k * KIB4, k * (others + 1)) for k in range(512)]
        assert measured(pages).mean() == others + 1


def test_host_leaves_of_2_mib_hold_eight_regions_in_a_line():
    pages = [(GIB + k * KIB4, k << 9) for k in range(16)]
    hosts = [(k << 21, k << 9, 2) for k in range(16)]
    assert measured(pages).mean() == 8
    assert measured(pages, hosts).mean() == 1


def test_only_full_lines_can_be_looked_at_alone():
    pages = [(GIB + k * KIB4, 8 * k) for k in range(8)] + [(GIB + 9 * KIB4, 99)]
    found = measured(pages)
    assert found.mean() == 4.5 and found.mean(full=True) == 8
    assert [row["gPT lines"] for row in found.summary() + found.summary(full=True)] == [2, 1]


def test_huge_guest_leaves_are_reported_and_not_counted():
    found = measured([(GIB, 512, 2), (8 * GIB, 1 << 18, 3), (2 * GIB, 7)])
    assert found.huge.tolist() == [[1, 1]] and found.histogram().sum() == 1


def test_frames_the_host_does_not_map_are_unresolved_until_the_host_fills_them():
    snapshot = build_snapshot([(GIB + k * KIB4, 8 * k) for k in range(8)], [])
    leaf = int(space_of(snapshot).host_of[0]) - len(snapshot.guest)
    snapshot.host.entries[leaf, [8, 16]] = 0
    found = measure(space_of(snapshot))
    assert found.unresolved.tolist() == [2] and found.mean() == 6 and found.mean(full=True) is None
    assert measure(space_of(snapshot), filled=True).mean() == 8


def test_a_line_shared_by_two_vmas_counts_in_both():
    snapshot = build_snapshot(
        [(GIB + k * KIB4, 8 * k) for k in range(8)], [],
        vmas=[(GIB, GIB + 3 * KIB4, "a"), (GIB + 3 * KIB4, GIB + MIB2, "b")],
    )  # fmt: skip
    found = measure(space_of(snapshot), by="vma")
    assert [row["mean"] for row in found.summary()] == [3, 5, None]
    assert measure(space_of(snapshot)).mean() == 8


def test_the_tracers_pages_do_not_count():
    vmas = [(GIB, GIB + 3 * KIB4, "heap"), (GIB + 3 * KIB4, GIB + 5 * KIB4, "qemu", True)]
    snapshot = build_snapshot([(GIB + k * KIB4, 8 * k) for k in range(8)], [], vmas=vmas)
    assert measure(space_of(snapshot)).mean() == 6


def test_the_frame_is_tidy_and_its_shares_add_up():
    table = measured([(GIB + k * KIB4, 8 * k) for k in range(8)]).frame()
    assert list(table.columns) == ["group", "lines", "ept_lines", "count", "share"]
    assert table.groupby("lines")["share"].sum().tolist() == [1.0, 1.0]


def test_a_native_capture_has_no_ept_and_the_message_says_how_to_get_one():
    with pytest.raises(UsageError, match="dump vm"):
        measure(space_of(build_snapshot([(GIB, 5)])))


def test_an_unknown_grouping_names_the_known_ones():
    with pytest.raises(UsageError, match="one of all, vma"):
        measured([(GIB, 5)], by="thread")
