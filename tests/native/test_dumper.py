"""ptdump on live processes: every leaf is where /proc/PID/pagemap says, with every kind of memory."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from native.dumping import (
    PROGRAMS,
    PTDUMP,
    REPOSITORY,
    assert_closed,
    assert_inferred,
    assert_refused,
    leaves,
    pages_of_leaves,
    pages_of_pagemap,
    ptdump,
    running,
    state,
)
from ptanalyze.capture.live.dump import dump_process
from ptanalyze.capture.live.process import read_topology
from ptanalyze.core import snapshot
from ptanalyze.formats import tables
from ptanalyze.formats.snapshot import read_snapshot

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
    assert layout["constants"] == (tables.VERSION, tables.ENTRIES_HEADER)
    for struct, dtype in (("pt_header", tables.HEADER_DTYPE), ("pt_table", tables.TABLE_DTYPE)):
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
    assert_inferred(inferred.guest)
    assert (inferred.guest.flags == snapshot.INFERRED).all() and (inferred.guest.frame == -1).all()
    assert (inferred.guest.node == snapshot.UNKNOWN_NODE).all()
    assert {"table frame", "table node", "entry flags"} <= set(inferred.facts["unknown"])
    assert inferred.facts["stopped"] and state(target[0]) == "S" and "unknown" in lines[1]
    assert inferred.facts["method"] == "pagemap" and inferred.facts["quiescence"]["quiet"]
    completeness, here = inferred.facts["completeness"], dump.facts["completeness"]
    assert completeness["tables"] == len(inferred.guest) < here["tables"]
    assert {key: completeness[key] for key in ("counted_by_kernel", "huge_leaves")} == {
        key: here[key] for key in ("counted_by_kernel", "huge_leaves")
    }


def test_inferred_tables_that_do_not_fit_in_memory_are_streamed_with_the_same_result(target, tmp_path):
    for name, *options in (("whole",), ("streamed", "--memory", "1")):
        done = ptdump(target[0], tmp_path / name, "--pagemap", "--stop", *options)
        assert done.returncode == 0 and done.stdout.startswith(f"{done.stdout.split()[0]} tables"), (
            done.stderr
        )
        assert read_snapshot(tmp_path / name).facts["streamed"] == (name == "streamed")
    for file in ("gpt.tables", "gpt.entries", "maps"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "streamed" / file).read_bytes()


def test_before_linux_6_7_every_page_of_pagemap_is_taken_for_a_small_one_and_that_is_said(
    target, tmp_path, programs
):
    """PAGEMAP_SCAN is refused as such a kernel does, by a library: there is none at hand."""
    library = tmp_path / "no_scan.so"
    source = (
        "#include <errno.h>\nint ioctl(int a, unsigned long b) { return errno = a && b ? ENOTTY : 0, -1; }"
    )
    command = ["cc", "-shared", "-fPIC", "-o", library, "-xc", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    env = {**os.environ, "LD_PRELOAD": str(library)}
    for name, how in (("sized", {}), ("unsized", {"env": env})):
        assert ptdump(target[0], tmp_path / name, "--pagemap", "--stop", **how).returncode == 0
    sized, unsized = (read_snapshot(tmp_path / name) for name in ("sized", "unsized"))
    assert "leaf size (4 KiB assumed)" in unsized.facts["unknown"]
    assert "leaf size (4 KiB assumed)" not in sized.facts["unknown"]
    assert pages_of_leaves(leaves(unsized.guest)) == pages_of_leaves(leaves(sized.guest))
    assert set(leaves(unsized.guest)[:, 1]) == {1} and set(leaves(sized.guest)[:, 1]) == {1, 2}


def test_where_ebpf_is_refused_pagemap_stands_in_and_why_is_said(target, tmp_path):
    command = [sys.executable, "-m", "ptanalyze", "dump", "process", str(target[0]), "-o"]
    drop = ["capsh", "--drop=cap_bpf", "--", "-c"]
    done = subprocess.run(
        [*drop, f"exec {shlex.join(command)} {tmp_path / 'd'}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3 and done.stderr.startswith("without eBPF: missing capability CAP_BPF")
    assert read_snapshot(tmp_path / "d").facts["method"] == "pagemap"
    asked = f"exec {shlex.join(command)} {tmp_path / 'e'} --bpf"
    done = subprocess.run([*drop, asked], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "missing capability CAP_BPF" in done.stderr
    assert not (tmp_path / "e").exists()


@pytest.fixture
def nobodys(programs):
    """(directory of an ordinary user with the programs in it, how to start one as that user)."""
    with tempfile.TemporaryDirectory() as place:
        for tool in (PTDUMP, programs / "dump_target"):
            shutil.copy(tool, place)
        os.chown(place, 65534, 65534)
        yield Path(place), {"user": 65534, "group": 65534, "extra_groups": []}


def test_without_privileges_a_process_of_ones_own_is_read_without_its_frames(target, nobodys):
    place, as_nobody = nobodys
    with subprocess.Popen([place / "dump_target"], stdout=subprocess.PIPE, text=True, **as_nobody) as own:
        own.stdout.readline()
        done = ptdump(own.pid, place / "d", "--pagemap", "--stop", program=place / "ptdump", **as_nobody)
        other = ptdump(target[0], place / "e", "--pagemap", program=place / "ptdump", **as_nobody)
        own.kill()
    assert done.returncode == 0, done.stderr
    snapshot = read_snapshot(place / "d")
    assert "page frame (zero without CAP_SYS_ADMIN)" in snapshot.facts["unknown"]
    small = leaves(snapshot.guest)[:, 2][leaves(snapshot.guest)[:, 1] == 1]
    assert len(small) > 2048 and not small.any()
    assert_refused(other, 2, "not permitted: needs CAP_SYS_PTRACE")
    assert not (place / "e").exists()


def test_without_ptdump_nothing_is_dumped_and_who_asks_is_told_how_to_get_it(target, tmp_path, monkeypatch):
    from ptanalyze.capture.live import native
    from ptanalyze.core.errors import UsageError

    monkeypatch.setattr(native, "CHECKOUT", tmp_path)
    monkeypatch.setattr(native, "PACKAGE", "native_tools_of_a_test")
    for name in ("PATH", "PTANALYZE_NATIVE"):
        monkeypatch.setenv(name, str(tmp_path))
    for bpf in (None, True, False):
        with pytest.raises(UsageError, match=r"ptdump: not found.*make native"):
            dump_process(target[0], tmp_path / "d", bpf=bpf)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("options", ["--verify", "--stop --max-stop 5"])
def test_pagemap_alone_is_not_compared_with_itself_nor_left_half_read(target, tmp_path, options):
    done = ptdump(target[0], tmp_path / "d", "--pagemap", *options.split())
    assert done.returncode == 2 and done.stderr.startswith("Usage:") and not (tmp_path / "d").exists()


def test_a_dump_joins_other_files_of_its_capture_but_never_replaces_tables(target, tmp_path):
    (tmp_path / "trace.ptt").write_text("here first")
    dump_process(target[0], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["trace.ptt", *read_names()])
    from ptanalyze.core.errors import UsageError

    with pytest.raises(UsageError, match="give a new one"):
        dump_process(target[0], tmp_path)


def read_names():
    return ["gpt.tables", "gpt.entries", "maps", "snapshot.json"]
