"""Importing DynamoRIO's offline traces."""

import gzip
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynamorio_traces
from ptanalyze.core.errors import CaptureError
from ptanalyze.core.trace import Event
from ptanalyze.formats.foreign.drmemtrace import RECORD, import_drmemtrace
from ptanalyze.formats.trace import read_trace

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
    import_drmemtrace(source, tmp_path / "t.ptt", strip=False)
    return read_trace(tmp_path / "t.ptt")


def rows(trace):
    """(thread, page, write, accesses) of each touch, in order."""
    found = []
    for batch in trace.batches(1):
        thread = np.repeat(trace.chunks["thread"], trace.chunks["touches"])[len(found) :][: len(batch.page)]
        page = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
        columns = (thread, page, batch.write, batch.count)
        found += zip(*(column.tolist() for column in columns), strict=True)
    return found


def load(page, offset=0, size=8):
    return (READ, size, (page << 12) + offset)


def store(page, offset=0, size=8):
    return (WRITE, size, (page << 12) + offset)


def test_loads_and_stores_become_touches_of_threads_in_the_order_of_their_times(tmp_path):
    write(
        tmp_path / "a.trace.zip",
        [*begin(7), *at(10, 3), (INSTR, 4, 99), load(5), *at(30, 4), store(5), *end(7)],
    )
    write(tmp_path / "b.trace.gz", [*begin(8, 2), *at(20, 5), (INSTR, 4, 99), store(6), load(9), *end(8)])
    trace = imported(tmp_path, tmp_path)
    assert rows(trace) == [(0, 5, False, 1), (1, 6, True, 1), (1, 9, False, 1), (0, 5, True, 1)]
    assert trace.threads["tid"].tolist() == [7, 8]
    assert trace.chunks["time"].tolist() == [0, 10_000, 20_000]
    assert trace.chunks["cpu"].tolist() == [3, 5, 4]
    exits = trace.events[trace.events["kind"] == Event.THREAD_EXIT]
    assert exits["thread"].tolist() == [1, 0]


def test_an_access_across_a_border_touches_both_pages(tmp_path):
    file = write(
        tmp_path / "a.trace.zip", [*begin(7), *at(1), load(5, 4090), store(8, 4095, 2), load(3, 0, 0)]
    )
    found = [(0, 5, False, 1), (0, 6, False, 1), (0, 8, True, 1), (0, 9, True, 1), (0, 3, False, 1)]
    assert rows(imported(tmp_path, file)) == found


def test_what_the_kernel_did_prefetches_and_kernel_addresses_are_left_out(tmp_path):
    kernel = [(MARKER, KERNEL_BEGINS, 1), load(77), *at(5), load(78), (MARKER, KERNEL_ENDS, 1)]
    far = [(READ, 8, 0xFFFF800000001000), (PREFETCH, 1, 7 << 12)]
    file = write(tmp_path / "a.trace.zip", [*begin(7), *at(1), load(5), *kernel, *far, store(6)])
    assert rows(imported(tmp_path, file)) == [(0, 5, False, 1), (0, 6, True, 1)]


def test_every_instruction_counts_once_wherever_the_loads_are(tmp_path):
    run = [(INSTR, 4, 0)] * 3
    records = [
        *begin(7),
        *run,
        *at(1),
        *run,
        load(1),
        *run,
        load(2),
        *run,
        *at(2),
        *run,
        load(3),
        *run,
        *at(3),
        *run,
    ]
    trace = imported(tmp_path, write(tmp_path / "a.trace.zip", [*records, load(4), load(5), *run]))
    assert trace.chunks["instructions"].sum() == 8 * 3


def test_stripping_keeps_all_accesses_and_instructions(tmp_path):
    records = [*begin(7), *at(1), *[(INSTR, 4, 0), load(1), (INSTR, 4, 0), load(2)] * 500]
    whole = imported(tmp_path, write(tmp_path / "a.trace.zip", records))
    import_drmemtrace(tmp_path / "a.trace.zip", tmp_path / "s.ptt")
    less = read_trace(tmp_path / "s.ptt")
    assert less.accesses == whole.accesses == 1000
    assert less.chunks["instructions"].sum() == whole.chunks["instructions"].sum() == 1000
    assert len(rows(less)) < len(rows(whole)) / 10


