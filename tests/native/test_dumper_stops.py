"""A target that was stopped goes on, whoever is killed, and in time; no stranger is ever stopped."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from native import killing
from native.dumping import PTDUMP, guardian, held, limit_files, ptdump, state, wait_for
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.capture.live.process import opened, paused
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.snapshot import read_snapshot

pytestmark = pytest.mark.native


def test_the_target_goes_on_when_the_dumper_is_killed(big, tmp_path):
    dumper = subprocess.Popen([PTDUMP, "process", str(big), "-o", tmp_path / "d", "--stop", "--verify"])
    assert wait_for(lambda: state(big) == "T")
    dumper.kill()
    dumper.wait()
    assert wait_for(lambda: state(big) == "S")


def test_the_target_goes_on_and_no_file_stays_when_the_dumper_is_interrupted(big, tmp_path):
    dumper = subprocess.Popen([PTDUMP, "process", str(big), "-o", tmp_path / "d", "--stop", "--verify"])
    assert wait_for(lambda: state(big) == "T")
    dumper.send_signal(signal.SIGINT)
    assert dumper.wait() == 128 + signal.SIGINT
    assert wait_for(lambda: state(big) == "S") and not (tmp_path / "d").exists()


@pytest.mark.parametrize("interrupt", [0, signal.SIGTERM])
def test_the_target_goes_on_when_its_guardian_is_killed(big, tmp_path, interrupt):
    dumper, _ = held(big, tmp_path, lambda dumper, _: guardian(dumper) and state(big) == "T")
    os.kill(guardian(dumper), signal.SIGKILL)
    dumper.send_signal(interrupt)
    dumper.send_signal(signal.SIGCONT)
    dumper.communicate(timeout=60)
    assert dumper.returncode == (128 + interrupt if interrupt else 0)
    assert wait_for(lambda: state(big) == "S")


def test_the_target_goes_on_whoever_is_killed_and_in_any_order(big, tmp_path):
    found, _ = killing.campaign(killing.build_hold(tmp_path), big, 40, os.getpid())
    for way, runs in found.items():
        assert runs["continued"] == runs["runs"] and runs["held"], (way, runs)


PAUSES = """
import sys, time
from ptanalyze.capture.live.process import paused
from ptanalyze.capture.live.process import opened
with opened(int(sys.argv[1])) as process:
    print(flush=True)
    sys.stdin.readline() if sys.argv[2:] else None
    with paused(process):
        print(flush=True)
        sys.stdin.readline() if sys.argv[2:] else time.sleep(60)
"""


def test_the_target_goes_on_when_the_guardian_of_python_is_killed(big):
    pipe = subprocess.PIPE
    python = subprocess.Popen([sys.executable, "-c", PAUSES, str(big), "x"], stdin=pipe, stdout=pipe)
    python.stdin.write(b"\n")
    python.stdin.flush()
    assert python.stdout.read(2) and state(big) == "T"
    (child,) = Path(f"/proc/{python.pid}/task/{python.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    python.communicate(b"\n")
    assert python.returncode == 0 and wait_for(lambda: state(big) == "S")


def test_python_stops_no_stranger_who_got_the_number():
    process, pipe = subprocess.Popen(["sleep", "60"]), subprocess.PIPE
    command = [sys.executable, "-c", PAUSES, str(process.pid), "x"]
    python = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert python.stdout.readline()
    stranger = a_stranger_with_the_number_of(process)
    try:
        _, said = python.communicate("\n")
        assert os.waitid(os.P_PID, stranger.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is None
    finally:
        stranger.kill()
        stranger.wait()
    assert python.returncode and "PartialDataError" in said and "ended" in said


def test_python_says_of_a_process_that_was_reaped_before_it_could_be_stopped_that_it_has_ended():
    with subprocess.Popen(["sleep", "60"]) as process, opened(process.pid) as it:
        process.kill()
        process.wait()
        with pytest.raises(PartialDataError, match="ended"), paused(it):
            pass


@pytest.mark.parametrize("both", [False, True])
def test_the_target_goes_on_when_python_is_killed_while_it_pauses_it(big, both):
    python = subprocess.Popen([sys.executable, "-c", PAUSES, str(big)])
    assert wait_for(lambda: state(big) == "T")
    if both:
        os.kill(guardian(python), signal.SIGKILL)
    python.kill()
    python.wait()
    assert wait_for(lambda: state(big) == "S")


def test_a_process_that_was_stopped_before_stays_stopped(target, tmp_path):
    os.kill(target, signal.SIGSTOP)
    try:
        assert wait_for(lambda: state(target) == "T")
        assert ptdump(target, tmp_path / "d", "--stop").returncode == 0
        dump_process(target, tmp_path / "e", bpf=False, stop=True)
        assert state(target) == "T" and read_snapshot(tmp_path / "d").facts["stopped_before"]
    finally:
        os.kill(target, signal.SIGCONT)


def a_stranger_with_the_number_of(process):
    """Ends the process and starts another one that gets its number."""
    process.kill()
    process.wait()
    for _ in range(50):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(process.pid - 1))
        stranger = subprocess.Popen(["sleep", "60"])
        if stranger.pid == process.pid:
            return stranger
        stranger.kill()
        stranger.wait()
    raise AssertionError(f"PID {process.pid} cannot be had again")


def test_a_stranger_who_got_the_number_is_not_stopped(tmp_path):
    process = subprocess.Popen(["sleep", "60"])
    # the directory exists when /proc/PID is open, the guardian when the process is about to be stopped
    dumper, directory = held(process.pid, tmp_path, lambda dumper, at: at.exists() and not guardian(dumper))
    stranger = a_stranger_with_the_number_of(process)
    try:
        dumper.send_signal(signal.SIGCONT)
        _, said = dumper.communicate(timeout=60)
        assert os.waitid(os.P_PID, stranger.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is None
    finally:
        stranger.kill()
        stranger.wait()
    assert dumper.returncode == 3 and "ended" in said and not directory.exists()


@contextmanager
def full_pipe():
    """(read end, write end) of a pipe into which nothing more goes."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    with suppress(BlockingIOError):
        while True:
            os.write(ends[1], b"x" * 4096)
    os.set_blocking(ends[1], True)
    yield ends
    for end in ends:
        os.close(end)


