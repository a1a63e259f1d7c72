"""Names, sizes, intervals, JSON and TOML, signals, scratch memory: what all rooms stand on."""

import codecs
import ctypes
import os
import re
import signal
import time
import unicodedata

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ptanalyze.cli.options import duration
from ptanalyze.core import errors
from ptanalyze.core.interval import Interval, over_corners
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.process import ASKED, seen_signals, usable_cpus
from ptanalyze.core.safe_files import Undecodable, json_struct, plain_json, plain_toml, struct_of
from ptanalyze.core.trace import Scratch
from ptanalyze.formats.measured import read_measured
from ptanalyze.formats.record import MANIFEST, decode_facts, read_manifest
from ptanalyze.formats.snapshot import Facts
from ptanalyze.formats.text_output import plain
from ptanalyze_law.perf_stat import read_perf_stat

# Hostile JSON and TOML: nested deeply, huge numbers, other encodings; each file says it in one line.

DEEP = 100_000
DIGITS = b"9" * 5000
JSON = {
    "arrays": b"[" * DEEP,
    "objects": b'{"a":' * DEEP,
    "deep inside": b'{"format": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "integer": b'{"format": ' + DIGITS + b"}",
    "65 bits": b'{"format": 18446744073709551616}',
    "float": b'{"format": 1e999}',
    "latin-1": b'{"format": "caf\xe9"}',
    "not Unicode": b"\xff\xfe{",
    "a null byte": b'{"format": "a\x00b"}',
    "newlines in a name": b'{"a\\nb": 1, "format": "c\\nd"}',
}
TOML = {
    "arrays": b"a = " + b"[" * DEEP,
    "tables": b"a = " + b"{b = " * DEEP,
    "dotted": b"[" + b"a." * 2000 + b"b]\nc = 1",
    "integer": b"nodes = " + DIGITS,
    "hexadecimal": b"nodes = 0x" + b"f" * 5000,
    "65 bits": b"nodes = 18446744073709551616",
    "latin-1": b'name = "caf\xe9"',
    "not Unicode": b"\xff\xfen",
    "a null byte": b'name = "a\x00b"',
    "newlines in a name": b'"a\\nb" = 1',
}


class Sample(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    inner: list[dict[str, float]] = []


def said(read, *arguments):
    """The one line with which reading fails."""
    with pytest.raises(errors.PtanalyzeError) as caught:
        read(*arguments)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 500, text[:500]
    return text


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_a_hostile_record_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, MANIFEST, content)
    assert said(read_manifest, tmp_path).startswith(f"{path}: ")


@pytest.mark.parametrize("value", [b"[" * DEEP + b"]" * DEEP, DIGITS, b'"caf\xe9"', b"1e999", b"1" * 21])
def test_hostile_facts_are_refused_in_one_line_even_where_nobody_asks_for_them(value):
    known, other = (msgspec.Raw(b'{"%s": %s}' % (name, value)) for name in (b"pid", b"other"))
    for facts in (known, other):
        shown = said(decode_facts, "snapshot.json", facts, Facts, "snapshot")
        assert shown.startswith("snapshot.json: facts")


@pytest.mark.parametrize("content", ["arrays", "objects", "deep inside", "integer", "65 bits", "float"])
def test_a_hostile_line_of_perf_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "stat.json", b'{"event" : "cycles", "counter-value" : "1"}\n' + JSON[content])
    assert said(read_perf_stat, path).startswith(f"{path}: ")


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_a_hostile_file_of_a_machine_its_costs_or_a_calibration_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "mine.toml", content)
    assert said(load_machine, path).startswith(f"{path}: ")
    assert said(load_costs, load_machine("hydra-haswell"), path).startswith(f"{path}: ")
    path = written(tmp_path, "mine.toml", b'format = "ptanalyze-calibration"\nversion = 1\n' + content)
    assert said(read_measured, path).startswith(f"{path}: ")


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 400, "1e999"])
def test_a_huge_number_of_a_machine_is_named_with_its_field(tmp_path, number):
    text = (errors.bundled("models") / "machines" / "hydra-haswell.toml").read_text()
    path = written(tmp_path, "mine.toml", re.sub(r"ghz = .*", f"ghz = {number}", text, count=1).encode())
    assert said(load_machine, path).startswith(f"{path}: ghz = ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"size": "x"}', "size = 'x': Expected `int`, got `str`"),
        (b'{"size": 1, "inner": [{}, {"a": null}]}', "inner[1][...]: Expected `float`, got `null`"),
        (b'{"size": 1, "inner": [{}, 7]}', "inner[1] = 7: Expected `object`, got `int`"),
        (b"{}", "size: missing"),
        (b'{"size": 1, "more": 2}', "more: no such field"),
        (b'{"size": 9223372036854775808, "inner": 1}', "inner = 1: Expected `array`, got `int`"),
        (b"[]", "contents = '[]': not a sample file: Expected `object`, got `array`"),
        (b'{"size": ', "contents = '{\"size\": ': not a sample file: Input data was truncated"),
    ],
)
def test_the_field_and_its_value_are_named(text, message):
    with pytest.raises(Undecodable, match=re.escape(message)):
        json_struct(text, Sample, "sample")


