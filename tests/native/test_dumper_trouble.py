"""ptdump when things go wrong: the target always goes on, one line says why, nothing half-written stays."""

import os
import resource
import shutil
import signal
import stat
import subprocess
import threading

import pytest

from native.dumping import (
    MANY,
    PROGRAMS,
    PTDUMP,
    SANITIZED,
    SPARSE_GIB,
    assert_closed,
    assert_inferred,
    assert_refused,
    build_sanitized,
    clean,
    limit_files,
    ptdump,
    running,
    state,
    wait_for,
)
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.cli import run
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import read_snapshot

pytestmark = pytest.mark.native
NO_LEAKS = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # of what ends anyway


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
    for attempt in range(20):  # a busy machine may look only when all has been read
        done = dumped_while_it_ended(programs / "dump_target", tmp_path / f"d{attempt}")
        if done.returncode:
            break
    assert_refused(done, 3, "ended")
    assert not (tmp_path / f"d{attempt}").exists()


def dumped_while_it_ended(program, directory):
    """ptdump of a process that was killed once its dump had begun: ptdump stood still meanwhile."""
    with running(program, SPARSE_GIB) as (process, _):
        command = [PTDUMP, "process", str(process.pid), "-o", directory, "--verify"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as dumper:
            wait_for(lambda: any(directory.glob("*")))
            dumper.send_signal(signal.SIGSTOP)
            wait_for(lambda: state(dumper.pid) in "TZ")
            process.kill()
            process.wait()
            dumper.send_signal(signal.SIGCONT)
            said = dumper.communicate()
    return subprocess.CompletedProcess(command, dumper.returncode, *said)


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


def test_a_changing_process_gives_a_closed_tree_and_says_what_changed(programs, tmp_path):
    build_sanitized()
    with running(programs / "dump_churn") as (process, _):
        noisy = 0
        for attempt in range(MANY):
            if noisy and attempt >= 4:
                break
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


@pytest.mark.parametrize("program", ["dump_churn", "dump_unmap"])
def test_of_a_changing_process_pagemap_gives_a_tree_that_is_whole(programs, tmp_path, program):
    build_sanitized()
    how = {"program": SANITIZED / "ptdump", "env": NO_LEAKS}
    with running(programs / program) as (process, _):
        for attempt in range(10):
            where = tmp_path / f"d{attempt}"
            done = ptdump(process.pid, where, "--pagemap", "--retries", str(attempt % 3), **how)
            assert done.returncode == 0, clean(done.stderr)
            dump = read_snapshot(where)
            assert_inferred(dump.guest)
            assert ("it changed meanwhile" in done.stdout) != dump.facts["quiescence"]["quiet"]


def test_a_dump_of_a_process_that_maps_and_unmaps_is_whole_or_says_that_it_is_not(programs, tmp_path):
    """Areas and tables are of one moment, or the dump ends with 3, and so does its check."""
    with running(programs / "dump_unmap") as (process, _):
        codes = set()
        for attempt in range(MANY):
            out = tmp_path / f"d{attempt}"
            code = run(["dump", "process", str(process.pid), "-o", str(out), "--retries", str(attempt % 3)])
            assert exit_code(check_capture(open_capture(out), quick=True)) == code in (0, 3)
            codes.add(code)
            shutil.rmtree(out)
            if 3 in codes and attempt >= 30:
                break
    assert 3 in codes


def test_a_directory_with_something_in_it_is_left_alone(target, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert_refused(ptdump(target, tmp_path), 2, "not empty")
    assert os.listdir(tmp_path) == ["mine"]


def test_a_file_that_another_dump_made_first_is_left_to_it(target, tmp_path):
    library = tmp_path / "quicker.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, PROGRAMS / "quicker.c"], check=True)
    (tmp_path / "d").mkdir()
    done = ptdump(target, tmp_path / "d", env={**os.environ, "LD_PRELOAD": str(library)})
    assert_refused(done, 2, "File exists")
    assert [path.read_text() for path in (tmp_path / "d").iterdir()] == ["theirs"]


def test_a_name_full_of_punctuation_is_kept(programs, tmp_path):
    name = 'a"b\\ c) S'
    shutil.copy(programs / "dump_target", tmp_path / name)
    with running(tmp_path / name) as (process, _):
        assert ptdump(process.pid, tmp_path / "d", "--stop").returncode == 0
        dump_process(process.pid, tmp_path / "e", bpf=False)
    assert {read_snapshot(tmp_path / d).facts["comm"] for d in "de"} == {name}


def test_an_empty_directory_is_used_and_its_files_are_private(target, tmp_path):
    assert ptdump(target, tmp_path, "-q").stdout == ""
    assert len(os.listdir(tmp_path)) == 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())


@pytest.mark.parametrize("files", [4, 5, 8, 12, 16, 20, 27])
def test_too_few_files_are_the_reason_that_is_given(target, tmp_path, files):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    assert_refused(ptdump(target, tmp_path / "d", preexec_fn=limit), 2, "Too many open files")


def test_a_difference_of_a_process_that_ran_meanwhile_comes_with_what_prevents_it(programs, tmp_path):
    with running(programs / "dump_churn") as (process, _):
        done = [ptdump(process.pid, tmp_path / f"d{k}", "--verify", "--retries", "0") for k in range(2)]
        assert 1 in [one.returncode for one in done]
        for one in done:
            assert_refused(one, 1, "--stop holds it still") if one.returncode else None
        assert ptdump(process.pid, tmp_path / "still", "--verify", "--stop").returncode == 0


@pytest.mark.parametrize("memory", ["1", "4096"])
def test_nothing_is_kept_when_the_files_cannot_be_written(target, tmp_path, memory):
    done = ptdump(target, tmp_path / "d", "--memory", memory, preexec_fn=limit_files)
    assert_refused(done, 2, "cannot write")
    assert not (tmp_path / "d").exists()


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


def test_progress_is_one_json_object_a_line(target, tmp_path):
    import json

    done = ptdump(target, tmp_path / "d", "--json-progress")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "done" and events[-1]["tables"] > 2048


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
