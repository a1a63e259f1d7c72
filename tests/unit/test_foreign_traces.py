"""Traces of other tools: DynamoRIO, ChampSim, lackey."""

import gzip
import io
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptanalyze_formats as foreign
from captures import touches_of
from ptanalyze.core.errors import CaptureError, UsageError, bundled
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import load
from ptanalyze.formats.trace import read_trace
from ptanalyze_formats import FORMATS, inputs
from ptanalyze_formats.champsim import RECORD as CHAMPSIM
from ptanalyze_formats.champsim import import_champsim, touches
from ptanalyze_formats.drmemtrace import RECORD, import_drmemtrace
from ptanalyze_formats.importing import import_capture, recognise
from ptanalyze_formats.text_traces import import_lackey

READ, WRITE, PREFETCH, INSTR, THREAD, EXIT, PID, HEADER, FOOTER, MARKER = 0, 1, 4, 10, 22, 23, 24, 25, 26, 28
TIME, CPU, FILE_TYPE, PAGE_SIZE, KERNEL_BEGINS, KERNEL_ENDS = 2, 3, 9, 18, 27, 28
X86_64 = 0x40


def begin(tid, version=7, kind=X86_64):
    return [(HEADER, 0, version), (MARKER, FILE_TYPE, kind), (THREAD, 4, tid), (PID, 4, 100)]


HEADS = begin(0)


def at(microseconds, cpu=0):
    return [(MARKER, TIME, microseconds), (MARKER, CPU, cpu)]


def end(tid):
    return [(EXIT, 4, tid), (FOOTER, 0, 0)]


def write(path, *members, ends=True):
    """A file of records: a .zip with a member per list, or a .gz of all; ends: with a footer."""
    if ends and list(members[-1])[-1:] != [(FOOTER, 0, 0)]:
        members = (*members[:-1], [*members[-1], (FOOTER, 0, 0)])
    blocks = [np.array(list(member), RECORD).tobytes() for member in members]
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(b"".join(blocks)))
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for k, block in enumerate(blocks):
            archive.writestr(f"chunk.{k:04}", block)
    return path


def imported(tmp_path, source):
    import_drmemtrace(source, tmp_path / "t.ptt")
    return read_trace(tmp_path / "t.ptt")


def rows(trace):
    """(thread, page, write, accesses) of each touch, in order."""
    threads = np.repeat(trace.chunks["thread"], trace.chunks["touches"]).tolist()
    return [(thread, *touch) for thread, touch in zip(threads, touches_of(trace), strict=True)]


def load_from(page, offset=0, size=8):
    return (READ, size, (page << 12) + offset)


def store(page, offset=0, size=8):
    return (WRITE, size, (page << 12) + offset)


def test_loads_and_stores_become_touches_of_threads_in_the_order_of_their_times(tmp_path):
    one = [*begin(7), *at(10, 3), (INSTR, 4, 99), load_from(5), *at(30, 4), store(5), *end(7)]
    other = [*begin(8, 2), *at(20, 5), (INSTR, 4, 99), store(6), load_from(9), *end(8)]
    write(tmp_path / "a.trace.zip", one)
    write(tmp_path / "b.trace.gz", other)
    trace = imported(tmp_path, tmp_path)
    assert rows(trace) == [(0, 5, False, 1), (1, 6, True, 1), (1, 9, False, 1), (0, 5, True, 1)]
    assert trace.threads["tid"].tolist() == [7, 8]
    assert trace.chunks["time"].tolist() == [0, 10_000, 20_000]
    assert trace.chunks["cpu"].tolist() == [3, 5, 4]
    assert trace.events[trace.events["kind"] == Event.THREAD_EXIT]["thread"].tolist() == [1, 0]


def test_an_access_across_a_border_touches_both_pages(tmp_path):
    records = [*begin(7), *at(1), load_from(5, 4090), store(8, 4095, 2), load_from(3, 0, 0)]
    file = write(tmp_path / "a.trace.zip", records)
    found = [(0, 5, False, 1), (0, 6, False, 1), (0, 8, True, 1), (0, 9, True, 1), (0, 3, False, 1)]
    assert rows(imported(tmp_path, file)) == found


