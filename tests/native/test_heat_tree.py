"""Accessed bits of live processes and their children, sampled at the same time."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from needs_root import needs_root
from ptanalyze import classify
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.check.tables import FAILED, PARTIAL
from ptanalyze.capture.live.dump import descendants
from ptanalyze.capture.live.heat import heat_tree, sample_each
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
pytestmark = [
    pytest.mark.native,
    needs_root,
]
# A parent that waits, a child that uses its memory all the time, and one that waits until it is told to end.
FAMILY = """
import ctypes, mmap, os, sys, time
area = mmap.mmap(-1, 4 << 20)
area.madvise(mmap.MADV_NOHUGEPAGE)
area[::4096] = b"x" * 1024
busy = os.fork()
if not busy:
    protect = ctypes.CDLL(None).mprotect
    held = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area))), ctypes.c_size_t(4 << 20)
    while True:
        memoryview(area)[::4096].tobytes()
        protect(*held, mmap.PROT_READ)  # flushes the TLB
        protect(*held, mmap.PROT_READ | mmap.PROT_WRITE)
idle = os.fork()
if not idle:
    time.sleep(1000)
print(busy, idle, flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    subprocess.run(["make", "-s", "-C", DUMPS], check=True, capture_output=True)


@pytest.fixture
def family():
    """(PID of the parent, of the busy child, of the idle one)"""
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True)
    busy, idle = map(int, process.stdout.readline().split())
    yield process.pid, busy, idle
    for pid in (busy, idle, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def test_each_process_has_its_own_samples_and_the_busy_one_has_the_weight(family, tmp_path):
    pid, busy, idle = family
    assert run(["heat", "--tree", str(pid), "--for", "2s", "--samples", "10", "-o", str(tmp_path / "c")]) == 0
    whole = open_capture(tmp_path / "c")
    assert set(whole.members) == {pid, busy, idle} and all(one.has_heat for one in whole.members.values())
    by = classify(whole, weight="heat", by="process")
    by = by[by.socket == by.socket.min()]
    walks = by.groupby(by["group"].str.split().str[0].astype(int))["count"].sum()
    assert walks[busy] > 10 * (walks.get(pid, 0) + walks.get(idle, 0))
    wrong = {one.name: one.reason for one in check_capture(whole) if one.verdict in (PARTIAL, FAILED)}
    changing = "dump: quiet: the process changed its page tables while they were read"
    assert wrong in ({}, {f"process {busy}": changing})  # it does so all the time


def test_the_command_says_what_to_type_and_refuses_what_makes_no_sense(family, tmp_path, capsys):
    pid = str(family[0])
    assert run(["heat", "--tree", pid, "--for", "1s", "--samples", "10", "-o", str(tmp_path / "c")]) == 0
    said = capsys.readouterr()
    assert "and its descendants" in said.err and all(f"samples of PID {one}" in said.err for one in family)
    assert "next: ptanalyze classify" in said.out
    assert json.loads((tmp_path / "c" / "capture.json").read_text())["provenance"]["processes"] == [
        *family[1:]
    ]
    assert run(["heat", "--tree", pid, "--add", str(tmp_path / "c")]) == 2
    assert "--tree makes a new capture" in capsys.readouterr().err


def test_a_child_that_is_being_sampled_already_is_said_at_once(family, tmp_path):
    pid, busy, _ = family
    ours = [sys.executable, "-m", "ptanalyze", "heat"]
    sampler = DUMPS / "build/ptheat"
    with subprocess.Popen([sampler, str(busy), "600", "10"], stdout=subprocess.PIPE) as other:
        other.stdout.read(512)  # its header: it has the child for itself
        command = [*ours, "--tree", str(pid), "--for", "600s", "-o", tmp_path / "c"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        other.kill()
    assert done.returncode == 2 and f"PID {busy}: is being sampled already" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "c").exists()


def test_a_child_that_ends_before_it_is_sampled_is_left_out_and_said(family, tmp_path, monkeypatch):
    pid, busy, idle = family

    def late(files, *how):
        os.kill(idle, signal.SIGKILL)
        return sample_each(files, *how)

    monkeypatch.setattr("ptanalyze.capture.live.heat.sample_each", late)
    (tmp_path / "c").mkdir()
    lines = heat_tree(pid, tmp_path / "c", 1, [10])
    assert f"PID {idle}: ended before it was sampled; left out" in lines
    assert set(open_capture(tmp_path / "c").members) == {pid, busy}
    assert not (tmp_path / "c" / f"pid-{idle}").exists()


def test_a_process_without_children_is_as_without_tree_and_one_that_is_not_there_is_refused(family, tmp_path):
    (tmp_path / "c").mkdir()
    lines = heat_tree(family[2], tmp_path / "c", 1, [10])
    assert open_capture(tmp_path / "c").has_heat and not any("left out" in line for line in lines)
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match="no such process"):
        heat_tree(1 << 30, tmp_path / "d", 1, [10])


# So many processes with 16 MiB each, which is more than one of their samplers reads in its share of 1 ms.
MANY = """
import mmap, os, signal, sys
for _ in range(int(sys.argv[1])):
    if not os.fork():
        area = mmap.mmap(-1, 16 << 20)
        area.madvise(mmap.MADV_NOHUGEPAGE)
        area[::4096] = b"x" * 4096
        signal.pause()
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def crowd():
    """PIDs of four processes for each CPU."""
    command = [sys.executable, "-c", MANY, str(4 * os.cpu_count())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield descendants(process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def cpu_of_sampling(pids, place, seconds):
    """CPU time in s of the samplers of these processes, with what they need to begin."""
    place.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = sample_each({pid: place / str(pid) for pid in pids}, seconds, [1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert all(isinstance(lines, list) for lines in said.values())
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_many_samplers_take_a_twentieth_of_all_cpus_together(crowd, tmp_path):
    short, long = (cpu_of_sampling(crowd, tmp_path / str(seconds), seconds) for seconds in (1, 6))
    assert long - short < 2 * (6 - 1) * os.cpu_count() / 20  # twice: what they need to begin varies
