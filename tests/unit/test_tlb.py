"""Both TLB kernels, behind the filter, against the naive TLB."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.tlb import NaiveTlb
from ptanalyze.core.trace import Event
from ptanalyze.world.address_space import address_space
from ptanalyze.world.mm_events import invalidations
from ptanalyze.world.tlb_filter import TlbFilter, is_common
from strategies import build_snapshot, build_trace, place, small_tlb, snapshots, traces

pytestmark = pytest.mark.twin

GIB, MIB2, KIB4 = 1 << 30, 1 << 21, 1 << 12

COMMON = [
    small_tlb((8, 4), (12, 3)),
    small_tlb((4, 4), (8, 2), l2_1g=(3, 3), l2_holds=("4k",)),
    small_tlb((16, 4), (16, 16), l2_holds=("4k", "2m", "1g")),
    small_tlb((6, 6), (10, 5)),
]
OTHER = [
    small_tlb((12, 2), (12, 3)),
    small_tlb((6, 2), (9, 3), (3, 1), l2_1g=(2, 1)),
    small_tlb((12, 4), (10, 2), l2_holds=("2m",)),
    small_tlb((3, 3), (20, 20), l2_holds=("4k", "2m", "1g")),
    small_tlb((17, 17), (16, 2)),
]


def naive_filter(trace, space, placement, tlb):
    """([(page, write)] that miss, misses of each chunk, hits by CPU)."""
    cpus = [NaiveTlb(tlb) for _ in placement.cpu_node]
    due = invalidations(trace.events).tolist()
    walks, counts = [], []
    for touches in trace.batches(1 << 30):
        for chunk in range(touches.chunks.start, touches.chunks.stop):
            while due and due[0][1] <= chunk:
                for cpu in cpus:
                    cpu.shoot_down(*due[0][2:])
                due.pop(0)
            first, count = int(trace.chunks["first"][chunk]), int(trace.chunks["touches"][chunk])
            cpu, before = cpus[placement.chunk_cpu[chunk]], len(walks)
            cpu.hits[0] += int(trace.chunks["accesses"][chunk]) - count
            for page, write in zip(
                touches.page[first : first + count].tolist(),
                touches.write[first : first + count],
                strict=True,
            ):
                number = int(trace.regions[page >> 9]) << 9 | page & 511
                if cpu.touch(number, int(space.regions.tlb_level[page >> 9])) == 2:
                    walks.append((page, bool(write)))
            counts.append(len(walks) - before)
    return walks, counts, [cpu.hits for cpu in cpus]


def agrees_with_naive(snapshot, trace, tlb, **options):
    space, placement = address_space(snapshot, trace.regions), place(trace, 2, 2)
    stream = TlbFilter(trace, space, placement, tlb, **options).first()
    walks, counts, hits = naive_filter(trace, space, placement, tlb)
    assert list(zip(stream.page.tolist(), stream.write.tolist(), strict=True)) == walks
    assert np.diff(stream.offset).tolist() == counts
    assert stream.hits.tolist() == hits
    return stream


@pytest.mark.parametrize("tlb", [*COMMON, *OTHER])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_misses_hits_and_their_order_are_the_naive_tlbs(tlb, data):
    snapshot = data.draw(snapshots())
    trace = data.draw(traces(snapshot, max_touches=40))
    threads = data.draw(st.sampled_from([1, 8]))  # of 2 CPUs: with 8 each TLB is split by set, if it can be
    agrees_with_naive(snapshot, trace, tlb, batch=data.draw(st.sampled_from([1, 7, 1000])), threads=threads)


def sweep(pages, rounds=3, start=GIB):
    return [(0, [start + KIB4 * k for k in range(pages)] * rounds)]


@pytest.mark.parametrize("tlb", [*COMMON, *OTHER])
def test_many_4_kib_pages_in_several_regions(tlb):
    rng = np.random.default_rng(7)
    run = [(int(GIB + KIB4 * k), bool(k & 1), 1) for k in rng.zipf(1.2, 3000) % 1500]
    agrees_with_naive(
        build_snapshot([(GIB, 5)]), build_trace([(0, run), (1, run[:500]), (0, run[:100])]), tlb
    )


@pytest.mark.parametrize("tlb", [*COMMON, *OTHER])
def test_pages_of_a_gib_are_found_in_whichever_second_level_holds_them(tlb):
    snapshot = build_snapshot([(k * GIB, k << 18, 3) for k in (1, 2, 3)])
    stream = agrees_with_naive(snapshot, build_trace([(0, [GIB, 2 * GIB, 3 * GIB, GIB])]), tlb)
    assert len(stream) == 3 + (tlb.l2_1g is None and "1g" not in tlb.l2_holds)


def test_the_common_shape_is_recognised():
    assert all(is_common(tlb) for tlb in COMMON) and not any(is_common(tlb) for tlb in OTHER)
    assert not is_common(small_tlb((8, 4), (1024 * 4, 4)))


@pytest.mark.parametrize("tlb", [small_tlb((8, 4), (16, 4)), small_tlb((12, 2), (16, 4))])
def test_a_sweep_within_reach_misses_once_and_one_beyond_reach_always(tlb):
    space = lambda trace: address_space(build_snapshot([(GIB, 5)]), trace.regions)  # noqa: E731
    for pages, expected in ((16, 16), (20, 60)):
        trace = build_trace(sweep(pages))
        assert len(TlbFilter(trace, space(trace), place(trace, 1, 1), tlb).first()) == expected


@pytest.mark.parametrize("tlb", [COMMON[0], OTHER[0]])
@pytest.mark.parametrize(("pages", "walks"), [(1, 3), (33, 3), (34, 4)])
def test_a_shootdown_of_up_to_33_pages_spares_the_others_and_a_longer_one_flushes(tlb, pages, walks):
    touched = [GIB, 2 * GIB]
    trace = build_trace([(0, touched), (0, touched)], [(1, 0, Event.MUNMAP, (GIB, pages * KIB4), 0)])
    assert len(agrees_with_naive(build_snapshot([(GIB, 5)]), trace, tlb)) == walks


@pytest.mark.parametrize("tlb", [COMMON[0], OTHER[0]])
def test_a_shootdown_of_a_page_drops_the_huge_entry_that_maps_it(tlb):
    snapshot = build_snapshot([(GIB, 1 << 18, 3), (4 * GIB, 512, 2)])
    run = [GIB, GIB + 5 * MIB2, 4 * GIB, 4 * GIB + KIB4]
    for address in (GIB + 99 * MIB2, 4 * GIB + 7 * KIB4):
        trace = build_trace([(0, run), (0, run)], [(1, 0, Event.MPROTECT, (address, KIB4, 1), 0)])
        assert len(agrees_with_naive(snapshot, trace, tlb)) == 3
