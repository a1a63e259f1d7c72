"""Samples of accessed bits, of one process and of several."""

import os
from collections import Counter
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import evenly, member, write_bits, write_rounds
from naive.classify import host_node, leaves, vma_of
from ptanalyze import classify
from ptanalyze.analysis import counting, verdict
from ptanalyze.analysis.classify import classified
from ptanalyze.analysis.leaf_classes import classify_heat
from ptanalyze.analysis.setup import Setup, weighed
from ptanalyze.analysis.whatif import replay, replay_snapshot
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.describe import describe
from ptanalyze.core.errors import CaptureError, RefusedError, UsageError
from ptanalyze.core.interval import margins, share_bounds
from ptanalyze.core.snapshot import BATCHES, rates
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.heat import HEADER_DTYPE, costs, read_heat
from ptanalyze.formats.record import seal
from ptanalyze.formats.snapshot import write_snapshot
from ptanalyze.show.classify import view
from ptanalyze.world.address_space import address_space
from ptanalyze_formats.redact import NO_TIME, redact
from ptanalyze_host.heat import LENGTHS, leave_out
from strategies import FRAMES_PER_NODE, PAGE, REGION, build_snapshot, small_machine, snapshots

pytestmark = pytest.mark.twin

# Samples of accessed bits: the file, the rates they stand for, and locality and what-if weighted by them.

HEAP = 1 << 30
NOWHERE = np.zeros(0, np.uint64)
GIB = 1 << 30
AT = st.tuples(st.integers(0, 2000), st.integers(1, 3))
SOME_PAGES = AT.map(lambda at: (at[0] << 3 + 9 * at[1], at[1]))
SAMPLE = st.tuples(st.sampled_from([1, 10, 100]), st.sets(SOME_PAGES, max_size=20))
SAMPLES = st.lists(SAMPLE, min_size=1, max_size=30)


def found_in(path):
    heat = read_heat(path)
    rows = zip(heat.address.tolist(), heat.level.tolist(), heat.seen.sum(axis=1).tolist(), strict=True)
    return heat, {(address, level): seen for address, level, seen in rows}