def waits_to_write(pid, file):
    """Whether a process is within write(file, ...) now (proc(5), /proc/PID/syscall)."""
    return Path(f"/proc/{pid}/syscall").read_text().startswith(f"1 {file:#x} ")


def test_the_target_goes_on_though_nobody_reads_what_the_dumper_has_to_say(big, tmp_path):
    """Tables go to the file while it is held; there is no room for them, nor for the line that says so."""
    options = ["--stop", "--memory", "1", "-o", tmp_path / "d"]
    with full_pipe() as (ours, theirs):
        command = [PTDUMP, "process", str(big), *options]
        dumper = subprocess.Popen(command, stderr=theirs, preexec_fn=limit_files)
        assert wait_for(lambda: waits_to_write(dumper.pid, 2), 20)
        assert wait_for(lambda: state(big) == "S") and dumper.poll() is None
        os.read(ours, 1 << 20)
        assert dumper.wait(20) == 2 and not (tmp_path / "d").exists()


def test_the_target_is_stopped_only_while_its_tables_are_read(target, tmp_path):
    begun = time.monotonic()
    assert ptdump(target, tmp_path / "d", "--stop").returncode == 0
    whole, facts = time.monotonic() - begun, read_snapshot(tmp_path / "d").facts
    assert facts["duration_s"] <= facts["stopped_s"] < whole


def test_a_process_is_held_no_longer_than_asked_and_that_is_said(big, tmp_path):
    """The dumper itself is stopped: its guardian continues the process."""
    options = ("--stop", "--max-stop", "300", "--verify")
    command = [PTDUMP, "process", str(big), "-o", tmp_path / "d", *options]
    dumper = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(lambda: state(big) == "T")
    dumper.send_signal(signal.SIGSTOP)
    assert wait_for(lambda: state(big) == "S") and state(dumper.pid) == "T"
    dumper.send_signal(signal.SIGCONT)
    _, said = dumper.communicate(timeout=60)
    facts = read_snapshot(tmp_path / "d").facts
    assert dumper.returncode in (0, 1) and state(big) == "S"
    assert "held for 300 ms and then continued" in said
    assert facts["gave_up"] and not facts["stopped"]


def test_a_process_that_is_read_in_time_is_held_for_all_of_it(target, tmp_path):
    done = ptdump(target, tmp_path / "d", "--stop", "--max-stop", "60000")
    facts = read_snapshot(tmp_path / "d").facts
    assert done.returncode == 0 and not facts["gave_up"] and facts["stopped"] and state(target) == "S"


def test_a_limit_needs_what_can_say_what_it_missed(big, tmp_path):
    for options in ({"bpf": False, "stop": True}, {"stop": False}):
        with pytest.raises(UsageError, match="--max-stop"):
            dump_process(big, tmp_path / "d", max_stop=100, **options)