def test_what_the_kernel_did_prefetches_and_kernel_addresses_are_left_out(tmp_path):
    kernel = [(MARKER, KERNEL_BEGINS, 1), load_from(77), *at(5), load_from(78), (MARKER, KERNEL_ENDS, 1)]
    far = [(READ, 8, 0xFFFF800000001000), (PREFETCH, 1, 7 << 12)]
    file = write(tmp_path / "a.trace.zip", [*begin(7), *at(1), load_from(5), *kernel, *far, store(6)])
    assert rows(imported(tmp_path, file)) == [(0, 5, False, 1), (0, 6, True, 1)]


def test_every_instruction_counts_once_wherever_the_loads_are(tmp_path):
    run = [(INSTR, 4, 0)] * 3
    records = [*begin(7), *run, *at(1), *run, load_from(1), *run, load_from(2), *run, *at(2), *run]
    records += [load_from(3), *run, *at(3), *run]
    trace = imported(tmp_path, write(tmp_path / "a.trace.zip", [*records, load_from(4), load_from(5), *run]))
    assert trace.chunks["instructions"].sum() == 8 * 3


def test_a_core_that_changes_its_thread_is_followed(tmp_path):
    records = [*begin(7), *at(1), load_from(1), (THREAD, 4, 9), load_from(2)]
    records += [*at(2), load_from(3), (THREAD, 4, 7), load_from(4)]
    file = write(tmp_path / "core.trace.zip", records[:6], records[6:])
    found = [(0, 1), (1, 2), (1, 3), (0, 4)]
    assert rows(imported(tmp_path, file)) == [(*row, False, 1) for row in found]


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([(MARKER, TIME, 1), load_from(1)], "record 0: type = 28: no drmemtrace trace"),
        (begin(7, version=8), r"record 0: version = 8: versions 2 to 7 can be read"),
        (begin(7, kind=0x20), r"record 1: file type = 0x20: not a trace of x86-64"),
        (begin(7, kind=X86_64 | 0x100), r"record 1: file type = 0x140: its addresses were filtered"),
        ([*begin(7), (MARKER, PAGE_SIZE, 65536)], r"record 4: page size = 65536: only pages of 4096"),
        ([*begin(7), (51, 0, 0)], r"record 4: type = 51: unknown kind of record"),
        ([*begin(7), (MARKER, TIME, 1 << 63)], r"record 4: timestamp = .*: no time in microseconds"),
        ([*begin(7), *at(1), load_from(1), *at(1 << 61), load_from(2)], "timestamp = .*: over 292 years"),
        ([*begin(7), *end(7)], "accesses = 0: nothing to import"),
        ([*begin(7), *at(1), load_from(1)], "record 7: footer = none: the trace is cut off, or its thread"),
        ([*begin(7), *at(1), load_from(1), (EXIT, 4, 7)], "record 8: footer = none"),
        ([HEADS[0], *at(1), load_from(1), load_from(2), *end(7)], "record 5: thread = none: accesses before"),
        ([HEADS[0], load_from(1), (THREAD, 4, 7), load_from(2), *end(7)], "record 2: thread = none"),
        ([(HEADER, 0, 7 | (MARKER | FILE_TYPE << 16) << 32), load_from(1)], "record 0: version = .*: its"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_record_and_nothing_is_left(tmp_path, records, line):
    file = write(tmp_path / "a.trace.zip", records, ends=False)
    with pytest.raises(CaptureError, match=line):
        import_drmemtrace(file, tmp_path / "t.ptt")
    assert not (tmp_path / "t.ptt").exists()


@pytest.mark.parametrize("name", ["a.trace.zip", "a.trace.gz"])
def test_a_damaged_file_is_refused_in_a_line(tmp_path, name):
    whole = write(tmp_path / name, [*begin(7), *at(1), *(load_from(k) for k in range(2000))]).read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 9):
        (tmp_path / name).write_bytes(whole[:cut])
        with pytest.raises(CaptureError):
            import_drmemtrace(tmp_path / name, tmp_path / "t.ptt")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=40))
