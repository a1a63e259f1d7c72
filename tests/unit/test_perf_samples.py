"""Samples of perf: texts and perf.data, periods, and what samples of accesses weigh."""

import io
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.decode import copies_of
from ptanalyze.analysis.classify import classified, weight_of
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.describe import describe
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import load
from ptanalyze.formats.trace import read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze.world.tlb_filter import TlbFilter
from ptanalyze.world.traced_program import bare_snapshot
from ptanalyze_formats import perf_samples
from ptanalyze_formats.importing import import_capture, recognise
from ptanalyze_formats.perf_samples import PIECE, Periods, import_perf_data, import_samples, pieces
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters
from strategies import place

# Texts of perf script as Intel's PEBS, AMD's IBS and Arm's SPE give them. Written from perf's documentation
# (perf-script(1), perf-mem(1), perf-amd-ibs(1), perf-arm-spe(1)) and source (tools/perf/builtin-script.c,
# process_event; util/mem-events.c; util/arm-spe.c; arch/x86/events/intel/ds.c and amd/ibs.c, which fill the
# data source), not recorded: no machine with these events was at hand.

TEXTS = Path(__file__).parents[1] / "data/perf_script"  # as perf prints them
PEBS, IBS, PEBS_WEIGHED, LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE, OLD, SPE = (
    (TEXTS / f"{name}.txt").read_text()
    for name in ("pebs", "ibs", "pebs_weighed", "load_latency", "ibs_source", "spe_source", "old", "spe")
)


def imported(text, tmp_path):
    (tmp_path / "samples.txt").write_text(text)
    assert import_capture(None, tmp_path / "samples.txt", tmp_path / "made") == "perf-script"
    return load(tmp_path / "made").trace


def misses(text):
    """What import says: grep -E 'TLB [^|]* miss'."""
    return "".join(line for line in text.splitlines(True) if re.search(r"TLB [^|]* miss", line))


def test_pebs_with_a_data_source_that_does_not_know_the_tlb_tells_walks_by_its_event(tmp_path):
    trace = imported(PEBS_WEIGHED, tmp_path)
    assert trace.facts["walks"] and trace.accesses == 2
    assert load(tmp_path / "made").manifest.provenance["period_unit"] == 2000


@pytest.mark.parametrize(
    ("text", "store"), [(LOAD_LATENCY, [False]), (IBS_SOURCE, [False, True]), (SPE_SOURCE, [True])]
)
def test_data_sources_tell_walks_and_stores_and_how_many_accesses_missed(tmp_path, text, store):
    assert not imported(text, tmp_path).facts["walks"]
    assert load(tmp_path / "made").manifest.provenance["missed_tlb"] == len(store)
    (tmp_path / "misses").mkdir()
    trace = imported(misses(text), tmp_path / "misses")
    writes = [write for batch in trace.batches(9) for write in batch.write.tolist()]
    assert trace.facts["walks"] and writes == store
    assert "missed_tlb" not in load(tmp_path / "misses" / "made").manifest.provenance


@pytest.mark.parametrize("more", [LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE, IBS, SPE])
def test_events_that_count_misses_among_others_are_refused_with_data_sources_too(tmp_path, more):
    text = PEBS_WEIGHED if more in (LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE) else PEBS
    with pytest.raises(CaptureError, match=r"grep -E 'stlb_miss\|tlb-miss' has the misses"):
        imported(more + text, tmp_path)


@pytest.mark.parametrize("text", [LOAD_LATENCY, IBS_SOURCE, SPE_SOURCE])
def test_hits_alone_are_accesses_whatever_their_event(tmp_path, text):
    rest = "".join(line for line in text.splitlines(True) if line not in misses(text))
    assert not imported(rest, tmp_path).facts["walks"]
    named = re.sub(r"(ibs_op//|memory|cpu/mem-loads,ldlat=30/P):", "mem_inst_retired.stlb_miss_loads:", rest)
    (tmp_path / "again").mkdir()
    assert named != rest and not imported(named, tmp_path / "again").facts["walks"]


def test_the_text_of_older_kernels_is_read(tmp_path):
    assert imported(OLD, tmp_path).facts["walks"]


