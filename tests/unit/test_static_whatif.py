"""What-if without a trace, native and in two dimensions, against its twin and in closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import static_whatif as naive
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.kernels.replay import LL, LR, RL, RR
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, small_machine, snapshots

pytestmark = pytest.mark.twin

COSTS = load_costs(load_machine("sapphire-rapids"))
NODES = 3
SERVERS = {  # policy: node that serves (tree, table) to a reader
    "linux": lambda tree, table, reader: int(tree.node[table]),
    "interleave": lambda tree, table, reader: table % NODES,
    "interleave after the guest's": lambda tree, table, reader: (table + table // NODES) % NODES,
    "bind": lambda tree, table, reader: 0,
    "ideal": lambda tree, table, reader: reader,
    "vmitosis-replicate": lambda tree, table, reader: reader,
}
POLICIES = ["linux", "interleave", "bind", "ideal", "vmitosis-replicate", "mitosis"]


def ask(snapshot, policies, nodes=NODES):
    return replay_snapshot(
        snapshot, None, policies, Setup.of(cold=True, machine=small_machine(nodes), costs=COSTS)
    )


def servers(snapshot, name):
    """(guest_server, host_server) for the twin; mitosis acts on the guest only."""
    outer = {"mitosis": "linux", "interleave": "interleave after the guest's"}.get(name, name)
    inner = "ideal" if name == "mitosis" else name
    return (
        lambda table, reader: SERVERS[inner](snapshot.guest, table, reader),
        lambda table, reader: SERVERS[outer](snapshot.host, table, reader),
    )


@settings(max_examples=60, deadline=None)
@given(snapshots(nodes=NODES), st.sampled_from(POLICIES))
def test_every_mapped_page_is_counted_once_for_each_node_as_the_twin_counts_it(snapshot, name):
    if snapshot.native and name == "vmitosis-replicate":
        return
    found = ask(snapshot, [(name, {})])[-1]
    reads, classes, left_out = naive.count(snapshot, NODES, *servers(snapshot, name))
    assert {tuple(at[:3].tolist()): int(found.reads[tuple(at)]) for at in np.argwhere(found.reads)} == +reads
    assert {tuple(at.tolist()): int(found.classes[tuple(at)]) for at in np.argwhere(found.classes)} == classes
    assert found.walks == sum(classes.values())
    assert any(f"{left_out} mapped pages left out" in note for note in found.notes) == (left_out > 0)


def two_dimensional(nodes=4, pages=64):
    """Each page in a region of its own, so that the leaf tables of both dimensions go round all nodes."""
    apart = 1 << 21
    return build_snapshot(
        [(HEAP + k * apart, 512 * k) for k in range(pages)], [], nodes=nodes,
        table_nodes=range(nodes), host_table_nodes=range(nodes),
    )  # fmt: skip


def test_replicating_both_dimensions_makes_every_walk_local_and_one_of_them_only_its_own_half():
    both, gpt, ept = ask(
        two_dimensional(),
        [("vmitosis-replicate", {"layers": layers}) for layers in ("both", "gpt", "ept")],
        nodes=4,
    )[1:]
    assert both.classes[:, LL].sum() == both.walks
    assert gpt.classes[:, [RL, RR]].sum() == ept.classes[:, [LR, RR]].sum() == 0
    assert gpt.classes[:, LR].sum() > 0 < ept.classes[:, RL].sum()


def test_layers_gpt_is_mitosis():
    snapshot = two_dimensional()
    mitosis, gpt = ask(snapshot, [("mitosis", {}), ("vmitosis-replicate", {"layers": "gpt"})], nodes=4)[1:]
    same = lambda result: {k: v for k, v in result.row().items() if k not in ("policy", "params")}  # noqa: E731
    assert same(mitosis) == same(gpt)


def test_bytes_of_each_dimension_are_told_apart():
    snapshot = two_dimensional()
    guest, host = len(snapshot.guest), len(snapshot.host)
    asked = [("vmitosis-replicate", {"layers": layers}) for layers in ("both", "gpt", "ept")]
    rows = [result.row() for result in ask(snapshot, asked, nodes=4)]
    bytes_of = [(row["pt_bytes"] // PAGE, row["ept_bytes"] // PAGE) for row in rows]
    assert bytes_of == [(guest, host), (4 * guest, 4 * host), (4 * guest, host), (guest, 4 * host)]
    extra = [(row["pt_bytes_extra"] // PAGE, row["ept_bytes_extra"] // PAGE) for row in rows]
    assert extra == [(0, 0), (3 * guest, 3 * host), (3 * guest, 0), (0, 3 * host)]


@pytest.mark.parametrize("name", ["hydra", "first-touch"])
def test_policies_that_depend_on_order_say_what_is_missing_for_vms_too(name):
    with pytest.raises(UsageError, match=f"policy {name}: depends on what threads touch, and no trace tells"):
        ask(two_dimensional(), [(name, {})], nodes=4)


def test_a_page_the_host_does_not_map_is_left_out_and_said():
    snapshot = build_snapshot([(HEAP, 5), (HEAP + PAGE, 6)], [])
    leaf = np.flatnonzero(snapshot.guest.level == 1)[0]
    snapshot.guest.entries[leaf, 1] = (1 << 51) | 0x67
    found = ask(snapshot, [("ideal", {})])[-1]
    assert found.walks == NODES
    assert "1 mapped pages left out: guest leaf unmapped in the host" in found.notes
