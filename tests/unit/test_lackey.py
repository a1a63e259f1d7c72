"""Importing valgrind lackey's text."""

import io

import numpy as np
import pytest

from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.foreign import text_traces
from ptanalyze.formats.foreign.text_traces import import_lackey
from ptanalyze.formats.trace import read_trace

pytestmark = pytest.mark.twin

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


def touches_of(trace):
    rows = []
    for batch in trace.batches(1):
        page = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
        rows += zip(page.tolist(), batch.write.tolist(), batch.count.tolist(), strict=True)
    return rows


def test_loads_stores_and_modifies_become_touches_and_a_straddle_two(tmp_path):
    assert import_lackey(io.BytesIO(TEXT), tmp_path / "t.ptt") == 6
    trace = read_trace(tmp_path / "t.ptt")
    assert touches_of(trace) == [(0x1FFEFF, True, 1), (0x4222, True, 4), (0x4223, False, 1)]
    assert trace.chunks["instructions"].tolist() == [2] and trace.facts["ended"] == "imported"
    assert trace.threads["tid"].tolist() == [0]


def test_blocks_of_any_size_give_the_same_trace(tmp_path, monkeypatch):
    import_lackey(io.BytesIO(TEXT), tmp_path / "whole.ptt")
    for size in (1, 7, 40):
        monkeypatch.setattr(text_traces, "BLOCK", size)
        monkeypatch.setattr(text_traces.blocks, "__defaults__", (size,))
        import_lackey(io.BytesIO(TEXT), tmp_path / "cut.ptt")
        whole, cut = read_trace(tmp_path / "whole.ptt"), read_trace(tmp_path / "cut.ptt")
        assert cut.accesses == whole.accesses
        assert {page for page, *_ in touches_of(cut)} == {page for page, *_ in touches_of(whole)}


@pytest.mark.parametrize(
    "line",
    [b"X 04001000,3", b" L 04222008", b" L 04222008,", b" L ,4", b" L zz,4", b" L 04222008,0", b"hello",
     b" L ", b" L fffffffffffffff0,8", b" L 04222008,4 extra", b"\x00\x01\x02"],
)  # fmt: skip
def test_a_foreign_line_is_named_and_nothing_is_left_behind(tmp_path, line):
    with pytest.raises(CaptureError, match="line at byte 14"):
        import_lackey(io.BytesIO(b"I  04001000,3\n" + line + b"\n"), tmp_path / "t.ptt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"==1== nothing\n", b"I  04001000,3\n"])
def test_a_text_without_accesses_is_refused(tmp_path, data):
    with pytest.raises(CaptureError, match="trace-mem"):
        import_lackey(io.BytesIO(data), tmp_path / "t.ptt")


def test_a_binary_without_line_ends_is_refused(tmp_path):
    with pytest.raises(CaptureError, match="longer than"):
        import_lackey(io.BytesIO(b"\xff" * 100_000), tmp_path / "t.ptt")
