"""Footprints of leaf lines, and reads from DRAM by them: against exact LRU, files, and known laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captures import write_rounds
from naive.walker import lru_misses
from ptanalyze.analysis.counting import of_samples
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_scenario
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.footprint import Footprint, filled, interpolated, reads_per_walk, together
from ptanalyze.core.interval import Interval
from ptanalyze.cost.counts import DRAM
from ptanalyze.formats.capture import load
from ptanalyze.formats.heat import RECORD_DTYPE, copy_samples, costs, read_heat
from ptanalyze.policies import plan_for
from ptanalyze_formats.importing import import_capture
from strategies import build_snapshot, small_machine

pytestmark = pytest.mark.twin

HEAP = 1 << 30
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 17, 25, 36, 50, 72, 100, 145, 210, 300)


def exact_curve(lines, lengths):
    """Mean number of distinct lines in windows of each length of an endless repetition of the stream, 60 of
    them or as many as cover it."""
    half, lines = len(lines), np.concatenate([lines, lines])
    windows = zip(lengths, [range(0, half, max(half // max(60, half // w), 1)) for w in lengths], strict=True)
    return np.array([np.mean([len(set(lines[a : a + w].tolist())) for a in of]) for w, of in windows])


def of_stream(lines, lengths=None):
    """Footprint of a stream of lines, one walk per microsecond."""
    lengths = np.unique(np.geomspace(8, 0.9 * len(lines), 16).astype(int)) if lengths is None else lengths
    curve = exact_curve(lines, lengths)
    return Footprint(
        np.zeros(1, np.uint64), np.ones(1, np.uint8), curve[None], lengths * 1e-6, np.stack([curve, curve]),
        curve, 0.0, 1.0, len(set(lines.tolist())),
    )  # fmt: skip


def uniform(lines, walks, seed):
    return np.random.default_rng(seed).integers(0, lines, walks)


def zipf(lines, walks, seed):
    chance = 1 / np.arange(1, lines + 1) ** 0.8
    return np.random.default_rng(seed).choice(lines, walks, p=chance / chance.sum())


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([uniform, zipf]), st.integers(60, 300), st.floats(0.1, 0.8), st.integers(0, 1000))
def test_reads_from_dram_are_those_of_an_exact_lru_cache(make, lines, part, seed):
    walks = make(lines, 6000, seed)
    cache = max(int(part * len(set(walks.tolist()))), 4)
    exact = lru_misses(walks, cache) / len(walks)
    assert of_stream(walks).filled(cache)[1] / 1e6 == pytest.approx(exact, abs=0.04)
    assert reads_per_walk(np.bincount(walks), cache) == pytest.approx(exact, abs=0.04)


@settings(max_examples=10, deadline=None)
@given(st.integers(60, 300), st.floats(0.2, 0.8), st.integers(0, 100))
def test_cyclic_walks_miss_always_which_popularity_cannot_say(lines, part, seed):
    cycle = np.random.default_rng(seed).permutation(lines)
    walks, cache = np.tile(cycle, 6000 // lines), max(int(part * lines), 4)
    assert lru_misses(walks, cache) == len(walks)
    assert of_stream(walks).filled(cache)[1] / 1e6 > 0.7
    assert reads_per_walk(np.bincount(walks), cache) < 0.9 + 0.1 * (part < 0.3)


def test_the_law_of_uniform_walks_has_a_closed_form():
    """fp(w) = N (1 - exp(-W w / N)), whose slope at C is W (1 - C / N)."""
    lines, walks = 10_000, 2e6
    seconds = np.geomspace(1e-4, 0.03, 16)
    curve = lines * -np.expm1(-walks * seconds / lines)
    for cache in (300, 2000, 5000, 9000):
        time, slope = filled(seconds, curve, cache)
        assert time == pytest.approx(-lines / walks * np.log1p(-cache / lines), rel=0.01)
        assert slope == pytest.approx(walks * (1 - cache / lines), rel=0.04)


def test_nodes_that_share_pages_and_nodes_that_do_not_are_the_bounds():
    """Each of n nodes with pages of their own sees a n-th of the walks and of the lines."""
    nodes, lines, cache = 4, 400, 60
    parts = [uniform(lines // nodes, 3000, seed) + seed * 1000 for seed in range(nodes)]
    private = sum(lru_misses(part, cache) for part in parts) / 12_000
    found = of_stream(np.stack(parts, axis=1).ravel())
    shared = of_stream(uniform(lines, 12_000, 9)).filled(cache)[1] / 1e6
    reads = found.reads(Interval(cache, cache, cache), nodes)
    assert reads.low / 1e6 == pytest.approx(private, abs=0.05)
    assert reads.middle / 1e6 == pytest.approx(shared, abs=0.05)


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_thinned_samples_tell_the_same(period, seed):
    """Independent walks; few are refused, and never answered by 0."""
    walks = zipf(3000, 60_000, seed)
    kept = walks[np.random.default_rng(seed).random(len(walks)) < 1 / period]
    cache = 500
    exact = lru_misses(walks, cache) / len(walks)
    if len(set(kept.tolist())) <= cache:
        with pytest.raises(UsageError, match="too few samples"):
            reads_per_walk(np.bincount(kept), cache)
    else:
        assert reads_per_walk(np.bincount(kept), cache) == pytest.approx(exact, abs=0.06)


# Files.


def random_rounds(pages, rate, rounds, seed=4, tables=4):
    """Rounds in which each page of some tables is first walked for at random: `rate` per ms and page."""
    random = np.random.default_rng(seed)
    at = [HEAP + (k % tables << 21) + (k // tables << 12) for k in range(pages)]
    return [
        {page: float(first) for page, first in zip(at, random.exponential(1 / rate, pages), strict=True)}
        for _ in range(rounds)
    ]


def expected(pages, rate, tables=4):
    """Mean lines in windows of LENGTHS ms, of pages that follow each other."""
    return (tables * (pages // tables // 8)) * -np.expm1(-8 * rate * np.array(LENGTHS))


def test_a_file_of_rounds_has_the_footprint_of_random_walks(tmp_path):
    path = write_rounds(tmp_path / "heat.bits", random_rounds(1024, 0.002, 12), LENGTHS, cpus=0.5)
    heat = read_heat(path)
    found = heat.footprint
    assert found.cpus == pytest.approx(0.5, rel=0.01) and found.steady
    assert np.allclose(found.seconds, np.array(LENGTHS) / 2e3)
    assert np.allclose(found.mean, expected(1024, 0.002), atol=6)
    assert np.allclose(found.lines.sum(axis=0), found.mean, rtol=1e-5) and len(found.base) == 4
    assert heat.samples.sum() == 12 and len(heat.seconds) == 5  # pages count by one reading of each clearing
    assert costs(path)["samples"] == 12 and costs(path)["readings"] == 12 * 16


def test_tables_are_made_up_for_that_chance_left_out(tmp_path):
    rounds = random_rounds(4096, 0.002, 12, tables=16)
    some = [HEAP + (k << 21) for k in (1, 4, 5, 11)]
    heat = read_heat(write_rounds(tmp_path / "heat.bits", rounds, LENGTHS, tables=some))
    assert np.allclose(heat.footprint.mean, expected(4096, 0.002, 16), rtol=0.1, atol=12)
    assert heat.footprint.base.tolist() == some
    assert heat.seconds.tolist() == [0.3]  # of which all tables were read
    assert heat.footprint.used == 512


def test_what_sampling_took_is_between_nothing_and_all_of_it(tmp_path):
    """2,000 ns for each bit: of 1024 pages in 10 ms."""
    path = write_rounds(tmp_path / "heat.bits", random_rounds(1024, 0.02, 12), LENGTHS, price=2000)
    found = read_heat(path).footprint
    assert found.price == 2e-6
    free = replace(found, price=0.0)
    lines = Interval(60.0, 60.0, 60.0)
    assert free.reads(lines, 1).high < found.reads(lines, 1).high
    assert free.reads(lines, 1).low == pytest.approx(found.reads(lines, 1).low, rel=0.05)
    assert 0 < found.taken(60) < 0.9 and free.taken(60) == 0
    assert (np.diff(found.without(1.0)) > 0).all() and (found.without(1.0) > 0).all()


def test_processes_together_add_up(tmp_path):
    one = read_heat(write_rounds(tmp_path / "one", random_rounds(512, 0.01, 10), LENGTHS)).footprint
    two = read_heat(write_rounds(tmp_path / "two", random_rounds(1024, 0.01, 14), LENGTHS, cpus=2)).footprint
    both = together([one, two])
    assert both.cpus == pytest.approx(3) and both.used == one.used + two.used
    assert np.allclose(both.mean, one.mean + two.mean, rtol=0.05)
    assert len(both.base) == len(both.lines) == len(one.base) + len(two.base)
    assert np.allclose(both.seconds, 3 * one.seconds)
    few = read_heat(write_rounds(tmp_path / "few", random_rounds(64, 0.01, 10), LENGTHS[:5])).footprint
    assert together([one, few]) is None


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (("level", 0), 4, "level"),
        (("base", 0), 4096, "base"),
        (("word", 1), (1,) * 8, "round"),
        (("base", [1, 3]), 9, "tables read"),
        (("base", 0), HEAP + (1 << 21), "records"),
        (("window", 2), 1, "window"),
        (("window", 0), 10**15, "window"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_its_field(tmp_path, at, value, field):
    path = write_rounds(tmp_path / "heat.bits", random_rounds(64, 0.1, 3, tables=1), (10, 20))
    data = bytearray(path.read_bytes())
    records = np.frombuffer(data, RECORD_DTYPE, offset=512).copy()
    column, row = at
    records[column][row] = value
    path.write_bytes(data[:512] + records.tobytes())
    with pytest.raises(CaptureError, match=field):
        read_heat(path)


def test_an_unfinished_round_is_left_out_and_a_copy_says_the_same(tmp_path):
    path = write_rounds(tmp_path / "heat.bits", random_rounds(256, 0.05, 5), LENGTHS)
    whole = read_heat(path)
    path.write_bytes(path.read_bytes()[: -88 * 4])
    cut = read_heat(path)
    assert len(cut.footprint.curve) == 4 and cut.samples.sum() == 4
    copy_samples(path, tmp_path / "copy")
    again = read_heat(tmp_path / "copy")
    assert (again.footprint.curve == cut.footprint.curve).all() and again.footprint.cpus == cut.footprint.cpus
    assert len(whole.footprint.curve) == 5


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_interpolation_is_that_of_numpy_row_by_row(data):
    rows, lengths = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    steps = st.lists(st.floats(0.1, 2), min_size=lengths, max_size=lengths)
    axis = np.cumsum([data.draw(steps) for _ in range(rows)], 1)
    row = st.lists(st.integers(0, 9), min_size=lengths, max_size=lengths)
    lines = np.cumsum([data.draw(row) for _ in range(rows)], 1)
    grid = np.sort(data.draw(st.lists(st.floats(0.01, 8), min_size=1, max_size=5)))
    found = interpolated(axis, np.ones(axis.shape, bool), lines.astype(float), grid)
    for row, x, y in zip(found, axis, lines, strict=True):
        known = grid <= x[-1] * 1.03
        assert np.isnan(row[~known]).all()
        assert np.allclose(row[known], np.interp(grid[known], np.append(0, x), np.append(0, y)))


def test_cpu_time_that_falls_between_readings_stays_where_it_was():
    """Two readings at 3 s: the later one goes on from there, whatever the kernel says."""
    lines, grid = np.array([[1.0, 2.0, 4.0, 8.0]]), np.array([0.5, 2.0, 3.0, 3.5, 4.1, 5.0])
    falling, level = np.array([[1.0, 3.0, 2.0, 4.0]]), np.array([[1.0, 3.0, 3.0, 4.0]])
    expected = [0.5, 1.5, 4.0, 6.0, 8.0, np.nan]
    for axis in (level, falling):
        assert np.allclose(interpolated(axis, axis > 0, lines, grid), [expected], equal_nan=True)
    ends_lower = np.array([[1.0, 3.0, 2.0, 2.0]])
    assert np.allclose(interpolated(ends_lower, axis > 0, lines, grid[:3]), [[0.5, 1.5, 8.0]])
    later, expected[:2] = axis > 1, [np.nan, np.nan]  # the first window is not known
    assert np.allclose(interpolated(falling, later, lines, grid), [expected], equal_nan=True)


FEW_LINES = small_machine(1, cache_lines=(4, 120))


def scenario_of(lines, tmp_path):
    """A Scenario of sampled walks, one for each of `lines`, on a machine of few lines."""
    samples = "".join(
        f" 7 [000] 1.{k:06d}: mem_inst_retired.stlb_miss_loads:P: {HEAP + (line << 15):x}\n"
        for k, line in enumerate(lines.tolist())
    )
    (tmp_path / "text").write_text(samples)
    import_capture(None, tmp_path / "text", tmp_path / "capture")
    pages = [(HEAP + (line << 15), line) for line in range(int(lines.max()) + 1)]
    setup = Setup.of(machine=FEW_LINES, costs="server-2020")
    return setup.scenario(build_snapshot(pages), load(tmp_path / "capture").trace)


@pytest.mark.compiled
def test_samples_of_walks_read_from_dram_what_the_program_does_and_too_few_are_refused(tmp_path):
    """Caches that replay one walk in 100 held more; a few walks fitted them, of whatever program."""
    held = FEW_LINES.llc.lines
    setup = Setup.of(machine=FEW_LINES, costs="server-2020")
    every = uniform(4 * held, 400 * held, 3)
    exact = lru_misses(every, held) / len(every)
    for number, walks in enumerate((every, every[::100])):
        (tmp_path / f"{number}").mkdir()
        scenario = scenario_of(walks, tmp_path / f"{number}")
        assert of_samples(scenario)[0].numbers["share"] == pytest.approx(exact, abs=0.05) and exact > 0.5
        (linux,) = replay_scenario(scenario, [plan_for("linux")], setup)
        leaf = linux.reads[8].reshape(-1, 4).sum(axis=0)
        assert leaf[DRAM] / leaf.sum() == pytest.approx(exact, abs=0.05)
    few = scenario_of(np.arange(held // 2) * 8, tmp_path)
    with pytest.raises(UsageError, match="too few samples to tell reads from DRAM"):
        replay_scenario(few, [plan_for("linux")], setup)
    (tmp_path / "seen").mkdir()
    seen = scenario_of(np.tile(np.arange(held // 2) * 8, 3), tmp_path / "seen")
    (linux,) = replay_scenario(seen, [plan_for("linux")], setup)
    assert not of_samples(seen) and not linux.reads[8, ..., DRAM].any()