def test_values_that_are_long_are_cut():
    with pytest.raises(Undecodable) as caught:
        struct_of({"size": "x" * 1000}, Sample)
    assert len(str(caught.value)) < 150 and str(caught.value).startswith("size = 'xxx")


def test_64_bits_are_read_with_and_without_a_sign():
    for number in (-(1 << 63), (1 << 64) - 1):
        assert plain_json(b'{"a": [%d]}' % number) == {"a": [number]} == plain_toml(b"a = [%d]" % number)
    for number in (-(1 << 63) - 1, 1 << 64):
        for read, text in ((plain_json, b'{"a": [0, %d]}'), (plain_toml, b"a = [0, %d]")):
            with pytest.raises(Undecodable, match=re.escape(f"a[1] = {number}: an integer of more than 64")):
                read(text % number)


def test_an_error_of_a_capture_is_no_usage_error(tmp_path):
    assert not issubclass(errors.CaptureError, errors.UsageError)
    written(tmp_path, MANIFEST, JSON["65 bits"])
    with pytest.raises(errors.CaptureError, match=f"{MANIFEST}: format = 18446744073709551616: "):
        read_manifest(tmp_path)


# Intervals through functions: ends stay ends, and the middle is the function of the middle.


def test_ends_change_sides_where_the_function_falls():
    assert Interval(1.0, 2.0, 4.0).through(lambda value: 10 * value) == Interval(10.0, 20.0, 40.0)
    assert Interval(1.0, 2.0, 4.0).through(lambda value: 1 / value) == Interval(0.25, 0.5, 1.0)


def test_a_value_that_is_known_exactly_has_one_corner():
    calls = []
    over_corners(lambda a, b: calls.append((a, b)) or 0.0, Interval.exactly(1.0), Interval(1.0, 2.0, 3.0))
    assert sorted(calls) == [(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]


# A signal that asks us to end is heard, whatever code it comes in.


class Ended(KeyboardInterrupt):
    pass


@pytest.fixture
def handlers():
    def end(number, frame):
        raise Ended

    before = {number: signal.signal(number, end) for number in ASKED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ASKED)
def test_a_signal_within_a_callback_of_c_code_ends_what_runs_after_it(number, handlers, capfd):
    with seen_signals() as seen, pytest.raises(Ended):
        ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))()
        time.sleep(60)
    assert set(seen) == {number} and not capfd.readouterr().err


def fails():
    raise ValueError("shown")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_errors_in_callbacks_are_shown_as_before(handlers, monkeypatch):
    shown = []
    monkeypatch.setattr("sys.unraisablehook", lambda what: shown.append(str(what.exc_value)))
    with seen_signals():
        ctypes.CFUNCTYPE(None)(fails)()
    assert shown == ["shown"]


# Sizes and durations as people write them, read and shown.


@pytest.mark.parametrize("text", ["64M", "64MB", "64 mib", "65536k", "0.0625G", "67108864"])
def test_a_size_is_a_number_with_a_binary_unit_or_without_one(text):
    assert errors.parse_size(text) == 64 << 20