def test_where_data_came_from_comes_along(tmp_path):
    imported(misses(LOAD_LATENCY + IBS_SOURCE), tmp_path)
    said = load(tmp_path / "made").manifest.provenance
    assert said["data_from"] == "Local RAM or RAM 33 %, L3 33 %, L2 33 %"
    assert describe(load(tmp_path / "made"))["capture"]["data_from"] == said["data_from"]


WALKED = ["L2 miss", "L1 or L2 miss", "Walker miss", "N/A miss", "L2 miss "]
NOT_WALKED = ["L1 miss", "L1 hit", "Walker hit", "N/A", "", "miss", "N/A hit"]


@pytest.mark.parametrize("tlb", [*WALKED, *NOT_WALKED])
def test_every_text_of_the_tlb_is_a_walk_or_not(tmp_path, tlb):
    source = f"1068100842 |OP LOAD|LVL L3 hit|SNP None|TLB {tlb}|LCK No"
    text = f"7 [000] 1.500000: 1 ibs_op//: 7f0000203010 {source}\n"
    assert imported(text, tmp_path).facts["walks"] == (tlb in WALKED)


# Importing `perf script` text.

LAYOUTS = {
    "tid,cpu,time,addr": b"  1234 [003]  5678.123456:     7f1234567890 \n",
    "pid,tid": b"  99/1234 [003]  5678.123456:     7f1234567890 \n",
    "comm": b"  my prog  1234 [003]  5678.123456:     7f1234567890 \n",
    "event": b"  gups  1234 [003]  5678.123456: page-faults:     7f1234567890 \n",
    "period, ip, sym": b" 99/1234 [003] 5678.123456:  1 cpu/mem-loads/P:  7f1234567890  4011 f+0x1 (x)\n",
    "nanoseconds": b"  1234 [003]  5678.123456000:     7f1234567890 \n",
}


@pytest.mark.twin
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_common_layout_gives_the_same_sample(tmp_path, layout):
    assert import_samples(io.BytesIO(b"# comment\n\n" + LAYOUTS[layout]), tmp_path / "t.ptt").accesses == 1
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.regions.tolist() == [0x7F1234567890 >> 21] and trace.threads["tid"].tolist() == [1234]
    assert trace.chunks["cpu"].tolist() == [3] and trace.facts["sampled"]


NAMES = ["", "foobar [worker]", "foobar [3]", "pool 12 [7]", "[kworker/3:1]"]
NAMES += [":-1", "x [] y", "a/7", "-1", "7-1"]


@pytest.mark.twin
@pytest.mark.parametrize("who", ["7", "9/7", "-1", "5/-1"])
@pytest.mark.parametrize("cpu", ["", "[013]"])
def test_names_of_threads_are_neither_cpus_nor_threads(tmp_path, who, cpu):
    """perf prints "name pid/tid [cpu] time:"; here a last sample is of a thread that was not gone."""
    lines = [f"{name} {who} {cpu} 10.{k:06}: {1 << 30 | k << 12:x}\n" for k, name in enumerate(NAMES)]
    samples = import_samples(io.BytesIO("".join([*lines, "7 11.0: 1000\n"]).encode()), tmp_path / "t.ptt")
    gone = len(NAMES) * who.endswith("-1")
    assert (samples.accesses, samples.gone) == (len(NAMES) + 1 - gone, gone)
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.threads["tid"].tolist() == [7]
    assert trace.chunks["cpu"].tolist() == [13 if cpu and not gone else -1]


@pytest.mark.twin
def test_threads_are_told_apart_stores_known_and_times_counted_from_the_first(tmp_path):
    text = (
        b"1 [000] 10.5: mem-loads: 1000\n"
        b"2 [001] 10.500000007: mem-stores: 2000\n"
        b"1 [000] 11.0: mem-loads: 1008\n"
        b"1 [000] 11.1: mem-loads: 0\n"
        b"1 [000] 11.2: mem-loads: ffffffff81000000\n"
    )
    assert import_samples(io.BytesIO(text), tmp_path / "t.ptt").accesses == 3
    trace = read_trace(tmp_path / "t.ptt")
    assert trace.chunks["time"].tolist() == [0, 7] and trace.chunks["accesses"].tolist() == [2, 1]
    assert [batch.write.tolist() for batch in trace.batches(100)] == [[False, True]]


