"""Traces that were filtered twice: written, read, copied and imported, and what notes say of them."""

import io
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from ptanalyze.analysis.filtered_twice import filtered_note
from ptanalyze.capture.vm.redact import redact_trace
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.interval import Interval
from ptanalyze.core.second import ONE_IN, RUN, SETS, SecondFilter, spared
from ptanalyze.core.strip import Strip
from ptanalyze.formats.capture_dir import new_capture, seal
from ptanalyze.formats.lackey import import_lackey
from ptanalyze.formats.snapshot_file import write_snapshot
from ptanalyze.formats.trace_file import read_trace
from ptanalyze.formats.trace_frames import HEADER_BYTES, HEADER_DTYPE
from strategies import build_snapshot
from stripped_traces import of_small_chunks
from trace_copy import write_trace

PERIOD = RUN * ONE_IN


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


def test_the_note_says_where_tlbs_may_not_have_settled():
    error = Interval(0.05, 0.12, 0.19)
    assert "settle" in filtered_note(SecondFilter(error, 9, settles=False))
    assert "settle" not in filtered_note(SecondFilter(error, 9))


def test_the_note_of_a_short_trace_says_that_nothing_is_known_and_what_to_do():
    note = filtered_note(SecondFilter(None, 3))
    assert "too short" in note and "--strip on" in note and "3 runs" in note


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


@pytest.fixture(scope="module")
def measurable(tmp_path_factory):
    """A capture with page tables, whose trace is long enough to be measured."""
    place = tmp_path_factory.mktemp("captures") / "app"
    pages = [(3 * page << 12, 5000 + page) for page in range(4800)]
    with new_capture(place) as inside:
        write_snapshot(inside, build_snapshot(pages, nodes=2))
        of_small_chunks(inside / "trace.ptt", 1, 9 * PERIOD, Strip.L2, 30)
        seal(inside, "process", {})
    return str(place)


@pytest.mark.parametrize(
    "words",
    [
        ["whatif", "-p", "ideal"],
        ["whatif", "-p", "ideal", "--full"],
        ["classify", "--weight", "walks"],
        ["advise"],
        ["timeline"],
    ],
)
def test_every_answer_that_counts_walks_says_how_wrong_they_are(measurable, capsys, words):
    assert run([words[0], measurable, *words[1:]]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"filtered twice \(--strip l2\): walks are [^;]*%\), measured in 9 runs of chunks", said)


def test_a_report_says_it_among_its_cautions(measurable, tmp_path):
    assert run(["report", measurable, "-o", str(tmp_path / "r.html")]) == 0
    words = re.sub(r"<[^>]*>", "", (tmp_path / "r.html").read_text())
    assert "filtered twice (--strip l2): walks are " in words


@pytest.mark.parametrize("words", [["whatif", "-p", "ideal"], ["classify", "--weight", "walks"]])
def test_json_has_the_error_as_numbers(measurable, capsys, words):
    assert run([words[0], measurable, *words[1:], "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["result"][0]
    assert row["walks_error_low"] < row["walks_error"] < row["walks_error_high"]


def test_the_second_pass_is_stored_beside_the_first(measurable):
    assert run(["whatif", measurable, "-p", "ideal", "--cold"]) == 0
    streams = {path.parent.name for path in Path(measurable).glob(".cache/**/walks-*/seal")}
    assert len({name for name in streams if "-again-" not in name}) == 2
