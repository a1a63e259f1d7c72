"""Accessed bits of live processes: which pages a process with a known loop uses."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from native.dumping import make, running, wait_for
from needs_root import needs_root
from ptanalyze.capture.live.heat import heat_process, record_running, sample, sources
from ptanalyze.cli import run
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.heat import BYTE_ORDER, HEADER_DTYPE, MAGIC, VERSION, read_heat

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
pytestmark = [
    pytest.mark.native,
    needs_root,
]
LOOP = """
import ctypes, mmap, time
area = mmap.mmap(-1, 8 << 20)
aside = mmap.mmap(-1, 1 << 20)
for one in (area, aside):
    one.madvise(mmap.MADV_NOHUGEPAGE)
    one[::4096] = b"x" * (len(one) // 4096)
hot = memoryview(area)[: 4 << 20 : 4096]
print(ctypes.addressof(ctypes.c_char.from_buffer(area)), flush=True)
protect = ctypes.CDLL(None).mprotect
held = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(aside))), ctypes.c_size_t(len(aside))
while True:
    hot.tobytes()
    protect(*held, mmap.PROT_READ)  # flushes the TLB: for what stays in it nobody walks, and bits stay clear
    protect(*held, mmap.PROT_READ | mmap.PROT_WRITE)
    time.sleep(0.005)
"""
ENDS = 8192  # pages of each of two areas
HOT = 1024  # pages; as many that are mapped are never touched again


@pytest.fixture(scope="module", autouse=True)
def built():
    make("dumps")


@pytest.fixture(scope="module")
def loop():
    process = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True)
    yield process.pid, int(process.stdout.readline())
    process.kill()
    process.wait()


def faults_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().split()[9])


def waited(pid):
    """How often a process has waited: the loop does after each round, ptheat before each sample."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def area_of(heat, start):
    """(pages used in the hot half, in the cold half) of the loop's area."""
    page = (heat.address.astype(np.int64) - start) >> 12
    return np.count_nonzero((page >= 0) & (page < HOT)), np.count_nonzero((page >= HOT) & (page < 2 * HOT))


def test_pages_in_use_are_found_and_others_are_not_and_the_process_notices_nothing(loop, tmp_path):
    pid, start = loop
    faults, rounds = faults_of(pid), waited(pid)
    lines = heat_process(pid, tmp_path, 1, [100])
    heat = read_heat(tmp_path / "heat.bits")
    assert area_of(heat, start) == (HOT, 0)
    assert faults_of(pid) - faults < 50 and waited(pid) > rounds
    assert "samples of PID" in lines[0] and (tmp_path / "snapshot.json").exists()


def ends_sampled(target, words, path):
    """(Heat of two areas used alike, bool[2, P] their pages, accesses to each per second by its count)."""

    def count():
        print(file=target.stdin, flush=True)
        return np.array(target.stdout.readline().split(), float)

    before = count()
    sample(target.pid, path, 6, [10])
    seconds, accesses = count() - before
    heat = read_heat(path)
    start = np.array([int(words["first"]), int(words["last"])], np.uint64)[:, None]
    return (
        heat,
        (heat.address >= start) & (heat.address < start + np.uint64(ENDS * 4096)),
        accesses / seconds / 2,
    )


def test_pages_cleared_first_do_not_get_more_walks_than_those_cleared_last(programs, tmp_path):
    """Two areas used alike at both ends of 1 GiB: without their windows the first has two thirds or more."""
    with running(programs / "dump_ends", ENDS, 1024, stdin=subprocess.PIPE) as (target, words):
        for attempt in range(10):  # one in which the machine had time for both of us
            heat, area, accesses = ends_sampled(target, words, tmp_path / f"bits{attempt}")
            walks = area @ heat.walks
            plain = area @ replace(heat, handling=np.zeros(1)).walks
            off, plain_off = (abs(both[0] / both.sum() - 0.5) for both in (walks, plain))
            assert plain[0] > plain[1]
            if off < min(0.05, plain_off / 2) and np.allclose(
                walks / heat.sampled_seconds / accesses, 1, atol=0.2
            ):
                return
    raise AssertionError((walks, plain, accesses, heat.sampled_seconds))


