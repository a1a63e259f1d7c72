"""`ptanalyze survey --guest` and what it needs: vCPUs, slots and guest tables of any VMM, by KVM alone."""

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from native.dumping import PTDUMP, running
from native.vms import HIGH, LOW, MIB, need_kvm
from needs_root import needs_root
from ptanalyze.capture.live.dump_vm import dump_vm
from ptanalyze.capture.live.guests import GuestMemory, kvm_vcpus
from ptanalyze.capture.live.process import opened
from ptanalyze.capture.live.qmp import Qmp, slots_of
from ptanalyze.capture.live.survey_guest import find_vm, survey_guest
from ptanalyze.cli import run
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture

pytestmark = [
    pytest.mark.native,
    needs_root,
]
SIZE = 64 * MIB
ROOT = 0x1000  # of vm_guest.c, whose 512 GiB map the first, and 1 GiB + SIZE of that 2 MiB pages
BIOS = Path("/usr/share/seabios/bios-256k.bin")


@pytest.fixture(scope="module")
def vmm(vmm):
    need_kvm()
    return vmm


@contextmanager
def paused_qemu(where, name, *options):
    """(PID, QMP socket) of a QEMU that has made its VM and waits before the first instruction."""
    socket = where / "qmp"
    command = [
        "qemu-system-x86_64",
        "-accel",
        "kvm",
        "-S",
        "-cpu",
        "qemu64",
        "-nodefaults",
        "-display",
        "none",
    ]
    command += ["-name", f"guest={name},debug-threads=on", "-qmp", f"unix:{socket},server=on,wait=off"]
    with open(where / "said", "w") as said:
        process = subprocess.Popen([*command, *options], stdout=said, stderr=said)
    try:
        end = time.monotonic() + 60
        while not socket.exists():
            assert process.poll() is None and time.monotonic() < end, (where / "said").read_text()
            time.sleep(0.05)
        with Qmp(socket):  # it answers
            pass
        yield process.pid, socket
    finally:
        process.kill()
        process.wait()


def backend(kind, size, more=""):
    return [
        "-m",
        size,
        "-object",
        f"memory-backend-{kind},id=m0,size={size}{more}",
        "-numa",
        "node,memdev=m0",
    ]


