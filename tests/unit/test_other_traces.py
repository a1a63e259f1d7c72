"""Importing ChampSim's traces and pinatrace's text, and recognising what a file is."""

import gzip
import io
import lzma
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.import_ import import_capture
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.formats import foreign
from ptanalyze.formats.foreign import FORMATS
from ptanalyze.formats.foreign.champsim import RECORD, import_champsim, touches
from ptanalyze.formats.foreign.recognise import recognise
from ptanalyze.formats.foreign.text_traces import import_pinatrace
from ptanalyze.formats.trace import read_trace
from ptanalyze.kernels.parse import parse_pinatrace

pytestmark = pytest.mark.twin

PINATRACE = b"0x7f12: R 0x7ffe1234\n0x7f15: W 0x7ffe1238\n0x7f19: R 0x5000\n#eof\n"
LINE = re.compile(rb"0x[0-9a-fA-F]+: ([RW]) 0x([0-9a-fA-F]+)")


def instructions(*accesses):
    """RECORD[n] of ([loads], [stores]) each."""
    records = np.zeros(len(accesses), RECORD)
    for record, (loads, stores) in zip(records, accesses, strict=True):
        record["ip"], record["load"][: len(loads)], record["store"][: len(stores)] = 0x400000, loads, stores
    return records


def pages(trace):
    found = []
    for batch in trace.batches(1):
        page = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
        found += zip(page.tolist(), batch.write.tolist(), strict=True)
    return found


RECORDS = instructions(([0x5000, 0x9008], [0x5010]), ([], []), ([], [0x7000, 0x8000]), ([0x1000 << 48], []))


@pytest.mark.parametrize("pack", [bytes, lzma.compress, gzip.compress])
def test_champsims_loads_come_before_its_stores(tmp_path, pack):
    ending = {lzma.compress: ".xz", gzip.compress: ".gz"}.get(pack, "")
    file = tmp_path / f"a.champsimtrace{ending}"
    file.write_bytes(pack(RECORDS.tobytes()))
    assert import_champsim(file, tmp_path / "t.ptt", strip=False) == 5
    trace = read_trace(tmp_path / "t.ptt")
    assert pages(trace) == [(5, False), (9, False), (5, True), (7, True), (8, True)]
    assert recognise(file) == "champsim"


def test_champsims_order_is_that_of_a_plain_loop():
    generator = np.random.default_rng(1)
    records = instructions(*([([], [])] * 50))
    for side in ("load", "store"):
        shape = records[side].shape
        records[side] = generator.integers(0, 1 << 40, shape) * generator.integers(0, 2, shape)
    expected = [
        (int(address) >> 12, side == "store", k)
        for k, record in enumerate(records)
        for side in ("load", "store")
        for address in record[side]
        if address
    ]
    assert list(zip(*(column.tolist() for column in touches(records)), strict=True)) == expected


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (RECORDS.tobytes()[:-1], "bytes = 63: left over"),
        (
            b"text that is as long as a record of ChampSim, with its newline\n\n",
            "record = 0: no ChampSim trace",
        ),
        (b"", "accesses = 0"),
    ],
)
def test_what_is_no_champsim_trace_is_refused(tmp_path, data, line):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(CaptureError, match=line):
        import_champsim(tmp_path / "a", tmp_path / "t.ptt")


def test_damaged_compression_is_refused(tmp_path):
    (tmp_path / "a.xz").write_bytes(lzma.compress(RECORDS.tobytes())[:-20])
    with pytest.raises(CaptureError, match="compressed data = damaged"):
        import_champsim(tmp_path / "a.xz", tmp_path / "t.ptt")


def test_pinatraces_lines_become_touches(tmp_path):
    assert import_pinatrace(io.BytesIO(PINATRACE), tmp_path / "t.ptt", strip=False) == 3
    assert pages(read_trace(tmp_path / "t.ptt")) == [(0x7FFE1, True), (5, False)]


ODD_LINES = [
    b"0x1: R 0x", b"0x: W 0x1", b"0x1: X 0x1", b"1: R 0x1", b"0x1: R 0x1 ", b"0x1 R 0x1", b"0xZ: R 0x1", b"0",
    b"0x", b"0x1:", b"0x1: R",
]  # fmt: skip


@given(st.lists(st.sampled_from([*PINATRACE.split(b"\n"), *ODD_LINES])))
def test_pinatrace_is_parsed_as_a_regular_expression_does(lines):
    data = np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)
    page, write = np.empty(len(lines) + 1, np.int64), np.empty(len(lines) + 1, np.bool_)
    n, bad = parse_pinatrace(data, page, write)
    expected, at, wrong = [], 0, -1
    for line in lines:
        if line and not line.startswith(b"#"):
            if not (found := LINE.fullmatch(line)):
                wrong = at
                break
            expected.append((int(found[2], 16) >> 12, found[1] == b"W"))
        at += len(line) + 1
    assert (list(zip(page[:n].tolist(), write[:n].tolist(), strict=True)), bad) == (expected, wrong)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (PINATRACE, "pinatrace"),
        (b"==12== Lackey\nI  04001000,3\n S 1ffeffe7e,8\n", "lackey"),
        (b"# header\n  app  123/124 [003] 12.345678901:  cpu/mem-loads/: 7f1234 \n", "perf-script"),
        (b"Dumping page tables\n<numamap>\n0 0 8589934592\n</numamap>\n", "vmitosis"),
        (gzip.compress(b"\x19\0\0\0\7\0\0\0\0\0\0\0", mtime=0), "drmemtrace"),
    ],
)
def test_text_and_packed_files_are_recognised(tmp_path, text, form):
    (tmp_path / "a").write_bytes(text)
    assert recognise(tmp_path / "a") == form


@pytest.mark.parametrize(
    "data",
    [b"", b"hello world\n", b"\0" * 10, gzip.compress(b"x", mtime=0)[:9], b"\xfd7zXZ\0zzz", b"\x7fELF\2\1"],
)
def test_what_is_not_recognised_is_said_with_the_way_out(tmp_path, data):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(UsageError, match="none of the formats that are recognised; name one"):
        recognise(tmp_path / "a")


def test_every_row_of_formats_leads_to_its_functions():
    modules = {path.stem for path in Path(foreign.__file__).parent.glob("*.py")} - {"__init__", "recognise"}
    assert {row.reader.partition(":")[0] for row in FORMATS.values()} == modules
    for row in FORMATS.values():
        assert callable(foreign.imported(row.reader))
        assert not isinstance(row.known, str) or callable(foreign.imported(row.known))


def test_a_recognised_file_becomes_a_capture(tmp_path):
    (tmp_path / "a.out").write_bytes(PINATRACE)
    assert import_capture(None, tmp_path / "a.out", tmp_path / "c") == "pinatrace"
    assert read_trace(tmp_path / "c" / "trace.ptt").accesses == 3
