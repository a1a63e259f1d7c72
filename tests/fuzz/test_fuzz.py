"""A short run of the fuzzer, and every seed that ever failed: no traceback, no hang, no other exit code."""

import faulthandler
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ptanalyze.core.errors import PtanalyzeError
from ptanalyze.core.safe_files import Undecodable, plain_json, plain_toml
from ptanalyze.formats.snapshot import parse_maps
from ptanalyze_law.perf_stat import read_perf_stat

from .attempt import Ended
from .campaign import GROWTH, HANG, SHARES, campaign, kind_of, prepared
from .inputs import KINDS

SLOW, FAST = range(26), range(10, 400)  # seeds of whole commands, of readers and words


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def made(place):
    return prepared(place)


@pytest.fixture(autouse=True)
def inside(place, monkeypatch):
    monkeypatch.chdir(place)


def test_a_short_run_finds_nothing(made, place):
    findings = campaign(SLOW, made, place, kinds=lambda seed: kind_of(seed % FAST.start))
    campaign(FAST, made, place, findings=findings)
    assert not findings.wrong, findings.report(0)
    assert findings.inputs["reader"] > findings.inputs["capture"] == 15
    assert set(findings.inputs) == KINDS


def test_every_kind_of_input_has_its_turn():
    assert set(SHARES) == KINDS == {kind_of(seed) for seed in range(sum(SHARES.values()))}


def hangs():
    while True:
        pass


def dies():
    faulthandler.disable()  # pytest's, which prints a long trace
    os.abort()


def test_a_child_that_hangs_grows_or_dies_is_found(made, place, monkeypatch):
    from . import campaign as module

    ends = {"grows": lambda: bytearray(b"x") * (GROWTH + (64 << 20)), "dies": dies, "hangs": hangs}
    for seed, how in enumerate(ends):

        def run_seed(kind, seed, made, place, begin, how=how):
            begin("x of y")
            return [("x of y", Ended(0, detail=str(ends[how]())[:9]))]

        monkeypatch.setattr(module, "run_seed", run_seed)
        monkeypatch.setattr(module, "HANG", HANG / 20 if how == "hangs" else HANG)
        (wrong,) = campaign(range(seed, seed + 1), made, place).wrong
        said = {"grows": "over 1024 MiB: x", "dies": "ended by SIGABRT: x", "hangs": "over 0 s: x"}
        assert wrong == said[how]


READERS = {"maps": lambda path: parse_maps(path.read_bytes(), path), "perf stat": read_perf_stat}


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
)
@pytest.mark.parametrize("name", READERS)
@example(content=b"\x1f")
def test_any_bytes_are_read_or_refused_in_one_line(place, name, content):
    path = Path(place) / name
    path.write_bytes(content)
    try:
        READERS[name](path)
    except PtanalyzeError as error:
        assert len(str(error).splitlines()) == 1


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=20).map(repr))
def test_any_text_of_settings_is_decoded_or_refused(text):
    for decode in (plain_json, plain_toml):
        try:
            decode(text.encode("utf-8", "replace"))
        except Undecodable as error:
            assert len(str(error).splitlines()) == 1
