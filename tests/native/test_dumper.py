"""ptdump on live processes: every leaf is where /proc/PID/pagemap says, with every kind of memory."""

import json
import subprocess

import numpy as np
import pytest

from native.dumping import (
    PROGRAMS,
    REPOSITORY,
    assert_closed,
    leaves,
    pages_of_leaves,
    pages_of_pagemap,
    ptdump,
    running,
    state,
)
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.capture.live.topology import read_topology
from ptanalyze.core import snapshot
from ptanalyze.formats import tables_file
from ptanalyze.formats.snapshot_file import read_snapshot

pytestmark = pytest.mark.native
MIB = 1 << 20


@pytest.fixture(scope="module")
def target(programs):
    with running(programs / "dump_target") as (process, words):
        yield process.pid, {name: int(value) for name, value in words.items()}


@pytest.fixture(scope="module")
def dump(target, tmp_path_factory):
    """(Snapshot, {area: leaves in it}) of the target, read while it was stopped."""
    directory = tmp_path_factory.mktemp("dump") / "d"
    done = ptdump(target[0], directory, "--stop", "--verify")
    assert done.returncode == 0, done.stderr
    return read_snapshot(directory)


def area(dump, target, name, bytes):
    rows = leaves(dump.guest)
    start = target[1][name]
    return rows[(rows[:, 0] >= start) & (rows[:, 0] < start + bytes)]


def test_the_c_records_are_laid_out_as_the_dtypes(programs):
    lines = subprocess.run([programs / "dump_records"], capture_output=True, text=True, check=True).stdout
    layout = {name: (int(a), int(b)) for name, a, b in (line.split() for line in lines.splitlines())}
    assert layout["constants"] == (tables_file.VERSION, tables_file.ENTRIES_HEADER)
    for struct, dtype in (("pt_header", tables_file.HEADER_DTYPE), ("pt_table", tables_file.TABLE_DTYPE)):
        assert layout[struct] == (0, dtype.itemsize)
        for name, (kind, offset) in dtype.fields.items():
            assert layout[f"{struct}.{name}"] == (offset, kind.itemsize), name
    s = snapshot
    assert layout["flags"] == (s.CHANGED | s.TORN << 8 | s.FAULT << 16, s.BAD_TYPE | s.INFERRED << 8)


def test_every_leaf_has_the_frame_that_pagemap_tells(dump, target):
    ours, theirs = pages_of_leaves(leaves(dump.guest)), pages_of_pagemap(target[0], dump.vmas)
    hidden = set(ours) - set(theirs)
    assert {a: f for a, f in ours.items() if a not in hidden} == theirs
    areas = list(zip(dump.vma_names, dump.vmas["start"], dump.vmas["end"], strict=True))
    owners = {name for address in hidden for name, start, end in areas if start <= address < end}
    assert owners and owners <= {"[vvar]", "[vvar_vclock]"}
    assert len(hidden) == dump.facts["verify"]["hidden"]


def test_its_own_verification_compares_every_page_and_finds_no_difference(dump):
    verify = dump.facts["verify"]
    assert verify["checked"] == len(pages_of_leaves(leaves(dump.guest))) and verify["mismatched"] == 0


def test_small_pages_are_leaves_of_level_1_and_huge_ones_of_level_2(dump, target):
    small, huge = area(dump, target, "small", 8 * MIB), area(dump, target, "huge", 8 * MIB)
    assert len(small) == 2048 and (small[:, 1] == 1).all() and small[:, 3].all()
    assert len(huge) == 4 and (huge[:, 1] == 2).all() and (huge[:, 2] % 512 == 0).all()


def test_pages_without_access_keep_their_frames_but_are_not_present(dump, target):
    none, huge = area(dump, target, "none", 4 * MIB), area(dump, target, "huge_none", 4 * MIB)
    assert len(none) == 1024 and none[:512, 3].sum() == 0 and none[512:, 3].all()
    assert len(huge) == 2 and (huge[:, 1] == 2).all() and huge[:, 3].tolist() == [0, 1]


def test_pages_only_read_share_one_frame_of_zeros(dump, target):
    zero = area(dump, target, "zero", 4 * MIB)
    assert len(zero) == 1024 and len(np.unique(zero[:, 2])) == 1


def test_a_sparse_area_has_one_page_a_table_and_an_emptied_one_keeps_its_tables(dump, target):
    sparse = area(dump, target, "sparse", 1 << 30)
    assert len(sparse) == 512 and len(np.unique(sparse[:, 0] >> 21)) == 512
    start = target[1]["emptied"]
    tables = (dump.guest.level == 1) & (dump.guest.base >= start) & (dump.guest.base < start + 4 * MIB)
    assert tables.sum() == 2 and len(area(dump, target, "emptied", 4 * MIB)) == 0


def test_file_pages_are_there(dump, target):
    assert len(area(dump, target, "file", 8192)) == 2


def test_the_tree_is_closed_and_its_kernel_half_is_empty(dump):
    assert_closed(dump.guest)
    assert not dump.guest.entries[0, 256:].any() and not dump.guest.flags.any()


def test_no_frame_holds_two_tables_and_each_is_on_a_node(dump):
    frames = dump.guest.frame
    assert len(np.unique(frames)) == len(frames)
    assert (
        np.array_equal(dump.topology.node_of_frame(frames), dump.guest.node) and (dump.guest.node >= 0).all()
    )


def test_a_stopped_process_is_read_quietly_completely_and_said_to_be_so(dump, target):
    facts = dump.facts
    assert facts["stopped"] and facts["quiescence"]["quiet"] and facts["completeness"]["explained"]
    assert facts["completeness"]["difference"] == facts["completeness"]["huge_leaves"] > 0
    assert not any(facts["reading"].values()) and facts["unknown"] == [] and facts["retries"] == 0
    assert facts["pid"] == target[0] and facts["comm"] == "dump_target" and facts["method"] == "bpf"
    assert "checked" in facts["page_type"] and state(target[0]) == "S"


