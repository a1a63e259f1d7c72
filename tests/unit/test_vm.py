"""VM captures: joined from two sides, compared, and those recorded."""

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

import strategies
from captures import NAMES, joined, touched
from naive.classify import leaves
from naive.trees import diff as naive
from naive.walker import Dimension, Pointers, published_counts
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.walk import explain
from ptanalyze.capture.vm import join as fitting
from ptanalyze.capture.vm.join import Fit, Share, Slots, fit, join, refuse_strangers
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, UsageError, bundled
from ptanalyze.core.snapshot import NO_PARENT, Topology, Tree
from ptanalyze.formats import snapshot as snapshot_files
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import seal
from ptanalyze.formats.snapshot import HostDump, Root, Slot, Vcpu, read_vm, write_snapshot, write_vm
from ptanalyze.world.address_space import Nested, address_space, host_index
from ptanalyze.world.thread_placement import place
from ptanalyze_formats.diff import KINDS, diff, diff_trees, table_pages
from ptanalyze_formats.importing import import_capture
from ptanalyze_formats.trace_writer import new_trace
from strategies import PAGE, REGION, Page, build_snapshot, build_tree, frames_on, snapshots, trees

pytestmark = pytest.mark.twin


# Joining what host and guest recorded: any two trees, strangers, damaged and missing files.

VA = 0x7F00_0000_0000
ALL = (Slot(gpa=0, bytes=1 << 44, hva=0),)


def host_dump(snapshot, slots=ALL, **fields):
    root = int(snapshot.host.frame[0])
    vcpus = tuple(Vcpu(tid=9 + i, cpu=i, node=1 - i, root=root) for i in range(2))
    parts = {"vcpus": vcpus, "roots": (Root(frame=root, kind="tdp_mmu", table=0),), "facts": {"pid": 7}}
    return HostDump(snapshot.host, snapshot.topology, slots, **{**parts, **fields})


def write_both(place, snapshot, dump=None):
    """host/ and guest/ in `place`, as the tools leave them."""
    dump = dump or host_dump(snapshot)
    (place / "host").mkdir()
    (place / "guest").mkdir()
    snapshot_files.write_tree(place / "host", "ept", dump.tree)
    write_vm(place / "host", dump)
    alone = replace(snapshot, host=None, topology=strategies.build_topology(1), facts={"pid": 42})
    write_snapshot(place / "guest", alone)
    return place / "host", place / "guest"


@pytest.fixture
def snapshot():
    pages = [(VA + k * PAGE, 900 + k) for k in range(600)] + [Page(VA + 8 * REGION, 1024, 2)]
    return build_snapshot(pages, [], table_nodes=(0, 1), host_table_nodes=(1, 0))


@pytest.fixture
def both(tmp_path, snapshot):
    return write_both(tmp_path, snapshot)


def test_a_joined_capture_holds_both_trees_as_they_were(tmp_path, both, snapshot):
    join(*both, tmp_path / "vm")
    made = open_capture(tmp_path / "vm")
    assert made.manifest.kind == "vm"
    for ours, theirs in ((made.snapshot.guest, snapshot.guest), (made.snapshot.host, snapshot.host)):
        assert np.array_equal(ours.entries, theirs.entries) and np.array_equal(ours.frame, theirs.frame)
    assert made.snapshot.facts["pid"] == 42 and made.snapshot.facts["vm"]["host"]["pid"] == 7


def test_nodes_of_guest_tables_are_those_of_the_host_frames_behind_them(tmp_path, both, snapshot):
    join(*both, tmp_path / "vm")
    found = open_capture(tmp_path / "vm").snapshot
    host = Dimension(snapshot.host, 0)
    behind = [host.leaf(int(frame) << 12)[1] for frame in snapshot.guest.frame]
    assert found.guest.node.tolist() == snapshot.topology.node_of_frame(np.array(behind)).tolist()


def test_guest_cpus_are_on_the_nodes_of_their_vcpu_threads(tmp_path, both):
    join(*both, tmp_path / "vm")
    assert open_capture(tmp_path / "vm").snapshot.topology.node_of_cpu().tolist() == [1, 0]
    assert [node.cpus for node in read_vm(tmp_path / "vm").topology.nodes] == [(0,), (1,)]


def test_a_trace_of_the_guest_runs_on_the_nodes_of_its_vcpus(tmp_path, both):
    with new_trace(both[1] / "trace.ptt") as writer:
        for cpu in (0, 1, 0):
            page, write, count = np.array([VA >> 12]), np.array([False]), np.array([1])
            writer.chunk(page, write, count, cpu=cpu, time=cpu)
    join(*both, tmp_path / "vm")
    made = open_capture(tmp_path / "vm")
    placed = place(made.trace, strategies.small_machine(), "recorded", made.snapshot.topology)
    assert placed.cpu_node[placed.chunk_cpu].tolist() == [1 - cpu for cpu in made.trace.chunks["cpu"]]


