"""ptdump on live processes: what it finds, takes, may do, and what it does when things go wrong."""

import json
import os
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from naive.topology import read_topology
from native import dumping
from native.dumping import PTDUMP, assert_refused, clean, held, leaves, ptdump, running, state, wait_for
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.cli import run
from ptanalyze.core import snapshot
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats import snapshot as files
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import read_snapshot, read_tree
from ptanalyze_host.dump import dump_process

# ptdump on live processes: every leaf is where /proc/PID/pagemap says, with every kind of memory.

MIB = 1 << 20


@pytest.fixture(scope="module")
def mapped(programs):
    with running(programs / "dump_target") as (process, words):
        yield process.pid, {name: int(value) for name, value in words.items()}


@pytest.fixture(scope="module")
def dump(mapped, tmp_path_factory):
    """(Snapshot, {area: leaves in it}) of the target, read while it was stopped."""
    directory = tmp_path_factory.mktemp("dump") / "d"
    done = ptdump(mapped[0], directory, "--stop", "--verify")
    assert done.returncode == 0, done.stderr
    return read_snapshot(directory)


def area(dump, target, name, bytes):
    rows = leaves(dump.guest)
    start = target[1][name]
    return rows[(rows[:, 0] >= start) & (rows[:, 0] < start + bytes)]


def test_the_c_records_are_laid_out_as_the_dtypes(programs):
    lines = subprocess.run([programs / "dump_records"], capture_output=True, text=True, check=True).stdout
    layout = {name: (int(a), int(b)) for name, a, b in (line.split() for line in lines.splitlines())}
    assert layout["constants"] == (files.TABLES_VERSION, files.ENTRIES_HEADER)
    for struct, dtype in (("pt_header", files.HEADER_DTYPE), ("pt_table", files.TABLE_DTYPE)):
        assert layout[struct] == (0, dtype.itemsize)
        for name, (kind, offset) in dtype.fields.items():
            assert layout[f"{struct}.{name}"] == (offset, kind.itemsize), name
    s = snapshot
    assert layout["flags"] == (s.CHANGED | s.TORN << 8 | s.FAULT << 16, s.BAD_TYPE | s.INFERRED << 8)


def test_every_leaf_has_the_frame_that_pagemap_tells(dump, mapped):
    ours, theirs = dumping.pages_of_leaves(leaves(dump.guest)), dumping.pages_of_pagemap(mapped[0], dump.vmas)
    hidden = set(ours) - set(theirs)
    assert {a: f for a, f in ours.items() if a not in hidden} == theirs
    areas = list(zip(dump.vma_names, dump.vmas["start"], dump.vmas["end"], strict=True))
    owners = {name for address in hidden for name, start, end in areas if start <= address < end}
    assert owners and owners <= {"[vvar]", "[vvar_vclock]"}
    assert len(hidden) == dump.facts["verify"]["hidden"]


def test_small_pages_are_leaves_of_level_1_and_huge_ones_of_level_2(dump, mapped):
    small, huge = area(dump, mapped, "small", 8 * MIB), area(dump, mapped, "huge", 8 * MIB)
    assert len(small) == 2048 and (small[:, 1] == 1).all() and small[:, 3].all()
    assert len(huge) == 4 and (huge[:, 1] == 2).all() and (huge[:, 2] % 512 == 0).all()


def test_pages_without_access_keep_their_frames_but_are_not_present(dump, mapped):
    none, huge = area(dump, mapped, "none", 4 * MIB), area(dump, mapped, "huge_none", 4 * MIB)
    assert len(none) == 1024 and none[:512, 3].sum() == 0 and none[512:, 3].all()
    assert len(huge) == 2 and (huge[:, 1] == 2).all() and huge[:, 3].tolist() == [0, 1]


def test_pages_only_read_share_one_frame_of_zeros(dump, mapped):
    zero = area(dump, mapped, "zero", 4 * MIB)
    assert len(zero) == 1024 and len(np.unique(zero[:, 2])) == 1


