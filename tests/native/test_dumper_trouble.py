"""ptdump when things go wrong: the target always goes on, one line says why, nothing half-written stays."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from native import killing
from native.dumping import (
    PROGRAMS,
    PTDUMP,
    SANITIZED,
    assert_closed,
    build,
    build_sanitized,
    clean,
    ptdump,
    running,
    state,
    wait_for,
)
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.snapshot_file import read_snapshot

pytestmark = pytest.mark.native
NO_LEAKS = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # of what ends anyway
SPARSE_GIB = 64  # 32,768 tables: long enough to be interrupted


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return build(tmp_path_factory)


@pytest.fixture(scope="module")
def big(programs):
    with running(programs / "dump_target", SPARSE_GIB) as (process, _):
        yield process.pid


def assert_refused(done, code, what):
    assert done.returncode == code and what in done.stderr, done.stderr
    assert done.stderr.startswith("ptdump: ") and done.stderr.count("\n") == 1


def guardian(dumper):
    """PID of the process that continues the target when the dumper is killed, 0 when there is none."""
    return int(Path(f"/proc/{dumper.pid}/task/{dumper.pid}/children").read_text() or 0)


def held(pid, tmp_path, moment):
    """(ptdump --stop, its directory), itself stopped at a moment that is over soon: tried until it is met."""
    for attempt in range(50):
        directory = tmp_path / f"d{attempt}"
        command = [PTDUMP, "process", str(pid), "-o", directory, "--stop", "--verify", "-q"]
        dumper = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: state(dumper.pid) == "Z" or moment(dumper, directory))  # noqa: B023
        dumper.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(dumper.pid) in "TZ")  # noqa: B023
        if state(dumper.pid) == "T" and moment(dumper, directory):
            return dumper, directory
        dumper.kill()
        dumper.communicate()
    raise AssertionError("the moment was never met")


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


KILL, BPF = 5, 39  # include/uapi/linux/capability.h
OUR_OWN = "CapPrm", "CapEff"


def status(pid):
    """{name: words} of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: words.strip() for name, _, words in (line.partition(":") for line in lines)}


def held_capabilities(pid):
    """Numbers of the capabilities that a process has, and can get back."""
    words = [int(status(pid)[name], 16) for name in OUR_OWN]
    assert words[0] == words[1] and status(pid)["CapInh"] == "0" * 16 and status(pid)["NoNewPrivs"] == "1"
    return {bit for bit in range(64) if words[0] >> bit & 1}


def test_while_it_reads_it_may_call_what_it_loaded_and_signal_and_its_guardian_may_only_signal(big, tmp_path):
    dumper, _ = held(big, tmp_path, lambda dumper, _: guardian(dumper) and state(big) == "T")
    try:
        guard = guardian(dumper)
        assert held_capabilities(dumper.pid) == {KILL, BPF}
        assert wait_for(lambda: held_capabilities(guard) == {KILL})
        assert len(os.listdir(f"/proc/{guard}/fd")) == 2
    finally:
        dumper.send_signal(signal.SIGCONT)
        dumper.communicate(timeout=60)


def test_when_all_is_read_it_may_do_nothing(big, tmp_path):
    def writes(dumper, at):
        return at.exists() and any(path.stat().st_size for path in at.iterdir())

    dumper, directory = held(big, tmp_path, writes)
    assert held_capabilities(dumper.pid) == set()
    dumper.send_signal(signal.SIGCONT)
    dumper.communicate(timeout=60)
    assert dumper.returncode == 0 and len(os.listdir(directory)) == 4


def test_it_writes_where_only_root_may_until_the_end(big, tmp_path):
    place = tmp_path / "theirs"
    place.mkdir(mode=0o755)
    os.chown(place, 65534, 65534)
    (place / "d").mkdir(mode=0o755)
    os.chown(place / "d", 65534, 65534)
    assert ptdump(big, place / "d").returncode == 0 and len(os.listdir(place / "d")) == 4
    assert ptdump(big, place / "e", preexec_fn=limit_files).returncode == 2 and not (place / "e").exists()


