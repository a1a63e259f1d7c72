"""A trace that was filtered twice: what it lacks, what it spares, and how wrong its walks are said to be."""

import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import second as naive
from ptanalyze.analysis.filtered_twice import filtered_note
from ptanalyze.capture.vm.redact import redact_trace
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.interval import Interval
from ptanalyze.core.second import ONE_IN, RUN, SETS, SecondFilter, numbers, spared
from ptanalyze.core.strip import Strip
from ptanalyze.core.trace import CHUNK_DTYPE, Trace
from ptanalyze.formats.lackey import import_lackey
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.formats.trace_frames import HEADER_BYTES, HEADER_DTYPE
from ptanalyze.formats.trace_writer import trace_writer
from ptanalyze.kernels.second import keep_again
from ptanalyze.world.address_space import address_space
from ptanalyze.world.second_filter import LEAST_RUNS, LEAST_WALKS, filtered_throughout, measured
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import build_snapshot, build_trace, place, small_tlb
from trace_copy import write_trace

COUNT_MAX = (1 << 18) - 1
PAGES = st.one_of(st.integers(0, 6), st.integers(0, 5).map(lambda k: 3 + 128 * k), st.integers(0, 1 << 40))
COUNTS = st.one_of(st.integers(1, 5), st.integers(COUNT_MAX - 4, COUNT_MAX))
PERIOD = RUN * ONE_IN


@pytest.mark.twin
@settings(deadline=None)
@given(st.lists(st.tuples(PAGES, st.booleans(), COUNTS), min_size=1, max_size=120))
def test_the_kernel_keeps_what_its_naive_twin_keeps(records):
    columns, kinds = zip(*records, strict=True), (np.int64, np.bool_, np.int64)
    page, write, count = (np.array(one, kind) for one, kind in zip(columns, kinds, strict=True))
    kept = keep_again(page, write, count, SETS)
    found = zip(page[kept].tolist(), write[kept].tolist(), count[kept].tolist(), strict=True)
    assert list(found) == naive.second(records)


@given(st.lists(st.integers(0, 65535), min_size=1, max_size=60))
def test_chunks_are_numbered_by_thread(threads):
    expect = [threads[:at].count(thread) for at, thread in enumerate(threads)]
    assert numbers(np.array(threads, np.uint16)).tolist() == expect


@pytest.mark.parametrize("thread", [0, 3, 65535])
def test_one_run_of_chunks_in_sixteen_is_spared(thread):
    found = spared(thread, np.arange(3 * PERIOD), ONE_IN, RUN)
    assert found.tolist() == [naive.spared(thread, number) for number in range(3 * PERIOD)]


