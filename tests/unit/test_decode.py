"""Hostile JSON and TOML: nested deeply, huge numbers, other encodings; each file says it in one line."""

import json
import re

import msgspec
import pytest

from ptanalyze.core.decode import Undecodable, json_struct, plain_json, plain_toml, struct_of
from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError, bundled
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.formats.manifest import MANIFEST, read_manifest
from ptanalyze.formats.measured.latency import read_latency, read_matrix
from ptanalyze.formats.measured.machine import read_calibration
from ptanalyze.formats.measured.perf_stat import read_perf_stat
from ptanalyze.formats.record import decode_facts, read_rows
from ptanalyze.formats.snapshot import Facts

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
    with pytest.raises(PtanalyzeError) as caught:
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


@pytest.mark.parametrize("content", JSON.values(), ids=JSON)
def test_hostile_results_are_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "results.json", content)
    assert said(read_rows, path).startswith(f"{path}: ")


@pytest.mark.parametrize("read", [read_matrix, read_latency])
@pytest.mark.parametrize("content", [text for text in JSON.values() if text[:1] == b"{"])
def test_hostile_latencies_are_refused_in_one_line(tmp_path, content, read):
    path = written(tmp_path, "latencies.json", content)
    assert said(read, path).startswith(f"{path}: ")


@pytest.mark.parametrize("value", [b"[" * DEEP + b"]" * DEEP, DIGITS, b'"caf\xe9"', b"1e999", b"1" * 21])
def test_hostile_facts_are_refused_in_one_line_even_where_nobody_asks_for_them(value):
    known, other = (msgspec.Raw(b'{"%s": %s}' % (name, value)) for name in (b"pid", b"other"))
    for facts in (known, other):
        assert said(decode_facts, "snapshot.json", facts, Facts, "snapshot").startswith(
            "snapshot.json: facts"
        )


@pytest.mark.parametrize("content", ["arrays", "objects", "deep inside", "integer", "65 bits", "float"])
def test_a_hostile_line_of_perf_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "stat.json", b'{"event" : "cycles", "counter-value" : "1"}\n' + JSON[content])
    assert said(read_perf_stat, path).startswith(f"{path}: ")


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_a_hostile_machine_file_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "mine.toml", content)
    assert said(load_machine, path).startswith(f"{path}: ")


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_a_hostile_cost_file_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "mine.toml", content)
    assert said(load_costs, load_machine("hydra-haswell"), path).startswith(f"{path}: ")


@pytest.mark.parametrize("content", TOML.values(), ids=TOML)
def test_a_hostile_calibration_is_refused_in_one_line(tmp_path, content):
    path = written(tmp_path, "mine.toml", b'format = "ptanalyze-calibration"\nversion = 1\n' + content)
    assert said(read_calibration, path).startswith(f"{path}: ")


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 400, "1e999"])
def test_a_huge_number_of_a_machine_is_named_with_its_field(tmp_path, number):
    text = (bundled("models") / "machines" / "hydra-haswell.toml").read_text()
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
        (b"[]", "contents = b'[]': not a sample file: Expected `object`, got `array`"),
        (b'{"size": ', "contents = b'{\"size\": ': not a sample file: Input data was truncated"),
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


def test_an_error_of_a_capture_is_no_usage_error():
    assert issubclass(CaptureError, PtanalyzeError) and not issubclass(CaptureError, UsageError)
    with pytest.raises(Undecodable) as caught:
        plain_json(json.dumps({"a": 1 << 80}).encode())
    assert isinstance(caught.value.of("x.json"), CaptureError)
    assert str(caught.value.of("x.json")).startswith("x.json: a = 1208925819614629174706176: ")
