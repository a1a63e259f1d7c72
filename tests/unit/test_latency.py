"""Latencies between nodes and CPUs: files of them, and the groups that they give."""

import json
import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from naive import classify as naive
from ptanalyze.capture.live import host as kernel
from ptanalyze.capture.live.cacheline import cpu_list, noisy_pairs
from ptanalyze.capture.live.host import kernel_groups, mirrored
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, PtanalyzeError, UsageError
from ptanalyze.core.machine import GAP, known_pairs, load_machine
from ptanalyze.core.sysfs import parse_cpus
from ptanalyze.formats.measured.latency import (
    LatencyMatrix,
    Method,
    NodeLatency,
    parse_table,
    read_latency,
    read_matrix,
    with_latency,
    write_latency,
    write_matrix,
)
from ptanalyze.formats.measured.machine import write_machine
from ptanalyze_host.cpu_levels import groups, level, levels, mean_latencies

# Published latencies of cache-line transfers, and the groups they give.

# vMitosis, Table 4, as printed: the upper triangle of the first 8 of 12 CPUs of a matrix of 192
TABLE_4 = """\
\t0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11
0\t-\t125\t125\t126\t50\t125\t126\t126\t55\t125\t125\t126
1\t-\t-\t125\t126\t126\t50\t125\t125\t125\t52\t126\t125
2\t-\t-\t-\t126\t125\t126\t62\t126\t125\t125\t55\t125
3\t-\t-\t-\t-\t125\t125\t126\t50\t125\t126\t125\t55
4\t-\t-\t-\t-\t-\t125\t125\t126\t62\t126\t125\t125
5\t-\t-\t-\t-\t-\t-\t125\t126\t125\t55\t125\t126
6\t-\t-\t-\t-\t-\t-\t-\t126\t126\t126\t50\t125
7\t-\t-\t-\t-\t-\t-\t-\t-\t125\t126\t125\t52
"""
SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
# Virtual NUMA groups from latency matrices, and what the kernel says to them.
NAN = np.nan


def groups_of(text, **options):
    cpus, ns = parse_table("latencies", text)
    return groups(ns, cpus, **options)


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


@pytest.mark.twin
def test_table_4_of_the_vmitosis_paper_gives_its_four_groups():
    assert groups_of(TABLE_4) == SOCKETS
    (found,) = levels(parse_table("Table 4", TABLE_4)[1], range(12))
    assert (found.within_ns, found.across_ns) == (62, 125)


@pytest.mark.twin
@settings(deadline=None)
@given(partitions(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5, 1.0]))
def test_any_partition_comes_back_through_noise_and_missing_directions(partition, rng, one_way):
    ns, cpus = matrix_of(partition, rng, (40, 70), (100, 100 * GAP - 0.1), one_way)
    assert groups(ns, cpus) == partition


@pytest.mark.twin
@settings(deadline=None)
@given(partitions(), st.randoms(use_true_random=False))
def test_where_also_the_slow_pairs_have_gaps_the_partition_is_one_of_the_levels(partition, rng):
    ns, cpus = matrix_of(partition, rng, (40, 70), (100, 140))
    assert partition in [found.groups for found in levels(ns, cpus)]
    assert groups(ns, cpus, nodes=len(partition)) == partition


@pytest.mark.twin
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
    assert groups(ns, cpus) == partition
    assert groups(ns, cpus, nodes=sockets * cores) == siblings


LATENCIES = st.sampled_from([10, 12, 20, 25, 50, 60, 70, 100, 120, 150, None])


@pytest.mark.twin
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


@pytest.mark.twin
def test_a_slow_pair_within_a_group_is_named_with_the_fast_ones_that_join_it():
    with pytest.raises(UsageError, match=r"CPUs 4 and 8 take 126 ns.*\(4-0 50, 0-8 55 ns\)"):
        groups_of(TABLE_4.replace("-\t125\t125\t126\t62", "-\t125\t125\t126\t126"))


