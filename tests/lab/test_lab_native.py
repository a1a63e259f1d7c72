"""`ptdump process` on emulated NUMA machines, against their raw memory."""

import re
import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from ptanalyze.capture.vm.join import put_together
from ptanalyze.core import snapshot as entries
from ptanalyze.core.snapshot import VMA_DTYPE, Snapshot, Topology
from ptanalyze.formats.snapshot import read_vm
from ptanalyze.policies.baselines import RESET
from ptanalyze_host.guests import read_guest_tables
from ptanalyze_host.relocate import tables_of
from replay_cases import case
from replay_cases import run as replayed
from strategies import build_trace

from . import images
from .checks import native_dump_is_true, snapshot_of
from .machine import SVM_CPU, Machine
from .runs import a_place, boot
from .touched import DEFAULT, Region, arguments, bind, interleave, translate

BASE = 1 << 40
FIXED_DIRECT_MAP = {4: 0xFFFF888000000000, 5: 0xFF11000000000000}  # Documentation/x86/x86_64/mm.rst
FIXED_TEXT = 0xFFFFFFFF81000000
LIMIT = 600  # seconds: the end of a machine that hangs, however busy this one is
EVERYWHERE = [
    Region("4k", bind(2), bind(3)),
    Region("4k", bind(0), bind(1), cpu=3, mib=256, step=(1 << 20) + 4096),
    Region("4k", interleave(0, 1, 2, 3), interleave(0, 1, 2, 3), cpu=1, mib=64),
    Region("thp", bind(1), bind(0), cpu=2, mib=16),
    Region("thp", interleave(1, 3), bind(2), mib=16),
]


@pytest.fixture
def dump(kernel, ptdump, programs, place, request):
    """Boot a Machine, touch `regions`, dump; the Run."""
    image = images.initramfs(kernel, libraries_of=[ptdump])

    def dump(machine, regions, base=BASE, spin_ms=0, options="--verify"):
        files = {
            "script": images.LAB / "scripts/native.sh",
            "ptdump": ptdump,
            "ptsurvey": ptdump.with_name("ptsurvey"),
            "toucher": programs / "toucher",
            "toucher.arguments": arguments(base, regions, spin_ms),
            "ptdump.arguments": options,
        }
        return boot(request.node.name, machine, kernel, image, files, place, limit=LIMIT, tries=2)

    return dump


def direct_map(run):
    """Where the kernel maps physical memory, from the program headers of /proc/kcore (fs/proc/kcore.c)."""
    core = (run.share / "kcore").read_bytes()
    (offset,) = struct.unpack_from("<Q", core, 32)
    size, count = struct.unpack_from("<HH", core, 54)
    for i in range(count):
        kind, _, _, virtual, physical = struct.unpack_from("<IIQQQ", core, offset + i * size)
        if kind == 1 and 0 < physical <= 1 << 20:
            return virtual - physical
    raise AssertionError("/proc/kcore names no low memory")


@pytest.mark.lab
def test_four_nodes_with_a_randomized_kernel(dump):
    machine = Machine()
    run = dump(machine, EVERYWHERE)
    assert direct_map(run) != FIXED_DIRECT_MAP[4]
    snapshot = native_dump_is_true(machine, run, EVERYWHERE)
    assert snapshot.guest.levels == 4 and snapshot.facts["method"] == "bpf"


@pytest.mark.lab(full=True)
def test_five_levels_and_addresses_that_need_them(dump):
    machine = Machine(cpu="max,la57=on")
    snapshot = native_dump_is_true(machine, dump(machine, EVERYWHERE, base=1 << 52), EVERYWHERE)
    assert snapshot.guest.levels == 5 and snapshot.guest.base.max() >= 1 << 52


@pytest.mark.lab(full=True)
def test_five_levels_without_randomization(dump):
    machine = Machine(cpu="max,la57=on", options="nokaslr numa_balancing=disable")
    run = dump(machine, EVERYWHERE)
    symbols = {line.split(" ")[2]: line for line in (run.share / "symbols").read_text().splitlines()}
    assert int(symbols["_stext"].split(" ")[0], 16) == FIXED_TEXT
    assert direct_map(run) == FIXED_DIRECT_MAP[5]
    assert native_dump_is_true(machine, run, EVERYWHERE).guest.levels == 5