def test_a_sparse_area_has_one_page_a_table_and_an_emptied_one_keeps_its_tables(dump, mapped):
    sparse = area(dump, mapped, "sparse", 1 << 30)
    assert len(sparse) == 512 and len(np.unique(sparse[:, 0] >> 21)) == 512
    start = mapped[1]["emptied"]
    tables = (dump.guest.level == 1) & (dump.guest.base >= start) & (dump.guest.base < start + 4 * MIB)
    assert tables.sum() == 2 and len(area(dump, mapped, "emptied", 4 * MIB)) == 0


def test_the_tree_is_closed_and_its_kernel_half_is_empty(dump):
    dumping.assert_closed(dump.guest)
    assert not dump.guest.entries[0, 256:].any() and not dump.guest.flags.any()


def test_no_frame_holds_two_tables_and_each_is_on_a_node(dump):
    frames = dump.guest.frame
    assert len(np.unique(frames)) == len(frames)
    assert np.array_equal(dump.topology.node_of_frame(frames), dump.guest.node)
    assert (dump.guest.node >= 0).all()


def test_a_stopped_process_is_read_quietly_completely_and_said_to_be_so(dump, mapped):
    facts = dump.facts
    assert facts["stopped"] and facts["quiescence"]["quiet"] and facts["completeness"]["explained"]
    assert facts["completeness"]["difference"] == facts["completeness"]["huge_leaves"] > 0
    assert not any(facts["reading"].values()) and facts["unknown"] == [] and facts["retries"] == 0
    assert facts["pid"] == mapped[0] and facts["comm"] == "dump_target" and facts["method"] == "bpf"
    assert "checked" in facts["page_type"] and state(mapped[0]) == "S"


@pytest.fixture(scope="module")
def described(programs, tmp_path_factory):
    """described(arguments): what the dumper would write as snapshot.json (programs/describe.c)."""
    dumps, describe = dumping.REPOSITORY / "dumps", tmp_path_factory.mktemp("describe") / "describe"
    objects = [path for path in (dumps / "build").glob("*.o") if path.stem.isidentifier()]
    for program in ("ptdump", "survey", "heat", "relocate"):  # each has a main of its own
        objects.remove(dumps / f"build/{program}.o")
    command = ["cc", f"-I{dumps}", "-o", describe, dumping.PROGRAMS / "describe.c", *objects]
    subprocess.run([*command, "-lbpf", "-lelf", "-lz"], check=True)

    def run(arguments):
        done = subprocess.run([describe, *arguments.split()], capture_output=True, check=True)
        return json.loads(done.stdout)["facts"]

    return run


@pytest.fixture(scope="module")
def areas(tmp_path_factory):
    """areas(text): lines that dumps/proc.c reads of maps or smaps (programs/areas.c), and what it leaves."""
    dumps, program = dumping.REPOSITORY / "dumps", tmp_path_factory.mktemp("areas") / "areas"
    sources = [dumps / f"{name}.c" for name in ("proc", "privileges", "output", "topology")]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GNU_SOURCE", f"-I{dumps}"]
    subprocess.run(["cc", *checks, "-o", program, dumping.PROGRAMS / "areas.c", *sources], check=True)

    def run(text):
        done = subprocess.run([program], input=text, capture_output=True, check=True)
        lines, _, left = done.stdout.partition(b"left: ")
        return lines.splitlines(), left.removesuffix(b"\n")

    return run


SMAPS = b"""00400000-00452000 r-xp 00001000 08:02 173521 /usr/bin/a name
Rss:                 400 kB
AnonHugePages:      2048 kB
VmFlags: rd ex mr mw me\x20
7ffe0000-7ffe1000 ---p 00000000 00:00 0
7fff0000-7fff1000 r--s 00000000 00:00 0 [vvar]
VmFlags: rd io pf\x20
"""
AREAS = [b"400000-452000 r-xp 173521 400 2048 0 /usr/bin/a", b"7ffe0000-7ffe1000 ---p 0 0 0 0 "]
AREAS.append(b"7fff0000-7fff1000 r--s 0 0 0 1 [vvar]")