def of_small_chunks(path, seed, chunks, strip, length=200):
    """A trace of chunks that dwell on a few pages and stray to others, more or less in phases."""
    rng = np.random.default_rng(seed)
    pages = 300 + 150 * (seed % 3)
    with trace_writer(path, strip=strip) as writer:
        for chunk in range(chunks):
            near = (chunk // 40 * 17 + rng.zipf(1.4, length)) % pages
            far = rng.integers(0, 8 * pages, length)
            page = np.where(rng.random(length) < 0.04 + 0.03 * (chunk // 500 % 2), far, near) * 3
            writer.accesses_of(page.astype(np.int64), page % 5 == 0, thread=0, time=np.full(length, chunk))
    return read_trace(path)


def test_what_is_written_lacks_what_the_twin_lacks_but_in_spared_chunks(tmp_path):
    once, twice = (
        of_small_chunks(tmp_path / "t.ptt", 1, PERIOD + 9, strip, 20) for strip in (Strip.ON, Strip.L2)
    )
    assert twice.facts["second"] == (SETS, ONE_IN, RUN) and "second" not in once.facts
    assert twice.chunks["accesses"].tolist() == once.chunks["accesses"].tolist()
    assert twice.touches < once.touches
    alike = twice.chunks["touches"] == once.chunks["touches"]
    assert alike[spared(0, np.arange(PERIOD + 9), ONE_IN, RUN)].all() and not alike.all()


def test_a_copy_a_redacted_one_and_a_shorter_one_say_the_same(tmp_path):
    trace = of_small_chunks(tmp_path / "t.ptt", 1, 90, Strip.L2)
    write_trace(tmp_path / "copy.ptt", trace)
    redact_trace(tmp_path / "t.ptt", tmp_path / "redacted.ptt")
    data = (tmp_path / "t.ptt").read_bytes()
    (tmp_path / "cut.ptt").write_bytes(data[: len(data) * 2 // 3])
    for name in ("copy", "redacted", "cut"):
        found = read_trace(tmp_path / f"{name}.ptt")
        assert found.facts["second"] == trace.facts["second"], name
        n = len(found.chunks)
        assert found.chunks["touches"].tolist() == trace.chunks["touches"][:n].tolist()


def with_header(path, **fields):
    data = bytearray(path.read_bytes())
    header = np.frombuffer(data[:HEADER_BYTES], HEADER_DTYPE).copy()
    for name, value in fields.items():
        header[name] = value
    header["crc"] = 0
    header["crc"] = zlib.crc32(header.tobytes())
    path.write_bytes(header.tobytes() + data[HEADER_BYTES:])
    return path


@pytest.mark.parametrize(
    "fields",
    [
        {"second": (0, 16, 64, 0)},
        {"second": (96, 16, 64, 0)},
        {"second": (1024, 16, 64, 0)},
        {"second": (128, 0, 64, 0)},
        {"second": (128, 1, 64, 0)},
        {"second": (128, 16, 0, 0)},
        {"second": (128, 16, 1, 0)},
        {"second": (0, 0, 0, 0)},
        {"stripped": 0},
        {"sample": b"sets:1/8"},
        {"every": 10, "window": 5},
    ],
)
def test_a_header_that_makes_no_sense_is_refused_in_one_line(tmp_path, fields):
    of_small_chunks(tmp_path / "t.ptt", 1, 3, Strip.L2)
    with pytest.raises(CaptureError, match=r"second[^\n]*$") as refused:
        read_trace(with_header(tmp_path / "t.ptt", **fields))
    assert "\n" not in str(refused.value)


def test_releases_that_know_no_second_filter_refuse_its_traces(tmp_path):
    of_small_chunks(tmp_path / "t.ptt", 1, 3, Strip.L2)
    header = np.frombuffer((tmp_path / "t.ptt").read_bytes()[:HEADER_BYTES], HEADER_DTYPE)[0]
    assert header["version"] == 4


HUGE = 1 << 21
TLBS = [small_tlb((64, 4), (512, 4)), small_tlb((64, 64), (384, 6)), small_tlb((64, 4), (256, 2), (32, 4))]


@pytest.mark.twin
@pytest.mark.parametrize("tlb", TLBS)
def test_a_trace_without_spared_chunks_walks_like_one_that_was_filtered_as_a_whole(tlb, tmp_path):
    """Its touches that stand for those left out change nothing; pages of 2 MiB among them."""
    rng = np.random.default_rng(5)
    chunks = [
        (thread, [(int(page) << 12, bool(write)) for page, write in zip(pages, pages % 3 == 0, strict=True)])
        for thread in (0, 1)
        for pages in rng.zipf(1.2, (70, 60)) % 900
    ]
    trace = build_trace(chunks)
    trace.facts["second"] = (SETS, 2, 4)
    rows = [(touch, write, 1) for _, run_ in chunks for touch, write in run_]
    left = []
    for thread, run_ in chunks:
        records = [(va >> 12, write, 1) for va, write in run_]
        number = sum(1 for other, _ in left if other == thread)
        kept = naive.second(records) if naive.spared(thread, number, 2, 4) else records
        left.append((thread, [(page << 12, write) for page, write, _ in kept]))
    assert sum(len(run_) for _, run_ in left) < len(rows)
    snapshot = build_snapshot([*((page << 12, 5000 + page) for page in range(512)), (HUGE, 1 << 20, 2)])
    found, expect = (
        walks_by_chunk(one, snapshot, tlb) for one in (filtered_throughout(trace), build_trace(left))
    )
    assert found.tolist() == expect.tolist()


def walks_by_chunk(trace, snapshot, tlb):
    space = address_space(snapshot, trace.regions)
    return np.diff(TlbFilter(trace, space, place(trace, 2, 2), tlb).first().offset)


def of_chunks(number, threads=1):
    chunks = np.zeros(number, CHUNK_DTYPE)
    chunks["thread"] = np.arange(number) % threads
    return Trace(chunks, None, None, None, None, {"second": (SETS, ONE_IN, RUN)})


def test_a_difference_of_each_chunk_is_that_of_all():
    """A tenth of a walk per chunk: the first halves of the runs, where TLBs settle, do not count."""
    trace = of_chunks(20 * PERIOD)
    number = np.arange(20 * PERIOD)
    own = spared(0, number, ONE_IN, RUN)
    throughout = np.full(len(number), 10.0)
    walks = throughout + np.where(own, np.where(number % RUN < RUN // 2, 7.0, 0.1), 0)
    known = measured(trace, walks, throughout, 0)
    missing = 0.1 * len(number) - (walks - throughout).sum()
    assert known.runs == 20
    assert known.percent.middle == pytest.approx(-100 * missing / (walks.sum() + missing))
    least = LEAST_WALKS * len(number) / (20 * RUN / 2)
    assert known.percent.low == pytest.approx(-100 * (missing + least) / (walks.sum() + missing + least))
    assert known.most == max(abs(known.percent.low), abs(known.percent.high))


def test_differences_that_vary_widen_the_interval():
    number = np.arange(20 * PERIOD)
    own, throughout = spared(0, number, ONE_IN, RUN), np.full(len(number), 100.0)
    more = np.where(own & (number % RUN >= RUN // 2), 2.0 * (number // PERIOD % 4), 0)
    flat, varied = (
        measured(of_chunks(len(number)), throughout + one, throughout, 0).percent for one in (own * 3.0, more)
    )
    assert varied.middle == pytest.approx(flat.middle, abs=0.3)
    assert varied.high - varied.low > 3 * (flat.high - flat.low)
    exact = -100 * (3 - 3 / 16) / 103
    assert varied.low < exact < varied.high


@pytest.mark.parametrize("threads", [1, 3])
def test_too_few_runs_tell_nothing(threads):
    few, enough = ((LEAST_RUNS + more) * PERIOD for more in (-1, threads * 2))
    trace = of_chunks(enough, threads)
    walks = np.ones(enough)
    assert measured(trace, walks, walks, 0).percent is not None
    known = measured(trace, walks, walks, enough - few)
    assert known.percent is None and known.runs < LEAST_RUNS
    assert set(known.row().values()) == {None}


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        (Interval(0.05, 0.12, 0.19), "walks are 0.12 % too many (0.05 to 0.19 %)"),
        (Interval(-0.3, -0.2, -0.1), "walks are 0.2 % too few (0.1 to 0.3 %)"),
        (Interval(-0.02, 0.1, 0.22), "walks are off by +0.1 % (-0.02 to +0.22 %)"),
    ],
)
def test_the_note_says_the_error_and_asks_for_another_recording_where_it_is_large(percent, said):
    small, large = SecondFilter(percent, 9), SecondFilter(Interval(*(20 * end for end in percent)), 9)
    assert said in filtered_note(small) and "--strip on" not in filtered_note(small)
    assert "record with --strip on" in filtered_note(large)


def test_the_note_of_a_short_trace_says_that_nothing_is_known_and_what_to_do():
    note = filtered_note(SecondFilter(None, 3))
    assert "too short" in note and "--strip on" in note and "3 runs" in note


def test_intervals_hold_the_errors_that_the_whole_traces_show(tmp_path):
    """Ten of 12, at 95 %, and not as they hold anything; what is measured is what the whole trace has."""
    number = np.arange(9 * PERIOD)
    settled = spared(0, number, ONE_IN, RUN) & (number % RUN >= RUN // 2)
    pages = build_snapshot([(3 * page << 12, 5000 + page) for page in range(4800)])
    held, told, measured_there, whole_there = [], 0, [], []
    for seed in range(4):
        once, twice = (
            of_small_chunks(tmp_path / f"{how}.ptt", seed, len(number), how) for how in (Strip.ON, Strip.L2)
        )
        for tlb in TLBS:
            exact, found, throughout = (
                walks_by_chunk(one, pages, tlb) for one in (once, twice, filtered_throughout(twice))
            )
            low, _, high = measured(twice, found, throughout, 0).percent
            held.append(low <= 100 * (found.sum() / exact.sum() - 1) <= high)
            told += low > 0 or high < 0
            measured_there.append((found - throughout)[settled].sum())
            whole_there.append((exact - throughout)[settled].sum())
    assert sum(held) >= 10 and told >= 4, (held, told)
    assert np.abs(np.subtract(measured_there, whole_there)).sum() < 0.1 * np.abs(whole_there).sum()


def test_an_import_is_filtered_twice_where_that_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    text = "".join(f" {'LS'[page % 2]} {page << 12:x},8\n" for page in rng.zipf(1.3, 30_000) % 900)
    (tmp_path / "trace.txt").write_text("==1== Lackey\n" + text)
    assert run(["import", "lackey", "trace.txt", "-o", "app", "--strip", "l2"]) == 0
    capsys.readouterr()
    assert run(["whatif", "app", "-p", "ideal", "--json"]) == 0
    assert '"walks_error": null' in capsys.readouterr().out
    assert run(["classify", "app", "--weight", "walks"]) in (0, 2)
    assert run(["import", "perf-script", "trace.txt", "-o", "no", "--strip", "l2"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].endswith("--strip l2: perf-script is never stripped; leave it out")


def test_accesses_of_an_import_are_those_of_one_that_leaves_out_nothing(tmp_path):
    pages = np.random.default_rng(3).zipf(1.3, 9000) % 300
    text = "".join(f" L {page << 12:x},8\n" for page in pages).encode()
    counted = []
    for strip in Strip:
        assert import_lackey(io.BytesIO(text), tmp_path / strip.name, strip=strip) == 9000
        (batch,) = read_trace(tmp_path / strip.name).batches(1 << 20)
        counted.append((np.bincount(batch.page, batch.count).tolist(), len(batch.page)))
    (whole, all_touches), (_, some), (twice, fewest) = counted
    assert twice == whole and fewest < some < all_touches
