"""Groups of CPUs by the latency of cache-line transfers; lists of CPUs; latencies of a machine made here."""

import json
from itertools import combinations
from statistics import quantiles

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from naive import classify as naive
from ptanalyze.core.errors import CaptureError, bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.measured import write_machine
from ptanalyze_host import node_latency
from ptanalyze_host.machine_file import unequal, with_latency
from ptanalyze_host.node_latency import NodeLatency, added_by_walks, asymmetric, cpu_list
from ptanalyze_host.sysfs import parse_cpus
from ptanalyze_papers.vmitosis import GAP, latency_groups

FILE_4 = bundled("models") / "reference/vmitosis-table-4.json"  # vMitosis, Table 4: the upper triangle
HALF_4 = np.array(json.loads(FILE_4.read_bytes())["ns"], float)
TABLE_4 = np.fmin(HALF_4, HALF_4.T)
SOCKETS = [(0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11)]
NAN = np.nan


def groups_of(text):
    """Groups of CPUs 0, 1, ... with the latencies of a text's upper triangle."""
    ns = np.array([[float(cell) for cell in row.split()] for row in text.replace("-", "nan").splitlines()])
    return latency_groups(np.fmin(ns, ns.T), range(len(ns)))


def matrix_of(partition, rng, within, across):
    """(float[n, n], CPUs in shuffled order)."""
    cpus = [cpu for group in partition for cpu in group]
    rng.shuffle(cpus)
    owner = {cpu: number for number, group in enumerate(partition) for cpu in group}
    ns = np.full((len(cpus), len(cpus)), NAN)
    for a, b in combinations(range(len(cpus)), 2):
        ns[a, b] = ns[b, a] = rng.uniform(*(within if owner[cpus[a]] == owner[cpus[b]] else across))
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
    assert latency_groups(TABLE_4, range(12)) == SOCKETS


@given(partitions(), st.randoms(use_true_random=False))
def test_any_partition_comes_back_through_noise(partition, rng):
    ns, cpus = matrix_of(partition, rng, (40, 70), (100, 100 * GAP - 0.1))
    assert latency_groups(ns, cpus) == partition


@given(st.integers(2, 3), st.integers(2, 3), st.randoms(use_true_random=False))
def test_sockets_are_found_and_not_the_hyperthreads_in_them(sockets, cores, rng):
    threads = [[(s * 20 + c, 100 + s * 20 + c) for c in range(cores)] for s in range(sockets)]
    partition = sorted(tuple(sorted(sum(socket, ()))) for socket in threads)
    ns, cpus = matrix_of(partition, rng, (40, 50), (110, 130))
    at = {cpu: index for index, cpu in enumerate(cpus)}
    for a, b in sorted(pair for socket in threads for pair in socket):
        ns[at[a], at[b]] = ns[at[b], at[a]] = 12
    assert latency_groups(ns, cpus) == partition


LATENCIES = st.sampled_from([10, 12, 20, 25, 50, 60, 70, 100, 120, 150])