@pytest.mark.twin
def test_groups_that_no_pair_tells_apart_are_not_guessed():
    text = "\n".join(line for line in TABLE_4.splitlines() if not line.startswith(("3", "7")))
    with pytest.raises(UsageError, match="no known pair shows whether CPUs 3 and 7 share a group"):
        groups_of(text)


@pytest.mark.twin
def test_without_a_gap_there_are_no_groups_unless_one_is_all_right():
    text = "- 50 60\n50 - 62\n60 62 -"
    with pytest.raises(UsageError, match="the matrix has no groups: latencies lie between 50 and 62 ns"):
        groups_of(text)
    assert groups_of(text, one_group_ok=True) == [(0, 1, 2)]


@pytest.mark.twin
def test_a_gap_is_30_percent_or_more():
    assert groups_of("- 10 13\n- - 13\n- - -") == [(0, 1), (2,)]
    with pytest.raises(UsageError, match=r"between 10 and 12\.9 ns without a gap of 1\.3 times"):
        groups_of("- 10 12.9\n- - 12.9\n- - -")


@pytest.mark.twin
def test_the_faster_direction_of_a_pair_counts():
    ns = known_pairs([[NAN, 60, 125], [50, NAN, 120], [NAN, 125, NAN]], range(3))
    np.testing.assert_array_equal(ns, [[NAN, 50, 125], [50, NAN, 120], [125, 120, NAN]])


@pytest.mark.twin
def test_groups_that_there_are_stay_where_one_would_be_all_right():
    assert groups_of(TABLE_4, one_group_ok=True) == SOCKETS


@pytest.mark.twin
def test_of_several_contradictions_that_of_the_widest_gap_is_named():
    with pytest.raises(UsageError, match=r"CPUs 0 and 2 take 60 ns.*\(0-1 12, 1-2 12 ns\)"):
        groups_of("- 12 60 60\n- - 12 80\n- - - 60\n- - - -")


@pytest.mark.twin
def test_one_group_is_not_guessed_where_no_pair_joins_its_cpus():
    with pytest.raises(UsageError, match="whether CPUs 0 and 2 share"):
        groups_of("- 50 - -\n- - - -\n- - - 55\n- - - -", one_group_ok=True)


@pytest.mark.twin
def test_one_group_does_not_hide_a_contradiction():
    ns = [[NAN, 50, 125], [NAN, NAN, 50], [NAN, NAN, NAN]]
    with pytest.raises(UsageError, match="CPUs 0 and 2 take 125 ns"):
        groups(ns, range(3), one_group_ok=True)


@pytest.mark.twin
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
        groups(ns, cpus)


@pytest.mark.twin
def test_one_pair_cannot_be_grouped():
    with pytest.raises(UsageError, match=r"two CPUs are one pair \(50 ns\)"):
        groups([[NAN, 50], [50, NAN]], [0, 1])


@pytest.mark.twin
def test_a_number_of_nodes_that_no_level_has_is_refused_with_those_it_has():
    with pytest.raises(UsageError, match="no level has 3 groups; there are levels with 4"):
        groups_of(TABLE_4, nodes=3)


@pytest.mark.twin
def test_mean_latencies_are_of_the_known_pairs():
    cpus, ns = parse_table("Table 4", TABLE_4)
    within, across = mean_latencies(ns, cpus, level(ns, cpus).groups)[0]
    assert within == pytest.approx((50 + 55 + 62) / 3) and 125 < across < 126
    assert mean_latencies([[NAN, 50], [50, NAN]], [0, 1], [(0,), (1,)]) == [(None, 50), (None, 50)]


