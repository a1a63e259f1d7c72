"""Pipes, devices, full disks, readers that leave early, and names chosen to do harm."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import product

import pytest

from captures import FORMULA, HARM, hostile_copy
from command_line import is_one_line
from needs import needs_root, small_disk
from ptanalyze.core.errors import bundled
from ptanalyze.formats.atomic import atomic_write, map_new
from ptanalyze.formats.capture import load
from strategies import Page, build_tree, frames_on
from unit.test_foreign_tables import dump_text

# A file that is a pipe, a device, a link or endless is refused, or read to a limit: nothing waits.

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


@pytest.mark.parametrize(("command", "name"), [*zip(COMMANDS * 2, FILES, strict=False)], ids=str)
@pytest.mark.parametrize(
    "what", ["pipe", "directory", "link to a device", "link to the same", "empty", "of a tebibyte"]
)
def test_an_odd_file_in_a_capture_is_one_line(pt, capture, command, name, what):
    becomes(capture / name, what)
    ran = pt(command[0], capture, *command[1:])
    if command[0] == "check" and name != "capture.json":
        assert ran.code == 1 and name in ran.out and "FAILED files: as sealed" in ran.out
    else:
        assert is_one_line(ran, 2 if ran.code == 2 else 1) and name in ran.err


@pytest.mark.parametrize("what", ["pipe", "directory", "empty"])
def test_an_odd_file_of_derived_data_is_no_such_data(pt, capture, tmp_path, monkeypatch, what):
    """Nor is it written to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = ("classify", capture, "--weight", "walks", "--csv")
    whole = pt(*asked)
    becomes(load(capture).cache / "trace.index", what)
    began = time.process_time()
    again = pt(*asked)
    assert (again.code, again.out) == (whole.code, whole.out) and time.process_time() - began < 10


def test_a_pipe_that_was_named_is_written_to_or_read(pt, tmp_path):
    pipe = tmp_path / "out.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert pt("policies", "-o", pipe).code == 0 and pipe.is_fifo()
    assert os.read(reader, 1 << 16).startswith(b"policy,")
    os.close(reader)
    assert is_one_line(ran := pt("policies", "-o", pipe), 2) and "start the reader" in ran.err
    os.mkfifo(pipe := tmp_path / "m.toml")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    pipe.write_bytes((bundled("models") / "machines/epyc-milan.toml").read_bytes())
    assert pt("machines", pipe, "--json").code == 0
    os.close(reader)


MODELS = ["calibrate --local {}", "calibrate {}", "machines {}", "whatif -m {}", "whatif --calibration {}"]
GIVEN = [*product([*MODELS, "import {} -o o", "diff {} {}"], ["/dev/zero", sys.executable, "hole"])]


