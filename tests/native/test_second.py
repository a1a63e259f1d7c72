"""The tracer's second filter keeps what its naive twin keeps, and spares the chunks that the rule says."""

import ctypes
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.second import second, spared
from native import tracing
from native.dumping import make
from ptanalyze.capture.live.tracers import Options
from ptanalyze.cli import run as ptanalyze
from ptanalyze.core import second as rule
from ptanalyze.core.errors import UsageError
from ptanalyze.core.strip import Strip

COUNT_MAX = (1 << 18) - 1
MUNMAP, PAGE, BASE = 2, 1 << 12, 1 << 30


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tracing.encoder(tmp_path_factory.mktemp("second"))


def filtered(library, records):
    """[(page, store, count)] that the tracer keeps of a chunk's."""
    packed = np.array([page << 19 | count << 1 | store for page, store, count in records], np.uint64)
    library.second.restype = ctypes.c_size_t
    n = library.second(ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(packed)))
    return [(word >> 19, bool(word & 1), word >> 1 & COUNT_MAX) for word in packed[:n].tolist()]


PAGES = st.one_of(
    st.integers(0, 6), st.integers(0, 5).map(lambda k: 3 + 128 * k), st.integers(0, (1 << 45) - 1)
)
COUNTS = st.one_of(st.integers(1, 5), st.integers(COUNT_MAX - 4, COUNT_MAX))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(PAGES, st.booleans(), COUNTS), min_size=1, max_size=200))
def test_what_it_keeps_is_what_its_naive_twin_keeps(library, records):
    kept = filtered(library, records)
    assert kept == second(records)
    for page in {page for page, *_ in records}:
        of_page = [[row for row in rows if row[0] == page] for rows in (records, kept)]
        before, after = (sum(count for *_, count in rows) for rows in of_page)
        assert before == after
        assert any(store for _, store, _ in of_page[0]) == any(store for _, store, _ in of_page[1])


def test_a_loop_is_left_with_one_record_of_each_page_and_its_first_store(library):
    records = [(page, at == 5, 1) for at in range(10) for page in (1, 2, 129)]
    assert [(page, store) for page, store, _ in filtered(library, records)].count((2, True)) == 1
    assert len(filtered(library, [(page, False, 1) for _ in range(9) for page in (1, 2, 3)])) == 3


@pytest.mark.parametrize("thread", [0, 1, 7, 2047, 65535])
def test_the_rule_by_which_chunks_are_spared_is_the_same_everywhere(library, thread):
    number = np.arange(5 * rule.RUN * rule.ONE_IN)
    expect = [spared(thread, one) for one in number.tolist()]
    assert rule.spared(thread, number, rule.ONE_IN, rule.RUN).tolist() == expect
    assert [bool(library.spares(ctypes.c_uint16(thread), ctypes.c_uint32(one))) for one in number] == expect
    runs = np.reshape(expect, (5, rule.ONE_IN, rule.RUN))
    assert (runs.all(axis=2).sum(axis=1) == 1).all() and runs.sum() == 5 * rule.RUN


def rows_of(chunks, threads):
    """Accesses in turns, each turn ended by a munmap, which ends the chunk."""
    rng = np.random.default_rng(chunks)
    rows = np.zeros((chunks, 25, 4), np.uint64)
    rows[:, :, 0] = rng.integers(0, threads, chunks)[:, None]
    rows[:, :, 1] = rng.random((chunks, 25)) < 0.3
    page = np.where(
        rng.random((chunks, 25)) < 0.4,
        rng.integers(0, 9, (chunks, 25)) * 16,
        rng.integers(0, 600, (chunks, 25)),
    )
    rows[:, :, 2] = BASE + page * PAGE
    rows[:, -1, 1], rows[:, -1, 2], rows[:, -1, 3] = MUNMAP, BASE + 7000 * PAGE, PAGE
    return rows.reshape(-1, 4)


def records_of(trace):
    """[(thread, number among the thread's chunks, [(page, store, count)])] of each chunk."""
    (batch,) = trace.batches(1 << 30)
    page = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
    rows = list(zip(page.tolist(), batch.write.tolist(), batch.count.tolist(), strict=True))
    thread, number = trace.chunks["thread"], rule.numbers(trace.chunks["thread"])
    ends = np.cumsum(trace.chunks["touches"])
    return [
        (int(thread[k]), int(number[k]), rows[end - n : end])
        for k, (end, n) in enumerate(zip(ends.tolist(), trace.chunks["touches"].tolist(), strict=True))
    ]


def test_the_tracer_filters_all_chunks_but_those_that_it_spares(play):
    rows = rows_of(6000, 3)
    once, twice = play(rows, Options()), play(rows, Options(strip=Strip.L2))
    assert "second" not in once.facts and twice.facts["second"] == (rule.SETS, rule.ONE_IN, rule.RUN)
    assert once.facts["stripped"] == twice.facts["stripped"] and twice.touches < once.touches
    assert twice.chunks["accesses"].tolist() == once.chunks["accesses"].tolist()
    left_alone = 0
    for (thread, number, whole), (_, _, kept) in zip(records_of(once), records_of(twice), strict=True):
        left_alone += spared(thread, number)
        assert kept == (whole if spared(thread, number) else second(whole))
    assert rule.RUN <= left_alone < 6000 / 8


def test_a_part_of_a_run_is_not_filtered_twice(tmp_path):
    for options in (Options(strip=Strip.L2, sample="sets:1/8"), Options(strip=Strip.L2, seconds=1, every=9)):
        with pytest.raises(UsageError, match=r"^strip = l2: not with a sample or windows [^\n]*$"):
            dict(options.items())


def test_the_tracer_refuses_a_part_that_is_filtered_twice(tmp_path):
    make("pintool")
    argv = tracing.traced("/bin/true", out=tmp_path / "t.ptt", strip="l2", sample="sets:1/8", classes=257)
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode and "Invalid argument" in said.stderr


def test_a_recorded_program_is_said_to_be_filtered_twice(tmp_path, capsys, monkeypatch):
    make("pintool")
    monkeypatch.chdir(tmp_path)
    program = ["/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"]
    assert (
        ptanalyze(["record", "--strip", "l2", "--tracer", "qemu", "--no-dump", "-o", "app", "--", *program])
        == 0
    )
    capsys.readouterr()
    assert ptanalyze(["info", "app"]) == 0
    assert "--strip l2" in capsys.readouterr().out
    assert ptanalyze(["check", "app"]) == 0
    for words in (["whatif", "app", "-p", "ideal"], ["whatif", "app", "-p", "ideal", "--full"]):
        assert ptanalyze(words) == 0
        assert "filtered twice (--strip l2)" in " ".join(capsys.readouterr().out.split())
