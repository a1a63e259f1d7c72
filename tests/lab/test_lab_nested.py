"""A live KVM guest on an emulated NUMA host: both sides' page tables against raw memory."""

import numpy as np
import pytest

from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.capture.check import FAILED, check_capture
from ptanalyze.capture.vm.join import join
from ptanalyze.core import snapshot as entries
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import read_vm
from ptanalyze.world.address_space import address_space

from . import checks
from .machine import Guest
from .nested import HOST, run_guest, through, walked_tree
from .runs import a_place
from .touched import Region, bind, interleave, translate

ALL = interleave(0, 1, 2, 3)
SEEN = [
    Region("4k", bind(2), bind(3), mib=4),
    Region("4k", ALL, ALL, cpu=1, mib=16),
    Region("thp", bind(1), bind(0), cpu=2, mib=4),
]
UNSEEN = [Region(kind, bind(0), bind(0), cpu=cpu, mib=48) for cpu in range(4) for kind in ("4k", "thp")]
PLACEMENTS = {
    "bound": (Guest(bound=True), SEEN),
    "bound-huge": (Guest(bound=True, host_thp="always"), SEEN),
    "interleaved": (Guest(policy=ALL), SEEN),
    "oblivious": (Guest(nodes=1), UNSEEN),
    "oblivious-huge": (Guest(nodes=1, policy=ALL, host_thp="always"), UNSEEN),
    "legacy-mmu": (Guest(bound=True, kvm="kvm.tdp_mmu=0"), SEEN),
}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.lab(full=True)) for name in PLACEMENTS]
)
def nested(kernel, ptdump, programs, request):
    name = request.param
    with a_place(name, request.config.getoption("--lab-keep", None)) as place:
        yield run_guest(name, *PLACEMENTS[name], kernel, ptdump, programs, place)


@pytest.fixture
def host(nested):
    return host_dump(nested)


def host_dump(nested):
    """The HostDump of the stopped VMM."""
    assert (nested.run.share / "ptdump_vm.status").read_text() == "0\n", nested.said("ptdump_vm")
    return read_vm(nested.run.share / "host.dump")


def test_the_vmm_process_is_dumped_as_it_is_in_raw_memory(nested):
    checks.topology_is_the_machines(nested.vmm.topology, HOST, nested.run.ram)
    checks.equal_raw_memory(nested.vmm.guest, nested.vmm.guest.frame, nested.run.ram)


def test_guest_tables_and_pages_are_found_through_the_vmms_page_tables(nested):
    checks.equal_raw_memory(nested.inside.guest, nested.by_vmm(nested.inside.guest.frame), nested.run.ram)
    for touched in nested.touched:
        checks.pages_hold_magic(touched, nested.inside.guest, nested.run.ram, nested.by_vmm)


def test_the_guest_sees_its_own_nodes(nested):
    tree = nested.inside.guest
    assert len(nested.inside.topology) == nested.guest.nodes
    assert (tree.node == nested.guest.node(tree.frame)).all()
    for touched in nested.touched:
        checks.placed_as_asked(touched.region.pages, nested.guest.node(nested.pages(touched)))
        checks.placed_as_asked(touched.region.tables, tree.node[touched.holds(tree.base)])


def test_the_hosts_nodes_are_those_of_the_vmms_policy(nested):
    guest = nested.guest
    for touched in nested.touched:
        frames = nested.pages(touched)
        nodes = nested.run.ram.node(nested.by_vmm(frames))
        if guest.bound:
            assert (nodes == guest.node(frames)).all()
        elif guest.policy.mode == "interleave":
            assert np.bincount(nodes, minlength=HOST.nodes).min() >= len(nodes) // 16
        else:  # the node of the vCPU that touched it first, for some pages another one while the guest booted
            assert np.bincount(nodes).argmax() == touched.region.cpu


def test_nested_tables_equal_raw_memory_on_the_nodes_of_their_frames(nested, host):
    checks.topology_is_the_machines(host.topology, HOST, nested.run.ram)
    tree = host.tree
    assert tree.encoding == "kvm" and not tree.flags.any()
    assert (tree.node == nested.run.ram.node(tree.frame)).all()
    checks.equal_raw_memory(tree, tree.frame, nested.run.ram, user_half=False)
    if nested.guest.policy.mode == "interleave":
        leaf_tables = tree.node[tree.level == 1]
        assert len(set(leaf_tables)) == HOST.nodes or len(leaf_tables) < 64


