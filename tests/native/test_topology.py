"""Latencies of this machine, and its survey."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from native.dumping import make
from needs import needs_root
from ptanalyze.capture.live.locate import native
from ptanalyze.cli import run
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze_host import node_latency
from ptanalyze_host.dump import dump_process

# The pointer chase through a node's memory, and measure_nodes.

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
CPUS = sorted(os.sched_getaffinity(0))
NODE = next(iter(node_latency.usable_nodes()))


@pytest.fixture(scope="module")
def chaser():
    make("dumps")
    return native("ptchase")


def chase(tool, text, *arguments):
    argv = [tool, *(arguments or ("16", "5"))]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=120)


def test_walks_take_longer_than_reads_that_the_tlb_holds(chaser):
    """The data fit the caches: what is left is the walk."""
    cpu = CPUS[0]
    walk = chase(chaser, f"{cpu} {NODE} walk:{NODE}\n", "32", "60").stdout.split()
    read = chase(chaser, f"{cpu} {NODE} -\n", "1", "60").stdout.split()
    assert walk[:2] == [str(cpu), str(NODE)]
    assert min(map(float, read[3:])) < min(map(float, walk[3:])) < 100_000


def test_near_and_far_walks_are_measured_and_cited(chaser):
    found = node_latency.measure_walks(mebibytes=4, bursts=3)
    nodes = sorted(node_latency.usable_nodes())
    assert sorted(found) == [(a, b) for a in nodes for b in nodes] and min(found.values()) > 0
    source = "measured, ns of a page walk: 101 to 101 over near leaf tables; one node: none over far ones"
    assert node_latency.walk_source({(0, 0): 101.2}) == source
    told = node_latency.walk_source({(0, 0): 100, (1, 1): 110, (0, 1): 190, (1, 0): 201})
    assert "100 to 110 over near leaf tables, 190 to 201 over far ones; pointer chase on" in told


def test_reads_with_small_and_with_huge_pages_are_timed_in_turn(chaser):
    found = chase(chaser, f"{CPUS[0]} {NODE} pages\n" * 2, "33", "3").stdout.splitlines()
    assert [line.split()[:2] for line in found] == [[str(CPUS[0]), str(NODE)]] * 2
    assert [len(line.split()) for line in found] == [3 + 2 * 3] * 2
    pairs = node_latency.measure_pages(mebibytes=32, turns=2)
    assert (pairs > 0).all() and pairs.shape in ((10, 2), (0, 2))
    assert (node_latency.measure_cached(load_machine("epyc-genoa")) > 0) == bool(pairs.size)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("8191 0 -", "CPU 8191: Invalid argument"),
        ("8192 0 -", "CPU 8192: no CPU has this number"),
        ("-1 0 -", "CPU -1: no CPU has this number"),
        (f"{CPUS[0]} 1024 -", "node 1024: no node has this number"),
        (f"{CPUS[0]} 1023 -", "node 1023: Invalid argument"),
        (f"{CPUS[0]} {NODE} x", "LOAD: x: no CPU has this number"),
        (f"{CPUS[0]} {NODE} 9999", "LOAD: 9999: no CPU has this number"),
        ("a b c", "expected lines"),
        (f"{CPUS[0]} {NODE} walk:x", "walk:x: no node has this number"),
        (f"{CPUS[0]} {NODE} walk:1024", "walk:1024: no node has this number"),
        (f"{CPUS[0]} {NODE} walk:1023", "node 1023: Invalid argument"),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(chaser, text, why):
    done = chase(chaser, text)
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1


def test_all_pairs_of_nodes_are_measured(chaser):
    found = node_latency.measure_nodes(mebibytes=16, bursts=5)
    assert found.nodes == tuple(node_latency.usable_nodes()) and np.isfinite(found.idle).all()


# `ptanalyze survey` on this host: counts beside those of a dump, and of the kernel.

HOLDER = r"""
import ctypes, mmap, sys, time
size = 1 << 30
open("/proc/self/comm", "w").write(r"a\b")  # /proc/PID/status shows it as two
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), 15)  # MADV_NOHUGEPAGE
for k in range(0, size, 2 << 20):
    ctypes.c_char.from_address(at + k).value
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module", autouse=True)
def built():
    make("dumps")


@pytest.fixture
def holder():
    """A process that reads a byte of each 2 MiB of 1 GiB: 512 leaf tables, or one more at the ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "S":
        time.sleep(0.01)
    yield process.pid
    process.kill()
    process.wait()


def counts(*pids):
    command = [DUMPS / "build/ptsurvey", *map(str, pids)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return {one["pid"]: one for one in map(json.loads, ran.stdout.splitlines())}


@needs_root
def test_counts_are_those_of_a_dump_and_of_the_kernel(holder, tmp_path):
    found = counts(holder)[holder]
    dump_process(holder, tmp_path / "dump", stop=True)
    tree = read_snapshot(tmp_path / "dump").guest
    by_level = [sum(level.values()) for level in found["tables"]]
    assert by_level == [int((tree.level == level).sum()) for level in range(1, len(by_level) + 1)]
    assert by_level[0] >= 512 and found["unread"] == 0
    assert found["pgtables_bytes"] == 4096 * sum(by_level[:-1])


@needs_root
def test_every_process_with_memory_is_there_and_none_was_touched(holder):
    before = (Path("/proc") / str(holder) / "stat").read_text().split()
    ran = subprocess.run([DUMPS / "build/ptsurvey"], capture_output=True, text=True, check=True)
    found = {one["pid"] for one in map(json.loads, ran.stdout.splitlines())}
    after = (Path("/proc") / str(holder) / "stat").read_text().split()
    assert {os.getpid(), holder} <= found and (1 in found) is not ("left out PID 1" in ran.stderr)
    assert after[9] == before[9] and after[2] == before[2]  # minor faults, state
    assert 2 not in found  # kthreadd


@needs_root
@pytest.mark.parametrize("words", [["x"], ["-1"], [""], ["1", "2x"]])
def test_wrong_use_is_refused(words):
    ran = subprocess.run([DUMPS / "build/ptsurvey", *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and ran.stderr.startswith("Usage:")


@needs_root
def test_survey_prints_a_table_and_json(holder, tmp_path, capsys):
    prom = tmp_path / "pt.prom"
    assert run(["survey", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["result"]
    own = next(one for one in rows if one["pid"] == holder)
    assert (own["kind"], own["name"]) == ("process", "a\\b") and sum(own["leaf_tables"].values()) >= 512
    assert own["pt_bytes"] == 4096 * sum([*own["leaf_tables"].values(), *own["upper_tables"].values()]) - 4096
    assert run(["survey", "--json", "--prometheus", str(prom), str(holder)]) == 0
    assert r'ptanalyze_page_table_bytes{name="a\\b",' in prom.read_text()
    assert [one["pid"] for one in json.loads(capsys.readouterr().out)["result"]] == [holder]
    assert run(["survey", "--top", "3"]) == 0
    assert "--top" in capsys.readouterr().out


@needs_root
def test_a_survey_that_may_not_see_every_process_is_none():
    """Those of other users were left out, and a file of metrics looked healthy."""
    drop = ["capsh", "--drop=cap_dac_read_search,cap_dac_override", "--", "-c"]
    with subprocess.Popen(["sleep", "60"], user="nobody") as other:
        survey = f"exec {sys.executable} -m ptanalyze survey --json"
        ran = subprocess.run([*drop, survey], capture_output=True, text=True, check=False)
        other.kill()
    assert (ran.returncode, ran.stdout) == (2, "") and "CAP_DAC_READ_SEARCH" in ran.stderr
