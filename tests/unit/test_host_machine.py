"""A machine file of a host: what its kernel shows, measured latencies, sources that say which is which."""

import numpy as np
import pytest

from ptanalyze.capture.live.host import host_machine
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.measured.latency import NodeLatency
from ptanalyze.formats.measured.machine import write_machine

MILAN = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7543\n\n"
INTEL = "vendor_id\t: GenuineIntel\nmodel\t\t: {}\nmodel name\t: Xeon @ 2.40GHz\n\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def system(tmp_path):
    """/sys/devices/system of two nodes with CPUs and, as CXL memory is, one without."""
    place = tmp_path / "system"
    for node, (cpus, distance) in enumerate((("0-31", "10 32 50"), ("32-63", "32 10 50"), ("", "50 50 10"))):
        write(place / f"node/node{node}/cpulist", cpus)
        write(place / f"node/node{node}/distance", distance)
    for index, (level, kind, size, ways) in enumerate(
        (
            (1, "Data", "32K", 8),
            (1, "Instruction", "32K", 8),
            (2, "Unified", "512K", 8),
            (3, "Unified", "32M", 16),
        )
    ):
        cache = place / f"cpu/cpu0/cache/index{index}"
        for name, value in (
            ("level", level),
            ("type", kind),
            ("size", size),
            ("ways_of_associativity", ways),
        ):
            write(cache / name, value)
    write(place / "cpu/cpu0/cpufreq/base_frequency", "2800000")
    write(tmp_path / "cpuinfo", MILAN)
    return place


def test_nodes_clock_and_caches_are_the_kernels_and_tlbs_those_of_the_nearest_machine(system, tmp_path):
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")
    assert (machine.nodes, machine.cpus_per_node, machine.ghz) == (3, 32, 2.8)
    assert machine.memory_nodes == (2,)
    assert (machine.l2.bytes, machine.l2.ways, machine.llc.bytes, machine.llc.ways) == (
        512 << 10,
        8,
        32 << 20,
        16,
    )
    assert machine.tlb == load_machine("epyc-milan").tlb
    assert machine.costs == "epyc-7543" and "no kernel shows this" in machine.sources["tlb"]


def test_without_a_measurement_latencies_are_the_firmwares_distances_and_are_called_estimates(
    system, tmp_path
):
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")
    local = load_machine("epyc-milan").latency.idle[0][0]
    assert np.allclose(machine.latency.idle, local * np.array([[1, 3.2, 5], [3.2, 1, 5], [5, 5, 5]]))
    assert machine.latency.contended is None and machine.sources["latency_idle"].startswith("estimate")


def test_measured_latencies_are_taken_and_the_file_loads_again(system, tmp_path):
    measured = NodeLatency((0, 1), np.array([[90.0, 170.0], [172.0, 92.0]]), None, "a chase")
    machine = host_machine("mine", measured, system, tmp_path / "cpuinfo")
    assert (
        machine.latency.idle == ((90.0, 171.0), (171.0, 92.0))
        and machine.sources["latency_idle"] == "a chase"
    )
    assert "as of epyc" in machine.sources["walk_caches"] and "EPYC 7543" in machine.description
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(str(tmp_path / "mine.toml")) == machine


def accesses(system, of):
    """Files of HMAT as the kernel shows them: {node: (class, initiators, ns, MiB/s)}."""
    for node, (kind, initiators, ns, mib) in of.items():
        place = system / f"node/node{node}/{kind}/initiators"
        for one in initiators:
            write(place / f"node{one}/online", 1)
        write(place / "read_latency", ns)
        write(place / "read_bandwidth", mib)


def test_hmat_gives_latencies_of_the_nearest_readers_and_distances_those_of_others(system, tmp_path):
    """As Linux 6.1 showed them, booted by QEMU 7.2 with -numa hmat-lb; the distances are of this test."""
    for kind in ("access0", "access1"):
        accesses(system, {node: (kind, (node,), 110, 204_800) for node in (0, 1)})
        accesses(system, {2: (kind, (0,), 250, 30_720)})
    write(system / "node/has_memory", "0-2")
    write(system / "node/node1/distance", "32 10 60")
    write(system / "node/node2/distance", "50 60 10")
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")
    assert np.allclose(machine.latency.idle, [[110, 352, 250], [352, 110, 300], [250, 300, 250]])
    fast, slow = 200 * 1.073741824, 30 * 1.073741824
    assert np.allclose(machine.bandwidth, [[fast, 0, slow], [0, fast, 0], [0, 0, 0]])
    assert machine.sources["latency_idle"].startswith("HMAT for nodes [0, 1, 2]")
    write_machine(tmp_path / "mine.toml", machine)
    assert load_machine(tmp_path / "mine.toml") == machine


def test_nodes_that_hmat_leaves_out_have_their_distances_and_nodes_without_memory_are_none(system, tmp_path):
    accesses(system, {0: ("access0", (0,), 100, 1), 1: ("access0", (5,), 100, 1), 2: ("access0", (0,), 0, 0)})
    write(system / "node/has_memory", "0-1")
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")
    local = load_machine("epyc-milan").latency.idle[0][0]
    assert (machine.nodes, machine.memory_nodes) == (2, ())
    assert [row[k] for k, row in enumerate(machine.latency.idle)] == [100, local]
    assert machine.sources["latency_idle"].startswith("HMAT for nodes [0] and")


@pytest.mark.parametrize("text", ["fast", "-1", "", "1e3", "9" * 30, "\x00"])
def test_what_no_kernel_writes_is_refused_by_file(system, tmp_path, text):
    accesses(system, {1: ("access0", (0,), text, 1)})
    with pytest.raises(CaptureError, match=r"node1/access0/initiators/read_latency.*expected a whole number"):
        host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")


def test_latencies_measured_without_a_node_that_has_cpus_here_are_refused(system, tmp_path):
    idle = np.array([[90.0, 170.0], [170.0, 170.0]])
    cut = NodeLatency((0, 1), idle, None, "Intel MLC, idle", (), (1,))
    with pytest.raises(UsageError, match="no latencies from node 1, which has CPUs here"):
        host_machine("mine", cut, system, tmp_path / "cpuinfo")
    more = NodeLatency((0, 1, 7), np.full((3, 3), 90.0), None, "Intel MLC, idle", (), (7,))
    with pytest.raises(
        UsageError, match=r"node 7 is not here \(nodes: \[0, 1, 2\]\): the text is of another"
    ):
        host_machine("mine", more, system, tmp_path / "cpuinfo")


@pytest.mark.parametrize(
    ("model", "like"),
    [
        (63, "hydra-haswell"),
        (85, "vmitosis-cascade-lake"),
        (143, "sapphire-rapids"),
        (106, "ice-lake"),
        (173, "granite-rapids"),
    ],
)
def test_an_intel_cpu_is_likened_to_its_generation(system, tmp_path, model, like):
    write(tmp_path / "cpuinfo", INTEL.format(model))
    (system / "cpu/cpu0/cpufreq/base_frequency").unlink()
    machine = host_machine("mine", system=system, cpuinfo=tmp_path / "cpuinfo")
    assert machine.tlb == load_machine(like).tlb and machine.ghz == 2.4


def test_where_nothing_is_shown_that_is_said(tmp_path):
    write(tmp_path / "cpuinfo", MILAN)
    with pytest.raises(UsageError, match="shows neither nodes nor CPUs"):
        host_machine("mine", system=tmp_path / "none", cpuinfo=tmp_path / "cpuinfo")