def test_any_records_are_read_or_refused(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("any")
    try:
        import_drmemtrace(write(folder / "a.trace.gz", [*begin(7), *records, load_from(1)]), folder / "t.ptt")
    except CaptureError:
        return
    assert read_trace(folder / "t.ptt").accesses >= 1


def test_an_archive_whose_member_has_no_name_in_utf8_is_refused_in_a_line(tmp_path):
    file = tmp_path / "a.trace.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("é", b"")
    file.write_bytes(file.read_bytes().replace("é".encode(), b"\xc0\xc0"))
    with pytest.raises(CaptureError, match="compressed data = damaged: 'utf-8' codec"):
        import_drmemtrace(file, tmp_path / "t.ptt")


# Importing ChampSim's traces, and recognising what a file is.


def instructions(*accesses):
    """RECORD[n] of ([loads], [stores]) each."""
    records = np.zeros(len(accesses), CHAMPSIM)
    for record, (loads, stores) in zip(records, accesses, strict=True):
        record["ip"], record["load"][: len(loads)], record["store"][: len(stores)] = 0x400000, loads, stores
    return records


RECORDS = instructions(([0x5000, 0x9008], [0x5010]), ([], []), ([], [0x7000, 0x8000]), ([0x1000 << 48], []))


@pytest.mark.twin
@pytest.mark.parametrize("pack", [bytes, lzma.compress, gzip.compress])
def test_champsims_loads_come_before_its_stores(tmp_path, pack):
    ending = {lzma.compress: ".xz", gzip.compress: ".gz"}.get(pack, "")
    file = tmp_path / f"a.champsimtrace{ending}"
    file.write_bytes(pack(RECORDS.tobytes()))
    assert import_champsim(file, tmp_path / "t.ptt") == 5
    found = [(5, False, 1), (9, False, 1), (5, True, 1), (7, True, 1), (8, True, 1)]
    assert touches_of(read_trace(tmp_path / "t.ptt")) == found
    assert recognise(file) == "champsim"


@pytest.mark.twin
def test_champsims_order_is_that_of_a_plain_loop():
    generator = np.random.default_rng(1)
    records = instructions(*([([], [])] * 50))
    for side in ("load", "store"):
        shape = records[side].shape
        records[side] = generator.integers(0, 1 << 40, shape) * generator.integers(0, 2, shape)
    sides = [(k, side, record[side]) for k, record in enumerate(records) for side in ("load", "store")]
    expected = [(int(at) >> 12, side == "store", k) for k, side, each in sides for at in each if at]
    assert list(zip(*(column.tolist() for column in touches(records)), strict=True)) == expected


@pytest.mark.twin
@pytest.mark.parametrize(
    ("data", "line"),
    [
        (RECORDS.tobytes()[:-1], "bytes = 63: left over"),
        (b"text that is as long as a record of ChampSim, with its newline\n\n", "record = 0: no ChampSim"),
        (b"", "accesses = 0"),
    ],
)
def test_what_is_no_champsim_trace_is_refused(tmp_path, data, line):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(CaptureError, match=line):
        import_champsim(tmp_path / "a", tmp_path / "t.ptt")


@pytest.mark.twin
def test_damaged_compression_is_refused(tmp_path):
    (tmp_path / "a.xz").write_bytes(lzma.compress(RECORDS.tobytes())[:-20])
    with pytest.raises(CaptureError, match="compressed data = damaged"):
        import_champsim(tmp_path / "a.xz", tmp_path / "t.ptt")


@pytest.mark.twin
@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b"==12== Lackey\nI  04001000,3\n S 1ffeffe7e,8\n", "lackey"),
        (b"# header\n  app  123/124 [003] 12.345678901:  cpu/mem-loads/: 7f1234 \n", "perf-script"),
        (b"Dumping page tables\n<numamap>\n0 0 8589934592\n</numamap>\n", "vmitosis"),
        (gzip.compress(b"\x19\0\0\0\7\0\0\0\0\0\0\0", mtime=0), "drmemtrace"),
    ],
)
def test_text_and_packed_files_are_recognised(tmp_path, text, form):
    (tmp_path / "a").write_bytes(text)
    assert recognise(tmp_path / "a") == form


@pytest.mark.twin
@pytest.mark.parametrize(
    "data",
    [b"", b"hello world\n", b"\0" * 10, gzip.compress(b"x", mtime=0)[:9], b"\xfd7zXZ\0zzz", b"\x7fELF\2\1"],
)
def test_what_is_not_recognised_is_said_with_the_way_out(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UsageError, match="none of the formats that are recognised; name one"):
        recognise(tmp_path / "a")


@pytest.mark.twin
def test_every_row_of_formats_leads_to_its_functions():
    others = {"__init__", "command", "importing", "inputs", "kernels", "trace_writer"}
    others |= {"diff", "diff_command", "redact", "redact_command"}  # of captures of our own
    modules = {path.stem for path in Path(foreign.__file__).parent.glob("*.py")}
    assert {row.reader.partition(":")[0] for row in FORMATS.values()} - others == modules - others
    for row in FORMATS.values():
        assert callable(foreign.imported(row.reader))
        assert not isinstance(row.known, str) or callable(foreign.imported(row.known))


