"""A file that is a pipe, a device, a link or endless is refused, or read to a limit: nothing waits."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from one_line import is_one_line
from ptanalyze.core.errors import bundled
from ptanalyze.formats.atomic import atomic_write
from ptanalyze.formats.manifest import seal

FILES = ["capture.json", "snapshot.json", "maps", "gpt.tables", "gpt.entries", "trace.ptt"]
COMMANDS = [("check",), ("info",), ("classify", "--by", "vma"), ("redact", "-o", "red")]


@pytest.fixture
def capture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = bundled("samples") / "sysbench-memory"
    return shutil.copytree(source, tmp_path / "c", ignore=shutil.ignore_patterns(".cache"))


def becomes(path, what):
    path.rename(path.with_name(".moved"))
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "link to a device":
        path.symlink_to("/dev/zero")
    elif what == "link to the same":
        path.symlink_to(".moved")
    elif what == "empty":
        path.write_bytes(b"")
    else:
        shutil.copy(path.with_name(".moved"), path)
        os.truncate(path, 1 << 40)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "what", ["pipe", "directory", "link to a device", "link to the same", "empty", "of a tebibyte"]
)
def test_an_odd_file_in_a_capture_is_one_line(pt, capture, command, name, what):
    becomes(capture / name, what)
    ran = pt(command[0], capture, *command[1:])
    if command[0] == "check" and name != "capture.json" and what in ("empty", "of a tebibyte"):
        assert ran.code == 1 and "sealed with" in ran.out
    else:
        assert is_one_line(ran, 2 if ran.code == 2 else 1) and name in ran.err


DERIVED = ["trace.index", "seal", "page.npy", "write.npy", "offset.npy", "hits.npy"]


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("what", ["pipe", "directory", "link to a device", "empty", "of a tebibyte"])
def test_an_odd_file_of_derived_data_is_no_such_data(pt, capture, name, what):
    """Nor is it written to: derived data travel with captures, a link there may lead to a disk."""
    asked = ("classify", capture, "--weight", "walks", "--csv")
    (capture / "trace.index").unlink(missing_ok=True)
    whole = pt(*asked)
    becomes(next((capture / ".cache").rglob(name)), what)
    began = time.process_time()
    again = pt(*asked)
    assert (again.code, again.out) == (whole.code, whole.out) and time.process_time() - began < 10


def test_what_lies_in_a_capture_is_replaced_never_written_to(tmp_path):
    (tmp_path / "x").symlink_to("/dev/full")
    with atomic_write(tmp_path / "x") as file:
        file.write(b"y")
    assert (tmp_path / "x").read_bytes() == b"y" and not (tmp_path / "x").is_symlink()


def test_a_pipe_that_was_named_as_output_is_written_to(pt, tmp_path):
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert pt("policies", "-o", pipe).code == 0 and pipe.is_fifo()
    assert os.read(reader, 1 << 16).startswith(b"policy,")
    os.close(reader)


GIVEN = [
    ("predict", "{}"),
    ("calibrate", "--local", "{}"),
    ("topology", "groups", "{}"),
    ("machines", "{}"),
    ("compare", "{}", "{}"),
    ("whatif", "lookup", "-p", "linux", "-m", "{}"),
    ("whatif", "lookup", "-p", "linux", "--costs", "{}"),
    ("import", "lackey", "{}", "-o", "o"),
    ("import", "perf-script", "{}", "-o", "o"),
    ("import", "vmitosis", "{}", "-o", "o"),
    ("import", "champsim", "{}", "-o", "o"),
    ("import", "{}", "-o", "o"),
    ("import", "ptdump", "{}", "-o", "o"),
    ("check", "{}"),
    ("join", "{}", "{}", "-o", "o"),
    ("diff", "{}", "{}"),
]


@pytest.mark.parametrize("given", GIVEN, ids=" ".join)
@pytest.mark.parametrize(
    "what", ["/dev/zero", "/dev/null", "/tmp", "/proc/self/mem", sys.executable, "/dev/full"]
)
def test_an_odd_file_that_was_named_is_one_line(pt, tmp_path, monkeypatch, given, what):
    monkeypatch.chdir(tmp_path)
    ran = pt(*(part.format(what) for part in given))
    assert ran.code in (1, 2) and is_one_line(ran, ran.code)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("given", GIVEN, ids=" ".join)
def test_a_hole_of_a_tebibyte_that_was_named_is_one_line(pt, tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hole").write_bytes(b"")
    os.truncate(tmp_path / "hole", 1 << 40)
    began = time.process_time()
    ran = pt(*(part.format("hole") for part in given))
    assert ran.code in (1, 2) and is_one_line(ran, ran.code)
    assert time.process_time() - began < 10 and not (tmp_path / "o").exists()


def test_a_pipe_may_be_named_as_a_file(tmp_path):
    machine = next((bundled("models") / "machines").glob("*.toml"))
    for name in ("/dev/stdin", "/proc/self/fd/0"):
        ran = subprocess.run(
            [sys.executable, "-m", "ptanalyze", "machines", name],
            input=machine.read_bytes(),
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 0 and ran.stdout, ran


@pytest.mark.parametrize("command", [("import", "ptdump"), ("join", "HOST")], ids=" ".join)
def test_a_linked_trace_is_no_trace_of_a_foreign_directory(pt, tmp_path, command):
    host, guest, secret = (tmp_path / name for name in ("host", "guest", "secret"))
    shutil.copytree(bundled("samples") / "sysbench-memory", guest)
    (guest / "capture.json").unlink()
    (guest / "trace.ptt").rename(secret)
    (guest / "trace.ptt").symlink_to(secret)
    ran = pt(*(part if part != "HOST" else host for part in command), guest, "-o", tmp_path / "o")
    assert is_one_line(ran, ran.code) and ran.code in (1, 2) and not (tmp_path / "o").exists()


def test_what_is_imported_is_private(pt, tmp_path):
    source = shutil.copytree(bundled("samples") / "sysbench-memory", tmp_path / "foreign")
    for path in source.iterdir():
        path.chmod(0o644) if path.is_file() else shutil.rmtree(path)
    assert pt("import", "ptdump", source, "-o", tmp_path / "o").code == 0
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "o").iterdir()} == {0o600}


@pytest.mark.parametrize("name", ["gpt.entries", "gpt.tables", "trace.ptt", "maps", "snapshot.json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_tebibyte_that_was_sealed_is_one_line(pt, capture, command, name):
    os.truncate(capture / name, 1 << 40)
    seal(capture, "process", {})
    ran = pt(command[0], capture, *command[1:])
    if name == "trace.ptt":  # what lies behind its last frame is no part of it
        assert ran.code == 0 and not list(capture.parent.glob("red/**/trace.ptt"))[1:]
        assert all(path.stat().st_size < 1 << 30 for path in capture.parent.glob("red/*"))
    else:
        assert ran.code == 1 and name in ran.out + ran.err and ran.err.count("\n") <= 1