@pytest.mark.lab(full=True)
def test_page_table_isolation_has_two_roots_and_the_kernels_is_dumped(dump):
    machine = Machine(options="pti=on numa_balancing=disable")
    native_dump_is_true(machine, dump(machine, EVERYWHERE), EVERYWHERE)


@pytest.mark.lab(full=True)
def test_numa_hints_are_mapped_pages(dump):
    machine = Machine(options="numa_balancing=enable")
    regions = [Region("4k", DEFAULT, bind(2), mib=32), Region("thp", DEFAULT, bind(3), mib=32), *EVERYWHERE]
    run = dump(machine, regions, spin_ms=6000, options="--verify --stop")
    tree = native_dump_is_true(machine, run, regions).guest
    for level in (1, 2):
        hints = entries.inaccessible(tree.entries[tree.level == level], level)
        assert np.count_nonzero(hints) >= 16, f"level {level}"


@pytest.mark.lab(full=True)
def test_eight_nodes(dump):
    machine = Machine(nodes=8, node_mib=512)
    regions = [Region("4k", bind(7 - node), bind(node), cpu=node) for node in range(8)]
    regions += [Region("4k", interleave(*range(8)), interleave(*range(8)), mib=64)]
    native_dump_is_true(machine, dump(machine, regions), regions)


@pytest.mark.lab(full=True)
def test_pages_of_1_gib(dump):
    machine = Machine(node_mib=2048, options="numa_balancing=disable hugepagesz=1G hugepages=2:1")
    regions = [Region("1g", bind(2), bind(1), mib=1024, step=1 << 16), *EVERYWHERE]
    native_dump_is_true(machine, dump(machine, regions), regions)


TWO_NODES = Machine(nodes=2, node_mib=512, fast=True, cpu=SVM_CPU)


@pytest.fixture(scope="module")
def moved(kernel, ptdump, programs, request):
    """The Run of scripts/relocate.sh."""
    with a_place("moved", request.config.getoption("--lab-keep", None)) as place:
        place.parent.mkdir(exist_ok=True)
        files = {
            "script": images.LAB / "scripts/relocate.sh",
            "reset": RESET.removeprefix("sudo "),
            "ptdump": ptdump,
            "ptrelocate": ptdump.with_name("ptrelocate"),
            "relocate_target": static_target(place.parent),
            "vmm": programs / "vmm",
            "placed": programs / "placed",
        }
        image = images.initramfs(kernel, modules=["kvm_amd"], libraries_of=[ptdump])
        yield boot("moved", TWO_NODES, kernel, image, files, place, limit=LIMIT, tries=2)


@pytest.mark.lab(full=True)
def test_tables_that_a_cpuset_left_behind_are_relocated_there_and_back(moved):
    run = moved
    assert {name: tables_and_data(run.share / name) for name in ("born", "moved", "near", "far")} == {
        "born": ([0, 32], [0, 16384]),
        "moved": ([0, 32], [16384, 0]),
        "near": ([32, 0], [16384, 0]),
        "far": ([0, 32], [16384, 0]),
    }
    told = dict(word.split("=") for word in (run.share / "said").read_text().splitlines()[1].split())
    assert told["added"] == told["found"] and told["damaged"] == "0"


BLOCK, VIRTUAL = 2 << 20, 1 << 30  # of programs/vmm.c