def test_areas_of_maps_and_smaps_are_read_by_one_reader(areas):
    assert areas(SMAPS) == (AREAS, b"") and areas(b"") == ([], b"")
    bare = [line for line in SMAPS.split(b"\n") if b"-" in line]
    assert [line.split()[0] for line in areas(b"\n".join(bare))[0]] == [line.split()[0] for line in AREAS]
    assert areas(b"1000-2000 rw-p 0 0:0 7 " + b"x" * 9999) == ([b"1000-2000 rw-p 7 0 0 0 " + b"x" * 63], b"")


WHOLE = b"7ffe0000-7ffe1000 ---p 00000000 00:00 0"


@pytest.mark.parametrize(
    "line",
    [
        b"x", b"-", b"1000", b"1000-", b"1000-x rw-p 0 0:0 0", b"1000-2000", b"1000-2000 rw-p", b"Rss: 4 kB",
        b"1000-2000 rwp 0 0:0 0", b"1000-2000 rw-p 0 0:0", b"1000-2000 rw-p 0 0:0 x", b"1-2\t rw-p 0 0:0 0",
        b" 1000-2000 rw-p 0 0:0 0", b"-1000-2000 rw-p 0 0:0 0", b"\xff" * 300, b"",
    ],
)  # fmt: skip
def test_a_line_that_is_no_area_ends_the_reading_there(areas, line):
    assert areas(line + b"\n" + WHOLE) == ([], line + b"\n" + WHOLE)


def test_a_list_of_areas_cut_anywhere_is_read_within_its_bounds(areas):
    for end in range(0, len(SMAPS), 3):
        found, _ = areas(SMAPS[:end])
        assert found[:-1] == AREAS[: max(len(found) - 1, 0)]


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


def test_tables_that_do_not_fit_in_memory_are_streamed_with_the_same_result(dump, mapped, tmp_path):
    done = ptdump(mapped[0], tmp_path / "d", "--stop", "--memory", "1")
    assert done.returncode == 0, done.stderr
    streamed = read_snapshot(tmp_path / "d")
    assert streamed.facts["streamed"] and not dump.facts["streamed"]
    assert np.array_equal(leaves(streamed.guest), leaves(dump.guest))
    assert np.array_equal(streamed.guest.frame, dump.guest.frame)
    dumping.assert_closed(streamed.guest)


def test_pagemap_alone_gives_the_same_leaves_and_says_what_it_does_not_know(dump, mapped, tmp_path):
    lines = dump_process(mapped[0], tmp_path / "d", bpf=False, stop=True)
    inferred = read_snapshot(tmp_path / "d")
    ours, theirs = (set(map(tuple, leaves(s.guest).tolist())) for s in (inferred, dump))
    assert ours <= theirs and len(theirs - ours) == dump.facts["verify"]["hidden"]
    dumping.assert_inferred(inferred.guest)
    assert (inferred.guest.flags == snapshot.INFERRED).all() and (inferred.guest.frame == -1).all()
    nodes = [int(place.name[4:]) for place in Path("/sys/devices/system/node").glob("node[0-9]*")]
    # all tables are on the one, where there is one
    assert (inferred.guest.node == (snapshot.UNKNOWN_NODE if len(nodes) > 1 else sum(nodes))).all()
    unknown = set(inferred.facts["unknown"])
    assert {"table frame", "entry flags"} <= unknown and ("table node" in unknown) == (len(nodes) > 1)
    assert inferred.facts["stopped"] and state(mapped[0]) == "S" and "unknown" in lines[1]
    assert inferred.facts["method"] == "pagemap" and inferred.facts["quiescence"]["quiet"]
    completeness, here = inferred.facts["completeness"], dump.facts["completeness"]
    assert completeness["tables"] == len(inferred.guest) < here["tables"]
    for key in ("counted_by_kernel", "huge_leaves"):
        assert completeness[key] == here[key]