@pytest.mark.parametrize("text", ["", "M", "-1M", "64Q", "1e3", "1%", "0x10", "inf", "nan", "9" * 400])
def test_any_other_text_is_no_size(text):
    assert errors.parse_size(text) is None


def test_a_size_is_shown_in_its_largest_unit_and_two_digits_without_exponent():
    assert [errors.show_size(size) for size in (12, 1536, 64 << 20, 3 << 39)] == ["12", "1.5K", "64M", "1.5T"]
    assert [errors.about(one) for one in (131.7, 4.52, 0.0625, 1234)] == ["130", "4.5", "0.062", "1200"]


@pytest.mark.parametrize("size", [0, 1 << 10, 10 << 20, 7 << 30, 4 << 40])
def test_what_is_shown_is_read_again(size):
    assert errors.parse_size(errors.show_size(size)) == size


def test_a_duration_is_a_number_with_a_unit_or_of_seconds():
    assert [duration(text) for text in ("500ms", "2", "1.5s", "5m", "1h")] == [0.5, 2, 1.5, 300, 3600]


# Names are shown as they are, and what is no letter in them as an escape.

SHOWN = {
    "/usr/bin/café": "/usr/bin/café",
    "a\x1b]0;title\x07b": r"a\x1b]0;title\x07b",
    "two\nlines\r\tof": r"two\nlines\r\tof",
    "\x9b31m": r"\x9b31m",
    "exe\u202egpj.exe": r"exe\u202egpj.exe",
    "caf\udce9": r"caf\xe9",
    "\ud800": r"\ud800",
    "\u2028\U000e0001": r"\u2028\U000e0001",
}


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_no_letter_is_an_escape(text):
    assert errors.printable(text) == SHOWN[text]


@given(st.binary(max_size=12))
@example(b"\\xff \xff \xc3\xa9")
def test_a_name_of_any_bytes_is_valid_json_and_comes_back(name):
    said = plain(name.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape"))
    assert codecs.escape_decode(said.encode())[0] == name


@given(st.text(st.characters()))
def test_shown_text_is_one_line_without_controls_and_shown_again_the_same(text):
    shown = errors.printable(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len((shown + "x").splitlines()) == 1
    assert errors.printable(shown).encode() == shown.encode()


@pytest.mark.parametrize(
    "error",
    [errors.UsageError("a\nb\x1b[31m"), errors.CaptureError("a\nb", "f", "\x1b[31m", "not \u202e known")],
)
def test_an_error_is_one_line_whatever_it_names(error):
    assert len(str(error).splitlines()) == 1
    assert not set("\x1b\u202e") & set(str(error))


# Scratch arrays: the same memory again, more of it when more is asked for.


def test_a_name_has_the_same_memory_again_until_more_is_asked_for():
    scratch = Scratch()
    (first,) = scratch.empty(100, page=np.uint32)
    assert first.shape == (100,) and first.dtype == np.uint32
    again, other = scratch.empty(60, page=np.uint32, other=np.uint32)
    assert np.shares_memory(first, again) and not np.shares_memory(first, other)
    (more,) = scratch.empty(1000, page=np.uint32)
    assert more.shape == (1000,) and not np.shares_memory(first, more)
    assert np.shares_memory(more, *scratch.empty(1000, page=np.uint32))


@pytest.mark.parametrize(
    ("quotas", "cpus"),
    [
        ({}, 64),
        ({"a/b": "max 100000"}, 64),
        ({"a/b": "150000 100000"}, 2),
        ({"a": "100000 50000"}, 2),
        ({"a/b": "400000 100000", "a": "300000 100000"}, 3),
        ({"a/b": "1000 100000"}, 1),
        ({"": "x"}, 64),
    ],
)
def test_no_more_cpus_are_used_than_quotas_of_cgroups_pay_for(quotas, cpus, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    own = tmp_path / "own"
    own.write_text("1:name=systemd:/x\n0::/a/b\n")
    (tmp_path / "cgroup/a/b").mkdir(parents=True)
    for group, quota in quotas.items():
        (tmp_path / "cgroup" / group / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus(tmp_path / "cgroup", own) == cpus
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == 64