PAUSES = """
import sys, time
from ptanalyze.capture.live.pause import paused
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


@pytest.mark.parametrize("both", [False, True])
def test_the_target_goes_on_when_python_is_killed_while_it_pauses_it(big, both):
    python = subprocess.Popen([sys.executable, "-c", PAUSES, str(big)])
    assert wait_for(lambda: state(big) == "T")
    if both:
        os.kill(guardian(python), signal.SIGKILL)
    python.kill()
    python.wait()
    assert wait_for(lambda: state(big) == "S")


def test_a_process_that_was_stopped_before_stays_stopped(big, tmp_path):
    os.kill(big, signal.SIGSTOP)
    try:
        assert wait_for(lambda: state(big) == "T")
        assert ptdump(big, tmp_path / "d", "--stop").returncode == 0
        dump_process(big, tmp_path / "e", bpf=False, stop=True)
        assert state(big) == "T" and read_snapshot(tmp_path / "d").facts["stopped_before"]
    finally:
        os.kill(big, signal.SIGCONT)


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


@pytest.mark.parametrize("bpf", [True, False])
def test_a_process_that_ends_while_it_is_read_leaves_nothing(programs, tmp_path, bpf):
    with running(programs / ("dump_churn" if bpf else "dump_target"), SPARSE_GIB) as (process, _):
        killer = threading.Timer(0.3 if bpf else 0.01, process.kill)
        killer.start()
        with pytest.raises((PartialDataError, UsageError), match=f"PID {process.pid}: .*ended|no such"):
            for attempt in range(1000):
                dump_process(process.pid, tmp_path / f"d{attempt}", bpf=bpf, retries=1000)
    assert not (tmp_path / f"d{attempt}").exists()


def test_ptdump_itself_ends_with_3_when_the_process_ends(programs, tmp_path):
    with running(programs / "dump_churn") as (process, _):
        threading.Timer(0.3, process.kill).start()
        assert_refused(ptdump(process.pid, tmp_path / "d", "--retries", "1000", "--verify"), 3, "ended")
    assert not (tmp_path / "d").exists()


def test_a_kernel_thread_is_refused(tmp_path):
    assert_refused(ptdump(2, tmp_path / "d"), 2, "PID 2: a kernel thread")
    with pytest.raises(UsageError, match="kernel thread"):
        dump_process(2, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_process_that_does_not_exist_is_refused(tmp_path):
    assert_refused(ptdump(2**22 + 1, tmp_path / "d"), 2, "no such process")
    with pytest.raises(UsageError, match="no such process"):
        dump_process(2**22 + 1, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_zombie_is_refused(tmp_path):
    child = subprocess.Popen(["true"])
    assert wait_for(lambda: state(child.pid) == "Z")
    assert_refused(ptdump(child.pid, tmp_path / "d"), 2, "zombie")
    with pytest.raises(UsageError, match="zombie"):
        dump_process(child.pid, tmp_path / "d", bpf=False)
    child.wait()


@pytest.mark.parametrize("capability", ["bpf", "perfmon", "sys_ptrace", "sys_admin"])
def test_the_one_missing_capability_is_named(big, tmp_path, capability):
    command = f"exec {PTDUMP} process {big} -o {tmp_path / 'd'}"
    done = subprocess.run(
        ["capsh", f"--drop=cap_{capability}", "--", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert_refused(done, 2, f"missing capability CAP_{capability.upper()}")
    assert not (tmp_path / "d").exists()


def test_the_four_capabilities_are_enough(big, tmp_path):
    keep = {"bpf", "perfmon", "sys_ptrace", "sys_admin"}
    listed = subprocess.run(["capsh", "--print"], capture_output=True, text=True, check=True).stdout
    bounding = next(line for line in listed.splitlines() if line.startswith("Bounding set"))
    others = [name for name in bounding.partition("=")[2].split(",") if name and name[4:] not in keep]
    command = f"exec {PTDUMP} process {big} -o {tmp_path / 'd'}"
    done = subprocess.run(
        ["capsh", f"--drop={','.join(others)}", "--", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_changing_process_gives_a_closed_tree_and_says_what_changed(programs, tmp_path):
    build_sanitized()
    with running(programs / "dump_churn") as (process, _):
        noisy = 0
        for attempt in range(6):
            program = PTDUMP if attempt % 2 else SANITIZED / "ptdump"
            done = ptdump(
                process.pid, tmp_path / f"d{attempt}", "--retries", "2", program=program, env=NO_LEAKS
            )
            assert done.returncode == 0, clean(done.stderr)
            dump = read_snapshot(tmp_path / f"d{attempt}")
            assert_closed(dump.guest)
            reading, flags = dump.facts["reading"], dump.guest.flags
            for bit, name in enumerate(("changed", "torn", "fault", "bad_type")):
                assert (flags >> bit & 1).sum() == reading[name]
            noisy += not dump.facts["quiescence"]["quiet"]
            assert dump.facts["retries"] == 2 or dump.facts["quiescence"]["quiet"]
        assert noisy


def test_a_directory_with_something_in_it_is_left_alone(big, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert_refused(ptdump(big, tmp_path), 2, "not empty")
    assert os.listdir(tmp_path) == ["mine"]


def test_a_file_that_another_dump_made_first_is_left_to_it(big, tmp_path):
    library = tmp_path / "quicker.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, PROGRAMS / "quicker.c"], check=True)
    (tmp_path / "d").mkdir()
    done = ptdump(big, tmp_path / "d", env={**os.environ, "LD_PRELOAD": str(library)})
    assert_refused(done, 2, "File exists")
    assert [path.read_text() for path in (tmp_path / "d").iterdir()] == ["theirs"]


def test_a_name_full_of_punctuation_is_kept(programs, tmp_path):
    name = 'a"b\\ c) S'
    shutil.copy(programs / "dump_target", tmp_path / name)
    with running(tmp_path / name) as (process, _):
        assert ptdump(process.pid, tmp_path / "d", "--stop").returncode == 0
        dump_process(process.pid, tmp_path / "e", bpf=False)
    assert {read_snapshot(tmp_path / d).facts["comm"] for d in "de"} == {name}


def test_an_empty_directory_is_used_and_its_files_are_private(big, tmp_path):
    assert ptdump(big, tmp_path, "-q").stdout == ""
    assert len(os.listdir(tmp_path)) == 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())


def limit_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.parametrize("files", [4, 5, 8, 12, 27])
def test_too_few_files_are_the_reason_that_is_given(big, tmp_path, files):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    assert_refused(ptdump(big, tmp_path / "d", preexec_fn=limit), 2, "Too many open files")


def test_a_difference_of_a_process_that_ran_meanwhile_comes_with_what_prevents_it(programs, tmp_path):
    with running(programs / "dump_churn") as (process, _):
        done = [ptdump(process.pid, tmp_path / f"d{k}", "--verify", "--retries", "0") for k in range(2)]
        assert 1 in [one.returncode for one in done]
        for one in done:
            assert_refused(one, 1, "--stop holds it still") if one.returncode else None
        assert ptdump(process.pid, tmp_path / "still", "--verify", "--stop").returncode == 0


@pytest.mark.parametrize("memory", ["1", "4096"])
def test_nothing_is_kept_when_the_files_cannot_be_written(big, tmp_path, memory):
    done = ptdump(big, tmp_path / "d", "--memory", memory, preexec_fn=limit_files)
    assert_refused(done, 2, "cannot write")
    assert not (tmp_path / "d").exists()


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


def test_the_target_goes_on_though_nobody_reads_what_the_dumper_has_to_say(big, tmp_path):
    """Tables go to the file while it is held; there is no room for them, nor for the line that says so."""
    options = ["--stop", "--memory", "1", "-o", tmp_path / "d"]
    with full_pipe() as (ours, theirs):
        command = [PTDUMP, "process", str(big), *options]
        dumper = subprocess.Popen(command, stderr=theirs, preexec_fn=limit_files)
        assert wait_for(lambda: state(big) == "T", 20)
        assert wait_for(lambda: state(big) == "S" and dumper.poll() is None, 20)
        os.read(ours, 1 << 20)
        assert dumper.wait(20) == 2 and not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["process"],
        ["process", "12x", "-o", "d"],
        ["process", "1"],
        ["machine", "1", "-o", "d"],
        ["--bad"],
    ],
)
def test_wrong_usage_ends_with_2_and_help_with_0(arguments, tmp_path):
    done = subprocess.run([PTDUMP, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and done.stderr
    assert subprocess.run([PTDUMP, "--help"], capture_output=True, check=False).returncode == 0


def test_progress_is_one_json_object_a_line(big, tmp_path):
    import json

    done = ptdump(big, tmp_path / "d", "--json-progress")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "done" and events[-1]["tables"] > 32768


def test_the_target_is_stopped_only_while_its_tables_are_read(big, tmp_path):
    begun = time.monotonic()
    assert ptdump(big, tmp_path / "d", "--stop").returncode == 0
    whole, facts = time.monotonic() - begun, read_snapshot(tmp_path / "d").facts
    assert facts["duration_s"] <= facts["stopped_s"] < whole


def test_a_name_reaches_the_terminal_with_escapes_alone(programs, tmp_path):
    name = "\x1b]0;X\x07\n\x9b1m"
    shutil.copy(programs / "dump_target", tmp_path / name)
    with running(tmp_path / name) as (process, _):
        done = ptdump(process.pid, tmp_path / "d", "--stop")
        refused = ptdump(process.pid, tmp_path / "no\x1b[31m\n" / "d")
    assert done.returncode == 0 and r"(\x1b]0;X\x07\x0a\xc2\x9b1m)" in done.stdout
    assert_refused(refused, 2, r"no\x1b[31m\x0a/d")
    odd = subprocess.run([PTDUMP, "--\x1b[31m"], capture_output=True, text=True, check=False)
    assert odd.returncode == 2 and r"--\x1b[31m" in odd.stderr
    assert "\x1b" not in done.stdout + done.stderr + refused.stderr + odd.stderr


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


def test_a_process_that_is_read_in_time_is_held_for_all_of_it(big, tmp_path):
    done = ptdump(big, tmp_path / "d", "--stop", "--max-stop", "60000")
    facts = read_snapshot(tmp_path / "d").facts
    assert done.returncode == 0 and not facts["gave_up"] and facts["stopped"] and state(big) == "S"


def test_a_limit_needs_what_can_say_what_it_missed(big, tmp_path):
    for options in ({"bpf": False, "stop": True}, {"stop": False}):
        with pytest.raises(UsageError, match="--max-stop"):
            dump_process(big, tmp_path / "d", max_stop=100, **options)
