"""Samples of a trace: what they hold, what they stand for, and what is never sampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from naive.sample import kept_touches
from ptanalyze.core.errors import UsageError
from ptanalyze.core.jackknife import margin, share_bounds
from ptanalyze.core.machine import Cache
from ptanalyze.core.sample import Sample, sample_of
from ptanalyze.core.trace import Event
from ptanalyze.core.walks import Regions
from ptanalyze.world.chosen_regions import chosen_regions
from ptanalyze.world.moves import Moves
from ptanalyze.world.region_walks import RegionWalks
from ptanalyze.world.sampling import chosen_sets, classes, must_allow, recorded_sets
from ptanalyze.world.site import Site
from ptanalyze.world.steady_part import SteadyPart
from ptanalyze.world.thinned_walks import ThinnedWalks
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import PAGE, REGION, build_snapshot, build_trace, place, small_machine, small_tlb

pytestmark = pytest.mark.twin

GIB = 1 << 30
TLB = small_tlb((16, 1), (48, 3), (16, 1))
PAGES = [GIB + region * REGION + slot * PAGE for region in range(5) for slot in range(40)]
HUGE = GIB + 5 * REGION
RANGES = st.sampled_from([PAGE, 3 * PAGE, 16 * PAGE, 40 * PAGE, REGION, 3 * REGION])


@st.composite
def traces(draw):
    """Two threads on pages of 4 KiB and a huge one, with shootdowns between."""
    page = st.sampled_from([*PAGES, HUGE, HUGE + 7 * PAGE])
    chunks = draw(st.lists(st.tuples(st.integers(0, 1), st.lists(page, max_size=60)), min_size=1, max_size=8))
    chunks = [(0, [*PAGES[::7], HUGE]), *chunks]
    where = st.tuples(st.integers(1, len(chunks)), st.sampled_from(PAGES), RANGES)
    gone = sorted(draw(st.lists(where, max_size=5)))
    events = [(chunk, 0, Event.MUNMAP, (start, length), 0) for chunk, start, length in gone]
    return build_trace(chunks, events)


def site(trace, sample=None):
    snapshot = build_snapshot([(va, va >> 12) for va in PAGES] + [(HUGE, 1 << 20, 2)])
    return Site(snapshot, trace, small_machine(2, TLB), place(trace, 2, 2), sample=sample_of(sample))


def filtered(trace, sample=None):
    """(WalkStream, Sampling, AddressSpace) of a sample that the analysis takes."""
    found = site(trace, sample)
    return found.stream, found.sampling, found.space


def recorded(trace, sample, tlb=TLB, **how):
    """The same where the trace was recorded as a sample."""
    space = site(trace).space
    known = recorded_sets(sample_of(sample), space.regions, tlb)
    return TlbFilter(trace, space, place(trace, 2, 2), tlb, sampling=known, **how).first(), known, space


def walks_of(stream, known):
    """int64[groups + 1]"""
    return np.bincount(known.of(stream.page), minlength=known.outside + 1)


@pytest.mark.parametrize("rate", ["sets:1/4", "regions:1/2"])
@settings(max_examples=8, deadline=None)
@given(trace=traces())
def test_complementary_samples_add_up_to_the_walks_of_the_trace(rate, trace):
    whole, _, _ = filtered(trace)
    pages, counts = np.zeros(0, np.uint32), 0
    for which in range(int(rate.partition("/")[2])):
        stream, known, _ = filtered(trace, f"{rate}@{which}")
        inside = known.of(stream.page) != known.outside
        pages = np.concatenate([pages, stream.page[inside]])
        counts += int(inside.sum())
        assert np.array_equal(stream.hits, whole.hits)
        assert np.array_equal(stream.whole.by_chunk, np.diff(whole.offset))
    assert counts == len(whole) and np.array_equal(np.sort(pages), np.sort(whole.page))


@pytest.mark.parametrize("rate", ["sets:1/4", "regions:1/4"])
@settings(max_examples=8, deadline=None)
@given(trace=traces())
def test_a_thinned_stream_is_that_of_the_naive_twin(rate, trace):
    stream, known, space = filtered(trace, rate)
    whole, _, _ = filtered(trace)
    assert [stream.page.tolist(), np.diff(stream.offset).tolist()] == kept_touches(trace, whole, known, space)


@settings(max_examples=8, deadline=None)
@given(trace=traces())
def test_sets_that_were_recorded_have_the_walks_that_they_have_among_all_sets(trace):
    before, known, space = recorded(trace, "sets:1/4")
    after = ThinnedWalks(trace, space.regions, place(trace, 2, 2), known).first(filtered(trace)[0])
    split, _, _ = recorded(trace, "sets:1/4", threads=8, batch=30)  # 4 parts of each TLB
    inside = int((known.of(before.page) != known.outside).sum())
    assert before.hits[:, 2].sum() == inside
    for name in ("page", "write", "offset"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
    for name in ("page", "write", "offset", "hits"):
        assert np.array_equal(getattr(split, name), getattr(before, name))


@settings(max_examples=8, deadline=None)
@given(trace=traces())
def test_every_first_walk_to_a_page_stays_wherever_it_is_sampled(trace):
    whole, _, _ = filtered(trace)
    for rate in ("sets:1/16", "regions:1/4"):
        stream, _, _ = filtered(trace, rate)
        assert list(dict.fromkeys(stream.page.tolist())) == list(dict.fromkeys(whole.page.tolist()))


@pytest.mark.parametrize("one_in", [2, 4, 8, 16])
def test_sets_hold_whole_cache_lines_whose_numbers_go_to_other_sets_than_those_left_out(one_in):
    page = np.arange(6 << 9, dtype=np.uint32)
    space, number = site(build_trace([(0, [*PAGES, HUGE])])).space, page // 8 % 16
    taken = np.zeros(16, int)
    for which in range(one_in):
        known = chosen_sets(Sample("sets", one_in, which), space.regions)
        group = known.of(page).reshape(-1, 8)
        assert (group == group[:, :1]).all(), "eight entries that share a line are in one group"
        small = known.of(page[: 5 << 9])
        inside = np.unique(number[: 5 << 9][small != known.outside])
        taken[inside] += 1
        assert (
            len(inside) == 16 // one_in
            and not np.isin(number[: 5 << 9][small == known.outside], inside).any()
        )
        for region in small.reshape(5, 512):
            each = np.bincount(region, minlength=known.outside + 1)[:-1]
            assert known.outside in (4, 8) and (each == 512 // one_in // known.outside).all()
        huge = known.of(page[5 << 9 :])
        line = int(space.regions.va[5]) // 8 % 16
        assert (huge == huge[0]).all() and (huge[0] != known.outside) == (line in inside)
    assert (taken == 1).all()


def test_groups_of_sets_do_not_go_by_the_place_in_a_table():
    va = np.arange(1 << 12, dtype=np.uint64)
    size = np.ones(len(va), np.uint8)
    known = chosen_sets(Sample("sets", 8), Regions(va, va, size, va, size))
    first = int(np.flatnonzero(known.slot != known.outside)[0])
    groups = known.of((np.arange(len(va)) * 512 + first).astype(np.uint32))
    assert np.bincount(groups, minlength=8).min() > 400


def test_the_second_run_is_thinned_too():
    trace = build_trace([(0, PAGES * 2), (1, PAGES)])

    def again(sample):
        found = site(trace, sample)
        vars(found)["steady"] = SteadyPart(1, 0, "")
        assert len(found.stream)
        return found.again_stream, found.sampling

    for unit in ("sets:1/4", "regions:1/2"):
        counted = []
        for which in range(int(unit[-1])):
            stream, known = again(f"{unit}@{which}")
            assert not walks_of(stream, known)[-1], "nothing is touched for the first time again"
            counted.append(len(stream))
        assert sum(counted) == len(again(None)[0]) > 0


def test_classes_of_a_sample_are_closed_under_smaller_arrays():
    for sets in (4, 8, 16):
        for one_in in (2, 4, 8, 16):
            if one_in > sets:
                continue
            chosen = [classes(Sample("sets", one_in, which), sets) for which in range(one_in)]
            assert sorted(np.concatenate(chosen).tolist()) == list(range(16))
            remainders = [set((own % sets).tolist()) for own in chosen]
            assert sum(map(len, remainders)) == len(set().union(*remainders)) == sets


@pytest.mark.parametrize(
    ("tlb", "sample", "why"),
    [
        (small_tlb((64, 64), (96, 6)), "sets:1/2", "tlb.l1_4k has 1 sets"),
        (small_tlb((64, 4), (96, 6), (16, 4)), "sets:1/8", "tlb.l1_2m has 4 sets"),
        (small_tlb((64, 4), (36, 3), (32, 2)), "sets:1/8", "tlb.l2 has 12 sets"),
    ],
)
def test_recorded_sets_that_touch_the_others_are_refused(tlb, sample, why):
    with pytest.raises(UsageError, match=why) as refused:
        recorded(build_trace([(0, [*PAGES, HUGE])]), sample, tlb)
    assert "record the whole trace" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["sets", "sets:1/3", "sets:1/32", "regions:1/2048", "regions:2/4", "pages:1/2", "sets:1/4@4", "sets:1/1"],
)
def test_other_words_and_rates_are_refused_in_a_line(text):
    with pytest.raises(UsageError, match=f"sample = {text}"):
        sample_of(text)


def test_what_was_asked_for_is_written_as_it_was_asked():
    assert [str(sample_of(text)) for text in ("sets:1/8", "regions:1/1024@7")] == [
        "sets:1/8",
        "regions:1/1024@7",
    ]
    assert sample_of("") is None and sample_of(sample_of("sets:1/2")) == Sample("sets", 2)


def test_samples_are_not_sampled_and_do_not_move():
    trace = build_trace([(0, PAGES)])
    trace.facts["sampled"] = True
    with pytest.raises(UsageError, match="holds samples already"):
        filtered(trace, "regions:1/2")
    trace.facts.clear()
    with pytest.raises(UsageError, match="NUMA balancing"):
        must_allow(Sample("regions", 2), trace, Moves(autonuma=True))


def test_too_few_walks_for_an_interval_are_refused():
    stream, known, _ = filtered(build_trace([(0, [GIB])]), "sets:1/8")
    with pytest.raises(UsageError, match="too few to tell its error; sample regions"):
        known.weights(stream)


def test_a_margin_is_that_of_independent_groups():
    """Of a mean of n values the jackknife's variance is that of the values / n."""
    values = np.array([3.0, 5.0, 4.0, 9.0, 1.0])
    left_out = [np.delete(values, k).mean() for k in range(5)]
    expected = 2.776 * np.sqrt(values.var(ddof=1) / 5)
    assert margin(left_out, 10**9) == pytest.approx(expected, rel=1e-6)
    assert margin(left_out, 2) == pytest.approx(expected / np.sqrt(2), rel=1e-6)