# Importing valgrind lackey's text.

TEXT = b"""==12== Lackey, an example Valgrind tool
I  04001000,3
 S 1ffeffe7e,8
I  04001003,5
 L 04222008,4
 M 04222010,8
--12-- a note

I  04001008,2
 L 04222ffe,4
==12== done
"""


@pytest.mark.twin
def test_loads_stores_and_modifies_become_touches_and_a_straddle_two(tmp_path):
    assert import_lackey(io.BytesIO(TEXT), tmp_path / "t.ptt") == 6
    trace = read_trace(tmp_path / "t.ptt")
    assert touches_of(trace) == [(0x1FFEFF, True, 1), (0x4222, True, 4), (0x4223, False, 1)]
    assert trace.chunks["instructions"].tolist() == [2] and trace.facts["ended"] == "imported"
    assert trace.threads["tid"].tolist() == [0]


HANDOUT = b"I 04001090,8\n M 04228f80,4\n L 04229f78,8\nS 1ffefffc28,8\n"


@pytest.mark.twin
def test_lackey_of_a_course_has_fewer_blanks(tmp_path):
    (tmp_path / "t").write_bytes(HANDOUT)
    assert recognise(tmp_path / "t") == "lackey"
    assert import_lackey(tmp_path / "t", tmp_path / "t.ptt") == 4
    trace = read_trace(tmp_path / "t.ptt")
    assert touches_of(trace) == [(0x4228, True, 2), (0x4229, False, 1), (0x1FFEFFF, True, 1)]


@pytest.mark.twin
def test_blocks_of_any_size_give_the_same_trace(tmp_path, monkeypatch):
    import_lackey(io.BytesIO(TEXT), tmp_path / "whole.ptt")
    for size in (1, 7, 40):
        monkeypatch.setattr(inputs.blocks, "__defaults__", (size,))
        import_lackey(io.BytesIO(TEXT), tmp_path / "cut.ptt")
        whole, cut = read_trace(tmp_path / "whole.ptt"), read_trace(tmp_path / "cut.ptt")
        assert cut.accesses == whole.accesses
        assert {page for page, *_ in touches_of(cut)} == {page for page, *_ in touches_of(whole)}


@pytest.mark.twin
@pytest.mark.parametrize(
    "line",
    [b"X 04001000,3", b" L 04222008", b" L 04222008,", b" L ,4", b" L zz,4", b" L 04222008,0", b"hello",
     b" L ", b" L fffffffffffffff0,8", b" L 04222008,4 extra", b"\x00\x01\x02"],
)  # fmt: skip
def test_a_foreign_line_is_named_and_nothing_is_left_behind(tmp_path, line):
    with pytest.raises(CaptureError, match="line at byte 14"):
        import_lackey(io.BytesIO(b"I  04001000,3\n" + line + b"\n"), tmp_path / "t.ptt")
    assert list(tmp_path.iterdir()) == []


# Texts that end in the middle of a line.


def lackey(rows):
    return "".join(f" L {(k + 1) << 12:x},8\n" for k in range(rows)).encode()


CUT = {
    "lackey": (lackey(9), b" L 7f,1"),
    "perf-script": (b"7 [000] 1.500000: tlb-miss: 5000\n" * 9, b"7 [000] 1.600000: tlb-miss: 70"),
}


@pytest.mark.parametrize("form", CUT)
def test_half_a_line_at_the_end_is_refused(tmp_path, form):
    whole, half = CUT[form]
    (tmp_path / "t").write_bytes(whole + half)
    with pytest.raises(CaptureError, match=f"line at byte {len(whole)} = .*: cut off: no newline"):
        import_capture(None, tmp_path / "t", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_a_trace_gets_the_page_tables_of_a_capture(tmp_path):
    (tmp_path / "t").write_bytes(lackey(9))
    import_capture(None, tmp_path / "t", tmp_path / "made", pages=bundled("samples") / "lookup")
    made = load(tmp_path / "made")
    assert made.has_trace and len(made.snapshot.guest) == len(load("lookup").snapshot.guest)
    with pytest.raises(UsageError, match="vmitosis is not a trace"):
        import_capture("vmitosis", tmp_path / "t", tmp_path / "no", pages=bundled("samples") / "lookup")
    with pytest.raises(UsageError, match="only vmitosis has nested tables"):
        import_capture("lackey", tmp_path / "t", tmp_path / "no", tmp_path / "t")