@pytest.mark.twin
@pytest.mark.parametrize(
    "line",
    [b"hello", b"1234 [003]  7f12", b"[003] 1.5: 1000", b"1234 1.5:", b"1234 1.5: page-faults:",
     b"1234 1.5: xyz", b"\x7fELF\x02\x01", b"1234 1.5: page-faults: 7f84fa52db70 _start+0x0 (/usr/lib/ld.so)",
     b"1234 1.5: 1 page-faults: 7f84fa52db70 [unknown] ([unknown])"],
    ids=str,
)  # fmt: skip
def test_a_line_without_thread_time_or_address_is_named(tmp_path, line):
    with pytest.raises(CaptureError, match="line at byte 15"):
        import_samples(io.BytesIO(b"1234 1.5: 1000\n" + line + b"\n"), tmp_path / "t.ptt")
    assert list(tmp_path.iterdir()) == []


MISSES = [b"mem_inst_retired.stlb_miss_loads:P", b"mem_inst_retired.stlb_miss_stores:upp", b"tlb-miss"]
ACCESSES = [b"cpu/mem-loads/P", b"mem-stores", b"page-faults:u", b"ibs_op//", b"dTLB-loads"]


def sampled_trace(tmp_path, events, pages=(1, 1, 2, 1, 1 << 20)):
    """The Trace of a perf text with samples of the events in turn."""
    of = [(10 + k, events[k % len(events)], page << 12) for k, page in enumerate(pages)]
    import_samples(io.BytesIO(b"".join(b"7 [000] %d.5:  %s:  %x\n" % one for one in of)), tmp_path / "t.ptt")
    return read_trace(tmp_path / "t.ptt")


@pytest.mark.twin
@pytest.mark.parametrize("events", [MISSES[:1], MISSES[:2], MISSES[2:]])
def test_every_sample_of_a_tlb_miss_is_a_walk_and_passes_no_tlb(tmp_path, events):
    trace = sampled_trace(tmp_path, events)
    assert trace.facts["sampled"] and trace.facts["walks"]
    stream = walks_of(trace)
    numbers = (trace.regions[stream.page >> 9] << np.uint64(9)) | (stream.page & 511)
    assert numbers.tolist() == [1, 1, 2, 1, 1 << 20] and stream.hits.tolist() == [[0, 0, 5]]
    assert stream.offset.tolist() == [0, 5]
    assert stream.write.tolist() == [b"store" in events[k % len(events)] for k in range(5)]


@pytest.mark.twin
@pytest.mark.parametrize("event", ACCESSES)
def test_samples_of_accesses_are_not_sent_through_a_tlb(tmp_path, event):
    trace = sampled_trace(tmp_path, [event])
    assert trace.facts["sampled"] and not trace.facts["walks"]
    with pytest.raises(UsageError, match=r"^trace: samples of accesses[^\n]*`ptanalyze record`$"):
        walks_of(trace)


def walks_of(trace):
    space = address_space(bare_snapshot(trace), trace.regions)
    return TlbFilter(trace, space, place(trace, 1, 1), load_machine("sapphire-rapids").tlb).first()


# perf.data through perf itself: the same trace as from the text that it prints.


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """A perf.data of page faults, which every kernel that perf may ask can count."""
    file = tmp_path_factory.mktemp("perf") / "perf.data"
    if not shutil.which("perf") and not os.environ.get("CI"):
        pytest.skip("needs perf")
    command = ["perf", "record", "-q", "-e", "page-faults", "-d", "--sample-cpu", "-c", "1", "-o"]
    if subprocess.run([*command, file, "true"], capture_output=True).returncode and not os.environ.get("CI"):
        pytest.skip("perf may not count page faults here")
    return file


def test_perf_data_is_read_by_perf_as_its_text_is(faults, tmp_path):
    fields = ["-F", "tid,cpu,time,event,addr"]
    text = subprocess.run(["perf", "script", "-i", faults, *fields], capture_output=True, check=True).stdout
    (tmp_path / "text").write_bytes(text)
    count = import_samples(tmp_path / "text", tmp_path / "b.ptt").accesses
    assert import_perf_data(faults, tmp_path / "a.ptt").accesses == count
    assert (tmp_path / "a.ptt").read_bytes() == (tmp_path / "b.ptt").read_bytes()
    assert recognise(faults) == "perf-data"


