"""Walks of a trace that was recorded as a sample of sets: scaled by the pages that the program touches."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from test_sample import HUGE, PAGES, traces

from ptanalyze.core.sample import sample_of
from ptanalyze.core.trace import REGION_SHIFT, SLOT_BITS
from ptanalyze.world.sampling import recorded_classes
from ptanalyze.world.site import Site
from ptanalyze.world.steady_part import SteadyPart
from strategies import PAGE, build_snapshot, build_trace, place, small_machine, small_tlb

pytestmark = pytest.mark.twin

TLB = small_tlb((16, 1), (48, 3), (16, 1))
GIB = 1 << 30


def site(trace, sample, mapped=None):
    snapshot = build_snapshot(mapped or [(va, va >> 12) for va in PAGES] + [(HUGE, 1 << 20, 2)])
    whole, one = Site(snapshot, trace, small_machine(2, TLB), place(trace, 2, 2)), sample_of(sample)
    part = replace(trace, facts={**trace.facts, "sample": sample})
    return whole, Site(snapshot, part, small_machine(2, TLB), place(trace, 2, 2), sample=one)


def naive_pages(trace, sample):
    """Pages touched, in the sample and outside: huge ones count once, by their own number."""
    touched = set()
    for batch in trace.batches(1):
        for page in batch.page.tolist():
            address = int(trace.regions[page >> SLOT_BITS]) << REGION_SHIFT | (page & 511) << 12
            touched.add((address >> 21, "huge") if address >= HUGE else (address >> 12, "small"))
    held = set(recorded_classes(sample_of(sample)).tolist())
    inside = sum(number % 16 in held for number, _ in touched)
    return inside, len(touched) - inside


@settings(max_examples=10, deadline=None)
@given(trace=traces())
def test_pages_are_those_that_the_program_touches(trace):
    for sample in ("sets:1/2", "sets:1/4@1", "sets:1/16@5"):
        _, part = site(trace, sample)
        pages = part.stream.pages
        assert (int(pages[:-1].sum()), int(pages[-1])) == naive_pages(trace, sample)


def strided(stride, others):
    """Two rounds over 640 pages, a `stride` apart, and once over some next to each other; twice each."""
    far = [GIB + k * stride * PAGE for k in range(640) for _ in range(2)]
    near = [GIB + (8 << 30) + k * PAGE for k in range(others) for _ in range(2)]
    trace = build_trace([(0, far), (0, near), (0, far)])
    return trace, [(va, va >> 12) for va in dict.fromkeys([*far, *near])]


@pytest.mark.parametrize("rate", ["sets:1/2", "sets:1/4", "sets:1/8"])
def test_walks_of_a_program_that_strides_are_not_multiplied_by_the_rate(rate):
    """All its walks are in one class of sixteen: rate times as many would be 100 to 700 % too many."""
    trace, mapped = strided(16, 64)
    for which in range(int(rate[-1])):
        whole, part = site(trace, f"{rate}@{which}", mapped)
        if 0 in recorded_classes(part.sample):
            walks = len(whole.stream)
            assert whole.walks == walks == 2 * 640 + 64
            assert part.walks == pytest.approx(walks, rel=0.05)
            assert part.hits.sum() == whole.hits.sum()


def test_walks_of_pages_next_to_each_other_are_multiplied_by_the_rate():
    trace, mapped = strided(1, 0)
    for which in range(4):
        whole, part = site(trace, f"sets:1/4@{which}", mapped)
        assert part.walks == whole.walks == 2 * 640
        assert part.hits.tolist() == whole.hits.tolist()
        np.testing.assert_allclose(part.weights.scales(), 4)


def test_a_further_run_is_scaled_as_the_first():
    trace, mapped = strided(16, 64)
    name = next(f"sets:1/8@{k}" for k in range(8) if 0 in recorded_classes(sample_of(f"sets:1/8@{k}")))
    _, part = site(trace, name, mapped)
    vars(part)["steady"] = SteadyPart(2, 0, "")
    assert part.sampling.weights(part.again_stream).scales() == part.weights.scales()
    assert part.sampling.weights(part.again_stream).estimate() == pytest.approx(640, rel=0.1)
