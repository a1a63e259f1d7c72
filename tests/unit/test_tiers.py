"""Machines with nodes without CPUs: who runs and reads there, and page tables kept off or on them."""

import msgspec
import numpy as np
import pytest

from naive.classify import leaves
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import RefusedError, UsageError, bundled
from ptanalyze.core.machine import Latency, load_machine
from ptanalyze.world.thread_placement import place
from strategies import (
    FRAMES_PER_NODE,
    PAGE,
    REGION,
    build_snapshot,
    build_topology,
    build_trace,
    small_machine,
)

pytestmark = pytest.mark.twin

HEAP = 1 << 30
SLOW = 2  # of three nodes
MATRIX = ((100.0, 200.0, 300.0), (200.0, 100.0, 250.0), (300.0, 250.0, 250.0))


def tiered():
    machine = msgspec.structs.replace(small_machine(3), memory_nodes=(SLOW,), latency=Latency(idle=MATRIX))
    return machine


def spread():
    """Six regions, tables on nodes 0, 1, 2 in turn; the data of each region on one node."""
    pages = [
        (HEAP + r * REGION + k * PAGE, (r + 1) % 3 * FRAMES_PER_NODE + 512 * r + k)
        for r in range(6)
        for k in range(8)
    ]
    return build_snapshot(pages, nodes=3, table_nodes=[0, 1, 2])


def ask(policies, snapshot=None, machine=None):
    setup = Setup.of(machine=machine or tiered(), costs="server-2020")
    return replay_snapshot(snapshot or spread(), None, [(name, {}) for name in policies], setup)


def test_nobody_reads_from_a_node_without_cpus_and_no_replica_is_put_there():
    linux, mitosis = ask(["mitosis"])
    assert linux.walks == mitosis.walks == 2 * 48
    assert linux.reads[:, SLOW].sum() == 0 < linux.reads[:, :, SLOW].sum()
    assert mitosis.reads[:, :, SLOW].sum() == 0 and mitosis.row()["remote_reads"] == 0


def test_tables_in_dram_leave_the_slow_node_for_the_nearest_one():
    snapshot = spread()
    linux, dram = ask(["tables-in-dram"], snapshot)
    home = {2: 1}  # 250 ns against 300
    expected = np.zeros((3, 3), int)
    for table, _, _, _ in leaves(snapshot.guest):
        node = int(snapshot.guest.node[table])
        expected[:2, home.get(node, node)] += 1
    assert np.array_equal(dram.reads[8, ..., 1], expected)
    assert dram.price.walk_cycles < linux.price.walk_cycles


def test_without_a_slow_node_tables_in_dram_is_refused_with_the_way_out():
    with pytest.raises((RefusedError, UsageError), match=r"memory_nodes = \[2\]"):
        ask(["tables-in-dram"], machine=small_machine(3))


def test_threads_run_on_nodes_with_cpus_only():
    trace = build_trace([(thread, [HEAP]) for thread in range(4)])
    for how in ("round-robin", "block"):
        assert set(place(trace, tiered(), how).cpu_node.tolist()) == {0, 1}
    for how, moves in (("0,1,2,0", ""), ("round-robin", "0:2@50%")):
        with pytest.raises(UsageError, match="node 2 of machine small has no CPUs"):
            place(trace, tiered(), how, moves=moves)
    trace.chunks["cpu"] = SLOW
    with pytest.raises(UsageError, match="threads ran on node 2, which has no CPUs"):
        place(trace, tiered(), "recorded", build_topology(3))


@pytest.mark.parametrize("nodes", ["[5]", "[0, 1]", "[1, 1]", "[-1]"])
def test_a_machine_file_names_slow_nodes_it_has_and_leaves_one_with_cpus(tmp_path, nodes):
    text = (bundled("models") / "machines" / "sapphire-rapids.toml").read_text("utf-8")
    file = tmp_path / "m.toml"
    file.write_text(f"memory_nodes = {nodes}\n{text}")
    with pytest.raises(UsageError, match="memory_nodes"):
        load_machine(file)
    file.write_text(f"memory_nodes = [1]\n{text}")
    assert load_machine(file).cpu_nodes == (0,) and load_machine(file).resized(4).memory_nodes == (1, 3)


@pytest.mark.parametrize("matrix", ["[[1.0]]", "[[1.0, -1.0], [1.0, 1.0]]", "[[nan, 1.0], [1.0, 1.0]]"])
def test_a_machine_file_has_bandwidths_for_all_pairs_of_nodes_or_none(tmp_path, matrix):
    text = (bundled("models") / "machines" / "sapphire-rapids.toml").read_text("utf-8")
    file = tmp_path / "m.toml"
    file.write_text(f"bandwidth = {matrix}\n{text}")
    with pytest.raises(UsageError, match="bandwidth"):
        load_machine(file)