@pytest.mark.twin
@settings(deadline=None)
@given(st.sets(st.integers(0, 8191), min_size=1, max_size=40))
def test_cpu_lists_are_read_as_they_are_written(cpus):
    assert parse_cpus(cpu_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.twin
def test_cpu_lists_are_short():
    assert cpu_list([9, 0, 1, 2, 4]) == "0-2,4,9"


@pytest.mark.twin
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


@pytest.mark.twin
def test_groups_are_compared_with_nodes_caches_and_cores_of_the_kernel(two_sockets):
    own = kernel_groups(range(8), two_sockets)
    assert mirrored([(0, 2, 4, 6), (1, 3, 5, 7)], own) == ["NUMA nodes", "sockets", "L3 caches"]
    assert mirrored([(0, 4), (1, 5), (2, 6), (3, 7)], own) == ["cores (hyperthreads)"]
    assert mirrored([(0, 1), (2, 3, 4, 5, 6, 7)], own) == []
    assert mirrored([(0, 2), (3,)], kernel_groups((0, 2, 3), two_sockets))[0] == "NUMA nodes"


@pytest.mark.twin
def test_a_cpu_that_the_machine_lacks_is_not_compared(two_sockets):
    with pytest.raises(UsageError, match="CPU 8: not of this machine"):
        kernel_groups((0, 8), two_sockets)


@pytest.mark.twin
def test_the_command_prints_a_line_a_group_and_json(tmp_path, capfd):
    path = str(tmp_path / "table-4")
    Path(path).write_text(TABLE_4)
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
    """A table of latencies on `two_sockets`: 12 ns in a core, 50 in a socket, 125 across."""
    rows = (
        ["-" if a == b else 12 if a % 4 == b % 4 else 50 if a % 2 == b % 2 else 125 for b in range(8)]
        for a in range(8)
    )
    return "\n".join(",".join(map(str, row)) for row in rows)


@pytest.mark.twin
def test_the_command_says_what_of_the_kernel_the_groups_mirror(tmp_path, two_sockets, monkeypatch, capfd):
    monkeypatch.setattr(kernel, "kernel_groups", lambda cpus: kernel_groups(cpus, two_sockets))
    path = str(tmp_path / "latencies")
    Path(path).write_text(of_two_sockets())
    assert run(["topology", "groups", path, "--compare-with-kernel"]) == 0
    out = capfd.readouterr().out
    assert "the groups mirror the kernel's NUMA nodes" in out and "another level: --nodes 4" in out
    assert run(["topology", "groups", path, "--compare-with-kernel", "--nodes", "4"]) == 0
    why = "do not mirror the kernel's NUMA nodes (0,2,4,6) (1,3,5,7); they mirror its cores (hyperthreads)"
    assert why in capfd.readouterr().out
    assert run(["topology", "groups", path, "--nodes", "4"]) == 0
    assert "are they the hyperthreads of one core" in capfd.readouterr().out


# Files of latencies between CPUs: tables as people have them, records as `topology measure` writes them.
def groups_in(path, **options):
    matrix = read_matrix(path)
    return groups(matrix.ns, matrix.cpus, **options)


@pytest.mark.parametrize("mark", [",", " ", "  "])
@pytest.mark.parametrize("corner", ["", "cpu"])
def test_table_4_may_have_other_separators_and_corners(file, mark, corner):
    text = TABLE_4.replace("\t", mark)
    assert groups_in(file(corner + text if corner else text.lstrip(" "))) == SOCKETS


def test_table_4_may_have_comments_empty_cells_and_crlf(file):
    text = "# ns\n\n" + TABLE_4.replace("-", "").replace("\n", "\r\n")
    assert groups_in(file(text)) == SOCKETS
    assert groups_in(file("\ufeff" + TABLE_4.replace("-", "NaN"))) == SOCKETS


def test_rows_may_stand_in_any_order(file):
    head, *rows = TABLE_4.splitlines()
    assert groups_in(file("\n".join([head, *reversed(rows)]))) == SOCKETS


def test_a_matrix_without_names_is_of_cpus_from_0(file):
    assert groups_in(file("- 50 125\n50 - 125\n125 125 -")) == [(0, 1), (2,)]
    assert groups_in(file("0,50,125\n50,0,125\n125,125,0")) == [(0, 1), (2,)]


def test_a_lower_triangle_with_an_empty_first_row_is_read(file):
    assert groups_in(file(",,\n50,,\n125,126,\n")) == [(0, 1), (2,)]


def test_the_other_direction_of_a_pair_may_differ_by_noise_only(file):
    assert groups_in(file("- 50 125\n60 - 125\n125 125 -")) == [(0, 1), (2,)]
    with pytest.raises(CaptureError, match=r"given.txt: \[1\]\[0\] = 125.0: but \[0\]\[1\] = 50.0"):
        read_matrix(file("- 50 125\n125 - 125\n125 125 -"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no latencies in it"),
        ("\n  \n# only words\n", "no latencies in it"),
        ("5", "a pair needs two"),
        ("cpu,0\n0,-\n", "a pair needs two"),
        ("- 1\n1 -\n1 1\n", "CPU = 2: not square: only 2 CPUs have a column"),
        ("- 50 50\n50 -\n", "line 2: latencies = 2: expected 3"),
        ("- 50\n50 - 3\n- - -", "line 2: latencies = 3: expected 2"),
        ("- -50\n50 -\n", r"\[0\]\[1\] = -50.0: expected ns"),
        ("- 0\n50 -\n", r"\[0\]\[1\] = 0.0: expected ns"),
        ("- 1e300\n1e300 -\n", r"\[0\]\[1\] = 1e\+300"),
        ("- 1e400\n- -\n", r"\[0\]\[1\] = inf"),
        ("- inf\n- -\n", r"\[0\]\[1\] = inf"),
        ("- 1_0\n- -\n", "line 1 = '1_0': expected a latency"),
        ("- ٥٠\n- -\n", "line 1 = '٥٠': expected a latency"),
        ("nan nan\nnan nan\n", "no pair is known"),
        ("- -\n- -\n", "no pair is known"),
        (",0,0\n0,-,50\n", "CPU = 0: named twice in the first line"),
        (",0,1\n0,-,50\n0,-,50\n", "line 3: CPU = 0: a second row"),
        (",0,1\n2,-,50\n", "line 2: CPU = 2: not square"),
        (",0,9999\n0,-,50\n", "line 1 = '9999': expected a CPU"),
        (",0,x\n0,-,50\n", "line 1 = 'x': expected a CPU"),
        ("hello world\nthis is prose\n", "line 1 = 'world': expected a CPU"),
        (b"\x00\x01\x02", "neither a ptanalyze-topology file nor a table"),
        (b"\xff\xfe\x80 50", "neither a ptanalyze-topology file nor a table"),
        (random.Random(1).randbytes(4000), "neither a ptanalyze-topology file nor a table"),
        ("{", "not a ptanalyze-topology file"),
        (
            '{"format": "ptanalyze-snapshot", "version": 1, "cpus": [], "ns": []}',
            "expected ptanalyze-topology",
        ),
        ('{"format": "ptanalyze-topology", "version": 2, "cpus": [], "ns": []}', "version = 2: this release"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [], "ns": []}', "a pair needs two"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[null, 1]]}', "1 rows of 2"),
        ('{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[], []]}', "2 rows of 0"),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[NaN, 1]]}',
            "not a ptanalyze",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 0], "ns": [[null, 1], [1, null]]}',
            "CPU = 0: named twice",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [-1, 0], "ns": [[null, 1], [1, null]]}',
            "cpus = -1: expected CPU numbers",
        ),
        (
            '{"format": "ptanalyze-topology", "version": 1, "cpus": [0, 1], "ns": [[null, -1], [1, null]]}',
            r"\[0\]\[1\] = -1.0",
        ),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_in_one_line(file, content, why):
    path = file(content)
    with pytest.raises(PtanalyzeError, match=why) as caught:
        groups_in(path, name=path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@settings(deadline=None)
@given(st.text(alphabet="0125-,.\t\n #eanx{", max_size=60))
def test_whatever_a_table_holds_it_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_text(text)
    try:
        matrix = read_matrix(path)
    except CaptureError as error:
        assert "\n" not in str(error)
        return
    assert matrix.ns.shape == (len(matrix.cpus),) * 2 and np.isnan(matrix.ns.diagonal()).all()


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
    assert groups_in(path) == [(2, 4), (9,)]


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


# Latencies between nodes: our JSON, Intel MLC's text, ACPI SLIT directories, and what cannot be.
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
def test_the_latency_matrix_of_mlc_is_read(file, text):
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


def test_a_node_without_cpus_has_a_column_alone(file, tmp_path):
    found = read_latency(file(TIERED))
    assert found.memory_nodes == (2,) and found.flags == ("node 2 has no row: taken as a node without CPUs",)
    assert found.idle.tolist() == [[80.0, 140.0, 255.0], [140.0, 82.0, 340.0], [255.0, 340.0, 255.0]]
    machine = with_latency(load_machine("sapphire-rapids"), found, "mine")
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(tmp_path / "mine.toml").memory_nodes == (2,)
    write_latency(tmp_path / "l.json", found)
    assert read_latency(tmp_path / "l.json").memory_nodes == (2,)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("       1\t 140.0", "       7\t 140.0", "node 7 = a row: no column"),
        ("       1\t 140.0\t  82.0\t 340.0", "       1\t 140.0\t  82.0", "idle latencies = 2 rows of"),
        ("82.0", "-", "a pair that MLC did not measure"),
        ("       0\t  80.0\t 140.0\t 255.0\t\n       1", "       x", "no row of numbers"),
    ],
)
def test_tiers_that_mlc_cannot_have_printed_are_refused_by_name(file, old, new, why):
    assert old in TIERED
    with pytest.raises(CaptureError, match=why):
        read_latency(file(TIERED.replace(old, new, 1)))


