"""Files that appear whole or not at all, and what is believed of files that others can write."""

import fcntl
import lzma
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from needs import needs_root
from ptanalyze import classify, synth
from ptanalyze.core import safe_files
from ptanalyze.core.errors import CaptureError, UsageError, bundled
from ptanalyze.core.safe_files import NAME, crc_of, crc_of_zeros, open_inside, unfinished_directory
from ptanalyze.formats import trace as trace_files
from ptanalyze.formats.atomic import atomic_write
from ptanalyze.formats.capture import load
from ptanalyze.formats.record import copy_private, damaged_files, new_capture, read_manifest, seal
from ptanalyze.formats.trace import INDEX

NOBODY = 65534
HALF_DONE = {
    "directory": """
from ptanalyze.formats.record import new_capture
with new_capture("out") as inside:
    (inside / "trace.ptt").write_bytes(b"x" * 1000)
    print(flush=True)
    sys.stdin.read()
""",
    "file": """
from ptanalyze.formats.atomic import atomic_write
with atomic_write("out") as file:
    file.write(b"x" * 100_000)
    print(flush=True)
    sys.stdin.read()
""",
}


def half_done(place, what):
    """A process in the middle of writing `place`/out."""
    command = [sys.executable, "-c", "import sys\n" + HALF_DONE[what]]
    process = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.read(1)
    return process


def ended(process, how):
    process.send_signal(how)
    process.communicate()


@pytest.mark.parametrize("what", HALF_DONE)
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, what):
    ended(half_done(tmp_path, what), signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    assert len(os.listdir(tmp_path)) == 1
    with atomic_write(tmp_path / "other") as file:
        file.write(b"whole")
    assert os.listdir(tmp_path) == ["other"]


@pytest.mark.parametrize("what", HALF_DONE)
def test_what_a_living_process_writes_is_left_to_it(tmp_path, what):
    process = half_done(tmp_path, what)
    with new_capture(tmp_path / "mine"):
        pass
    process.communicate(b"")
    assert process.returncode == 0 and sorted(os.listdir(tmp_path)) == ["mine", "out"]


def test_an_unfinished_name_cannot_be_guessed_and_goes_when_the_block_fails(tmp_path):
    names = set()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "out"):
            names |= set(os.listdir(tmp_path))
            raise ZeroDivisionError
    assert len(names) == 2 and all(NAME.fullmatch(name) for name in names) and not os.listdir(tmp_path)


def test_a_file_replaces_another_and_names_may_be_long(tmp_path):
    path = tmp_path / ("n" * 255)
    for text in (b"old", b"new"):
        with atomic_write(path) as file:
            file.write(text)
    assert path.read_bytes() == b"new" and len(os.listdir(tmp_path)) == 1


def test_all_files_of_a_capture_are_synced_and_so_is_its_directory(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), fsync(fd)))
    with new_capture(tmp_path / "out") as inside:
        (inside / "trace.ptt").write_bytes(b"copied")
    wanted = [tmp_path / "out" / "trace.ptt", tmp_path / "out", tmp_path]
    assert {path.stat().st_ino for path in wanted} <= set(synced)


def test_only_our_own_names_are_removed(tmp_path):
    names = {".out.123.tmp", "ptanalyze-0123456789abcdef.tmp", ".a.tmp", ".ptanalyze-0123456789abcdef.tmp"}
    for name in names:
        (tmp_path / name).write_text("theirs")
    safe_files.remove_unfinished(tmp_path)
    assert set(os.listdir(tmp_path)) == names, "of another boot: its machine may fill it"
    os.utime(tmp_path / ".ptanalyze-0123456789abcdef.tmp", (0, 0))
    safe_files.remove_unfinished(tmp_path)
    assert len(os.listdir(tmp_path)) == 3


@needs_root
def test_what_others_left_is_left_to_them(tmp_path):
    path = tmp_path / safe_files.unfinished_name("out")
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    with atomic_write(tmp_path / "out") as file:
        file.write(b"x")
    assert path.exists()