def test_periods_and_data_sources_are_asked_for(faults, tmp_path):
    command = ["perf", "record", "-q", "-e", "page-faults", "-d", "--sample-cpu", "-F", "1000"]
    assert subprocess.run([*command, "-o", tmp_path / "data", "ls"], capture_output=True).returncode == 0
    asked = {perf_samples.fields_of(shutil.which("perf"), of) for of in (tmp_path / "data", faults)}
    assert asked == {"tid,cpu,time,period,event,addr,data_src"}
    with open(tmp_path / "text", "wb+") as text:
        perf_samples.print_samples(tmp_path / "data", text)
        lines = text.read().splitlines()
    periods = [int(line.split(b":", 1)[1].split()[0]) for line in lines]
    assert lines and all(b"|TLB N/A|" in line for line in lines)
    assert import_perf_data(tmp_path / "data", tmp_path / "t.ptt").unit == max(periods)
    assert import_perf_data(faults, tmp_path / "f.ptt").unit == 1
    assert not read_trace(tmp_path / "f.ptt").facts["walks"]


def test_perf_data_that_is_cut_or_has_no_addresses_is_one_line(faults, tmp_path):
    whole = faults.read_bytes()
    begin, length = (int.from_bytes(whole[at : at + 8], "little") for at in (40, 48))
    for end in (8, 15, 40, 100, begin, begin + length // 2, begin + length - 1):
        (tmp_path / "cut").write_bytes(whole[:end])
        with pytest.raises(CaptureError, match=r"size = |cannot be read in full"):
            import_perf_data(tmp_path / "cut", tmp_path / "t.ptt")
        assert not (tmp_path / "t.ptt").exists()
    plain = ["perf", "record", "-q", "-e", "cpu-clock", "-o", tmp_path / "plain", "true"]
    assert subprocess.run(plain, capture_output=True).returncode == 0
    with pytest.raises(CaptureError, match="without addr: record them with `perf record -d`"):
        import_perf_data(tmp_path / "plain", tmp_path / "t.ptt")


# Samples that stand for different numbers of events.

SAMPLE = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(0, 900))
SAMPLES = st.lists(SAMPLE, min_size=1, max_size=250)


def columns(block):
    return (np.array([sample[at] for sample in block], np.int64) for at in (2, 0, 1))


@pytest.mark.twin
@given(st.lists(SAMPLES, min_size=1, max_size=4))
def test_copies_are_those_of_the_twin_over_several_blocks(blocks):
    periods = Periods("text")
    assert [periods.copies(*columns(block)).tolist() for block in blocks] == copies_of(blocks)


@pytest.mark.twin
@given(SAMPLES)
def test_each_threads_pages_are_within_one_sample_of_their_periods(block):
    periods = Periods("text")
    copies = periods.copies(*columns(block))
    written, weight = Counter(), Counter()
    for (thread, page, period), count in zip(block, copies.tolist(), strict=True):
        written[thread, page] += count
        weight[thread, page] += max(period, 1)
    total, all_of_it = int(copies.sum()), sum(weight.values())
    assert total >= 1 and 2 * abs(total * periods.unit - all_of_it) <= periods.unit + 1
    for key, events in weight.items():
        assert abs(written[key] * periods.unit - events) < periods.unit
        assert abs(written[key] / total - events / all_of_it) < 1.5 / total + 1 / periods.unit


@pytest.mark.twin
def test_many_copies_are_written_a_piece_at_a_time():
    copies = np.random.default_rng(1).integers(0, perf_samples.MOST_COPIES, 5000)
    found = list(pieces(copies))
    assert len(found) > 1 and max(map(len, found)) <= PIECE
    assert np.concatenate(found).tolist() == np.repeat(np.arange(5000), copies).tolist()
    assert list(pieces(np.zeros(3, np.int64))) == []
    assert [piece.tolist() for piece in pieces(np.array([2 * PIECE, 1]))] == [[0] * 2 * PIECE, [1]]


def perf_text(*samples):
    lines = enumerate(samples, 10)
    return "".join(f"7 [000] {at}.5:  {period} tlb-miss: {page << 12:x}\n" for at, (period, page) in lines)


def pages_of(text, tmp_path):
    samples = import_samples(io.BytesIO(text.encode()), tmp_path / "t.ptt")
    trace = read_trace(tmp_path / "t.ptt")
    return samples, [page for batch in trace.batches(9) for page in (batch.page & 511).tolist()]


