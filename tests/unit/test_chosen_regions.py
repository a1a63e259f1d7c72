"""Which regions a sample holds, what they are scaled by, and that this is what sampling theory says it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.sample import Sample
from ptanalyze.core.walks import Placement, WalkStream
from ptanalyze.world.chosen_regions import GROUPS, chosen_regions, kinds, of_regions, strata
from ptanalyze.world.equal_regions import equal_regions, must_be_worth_enough
from ptanalyze.world.part import Weights
from ptanalyze.world.region_walks import RegionWalks, region_walks

pytestmark = pytest.mark.twin

NODES = 3


def walked(rng, regions, most=1000):
    """(va, node of leaf tables, RegionWalks) of regions, some of which are not walked."""
    by_node = rng.integers(0, most, (regions, NODES)) * (rng.random((regions, 1)) < 0.9)
    first = np.where(by_node.any(axis=1), by_node.argmin(axis=1), -1).astype(np.int16)
    va = rng.permutation(regions * 3)[:regions].astype(np.uint64)
    return va, rng.integers(0, NODES, regions).astype(np.int16), RegionWalks(by_node, first)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 400), st.sampled_from([2, 4, 8, 64]), st.integers(0, 99))
def test_samples_hold_each_walked_region_once_and_as_many_of_a_stratum(regions, one_in, seed):
    va, node, walks = walked(np.random.default_rng(seed), regions)
    samples = [chosen_regions(Sample("regions", one_in, k), va, node, walks) for k in range(one_in)]
    held = np.array([one.region != one.outside for one in samples])
    assert np.array_equal(held.sum(axis=0), walks.total > 0)
    for one, own in zip(samples, held, strict=True):
        assert one.outside == GROUPS * one.strata
        assert np.array_equal(one.region[own] % one.strata, one.stratum[own])
        number = np.bincount(one.stratum[own], minlength=one.strata)
        each = np.bincount(one.stratum[walks.total > 0], minlength=one.strata) / one_in
        assert (abs(number - each) < 2).all(), "blocks reach over two ends of a stratum"
        groups = np.bincount(one.region[own] // one.strata, minlength=GROUPS)
        assert groups.max() - groups.min() <= 1


def test_one_of_each_n_neighbours_is_in_a_sample_whatever_the_program_does_at_a_stride():
    va, one = np.arange(4096, dtype=np.uint64), np.zeros(4096, np.int16)
    walks = RegionWalks(np.full((4096, 1), 7), one)
    known = chosen_regions(Sample("regions", 8, 3), va, one, walks)
    held = known.region != known.outside
    assert (held.reshape(-1, 8).sum(axis=1) == 1).all()
    assert np.bincount(np.flatnonzero(held) % 8).min() > 40, "not the same one of each eight"


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(0, 99))
def test_kinds_are_those_of_one_region_at_a_time(regions, seed):
    rng = np.random.default_rng(seed)
    keys, walks = rng.integers(0, 3, (2, regions)), rng.integers(1, 4 ** rng.integers(1, 9, regions))
    found, same = kinds(keys, walks), {}
    for k in range(regions):
        most = max(walks[j] for j in range(regions) if (keys[:, j] == keys[:, k]).all())
        power = 0
        while walks[k] * 4 ** (power + 1) <= most:
            power += 1
        same.setdefault((*keys[:, k].tolist(), power), set()).add(int(found[k]))
    assert all(len(numbers) == 1 for numbers in same.values())
    assert len(set.union(*same.values())) == len(same)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 8))
def test_strata_are_whole_kinds_and_none_is_small(lengths, least):
    kind = np.repeat(np.arange(len(lengths)), lengths)
    found = strata(kind, least)
    expected, number, size = [], 0, 0
    for at, length in enumerate(lengths):
        if size >= least and sum(lengths[at:]) >= least:
            number, size = number + 1, 0
        size += length
        expected += [number] * length
    assert found.tolist() == expected
    assert len(kind) < least or np.bincount(found).min() >= least


def weights_of(known, total):
    """Weights of a sample of regions with so many walks."""
    cell = known.region.astype(np.int64)
    walks = np.bincount(cell, total, known.outside + 1)[:-1].reshape(-1, known.strata)
    return Weights(walks.astype(np.int64), walks, np.bincount(known.stratum, total, known.strata))


def test_strata_are_scaled_each_by_itself_as_a_separate_ratio_estimator_is():
    va, node, walks = walked(np.random.default_rng(5), 300)
    known = chosen_regions(Sample("regions", 4), va, node, walks)
    weights, reads = weights_of(known, walks.total), np.random.default_rng(6).integers(0, 500, 300)
    column = np.bincount(known.region, reads, known.outside + 1).astype(np.int64)
    for without in (None, 0, 11):
        expected = 0.0
        for stratum in range(known.strata):
            own = (known.region != known.outside) & (known.stratum == stratum)
            if without is not None:
                own &= known.region // known.strata != without
            expected += (
                walks.total[known.stratum == stratum].sum() / walks.total[own].sum() * reads[own].sum()
            )
        assert weights.whole(column, without).tolist() == [round(expected)]
        assert weights.estimate(without) == walks.total.sum(), "known, whatever is left out"


def test_the_mean_over_all_samples_is_the_whole_where_regions_are_walked_alike():
    regions, one_in = 512, 8
    node = np.repeat([0, 1], [384, 128]).astype(np.int16)
    walks = RegionWalks(np.full((regions, 1), 100), np.zeros(regions, np.int16))
    reads = np.random.default_rng(1).integers(0, 99, regions)
    estimates = []
    for which in range(one_in):
        va = np.arange(regions, dtype=np.uint64)
        known = chosen_regions(Sample("regions", one_in, which), va, node, walks)
        assert known.strata == 2
        column = np.bincount(known.region, reads, known.outside + 1).astype(np.int64)
        estimates.append(int(weights_of(known, walks.total).whole(column)[0]))
    assert np.mean(estimates) == reads.sum() and len(set(estimates)) > 1


def test_walks_of_nodes_that_are_known_are_those_of_the_sample():
    """What one node walks of tables on another is a stratum of its own: the share of remote is exact."""
    regions = 400
    node = (np.arange(regions) % 4 == 0).astype(np.int16)
    by_node = np.stack([np.where(node, 30, 90), np.where(node, 10, 30)], axis=1)
    va = np.random.default_rng(3).permutation(regions).astype(np.uint64)
    for which in range(16):
        walks = RegionWalks(by_node, np.zeros(regions, np.int16))
        known = chosen_regions(Sample("regions", 16, which), va, node, walks)
        remote = np.where(node, by_node[:, 0], by_node[:, 1])
        column = np.bincount(known.region, remote, known.outside + 1).astype(np.int64)
        assert weights_of(known, walks.total).whole(column).tolist() == [remote.sum()]


def test_a_stratum_that_is_not_there_is_shared_out_among_the_others():
    walks = np.array([[10, 0], [10, 5]])
    weights = Weights(walks, walks.astype(float), np.array([60.0, 40.0]))
    assert weights.scales().tolist() == [3, 8]
    assert weights.scales(without=1).tolist() == [10, 0]
    assert weights.of_cells.tolist() == [3, 8, 3, 8, 0]
    assert weights.estimate(1) == 100


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5 << 9), max_size=9), max_size=9))
def test_walks_of_regions_are_counted_one_by_one(chunks):
    page = np.array([one for chunk in chunks for one in chunk], np.uint32)
    offset = np.cumsum([0, *map(len, chunks)])
    cpu = (np.arange(len(chunks)) % 4).astype(np.int32)
    placement = Placement(cpu, np.array([0, 1, 2, 1], np.int16), cpu[:0], "")
    stream = WalkStream(page, np.zeros(len(page), bool), offset, np.zeros((4, 3), np.int64))
    expected, first = np.zeros((6, 3), np.int64), [-1] * 6
    for which, chunk in enumerate(chunks):
        for one in chunk:
            node = [0, 1, 2, 1][which % 4]
            expected[one >> 9, node] += 1
            first[one >> 9] = node if first[one >> 9] < 0 else first[one >> 9]
    found = region_walks(stream, placement, 6)
    assert np.array_equal(found.by_node, expected) and found.first.tolist() == first
    assert np.array_equal(found.total, expected.sum(axis=1))


def test_the_same_regions_are_found_under_other_numbers():
    va, node, walks = walked(np.random.default_rng(8), 200)
    known = chosen_regions(Sample("regions", 4, 1), va, node, walks)
    wanted = np.append(va[::-1][:150], np.uint64(10**6))
    found = of_regions(known, va, wanted)
    assert of_regions(known, va, va) is known
    assert found.region.tolist() == [*known.region[::-1][:150].tolist(), known.outside]
    assert found.stratum[:150].tolist() == known.stratum[::-1][:150].tolist()


def test_unequal_regions_are_worth_fewer_equal_ones():
    assert equal_regions(np.full(64, 7)) == pytest.approx(64)
    assert equal_regions(np.array([9, 0, 0])) == pytest.approx(1)
    assert equal_regions(np.array([3, 1])) == pytest.approx(16 / 10)


def test_a_sample_that_is_worth_too_few_regions_is_refused_in_a_line():
    must_be_worth_enough(Sample("regions", 8), np.full(64, 7))
    must_be_worth_enough(Sample("regions", 8), np.zeros(4, np.int64))
    with pytest.raises(UsageError, match=r"regions:1/8: one in 8 of 63 regions.* is worth 7\.9") as few:
        must_be_worth_enough(Sample("regions", 8), np.full(63, 7))
    assert "name a larger part" in str(few.value) and "\n" not in str(few.value)
    skewed = np.append(np.full(1000, 1), 900)
    with pytest.raises(UsageError, match=r"of 1,001 regions, whose walks differ, is worth 2\.2 equal ones"):
        must_be_worth_enough(Sample("regions", 2), skewed)
