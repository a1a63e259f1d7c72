"""Redacted captures say the same, and nothing of where things were."""

import json
import shutil
import zlib
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_vm import VA, host_dump, write_both
from test_walker import passes

import strategies
from captures import TRIAL, contents
from naive.classify import leaves
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.setup import Setup, open_replay_capture
from ptanalyze.analysis.walk import explain
from ptanalyze.analysis.whatif import replay
from ptanalyze.capture.check import FAILED, check_capture
from ptanalyze.capture.vm.join import join
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError, bundled
from ptanalyze.core.snapshot import Node, Topology
from ptanalyze.core.trace import Event
from ptanalyze.formats.capture import load, open_capture
from ptanalyze.formats.measured import read_measured, write_calibration
from ptanalyze.formats.record import PAGES, seal
from ptanalyze.formats.snapshot import Root, Vcpu, write_snapshot, write_vm
from ptanalyze.formats.trace import HEADER_BYTES, HEADER_DTYPE, map_file, read_header, read_trace
from ptanalyze.world.address_space import address_space
from ptanalyze_formats.redact import frame_map, redact
from strategies import PAGE, REGION, Page, build_snapshot, build_tree, frames_on, snapshots, traces

NOWHERE = np.zeros(0, np.uint64)


def redacted(snapshot, place):
    """The Snapshot of a redacted capture."""
    (place / "plain").mkdir()
    write_snapshot(place / "plain", snapshot)
    seal(place / "plain", "process", {"command": "secret"})
    redact(open_capture(place / "plain"), place / "shared")
    return open_capture(place / "shared").snapshot


def test_a_trial_of_page_sizes_goes_with_the_capture_and_names_nothing(tmp_path):
    shutil.copytree(bundled("samples") / "lookup", tmp_path / "plain")
    size = open_replay_capture("lookup").scenario(Setup.of()).extent[0]
    trial = msgspec.structs.replace(TRIAL, resident_bytes=size, command="/home/secret/app", program="secret")
    write_calibration(tmp_path / "plain" / PAGES, trial)
    seal(tmp_path / "plain", "process", {"command": "secret"})
    redact(open_capture(tmp_path / "plain"), tmp_path / "shared")
    kept = read_measured(open_capture(tmp_path / "shared").pages)
    assert kept.gain == trial.gain and "secret" not in str(kept) and trial.date not in str(kept)
    both = [replay(tmp_path / one, "thp", end="5%").results[1] for one in ("plain", "shared")]
    assert [one.speedup for one in both] == [trial.gain] * 2


@st.composite
def topologies(draw):
    """Two nodes whose memory begins and ends anywhere, in several ranges, with holes and strange borders."""
    edges = sorted(draw(st.sets(st.integers(0, 1 << 25) | st.integers(0, 2000), min_size=4, max_size=10)))
    ranges = {0: [], 1: []}
    for a, b in pairwise(edges):
        owner = draw(st.sampled_from([0, 1, None]))
        if owner is not None:
            ranges[owner].append((a, b))
    return Topology(tuple([Node(n, (n,), np.array(ranges[n], np.int64).reshape(-1, 2)) for n in ranges]))


