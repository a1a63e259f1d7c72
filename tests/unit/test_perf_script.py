"""Importing `perf script` text."""

import io

import pytest

from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.perf_script import import_perf_script
from ptanalyze.formats.trace_file import read_trace

pytestmark = pytest.mark.twin

LAYOUTS = {
    "tid,cpu,time,addr": b"  1234 [003]  5678.123456:     7f1234567890 \n",
    "pid,tid": b"  99/1234 [003]  5678.123456:     7f1234567890 \n",
    "comm": b"  my prog  1234 [003]  5678.123456:     7f1234567890 \n",
    "event": b"  gups  1234 [003]  5678.123456: page-faults:     7f1234567890 \n",
    "period, ip, sym": b" 99/1234 [003] 5678.123456:  1 cpu/mem-loads/P:  7f1234567890  4011 f+0x1 (x)\n",
    "nanoseconds": b"  1234 [003]  5678.123456000:     7f1234567890 \n",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_common_layout_gives_the_same_sample(tmp_path, layout):
    assert import_perf_script(io.BytesIO(b"# comment\n\n" + LAYOUTS[layout]), tmp_path / "t.ptt") == 1
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.regions.tolist() == [0x7F1234567890 >> 21] and trace.threads["tid"].tolist() == [1234]
    assert trace.chunks["cpu"].tolist() == [3] and trace.facts["sampled"]


def test_threads_are_told_apart_stores_known_and_times_counted_from_the_first(tmp_path):
    text = (
        b"1 [000] 10.5: mem-loads: 1000\n"
        b"2 [001] 10.500000007: mem-stores: 2000\n"
        b"1 [000] 11.0: mem-loads: 1008\n"
        b"1 [000] 11.1: mem-loads: 0\n"
        b"1 [000] 11.2: mem-loads: ffffffff81000000\n"
    )
    assert import_perf_script(io.BytesIO(text), tmp_path / "t.ptt") == 3
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.chunks["time"].tolist() == [0, 7] and trace.chunks["accesses"].tolist() == [2, 1]
    assert [batch.write.tolist() for batch in trace.batches(100)] == [[False, True]]


@pytest.mark.parametrize(
    "line",
    [b"hello", b"1234 [003]  7f12", b"[003] 1.5: 1000", b"1234 1.5:", b"1234 1.5: page-faults:",
     b"1234 1.5: xyz", b"\x7fELF\x02\x01", b"1234 1.5: page-faults: 7f84fa52db70 _start+0x0 (/usr/lib/ld.so)",
     b"1234 1.5: 1 page-faults: 7f84fa52db70 [unknown] ([unknown])"],
    ids=str,
)  # fmt: skip
def test_a_line_without_thread_time_or_address_is_named(tmp_path, line):
    with pytest.raises(CaptureError, match="line at byte 15"):
        import_perf_script(io.BytesIO(b"1234 1.5: 1000\n" + line + b"\n"), tmp_path / "t.ptt")
    assert list(tmp_path.iterdir()) == []


def test_a_text_without_samples_is_refused(tmp_path):
    with pytest.raises(CaptureError, match="samples = 0"):
        import_perf_script(io.BytesIO(b"# nothing\n"), tmp_path / "t.ptt")
