"""Data kept beside a capture are believed only where this user made them from this capture."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from needs_root import needs_root
from ptanalyze import classify
from ptanalyze.capture.check import NOTE, check_capture
from ptanalyze.core.errors import bundled
from ptanalyze.core.safe_files import BYTES, content_of, own_directory, own_key, signed
from ptanalyze.formats.capture import load, open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.trace import read_index
from ptanalyze.formats.trace_index import INDEX, write_index
from ptanalyze.world.stream_store import COLUMNS, SEAL, Writer

NOBODY = 65534


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Where this user's key is."""
    place = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place / "ptanalyze"


@pytest.fixture
def capture(tmp_path):
    source = bundled("samples") / "sysbench-memory"
    copied = shutil.copytree(source, tmp_path / "c", ignore=shutil.ignore_patterns(".cache", INDEX))
    seal(copied, "process", {})
    return copied


def walks(capture):
    return classify(capture, weight="walks")["count"].tolist()


def notes(capture):
    findings = check_capture(open_capture(capture), quick=True)
    return [(one.examined, one.wrong) for one in findings if one.verdict == NOTE and "kept" in one.name]


def forge_stream(capture, cut):
    """In place of the kept stream one that ends `cut` walks earlier, signed by whoever runs this."""
    (kept,) = capture.glob(".cache/*/walks-*")
    page, write, offset, hits = (np.load(kept / f"{name}.npy") for name in COLUMNS)
    shutil.rmtree(kept)
    misses = np.diff(np.minimum(offset, len(page) - cut))
    with Writer(kept.parent, kept.name.removeprefix("walks-")) as writer:
        writer.append(page[: len(page) - cut], write[: len(page) - cut], misses)
        writer.seal(hits)
    return kept


def as_another(monkeypatch, state, forge, *arguments):
    with monkeypatch.context() as other:
        other.setenv("XDG_STATE_HOME", str(state.parent / "other"))
        return forge(*arguments)


def test_a_stream_that_another_user_signed_changes_nothing_and_is_made_again(capture, state, monkeypatch):
    right = walks(capture)
    assert not notes(capture)
    kept = as_another(monkeypatch, state, forge_stream, capture, 500)
    forged = (kept / SEAL).read_bytes()
    assert notes(capture) == [(2, 1)]
    assert walks(capture) == right
    assert (kept / SEAL).read_bytes() != forged and not notes(capture)


def test_a_capture_of_which_nothing_is_kept_yet_has_no_note(capture):
    assert load(capture).cache.is_dir() and not notes(capture)


def test_what_this_user_signed_is_believed_also_in_a_copy(capture, tmp_path):
    right = walks(capture)
    forge_stream(capture, 500)
    assert walks(shutil.copytree(capture, tmp_path / "copy")) != right


def test_a_stream_of_other_contents_of_the_capture_is_not_used(capture):
    """Who got a capture with its .cache may change the trace, seal it and give it back."""
    right = walks(capture)
    forge_stream(capture, 500)
    (before,) = (capture / ".cache").iterdir()
    seal(capture, "process", {"changed": True})
    before.rename(load(capture).cache)
    assert notes(capture) == [(2, 2)]
    assert walks(capture) == right


def test_an_index_that_another_user_signed_is_not_used(capture, state, monkeypatch):
    touches = load(capture).trace.touches
    index = read_index(capture / "trace.ptt")
    fewer = index._replace(events=index.events[:0])
    kept = load(capture).cache / INDEX
    as_another(monkeypatch, state, lambda: write_index(kept, capture / "trace.ptt", fewer, kept=True))
    assert notes(capture) == [(1, 1)]
    assert len(load(capture).trace.events) == len(index.events) > 0 and not notes(capture)
    assert load(capture).trace.touches == touches


@pytest.mark.parametrize("what", ["file", "directory", "link"])
def test_check_says_what_else_is_in_a_cache(capture, what):
    (capture / ".cache").mkdir()
    odd = capture / ".cache" / "odd"
    if what == "link":
        odd.symlink_to("/")
    elif what == "file":
        odd.write_bytes(b"x")
    else:
        (odd / "walks-x").mkdir(parents=True)
    assert notes(capture) == [(1, 1)]


def test_a_key_is_made_once_for_its_owner_alone(state):
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: own_key(), range(16)))) == 1
    assert [path.name for path in state.iterdir()] == ["key"]
    assert (state / "key").stat().st_mode & 0o777 == 0o600 and (state / "key").stat().st_size == BYTES
    assert state.stat().st_mode & 0o777 == 0o700


def test_processes_that_begin_together_have_one_key(state):
    command = [sys.executable, "-c", "from ptanalyze.core.safe_files import own_key; print(own_key().hex())"]
    began = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    assert len({process.communicate()[0] for process in began}) == 1


def readable(key):
    key.chmod(0o640)


def short(key):
    key.write_bytes(b"x" * (BYTES - 1))


def link(key):
    key.rename(key.with_name("elsewhere"))
    key.symlink_to("elsewhere")


def given_away(key):
    os.chown(key, NOBODY, NOBODY)


def pipe(key):
    key.unlink()
    os.mkfifo(key)


@pytest.mark.parametrize("spoil", [readable, short, link, pipe, pytest.param(given_away, marks=needs_root)])
def test_a_key_that_is_not_the_users_alone_is_none_and_nothing_is_kept(capture, state, spoil):
    assert own_key()
    spoil(state / "key")
    assert own_key() is None and load(capture).cache is None
    assert walks(capture) and not (capture / ".cache").exists()


def test_without_a_key_no_signature_is_right(state, tmp_path):
    text = signed(tmp_path, b"x")
    assert content_of(tmp_path, text) == b"x" and content_of(tmp_path.parent, text) is None
    readable(state / "key")
    assert content_of(tmp_path, text) is None and content_of(tmp_path, signed(tmp_path, b"x")) is None


@pytest.mark.parametrize("home", [{"HOME": "/dev/null"}, {"XDG_STATE_HOME": "/dev/null"}])
def test_without_a_home_there_is_no_key(monkeypatch, home):
    monkeypatch.delenv("XDG_STATE_HOME")
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    assert own_key() is None


@needs_root
def test_root_with_the_home_of_another_user_leaves_nothing_there(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    assert not own_directory(home / ".local" / "state") and not list(home.iterdir())
