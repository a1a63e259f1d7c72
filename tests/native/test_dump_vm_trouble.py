"""ptdump vm when there is no VM to dump, or more than one: one line says why, and nothing stays behind."""

import fcntl
import os
import subprocess
import threading

import pytest
from click.testing import CliRunner

from native.dumping import PTDUMP, running
from native.vms import need_kvm, ptdump_vm
from ptanalyze.capture.live.dump_vm import dump_vm
from ptanalyze.cli.dump import command
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.vm import read_vm

pytestmark = pytest.mark.native
KVM_CREATE_VM = 0xAE01


@pytest.fixture
def bare_vm(vmm):
    """Descriptor of a VM without vCPUs, made by this very process."""
    need_kvm()
    kvm = os.open("/dev/kvm", os.O_RDWR)
    machine = fcntl.ioctl(kvm, KVM_CREATE_VM, 0)
    yield machine
    os.close(machine)
    os.close(kvm)


def assert_refused(done, directory, code, what):
    assert done.returncode == code and what in done.stderr, done.stderr
    assert done.stderr.startswith("ptdump: ") and done.stderr.count("\n") == 1
    assert not directory.exists()


def test_a_process_that_is_no_vmm_is_refused(vmm, tmp_path):
    done = ptdump_vm(os.getpid(), tmp_path / "d")
    assert_refused(done, tmp_path / "d", 2, "not a VMM: it has no kvm-vm or kvm-vcpu file")
    with pytest.raises(UsageError, match="not a VMM"):
        dump_vm(os.getpid(), tmp_path / "d")
    assert not any(tmp_path.iterdir())


def test_a_file_that_only_bears_the_name_is_no_vm(vmm, tmp_path):
    with open(tmp_path / "anon_inode:kvm-vm", "w"):
        assert_refused(ptdump_vm(os.getpid(), tmp_path / "d"), tmp_path / "d", 2, "not a VMM")


@pytest.mark.parametrize(("pid", "why"), [(2**22 + 1, "no such process"), (2, "a kernel thread")])
def test_what_is_no_process_with_memory_is_refused(vmm, tmp_path, pid, why):
    assert_refused(ptdump_vm(pid, tmp_path / "d"), tmp_path / "d", 2, why)


@pytest.mark.parametrize(
    "arguments",
    [["vm"], ["vm", "1"], ["vm", "1", "-o", "d", "--verify"], ["process", "1", "-o", "d", "--vm", "3"]],
)
def test_wrong_usage_ends_with_2(vmm, tmp_path, arguments):
    done = subprocess.run([PTDUMP, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "Usage: ptdump" in done.stderr and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--every", "5m"], "--every and --count go together"),
        (["--count", "3"], "--every and --count go together"),
        (["--qmp", "socket"], "--qmp and --cr3 go with --guest-tables"),
        (["--cr3", "0x1000"], "--qmp and --cr3 go with --guest-tables"),
        (["--guest-tables", "--cr3", "x"], "'x' is no address"),
        (["--every", "5d", "--count", "3"], "'5d' is no duration; write it like 500ms, 30s or 30, 5m or 1h"),
        (["--every", "0s", "--count", "3"], "'0s': give more than 0"),
    ],
)
def test_options_that_go_together_are_asked_for_together(arguments, why):
    done = CliRunner().invoke(command, ["vm", "1", "-o", "d", *arguments])
    assert done.exit_code == 2 and why in done.output


def test_a_vm_that_no_vcpu_has_entered_has_no_tables(bare_vm, tmp_path):
    done = ptdump_vm(os.getpid(), tmp_path / "d")
    assert_refused(done, tmp_path / "d", 2, "its VM has no tables now: no vCPU has run")


def test_a_vm_that_another_process_made_is_refused_with_the_process_to_dump(bare_vm, tmp_path):
    child = subprocess.Popen(["sleep", "60"], pass_fds=[bare_vm])
    try:
        done = ptdump_vm(child.pid, tmp_path / "d")
        assert_refused(done, tmp_path / "d", 2, f"another process; dump PID {os.getpid()}, which made it")
    finally:
        child.kill()
        child.wait()


def test_one_of_several_vms_is_chosen_by_its_descriptor(vmm, tmp_path):
    need_kvm()
    with running(vmm, 16, 4096, 2) as (process, words):
        done = ptdump_vm(process.pid, tmp_path / "d")
        assert_refused(done, tmp_path / "d", 2, "holds several VMs; choose one with --vm FD: ")
        listed = done.stderr.rpartition(": ")[2].strip().split(", ")
        assert len(listed) == 2 and words["vm"] in listed
        done = ptdump_vm(process.pid, tmp_path / "d", "--vm", 0)
        assert_refused(done, tmp_path / "d", 2, "--vm 0 is no descriptor of a VM; they are: ")
        for descriptor in listed:
            assert ptdump_vm(process.pid, tmp_path / descriptor, "--vm", descriptor).returncode == 0
        one, other = (read_vm(tmp_path / descriptor) for descriptor in listed)
        assert set(one.tree.frame.tolist()).isdisjoint(other.tree.frame.tolist())
        dump_vm(process.pid, tmp_path / "capture", vm=int(words["vm"]))


def test_a_vm_that_ends_while_it_is_read_leaves_nothing(vmm, tmp_path):
    need_kvm()
    with running(vmm, 65536, 2 << 20) as (process, _):
        killer = threading.Timer(0.5, process.kill)
        killer.start()
        with pytest.raises((PartialDataError, UsageError), match=f"PID {process.pid}: .*") as caught:
            for attempt in range(1000):
                dump_vm(process.pid, tmp_path / f"d{attempt}")
    assert any(word in str(caught.value) for word in ("ended", "no such", "has exited", "not a VMM"))
    assert not (tmp_path / f"d{attempt}").exists()


@pytest.mark.parametrize("capability", ["bpf", "perfmon", "sys_ptrace", "sys_admin"])
def test_the_one_missing_capability_is_named(vmm, tmp_path, capability):
    inner = f"exec {PTDUMP} vm {os.getpid()} -o {tmp_path / 'd'}"
    line = ["capsh", f"--drop=cap_{capability}", "--", "-c", inner]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert_refused(done, tmp_path / "d", 2, f"missing capability CAP_{capability.upper()}")


def test_the_four_capabilities_are_enough(vmm, tmp_path):
    need_kvm()
    keep = {"bpf", "perfmon", "sys_ptrace", "sys_admin"}
    listed = subprocess.run(["capsh", "--print"], capture_output=True, text=True, check=True).stdout
    bounding = next(line for line in listed.splitlines() if line.startswith("Bounding set"))
    others = [name for name in bounding.partition("=")[2].split(",") if name and name[4:] not in keep]
    with running(vmm) as (process, _):
        inner = f"exec {PTDUMP} vm {process.pid} -o {tmp_path / 'd'} --stop"
        line = ["capsh", f"--drop={','.join(others)}", "--", "-c", inner]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