@pytest.fixture(scope="module")
def vm(moved):
    """(Run, {name: HostDump}, the guest's Snapshot as its memory has it) of the VM of scripts/relocate.sh."""
    share, own = moved.share, snapshot_of(moved.share / "vm.process").guest
    said = dict(word.split("=") for word in (share / "first.rounds").read_text().split()[:2])
    start, root = int(said["hva"], 16), int(said["root"], 16)

    def read(gpa, n):
        [frame] = translate(own, np.array([start + gpa], np.uint64))[0]
        return None if frame < 0 else moved.ram.tables([frame]).tobytes()[:n]

    tree = read_guest_tables(read, root // 4096, 4).tree
    vmas = np.zeros(1, VMA_DTYPE)
    vmas["end"], vmas["prot"] = VIRTUAL + root, 3
    names = "born", "moved", "once", "reset", "bound", "interleaved"
    guest = Snapshot(tree, vmas, ("",), Topology(()), None, {"unknown": ["topology"]})
    return {name: read_vm(share / f"vm.{name}") for name in names}, guest


def leaf_nodes(tree):
    """{first byte: node} of its leaf tables but the last, which several vCPUs use."""
    leaves = tree.level == 1
    found = dict(zip(tree.base[leaves].tolist(), tree.node[leaves].tolist(), strict=True))
    found.pop(max(found))
    return found


def predicted(dump, guest, policy, **params):
    """{first byte: node} of nested leaf tables by whatif; each vCPU touches its half of the VM."""
    snapshot = put_together(dump, guest, Path("vm"))[0]
    blocks = np.flatnonzero(guest.guest.level == 1).size - 1
    pages = [VIRTUAL + k * BLOCK for k in range(blocks)]
    half = blocks // 2
    trace = build_trace([(0, pages[:half]), (1, pages[half : 2 * half])])
    done = replayed(case(snapshot, trace), policy, params)
    tables, home = snapshot.nested, done.states[1].home[len(guest.guest) :]
    return leaf_nodes(replace(tables, node=home[: len(tables)]))


@pytest.mark.lab(full=True)
def test_whatif_says_where_a_reset_puts_nested_tables(vm):
    """vCPU 1 moved to node 1. KVM has up to 40 pages of before for each vCPU: dropped once, some stay far."""
    dumps, guest = vm
    found = {name: leaf_nodes(dump.tree) for name, dump in dumps.items()}
    assert set(found["born"].values()) == {0}
    assert found["moved"] == found["born"]
    assert len(found["born"]) == 126
    local = predicted(dumps["moved"], guest, "ept-reset")
    assert found["reset"] == local and list(local.values()) == [0] * 63 + [1] * 63
    assert 1 <= sum(found["once"][base] != node for base, node in local.items()) <= 40
    assert found["bound"] == predicted(dumps["moved"], guest, "ept-reset", vcpus="bind", node=1)
    assert set(found["bound"].values()) == {1}
    turns = predicted(dumps["moved"], guest, "ept-reset", vcpus="interleave")
    for one in (found["interleaved"], turns):
        assert abs(np.mean(list(one.values())) - 0.5) < 0.1
    data = {name: dump.tree for name, dump in dumps.items()}
    first, second = (
        entries.frame(tree.entries[tree.level == 1][np.argsort(tree.base[tree.level == 1])], 1, tree.encoding)
        for tree in (data["moved"], data["bound"])
    )
    assert (first == second).all(), "no page of the guest has moved"


@dataclass(frozen=True)
class WithHost(Machine):
    """One that can read this system's files, and run its Python."""

    def qemu(self, *arguments):
        share = "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap,id=host"
        return [*super().qemu(*arguments), "-virtfs", share]


@pytest.mark.lab(full=True)
def test_emptied_leaf_tables_go_from_linux_6_14_on(kernel, programs, place, request):
    """ADR 28: MADV_DONTNEED frees them then, MADV_FREE never does."""
    image = images.initramfs(kernel)
    place.parent.mkdir(exist_ok=True)
    script = "cd /mnt; cp emptied /tmp; /tmp/emptied > told; cat told; touch finished"
    files = {"script": script, "emptied": programs / "emptied"}
    machine = Machine(nodes=2, node_mib=512, fast=True)
    run = boot(request.node.name, machine, kernel, image, files, place, limit=LIMIT, tries=2)
    told = dict(line.split() for line in (run.share / "told").read_text().splitlines())
    sizes = {when: int(kib) for when, kib in told.items()}
    assert sizes["MADV_FREE"] == sizes["touched"] == sizes["again"] >= 128  # 32 leaf tables
    release = tuple(int(part) for part in kernel.version.split(".")[:2])
    assert sizes["touched"] - sizes["MADV_DONTNEED"] == (128 if release >= (6, 14) else 0), (release, sizes)


WALKS = """
import subprocess
from ptanalyze.capture.live.locate import native
from ptanalyze_host.relocate import leaf_tables
probe = subprocess.Popen([native("ptchase"), "4", "3"], stdin=-1, stdout=-1, text=True)
for node in (0, 1):
    print(f"0 0 walk:{node}", file=probe.stdin, flush=True)
    answer, tables = probe.stdout.readline(), leaf_tables(probe.pid)
    walked = tables.pages.sum(axis=1) >= 64  # one page of each line at least
    by_node = [int((tables.node[walked] == at).sum()) for at in (0, 1)]
    print("walks", *by_node, tables.pages[walked].sum(axis=0), answer)
"""


@pytest.mark.lab(full=True)
def test_a_trial_has_the_tables_of_a_program_far_and_near(kernel, ptdump, place, request):
    image = images.initramfs(kernel)
    place.parent.mkdir(exist_ok=True)
    trial = f"{sys.executable} -m ptanalyze trial --pairs"
    figure, program = "--figure-of 'tail -n 1 count' --for 5s", "/mnt/relocate_target count 64"
    lines = [
        "cd /tmp; export PATH=/usr/bin:/bin HOME=/tmp",
        f"{sys.executable} /mnt/walks || exit",
        f"taskset 1 {program} & sleep 10",
        f"{trial} 3 {figure} -o mine.toml -p $!",
    ]
    files = {
        "script": images.LAB / "scripts/trial.sh",
        "inside": "\n".join(lines),
        "walks": WALKS,
        "relocate_target": static_target(place.parent),
    }
    machine = WithHost(nodes=2, node_mib=1024, fast=True)
    run = boot(request.node.name, machine, kernel, image, files, place, limit=LIMIT, tries=2)
    said = (run.share / "trial.errors").read_text()
    assert (run.share / "trial.status").read_text() == "0\n", said
    window = r"tables (far |near): .*\((\S+) % of entries on node 1\); data (\S+) % on node 0"
    windows = re.findall(window, said)
    assert [where for where, *_ in windows] == ["far ", "near"] * 3
    for where, tables, data in windows:
        assert float(data) >= 99 and (float(tables) >= 98 if where == "far " else float(tables) <= 3), said
    told = (run.share / "trial.output").read_text()
    walked = re.findall(r"walks (\d+) (\d+) \[ *(\d+) +(\d+) +0\] 0 0 0(?: [\d.]+){3}", told)
    assert len(walked) == 2, told  # data on node 0 in both, but for pages of libraries
    for node, counts in enumerate(walked):  # 4 MiB are 1,024 tables, of the probe; others: its program's
        assert int(counts[node]) >= 1024 and int(counts[1 - node]) <= 4, told
        assert int(counts[2]) > 1000 * int(counts[3]), told
    assert "3 pairs of 5 s" in told
    assert "without counters: " in said and not list(run.share.glob("*.csv"))


def static_target(directory):
    source = images.ROOT / "tests/native/programs/relocate_target.c"
    target = directory / "relocate_target"
    subprocess.run(["gcc", "-O1", "-pthread", "-static", source, "-o", target], check=True)
    return target


def tables_and_data(dump):
    """Leaf tables and their pages by node, of the largest area of a dump."""
    snapshot = snapshot_of(dump)
    tables, area = tables_of(snapshot), max(snapshot.vmas, key=lambda vma: vma["end"] - vma["start"])
    inside = (tables.base >= area["start"]) & (tables.base < area["end"])
    data = tables.pages[inside].sum(axis=0)[:2]
    return np.bincount(tables.node[inside], minlength=2).tolist(), data.tolist()