@pytest.mark.parametrize(("given", "what"), [*GIVEN, *product(MODELS, ["pipe.toml", "loop.toml"])])
def test_an_odd_file_that_was_named_is_one_line(pt, tmp_path, monkeypatch, given, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hole").write_bytes(b"")
    os.truncate(tmp_path / "hole", 1 << 40)
    os.mkfifo("pipe.toml")
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    ran = pt(*given.format(what, what).split())
    assert ran.code in (1, 2) and is_one_line(ran, ran.code) and "did you mean loop" not in ran.err
    assert not (tmp_path / "o").exists()


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


# Names in captures, files and options reach nobody's terminal, spreadsheet or file as anything but text.


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A capture with hostile names below a directory with a hostile name."""
    place = tmp_path_factory.mktemp("hostile") / "$x_{ \x1b[31m\n\u202e$"
    place.mkdir()
    return hostile_copy(bundled("samples") / "sysbench-memory", place / "a$\\b{$\x1b[1m")


ASKED = [("info",), ("check",), ("classify", "--by", "vma"), ("walk", "0x1000")]


def harmless(text):
    return not HARM & set(text) and not any(ord(one) < 32 and one not in "\n\t" for one in text)


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
@pytest.mark.parametrize("form", ["table", "--json", "--csv"])
def test_names_of_a_capture_are_only_shown(once, hostile, asked, form):
    command, *more = asked
    ran = once(command, hostile, *more, *([form] if form != "table" else []))
    assert ran.code in (0, 1, 2, 3) and harmless(ran.out) and harmless(ran.err), ran
    if form == "--json" and ran.out:
        json.loads(ran.out)


@pytest.mark.parametrize("stored", [False, True], ids=["printed", "stored"])
def test_no_cell_of_a_csv_is_a_formula(pt, hostile, tmp_path, stored):
    file = tmp_path / "t.csv"
    ran = pt("info", hostile, *(("-o", file) if stored else ("--csv",)))
    text = file.read_text() if stored else ran.out
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells and harmless(text)
    for cell in cells:
        assert cell[:1] not in "=@+-" or not cell[1:] or float(cell) is not None


def test_a_formula_in_a_cell_is_quoted_and_a_number_is_not():
    from pandas import DataFrame

    from ptanalyze.formats.text_output import csv_text

    table = DataFrame({"=a": [FORMULA, "@x", "+1+1", "-cmd", "-1.5", "-", "a\nb"], "n": range(-3, 4)})
    rows = list(csv.reader(io.StringIO(csv_text(table))))
    assert rows[0] == ["'=a", "n"]
    assert [row[0] for row in rows[1:]] == [f"'{FORMULA}", "'@x", "'+1+1", "'-cmd", "-1.5", "-", r"a\nb"]
    assert [row[1] for row in rows[1:]] == ["-3", "-2", "-1", "0", "1", "2", "3"]


# A full disk is one line that names what was asked for, and nothing stays: also where files are mapped.

SAMPLE = bundled("samples") / "sysbench-memory"
LEAVES = [Page(k << 21, 200 + k) for k in range(64)]  # a leaf table each
PAGE = 4096
DIRECTORIES = 2  # pages that a disk holds besides


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "dump.txt"
    path.write_text(dump_text(build_tree(LEAVES, frames_on([0]))))
    return path


def ran(*words):
    """In a process of its own: what is tested once ended it with SIGBUS."""
    command = [sys.executable, "-m", "ptanalyze", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_root
@pytest.mark.parametrize("what", ["redact", "import", "synth"])
@pytest.mark.parametrize("pages", [4, 50])
def test_a_full_disk_is_said_and_nothing_is_kept(tmp_path, text, what, pages):
    commands = {
        "redact": ("redact", SAMPLE),
        "import": ("import", "vmitosis", text),
        "synth": ("synth", "--size", "64M"),
    }
    with small_disk(tmp_path / "disk", (pages + DIRECTORIES) * PAGE) as disk:
        failed = ran(*commands[what], "-o", disk / "out")
        assert not os.listdir(disk)
    assert failed.returncode == 2, failed
    said = failed.stderr.splitlines()[-1]
    assert said.startswith(f"ptanalyze: {disk}") and ".tmp" not in said
    assert said.endswith("No space left on device; nothing was kept") or "do not fit" in said


@needs_root
def test_a_file_that_does_not_fit_is_named_and_the_old_one_stays(tmp_path):
    with small_disk(tmp_path / "disk", 8 * PAGE) as disk:
        path = disk / "page.html"
        path.write_text("old")
        with pytest.raises(OSError, match="cannot write: No space left") as failed, atomic_write(path) as out:
            out.write(b"new" * 20_000)
        assert failed.value.filename == str(path)
        assert path.read_text() == "old" and len(os.listdir(disk)) == 1


@needs_root
def test_room_is_there_before_a_map_is_written_to(tmp_path):
    with small_disk(tmp_path / "disk", 8 * PAGE) as disk, (disk / "file").open("x+b") as file:
        with pytest.raises(OSError, match="No space left"):
            map_new(file, "<u8", (9, 512))
        assert map_new(file, "<u8", (2, 512)).sum() == 0
        assert os.fstat(file.fileno()).st_blocks * 512 >= 2 * PAGE


# Whoever reads our output may stop early: `ptanalyze ... | head` is no error, and says nothing.


@pytest.mark.parametrize("arguments", [["policies"], ["machines", "--json"]])
def test_a_reader_that_has_gone_is_no_error(arguments):
    command = [sys.executable, "-m", "ptanalyze", *arguments]
    ours = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ours.stdout.close()  # before the first line
    assert (ours.stderr.read(), ours.wait()) == ("", 0)
    ours.stderr.close()