@settings(max_examples=30, deadline=None)
@given(SAMPLES)
def test_a_file_counts_the_samples_in_which_each_page_was_used(tmp_path_factory, samples):
    heat, found = found_in(write_bits(tmp_path_factory.mktemp("heat") / "heat.bits", samples))
    lengths = sorted({ms for ms, _ in samples})
    counted = Counter((page, ms) for ms, pages in samples for page in pages)
    assert found == {page: [counted[page, ms] for ms in lengths] for page, _ in counted}
    assert heat.samples.sum(axis=0).tolist() == [sum(ms == one for ms, _ in samples) for one in lengths]
    assert np.allclose(heat.seconds, np.array(lengths) / 1e3)
    first = [pages for k, (_, pages) in enumerate(samples) if k * BATCHES // len(samples) == 0]
    assert heat.seen[:, 0].sum() == sum(map(len, first))


def test_an_unfinished_sample_is_left_out(tmp_path):
    path = write_bits(tmp_path / "heat.bits", [(10, {(PAGE, 1)}), (10, {(PAGE, 1), (2 * PAGE, 1)})])
    path.write_bytes(path.read_bytes()[:-130])
    heat, found = found_in(path)
    assert found == {(PAGE, 1): [1]} and heat.samples.sum() == 1
    assert costs(path)["samples"] == 1


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (0, b"X", "magic"),
        (8, b"\2", "version = 2: expected 3 .*sample again"),
        (8, b"\4", "version"),
        (512, b"\1", "base"),
        (520, b"\4", "level"),
        (528, b"\1" + bytes(7), "window"),
        (600 + 24, bytes(8), "sample"),
        (None, 100, "size"),
        (None, 512, "samples"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_its_field(tmp_path, at, value, field):
    path = write_bits(tmp_path / "heat.bits", [(10, {(PAGE, 1)})])
    data = bytearray(path.read_bytes())
    if at is None:
        data = data[:value]
    else:
        data[at : at + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(CaptureError, match=field):
        read_heat(path)


def test_rates_of_walks_at_random_times_are_found_over_six_decades():
    seconds, samples = np.array([0.001, 0.01, 0.1, 1.0]), np.full(4, 200)
    true = 10.0 ** np.arange(-2, 4)
    chance = 1 - np.exp(-true[:, None] * seconds)
    seen = np.random.default_rng(1).binomial(samples, chance, (300, len(true), 4))
    found = rates(seen.reshape(-1, 4), samples, seconds).reshape(300, -1)
    assert np.allclose(np.median(found, axis=0), true, rtol=0.25)
    assert rates(np.zeros((1, 4), int), samples, seconds) == 0


@pytest.mark.parametrize("rate", [1, 3, 10, 30, 100, 250])
def test_walks_at_equal_intervals_count_a_fifth_more_at_most(rate):
    seconds, samples = np.array([1, 4, 17, 72, 300]) / 1e3, np.full(5, 20)
    seen = np.random.default_rng(4).binomial(samples, np.minimum(rate * seconds, 1), (1000, 5))
    assert 1 < rates(seen, samples, seconds).mean() / rate < 1.22


def test_readings_that_came_late_count_by_their_windows(tmp_path):
    random, calls = np.random.default_rng(5), count()
    rounds = [{HEAP + k * PAGE: at for k, at in enumerate(random.exponential(10, 512))} for _ in range(40)]

    def window(_, ms):
        return max(ms, 60) if next(calls) // len(LENGTHS) % 2 else ms

    heat = read_heat(write_rounds(tmp_path / "heat.bits", rounds, LENGTHS, window=window))
    assert heat.walks.mean() / heat.sampled_seconds == pytest.approx(100, rel=0.1)


def test_one_length_alone_has_the_closed_form():
    found = rates(np.array([[5], [10]]), np.array([20]), np.array([0.5]))
    assert np.allclose(found, np.log(20.5 / (20.5 - np.array([5, 10]))) / 0.5)
    every = rates(np.array([[20]]), np.array([20]), np.array([0.5]))
    assert np.allclose(every, np.log(20.5 / 0.5) / 0.5)  # half a sample is taken to have missed it


@pytest.mark.parametrize("lengths", [[0.03], [0.16, 0.17, 0.26, 1.2], [0.001, 0.01, 0.1, 1.0]])
@pytest.mark.parametrize("rate", [0.3, 2.5, 10.0])
def test_of_few_samples_rates_are_neither_too_high_nor_too_low_on_average(lengths, rate):
    seconds, samples = np.array(lengths), np.full(len(lengths), 4)
    seen = np.random.default_rng(2).binomial(samples, 1 - np.exp(-rate * seconds), (40_000, len(lengths)))
    patterns, times = np.unique(seen, axis=0, return_counts=True)
    assert rates(patterns, samples, seconds) @ times / len(seen) == pytest.approx(rate, rel=0.06)


@pytest.mark.parametrize("rate, longer", [(4, (10, 40)), (40, (40,))])
def test_a_window_begins_when_its_table_was_cleared_in_samples_of_each_length(tmp_path, rate, longer):
    """The first of two areas used alike has windows longer by 60 ms, in samples of all lengths or of one.

    Taken for as long as the sample, they give it twice the walks or more.
    """
    random, samples = np.random.default_rng(3), []
    for ms in (10, 40) * 100:
        used = set()
        for area, window in ((HEAP, ms + 60 * (ms in longer)), (2 * HEAP, ms)):
            hit = np.flatnonzero(random.random(512) < 1 - np.exp(-rate * window / 1e3))
            used |= {(area + page * PAGE, 1) for page in hit.tolist()}
        samples.append((ms, used))
    path = write_bits(
        tmp_path / "heat.bits", samples, 60 * 10**6, lambda base, ms: float(base == HEAP and ms in longer)
    )
    heat = read_heat(path)
    first = heat.address < 2 * HEAP
    of_each = np.array([heat.walks[first].sum(), heat.walks[~first].sum()])
    assert np.allclose(heat.seconds, [0.01, 0.04]) and np.allclose(heat.spread, 0.06)
    assert heat.sampled_seconds == pytest.approx(200 * 0.085)
    assert np.allclose(of_each, 512 * rate * heat.sampled_seconds, rtol=0.05)
    same = replace(heat, spread=np.zeros(2)).walks
    assert rate == 40 or same[first].sum() > 2 * same[~first].sum()


def test_a_page_seen_in_all_samples_is_known_as_saturated():
    heat = evenly({(HEAP, 1): 1, (HEAP + PAGE, 1): 0.5})
    assert heat.saturated.tolist() == [True, False]
    assert heat.walks[0] > heat.walks[1] >= 0.5 * 40


@settings(max_examples=20, deadline=None)
@given(snapshots(nodes=3), st.randoms(use_true_random=False))
def test_locality_by_heat_is_that_of_each_leaf_entry_times_its_walks(snapshot, random):
    pages = {
        (address, level): random.choice([0.25, 0.5, 1])
        for _, level, address, _ in leaves(snapshot.guest)
        if random.random() < 0.7
    }
    pages[(1 << 46) + (random.randrange(512) << 12), 1] = 0.5  # mapped no more
    snapshot = replace(snapshot, heat=evenly(pages))
    walks = {
        (int(a), int(level)): int(n)
        for a, level, n in zip(snapshot.heat.address, snapshot.heat.level, snapshot.heat.walks, strict=True)
    }

    def ours(address):
        vma = vma_of(snapshot, address)
        return vma == len(snapshot.vmas) or not snapshot.vmas["emulator"][vma]

    expected, mapped = Counter(), set()
    for table, level, address, frame in leaves(snapshot.guest):
        mapped.add((address, level))
        host = None if snapshot.native else host_node(snapshot, frame)
        if ours(address) and host != "unmapped":
            expected[int(snapshot.guest.node[table]), host or 0] += walks.get((address, level), 0)
    found = classify_heat(address_space(snapshot, NOWHERE))
    counts = found.counts[0, 0, : len(found.nodes)]
    assert {tuple(at): int(counts[tuple(at)]) for at in np.argwhere(counts).tolist()} == +expected
    gone = sum(n for page, n in walks.items() if page not in mapped and ours(page[0]))
    assert found.unresolved["page gone from the snapshot"] == gone > 0


def phases(first, second):
    """Heat of a program that uses one half of its pages, then the other."""
    heat = evenly({(page, 1): 0.5 for page in first | second})
    for seen, page in zip(heat.seen, heat.address.tolist(), strict=True):
        seen[: BATCHES // 2] *= page in first
        seen[BATCHES // 2 :] *= page in second
    return heat


def two_regions():
    """64 pages below a table on node 0, 64 below one on node 1."""
    pages = [(at + k * PAGE, k) for at in (HEAP, HEAP + REGION) for k in range(64)]
    return build_snapshot(pages, nodes=2, table_nodes=[0, 0, 0, 0, 1])


def test_phases_widen_the_interval_and_a_steady_program_has_none():
    snapshot = two_regions()
    low_half = {HEAP + k * PAGE for k in range(64)}
    high_half = {HEAP + REGION + k * PAGE for k in range(64)}
    steady = evenly({(page, 1): 0.5 for page in low_half | high_half})
    for heat, width in ((steady, 0.0), (phases(low_half, high_half), 0.3)):
        table = classify_heat(address_space(replace(snapshot, heat=heat), NOWHERE)).frame()
        assert np.allclose(table["share"], 0.5, atol=1e-3)  # walks are whole
        assert ((table["share_high"] - table["share_low"]) >= width).all()
        assert width or np.allclose(table["share_low"], table["share_high"], atol=1e-3)


def test_too_few_samples_leave_every_share_open(tmp_path):
    samples = [(10, {(HEAP, 1), (HEAP + REGION, 1)})] * (BATCHES - 1)
    few = read_heat(write_bits(tmp_path / "heat.bits", samples))
    table = classify_heat(address_space(replace(two_regions(), heat=few), NOWHERE)).frame()
    assert np.allclose(table["share"], 0.5, atol=0.02)  # of two pages with a walk more or less
    assert (table["share_low"] == 0).all() and (table["share_high"] == 1).all()
    notes = ask(replace(two_regions(), heat=few), [])[0].notes
    assert any(": 50 % of walks" in note for note in notes), "each table is local to one of two nodes"


def test_what_cannot_be_remote_has_no_interval_and_as_many_pages_are_shown_as_are_promised(tmp_path):
    used = {(HEAP + k * PAGE, 1) for k in range(1200)}
    few = read_heat(write_bits(tmp_path / "heat.bits", [(10, used)] * 4))
    alone = build_snapshot([(at, k) for k, (at, _) in enumerate(sorted(used))], nodes=1, table_nodes=[0] * 6)
    space = address_space(replace(alone, heat=few), NOWHERE)
    assert classify_heat(space).frame()[["share", "share_low", "share_high"]].nunique(axis=1).eq(1).all()
    shown = view([(classify_heat(space, by="page"), "Walks")], "page")
    assert max(len(one.rows) for one in shown) == 10, "each less than a thousandth of the walks"
    found = ask(space.snapshot, [("mitosis", {})])
    assert [any("remote leaf" in note for note in one.notes) for one in found] == [True, False]
    assert verdict.Workload(np.zeros(1, int), np.zeros(2, int)).name == "Thin"


def ask(snapshot, policies, **options):
    setup = Setup.of(machine=small_machine(2), costs="server-2020", **options)
    return replay_snapshot(snapshot, None, policies, setup)


def test_other_page_sizes_are_refused_where_accessed_bits_are_of_the_pages_as_they_were():
    whole = build_snapshot([(HEAP + k * PAGE, k) for k in range(512)], vmas=[(0, 1 << 47, "")])
    snapshot = replace(whole, heat=evenly({(HEAP, 1): 1.0}))
    with pytest.raises(RefusedError, match="accessed bits"):
        ask(snapshot, [("thp", {})])


def test_locality_by_page_has_each_used_page_with_its_walks_the_hottest_first():
    pages = {(HEAP, 1): 0.25, (HEAP + PAGE, 1): 1.0, (HEAP + REGION, 1): 0.5}
    snapshot = replace(two_regions(), heat=evenly(pages))
    classes = classify_heat(address_space(snapshot, NOWHERE), by="page")
    table = classes.frame()
    assert not {"share_low", "share_high"} & set(table.columns), "a page is in one place"
    counts = table[table["socket"] == 0].groupby("group", sort=False)["count"].sum()
    names = [f"{address:x}-{address + PAGE:x}" for address, _ in pages]
    assert [name.partition(" ")[0] for name in counts.index] == names
    assert counts.tolist() == snapshot.heat.walks.tolist()
    section = next(one for one in view([(classes, "Walks")], "page") if one.rows)
    assert [row["of"].partition(" ")[0] for row in section.rows][::2] == [names[1], names[2], names[0]]
    local = table[(table["class"] == "Local") & (table["share"] == 1)].set_index("group")["socket"]
    assert local.tolist() == [0, 0, 1]


@pytest.mark.parametrize("weight", ["walks", "heat", "x"])
def test_what_the_capture_lacks_is_refused(weight):
    with pytest.raises(UsageError, match=f"weight = {weight}"):
        weighed(two_regions(), None, weight)


def test_pages_whose_bits_the_kernel_does_not_clear_are_left_out(tmp_path):
    pages = {(GIB, 2), (GIB + REGION, 2), (GIB + 2 * REGION, 1)}
    path = write_bits(tmp_path / "heat.bits", [(10, pages), (10, pages)])
    assert leave_out(path, [(GIB, GIB + REGION)]) == 2
    assert found_in(path)[1] == {(GIB + REGION, 2): [2], (GIB + 2 * REGION, 1): [2]}
    assert len(path.read_bytes()) > HEADER_DTYPE.itemsize and leave_out(path, []) == 0


def test_a_capture_with_samples_is_described_checked_and_redacted_with_them(tmp_path):
    (app := tmp_path / "app").mkdir()
    write_snapshot(app, two_regions())
    write_bits(app / "heat.bits", [(10, {(HEAP, 1), (1 << 40, 1)}), (100, {(HEAP, 1)})] * 10)
    seal(app, "process", {})
    capture = open_capture(app)
    said = describe(capture)["heat"]
    assert said["samples"] == 20 and said["lengths as measured (ms)"] == "10 of 10, 10 of 100"
    finding = next(one for one in check_capture(capture) if one.name.startswith("heat"))
    assert (finding.examined, finding.wrong) == (2, 1)
    redact(capture, tmp_path / "redacted")
    files = [tmp_path / "redacted", *(tmp_path / "redacted").iterdir()]
    assert {path.stat().st_mtime for path in files} == {NO_TIME}
    for snapshot in (capture.snapshot, open_capture(tmp_path / "redacted").snapshot):
        table = classified(capture, "heat", "all", Setup.of())[0].frame()
        assert table["count"].max() == snapshot.heat.walks[0]


def test_of_heat_only_finished_samples_are_copied(tmp_path):
    """A header of words and a sample without an end are whatever their writer put there."""
    (tmp_path / "own").mkdir()
    write_snapshot(tmp_path / "own", build_snapshot([(REGION, 9)]))
    file = write_bits(tmp_path / "own" / "heat.bits", [(1, {(REGION, 1)}), (10, {(REGION, 1)})])
    whole = bytearray(file.read_bytes())
    whole[100:106] = b"secret"
    unfinished = REGION.to_bytes(8, "little") + (1).to_bytes(8, "little") + b"secret!!" * 8
    file.write_bytes(bytes(whole) + unfinished + b"secret")
    seal(tmp_path / "own", "process", {})
    redact(open_capture(tmp_path / "own"), tmp_path / "shared")
    assert b"secret" not in (tmp_path / "shared" / "heat.bits").read_bytes()
    one, other = (read_heat(tmp_path / name / "heat.bits") for name in ("own", "shared"))
    assert all(np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True))


def test_a_hole_is_no_sample_and_not_read_to_its_end(tmp_path):
    file = write_bits(tmp_path / "heat.bits", [(1, {(REGION, 1)})])
    os.truncate(file, 1 << 40)
    with pytest.raises(CaptureError, match="sample = empty: samples last"):
        read_heat(file)


def test_a_margin_is_that_of_independent_groups():
    """The jackknife's variance of a mean of n values is that of the values / n."""
    values = np.array([3.0, 5.0, 4.0, 9.0, 1.0])
    left_out = np.array([np.delete(values, k).mean() for k in range(5)])
    assert float(margins(left_out)) == pytest.approx(2.776 * np.sqrt(values.var(ddof=1) / 5), rel=1e-6)


def test_bounds_of_a_share_are_its_textbook_interval_and_no_less_than_nothing():
    values = np.random.default_rng(2).uniform(0.4, 0.6, 10)
    left_out = (values.sum() - values) / 9
    half = 2.262 * values.std(ddof=1) / 10**0.5
    assert np.allclose(share_bounds(values.mean(), left_out), [values.mean() - half, values.mean() + half])
    assert np.allclose(share_bounds(np.zeros(()), left_out - 0.3), [0, half])


# Processes whose accessed bits were sampled at the same time: their walks, in as long a time, add up.

FAST, SLOW = (REGION, 1), (REGION + 4096, 1)  # found used by half of the samples, by a tenth
PAGES = [(REGION, 5), (REGION + 4096, 6)]


def heat_of(directory, samples):
    """So many samples of 100 ms."""
    found = [{FAST} if k % 2 == 0 else set() for k in range(samples)]
    for k in range(0, samples, 10):
        found[k] = found[k] | {SLOW}
    write_bits(directory / "heat.bits", [(100, pages) for pages in found])
    seal(directory, "process", open_capture(directory).manifest.provenance)


@pytest.fixture
def family(tmp_path):
    """7 and 8 use their memory alike, 8 sampled for a quarter of the time of 7; 9 has no samples."""
    place = tmp_path / "c"
    member(place, 7, PAGES, processes=[8, 9])
    member(place / "pid-8", 8, [(va, FRAMES_PER_NODE + frame) for va, frame in PAGES])
    member(place / "pid-9", 9, PAGES)
    heat_of(place, 400)
    heat_of(place / "pid-8", 100)
    return place


@pytest.mark.compiled
def test_what_was_sampled_for_less_counts_as_much(family):
    own = open_capture(family).snapshot.heat.walks
    assert open_capture(family / "pid-8").snapshot.heat.walks.tolist() == pytest.approx(own / 4, abs=1)
    by = classify(family, weight="heat", by="process")
    walks = by[by.socket == 0].groupby("group")["count"].sum()
    assert walks["7 p7"] == own.sum() == pytest.approx(walks["8 p8"], abs=2) and len(walks) == 2


@pytest.mark.compiled
def test_all_is_the_sum_with_an_interval_of_its_own(family):
    by, whole = (classify(family, weight="heat", by=how) for how in ("process", "all"))
    of_each, of_all = (table.groupby(["socket", "class"])["count"].sum() for table in (by, whole))
    assert of_each.tolist() == of_all.tolist()
    bounds = whole[["share_low", "share", "share_high"]].to_numpy(float)
    assert (np.diff(bounds, axis=1) >= 0).all() and np.isfinite(bounds).all()
    assert set(whole["group"]) == {"all"}


@pytest.mark.compiled
def test_samples_leave_a_share_open_only_where_it_depends_on_them(family):
    """Each table is local to one of the nodes, which walk alike; not so if one of them has no CPUs."""
    heat_of(family / "pid-8", 4)
    notes = replay(family, ["mitosis"]).results[0].notes
    assert [note.split()[:3] for note in notes if "remote leaf" in note] == [["linux:", "75", "%"]]
    seen = SimpleNamespace(native=True, left_out=np.zeros((2, 1, 1, 3, 1)), counts=np.ones((1, 1, 3, 1)))
    for readers, expected in (([0, 1], [1.0, 2.0]), ([0], [np.nan, np.nan])):
        found = counting._remote(seen, np.eye(2, dtype=bool), readers)
        assert np.array_equal(found[:2], [expected] * 2, equal_nan=True) and found[-1].tolist() == [1, 2]