IN_A_TEMPORARY_DIRECTORY = """
import sys
from ptanalyze.core.safe_files import temporary_directory
with temporary_directory():
    print(flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_among_temporary_files_is_removed_by_the_next(tmp_path, monkeypatch):
    command = [sys.executable, "-c", IN_A_TEMPORARY_DIRECTORY]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    killed, living = (subprocess.Popen(command, env=env, **pipes) for _ in range(2))
    for process in (killed, living):
        process.stdout.read(1)
    ended(killed, signal.SIGKILL)
    assert len(os.listdir(tmp_path)) == 2
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with safe_files.temporary_directory() as ours:
        assert len(os.listdir(tmp_path)) == 2 and ours.parent == tmp_path
    living.communicate(b"")
    assert not os.listdir(tmp_path)


@pytest.fixture
def traced(tmp_path, monkeypatch):
    """A copy of a sample with a trace, the user's cache elsewhere."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", f"{os.environ['XDG_CACHE_HOME']}/ptanalyze/code")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = bundled("samples") / "sysbench-memory"
    copied = shutil.copytree(source, tmp_path / "c", ignore=shutil.ignore_patterns(".cache", INDEX))
    seal(copied, "process", {})
    return copied


def test_without_any_cache_the_result_is_the_same(traced, monkeypatch):
    cached = classify(traced, weight="walks")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setenv("TMPDIR", str(traced.parent))
    assert load(traced).cache is None
    assert classify(traced, weight="walks").equals(cached)
    assert not [path for path in traced.parent.iterdir() if NAME.fullmatch(path.name)]


def test_a_stream_that_finds_no_room_leaves_nothing(traced, tmp_path, monkeypatch):
    assert load(traced).trace.touches
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, hard))
    try:
        with pytest.raises(UsageError, match=f"{place}: walk stream cannot be stored: File too large; free"):
            classify(traced, weight="walks")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not os.listdir(place)


@needs_root
def test_a_device_that_was_named_is_written_to_and_stays_what_it_is(tmp_path):
    null, link = tmp_path / "null", tmp_path / "link"
    os.mknod(null, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    link.symlink_to(null)
    for path in (null, link):
        with atomic_write(path, given=True) as file:
            file.write(b"lost")
    assert stat.S_ISCHR(null.stat().st_mode) and link.is_symlink()


@pytest.mark.parametrize(
    "make", [lambda place: unfinished_directory(place, "out"), lambda place: atomic_write(place / "out")]
)
@pytest.mark.parametrize(("module", "call"), [(os, "open"), (fcntl, "flock")])
def test_who_loses_a_new_name_before_it_is_locked_takes_another(tmp_path, monkeypatch, module, call, make):
    """Until it is locked it looks left behind, and another process may remove it at any moment."""
    real = getattr(module, call)
    with monkeypatch.context() as patched:

        def too_late(*arguments):
            patched.undo()
            safe_files.remove_unfinished(tmp_path)
            return real(*arguments)

        patched.setattr(module, call, too_late)
        with make(tmp_path):
            safe_files.remove_unfinished(tmp_path)
            assert len(os.listdir(tmp_path)) == 1


# Data derived from a capture are kept in the user's cache, and nowhere else.


def walks(capture):
    return classify(capture, weight="walks")["count"].tolist()


def held(directory):
    return sorted((path, path.lstat().st_mtime_ns) for path in directory.rglob("*"))


def test_a_cache_that_came_with_a_capture_is_not_read(traced):
    """Who packs a capture may put a .cache into it, with an index to which all checksums fit."""
    right = walks(traced)
    (kept_here,) = (traced.parent / "cache" / "ptanalyze").iterdir()
    (traced / ".cache").mkdir()
    kept_here.rename(traced / ".cache" / kept_here.name)
    next((traced / ".cache").rglob(INDEX)).write_bytes(b"")
    before = held(traced)
    assert walks(traced) == right and kept_here.is_dir() and held(traced) == before


def test_the_cache_is_its_users_alone(traced):
    place = traced.parent / "cache" / "ptanalyze"
    place.mkdir(parents=True, mode=0o755)
    assert walks(traced) and stat.S_IMODE(place.stat().st_mode) == 0o700


@needs_root
@pytest.mark.parametrize("what", ["another user's", "a link"])
def test_a_cache_of_others_is_not_used(traced, what):
    place = traced.parent / "cache" / "ptanalyze"
    (traced.parent / "elsewhere").mkdir()
    place.parent.mkdir()
    if what == "a link":
        place.symlink_to(traced.parent / "elsewhere")
    else:
        place.mkdir(mode=0o777)
        os.chown(place, NOBODY, NOBODY)
    assert walks(traced) and load(traced).cache is None and not list(place.iterdir())


def test_the_newest_indexes_are_kept(traced, monkeypatch):
    monkeypatch.setattr(trace_files, "KEPT", 2)
    own, older, foreign = load(traced).cache, "0" * 32, "other" * 7
    for name, age in ((older, 10), ("1" * 32, 20), (foreign, 30)):
        (own.parent / name).mkdir(parents=True)
        os.utime(own.parent / name, (time.time() - age,) * 2)
    assert load(traced).trace
    assert {*own.parent.rglob("*")} == {own.parent / older, own, own / INDEX, own.parent / foreign}


@needs_root
def test_root_with_the_home_of_another_user_leaves_nothing_there(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    assert not safe_files.own_directory(home / ".local" / "state") and not list(home.iterdir())


# The CRC-32 of a file is zlib's, whatever of it is a hole.


@given(st.binary(max_size=50), st.integers(0, 5000))
def test_zeros_behind_a_text(text, count):
    assert crc_of_zeros(count, zlib.crc32(text)) == zlib.crc32(text + bytes(count))


@given(
    st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=9)), max_size=5), st.integers(0, 9)
)
def test_a_file_with_holes(tmp_path_factory, pieces, more):
    path = tmp_path_factory.getbasetemp() / "sparse"
    with open(path, "wb") as file:
        for hole, text in pieces:
            file.seek(hole * 4096, os.SEEK_CUR)
            file.write(text)
        file.truncate(file.tell() + more * 4096)
    with open(path, "rb") as file:
        assert crc_of(file) == zlib.crc32(path.read_bytes())
        for most in (None, 5000, path.stat().st_size):
            copy = path.with_name("copy")
            copy.unlink(missing_ok=True)
            copy_private(file, copy, most)
            assert copy.read_bytes() == path.read_bytes().ljust(most or 0, b"\0")[:most]
            assert copy.stat().st_blocks <= path.stat().st_blocks + 8