def test_a_core_that_changes_its_thread_is_followed(tmp_path):
    records = [*begin(7), *at(1), load(1), (THREAD, 4, 9), load(2), *at(2), load(3), (THREAD, 4, 7), load(4)]
    file = write(tmp_path / "core.trace.zip", records[:6], records[6:])
    assert rows(imported(tmp_path, file)) == [
        (0, 1, False, 1),
        (1, 2, False, 1),
        (1, 3, False, 1),
        (0, 4, False, 1),
    ]


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([(MARKER, TIME, 1), load(1)], "record 0: type = 28: no drmemtrace trace"),
        (begin(7, version=8), r"record 0: version = 8: versions 2 to 7 can be read"),
        (begin(7, kind=0x20), r"record 1: file type = 0x20: it is no trace of x86-64"),
        (begin(7, kind=X86_64 | 0x100), r"record 1: file type = 0x140: its addresses were filtered"),
        ([*begin(7), (MARKER, PAGE_SIZE, 65536)], r"record 4: page size = 65536: only pages of 4096"),
        ([*begin(7), (51, 0, 0)], r"record 4: type = 51: unknown kind of record"),
        ([*begin(7), (MARKER, TIME, 1 << 63)], r"record 4: timestamp = .*: no time in microseconds"),
        (
            [*begin(7), *at(1), load(1), *at(1 << 61), load(2)],
            "timestamp = .*: over 292 years after the first, 1",
        ),
        (begin(7), "accesses = 0: nothing to import"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_record_and_nothing_is_left(tmp_path, records, line):
    file = write(tmp_path / "a.trace.zip", records)
    with pytest.raises(CaptureError, match=line):
        import_drmemtrace(file, tmp_path / "t.ptt")
    assert not (tmp_path / "t.ptt").exists()


@pytest.mark.parametrize(
    ("records", "line"),
    [
        ([*begin(7), *at(1), load(1)], "record 7: footer = none: the trace is cut off, or its thread never"),
        ([*begin(7), *at(1), load(1), (EXIT, 4, 7)], "record 8: footer = none"),
        ([HEADS[0], *at(1), load(1), load(2), *end(7)], "record 5: thread = none: accesses before any"),
        ([HEADS[0], load(1), (THREAD, 4, 7), load(2), *end(7)], "record 2: thread = none"),
        (
            [(HEADER, 0, 7 | (MARKER | FILE_TYPE << 16) << 32), load(1)],
            "record 0: version = .*: its records seem to be of a 32-bit machine",
        ),
    ],
)
def test_threads_that_never_begin_or_end_and_other_machines_records_are_refused(tmp_path, records, line):
    file = write(tmp_path / "a.trace.zip", records, ends=False)
    with pytest.raises(CaptureError, match=line):
        import_drmemtrace(file, tmp_path / "t.ptt")
    assert not (tmp_path / "t.ptt").exists()


@pytest.mark.parametrize("name", ["a.trace.zip", "a.trace.gz"])
def test_a_damaged_file_is_refused_in_a_line(tmp_path, name):
    whole = write(tmp_path / name, [*begin(7), *at(1), *(load(k) for k in range(2000))]).read_bytes()
    for cut in (0, 1, len(whole) // 2, len(whole) - 9):
        (tmp_path / name).write_bytes(whole[:cut])
        with pytest.raises(CaptureError):
            import_drmemtrace(tmp_path / name, tmp_path / "t.ptt")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 2**64 - 1)), max_size=40))
def test_any_records_are_read_or_refused(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("any")
    file = write(folder / "a.trace.gz", [*begin(7), *records, load(1)])
    try:
        import_drmemtrace(file, folder / "t.ptt")
    except CaptureError as error:
        assert "\n" not in str(error)
    else:
        assert read_trace(folder / "t.ptt").accesses >= 1


def test_an_archive_whose_member_has_no_name_in_utf8_is_refused_in_a_line(tmp_path):
    file = tmp_path / "a.trace.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("é", b"")
    file.write_bytes(file.read_bytes().replace("é".encode(), b"\xc0\xc0"))
    with pytest.raises(CaptureError, match="compressed data = damaged: 'utf-8' codec"):
        import_drmemtrace(file, tmp_path / "t.ptt")


def test_numbers_of_public_traces_are_those_of_the_files_and_what_differs_is_said(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "some").mkdir()
    write(tmp_path / "some" / "a.trace.zip", [*begin(7), *at(1), load(1)], [store(2, 4090), *end(7)])
    write(tmp_path / "some" / "b.trace.gz", [*begin(8), *at(2), load(3), *end(8)])
    monkeypatch.setattr(dynamorio_traces, "KNOWN", {"some": (2, 19, 2, 1, 4)})
    assert dynamorio_traces.main(tmp_path) == 0
    monkeypatch.setattr(dynamorio_traces, "KNOWN", {"some": (2, 19, 2, 1, 5)})
    assert dynamorio_traces.main(tmp_path) == 1
    assert "4 accesses by page; expected (2, 19, 2, 1, 5)" in capsys.readouterr().out


def test_an_empty_folder_holds_no_trace(tmp_path):
    with pytest.raises(CaptureError, match="files = none"):
        import_drmemtrace(tmp_path, tmp_path / "t.ptt")