def test_entries_are_linked_not_rewritten(tmp_path, both):
    join(*both, tmp_path / "vm")
    for directory, name in zip(both, ("ept.entries", "gpt.entries"), strict=True):
        assert os.path.samefile(directory / name, tmp_path / "vm" / name)


def test_a_guest_read_from_outside_knows_no_nodes_and_gets_the_hosts(tmp_path, snapshot):
    host, guest = write_both(tmp_path, snapshot)
    shutil.rmtree(guest)
    guest.mkdir()
    unknown = replace(snapshot.guest, node=np.full(len(snapshot.guest), -1, np.int16))
    alone = replace(snapshot, guest=unknown, host=None, topology=Topology(()), facts={"method": "qmp"})
    write_snapshot(guest, alone)
    join(host, guest, tmp_path / "vm")
    made = open_capture(tmp_path / "vm").snapshot
    assert set(made.guest.node.tolist()) <= {0, 1} and made.facts["vm"]["numa_oblivious"] is None


def naive_fit(snapshot, slots):
    """[frames, mapped, not faulted, outside] of tables and of pages, one 4 KiB page at a time."""
    host = Dimension(snapshot.host, 0)
    tables, pages = [0] * 4, [0] * 4

    def count(into, frame, times):
        found = host.leaf(frame << 12)[1] is not None
        inside = any(slot.gpa <= frame << 12 < slot.gpa + slot.bytes for slot in slots)
        into[0] += times
        into[1 if found else 2 if inside else 3] += times

    for frame in snapshot.guest.frame.tolist():
        count(tables, frame, 1)
    for _, level, _, frame in leaves(snapshot.guest):
        for region in range(max(512 ** (level - 2), 1) if level > 1 else 0):
            first = frame + 512 * region
            edges = {edge >> 21 for slot in slots for edge in (slot.gpa, slot.gpa + slot.bytes)}
            alike = host.table(1, first << 12) is None and first >> 9 not in edges
            for k in range(0, 512, 512 if alike else 1):
                count(pages, first + k, 512 if alike else 1)
        if level == 1:
            count(pages, frame, 1)
    return tables, pages


@settings(max_examples=60, deadline=None)
@given(snapshots(native=False), st.lists(st.integers(1, 1 << 19), min_size=1, max_size=4, unique=True))
def test_what_the_host_does_not_map_is_counted_with_the_reason(snapshot, cuts):
    edges = [0, *sorted(cuts), 1 << 19]
    slots = [
        Slot(gpa=a << 12, bytes=(b - a) << 12, hva=0)
        for k, (a, b) in enumerate(pairwise(edges))
        if k % 2 == 0 and a < b
    ]
    found = fit(snapshot.guest, Nested(snapshot.host), Slots(slots), snapshot.topology, ())
    tables, pages = naive_fit(snapshot, slots)
    as_list = lambda s: [s.frames, s.mapped, s.not_faulted, s.outside]  # noqa: E731
    assert as_list(found.tables) == tables
    assert as_list(found.pages) == pages


def share(missing, of=100):
    return Share(of, of - missing, missing, 0)


@pytest.mark.parametrize(
    "tables, pages, cpus, refused",
    [(5, 50, 4, ""), (6, 0, 4, "6 of 100"), (0, 51, 4, "51 of 100"), (0, 0, 5, "the VM has 4 vCPUs")],
)
def test_a_guest_is_refused_only_beyond_the_stated_limits(tables, pages, cpus, refused):
    assert (fitting.TABLES_LIMIT, fitting.PAGES_LIMIT) == (0.05, 0.50)
    found = Fit(share(tables), share(pages), cpus, 4)
    if not refused:
        return refuse_strangers("vm.json", found)
    with pytest.raises(CaptureError, match=refused):
        refuse_strangers("vm.json", found)


def test_another_vms_guest_is_refused_and_nothing_is_left(tmp_path, snapshot):
    other = build_snapshot([(VA, 9)], [], levels=5)
    stranger = replace(snapshot, guest=replace(other.guest, frame=other.guest.frame + (1 << 21)))
    both = write_both(tmp_path, stranger)
    with pytest.raises(CaptureError, match=r"guest tables that the host does not map = 5 of 5.*another VM's"):
        join(*both, tmp_path / "vm")
    assert sorted(os.listdir(tmp_path)) == ["guest", "host"]


