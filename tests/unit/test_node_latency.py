"""Latencies between nodes: our JSON, Intel MLC's text, ACPI SLIT directories, and what cannot be."""

import json
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.measured.latency import NodeLatency, read_latency, write_latency
from ptanalyze.formats.measured.machine import with_latency, write_machine

MLC = """Intel(R) Memory Latency Checker - v3.9
Command line parameters: --latency_matrix

Using buffer size of 2000.000MiB
Measuring idle latencies (in ns)...
\t\tNuma node
Numa node\t     0\t     1\t
       0\t  78.5\t 134.8\t
       1\t 133.7\t  79.2\t

Measuring Peak Injection Memory Bandwidths for the system
\t\tNuma node
Numa node\t     0\t     1\t
       0\t 90935.7\t 34457.4\t
"""


def slit(tmp_path, rows):
    for node, row in enumerate(rows):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "distance").write_text(row + "\n")
    return tmp_path


@pytest.mark.parametrize("text", [MLC, MLC.replace("\t", "    "), MLC.replace("\n", "\r\n"), MLC[:268]])
def test_the_latency_matrix_of_mlc_is_read_and_its_bandwidths_are_not(file, text):
    found = read_latency(file(text))
    assert found.nodes == (0, 1) and found.contended is None and not found.flags
    assert found.idle.tolist() == [[78.5, 134.8], [133.7, 79.2]]


TIERED = """Measuring idle latencies for random access (in ns)...
\t\tNuma node
Numa node\t     0\t     1\t     2\t
       0\t  80.0\t 140.0\t 255.0\t
       1\t 140.0\t  82.0\t 340.0\t

Measuring Memory Bandwidths between nodes within system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
Using all the threads from each core if Hyper-threading is enabled
Using Read-only traffic type
\t\tNuma node
Numa node\t     0\t     1\t     2\t
       0\t200000.0\t90000.0\t 30000.0\t
       1\t91000.0\t201000.0\t 15000.0\t
"""


def test_a_node_without_cpus_has_a_column_alone_and_bandwidths_are_read_too(file, tmp_path):
    found = read_latency(file(TIERED))
    assert found.memory_nodes == (2,) and found.flags == ("node 2 has no row: taken as a node without CPUs",)
    assert found.idle.tolist() == [[80.0, 140.0, 255.0], [140.0, 82.0, 340.0], [255.0, 340.0, 255.0]]
    assert found.bandwidth.tolist() == [[200.0, 90.0, 30.0], [91.0, 201.0, 15.0], [0.0, 0.0, 0.0]]
    machine = with_latency(load_machine("sapphire-rapids"), found, "mine")
    write_machine(tmp_path / "mine.toml", machine)
    again = load_machine(tmp_path / "mine.toml")
    assert again.memory_nodes == (2,) and again.bandwidth[0] == (200.0, 90.0, 30.0)
    write_latency(tmp_path / "l.json", found)
    twice = read_latency(tmp_path / "l.json")
    assert twice.memory_nodes == (2,) and twice.bandwidth.tolist() == found.bandwidth.tolist()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("       1\t 140.0", "       7\t 140.0", "node 7 = a row: no column"),
        ("       1\t 140.0\t  82.0\t 340.0", "       1\t 140.0\t  82.0", "idle latencies = 2 rows of"),
        ("201000.0", "-", "a pair that MLC did not measure"),
        ("\t 15000.0", "", "bandwidths = 2 rows of"),
        ("       0\t  80.0\t 140.0\t 255.0\t\n       1", "       x", "no row of numbers"),
    ],
)
def test_tiers_that_mlc_cannot_have_printed_are_refused_by_name(file, old, new, why):
    assert old in TIERED
    with pytest.raises(CaptureError, match=why):
        read_latency(file(TIERED.replace(old, new, 1)))


def test_an_asymmetric_matrix_is_flagged_by_pair(file):
    found = read_latency(file(MLC.replace("133.7", "213.7")))
    assert found.flags == ("idle: node 0 to 1 takes 134.8 ns, back 213.7 ns: asymmetric; the mean is used",)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("133.7", "53.7", "idle, node 1 to 0 = 53.7 ns: below node 1's own memory, 79.2 ns"),
        ("134.8", "0.0", "idle, node 0 to 1 = 0 ns"),
        ("134.8", "-", "line 8 = -: a pair that MLC did not measure"),
        (" 134.8", "", "1 rows of|2 rows of"),
        ("Measuring idle", "Thinking of", "neither ptanalyze-node-latency"),
        ("Numa node\t     0\t     1", "node", "no line of NUMA nodes"),
        ("     0\t     1", "     0\t     0", "nodes = "),
    ],
)
def test_what_mlc_cannot_have_printed_is_refused_by_name(file, old, new, why):
    assert old in MLC
    with pytest.raises(CaptureError, match=why) as refused:
        read_latency(file(MLC.replace(old, new, 1)))
    assert "given.txt" in str(refused.value) and "\n" not in str(refused.value)


