"""The interval map of VMAs against a dict with one item a page; live CPUs against a recount."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.replay import live_cpus
from ptanalyze.world.live_cpus import LiveCpus
from ptanalyze.world.owners import UNKNOWN_VMA, VmaMap
from replay_cases import cases

pytestmark = pytest.mark.twin

RANGE = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@given(st.lists(st.tuples(RANGE, st.sampled_from(["map", "unmap", "protect"]), st.integers(0, 3))))
def test_pieces_cover_what_a_dict_of_pages_says(calls):
    vmas, pages, owners = VmaMap(9), {}, {}
    for (start, end), what, number in calls:
        pieces = vmas.carve(start, end)
        assert [p for lo, hi, _ in pieces for p in range(lo, hi)] == list(range(start, end))
        for lo, hi, piece in pieces:
            assert all(pages.get(p) == (piece and (piece.lineage, piece.prot)) for p in range(lo, hi))
            assert vmas.owner_of(piece) == (9 if piece is None else owners[piece.lineage])
        if what == "protect":
            for lo, hi, piece in pieces:
                if piece is not None:
                    vmas.put(lo, hi, piece.lineage, number)
        elif what == "map" and start < end:
            lineage = vmas.lineage(number)
            owners[lineage] = number
            vmas.put(start, end, lineage, 7)
        for p in range(start, end):
            if what == "map":
                pages[p] = lineage, 7
            elif what == "unmap":
                pages.pop(p, None)
            elif p in pages:
                pages[p] = pages[p][0], number
        for before, after in pairwise(vmas.pieces):
            assert before.end < after.start or (before.end == after.start and before[2:] != after[2:])
    for p in range(21):
        piece = vmas.at(p)
        assert pages.get(p) == (piece and (piece.lineage, piece.prot))
        assert vmas.any(p, p + 2) == (p in pages or p + 1 in pages)


def test_what_is_within_a_range_is_what_carving_it_takes_away_and_stays():
    vmas = VmaMap(0)
    for start, end in ((2, 8), (11, 14)):
        vmas.put(start, end, vmas.lineage(0), 7)
    seen, pieces = vmas.within(5, 12), list(vmas.pieces)
    assert [(lo, hi, piece is None) for lo, hi, piece in seen] == [
        (5, 8, False),
        (8, 11, True),
        (11, 12, False),
    ]
    assert vmas.pieces == pieces and vmas.carve(5, 12) == seen
    assert [piece[:2] for piece in vmas.pieces] == [(2, 5), (12, 14)]


def test_undoing_an_mprotect_gives_the_old_vma_id_back():
    vmas = VmaMap(0)
    lineage = vmas.lineage(1)
    before, during = vmas.id(lineage, 3), vmas.id(lineage, 1)
    assert before != during != UNKNOWN_VMA
    assert vmas.id(lineage, 3) == before
    assert [vmas.owner[i] for i in (before, during)] == [1, 1]


@given(cases())
def test_live_cpus_are_those_of_threads_that_have_started_and_not_ended(case):
    trace, placement = case.trace, case.placement
    live = LiveCpus(trace, placement)
    nodes = len(live.per_node)
    for number, event in enumerate(trace.events):
        cpu = int(placement.event_cpu[number])
        live.advance(int(event["chunk"]), int(event["kind"]), int(event["thread"]), cpu)
        assert live.others(cpu) == live_cpus(trace, placement, number, cpu, nodes)
