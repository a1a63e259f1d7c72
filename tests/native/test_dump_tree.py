"""Processes that share memory as one capture, and a tree per node."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from naive.trees import compare as compared
from native.dumping import PROGRAMS, REPOSITORY, ptdump, running, state, wait_for
from native.leaf_check import compare
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.describe import name, program
from ptanalyze.cli import run
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import new_capture
from ptanalyze.formats.snapshot import read_snapshot, read_tree
from ptanalyze_host.dump import descendants, dump_tree

# Processes that share memory as one capture: what they share as pagemap tells it, all stopped together.


@pytest.fixture(scope="module")
def family(programs):
    with running(programs / "dump_tree") as (process, words):
        grown = {name: int(value) for name, value in words.items()}
        children = descendants(process.pid)
        yield process.pid, grown, children
        subprocess.run(["kill", "-9", *map(str, children)], check=True)


@pytest.fixture(scope="module")
def captured(family, tmp_path_factory):
    out = tmp_path_factory.mktemp("tree") / "c"
    with new_capture(out) as inside:
        dumped, unknown = dump_tree(family[0], inside, stop=True, verify=True)
    assert dumped.failed is None and not unknown and len(dumped.lines) == 8
    return open_capture(out)


def test_all_descendants_are_in_it_and_go_on_afterwards(family, captured):
    pid, words, children = family
    assert children[:2] == sorted([words["first"], words["second"]]) and len(children) == 3
    assert [*captured.members] == [pid, *sorted(children)]
    assert {state(one) for one in (pid, *children)} == {"S"}
    assert all(one.snapshot.facts["stopped"] for one in captured.members.values())
    assert exit_code(check_capture(captured)) == 0


def test_every_page_of_each_is_where_pagemap_says_and_none_is_missing(captured):
    for pid, one in captured.members.items():
        found = compare(one.directory, pid)
        assert found["other frame"] == found["not dumped"] == 0 < found["equal"]
        assert found["not in pagemap"].keys() <= {"[vvar]", "[vvar_vclock]"}


def test_the_command_makes_one_capture(family, tmp_path):
    assert run(["dump", "process", "--tree", str(family[0]), "-o", str(tmp_path / "c")]) == 0
    assert len(open_capture(tmp_path / "c").processes) == 3


def test_processes_of_one_program_are_told_apart_by_the_titles_they_gave_themselves(tmp_path):
    with subprocess.Popen(["server: writer", "1000"], executable="/bin/sleep") as titled:
        try:
            assert run(["dump", "process", str(titled.pid), "-o", str(tmp_path / "c")]) == 0
        finally:
            titled.kill()
    capture = open_capture(tmp_path / "c")
    assert name(capture) == "server: writer" and program(capture) == {"program": "'server: writer' 1000"}
    assert run(["redact", str(tmp_path / "c"), "-o", str(tmp_path / "shared")]) == 0
    assert "writer" not in (tmp_path / "shared" / "capture.json").read_text()


def test_children_that_end_meanwhile_are_left_out_and_we_never_stop_ourselves(tmp_path, monkeypatch):
    from ptanalyze_host import dump

    code = (
        "import signal, subprocess; c = subprocess.Popen(['sleep', '100']); print(c.pid, flush=True)\n"
        "c.wait(); signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    try:
        assert os.getpid() not in descendants(os.getppid()) and child in descendants(os.getpid())
        held = dump.dump_descendant

        def gone(pid, *arguments, **options):
            subprocess.run(["kill", "-9", str(child)], check=True)
            assert wait_for(lambda: not Path(f"/proc/{child}").exists())
            return held(pid, *arguments, **options)

        monkeypatch.setattr(dump, "dump_descendant", gone)
        dumped, _ = dump_tree(parent.pid, tmp_path)
        assert f"PID {child}: ended before it was read; left out" in dumped.lines
        assert open_capture(tmp_path).processes == {}
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


@pytest.mark.full
def test_children_that_end_all_the_time_cost_themselves_alone(tmp_path):
    """Each lives for some milliseconds, some of which it is ending; the one that stays is always there."""
    code = (
        "import os, subprocess, time; stays = subprocess.Popen(['sleep', '100'])\n"
        "print(stays.pid, flush=True)\n"
        "while True:\n"
        "    for _ in range(4):\n"
        "        if not os.fork(): time.sleep(0.01); os._exit(0)\n"
        "    for _ in range(4): os.waitpid(-1, os.WNOHANG)\n"
        "    time.sleep(0.003)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            gone = 0
            for attempt in range(200):  # at some moments none is alive
                (tmp_path / f"c{attempt}").mkdir()
                dumped, _ = dump_tree(parent.pid, tmp_path / f"c{attempt}", stop=True)
                gone += sum("ended before it was read" in line for line in dumped.lines)
                assert child in open_capture(tmp_path / f"c{attempt}").processes
                if gone > 4:
                    break
            assert gone and state(child) == "S" and state(parent.pid) != "T"
        finally:
            subprocess.run(["kill", "-9", str(parent.pid), str(child)], check=True)


def test_a_child_that_calls_exec_all_the_time_costs_itself_alone(tmp_path):
    (tmp_path / "again.sh").write_text('exec sh "$0"\n')
    code = (
        "import subprocess, sys, signal; stays = subprocess.Popen(['sleep', '100'])\n"
        "execs = subprocess.Popen(['sh', sys.argv[1]]); print(stays.pid, execs.pid, flush=True)\n"
        "signal.pause()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "again.sh")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        stays, execs = map(int, parent.stdout.readline().split())
        try:
            left_out = 0
            for attempt in range(20):
                (tmp_path / f"c{attempt}").mkdir()
                dumped, _ = dump_tree(parent.pid, tmp_path / f"c{attempt}")
                found = open_capture(tmp_path / f"c{attempt}").processes
                left_out += any(f"PID {execs}: " in line and "exec" in line for line in dumped.lines)
                assert stays in found and (execs in found or left_out)
                if left_out:
                    break
            assert left_out
        finally:
            subprocess.run(["kill", "-9", str(parent.pid), str(stays), str(execs)], check=True)


# A tree per node, live: on a kernel that does not replicate, other processes' trees stand for other nodes'.
# programs/family.c puts the roots of four processes over one mapping into its mm->saved_auxv. A ptdump whose
# eBPF reads that field as Hydra's repl_pgd, and vm_pgoff as the owner of an area, then dumps four trees.

DUMPS, BUILD = REPOSITORY / "dumps", REPOSITORY / "dumps/build"
SHARED, PAGE = 0x2000_0000_0000, 4096
INSTEAD = {
    "void *repl_pgd[PTD_NODES]": "unsigned long saved_auxv[PTD_NODES]",
    "hydra->repl_pgd": "hydra->saved_auxv",
    "master_pgd_node": "vm_pgoff",
}


def output_of(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout


@pytest.fixture(scope="module")
def tools(programs, tmp_path_factory):
    """Directory of family, roots, and a ptdump that takes other fields for those of Hydra."""
    where = tmp_path_factory.mktemp("auxv")
    for source in ("walk.bpf.c", "bpf.c"):
        text = (DUMPS / source).read_text()
        for ours, instead in INSTEAD.items():
            text = text.replace(ours, instead)
        assert text != (DUMPS / source).read_text()
        (where / source).write_text(text)
    flags = ["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86", f"-I{BUILD}", f"-I{DUMPS}"]
    output_of(
        "clang", *flags, "-Wno-missing-declarations", "-c", "-o", where / "walk.bpf.o", where / "walk.bpf.c"
    )
    bpftool = ("env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bpftool", "gen")
    others = [BUILD / "survey.bpf.o", BUILD / "kvm.bpf.o"]
    output_of(*bpftool, "object", where / "all.bpf.o", where / "walk.bpf.o", *others)
    skeleton = output_of(*bpftool, "skeleton", where / "all.bpf.o", "name", "ptdump_bpf")
    (where / "ptdump.skel.h").write_text(skeleton)
    compiler = ["cc", "-D_GNU_SOURCE", f"-I{where}", f"-I{DUMPS}"]
    libraries = ["-lbpf", "-lelf", "-lz"]
    own = {"bpf", "survey", "heat", "relocate", "chain", "relocate_inside", "relocate_clone"}
    objects = [path for path in BUILD.glob("*.o") if path.stem.isidentifier() and path.stem not in own]
    output_of(*compiler, "-o", where / "ptdump", where / "bpf.c", *objects, *libraries)
    sources = [PROGRAMS / "roots.c", where / "bpf.c", BUILD / "output.o"]
    output_of(*compiler, "-o", where / "roots", *sources, *libraries)
    output_of("cc", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-o", where / "family", PROGRAMS / "family.c")
    return where


@pytest.fixture(scope="module")
def dumps(tools, tmp_path_factory):
    """Directories of two dumps: the parent as its children know it, then changed without them."""
    where = tmp_path_factory.mktemp("family")
    # a child drops all memory: the kernel would kill it for its restartable sequences, rseq(2)
    family = "env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", tools / "family"
    with running(*family, stdin=subprocess.PIPE) as (process, words):
        pids = words["pids"].split(",")

        def ask(command):
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "0\n", command

        for pid in pids[1:]:
            while len(output_of("cat", f"/proc/{pid}/maps").splitlines()) > 3:  # and [vsyscall]
                time.sleep(0.01)
        ask(f"roots {output_of(tools / 'roots', *pids)}")
        for name in ("alike", "changed"):
            done = ptdump(process.pid, where / name, "--stop", "--verify", program=tools / "ptdump")
            assert done.returncode == 0, done.stderr
            if name == "alike":
                for command in ("unmap 12", "protect 600", "protect 601"):
                    ask(command)
    return where / "alike", where / "changed"


def counts(directory):
    facts = read_snapshot(directory).facts
    assert facts["quiescence"]["quiet"] and not any(facts["reading"].values())
    trees = facts["replicas"]["trees"]
    assert [tree["name"] for tree in trees] == ["gpt", "gpt-node1", "gpt-node2", "gpt-node3"]
    replicas = [read_tree(directory, tree["name"]) for tree in trees]
    assert [tree["nodes"] for tree in trees] == [[0], [1], [2], [3]]
    return replicas, {
        tree: {name: n for name, n in row.items() if name != "marks"}
        for (tree, level), row in compared(replicas, None).items()
        if level == 1  # the parent's libraries may be mapped by huge pages
    }


def test_each_root_that_is_another_becomes_a_tree_of_the_capture(dumps):
    replicas, found = counts(dumps[0])
    assert {tree: row["same"] for tree, row in found.items()} == {1: 1024 + 1, 2: 512 + 1, 3: 342 + 1}
    assert all(row.keys() == {"same", "missing"} for row in found.values())
    assert all((replicas[0].frame != tree.frame[0]).all() for tree in replicas[1:])


def test_what_only_the_owners_tree_was_told_is_stale_in_the_others(dumps):
    _, found = counts(dumps[1])
    wrong = {tree: (row["same"], row["stale"], row["more"]) for tree, row in found.items()}
    assert wrong == {1: (1022, 1, 2), 2: (511, 1, 1), 3: (341, 1, 1)}


def test_areas_are_listed_with_the_owner_that_the_kernel_has(dumps):
    lines = [line.split() for line in (dumps[1] / "maps").read_text().splitlines()]
    areas = [[int(end, 16) for end in line[0].split("-")] for line in lines if line[-1] != "[vsyscall]"]
    owners = read_snapshot(dumps[1]).facts["replicas"]["owners"]
    assert [owner[:2] for owner in owners] == areas
    assert [o[2] for o in owners if SHARED <= o[0] < SHARED + 1024 * PAGE] == [0, 13, 600, 602]