def test_before_linux_6_7_every_page_is_taken_for_a_small_one_and_that_is_said(mapped, tmp_path, programs):
    """PAGEMAP_SCAN is refused as such a kernel does, by a library: there is none at hand."""
    library = tmp_path / "no_scan.so"
    source = (
        "#include <errno.h>\nint ioctl(int a, unsigned long b) { return errno = a && b ? ENOTTY : 0, -1; }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-xc", "-"], input=source, text=True, check=True)
    for name, how in (("sized", {}), ("unsized", {"env": {**os.environ, "LD_PRELOAD": str(library)}})):
        assert ptdump(mapped[0], tmp_path / name, "--pagemap", "--stop", **how).returncode == 0
    sized, unsized = (read_snapshot(tmp_path / name) for name in ("sized", "unsized"))
    assert "leaf size (4 KiB assumed)" in unsized.facts["unknown"]
    assert "leaf size (4 KiB assumed)" not in sized.facts["unknown"]
    assert dumping.pages_of_leaves(leaves(unsized.guest)) == dumping.pages_of_leaves(leaves(sized.guest))
    assert set(leaves(unsized.guest)[:, 1]) == {1} and set(leaves(sized.guest)[:, 1]) == {1, 2}


def test_where_ebpf_is_refused_pagemap_stands_in_and_why_is_said(mapped, tmp_path):
    command = [sys.executable, "-m", "ptanalyze", "dump", "process", str(mapped[0]), "-o"]
    drop = ["capsh", "--drop=cap_bpf", "--", "-c"]
    dropped = [*drop, f"exec {shlex.join(command)} {tmp_path / 'd'}"]
    done = subprocess.run(dropped, capture_output=True, text=True, check=False)
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
        yield Path(place), {"user": 65534, "group": 65534, "extra_groups": [], "process_group": 0}


def test_without_privileges_a_process_of_ones_own_is_read_without_its_frames(mapped, nobodys):
    place, as_nobody = nobodys
    with subprocess.Popen([place / "dump_target"], stdout=subprocess.PIPE, text=True, **as_nobody) as own:
        own.stdout.readline()
        done = ptdump(own.pid, place / "d", "--pagemap", "--stop", program=place / "ptdump", **as_nobody)
        other = ptdump(mapped[0], place / "e", "--pagemap", program=place / "ptdump", **as_nobody)
        own.kill()
    assert done.returncode == 0, done.stderr
    snapshot = read_snapshot(place / "d")
    assert "page frame (zero without CAP_SYS_ADMIN)" in snapshot.facts["unknown"]
    small = leaves(snapshot.guest)[:, 2][leaves(snapshot.guest)[:, 1] == 1]
    assert len(small) > 2048 and not small.any()
    assert_refused(other, 2, "not permitted: needs CAP_SYS_PTRACE")
    assert not (place / "e").exists()


# ptdump when things go wrong: the target always goes on, one line says why, nothing half-written stays.

NO_LEAKS = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # of what ends anyway


@pytest.mark.parametrize("bpf", [True, False])
def test_a_process_that_ends_while_it_is_read_leaves_nothing(programs, tmp_path, bpf):
    with running(programs / ("dump_churn" if bpf else "dump_target"), dumping.SPARSE_GIB) as (process, _):
        threading.Timer(0.3 if bpf else 0.01, process.kill).start()
        said = rf"PID {process.pid}: .*(ended|has exited)|no such"
        with pytest.raises((PartialDataError, UsageError), match=said):
            for attempt in range(1000):
                dump_process(process.pid, tmp_path / f"d{attempt}", bpf=bpf)
    assert not (tmp_path / f"d{attempt}").exists()


