"""What is damaged in a capture is noticed by whatever reads it, not by `check` alone."""

import shutil

import numpy as np
import pytest

from ptanalyze import classify
from ptanalyze.capture.vm.redact import redact
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, bundled
from ptanalyze.formats.capture import load
from ptanalyze.formats.trace import read_index
from ptanalyze.formats.trace_index import DTYPES, stored_index, write_index
from ptanalyze.kernels.code_cache import KeptCode
from ptanalyze.world import stream_store
from ptanalyze.world.stream_store import COLUMNS, Writer


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
    """A bit in every stretch of every file but the manifest, every bit of which is flipped elsewhere."""
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


def stored_stream(place):
    """load() -> the columns of a walk stream stored in `place`, as bytes, or None; its files."""
    with Writer(place, "x") as writer:
        walks = np.arange(40, dtype=np.uint32)
        for chunk in range(2):
            writer.append(walks + chunk, walks % 2 == 0, np.array([40]))
        writer.seal(np.full((2, 3), 7))

    def load():
        stream = stream_store.load(place, "x", 2, 8, 80)
        return None if stream is None else [np.asarray(getattr(stream, name)).tobytes() for name in COLUMNS]

    return load, sorted((place / "walks-x").iterdir())


def kept_code(place):
    """load() -> what stands in for compiled code, or None; its file."""
    place.chmod(0o700)
    kept = KeptCode(place, "loop", "k" * 32)
    kept.save(("machine code", b"\x90" * 50))
    return kept.load, [kept.path]


def kept_index(place):
    """load() -> what an index in a directory for derived data holds, or None; its file."""
    trace, index = bundled("samples") / "sysbench-memory" / "trace.ptt", place / "trace.index"
    write_index(index, trace, read_index(trace), kept=True)

    def load():
        found = stored_index(index, trace, kept=True)
        return found and [found.facts, *(getattr(found, name).tobytes() for name in DTYPES)]

    return load, [index]


@pytest.mark.parametrize("kept", [stored_stream, kept_code, kept_index])
def test_every_flipped_bit_of_a_cache_is_noticed(tmp_path, capsys, kept):
    load, files = kept(tmp_path)
    whole, flips, noticed = load(), 0, 0
    assert whole is not None
    for path in files:
        for at in range(0, path.stat().st_size, 3):
            flip(path, at, 1 << at % 8)
            found = load()
            flips, noticed = flips + 1, noticed + (found is None)
            flip(path, at, 1 << at % 8)
    with capsys.disabled():
        print(f" {noticed} of {flips} flipped bits of {kept.__name__} noticed", end="")
    assert load() == whole and noticed == flips > 50


def test_no_flipped_bit_of_an_index_changes_what_is_read_from_it(tmp_path, capsys):
    """Dates and attributes of its ZIP container are read by nobody; a sealed index has a checksum."""
    trace, index = bundled("samples") / "sysbench-memory" / "trace.ptt", tmp_path / "trace.index"
    write_index(index, trace, read_index(trace))

    def load():
        found = stored_index(index, trace)
        return found and [found.facts, *(getattr(found, name).tobytes() for name in DTYPES)]

    whole, flips, noticed = load(), 0, 0
    for at in range(0, index.stat().st_size, 7):
        flip(index, at, 1 << at % 8)
        found = load()
        assert found in (None, whole), at
        flips, noticed = flips + 1, noticed + (found is None)
        flip(index, at, 1 << at % 8)
    with capsys.disabled():
        print(f" {noticed} of {flips} flipped bits of an index noticed, none changed it", end="")
    assert load() == whole and noticed > flips * 0.9
