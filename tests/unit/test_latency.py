"""Latencies between nodes and CPUs: files of them, and the groups that they give."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from naive import classify as naive
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError, bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.core.sysfs import parse_cpus
from ptanalyze.formats.measured.latency import NodeLatency, read_latency, with_latency, write_latency
from ptanalyze.formats.measured.machine import write_machine
from ptanalyze_host import cpu_levels
from ptanalyze_host.cacheline import LatencyMatrix, Method, noisy_pairs, read_matrix, write_matrix
from ptanalyze_host.cpu_levels import (
    GAP,
    kernel_groups,
    known_pairs,
    level,
    levels,
    mean_latencies,
    mirrored,
)
from ptanalyze_host.node_latency import cpu_list

# Published latencies of cache-line transfers, and the groups they give.

FILE_4 = bundled("models") / "reference" / "vmitosis-table-4.json"  # vMitosis, Table 4
TABLE_4 = read_matrix(FILE_4).ns
SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
# Virtual NUMA groups from latency matrices, and what the kernel says to them.
NAN = np.nan


def groups_of(text, **options):
    """Groups of CPUs 0, 1, ... with the latencies of a text, "-" unknown."""
    ns = text
    if isinstance(text, str):
        ns = [[NAN if cell == "-" else float(cell) for cell in row.split()] for row in text.splitlines()]
    return level(np.array(ns), range(len(ns)), **options).groups


def matrix_of(partition, rng, within, across, one_way=0.0):
    """(float[n, n], CPUs in shuffled order); a share `one_way` of the pairs has one direction only."""
    cpus = [cpu for group in partition for cpu in group]
    rng.shuffle(cpus)
    owner = {cpu: number for number, group in enumerate(partition) for cpu in group}
    ns = np.full((len(cpus), len(cpus)), NAN)
    for a, b in combinations(range(len(cpus)), 2):
        span = within if owner[cpus[a]] == owner[cpus[b]] else across
        value = rng.uniform(*span)
        ns[a, b], ns[b, a] = value, min(value * rng.uniform(1, 1.2), span[1])
        if rng.random() < one_way:
            ns[(a, b) if rng.random() < 0.5 else (b, a)] = NAN
    return ns, cpus


@st.composite
def partitions(draw, most=12):
    """Sorted groups of CPU numbers: at least two groups, at least one of two CPUs."""
    cpus = draw(st.lists(st.integers(0, 300), min_size=3, max_size=most, unique=True))
    labels = draw(st.lists(st.integers(0, 3), min_size=len(cpus), max_size=len(cpus)))
    found = {}
    for cpu, label in zip(cpus, labels, strict=True):
        found.setdefault(label, []).append(cpu)
    assume(1 < len(found) < len(cpus))
    return sorted(tuple(sorted(group)) for group in found.values())


def test_table_4_of_the_vmitosis_paper_gives_its_four_groups():
    assert groups_of(TABLE_4) == SOCKETS
    (found,) = levels(TABLE_4, range(12))
    assert (found.within_ns, found.across_ns) == (62, 125)


@settings(deadline=None)
@given(partitions(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, 1.0]))
def test_any_partition_comes_back_through_noise_and_missing_directions(partition, rng, one_way):
    ns, cpus = matrix_of(partition, rng, (40, 70), (100, 100 * GAP - 0.1), one_way)
    assert level(ns, cpus).groups == partition


@settings(deadline=None)
@given(partitions(), st.randoms(use_true_random=False))
def test_where_also_the_slow_pairs_have_gaps_the_partition_is_one_of_the_levels(partition, rng):
    ns, cpus = matrix_of(partition, rng, (40, 70), (100, 140))
    assert partition in [found.groups for found in levels(ns, cpus)]
    assert level(ns, cpus, nodes=len(partition)).groups == partition


@settings(deadline=None)
@given(st.integers(2, 3), st.integers(2, 3), st.randoms(use_true_random=False))
def test_hyperthreads_are_a_finer_level_than_sockets(sockets, cores, rng):
    threads = [[(s * 20 + c, 100 + s * 20 + c) for c in range(cores)] for s in range(sockets)]
    partition = sorted(tuple(sorted(sum(socket, ()))) for socket in threads)
    ns, cpus = matrix_of(partition, rng, (40, 50), (110, 130))
    at = {cpu: index for index, cpu in enumerate(cpus)}
    siblings = sorted(pair for socket in threads for pair in socket)
    for a, b in siblings:
        ns[at[a], at[b]] = ns[at[b], at[a]] = 12
    assert level(ns, cpus).groups == partition
    assert level(ns, cpus, nodes=sockets * cores).groups == siblings


LATENCIES = st.sampled_from([10, 12, 20, 25, 50, 60, 70, 100, 120, 150, None])


@settings(deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(LATENCIES, min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2)
    )
)
def test_levels_are_those_of_the_naive_search(values):
    count = next(n for n in range(2, 7) if n * (n - 1) // 2 == len(values))
    cpus = [7 * cpu % 31 for cpu in range(count)]
    known, ns = {}, np.full((count, count), NAN)
    for (a, b), value in zip(combinations(range(count), 2), values, strict=True):
        if value is not None:
            known[cpus[a], cpus[b]] = ns[a, b] = value
    expect = naive.levels(known, cpus, GAP)
    try:
        found = [found.groups for found in levels(ns, cpus)]
    except UsageError as error:
        told = [each for each in expect if each is not None]
        assert not told and ("no known pair shows" in str(error)) == bool(expect), str(error)
        return
    assert found == [each for each in expect if each is not None]


def test_a_slow_pair_within_a_group_is_named_with_the_fast_ones_that_join_it():
    with pytest.raises(UsageError, match=r"CPUs 4 and 8 take 126 ns.*\(4-0 50, 0-8 55 ns\)"):
        slow = TABLE_4.copy()
        slow[4, 8] = slow[8, 4] = 126
        groups_of(slow)


def test_groups_that_no_pair_tells_apart_are_not_guessed():
    fewer = TABLE_4.copy()
    for cpu in (3, 7):  # without the rows of the upper triangle
        fewer[cpu, cpu:] = fewer[cpu:, cpu] = NAN
    with pytest.raises(UsageError, match="no known pair shows whether CPUs 3 and 7 share a group"):
        groups_of(fewer)


def test_without_a_gap_there_are_no_groups_unless_one_is_all_right():
    text = "- 50 60\n50 - 62\n60 62 -"
    with pytest.raises(UsageError, match="the matrix has no groups: latencies lie between 50 and 62 ns"):
        groups_of(text)
    assert groups_of(text, one_group_ok=True) == [(0, 1, 2)]


def test_a_gap_is_30_percent_or_more():
    assert groups_of("- 10 13\n- - 13\n- - -") == [(0, 1), (2,)]
    with pytest.raises(UsageError, match=r"between 10 and 12\.9 ns without a gap of 1\.3 times"):
        groups_of("- 10 12.9\n- - 12.9\n- - -")


def test_the_faster_direction_of_a_pair_counts():
    ns = known_pairs([[NAN, 60, 125], [50, NAN, 120], [NAN, 125, NAN]], range(3))
    np.testing.assert_array_equal(ns, [[NAN, 50, 125], [50, NAN, 120], [125, 120, NAN]])


def test_groups_that_there_are_stay_where_one_would_be_all_right():
    assert groups_of(TABLE_4, one_group_ok=True) == SOCKETS


def test_of_several_contradictions_that_of_the_widest_gap_is_named():
    with pytest.raises(UsageError, match=r"CPUs 0 and 2 take 60 ns.*\(0-1 12, 1-2 12 ns\)"):
        groups_of("- 12 60 60\n- - 12 80\n- - - 60\n- - - -")


def test_one_group_is_not_guessed_where_no_pair_joins_its_cpus():
    with pytest.raises(UsageError, match="whether CPUs 0 and 2 share"):
        groups_of("- 50 - -\n- - - -\n- - - 55\n- - - -", one_group_ok=True)


def test_one_group_does_not_hide_a_contradiction():
    ns = [[NAN, 50, 125], [NAN, NAN, 50], [NAN, NAN, NAN]]
    with pytest.raises(UsageError, match="CPUs 0 and 2 take 125 ns"):
        level(ns, range(3), one_group_ok=True)


@pytest.mark.parametrize(
    ("ns", "cpus", "why"),
    [
        ([[NAN, 50]], [0, 1], r"shape = \(1, 2\): must be square"),
        ([[NAN, 50], [50, NAN]], [0, 1, 2], r"one row and column per CPU \(3\)"),
        ([[NAN, 50], [50, NAN]], [4, 4], "CPU = 4: named twice"),
        ([[NAN]], [0], "a pair needs two"),
        (
            [[NAN, 50, 125], [125, NAN, 125], [125, 125, NAN]],
            [3, 5, 7],
            r"\[5\]\[3\] = 125.0: but \[3\]\[5\]",
        ),
    ],
)
def test_a_matrix_that_fits_no_cpus_or_itself_is_refused(ns, cpus, why):
    with pytest.raises(CaptureError, match=f"^latency matrix: .*{why}"):
        level(ns, cpus)


def test_one_pair_cannot_be_grouped():
    with pytest.raises(UsageError, match=r"two CPUs are one pair \(50 ns\)"):
        level([[NAN, 50], [50, NAN]], [0, 1])


def test_a_number_of_nodes_that_no_level_has_is_refused_with_those_it_has():
    with pytest.raises(UsageError, match="no level has 3 groups; there are levels with 4"):
        groups_of(TABLE_4, nodes=3)


def test_mean_latencies_are_of_the_known_pairs():
    within, across = mean_latencies(TABLE_4, range(12), level(TABLE_4, range(12)).groups)[0]
    assert within == pytest.approx((50 + 55 + 62) / 3) and 125 < across < 126
    assert mean_latencies([[NAN, 50], [50, NAN]], [0, 1], [(0,), (1,)]) == [(None, 50), (None, 50)]


@settings(deadline=None)
@given(st.sets(st.integers(0, 8191), min_size=1, max_size=40))
def test_cpu_lists_are_read_as_they_are_written(cpus):
    assert parse_cpus(cpu_list(cpus)) == tuple(sorted(cpus))


def test_cpu_lists_are_short():
    assert cpu_list([9, 0, 1, 2, 4]) == "0-2,4,9"


@pytest.mark.parametrize("text", [",", "1-", "-1", "3-1", "0,,1", "a", "0-99999999999", "1.5", "0 1", "٣"])
def test_a_list_that_names_no_cpus_is_refused(text):
    with pytest.raises(CaptureError, match="in a list such as 0-7,9"):
        parse_cpus(text)


@pytest.fixture
def two_sockets(tmp_path):
    """/sys/devices/system of two sockets: CPUs 0, 2, 4, 6 and 1, 3, 5, 7; CPU c and c + 4 are of one core."""
    for cpu in range(8):
        place = tmp_path / f"cpu/cpu{cpu}"
        (place / "topology").mkdir(parents=True)
        (place / "cache/index3").mkdir(parents=True)
        socket = ",".join(str(c) for c in range(8) if c % 2 == cpu % 2)
        (place / "topology/core_siblings_list").write_text(socket + "\n")
        (place / "topology/thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
        (place / "cache/index3/shared_cpu_list").write_text(socket + "\n")
    for node, cpus in enumerate(["0,2,4,6\n", "1,3,5,7\n", "\n"]):  # the third has memory only
        (tmp_path / f"node/node{node}").mkdir(parents=True)
        (tmp_path / f"node/node{node}/cpulist").write_text(cpus)
    return tmp_path


def test_groups_are_compared_with_nodes_caches_and_cores_of_the_kernel(two_sockets):
    own = kernel_groups(range(8), two_sockets)
    assert mirrored([(0, 2, 4, 6), (1, 3, 5, 7)], own) == ["NUMA nodes", "sockets", "L3 caches"]
    assert mirrored([(0, 4), (1, 5), (2, 6), (3, 7)], own) == ["cores (hyperthreads)"]
    assert mirrored([(0, 1), (2, 3, 4, 5, 6, 7)], own) == []
    assert mirrored([(0, 2), (3,)], kernel_groups((0, 2, 3), two_sockets))[0] == "NUMA nodes"


def test_a_cpu_that_the_machine_lacks_is_not_compared(two_sockets):
    with pytest.raises(UsageError, match="CPU 8: not of this machine"):
        kernel_groups((0, 8), two_sockets)


def test_the_command_prints_a_line_a_group_and_json(capfd):
    path = str(FILE_4)
    assert run(["topology", "groups", path]) == 0
    out = capfd.readouterr().out
    assert all(f" {','.join(map(str, cpus))} " in out for cpus in SOCKETS)
    assert "within at most 62 ns, across at least 125 ns" in out
    assert run(["topology", "groups", path, "--json"]) == 0
    result = json.loads(capfd.readouterr().out)["result"]
    assert [tuple(group["cpus"]) for group in result["groups"]] == SOCKETS
    assert (result["slowest_within_ns"], result["fastest_across_ns"], result["kernel"]) == (62, 125, None)
    assert run(["topology", "groups", path + "x"]) == 2
    assert "No such file" in capfd.readouterr().err


def of_two_sockets():
    """Latencies on `two_sockets`: 12 ns in a core, 50 in a socket, 125 across."""
    return [
        [None if a == b else 12 if a % 4 == b % 4 else 50 if a % 2 == b % 2 else 125 for b in range(8)]
        for a in range(8)
    ]


def test_the_command_says_what_of_the_kernel_the_groups_mirror(tmp_path, two_sockets, monkeypatch, capfd):
    own = kernel_groups(range(8), two_sockets)
    monkeypatch.setattr(cpu_levels, "kernel_groups", lambda cpus: own)
    path = str(tmp_path / "latencies")
    Path(path).write_text(json.dumps({**MATRIX, "cpus": [*range(8)], "ns": of_two_sockets()}))
    assert run(["topology", "groups", path, "--compare-with-kernel"]) == 0
    out = capfd.readouterr().out
    assert "the groups mirror the kernel's NUMA nodes" in out and "another level: --nodes 4" in out
    assert run(["topology", "groups", path, "--compare-with-kernel", "--nodes", "4"]) == 0
    why = "do not mirror the kernel's NUMA nodes (0,2,4,6) (1,3,5,7); they mirror its cores (hyperthreads)"
    assert why in capfd.readouterr().out
    assert run(["topology", "groups", path, "--nodes", "4"]) == 0
    assert "are they the hyperthreads of one core" in capfd.readouterr().out


# Files of latencies between CPUs, as `topology measure` writes them.


MATRIX = {"format": "ptanalyze-topology", "version": 1}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe\x80 50", "not a ptanalyze-topology file"),
        ("{", "not a ptanalyze-topology file"),
        ({"format": "ptanalyze-snapshot", "cpus": [], "ns": []}, "expected ptanalyze-topology"),
        ({"version": 2, "cpus": [], "ns": []}, "version = 2: this release"),
        ({"cpus": [], "ns": []}, "a pair needs two"),
        ({"cpus": [0, 1], "ns": [[None, 1]]}, "1 rows of 2"),
        ({"cpus": [0, 1], "ns": [[], []]}, "2 rows of 0"),
        ({"cpus": [0, 1], "ns": [[float("nan"), 1]]}, "not a ptanalyze"),
        ({"cpus": [0, 0], "ns": [[None, 1], [1, None]]}, "CPU = 0: named twice"),
        ({"cpus": [-1, 0], "ns": [[None, 1], [1, None]]}, "cpus = -1: expected CPU numbers"),
        ({"cpus": [0, 1], "ns": [[None, -1], [1, None]]}, r"\[0\]\[1\] = -1.0"),
        ({"cpus": [0, 1], "ns": [[None, None], [None, None]]}, "no pair is known"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_in_one_line(file, content, why):
    path = file(json.dumps(MATRIX | content) if isinstance(content, dict) else content)
    with pytest.raises(PtanalyzeError, match=why) as caught:
        matrix = read_matrix(path)
        level(matrix.ns, matrix.cpus, name=path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_a_measured_matrix_is_read_as_it_was_written(tmp_path):
    ns = np.array([[NAN, 50.25, 125], [50.25, NAN, 126], [125, 126, NAN]])
    method = Method(rounds=1000, repeat=7, cpu="some CPU", kernel="6.1")
    path = tmp_path / "topology.json"
    write_matrix(path, LatencyMatrix((2, 4, 9), ns, ns / ns, method))
    found = read_matrix(path)
    assert found.cpus == (2, 4, 9) and found.method == method
    np.testing.assert_array_equal(found.ns, ns)
    np.testing.assert_array_equal(found.spread, ns / ns)
    assert set(json.loads(path.read_text())) == {"format", "version", "cpus", "ns", "spread", "method"}
    assert level(found.ns, found.cpus).groups == [(2, 4), (9,)]


@pytest.mark.parametrize("cut", [2, 10, 100])
def test_a_measured_matrix_cut_short_is_refused(tmp_path, cut):
    path = tmp_path / "topology.json"
    write_matrix(path, LatencyMatrix((0, 1), np.array([[NAN, 50], [50, NAN]])))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CaptureError, match="not a ptanalyze-topology file"):
        read_matrix(path)


def test_pairs_that_were_disturbed_most_of_the_time_are_named():
    spread = np.array([[NAN, 1.1, 3.0], [1.1, NAN, 1.0], [3.0, 1.0, NAN]])
    assert noisy_pairs(LatencyMatrix((2, 4, 9), spread * 50, spread)) == [(2, 9, 3.0)]
    assert noisy_pairs(LatencyMatrix((2, 4, 9), spread * 50)) == []


# Latencies between nodes.


ROWS = [[80.0, 150.0], [150.0, 80.0]]
RECORD = {
    "format": "ptanalyze-node-latency",
    "version": 1,
    "nodes": [0, 2],
    "idle_ns": ROWS,
    "contended_ns": [[120.0, 300.0], [300.0, 120.0]],
    "source": "here",
}
SNC3 = [
    [139.0, 168.0, 208.0, 394.0, 475.0, 445.0],
    [160.0, 134.0, 170.0, 415.0, 448.0, 480.0],
    [156.0, 124.0, 106.0, 508.0, 513.0, 452.0],
    [396.0, 476.0, 446.0, 102.0, 129.0, 157.0],
    [420.0, 453.0, 421.0, 122.0, 102.0, 130.0],
    [445.0, 449.0, 392.0, 148.0, 122.0, 104.0],
]


def idle(rows, **more):
    """Content of a file of idle latencies."""
    return json.dumps(RECORD | {"nodes": [*range(len(rows))], "idle_ns": rows, "contended_ns": None} | more)


def test_a_node_without_cpus_is_kept_by_files_and_machines(tmp_path, file):
    rows = [[80.0, 140.0, 255.0], [140.0, 82.0, 340.0], [255.0, 340.0, 255.0]]
    latency = read_latency(file(idle(rows, memory_nodes=[2])))
    write_machine(tmp_path / "mine.toml", with_latency(load_machine("sapphire-rapids"), latency, "mine"))
    assert load_machine(tmp_path / "mine.toml").memory_nodes == (2,)
    write_latency(tmp_path / "l.json", latency)
    assert read_latency(tmp_path / "l.json").memory_nodes == (2,)


def test_the_worst_pairs_are_said_when_a_machine_is_written(tmp_path, file, capfd):
    out = ["--write-machine", str(tmp_path / "m.toml")]
    assert run(["calibrate", "--latency", str(file(idle(SNC3))), *out]) == 0
    said = capfd.readouterr().err
    assert "node 1 to 2 takes 170 ns, back 124 ns" in said and "node 0 to 2 takes 208 ns, back 156" in said
    assert "3 more pairs" in said and load_machine(tmp_path / "m.toml").latency.idle[1][2] == 147
    assert "takes 170 ns" in load_machine(tmp_path / "m.toml").sources["oddities"]


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