def test_slots_vcpus_and_roots_are_the_vmms(nested, host):
    starts = nested.memory()
    at = np.arange(nested.guest.nodes) * nested.guest.node_bytes + (nested.guest.node_bytes >> 1)
    for gpa, node in zip(at.tolist(), range(nested.guest.nodes), strict=True):
        (slot,) = [s for s in host.slots if s.space == 0 and s.gpa <= gpa < s.gpa + s.bytes]
        assert slot.hva + gpa - slot.gpa == starts[node] + (nested.guest.node_bytes >> 1)
    assert [vcpu.node for vcpu in host.vcpus] == list(range(nested.guest.cpus))
    assert [vcpu.cpu for vcpu in host.vcpus] == list(range(nested.guest.cpus))
    kinds = {root.frame: root.kind for root in host.roots}
    expected = "legacy" if "tdp_mmu=0" in nested.guest.kvm else "tdp_mmu"
    assert {kinds[vcpu.root] for vcpu in host.vcpus} == {expected}


def test_guest_tables_and_pages_are_found_through_the_nested_tables(nested, host):
    by_nested = through(walked_tree(host))
    frames = nested.inside.guest.frame
    assert (by_nested(frames) == nested.by_vmm(frames)).all()
    checks.equal_raw_memory(nested.inside.guest, by_nested(frames), nested.run.ram)
    for touched in nested.touched:
        checks.pages_hold_magic(touched, nested.inside.guest, nested.run.ram, by_nested)


def test_every_nested_leaf_is_the_vmms_own_page(nested, host):
    memory = np.arange(nested.guest.mib << 8)
    found, level, _ = translate(walked_tree(host), memory.astype(np.uint64) << np.uint64(12))
    mapped = found >= 0
    assert mapped.any() and (found[mapped] == nested.by_vmm(memory[mapped])).all()
    huge = np.count_nonzero(level == 2)
    assert huge > np.count_nonzero(level == 1) if nested.guest.host_thp == "always" else not huge


def test_host_and_guest_join_into_one_capture_that_classifies_as_raw_memory_says(nested, host, tmp_path):
    fit = join(nested.run.share / "host.dump", nested.run.share / "guest/dump", tmp_path / "vm")
    assert fit.tables.mapped == fit.tables.frames and fit.pages.mapped == fit.pages.frames
    capture = open_capture(tmp_path / "vm")
    assert not [finding for finding in check_capture(capture) if finding.verdict == FAILED]
    snapshot = capture.snapshot
    node = nested.run.ram.node(nested.by_vmm(nested.inside.guest.frame))
    assert (snapshot.guest.node == node).all()
    assert [each.cpus for each in snapshot.topology.nodes] == [(cpu,) for cpu in range(nested.guest.cpus)]
    counts = np.zeros((HOST.nodes + 1, HOST.nodes + 1), np.int64)
    guest = nested.inside.guest
    for level in (1, 2, 3):
        table, slot = np.nonzero(entries.leaf(guest.entries, level) & (guest.level == level)[:, None])
        frames = entries.frame(guest.entries[table, slot], level)
        behind = translate(host.tree, frames.astype(np.uint64) << np.uint64(12))[2]
        np.add.at(counts, (node[table], host.tree.node[behind]), 1)
    assert (classify_pages(address_space(snapshot, np.zeros(0, np.uint64))).counts[0] == counts).all()


@pytest.mark.parametrize("how", ["live", "stopped"])
def test_a_dump_of_the_running_vmm_is_nearly_that_of_the_halted_one(nested, host, how):
    live = read_vm(nested.run.share / f"{how}.dump")
    assert live.facts["stopped"] == (how == "stopped")
    both, here, there = np.intersect1d(live.tree.frame, host.tree.frame, return_indices=True)
    assert len(both) >= 0.95 * len(host.tree)
    assert "running again" in nested.said("ptdump_stopped")
    apart = (live.tree.entries[here] ^ host.tree.entries[there]) & ~(checks.ACCESSED | checks.DIRTY)
    same = ~apart.any(axis=1)
    assert same.mean() >= 0.9


@pytest.mark.lab(full=True)
def test_shadow_tables_are_named_as_such(kernel, ptdump, programs, place):
    guest = Guest(bound=True, kvm="kvm_amd.npt=0")
    nested = run_guest("shadow", guest, SEEN, kernel, ptdump, programs, place)
    host = host_dump(nested)
    kinds = {root.frame: root.kind for root in host.roots}
    assert {kinds[vcpu.root] for vcpu in host.vcpus} == {"shadow"}
    checks.equal_raw_memory(host.tree, host.tree.frame, nested.run.ram, user_half=False)