def test_slit_distances_are_scaled_by_the_local_latency(tmp_path):
    found = read_latency(slit(tmp_path, ["10 21", "21 10"]), local_ns=80.0)
    assert found.idle.tolist() == [[80.0, 168.0], [168.0, 80.0]]
    assert "not measurements" in found.source


def test_this_machines_own_slit_is_read():
    found = read_latency("/sys/devices/system/node", local_ns=80.0)
    assert np.diag(found.idle).tolist() == [80.0] * len(found.nodes)


@pytest.mark.parametrize(
    ("rows", "local_ns", "why"),
    [
        (["10 21", "21 10"], None, "relative; say with --local-ns"),
        (["10 21", "21 10"], float("nan"), "relative"),
        (["10 21", "21"], 80.0, "2 rows of"),
        (["10 9", "9 10"], 80.0, "below node 0's own memory"),
        (["10 ten", "21 10"], 80.0, "expected numbers"),
        ([], 80.0, "no directory of NUMA nodes"),
    ],
)
def test_a_slit_that_says_too_little_is_refused(tmp_path, rows, local_ns, why):
    with pytest.raises(PtanalyzeError, match=why):
        read_latency(slit(tmp_path, rows), local_ns)


def test_a_local_latency_is_for_slit_only(file):
    with pytest.raises(UsageError, match="has latencies of its own"):
        read_latency(file(MLC), local_ns=80.0)


cells_of = st.integers(1, 4).flatmap(lambda n: st.lists(st.floats(1, 1e4), min_size=n * n, max_size=n * n))


@given(cells_of, st.booleans())
def test_a_file_gives_back_what_was_written(tmp_path_factory, cells, loaded):
    n = int(len(cells) ** 0.5)
    idle = np.array(cells).reshape(n, n).round(2)
    idle[np.diag_indices(n)] = idle.min(axis=1)
    contended = (idle * 2).round(2) if loaded else None
    path = tmp_path_factory.mktemp("l") / "l.json"
    write_latency(path, NodeLatency(tuple(range(n)), idle, contended, "here"))
    found = read_latency(path)
    assert found.idle.tolist() == idle.tolist() and found.source == "here"
    assert (found.contended is None) == (not loaded)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


RECORD = {
    "format": "ptanalyze-node-latency",
    "version": 1,
    "nodes": [0, 2],
    "idle_ns": [[80.0, 150.0], [150.0, 80.0]],
    "contended_ns": [[120.0, 300.0], [300.0, 120.0]],
    "source": "here",
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 9}, "version = 9"),
        ({"format": "x"}, "format = x"),
        ({"nodes": [0]}, "idle latencies = 2 rows"),
        ({"nodes": []}, "idle latencies = 2 rows"),
        ({"nodes": [0, 0]}, "nodes = "),
        ({"nodes": [0, -1]}, "nodes = "),
        ({"idle_ns": [[80.0, 150.0], [150.0]]}, "idle latencies"),
        ({"idle_ns": [[80.0, -1.0], [150.0, 80.0]]}, "idle, node 0 to 2"),
        ({"idle_ns": [[80.0, 70.0], [150.0, 80.0]]}, "below node 0's own memory"),
        (
            {"contended_ns": [[120.0, 100.0], [300.0, 120.0]]},
            "contended, node 0 to 2 = 100 ns: faster than idle",
        ),
        ({"more": 1}, "more: no such field"),
        ({"memory_nodes": [0, 2]}, "memory_nodes = "),
        ({"memory_nodes": [1]}, "memory_nodes = "),
        ({"bandwidth_gb_per_s": [[1.0, -1.0], [1.0, 1.0]]}, "bandwidth, node 0 to 2 = -1 GB/s"),
        ({"bandwidth_gb_per_s": [[1.0]]}, "bandwidth = 1 rows of"),
    ],
)
def test_a_wrong_record_is_refused_by_name(file, change, why):
    with pytest.raises(CaptureError, match=why):
        read_latency(file(json.dumps(RECORD | change)))


@given(st.binary(max_size=80))
def test_no_other_bytes_are_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("l") / "l"
    path.write_bytes(content)
    with pytest.raises(CaptureError):
        read_latency(path)
