"""What is damaged in a capture is noticed by whatever reads it, not by `check` alone."""

import shutil

import pytest

from ptanalyze import classify
from ptanalyze.capture.vm.redact import redact
from ptanalyze.cli import run
from ptanalyze.core.bundled import bundled
from ptanalyze.core.errors import CaptureError
from ptanalyze.formats.capture import load


@pytest.fixture
def copy(tmp_path):
    return lambda name: shutil.copytree(
        bundled("samples") / name, tmp_path / "c", ignore=shutil.ignore_patterns(".cache")
    )


def flip(path, at, bit=1):
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["gpt.entries", "gpt.tables", "maps", "snapshot.json", "trace.ptt"])
def test_a_flipped_bit_is_refused_by_what_reads_the_file(copy, file):
    capture = copy("sysbench-memory")
    size = (capture / file).stat().st_size
    flip(capture / file, size // 2)
    with pytest.raises(CaptureError, match=file):
        classify(capture, weight="walks" if file == "trace.ptt" else "leaf")


def test_a_damaged_capture_is_not_sealed_anew_without_its_secrets(copy, tmp_path):
    capture = copy("sysbench-memory")
    flip(capture / "gpt.entries", (capture / "gpt.entries").stat().st_size - 9)
    with pytest.raises(CaptureError, match=r"gpt\.entries.*damaged"):
        redact(load(capture), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_tables_that_nobody_sealed_are_no_part_of_a_capture(copy):
    capture = copy("sysbench-memory")
    whole = classify(capture)
    for name in ("ept.tables", "ept.entries"):
        shutil.copy(bundled("samples") / "vm-numa-visible" / name, capture)
    assert classify(capture).equals(whole) and load(capture).snapshot.native


def test_the_share_of_flipped_bits_that_is_noticed_is_all_of_them(copy, capsys):
    """A bit in every stretch of every file; the manifest names its own format and may hold any provenance."""
    from ptanalyze.capture.check import check_capture, exit_code

    capture = copy("sysbench-memory")
    flips = noticed = 0
    for path in sorted(capture.iterdir()):
        size = path.stat().st_size
        for at in range(0, size, max(size // 6, 1)) if path.name != "capture.json" else ():
            flip(path, at, 1 << at % 8)
            noticed += exit_code(check_capture(load(capture))) == 1
            flips += 1
            flip(path, at, 1 << at % 8)
    with capsys.disabled():
        print(f" {noticed} of {flips} flipped bits noticed by check", end="")
    assert flips > 20 and noticed == flips
    assert exit_code(check_capture(load(capture))) == 0


def test_a_capture_that_is_trusted_is_read_without_comparing_it_and_that_is_said(copy, capfd):
    capture = copy("sysbench-memory")
    flip(capture / "gpt.entries", (capture / "gpt.entries").stat().st_size - 9)
    assert run(["classify", str(capture)]) == 1
    assert "damaged" in capfd.readouterr().err
    assert run(["--trust", "classify", str(capture)]) == 0
    assert "not compared with their checksums" in capfd.readouterr().err
    assert run(["--trust", "check", str(capture)]) == 1, "check always compares"
    assert run(["classify", str(capture)]) == 1, "trust is of one call"
