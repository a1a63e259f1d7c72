"""A tree per node, live: on a kernel that does not replicate, other processes' trees stand for other nodes'.

programs/family.c puts the roots of four processes over one mapping into its mm->saved_auxv. A ptdump whose
eBPF reads that field as Hydra's repl_pgd, and vm_pgoff as the owner of an area, then dumps four trees of it.
"""

import subprocess
import time

import pytest

from lab.oracle.replicas import Replicas, compare_trees
from native.dumping import PROGRAMS, REPOSITORY, ptdump, running
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.tables import read_tree

pytestmark = pytest.mark.native
DUMPS, BUILD = REPOSITORY / "dumps", REPOSITORY / "dumps/build"
SHARED, PAGE = 0x2000_0000_0000, 4096
INSTEAD = {
    "void *repl_pgd[PTD_NODES]": "unsigned long saved_auxv[PTD_NODES]",
    "hydra->repl_pgd": "hydra->saved_auxv",
    "master_pgd_node": "vm_pgoff",
}


def run(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout


@pytest.fixture(scope="module")
def tools(programs, tmp_path_factory):
    """Directory of family, roots, and a ptdump that takes other fields for those of Hydra."""
    where = tmp_path_factory.mktemp("auxv")
    for name in ("walk.bpf.c", "bpf.c"):
        text = (DUMPS / name).read_text()
        for ours, instead in INSTEAD.items():
            text = text.replace(ours, instead)
        assert text != (DUMPS / name).read_text()
        (where / name).write_text(text)
    flags = ["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86", f"-I{BUILD}", f"-I{DUMPS}"]
    run("clang", *flags, "-Wno-missing-declarations", "-c", "-o", where / "walk.bpf.o", where / "walk.bpf.c")
    bpftool = ("env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bpftool", "gen")
    others = [BUILD / "survey.bpf.o", BUILD / "kvm.bpf.o"]
    run(*bpftool, "object", where / "all.bpf.o", where / "walk.bpf.o", *others)
    skeleton = run(*bpftool, "skeleton", where / "all.bpf.o", "name", "ptdump_bpf")
    (where / "ptdump.skel.h").write_text(skeleton)
    compiler = ["cc", "-D_GNU_SOURCE", f"-I{where}", f"-I{DUMPS}"]
    libraries = ["-lbpf", "-lelf", "-lz"]
    own = {"bpf", "survey", "heat"}
    objects = [path for path in BUILD.glob("*.o") if path.stem.isidentifier() and path.stem not in own]
    run(*compiler, "-o", where / "ptdump", where / "bpf.c", *objects, *libraries)
    sources = [PROGRAMS / "roots.c", where / "bpf.c", BUILD / "output.o"]
    run(*compiler, "-o", where / "roots", *sources, *libraries)
    run("cc", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-o", where / "family", PROGRAMS / "family.c")
    return where


@pytest.fixture(scope="module")
def dumps(tools, tmp_path_factory):
    """Directories of two dumps: the parent as its children know it, then changed without them."""
    where = tmp_path_factory.mktemp("family")
    with running(tools / "family", stdin=subprocess.PIPE) as (process, words):
        pids = words["pids"].split(",")

        def ask(command):
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "0\n", command

        for pid in pids[1:]:
            while len(run("cat", f"/proc/{pid}/maps").splitlines()) > 3:  # and [vsyscall]
                time.sleep(0.01)
        ask(f"roots {run(tools / 'roots', *pids)}")
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
    replicas = Replicas(
        tuple(read_tree(directory, tree["name"]) for tree in trees),
        tuple(tuple(tree["nodes"]) for tree in trees),
    )
    return replicas, {
        one.tree: {name: n for name, n in one.counts.items() if name != "marks"}
        for one in compare_trees(replicas)
        if one.level == 1  # the parent's libraries may be mapped by huge pages
    }


def test_each_root_that_is_another_becomes_a_tree_of_the_capture(dumps):
    replicas, found = counts(dumps[0])
    assert replicas.nodes == ((0,), (1,), (2,), (3,))
    known = {tree: row["same"] for tree, row in found.items()}
    assert known == {1: 1024 + 1, 2: 512 + 1, 3: 342 + 1} and all(
        row.keys() == {"same", "missing"} for row in found.values()
    )
    assert all((replicas.trees[0].frame != tree.frame[0]).all() for tree in replicas.trees[1:])


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