def test_bounds_of_a_share_are_its_textbook_interval_and_no_less_than_nothing():
    values = np.random.default_rng(2).uniform(0.4, 0.6, 10)
    left_out = (values.sum() - values) / 9
    half = 2.262 * values.std(ddof=1) / 10**0.5
    assert np.allclose(share_bounds(values.mean(), left_out), [values.mean() - half, values.mean() + half])
    assert np.allclose(share_bounds(np.zeros(()), left_out - 0.3), [0, half])


@pytest.mark.parametrize(("sets", "closed"), [(416, 416), (100, 96), (106, 112), (6, 6)])
def test_caches_of_sets_keep_their_size_in_sets_that_sixteen_divides(sets, closed):
    cache = Cache(bytes=sets * 3 * 64 * 10, ways=3, share=0.1, cycles=9)
    assert cache.lines == sets * 3
    machine = structs.replace(small_machine(2, TLB), l2=cache, llc=cache)
    _, known, _ = filtered(build_trace([(0, PAGES)]), "sets:1/4")
    found = known.on(machine)
    assert (found.l2.lines, found.llc.lines, found.walk_caches) == (
        closed * 3,
        closed * 3,
        machine.walk_caches,
    )


def test_caches_of_regions_have_their_part_and_the_lines_above_the_leaves_that_are_read_all_the_same():
    va = np.arange(64, dtype=np.uint64)
    walks = RegionWalks(np.full((64, 1), 9), np.zeros(64, np.int16))
    cache = Cache(bytes=100 * 4 * 64 * 2, ways=4, share=0.5, cycles=9)
    machine = structs.replace(small_machine(2, TLB), l2=cache, llc=cache)
    for apart, beyond in (
        (1, 7),
        (8, 0),
    ):  # one of eight in each line of upper entries, or in a line of its own
        known = chosen_regions(Sample("regions", 8), va * np.uint64(apart), np.zeros(64, np.int16), walks)
        assert known.beyond == beyond
        assert known.on(machine).llc.lines == (400 / 8 + beyond) // 4 * 4