def test_blank_lines_and_the_word_socket_change_nothing(file):
    doubled = MLC.replace("\n", "\n\n"), MLC.replace("Numa node\t ", "Socket\t ")
    for text in doubled:
        assert read_latency(file(text)).idle.tolist() == [[78.5, 134.8], [133.7, 79.2]]
    more = TIERED.replace("Numa node\t ", "Socket\t ")  # of 3 nodes on 2 sockets
    with pytest.raises(CaptureError, match="line 3 = Socket: 2 sockets read 3 nodes"):
        read_latency(file(more))


SNC3 = """Measuring idle latencies for sequential access (in ns)...
\t\tNuma node
Numa node\t     0\t     1\t     2\t     3\t     4\t     5
       0\t 139.0\t 168.0\t 208.0\t 394.0\t 475.0\t 445.0
       1\t 160.0\t 134.0\t 170.0\t 415.0\t 448.0\t 480.0
       2\t 156.0\t 124.0\t 106.0\t 508.0\t 513.0\t 452.0
       3\t 396.0\t 476.0\t 446.0\t 102.0\t 129.0\t 157.0
       4\t 420.0\t 453.0\t 421.0\t 122.0\t 102.0\t 130.0
       5\t 445.0\t 449.0\t 392.0\t 148.0\t 122.0\t 104.0
"""


def test_the_worst_pairs_are_said_when_a_machine_is_written(tmp_path, file, capfd):
    out = ["--write-machine", str(tmp_path / "m.toml")]
    assert run(["calibrate", "--latency", str(file(SNC3)), *out]) == 0
    said = capfd.readouterr().err
    assert "node 1 to 2 takes 170 ns, back 124 ns" in said and "node 0 to 2 takes 208 ns, back 156" in said
    assert "3 more pairs" in said and load_machine(tmp_path / "m.toml").latency.idle[1][2] == 147
    assert "takes 170 ns" in load_machine(tmp_path / "m.toml").sources["oddities"]
    (tmp_path / "m.toml").unlink()
    rows = slit(tmp_path, ["10 15 28", "15 10 21", "23 21 10"])
    assert run(["calibrate", "--latency", str(rows), "--local-ns", "80", *out]) == 0
    assert "node 0 to 2 takes 224 ns, back 184 ns: asymmetric" in capfd.readouterr().err


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
        (["10 21", "21"], 80.0, "expected 2, one for each node"),
        (["10 9", "9 10"], 80.0, "expected a whole number from 10"),
        (["10 ten", "21 10"], 80.0, "expected a whole number"),
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