def test_a_tebibyte_of_nothing_is_not_read(tmp_path):
    path = tmp_path / "sparse"
    path.write_bytes(b"x")
    os.truncate(path, 1 << 40)
    before = time.process_time()
    with open(path, "rb") as file:
        assert crc_of(file) == crc_of_zeros((1 << 40) - 1, zlib.crc32(b"x"))
    assert time.process_time() - before < 5, "reading it takes minutes"


# Files of a capture may be packed by xz: what reads them sees what they hold.


@pytest.fixture
def packed(tmp_path):
    """A capture of which the two large files are packed, and the same as it was."""
    whole = synth(tmp_path / "whole", "16M", accesses=1500, init_trace=False).directory
    small = shutil.copytree(whole, tmp_path / "small", ignore=shutil.ignore_patterns(".cache"))
    for name in ("gpt.entries", "trace.ptt"):
        (small / f"{name}.xz").write_bytes(lzma.compress((small / name).read_bytes()))
        (small / name).unlink()
    return small, whole


def test_a_packed_capture_is_what_it_was(packed, tmp_path):
    small, whole = packed
    small_trace, trace = load(small).trace, load(whole).trace
    entries = [load(of).snapshot.guest.entries for of in packed]
    assert np.array_equal(*entries)
    assert np.array_equal(small_trace.chunks, trace.chunks)
    assert not [*damaged_files(small, read_manifest(small))]
    sealed = read_manifest(small).files
    seal(small, "process", {})
    assert read_manifest(small).files == sealed


def test_two_openings_of_a_packed_file_have_each_their_place(packed):
    path = packed[0] / "trace.ptt"
    with open_inside(path) as one, open_inside(path) as other:
        first = one.read(8)
        assert first == other.read(8) == (packed[1] / "trace.ptt").read_bytes()[:8] and one.tell() == 8


@pytest.mark.parametrize("harm", ["cut", "foreign", "flipped", "longer", "large", "link"])
def test_a_packed_file_that_is_damaged_or_too_large_is_refused_in_one_line(packed, monkeypatch, harm):
    path = packed[0] / "trace.ptt.xz"
    whole = path.read_bytes()
    content = bytearray(whole)
    if harm == "large":
        monkeypatch.setattr(safe_files, "MOST_UNPACKED", 1 << 12)
    elif harm == "link":
        path.unlink()
        path.symlink_to(packed[1] / "trace.ptt")
    else:
        content[len(content) // 2] ^= 1
        spoilt = {"cut": content[:-40], "foreign": b"no xz", "longer": whole + b"x", "flipped": content}
        path.write_bytes(spoilt[harm])
    safe_files._unpacking.cache_clear()
    with pytest.raises(CaptureError, match=r"(trace\.ptt|gpt\.entries)\.xz"):
        _ = load(packed[0]).trace


def test_the_bundled_captures_take_no_more_than_10_mb():
    held = [path.stat().st_size for path in bundled("samples").rglob("*") if ".cache" not in path.parts]
    assert sum(held) < 10 << 20