def test_a_kernel_thread_is_refused(tmp_path):
    assert_refused(ptdump(2, tmp_path / "d"), 2, "PID 2: a kernel thread")
    with pytest.raises(UsageError, match="kernel thread"):
        dump_process(2, tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_zombie_is_refused(tmp_path):
    child = subprocess.Popen(["true"])
    assert wait_for(lambda: state(child.pid) == "Z")
    assert_refused(ptdump(child.pid, tmp_path / "d"), 2, "zombie")
    with pytest.raises(UsageError, match="zombie"):
        dump_process(child.pid, tmp_path / "d", bpf=False)
    child.wait()


# a few dumps, and as many as one needs that meets a change
SHORT_AND_LONG = pytest.mark.parametrize("attempts", [3, pytest.param(dumping.MANY, marks=pytest.mark.full)])


@SHORT_AND_LONG
def test_a_changing_process_gives_a_closed_tree_and_says_what_changed(programs, tmp_path, attempts):
    dumping.build_sanitized()
    with running(programs / "dump_churn") as (process, _):
        noisy = 0
        for attempt in range(attempts):
            if noisy and attempt >= 4:
                break
            program = PTDUMP if attempt % 2 else dumping.SANITIZED / "ptdump"
            out, retries = tmp_path / f"d{attempt}", ("--retries", "2")
            done = ptdump(process.pid, out, *retries, program=program, env=NO_LEAKS)
            assert done.returncode == 0, clean(done.stderr)
            dump = read_snapshot(tmp_path / f"d{attempt}")
            dumping.assert_closed(dump.guest)
            reading, flags = dump.facts["reading"], dump.guest.flags
            for bit, name in enumerate(("changed", "torn", "fault", "bad_type")):
                assert (flags >> bit & 1).sum() == reading[name]
            noisy += not dump.facts["quiescence"]["quiet"]
            assert dump.facts["retries"] == 2 or dump.facts["quiescence"]["quiet"]
        assert noisy or attempts < dumping.MANY


@pytest.mark.parametrize("program", [pytest.param("dump_churn", marks=pytest.mark.full), "dump_unmap"])
def test_of_a_changing_process_pagemap_gives_a_tree_that_is_whole(programs, tmp_path, program):
    dumping.build_sanitized()
    how = {"program": dumping.SANITIZED / "ptdump", "env": NO_LEAKS}
    with running(programs / program) as (process, _):
        for attempt in range(10):
            where = tmp_path / f"d{attempt}"
            done = ptdump(process.pid, where, "--pagemap", "--retries", str(attempt % 3), **how)
            assert done.returncode == 0, clean(done.stderr)
            dump = read_snapshot(where)
            dumping.assert_inferred(dump.guest)
            assert ("it changed meanwhile" in done.stdout) != dump.facts["quiescence"]["quiet"]


@SHORT_AND_LONG
def test_a_dump_of_a_process_that_maps_and_unmaps_is_whole_or_says_so(programs, tmp_path, attempts):
    """Areas and tables are of one moment, or the dump ends with 3, and so does its check."""
    with running(programs / "dump_unmap") as (process, _):
        codes = set()
        for attempt in range(attempts):
            out = tmp_path / f"d{attempt}"
            code = run(["dump", "process", str(process.pid), "-o", str(out)])
            assert exit_code(check_capture(open_capture(out), quick=True)) == code in (0, 3)
            codes.add(code)
            shutil.rmtree(out)
            if 3 in codes and attempt >= 30:
                break
    assert 3 in codes or attempts < dumping.MANY


def test_a_file_that_another_dump_made_first_is_left_to_it(target, tmp_path):
    library = tmp_path / "quicker.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, dumping.PROGRAMS / "quicker.c"], check=True)
    (tmp_path / "d").mkdir()
    done = ptdump(target, tmp_path / "d", env={**os.environ, "LD_PRELOAD": str(library)})
    assert_refused(done, 2, "File exists")
    assert [path.read_text() for path in (tmp_path / "d").iterdir()] == ["theirs"]


def test_an_empty_directory_is_used_and_its_files_are_private(target, tmp_path):
    assert ptdump(target, tmp_path, "-q").stdout == ""
    assert len(os.listdir(tmp_path)) == 4
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())