def test_samples_are_added_to_a_dump_of_the_process_and_to_no_other(loop, tmp_path, capsys):
    pid, start = loop
    assert run(["dump", "process", str(pid), "-o", str(tmp_path / "app")]) == 0
    assert run(["dump", "process", str(os.getpid()), "-o", str(tmp_path / "own")]) == 0
    assert run(["heat", str(pid), "--for", "1s", "--samples", "50", "--add", str(tmp_path / "app")]) == 0
    capture = open_capture(tmp_path / "app")
    assert not capture.damaged and area_of(capture.snapshot.heat, start) == (HOT, 0)
    assert run(["heat", str(pid), "--for", "1s", "--add", str(tmp_path / "app")]) == 2
    assert "has heat" in capsys.readouterr().err
    assert run(["heat", str(pid), "--for", "1s", "--add", str(tmp_path / "own")]) == 2
    assert "another process" in capsys.readouterr().err
    assert not open_capture(tmp_path / "own").has_heat


def test_a_running_process_is_recorded_by_what_the_machine_has_and_says_which(loop, tmp_path, capsys):
    pid, start = loop
    assert run(["record", "-p", str(pid), "--for", "1s", "-o", str(tmp_path / "app")]) == 0
    said = capsys.readouterr().err
    capture = open_capture(tmp_path / "app")
    assert said.count(": used") == 1 and capture.has_trace != capture.has_heat
    if "(heat): used" in said:  # a machine whose perf has no TLB misses
        assert area_of(capture.snapshot.heat, start) == (HOT, 0)
    assert run(["record", "-p", str(pid), "--", "true"]) == 2 == run(["record"])


def test_samples_of_perf_become_a_trace_beside_page_tables(tmp_path):
    """By page faults, which perf samples everywhere."""
    busy = subprocess.Popen(["sh", "-c", "while :; do /bin/true; sleep 0.05; done"])
    try:
        lines = record_running(busy.pid, tmp_path / "app", 1, [["page-faults"]])
    finally:
        busy.kill()
        busy.wait()
    capture = open_capture(tmp_path / "app")
    assert capture.has_trace and capture.has_snapshot and not capture.has_heat
    assert f"{capture.trace.accesses} samples of PID" in lines[1] and "page-faults" in lines[0]


def test_a_process_without_a_sample_is_said_to_have_none(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as idle:
        try:
            with pytest.raises(PartialDataError, match="no sample in 1 s: idle, or ended"):
                record_running(idle.pid, tmp_path / "app", 1, [["page-faults"]])
        finally:
            idle.kill()
    assert not (tmp_path / "app").exists()


def test_an_interrupted_sampling_keeps_the_samples_it_has(loop, tmp_path):
    with (tmp_path / "bits").open("wb") as file:
        ran = subprocess.Popen([DUMPS / "build/ptheat", str(loop[0]), "60", "20"], stdout=file)
    assert wait_for(lambda: waited(ran.pid) > 60, 60)
    ran.send_signal(signal.SIGINT)
    assert ran.wait(timeout=60) == 0
    assert read_heat(tmp_path / "bits").samples.sum() > 3
    header = np.fromfile(tmp_path / "bits", HEADER_DTYPE, 1)[0]
    assert (header["magic"], header["version"], header["byte_order"]) == (MAGIC, VERSION, BYTE_ORDER)


def test_a_process_that_ends_is_said_to_have_ended(tmp_path):
    short = subprocess.Popen(["sleep", "1.5"])
    with pytest.raises(PartialDataError, match="ended"):
        sample(short.pid, tmp_path / "bits", 60, [2000])
    assert short.wait() == 0
    with pytest.raises(UsageError, match="no such process"):
        sample(short.pid, tmp_path / "more", 60)


@pytest.mark.parametrize("words", [[], ["1"], ["1", "x", "10"], ["1", "1", "0"], ["1", "1", *["10"] * 17]])
def test_wrong_use_is_refused(words):
    ran = subprocess.run([DUMPS / "build/ptheat", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.startswith("Usage:") and not ran.stdout
    assert sources()["accessed bits of page tables"] == "used"