def pages_of(tree):
    """int64: every frame that the tree names, and of huge pages the borders of their 4 KiB pages."""
    frames = [frame for frame in tree.frame.tolist() if frame >= 0]
    for _, level, _, frame in leaves(tree):
        span = 512 ** (level - 1)
        frames += [frame, frame + span // 2, frame + span - 1]
    return np.array(frames)


@pytest.mark.twin
@settings(max_examples=80, deadline=None)
@given(snapshots(native=True), topologies())
def test_every_frame_keeps_its_node_and_its_place_within_huge_pages(snapshot, topology):
    tree = snapshot.guest
    made = frame_map(tree, topology)
    old = pages_of(tree)
    new = made.frames(old)
    assert np.array_equal(made.topology.node_of_frame(new), topology.node_of_frame(old))
    assert len(np.unique(new)) == len(np.unique(old)) and (new >= 0).all()
    assert np.array_equal(new & 511, old & 511)
    moved = {frame: int(made.frames([frame])[0]) for _, _, _, frame in leaves(tree)}
    for _, level, _, frame in leaves(tree):
        span = 512 ** (level - 1)
        assert moved[frame] % span == frame % span == 0
        assert made.frames([frame + span - 1])[0] == moved[frame] + span - 1
    for node in topology.nodes:
        mine = np.unique(old[topology.node_of_frame(old) == node.id])
        mine = mine[made.frames(mine) < sum(int(np.diff(n.frames).sum()) for n in topology.nodes)]
        assert len(np.unique(made.frames(mine) >> 9)) == len(np.unique(mine >> 9))


@pytest.mark.twin
@settings(max_examples=60, deadline=None)
@given(snapshots(), topologies())
def test_a_nodes_memory_stays_as_large_as_it_was(snapshot, topology):
    sizes = lambda t: [int(np.diff(node.frames).sum()) for node in t.nodes]  # noqa: E731
    made = frame_map(snapshot.guest if snapshot.native else snapshot.host, topology).topology
    assert sizes(made) == sizes(topology)
    ranges = sorted((int(a), int(b)) for node in made.nodes for a, b in node.frames)
    assert all(one[1] <= other[0] for one, other in pairwise(ranges))


@pytest.mark.twin
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_result_of_a_redacted_capture_is_the_same(tmp_path_factory, data):
    snapshot = strategies.with_vmas(data.draw(snapshots()), data.draw)
    trace = data.draw(traces(snapshot))
    facts = {"emulator": [[int(v["start"]), int(v["end"])] for v in snapshot.vmas if v["emulator"]]}
    shared = redacted(replace(snapshot, facts=facts), tmp_path_factory.mktemp("redact"))
    one, other = (address_space(each, trace.regions) for each in (snapshot, shared))
    for name in ("parent", "node", "level", "base", "host_leaf", "host_slot"):
        assert np.array_equal(getattr(one.tables, name), getattr(other.tables, name)), name
    for name in ("va", "leaf", "level", "slot", "tlb_level"):
        assert np.array_equal(getattr(one.regions, name), getattr(other.regions, name)), name
    assert np.array_equal(one.host_of, other.host_of) and one.unplaced == other.unplaced
    one, other = (classify_pages(address_space(s, NOWHERE), by="vma") for s in (snapshot, shared))
    assert np.array_equal(one.counts, other.counts) and one.unresolved == other.unresolved
    for (_, one), (_, other) in zip(passes(snapshot, trace)[1], passes(shared, trace)[1], strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    for _, _, address, _ in list(leaves(snapshot.guest))[:3]:
        one, other = explain(snapshot, address), explain(shared, address)
        steps = lambda path: [(s.dimension, s.level, s.slot, s.node, s.present, s.leaf) for s in path.steps]  # noqa: E731
        assert steps(one) == steps(other) and one.stopped == other.stopped
        assert (one.page_bytes, one.page_node) == (other.page_bytes, other.page_node)


@pytest.mark.twin
def test_flags_stay_and_what_maps_nothing_is_forgotten(tmp_path):
    snapshot = build_snapshot([Page(VA, 9), Page(VA + PAGE, 5000, protnone=True), Page(VA + REGION, 512, 2)])
    leaf = int(np.flatnonzero(snapshot.guest.level == 1)[0])
    upper = int(np.flatnonzero(snapshot.guest.level == 2)[0])
    snapshot.guest.entries[leaf, 3] = 0x0FFF_FFFF_FFFF_F002
    snapshot.guest.entries[leaf, 0] |= np.uint64(1 << 63 | 1 << 58)
    snapshot.guest.entries[upper, 1] |= np.uint64(1 << 12)
    shared = redacted(snapshot, tmp_path)
    assert shared.guest.entries[leaf, 3] == 0
    flags = np.uint64(~((1 << 52) - (1 << 12)) & ((1 << 64) - 1))
    assert np.array_equal(shared.guest.entries[leaf, :2] & flags, snapshot.guest.entries[leaf, :2] & flags)
    assert int(shared.guest.entries[upper, 1]) >> 12 & 1


@pytest.mark.twin
def test_names_commands_and_processes_are_forgotten(tmp_path):
    path = "/home/me/secret"
    rows = [(VA, VA + PAGE, path), (VA + PAGE, VA + 2 * PAGE, "[heap]"), (VA + REGION, VA + 2 * REGION, path)]
    rows += [(VA + 2 * REGION, VA + 3 * REGION, f"{path}/libjemalloc.so.2")]
    snapshot = build_snapshot([(VA, 9)], vmas=rows)
    facts = {"pid": 4242, "comm": "secretd", "uid": 77, "time": "2026-01-01T00:00:00Z", "method": "bpf"}
    shared = redacted(replace(snapshot, facts=facts), tmp_path)
    assert shared.vma_names == ("file 1", "[heap]", "file 1", "/libjemalloc.so.2")
    assert shared.facts == {"method": "bpf"}
    for path in (tmp_path / "shared").iterdir():
        assert b"secret" not in path.read_bytes() and b"4242" not in path.read_bytes()
    assert open_capture(tmp_path / "shared").manifest.provenance == {"redacted": True}


@pytest.fixture
def joined(tmp_path):
    pages = [(VA + k * PAGE, 900 + k) for k in range(40)]
    snapshot = build_snapshot(pages, [Page(900 >> 9 << 21, 1 << 20, 2)], table_nodes=(0, 1))
    join(*write_both(tmp_path, snapshot), tmp_path / "vm")
    return open_capture(tmp_path / "vm")


@pytest.mark.twin
def test_a_hosts_dump_alone_is_redacted_with_all_its_roots(tmp_path, joined):
    host = tmp_path / "host"
    snapshot = joined.snapshot
    root = int(snapshot.host.frame[0])
    roots = (Root(frame=root, kind="tdp_mmu", table=0), Root(frame=12345, kind="shadow", why="PAE guest"))
    vcpus = (Vcpu(tid=555, root=12345), Vcpu(tid=556, root=root), Vcpu(tid=557))
    write_vm(host, host_dump(snapshot, roots=roots, vcpus=vcpus))
    seal(host, "vm-host", {})
    redact(open_capture(host), tmp_path / "shared")
    shared = open_capture(tmp_path / "shared")
    assert [f.name for f in check_capture(shared) if f.verdict == FAILED] == []
    frames = [root.frame for root in shared.vm.roots]
    assert frames[0] == shared.vm.tree.frame[0] and frames[1] < 0
    assert [v.root for v in shared.vm.vcpus] == [frames[1], frames[0], None]
    assert not {"maps", "gpt.tables"} & set(shared.manifest.files)


@pytest.mark.twin
def test_a_tree_that_names_no_frame_at_all_can_be_redacted(tmp_path):
    tree = build_tree([Page(VA, 9)], frames_on([0]))
    tree.entries[:], tree.frame[:], tree.flags[:], tree.node[:] = 0, -1, 16, -1
    assert (redacted(replace(build_snapshot([(VA, 9)]), guest=tree), tmp_path).guest.frame == -1).all()


# `redact` on a whole capture: what it keeps, and what no byte of it says any more.


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """(bundled capture, its redacted twin)"""
    place = tmp_path_factory.mktemp("sample") / "shared"
    capture = open_capture(bundled("samples") / "lookup")
    redact(capture, place)
    return capture, open_capture(place)


def test_a_real_capture_forgets_its_command_and_keeps_its_trace(sample):
    capture, shared = sample
    before, after = (c.directory / "trace.ptt" for c in sample)
    command = bytes(read_header(before, map_file(before))["command"]).split()[0]
    assert len(command) > 4
    for name in shared.manifest.files:
        assert command not in (shared.directory / name).read_bytes(), name
    header = read_header(after, map_file(after))
    assert (header["command"], header["pid"], header["start"]) == (b"", 0, 0)
    one, other = (read_trace(path) for path in (before, after))
    assert np.array_equal(one.chunks, other.chunks) and np.array_equal(one.regions, other.regions)
    assert [batch.page.tobytes() for batch in one.batches(1)] == [b.page.tobytes() for b in other.batches(1)]
    started = one.events["kind"] == Event.THREAD_START
    assert np.array_equal(one.events[~started], other.events[~started])
    for name in set(one.events.dtype.names) - {"a"}:
        assert np.array_equal(one.events[name], other.events[name]), name
    assert other.threads["tid"].tolist() == list(range(len(one.threads)))
    assert "record.json" in capture.manifest.files and "record.json" not in shared.manifest.files


def test_no_byte_of_a_shared_trace_is_of_its_secrets(tmp_path, sample):
    """Also not what a foreign writer left in the header or behind the last frame."""
    secret = b"grace.hopper@example"
    source = shutil.copytree(sample[0].directory, tmp_path / "s", ignore=shutil.ignore_patterns(".cache"))
    path = source / "trace.ptt"
    content = bytearray(contents(path))
    header = np.frombuffer(bytes(content[:HEADER_BYTES]), HEADER_DTYPE).copy()
    for name in ("command", "rules"):
        header[name] = secret
    header["arch"], header["pid"], header["crc"] = secret[:16], 987654, 0
    header["tracer"] = b"synth of " + secret
    header["crc"] = zlib.crc32(header.tobytes())
    path.write_bytes(header.tobytes() + bytes(content[HEADER_BYTES:]) + secret)
    seal(source, "process", {"who": secret.decode()})
    tids = [int(tid) for tid in load(source).trace.threads["tid"] if tid > 1000]
    redact(load(source), tmp_path / "r")
    whole = b"".join(file.read_bytes() for file in sorted((tmp_path / "r").iterdir()))
    assert secret[:14] not in whole and tids
    before, after = ((place / "trace.ptt").read_bytes() for place in (source, tmp_path / "r"))
    for tid in tids:  # its thread's start is gone; whatever else has the same bytes is no thread ID
        assert after.count(tid.to_bytes(8, "little")) == before.count(tid.to_bytes(8, "little")) - 1
    assert (987654).to_bytes(4, "little") not in after
    assert np.array_equal(load(tmp_path / "r").trace.chunks, load(source).trace.chunks)
    assert load(tmp_path / "r").trace.facts["tracer"] == "synth", "answers depend on it"


def test_the_command_refuses_traces_alone_and_existing_directories(tmp_path, sample, capsys):
    assert run(["redact", str(sample[0].directory), "-o", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "capture.json").read_text())["kind"] == "process"
    assert run(["redact", str(sample[0].directory), "-o", str(tmp_path / "out")]) == 2
    bare = tmp_path / "bare"
    bare.mkdir()
    seal(bare, "trace", {})
    with pytest.raises(UsageError, match="no page tables"):
        redact(open_capture(bare), tmp_path / "again")
