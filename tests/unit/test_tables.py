"""Tables that fit the terminal, colour where it belongs, and JSON that every parser reads."""

import io
import json
import re
import threading
import time
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.live.supervise import TraceSize
from ptanalyze.cli.record import Progress
from ptanalyze.core.columns import Section
from ptanalyze.formats.text_output import plain
from ptanalyze.show import terminal
from ptanalyze.show.terminal import Column, console, distinct, parts, print_rows, print_view, progress_bar

WIDE = {f"quantity {k}": 1000 * k for k in range(20)}
WIDE_ROWS = [{"policy": name, **WIDE} for name in ("linux", "vmitosis-replicate")]
NAMES = st.text("abc -", max_size=40)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    print_rows("A title", WIDE_ROWS)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert all(f"{1000 * k:,}" in out for k in range(20)), "no number is folded"


def test_a_table_too_wide_is_cut_each_part_names_its_rows_and_with_room_it_stays_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    print_rows("A title", WIDE_ROWS)
    out = capsys.readouterr().out
    parts = len(re.findall(r"^ policy ", out, re.MULTILINE))
    assert parts > 1 and out.count("vmitosis-replicate") == parts
    monkeypatch.setenv("COLUMNS", "400")
    print_rows("A title", WIDE_ROWS)
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(WIDE_ROWS)


def test_what_stands_above_is_not_said_again_where_a_second_column_tells_rows_apart(capsys):
    print_rows("", [{"of": name, "socket": socket, "count": 9} for name in ("a", "b") for socket in (0, 1)])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split() for row in rows] == [["a", "0", "9"], ["1", "9"], ["b", "0", "9"], ["1", "9"]]


@given(st.floats(0, 1))
def test_a_share_has_two_digits_and_is_never_rounded_to_nothing_or_to_all(share):
    text = terminal.percent(share)
    assert (text == "0 %") is (share == 0) and (text == "100 %") is (share == 1)
    if text[0] not in "<>":
        assert abs(float(text.removesuffix(" %")) - 100 * share) <= (0.05 if share < 0.0995 else 0.5) + 1e-9
    assert len(text) <= 6


def test_brackets_are_text(capsys):
    print_rows("t [x]", [{"of": "[heap]"}, {"of": "[/bold]"}])
    print_view([Section("h [y]", {"w": "[stack]"})])
    out = capsys.readouterr().out
    assert all(text in out for text in ("t [x]", "[heap]", "[/bold]", "h [y]", "[stack]"))


def test_rows_are_told_apart_by_the_fewest_columns():
    assert distinct([["a", "b"], ["1", "1"]]) == 1
    assert distinct([["a", "a"], ["1", "2"], ["x", "x"]]) == 2
    assert distinct([["a", "a"], ["1", "1"], ["x", "x"]]) == 1


@given(
    st.lists(st.tuples(NAMES, st.lists(NAMES, min_size=3, max_size=3)), min_size=2, max_size=12),
    st.integers(20, 200),
)
def test_parts_hold_every_column_once_and_the_keys_each_time(named, width):
    columns = [Column(name or "x", texts, k % 2 == 0) for k, (name, texts) in enumerate(named)]
    out = console()
    out.width = width
    tables = parts(out, columns, 1)
    assert [column for table in tables for column in table[1:]] == columns[1:]
    assert all(table[0] is columns[0] for table in tables)


def test_a_number_is_never_folded(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    number = "123,456,789,123,456,789"
    print_rows("", [{"policy": "linux", "n": number, "share": "12.5 %", "words": "some words to fold"}])
    assert number in capsys.readouterr().out


def test_json_has_no_number_that_json_has_not(capsys):
    import numpy as np

    value = {"nan": float("nan"), "array": np.array([1.5, np.inf]), "int": np.int64(3), "tuple": (True, None)}
    terminal.print_json("x", value, {})
    shown = {"nan": None, "array": [1.5, None], "int": 3, "tuple": [True, None]}
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert said == {"schema": 3, "what": "x", "result": shown}
    with pytest.raises(TypeError, match="object has no JSON form"):
        plain(object())


class Log(io.StringIO):
    """Standard error that is no terminal; `line` is set when something was written."""

    def __init__(self):
        super().__init__()
        self.line = threading.Event()

    def write(self, text):
        written = super().write(text)
        if text.endswith("\n"):
            self.line.set()
        return written


@pytest.mark.parametrize("ends_by", [None, ValueError, KeyboardInterrupt])
def test_long_work_says_how_far_it_is_where_there_is_no_terminal_until_it_ends(monkeypatch, capsys, ends_by):
    monkeypatch.setattr("sys.stderr", log := Log())
    threads = threading.active_count()
    ended = pytest.raises(ends_by) if ends_by else nullcontext()
    with ended, progress_bar(every=0.01) as progress:
        assert log.line.wait(60), "before anything is done"
        for done, said in (
            (1, "walks, 25 %"),
            (0, "walks (round 2), 0 %"),
            (4, "after replaying walks (round 2), at"),
        ):
            progress(done, 4, "replaying walks")
            log.line.clear(), log.line.wait(60), log.line.clear()
            assert log.line.wait(60) and said in log.getvalue().splitlines()[-1]
        if ends_by:
            raise ends_by
    assert threading.active_count() == threads and not capsys.readouterr().out


def test_long_work_announces_itself_in_a_log(monkeypatch):
    monkeypatch.setattr("sys.stderr", log := Log())
    with terminal.lines_of_progress(3600, 0.01):
        for _ in range(3):  # as much again passes between two lines
            assert log.line.wait(60) and not log.line.clear()
    recording, before = Progress(), len(log.getvalue().splitlines())
    for after in range(71):
        recording(TraceSize(after, 1 << 20, 1 << 40))
    said = log.getvalue().splitlines()[before:]
    assert [line.split()[2] for line in said] == ["0:05,", "0:10,", "0:20,", "0:40,", "1:10,"]
    log.close()
    recording.sealing(TraceSize(33, 1 << 20, 1 << 40))  # a terminal that is gone: what was recorded is kept


def test_short_work_says_nothing_a_closed_log_stops_nothing_a_terminal_shows_both_bars(monkeypatch):
    monkeypatch.setattr("sys.stderr", log := Log())
    with progress_bar() as progress:
        progress(0, 0, "filtering touches")
    assert not log.getvalue()
    with progress_bar(every=0.001) as progress:
        log.close()
        progress(1, 1, "filtering touches")
        time.sleep(0.01)
    monkeypatch.setattr("sys.stderr", log := Log()), monkeypatch.setattr(Log, "isatty", lambda self: True)
    monkeypatch.setenv("TERM", "xterm"), monkeypatch.setattr("locale.getencoding", lambda: "utf-8")
    with progress_bar() as progress:
        progress(4, 4, "replaying walks")
    assert "replaying walks" in log.getvalue().rpartition("at work")[2]