@pytest.fixture(scope="module")
def described(programs, tmp_path_factory):
    """described(arguments): what the dumper would write as snapshot.json (programs/describe.c)."""
    dumps, describe = REPOSITORY / "dumps", tmp_path_factory.mktemp("describe") / "describe"
    objects = [path for path in (dumps / "build").glob("*.o") if path.stem.isidentifier()]
    for program in ("ptdump", "survey", "heat"):  # each has a main of its own
        objects.remove(dumps / f"build/{program}.o")
    command = ["cc", f"-I{dumps}", "-o", describe, PROGRAMS / "describe.c", *objects]
    subprocess.run([*command, "-lbpf", "-lelf", "-lz"], check=True)

    def run(arguments):
        done = subprocess.run([describe, *arguments.split()], capture_output=True, check=True)
        return json.loads(done.stdout)["facts"]

    return run


@pytest.mark.parametrize(
    ("counted", "levels", "difference"),
    [(3, "4 3 2 1", 0), (2, "4 3 2 1", -1), (4, "5 4 3 2 1 4 3", 0), (5, "5 4 3 2 1 4 3", 1)],
)
def test_the_kernel_counts_tables_of_levels_1_to_3(described, counted, levels, difference):
    found = described(f"{counted} {levels}")["completeness"]
    assert found["difference"] == difference and found["explained"] == (difference == 0)


@pytest.mark.parametrize(
    ("roots", "nodes"),
    [
        ("1 2 3 4", {"gpt": [0], "gpt-node1": [1], "gpt-node2": [2], "gpt-node3": [3]}),
        ("2 1 2 0", {"gpt": [1], "gpt-node0": [0, 2]}),
        ("3 3", {"gpt": [], "gpt-node0": [0, 1]}),
    ],
)
def test_on_a_kernel_that_replicates_nodes_with_another_root_have_a_tree(described, roots, nodes):
    facts = described(f"{2 + len(nodes)} 4 3 2 1 / {roots}")
    assert {tree["name"]: tree["nodes"] for tree in facts["replicas"]["trees"]} == nodes
    assert facts["replicas"]["owners"] == [[4096, 8192, 1]]
    assert facts["completeness"]["tables"] == 3 + len(nodes) and facts["completeness"]["difference"] == 0


@pytest.mark.parametrize("roots", ["", "/", "/ 1 1 1 1", "/ 1 0"])
def test_with_one_root_for_all_nodes_there_is_one_tree(described, roots):
    assert "replicas" not in described(f"3 4 3 2 1 {roots}")


def test_both_readings_of_the_topology_agree(dump):
    topology, source = read_topology()
    assert source == dump.facts["node_source"]
    for ours, theirs in zip(topology.nodes, dump.topology.nodes, strict=True):
        assert (ours.id, ours.cpus, ours.distance) == (theirs.id, theirs.cpus, theirs.distance)
        assert np.array_equal(ours.frames, theirs.frames)


def test_tables_that_do_not_fit_in_memory_are_streamed_with_the_same_result(dump, target, tmp_path):
    done = ptdump(target[0], tmp_path / "d", "--stop", "--memory", "1")
    assert done.returncode == 0, done.stderr
    streamed = read_snapshot(tmp_path / "d")
    assert streamed.facts["streamed"] and not dump.facts["streamed"]
    assert np.array_equal(leaves(streamed.guest), leaves(dump.guest))
    assert np.array_equal(streamed.guest.frame, dump.guest.frame)
    assert_closed(streamed.guest)


def test_pagemap_alone_gives_the_same_leaves_and_says_what_it_does_not_know(dump, target, tmp_path):
    lines = dump_process(target[0], tmp_path / "d", bpf=False, stop=True)
    inferred = read_snapshot(tmp_path / "d")
    ours, theirs = (set(map(tuple, leaves(s.guest).tolist())) for s in (inferred, dump))
    assert ours <= theirs and len(theirs - ours) == dump.facts["verify"]["hidden"]
    assert (inferred.guest.flags == snapshot.INFERRED).all() and (inferred.guest.frame == -1).all()
    assert (inferred.guest.node == snapshot.UNKNOWN_NODE).all()
    assert {"table frame", "table node", "entry flags"} <= set(inferred.facts["unknown"])
    assert inferred.facts["stopped"] and state(target[0]) == "S" and "unknown" in lines[1]


def test_without_ptdump_the_dump_falls_back_to_pagemap_and_says_why(target, tmp_path, monkeypatch):
    import ptanalyze.capture.live.dump
    from ptanalyze.core.errors import UsageError

    def nowhere(name):
        raise UsageError(f"{name}: not found; build it")

    monkeypatch.setattr(ptanalyze.capture.live.dump, "native", nowhere)
    lines = dump_process(target[0], tmp_path / "d")
    assert "not found; build it" in lines[0] and read_snapshot(tmp_path / "d").facts["method"] == "pagemap"
    with pytest.raises(UsageError, match="not found"):
        dump_process(target[0], tmp_path / "e", bpf=True)
    assert not (tmp_path / "e").exists()


def test_a_dump_joins_other_files_of_its_capture_but_never_replaces_tables(target, tmp_path):
    (tmp_path / "trace.ptt").write_text("here first")
    dump_process(target[0], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["trace.ptt", *read_names()])
    from ptanalyze.core.errors import UsageError

    with pytest.raises(UsageError, match="give a new one"):
        dump_process(target[0], tmp_path)


def read_names():
    return ["gpt.tables", "gpt.entries", "maps", "snapshot.json"]