PAIRS = st.integers(2, 6).map(lambda n: n * (n - 1) // 2)


@given(PAIRS.flatmap(lambda pairs: st.lists(LATENCIES, min_size=pairs, max_size=pairs)))
def test_groups_are_the_coarsest_of_the_naive_search(values):
    count = next(n for n in range(2, 7) if n * (n - 1) // 2 == len(values))
    cpus = [7 * cpu % 31 for cpu in range(count)]
    known, ns = {}, np.full((count, count), NAN)
    for (a, b), value in zip(combinations(range(count), 2), values, strict=True):
        known[cpus[a], cpus[b]] = ns[a, b] = ns[b, a] = value
    assert latency_groups(ns, cpus) == next(iter(naive.levels(known, cpus, GAP)), [])


def test_a_slow_pair_within_a_group_leaves_none():
    slow = TABLE_4.copy()
    slow[4, 8] = slow[8, 4] = 126
    assert latency_groups(slow, range(12)) == []


def test_a_gap_is_30_percent_or_more():
    assert groups_of("- 10 13\n- - 13\n- - -") == [(0, 1), (2,)]
    assert groups_of("- 10 12.9\n- - 12.9\n- - -") == []


@given(st.sets(st.integers(0, 8191), min_size=1, max_size=40))
def test_cpu_lists_are_read_as_they_are_written(cpus):
    assert parse_cpus(cpu_list(cpus)) == tuple(sorted(cpus))


def test_cpu_lists_are_short():
    assert cpu_list([9, 0, 1, 2, 4]) == "0-2,4,9"


@pytest.mark.parametrize("text", [",", "1-", "-1", "3-1", "0,,1", "a", "0-99999999999", "1.5", "0 1", "٣"])
def test_a_list_that_names_no_cpus_is_refused(text):
    with pytest.raises(CaptureError, match="in a list such as 0-7,9"):
        parse_cpus(text)


# Latencies between nodes.

SNC3 = [
    [139.0, 168.0, 208.0, 394.0, 475.0, 445.0],
    [160.0, 134.0, 170.0, 415.0, 448.0, 480.0],
    [156.0, 124.0, 106.0, 508.0, 513.0, 452.0],
    [396.0, 476.0, 446.0, 102.0, 129.0, 157.0],
    [420.0, 453.0, 421.0, 122.0, 102.0, 130.0],
    [445.0, 449.0, 392.0, 148.0, 122.0, 104.0],
]


def test_a_node_without_cpus_is_kept_by_a_machine(tmp_path):
    rows = np.array([[80.0, 140.0, 255.0], [140.0, 82.0, 340.0], [255.0, 340.0, 255.0]])
    latency = NodeLatency((0, 1, 2), rows, None, "here", (), (2,))
    write_machine(tmp_path / "mine.toml", with_latency(load_machine("sapphire-rapids"), latency, "mine"))
    assert load_machine(tmp_path / "mine.toml").memory_nodes == (2,)


def test_the_worst_asymmetric_pairs_are_named_and_the_mean_is_used():
    idle = np.array(SNC3)
    odd = [*asymmetric("idle", range(6), idle)]
    assert "node 1 to 2 takes 170 ns, back 124 ns" in odd[0] and "3 more pairs" in odd[-1]
    made = with_latency(load_machine("hydra-haswell"), NodeLatency(range(6), idle, None, "here", odd), "m")
    assert made.latency.idle[1][2] == 147 and "takes 170 ns" in made.sources["oddities"]


# What page walks add to reads of data, by pairs of bursts.


@given(st.floats(0.01, 3), st.integers(20, 300), st.floats(0, 0.24), st.randoms(use_true_random=False))
def test_walks_take_what_pairs_say_whatever_slows_both_bursts_or_few_alone(added, count, alone, rng):
    """Closed form: pairs that other load slows alike have the same ratio, and quartiles know no others."""
    pairs = np.array([[1 + added, 1]]) * [[rng.uniform(100, 900)] for _ in range(count)]
    for hit in range(int(alone * (count - 1))):
        pairs[hit, rng.randrange(2)] *= rng.uniform(1, 10)
    rng.shuffle(pairs)
    found = added_by_walks(pairs)
    assert [*found] == pytest.approx([added] * 3) and not unequal(found)


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(1, 1000)), min_size=2, max_size=60))
def test_quartiles_of_pairs_are_those_of_the_twin(pairs):
    naive = quantiles([max(small / huge - 1, 0) for small, huge in pairs], n=4, method="inclusive")
    found = added_by_walks(np.array(pairs))
    assert [*found] == pytest.approx(naive) and unequal(found) == (naive[2] - naive[0] > naive[1] / 2)


@pytest.mark.parametrize(("name", "mebibytes"), [("epyc-genoa", 4), ("granite-rapids", 63), ("ice-lake", 7)])
def test_cached_reads_are_of_an_eighth_of_the_llc_that_a_guest_sees(monkeypatch, name, mebibytes):
    """Data of 8 MiB stay where they are in an LLC of 480 MiB, of which other guests leave a few."""
    monkeypatch.setattr(node_latency, "measure_pages", lambda size, turns: np.array([[9.0, float(size)]]))
    assert node_latency.measure_cached(load_machine(name)) == mebibytes
