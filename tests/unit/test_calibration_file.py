"""The file that keeps a calibration: it gives back what was written, and what is none is refused."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_calibrate import COMMON, LL, at

from ptanalyze.core.errors import CaptureError
from ptanalyze.cost.calibrate import calibrate_runs
from ptanalyze.cost.law import Run
from ptanalyze.formats.measured.machine import read_calibration, write_calibration


def kept(tmp_path, calibration):
    path = tmp_path / "c.toml"
    write_calibration(path, calibration)
    return path


@pytest.mark.parametrize("name", [None, "RRI", "LR"])
def test_a_calibration_file_gives_back_what_was_written(tmp_path, name):
    made = calibrate_runs(
        LL, name and at(name), name, common=COMMON, name='a "b"\\\n\x7f é𝄞', sources={"lo cal": "x\ty"}
    )
    path = kept(tmp_path, made)
    assert read_calibration(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["c.toml"]


def test_a_calibration_without_walk_cycles_is_kept_too(tmp_path):
    for made in (
        calibrate_runs(Run(1000.0), Run(1500.0), "RR", common=COMMON),
        calibrate_runs(Run(seconds=1000.0), Run(seconds=1500.0), "RR", common=COMMON),
        calibrate_runs(Run(1000.0, 300.0, 0.0), at="L:0.25,R:0.75", common=COMMON),
    ):
        assert read_calibration(kept(tmp_path, made)) == made


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("version = 2", "version = 1", "version = 1: this release reads version 2"),
        ("walkers = 2.0", "walkers = 0.0", "walkers = 0"),
        ("\nnoise = 0.03", "\nnoise = -0.03", "noise = -0.03"),
        ("repair = 0.04", "repair = inf", "repair = inf"),
        ("walkers = 2.0", 'walkers = 2.0\nat = "LP"', "at = LP"),
        ("walkers = 2.0", 'walkers = 2.0\nat = "RRI"', "remote = RRI"),
        ('format = "ptanalyze-calibration"', 'format = "x"', "format = x"),
        ("walkers = 2.0", "wolkers = 2.0", "wolkers"),
        ("walkers = 2.0", 'walkers = "two"', "walkers"),
        ("cycles = 1000.0", "cycles = -1.0", "local.cycles = -1"),
        ("cycles = 1000.0", "cycles = nan", "local.cycles = nan"),
        ("gpt = 350.0", "gpt = inf", "local.gpt = inf"),
        ("low = 0.47", "low = 0.65", "gpt_part = 0.65"),
        ("low = 0.47", "low = nan", "gpt_part = nan"),
        ("high = 0.53", "high = 5.5", "gpt_part"),
        ('placement = "RRI"', "", "placement = None"),
        ('placement = "RRI"', 'placement = "LL"', "remote = LL"),
        ('placement = "RRI"', 'placement = "RP"', "placement = RP"),
        ('placement = "RRI"', 'placement = "Q"', "placement = Q"),
        ("[local]", "[local", "not a TOML file"),
        ("native = false", "native = true", "placement = RRI"),
    ],
)
def test_a_wrong_calibration_file_is_refused_by_field(tmp_path, old, new, why):
    path = kept(tmp_path, calibrate_runs(LL, at("RRI"), "RRI", common=COMMON))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=why) as refused:
        read_calibration(path)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


@given(st.binary(max_size=60))
def test_no_bytes_but_a_calibration_are_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("c") / "c.toml"
    path.write_bytes(content)
    with pytest.raises(CaptureError):
        read_calibration(path)
