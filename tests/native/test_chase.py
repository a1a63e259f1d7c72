"""The pointer chase through a node's memory, alone and under `ptanalyze topology latency`."""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from native.dumping import make
from ptanalyze.capture.live.cacheline import measure_nodes, usable_nodes
from ptanalyze.capture.live.native import native
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.measured.latency import read_latency

DUMPS = Path(__file__).resolve().parents[2] / "dumps"
CPUS = sorted(os.sched_getaffinity(0))
NODE = next(iter(usable_nodes()))
pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def tool():
    make("dumps")
    return native("ptchase")


def chase(tool, text, *arguments):
    argv = [tool, *(arguments or ("16", "5"))]
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=120)


def test_the_program_compiles_without_a_warning(tmp_path):
    argv = ["make", "-s", "-C", DUMPS, f"BUILD={tmp_path}", "CC=gcc -Werror -Wpedantic", tmp_path / "ptchase"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_read_of_a_large_buffer_takes_longer_than_one_of_a_small_one(tool):
    cpu = CPUS[0]
    small, large = (
        float(chase(tool, f"{cpu} {NODE} -\n", size, "60").stdout.split()[2]) for size in ("1", "256")
    )
    assert 0.5 < small < large < 10_000


def test_each_line_is_answered_with_fastest_and_median(tool):
    others = ",".join(map(str, CPUS[1:2])) or "-"
    done = chase(tool, f"{CPUS[0]} {NODE} -\n{CPUS[-1]} {NODE} -\n{CPUS[0]} {NODE} {others}\n")
    assert done.returncode == 0 and not done.stderr
    answers = [line.split() for line in done.stdout.splitlines()]
    assert [answer[:2] for answer in answers] == [
        [str(cpu), str(NODE)] for cpu in (CPUS[0], CPUS[-1], CPUS[0])
    ]
    for _, _, fastest, median, huge in answers:
        assert 0 < float(fastest) <= float(median) and math.isfinite(float(median))
        assert 0 <= int(huge) <= 100


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
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(tool, text, why):
    done = chase(tool, text)
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("0", "5"), ("16", "0"), ("x", "5"), ("16", "10001"), ("65537", "5"), ("16",)]
)
def test_wrong_arguments_show_the_usage(tool, arguments):
    done = chase(tool, "", *arguments)
    assert done.returncode == 2 and done.stderr.startswith("usage: ptchase")


def test_all_pairs_of_nodes_are_measured_and_kept(tool, tmp_path, capfd):
    path = tmp_path / "latency.json"
    assert run(["topology", "latency", "-o", str(path), "--mebibytes", "16", "--bursts", "5"]) == 0
    shown = capfd.readouterr()
    found = read_latency(path)
    assert found.nodes == tuple(usable_nodes()) and np.isfinite(found.idle).all()
    assert ("a single NUMA node" in shown.out) == (len(found.nodes) == 1)
    assert run(["topology", "latency", "--json", "--mebibytes", "16", "--bursts", "5"]) == 0
    result = json.loads(capfd.readouterr().out)["result"]
    assert result["nodes"] == list(found.nodes) and len(result["idle_ns"]) == len(found.nodes)


def nodes(tmp_path, cpulists, kib=1000):
    for node, cpus in enumerate(cpulists):
        place = tmp_path / f"node{node}"
        place.mkdir()
        (place / "cpulist").write_text(cpus + "\n")
        (place / "meminfo").write_text(f"Node {node} MemTotal:       {kib} kB\n")
    return tmp_path


def test_nodes_without_cpus_or_memory_are_left_out(tmp_path):
    assert usable_nodes(nodes(tmp_path, [str(CPUS[0]), "", "8190"])) == {0: [CPUS[0]]}


def test_a_node_that_is_not_there_is_named(tool, tmp_path):
    fake = nodes(tmp_path, ["8190", str(CPUS[0])])
    if 1 not in usable_nodes():
        with pytest.raises(UsageError, match="node 1: Invalid argument"):
            measure_nodes(fake, mebibytes=16, bursts=5)


def test_a_node_with_one_cpu_has_no_contended_latency(tool, tmp_path):
    found = measure_nodes(nodes(tmp_path, [str(CPUS[0])]), mebibytes=16, bursts=5)
    assert found.contended is None and "none left to load it" in " ".join(found.flags)