HOST = {"time": "2026-03-01T12:00:00.000Z", "uptime_s": 90_000.0, "process_s": 3600.0}


@pytest.mark.parametrize(
    ("guest", "says"),
    [
        ({"time": "2026-03-01T12:00:05Z", "uptime_s": 3590.0}, ""),
        ({"time": "2026-03-01T14:00:00Z", "uptime_s": 7250.0}, ""),  # within what clocks may differ
        ({"time": "2026-03-01T12:00:05Z", "uptime_s": 3 * 86400.0}, "booted 255,595 s before the VMM was"),
        ({"time": "2026-03-01T10:30:00Z", "uptime_s": 1.0}, "booted 1,801 s before the VMM was started"),
        ({"time": "2026-03-01T15:00:00Z", "uptime_s": 3600.0}, "booted 7,200 s after the host's dump"),
        ({"time": "2026-03-01T15:00:00Z"}, ""),
        ({"uptime_s": 5.0}, ""),
        ({"time": None, "uptime_s": 5.0}, ""),
    ],
)
def test_a_guest_of_another_boot_is_doubted_in_one_line(tmp_path, snapshot, guest, says, capsys):
    host, inside = write_both(tmp_path, snapshot, host_dump(snapshot, facts={"pid": 7, **HOST}))
    facts = {name: value for name, value in guest.items() if value is not None}
    write_snapshot(inside, replace(snapshot, host=None, topology=strategies.build_topology(1), facts=facts))
    assert run(["join", str(host), str(inside), "-o", str(tmp_path / "vm")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == bool(says) and says in "".join(lines)
    doubts = [line.removeprefix("ptanalyze: warning: ") for line in lines]
    assert open_capture(tmp_path / "vm").snapshot.facts["vm"]["fit"]["doubts"] == doubts


def two_roots(snapshot, second):
    """The host's tree, then another root with all it maps."""
    one = snapshot.host
    columns = {
        name: np.concatenate([getattr(one, name), getattr(second, name)])
        for name in ("entries", "base", "node", "level", "flags", "frame")
    }
    parent = np.where(second.parent == NO_PARENT, NO_PARENT, second.parent + len(one)).astype(np.int32)
    return Tree(**columns, parent=np.concatenate([one.parent, parent]), levels=4, encoding=one.encoding)


@pytest.mark.parametrize("walked", [0, 1])
def test_of_several_roots_the_one_that_the_vcpus_walk_is_joined(tmp_path, snapshot, walked):
    mapped = [Page(0, 0, 3), Page(1 << 30, 1 << 18, 3), Page(1 << 32, 1 << 20, 3)]
    second = build_tree(mapped, frames_on([0], 1 << 23), encoding="ept")
    tree = two_roots(snapshot, second)
    frames = [int(snapshot.host.frame[0]), int(second.frame[0])]
    places = zip(frames, (0, len(snapshot.host)), strict=True)
    roots = tuple(Root(frame=frame, kind="tdp_mmu", table=table) for frame, table in places)
    vcpus = tuple(Vcpu(tid=tid, root=frames[walked]) for tid in (1, 2))
    dump = replace(host_dump(snapshot, roots=roots, vcpus=vcpus), tree=tree)
    join(*write_both(tmp_path, snapshot, dump), tmp_path / "vm")
    made = snapshot_files.read_snapshot(tmp_path / "vm").host
    expected = (snapshot.host, second)[walked]
    assert np.array_equal(made.entries, expected.entries) and np.array_equal(made.parent, expected.parent)
    assert [root.table for root in read_vm(tmp_path / "vm").roots] == ([0, None], [None, 0])[walked]


def test_shadow_tables_are_no_second_dimension(tmp_path, snapshot):
    host = host_dump(snapshot, roots=(Root(frame=int(snapshot.host.frame[0]), kind="shadow", table=0),))
    both = write_both(tmp_path, snapshot, host)
    with pytest.raises(CaptureError, match="roots = shadow: no root maps guest-physical addresses"):
        join(*both, tmp_path / "vm")


def test_a_joined_capture_is_no_guest(tmp_path, both):
    join(*both, tmp_path / "vm")
    with pytest.raises(UsageError, match="is a VM capture already"):
        join(both[0], tmp_path / "vm", tmp_path / "again")


WRONG = [
    ({"format": "x"}, "format = x"),
    ({"version": 2}, "version = 2"),
    ({"levels": 5}, "levels = 5"),
    ({"encoding": "kvm"}, "encoding = kvm"),
    ({"slots": [{"gpa": 1, "bytes": 4096, "hva": 0}]}, "not whole pages"),
    ({"slots": [{"gpa": 0, "bytes": 0, "hva": 0}]}, "empty or out of range"),
    ({"slots": [{"gpa": -4096, "bytes": 8192, "hva": 0}]}, "empty or out of range"),
    ({"slots": [{"gpa": 1 << 52, "bytes": 8192, "hva": 0}]}, "empty or out of range"),
    ({"slots": [{"gpa": 0, "bytes": 4096, "hva": 1 << 70}]}, "more than 64 bits"),
    ({"slots": [{"gpa": 0, "bytes": 8192, "hva": 0}, {"gpa": 4096, "bytes": 4096, "hva": 0}]}, "overlaps"),
    ({"slots": [{"gpa": 0, "bytes": 4096, "hva": 0, "more": 1}]}, r"slots\[0\].more: no such field"),
    ({"roots": []}, "has its roots at"),
    ({"roots": [{"frame": 1, "kind": "tdp_mmu", "table": 0}]}, "frame of a root = 1"),
    ({"roots": [{"frame": 1, "kind": "magic", "table": 0}]}, "Invalid enum value"),
    ({"nodes": [{"id": 0, "cpus": [0]}, {"id": 0, "cpus": [1]}]}, "distinct"),
    ({"vcpus": [{"cpu": 0}]}, r"vcpus\[0\].tid: missing"),
    ({"facts": {"pid": "seven"}}, "facts.pid = 'seven': Expected `int"),
    ({"facts": []}, "facts = .*Expected `object`"),
]


@pytest.mark.parametrize("change, why", WRONG, ids=[why for _, why in WRONG])
def test_a_contradicting_vm_json_is_refused_with_its_field(both, change, why):
    file = both[0] / "vm.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(CaptureError, match=why):
        read_vm(both[0])


@pytest.mark.parametrize("form", [None, "ptdump"])
def test_a_host_s_dump_alone_is_no_capture_and_import_says_what_makes_one(form, tmp_path):
    """What the ptdump tool wrote of a VM from its host, unsealed: only join puts the guest's tables to it."""
    host, sample = tmp_path / "host", bundled("samples") / "vm-numa-visible"
    host.mkdir()
    for name in ("ept.tables", "ept.entries.xz", "maps", "vm.json"):
        shutil.copy(sample / name, host)
    said = rf"^{host}: a host's dump of a VM, .*: ptanalyze join {host} GUEST$"
    with pytest.raises(UsageError, match=said):
        import_capture(form, host, tmp_path / "made")


@pytest.mark.compiled
def test_page_tables_of_a_guest_and_its_host_are_imported_as_a_vm(tmp_path):
    unsealed = shutil.copytree(bundled("samples") / "vm-numa-visible", tmp_path / "unsealed")
    (unsealed / "capture.json").unlink()
    import_capture("ptdump", unsealed, tmp_path / "made")
    assert open_capture(tmp_path / "made").manifest.kind == "vm"


# Two captures of a series compared, against a comparison entry by entry.


def agree(one, other):
    rows = [row[1:] for row in diff_trees("PT", one, other)]
    pages, moves, entries = Counter(), Counter(), Counter()
    for level, what, before, after, count in rows:
        (pages if what in KINDS else entries)[level, what.removeprefix("leaves ")] += count
        if what not in ("same", "moved") and what in KINDS:
            moves[level, before, after] += count
    assert (pages, moves, entries) == naive(one, other)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from(["x86", "ept", "kvm"]), st.sampled_from([4, 5]))
def test_every_page_and_entry_counts_as_the_naive_comparison_says(data, encoding, levels):
    pages = data.draw(trees(levels))
    kept = [page for page in pages if data.draw(st.integers(0, 3))]
    later = kept + [page for page in data.draw(trees(levels, max_pages=3)) if not clash(page, kept)]
    spread = st.lists(st.integers(0, 1), min_size=1, max_size=3)
    make = lambda what, first: build_tree(  # noqa: E731
        what, frames_on(data.draw(spread), first), levels=levels, encoding=encoding
    )
    one, other = make(pages, 1 << 22), make(later, data.draw(st.sampled_from([1 << 22, 1 << 23])))
    one.node[:: data.draw(st.sampled_from([2, 100]))] = -1
    for tree in (one, other):
        tree.entries[tree.entries != 0] |= np.uint64(data.draw(st.sampled_from([0, 0x60, 0x300, 1 << 58])))
    agree(one, other)


def test_a_device_far_above_the_memory_does_not_size_what_maps_it():
    tree = build_tree([Page(0, 1), Page(56 << 40, 512, 2)], frames_on([0]), encoding="ept", levels=5)
    assert len(host_index(tree)) == 1


def clash(page, others):
    span = lambda p: (p.va, p.va + (1 << (3 + 9 * p.level)))  # noqa: E731
    return any(span(page)[0] < span(p)[1] and span(p)[0] < span(page)[1] for p in others)


def test_several_roots_are_compared_root_by_root():
    snapshot = build_snapshot([(VA, 9)], [])
    tree = two_roots(snapshot, build_tree([Page(0, 5)], frames_on([1], 1 << 23), encoding="ept"))
    changed = replace(tree, frame=tree.frame.copy(), node=tree.node.copy())
    changed.frame[len(snapshot.host)] += 1
    agree(tree, changed)
    assert ("ePT", 4, "moved", None, None, 1) in diff_trees("ePT", tree, changed)


def test_both_dimensions_of_a_vm_and_a_hosts_side_alone_are_compared(tmp_path):
    snapshots = [build_snapshot([(VA, 9), (VA + PAGE, 10)], [], host_table_nodes=(node,)) for node in (0, 1)]
    for name, snapshot in zip("ab", snapshots, strict=True):
        (tmp_path / name).mkdir()
        host, guest = write_both(tmp_path / name, snapshot)
        join(host, guest, tmp_path / name / "vm")
        seal(host, "vm-host", {})
    one, other = (open_capture(tmp_path / name / "vm") for name in "ab")
    changes = diff(one, other)
    changed = table_pages(changes).query("what != 'same' and table_pages > 0")
    assert set(changed["dimension"]) == {"ePT"} and changed["table_pages"].sum() == len(snapshots[0].host)
    assert set(zip(changed["from_node"], changed["to_node"], strict=True)) == {(0, 1)}
    alone = diff(*(open_capture(tmp_path / name / "host") for name in "ab"))
    assert_frame_equal(alone, changes.query("dimension == 'ePT'").reset_index(drop=True))
    with pytest.raises(UsageError, match="vm and vm-host cannot be compared"):
        diff(one, open_capture(tmp_path / "a" / "host"))


# Recorded KVM guests: joined, checked, walked and classified against following the raw pointers.

SMALL = NAMES[1:]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """{name: (Snapshot, Fit, capture directory)}"""
    place = tmp_path_factory.mktemp("vms")
    made = {name: joined(name, place) for name in NAMES}
    return {name: (open_capture(path).snapshot, fit, path) for name, (path, fit) in made.items()}


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_the_host_maps_every_table_and_page_of_its_own_guest(recorded, name):
    _, fit, _ = recorded[name]
    assert fit.tables.mapped == fit.tables.frames > 300
    assert fit.pages.mapped == fit.pages.frames > 25_000


@pytest.mark.compiled
@pytest.mark.parametrize("name", SMALL)
def test_every_touched_page_translates_to_what_the_pointers_lead_to(recorded, name):
    snapshot, _, path = recorded[name]
    guest, host = Pointers(snapshot.guest), Pointers(snapshot.host)
    addresses = touched((path.parent / "touch.log").read_text())
    frames = np.array([guest.walk(int(va))[0] for va in addresses])
    expected = np.array([host.walk(int(frame) << 12)[0] for frame in frames])
    assert np.array_equal(Nested(snapshot.host).host_frames(frames), expected)
    for k in range(0, len(addresses), len(addresses) // 20):
        assert explain(snapshot, int(addresses[k])).page_frame == expected[k]


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_regions_of_touched_pages_are_translated_by_leaf_tables_of_the_snapshot(recorded, name):
    snapshot, _, path = recorded[name]
    addresses = touched((path.parent / "touch.log").read_text())
    space = address_space(snapshot, np.unique(addresses >> np.uint64(21)))
    assert space.inferred_tables == 0
    assert space.unplaced == 0
    assert (space.tables.host_leaf[: space.guest_tables] >= space.guest_tables).all()


@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_those_of_the_published_definition(recorded, name):
    snapshot, _, _ = recorded[name]
    sockets = [node.id for node in snapshot.topology.nodes]
    node_of = lambda frame: int(snapshot.topology.node_of_frame(np.array([frame]))[0])  # noqa: E731
    expected = published_counts(snapshot.guest, snapshot.host, node_of, sockets)
    found = classify_pages(address_space(snapshot, np.zeros(0, np.uint64))).by_class()[0]
    assert found.tolist() == [[expected[s, c] for c in ("LL", "LR", "RL", "RR")] for s in sockets]
