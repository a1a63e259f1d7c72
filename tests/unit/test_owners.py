"""The interval map of VMAs against a dict with one item per page; live CPUs against a recount."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.replay import live_cpus
from ptanalyze.kernels.memory_manager import END, LINEAGE, PROT, carve, put, vma_map
from ptanalyze.world.thread_placement import LiveCpus
from replay_cases import cases

pytestmark = pytest.mark.twin

EDGES = 70 * 64  # three levels of bit maps
WHERE = st.one_of(st.integers(0, 20), st.integers(4080, 4110), st.integers(0, EDGES - 1))
RANGE = st.tuples(WHERE, WHERE).map(sorted)


def runs(pages, start, end):
    """[(first page, one past the last, what they hold)] of a dict with one item a page."""
    found = []
    for page in (page for page in range(start, end) if page in pages):
        begins = not found or found[-1][1:] != (page, pages[page])
        found.append((page, page + 1, pages[page]) if begins else (found.pop()[0], page + 1, pages[page]))
    return found


def held(vmas):
    """The same of a VmaMap over edges that are pages."""
    begins = np.unpackbits(vmas.begins[0].view(np.uint8), bitorder="little")
    pieces = [(at, *vmas.edges[at, [END, LINEAGE, PROT]].tolist()) for at in np.flatnonzero(begins).tolist()]
    return [(start, end, what) for start, end, *what in pieces]


CALL = st.tuples(RANGE, st.sampled_from(["map", "unmap", "protect"]), st.integers(0, 3))


@given(st.lists(CALL, max_size=8))
def test_pieces_are_the_runs_of_a_dict_of_pages(calls):
    vmas, pages = vma_map(np.arange(EDGES)), {}
    for number, ((start, end), what, prot) in enumerate(calls):
        there = runs(pages, start, end)
        carve(vmas, start, end)
        new = {"map": [(start, end, [number % 3, prot])] if start < end else [], "unmap": []}
        new = new.get(what, [(lo, hi, [lineage, prot]) for lo, hi, (lineage, _) in there])
        for lo, hi, piece in new:
            put(vmas, lo, hi, *piece)
        for page in range(start, end):
            pages.pop(page, None)
        pages |= {page: piece for lo, hi, piece in new for page in range(lo, hi)}
        assert held(vmas) == runs(pages, 0, EDGES)


@given(cases())
def test_live_cpus_are_those_of_threads_that_have_started_and_not_ended(case):
    trace, placement = case.trace, case.placement
    live = LiveCpus(trace, placement)
    found = live.others(np.arange(len(trace.events)))
    for number, cpu in enumerate(placement.event_cpu.tolist()):
        assert found[number].tolist() == live_cpus(trace, placement, number, cpu, found.shape[1])