VARIANTS = {
    "anonymous": ["-m", "256M"],
    "memfd, above 4 GiB": ["-machine", "q35,smm=off", *backend("memfd", "5G", ",share=on,reserve=off")],
    "file": backend("file", "256M", ",share=on,mem-path={where}/memory"),
    "NUMA-bound": backend("ram", "256M", ",host-nodes=0,policy=bind"),
    "pflash": ["-drive", f"if=pflash,format=raw,readonly=on,file={BIOS}"],
    "balloon, virtio-mem": [
        "-m", "256M,maxmem=4G", "-device", "virtio-balloon-pci",
        "-object", "memory-backend-ram,id=more,size=1G,reserve=off",
        "-device", "virtio-mem-pci,memdev=more,requested-size=512M",
    ],
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_slots_of_every_kind_of_memory_are_where_qemus_monitor_says(tmp_path, variant):
    need_kvm()
    assert shutil.which("qemu-system-x86_64"), "install qemu-system-x86"
    options = [word.format(where=tmp_path) for word in VARIANTS[variant]]
    with paused_qemu(tmp_path, "lone-guest", *options) as (pid, socket):
        assert find_vm("lone-guest") == pid
        slots, _ = kvm_vcpus(pid)
        with Qmp(socket) as qmp:
            expected = {(slot.gpa, slot.bytes, slot.hva) for slot in slots_of(qmp)}
        assert expected <= {(slot.gpa, slot.bytes, slot.hva) for slot in slots}
        assert any(slot.gpa >= 1 << 32 for slot in slots) == (
            variant in ("memfd, above 4 GiB", "balloon, virtio-mem")
        )
        with opened(pid) as process, GuestMemory(process, slots) as memory:
            assert memory.read((1 << 32) - 4096, 4096) == BIOS.read_bytes()[-4096:]
        with pytest.raises(UsageError, match="vCPU 0: not in 64-bit mode"):
            survey_guest("lone-guest")


def test_names_that_no_vm_has_or_several_have_are_refused(vmm, tmp_path):
    with pytest.raises(UsageError, match="no-such-vm: no VM here has this name"):
        find_vm("no-such-vm")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with (
        paused_qemu(tmp_path / "a", "twin") as (first, _),
        paused_qemu(tmp_path / "b", "twin") as (second, _),
    ):
        both = ", ".join(map(str, sorted((first, second))))
        with pytest.raises(UsageError, match=f"twin: 2 VMs have this name: give a PID: {both}"):
            find_vm("twin")


@pytest.fixture(scope="module")
def vm(vmm):
    """It uses a CPU until the last test is over: those that do without it come first."""
    with running(vmm, 64, 4096, 1, "spin") as (process, words):
        yield process.pid, {name: int(value) for name, value in words.items()}


def test_registers_and_slots_are_those_that_the_vmm_set(vm):
    pid, words = vm
    slots, samples = kvm_vcpus(pid, 3)
    assert [(slot.gpa, slot.bytes, slot.hva) for slot in slots] == [
        (0, LOW, words["low"]), (HIGH, SIZE, words["high"]),
    ]  # fmt: skip
    assert len(samples) == 3
    for (vcpu,) in samples:
        assert (vcpu.vcpu, vcpu.cr3, vcpu.levels, vcpu.root) == (0, ROOT, 4, 1)
        assert Path(f"/proc/{pid}/task/{vcpu.tid}").exists()


@pytest.mark.parametrize(
    "words",
    [["vcpus"], ["vcpus", "1", "-o", "x"], ["vcpus", "1", "--verify"], ["vcpus", "1", "--samples", "x"]],
)
def test_wrong_use_of_vcpus_is_refused(vmm, tmp_path, words):
    done = subprocess.run([PTDUMP, *words], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and not any(tmp_path.iterdir())


def test_a_process_without_a_vm_is_refused_in_a_line(vmm):
    with pytest.raises(UsageError, match="not a VMM: it has no kvm-vm or kvm-vcpu file"):
        survey_guest(str(os.getpid()))


def test_a_guest_without_linux_is_surveyed_by_the_cr3s_seen(vm):
    found = survey_guest(str(vm[0]), seconds=0.3)
    (one,) = found.found
    assert not found.by_kernel and found.samples == one.seen == 3 and "no Linux kernel" in found.notes[0]
    assert (one.cr3, one.pid, one.name, one.leaf, one.unread) == (ROOT, None, "", {}, 0)
    assert sum(one.upper.values()) == 1 + 1 + 2  # directories of the second GiB have its first 64 MiB
    assert one.mapped_bytes == one.huge_bytes == 2 << 30 and sum(one.runs.values()) == pytest.approx(1)
    assert -1 not in one.upper


def test_the_command_prints_a_table_and_json_and_draws(vm, capsys, tmp_path):
    words = ["survey", "--guest", str(vm[0]), "--for", "200ms"]
    assert run([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result["by"] == "cr3" and [one["cr3"] for one in result["found"]] == ["0x1000"]
    assert run(words) == 0
    told = capsys.readouterr().out
    assert f"ptanalyze dump vm {vm[0]} --guest-tables --cr3 0x1000" in told.replace("\n", " ")
    for more in (["--prometheus", "x.prom"], ["--counters", "1s"]):
        assert run([*words, *more]) == 2
    assert run(["survey", "--vm", "3"]) == 2


@pytest.mark.parametrize("cr3", [(), (ROOT,), (ROOT | 0x18,)])
def test_a_dump_has_the_guests_tables_without_qmp(vm, tmp_path, cr3):
    dump_vm(vm[0], tmp_path / "d", guest=not cr3, cr3=cr3)
    capture = open_capture(tmp_path / "d/cr3-1")
    assert capture.snapshot.facts["method"] == "kvm" and not capture.snapshot.guest.flags.any()
    # all 256 entries of the root's half lead to one table: the first is followed, the others are dropped
    assert capture.snapshot.guest.level.tolist() == [4, 3, 2, 2]
    assert capture.snapshot.facts["not_followed"] == {"seen before": 255}


def test_a_root_that_is_no_memory_is_said(vm, tmp_path):
    lines = dump_vm(vm[0], tmp_path / "d", cr3=[1 << 45])
    assert any("gone before it was read" in line for line in lines)
