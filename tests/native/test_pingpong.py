"""The ping-pong of a cache line on CPUs of this machine, alone and under `ptanalyze topology measure`."""

import json
import math
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from native.dumping import make, wait_for
from ptanalyze.capture.live import cacheline
from ptanalyze.capture.live.cacheline import cpu_list, measure
from ptanalyze.capture.live.native import native
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.measured.latency import read_matrix

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
CPUS = sorted(os.sched_getaffinity(0))
pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(len(CPUS) < 2 and not os.environ.get("CI"), reason="a pair needs two CPUs"),
]
PAIR = CPUS[:2]
LONG = 10**7  # round trips: seconds


@pytest.fixture(scope="module")
def tool():
    make("dumps")
    return native("ptpingpong")


def play(tool, text, rounds=200):
    argv = [tool, str(rounds)]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=60)


@contextmanager
def measuring(*options):
    """(the process of `ptanalyze topology measure`, while a pair plays; the PID of its tool)"""
    argv = [sys.executable, "-m", "ptanalyze", "topology", "measure", *map(str, options)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert wait_for(lambda: children.read_text().split(), 30)
        child = int(children.read_text().split()[0])
        assert wait_for(lambda: len(threads(child)) == 2, 30)
        yield process, child
    finally:
        process.kill()
        process.communicate()


def threads(pid):
    """[(CPUs that a thread may use, CPU it was last on)] of the two that hand over the line."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(") ")[2].split()
        status = (task / "status").read_text()
        allowed = next(
            line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list")
        )
        if task.name != str(pid):
            found.append((allowed, int(fields[36])))
    return sorted(found)


def test_the_program_compiles_without_a_warning(tmp_path):
    argv = [
        "make",
        "-s",
        "-C",
        DUMPS,
        f"BUILD={tmp_path}",
        "CC=gcc -Werror -Wpedantic",
        tmp_path / "ptpingpong",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_transfer_takes_a_plausible_time_in_both_directions(tool):
    a, b = PAIR
    done = play(tool, f"{a} {b}\n{b} {a}\n" * 5)
    assert done.returncode == 0 and not done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [answer[:2] for answer in answers] == [[str(a), str(b)], [str(b), str(a)]] * 5
    fastest = min(float(answer[2]) for answer in answers)
    assert math.isfinite(fastest) and 1 < fastest < 100_000


def test_both_threads_are_pinned_each_to_its_cpu(tool):
    pinned = sorted((str(cpu), cpu) for cpu in PAIR)
    with subprocess.Popen([tool, str(LONG)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"%d %d\n" % tuple(PAIR))
        process.stdin.flush()
        try:
            assert wait_for(lambda: threads(process.pid) == pinned, 10), threads(process.pid)
        finally:
            process.kill()


def test_it_ends_with_its_input(tool):
    done = play(tool, "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{PAIR[0]} 8191", "CPU 8191: Invalid argument"),
        (f"8191 {PAIR[0]}", "CPU 8191: Invalid argument"),
        (f"{PAIR[0]} 8192", "CPU 8192: no CPU has this number"),
        (f"-1 {PAIR[0]}", "CPU -1: no CPU has this number"),
        (f"{PAIR[0]} {PAIR[0]}", f"CPU {PAIR[0]}: a pair needs two CPUs"),
        ("0 x", 'expected lines "A B"'),
        ("0", 'expected lines "A B"'),
    ],
)
def test_an_impossible_pair_is_refused(tool, text, why):
    done = play(tool, text)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("ptpingpong: ") and done.stderr.count("\n") == 1 and why in done.stderr


@pytest.mark.parametrize("rounds", ["0", "-5", "x", "", "1x", "99999999999"])
def test_an_impossible_number_of_rounds_is_refused(tool, rounds):
    done = play(tool, "", rounds)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and done.stderr.count("\n") == 1


def test_every_pair_is_measured_as_often_as_asked(tool):
    seen = []
    matrix = measure(CPUS[:4], rounds=100, repeat=3, progress=lambda *done: seen.append(done))
    count = len(matrix.cpus)
    pairs = count * (count - 1) // 2
    assert [done for done, _, _ in seen] == list(range(1, 3 * pairs + 1))
    assert (matrix.ns[~(matrix.ns != matrix.ns)] > 1).all() and (matrix.ns == matrix.ns).sum() == 2 * pairs
    assert (matrix.spread[matrix.spread == matrix.spread] >= 1).all()
    assert (matrix.method.rounds, matrix.method.repeat) == (100, 3)


def test_the_command_writes_a_file_that_can_be_grouped(tool, tmp_path, capfd):
    path = tmp_path / "topology.json"
    cpus = cpu_list(PAIR)
    assert run(["topology", "measure", "--cpus", cpus, "-o", str(path), "--rounds", "200", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)["result"]
    assert result["cpus"] == PAIR and "one pair cannot be grouped" in result["no_groups"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    matrix = read_matrix(path)
    assert list(matrix.cpus) == PAIR and matrix.ns[0, 1] == result["ns"][0][1] == result["ns"][1][0]
    assert run(["topology", "groups", str(path)]) == 2
    assert "one pair cannot be grouped" in capfd.readouterr().err
    assert run(["topology", "groups", str(path), "--one-group-ok", "--compare-with-kernel"]) == 0
    out = capfd.readouterr().out
    assert cpus in out and "the kernel's NUMA nodes" in out


def test_many_cpus_are_told_how_long_it_takes(tool, monkeypatch, capfd):
    monkeypatch.setattr("ptanalyze.cli.topology.SLOW", 1)
    assert run(["topology", "measure", "--cpus", cpu_list(PAIR), "--rounds", "100"]) == 0
    captured = capfd.readouterr()
    assert "ptanalyze: 1 pairs of CPUs: about 0 s" in captured.err and "one pair cannot" in captured.out
    assert cacheline.seconds(192, 1000, 7) == pytest.approx(18336 * 7 * 1.4e-3)


def test_ctrl_c_leaves_no_file_and_no_process(tool, tmp_path):
    with measuring("--cpus", cpu_list(PAIR), "--rounds", LONG, "-o", tmp_path / "t.json") as (process, child):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err.strip()) == (130, "", "ptanalyze: interrupted")
        assert not Path(f"/proc/{child}").exists()
    assert not any(tmp_path.iterdir())


def test_a_tool_that_was_killed_is_said(tool, tmp_path):
    with measuring("--cpus", cpu_list(PAIR), "--rounds", LONG, "-o", tmp_path / "t.json") as (process, child):
        os.kill(child, signal.SIGKILL)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 2 and err.count("\n") == 1 and "ptpingpong ended with -9" in err
    assert not any(tmp_path.iterdir())


def test_the_tool_does_not_outlive_a_command_that_was_killed(tool):
    with measuring("--cpus", cpu_list(PAIR), "--rounds", 10**6) as (process, child):
        process.kill()
        process.wait()
        assert wait_for(lambda: not Path(f"/proc/{child}").exists(), 30)


def test_a_pair_that_does_not_answer_is_given_up(tool, monkeypatch):
    monkeypatch.setattr(cacheline, "PATIENCE", 0.2)
    with pytest.raises(UsageError, match=f"CPUs {PAIR[0]} and {PAIR[1]}: no answer in 0.2 s"):
        measure(PAIR, rounds=LONG)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--cpus", "0-8191"], "this process may only run on"),
        (["--cpus", str(PAIR[0])], "a pair needs two"),
        (["--cpus", "all"], "expected a list such as 0-7,9"),
        (["-o", "/nonexistent/t.json"], "there is no directory /nonexistent; make it first"),
        (["-o", "/tmp"], "is a directory; name a file"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(options, why):
    done = subprocess.run(
        [sys.executable, "-m", "ptanalyze", "topology", "measure", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and why in done.stderr, done.stderr


def test_a_cpu_outside_the_affinity_of_the_process_is_refused():
    try:
        os.sched_setaffinity(0, PAIR[:1])
        with pytest.raises(UsageError, match=f"CPU {PAIR[1]}: this process may only run on {PAIR[0]}$"):
            measure(PAIR)
        with pytest.raises(UsageError, match="a pair needs two"):
            measure()
    finally:
        os.sched_setaffinity(0, CPUS)


def test_without_the_tool_the_way_to_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("ptanalyze.capture.live.native.BUILT_IN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="ptpingpong: not found; build it: `make native`"):
        measure(PAIR)
