"""What every dump of a lab machine must satisfy, against the machine's command line and its raw memory."""

import json

import numpy as np

from ptanalyze.capture.check import FAILED, PARTIAL, check_capture
from ptanalyze.core.snapshot import NO_PARENT
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import seal

from .touched import LEAF_LEVEL, magic, read_log, translate

ACCESSED, DIRTY = np.uint64(1 << 5), np.uint64(1 << 6)  # of x86 and NPT entries
USER_ENTRIES = 256  # of the root table; the other half is the kernel's


def snapshot_of(dump):
    """Snapshot of the dump directory a machine wrote; the product's own checks of it all pass."""
    seal(dump, "process", {"source": "lab"})
    capture = open_capture(dump)
    wrong = [finding for finding in check_capture(capture) if finding.verdict in (FAILED, PARTIAL)]
    assert not wrong, wrong
    return capture.snapshot


def topology_is_the_machines(topology, machine, ram):
    """Nodes, CPUs, distances and frame ranges are those of the command line."""
    assert [node.id for node in topology.nodes] == list(range(machine.nodes))
    for node in topology.nodes:
        assert node.cpus == (node.id,)
        assert node.distance == tuple(machine.distance(node.id, other) for other in range(machine.nodes))
        assert (ram.node(np.concatenate([node.frames[:, 0], node.frames[:, 1] - 1])) == node.id).all()
    frames = sum(int((node.frames[:, 1] - node.frames[:, 0]).sum()) for node in topology.nodes)
    assert frames * 4096 == machine.bytes


def equal_raw_memory(tree, frames, ram, user_half=True):
    """Every table page of `tree`, in `frames`, holds entry by entry what was dumped, but for accessed bits.

    The kernel sets and clears those until the machine ends, of stopped processes too.
    """
    raw = ram.tables(frames)
    if user_half:
        raw[tree.parent == NO_PARENT, USER_ENTRIES:] = 0
    apart = (raw ^ tree.entries) & ~ACCESSED
    different = np.flatnonzero(apart.any(axis=1))
    examples = [
        (int(tree.level[i]), hex(tree.base[i]), hex(raw[i, j]), hex(tree.entries[i, j]))
        for i in different[:4]
        for j in np.flatnonzero(apart[i])[:2]
    ]
    assert not len(different), f"{len(different)} of {len(tree)} tables differ: {examples}"


def pages_hold_magic(touched, tree, ram, to_ram=lambda frames: frames):
    """Every touched address leads, through the dumped tables, to its magic value; leaves have the right size.

    to_ram  takes frames that the tree points at to frames of `ram`. Returns the latter, int64[n].
    """
    frames, level, _ = translate(tree, touched.addresses)
    assert (frames >= 0).all(), f"{np.count_nonzero(frames < 0)} touched pages are not in the tables"
    assert (level == LEAF_LEVEL[touched.region.kind]).all(), np.bincount(level)
    frames = to_ram(frames)
    right = ram.first_words(frames) == magic(touched.addresses)
    assert right.all(), f"{np.count_nonzero(~right)} of {len(right)} pages hold something else"
    return frames


def placed_as_asked(policy, nodes):
    """`nodes` of pages or tables follow a Policy; interleaving uses every node about as often."""
    counts = np.bincount(nodes, minlength=max(policy.nodes) + 1)
    assert set(np.flatnonzero(counts)) <= set(policy.nodes), f"{policy}: {counts}"
    if policy.mode == "interleave":
        share = counts[list(policy.nodes)]
        assert share.max() - share.min() <= 2 + len(nodes) // 16, f"{policy}: {counts}"


def native_dump_is_true(machine, run, regions):
    """Everything above for `ptdump process` on the machine itself; returns the Snapshot."""
    assert (run.share / "ptdump.status").read_text() == "0\n", (run.share / "ptdump.output").read_text()
    snapshot = snapshot_of(run.share / "dump")
    tree = snapshot.guest
    topology_is_the_machines(snapshot.topology, machine, run.ram)
    assert (tree.node == run.ram.node(tree.frame)).all()
    equal_raw_memory(tree, tree.frame, run.ram)
    for touched in read_log((run.share / "touched").read_text(), regions):
        placed_as_asked(touched.region.pages, run.ram.node(pages_hold_magic(touched, tree, run.ram)))
        placed_as_asked(touched.region.tables, tree.node[touched.holds(tree.base)])
    counted = json.loads((run.share / "survey.json").read_text())  # table pages by level and node
    assert counted["unread"] == 0
    for level, by_node in enumerate(counted["tables"], 1):
        found = zip(*np.unique(tree.node[tree.level == level], return_counts=True), strict=True)
        assert by_node == {str(node): pages for node, pages in found}, level
    return snapshot
