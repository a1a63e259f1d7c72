"""How sampling of accessed bits ends early: by signals, with its terminal, killed; and what is refused."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from native.dumping import make, state, wait_for
from needs_root import needs_root
from ptanalyze.capture.live import heat
from ptanalyze.formats.capture import open_capture

pytestmark = [
    pytest.mark.native,
    needs_root,
]


@pytest.fixture(scope="module")
def target():
    make("dumps")
    process = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(0.01)"])
    yield process.pid
    process.kill()
    process.wait()


def begun(target, out, **how):
    """(the command that samples for ten minutes, its ptheat, which has taken samples)."""
    command = [sys.executable, "-m", "ptanalyze", "heat", str(target), "--for", "600s", "-o", out]
    ran = subprocess.Popen(command, text=True, **how)
    assert wait_for(lambda: sampler_of(ran.pid), 120)
    sampler = sampler_of(ran.pid)
    assert wait_for(lambda: waits(sampler) > 6, 300)
    return ran, sampler


def sampler_of(pid):
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path(f"/proc/{child}/comm").read_text().strip() == "ptheat":
                return int(child)
    return None


def waits(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_early_and_what_was_sampled_is_kept_and_said(target, tmp_path, number, code):
    ran, _ = begun(target, tmp_path / "app", stderr=subprocess.PIPE)
    ran.send_signal(number)
    said = ran.communicate(timeout=120)[1]
    assert ran.returncode == code, said
    assert "Ctrl-C ends it and keeps the samples" in said and " of 600 s: what was sampled until then" in said
    capture = open_capture(tmp_path / "app")
    assert capture.has_heat and not capture.damaged


def test_it_ends_with_its_terminal_and_keeps_the_samples(target, tmp_path):
    ours, theirs = pty.openpty()
    ran, _ = begun(target, tmp_path / "app", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)  # what it prints from now on is an error
    ran.send_signal(signal.SIGHUP)  # as the kernel does to whom the terminal belongs
    assert ran.wait(timeout=120) == 129
    assert open_capture(tmp_path / "app").has_heat


def test_killed_it_takes_its_sampler_along(target, tmp_path):
    ran, sampler = begun(target, tmp_path / "app", stderr=subprocess.DEVNULL)
    ran.kill()
    ran.wait()
    assert wait_for(lambda: not Path(f"/proc/{sampler}").exists() or state(sampler) in "ZX", 60)
    assert not (tmp_path / "app").exists()


def test_a_process_that_is_being_sampled_is_not_sampled_a_second_time(target, tmp_path, pt_lines):
    ran, _ = begun(target, tmp_path / "first", stderr=subprocess.DEVNULL)
    said = pt_lines("heat", target, "-o", tmp_path / "second")[-1]
    assert f"PID {target}: is being sampled already" in said
    assert not (tmp_path / "second").exists()
    ran.send_signal(signal.SIGINT)
    assert ran.wait(timeout=120) == 0


def test_what_cannot_be_is_said_before_anything_is_looked_for(target, tmp_path, pt_lines):
    (tmp_path / "there").mkdir()
    (line,) = pt_lines("heat", target, "-o", tmp_path / "there")
    assert line.startswith(f"ptanalyze: {tmp_path / 'there'}: exists already")
    assert pt_lines("heat", 2**22 + 1) == [f"ptanalyze: PID {2**22 + 1}: no such process"]
    assert "'redis-server' is no PID" in pt_lines("heat", "redis-server")[-1]
    assert "give more than 0" in pt_lines("heat", target, "--for", "0s")[-1]


@pytest.fixture
def pt_lines(capfd):
    from ptanalyze.cli import run

    def call(*words):
        capfd.readouterr()
        assert run([str(word) for word in words]) == 2
        return capfd.readouterr().err.splitlines()

    return call


def test_damon_is_probed_for_and_never_in_the_way(tmp_path, monkeypatch):
    monkeypatch.setattr(heat, "DAMON", tmp_path / "kdamonds")
    assert heat.damon().startswith("not there") and not heat.provenance()
    thread = tmp_path / "kdamonds" / "0"
    thread.mkdir(parents=True)
    assert "is not known" in heat.damon()  # no state to read
    (thread / "state").write_text("off\n")
    assert "counts regions" in heat.damon() and not heat.provenance()
    (thread / "state").write_text("on\n")
    assert "rates may be too low" in heat.damon()
    assert heat.provenance() == {"also clears accessed bits": heat.damon()}
