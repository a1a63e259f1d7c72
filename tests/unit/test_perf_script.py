"""Importing `perf script` text."""

import io

import numpy as np
import pytest

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.foreign.perf_samples import import_perf_script
from ptanalyze.formats.trace import read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze.world.site import bare_snapshot
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import place

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


MISSES = [b"mem_inst_retired.stlb_miss_loads:P", b"mem_inst_retired.stlb_miss_stores:upp", b"tlb-miss"]
ACCESSES = [b"cpu/mem-loads/P", b"mem-stores", b"page-faults:u", b"ibs_op//", b"dTLB-loads"]


def sampled_trace(tmp_path, events, pages=(1, 1, 2, 1, 1 << 20)):
    """The Trace of a perf text with samples of the events in turn."""
    lines = [
        b"7 [000] %d.5:  %s:  %x\n" % (10 + k, events[k % len(events)], page << 12)
        for k, page in enumerate(pages)
    ]
    import_perf_script(io.BytesIO(b"".join(lines)), tmp_path / "t.ptt")
    return read_trace(tmp_path / "t.ptt")


@pytest.mark.parametrize("events", [MISSES[:1], MISSES[:2], MISSES[2:]])
def test_every_sample_of_a_tlb_miss_is_a_walk_and_passes_no_tlb(tmp_path, events):
    trace = sampled_trace(tmp_path, events)
    assert trace.facts["sampled"] and trace.facts["walks"]
    stream = walks_of(trace)
    numbers = (trace.regions[stream.page >> 9] << np.uint64(9)) | (stream.page & 511)
    assert numbers.tolist() == [1, 1, 2, 1, 1 << 20] and stream.hits.tolist() == [[0, 0, 5]]
    assert stream.offset.tolist() == [0, 5]
    assert stream.write.tolist() == [b"store" in events[k % len(events)] for k in range(5)]


@pytest.mark.parametrize("event", ACCESSES)
def test_samples_of_accesses_are_not_sent_through_a_tlb(tmp_path, event):
    trace = sampled_trace(tmp_path, [event])
    assert trace.facts["sampled"] and not trace.facts["walks"]
    with pytest.raises(UsageError, match=r"^trace: samples of accesses[^\n]*`ptanalyze record`$"):
        walks_of(trace)


def test_samples_without_an_event_are_accesses(tmp_path):
    import_perf_script(io.BytesIO(b"7 [000] 1.5: 7f0000001000\n"), tmp_path / "t.ptt")
    assert not read_trace(tmp_path / "t.ptt").facts["walks"]


def test_tlb_misses_mixed_with_other_events_are_refused(tmp_path):
    with pytest.raises(CaptureError, match=r"events = mem-stores, tlb-miss: .*file of its own"):
        sampled_trace(tmp_path, [b"tlb-miss", b"mem-stores"])
    assert not (tmp_path / "t.ptt").exists()


def walks_of(trace):
    space = address_space(bare_snapshot(trace), trace.regions)
    return TlbFilter(trace, space, place(trace, 1, 1), load_machine("sapphire-rapids").tlb).first()