@pytest.mark.parametrize("files", [4, 5, 8, 12, 16, 20, 27])
def test_too_few_files_are_the_reason_that_is_given(target, tmp_path, files):
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # noqa: E731
    assert_refused(ptdump(target, tmp_path / "d", preexec_fn=limit), 2, "Too many open files")


@pytest.mark.parametrize(
    "arguments", ["", "process", "process 12x -o d", "process 1", "machine 1 -o d", "--bad"]
)
def test_wrong_usage_ends_with_2_and_help_with_0(arguments, tmp_path):
    command = [PTDUMP, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and done.stderr
    assert subprocess.run([PTDUMP, "--help"], capture_output=True, check=False).returncode == 0


def test_a_name_reaches_the_terminal_with_escapes_alone(programs, tmp_path):
    name = "\x1b]0;X\x07\n\x9b1m"
    shutil.copy(programs / "dump_target", tmp_path / name)
    with running(tmp_path / name) as (process, _):
        done = ptdump(process.pid, tmp_path / "d", "--stop")
        refused = ptdump(process.pid, tmp_path / "no\x1b[31m\n" / "d")
    assert done.returncode == 0 and r"(\x1b]0;X\x07\x0a\xc2\x9b1m)" in done.stdout
    assert_refused(refused, 2, r"no\x1b[31m\x0a/d")
    odd = subprocess.run([PTDUMP, "--\x1b[31m"], capture_output=True, text=True, check=False)
    assert odd.returncode == 2 and r"--\x1b[31m" in odd.stderr
    assert "\x1b" not in done.stdout + done.stderr + refused.stderr + odd.stderr


# ptdump's own memory: what --memory and its control group allow, and what goes to the file instead.

GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def small_group():
    """Directory of a control group that may have 96 MiB."""
    memory = GROUPS / "memory" if (GROUPS / "memory").is_dir() else GROUPS
    place = memory / f"ptanalyze-test-{os.getpid()}"
    limit = "memory.limit_in_bytes" if memory.name == "memory" else "memory.max"
    try:
        place.mkdir()
        (place / limit).write_text(str(96 * MIB))
    except OSError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no control group can be made here: {error}")
    yield place
    place.rmdir()


def test_in_a_small_control_group_tables_go_to_the_file(programs, tmp_path, small_group):
    """128 MiB of tables: without looking at the group's limit, the kernel would kill it."""

    def enter():
        (small_group / "cgroup.procs").write_text(str(os.getpid()))

    with running(programs / "dump_target", 64) as (process, _):
        command = [PTDUMP, "process", str(process.pid), "-o", tmp_path / "d", "--stop", "-q"]
        assert subprocess.run(command, preexec_fn=enter, check=False).returncode == 0
        assert wait_for(lambda: state(process.pid) == "S")
    dump = read_snapshot(tmp_path / "d")
    assert dump.facts["streamed"] and len(dump.guest) > 32_768
    dumping.assert_closed(dump.guest)


def test_a_longer_reading_that_was_not_kept_leaves_nothing_in_the_file(programs, tmp_path):
    objects = [dumping.REPOSITORY / f"dumps/build/{part}.o" for part in ("tables", "output", "topology")]
    source = dumping.PROGRAMS / "two_readings.c"
    command = ["cc", f"-I{dumping.REPOSITORY / 'dumps'}", "-o", tmp_path / "two", source, *objects]
    subprocess.run(command, check=True)
    names = [tmp_path / "gpt.tables", tmp_path / "gpt.entries"]
    subprocess.run([tmp_path / "two", *names], check=True)
    dumping.assert_closed(read_tree(tmp_path))
    assert names[1].stat().st_size == 4096 + 3 * 4096


# ptdump and its guardian may do only what the next step needs, and say which capability is missing.

KILL, BPF = 5, 39  # include/uapi/linux/capability.h
OUR_OWN = "CapPrm", "CapEff"


def status(pid):
    """{name: words} of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: words.strip() for name, _, words in (line.partition(":") for line in lines)}


def held_capabilities(pid):
    """Numbers of the capabilities that a process has, and can get back."""
    now = status(pid)  # read once: it may be about to give them up
    words = [int(now[name], 16) for name in OUR_OWN]
    assert words[0] == words[1] and now["CapInh"] == "0" * 16 and now["NoNewPrivs"] == "1"
    return {bit for bit in range(64) if words[0] >> bit & 1}


@pytest.mark.parametrize(("reads", "may"), [("--verify", {KILL, BPF}), ("--pagemap", {KILL})])
def test_while_it_reads_it_may_call_what_it_loaded_and_its_guardian_may_signal(big, tmp_path, reads, may):
    dumper, _ = held(big, tmp_path, lambda dumper, _: dumping.guardian(dumper) and state(big) == "T", reads)
    try:
        guard = dumping.guardian(dumper)
        assert held_capabilities(dumper.pid) == may
        assert wait_for(lambda: held_capabilities(guard) == {KILL})
        assert wait_for(lambda: len(os.listdir(f"/proc/{guard}/fd")) == 2), "it begins with its parent's"
    finally:
        dumper.send_signal(signal.SIGCONT)
        dumper.communicate(timeout=60)


def test_when_all_is_read_it_may_do_nothing(big, tmp_path):
    def writes(dumper, at):
        return at.exists() and any(path.stat().st_size for path in at.iterdir())

    dumper, directory = held(big, tmp_path, writes)
    assert held_capabilities(dumper.pid) == set()
    dumper.send_signal(signal.SIGCONT)
    dumper.communicate(timeout=60)
    assert dumper.returncode == 0 and len(os.listdir(directory)) == 4


def test_it_writes_where_only_root_may_until_the_end(target, tmp_path):
    place = tmp_path / "theirs"
    place.mkdir(mode=0o755)
    os.chown(place, 65534, 65534)
    (place / "d").mkdir(mode=0o755)
    os.chown(place / "d", 65534, 65534)
    assert ptdump(target, place / "d").returncode == 0 and len(os.listdir(place / "d")) == 4
    assert ptdump(target, place / "e", preexec_fn=dumping.limit_files).returncode == 2
    assert not (place / "e").exists()


def dumped_without(capabilities, target, directory):
    capsh = ["capsh", f"--drop={capabilities}", "--", "-c", f"exec {PTDUMP} process {target} -o {directory}"]
    return subprocess.run(capsh, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("capability", ["bpf", "perfmon", "sys_ptrace", "sys_admin"])
def test_the_one_missing_capability_is_named(target, tmp_path, capability):
    done = dumped_without(f"cap_{capability}", target, tmp_path / "d")
    assert_refused(done, 2, f"missing capability CAP_{capability.upper()}")
    assert not (tmp_path / "d").exists()


def test_the_four_capabilities_are_enough(target, tmp_path):
    keep = {"bpf", "perfmon", "sys_ptrace", "sys_admin"}
    listed = subprocess.run(["capsh", "--print"], capture_output=True, text=True, check=True).stdout
    bounding = next(line for line in listed.splitlines() if line.startswith("Bounding set"))
    others = [name for name in bounding.partition("=")[2].split(",") if name and name[4:] not in keep]
    done = dumped_without(",".join(others), target, tmp_path / "d")
    assert done.returncode == 0, done.stderr