@pytest.mark.twin
def test_without_periods_each_sample_counts_once_and_it_is_said(tmp_path):
    samples, pages = pages_of("7 1.5: tlb-miss: 1000\n7 1.6: tlb-miss: 2000\n", tmp_path)
    assert pages == [1, 2] and samples.provenance() == {"periods": "not printed"}


@pytest.mark.twin
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (perf_text((perf_samples.MOST_PERIOD + 1, 1)), r"period = 1099511627777: at most 2\*\*40"),
        (perf_text((10**40, 1)), r"period = \d+: at most"),
        (perf_text((5, 1)) + "7 99.5: tlb-miss: 1000\n", "period = only some samples have one: print all"),
        (perf_text((5, 1)).replace(" 5 ", " 5a "), "line at byte 0"),
        (perf_text((5, 1)).replace(" 5 ", " -5 "), "line at byte 0"),
    ],
)  # fmt: skip
def test_bad_periods_are_one_line(tmp_path, text, error):
    with pytest.raises(CaptureError, match=error):
        pages_of(text, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.twin
def test_a_period_out_of_proportion_to_the_first_is_one_line():
    periods = Periods("text")
    one, most = np.ones(1, np.int64), perf_samples.MOST_COPIES
    assert periods.copies(3 * one, one, one).tolist() == [1]
    assert periods.copies((3 * most - 1) * one, one, one).sum() <= most
    with pytest.raises(CaptureError, match=r"text: period = 3072: 1024 times those before it \(3\)"):
        periods.copies(3 * most * one, one, one)


# Samples of accesses weigh the classification by the pages that they touch; no TLB filters them.

SETUP = Setup.of(machine=load_machine("sapphire-rapids").resized(2), threads_on="0,1")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A process on two nodes, leaf tables in turn on each."""
    made = tmp_path_factory.mktemp("c") / "tables"
    synthesize(Parameters(size=16 << 20, nodes=2, threads=2, placement="interleave"), made, trace=False)
    return load(made)


def sampled(tables, where, event="cpu/mem-loads/P", count=300):
    """(capture, [(thread, page)]) of samples by two threads of the pages that the tables map."""
    tree = tables.snapshot.guest
    at, slot = np.nonzero((tree.level == 1)[:, None] & (tree.entries & np.uint64(1) != 0))
    pages = (tree.base[at].astype(np.int64) >> 12) + slot
    chosen = np.random.default_rng(1).integers(0, len(pages), count)
    rows = [(7 + k % 2, int(pages[which])) for k, which in enumerate(chosen)]
    rows += rows[:50] * 2  # the same pages again and again: each time a sample
    lines = (f"{tid} [000] {10 + k}.500000: {event}: {page << 12:x}\n" for k, (tid, page) in enumerate(rows))
    (where / "samples.txt").write_text("".join(lines))
    import_capture("perf-script", where / "samples.txt", where / "made", pages=tables.directory)
    return load(where / "made"), rows


def test_each_sample_counts_the_leaf_entry_of_its_page_for_the_socket_of_its_thread(tables, tmp_path):
    capture, rows = sampled(tables, tmp_path)
    assert weight_of(capture.trace.facts) == "samples"
    tree = tables.snapshot.guest
    leaves = np.flatnonzero(tree.level == 1)
    node = dict(zip((tree.base[leaves] >> 21).tolist(), tree.node[leaves].tolist(), strict=True))
    expected = np.zeros((2, 2), np.int64)  # [socket, local or remote]
    for tid, page in rows:
        socket = tid - 7
        expected[socket, int(node[page >> 9] != socket)] += 1
    classes, walked = classified(capture, "samples", "all", SETUP)
    assert classes.by_class()[0].tolist() == expected.tolist() and expected.min() > 0
    assert classes.weight == "samples" and walked.placement.how and not sum(classes.unresolved.values())
    by_thread, _ = classified(capture, "samples", "thread", SETUP)
    assert by_thread.groups == ("thread 7", "thread 8") and by_thread.by_class().sum() == len(rows)


def test_samples_are_no_walks_and_a_whole_trace_is_no_sample(tables, tmp_path):
    capture, _ = sampled(tables, tmp_path, count=60)
    with pytest.raises(UsageError, match="samples of accesses, from which no TLB miss follows"):
        classified(capture, "walks", "all", SETUP)
    with pytest.raises(UsageError, match="holds all accesses, not samples; use walks"):
        classified(load("sysbench-memory"), "samples", "all", SETUP)
