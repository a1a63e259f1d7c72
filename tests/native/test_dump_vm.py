"""ptdump vm on a little VMM of ours: what it finds, other kernels, and no VM to dump."""

import fcntl
import os
import re
import stat
import struct
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from native import dumping
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.check.vm import check_live
from ptanalyze.cli import run
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import read_manifest
from ptanalyze.formats.snapshot import read_snapshot, read_vm
from ptanalyze_host.dump_command import command
from ptanalyze_host.guests import dump_vm

# ptdump vm on a little VMM of ours: roots, slots, vCPUs, every leaf, as far as the KVM here goes.

BYTES = 64 * dumping.MIB
FILES = ["ept.entries", "ept.tables", "maps", "vm.json"]


@pytest.fixture(scope="module")
def live_vmm(vmm):
    dumping.need_kvm()
    return vmm


@pytest.fixture(scope="module")
def vm(live_vmm):
    with dumping.running(live_vmm) as (process, words):
        assert words, "the guest did not run, though there is a /dev/kvm"
        yield process.pid, {name: int(value) for name, value in words.items()}


@pytest.fixture(scope="module")
def host(vm, tmp_path_factory):
    directory = tmp_path_factory.mktemp("dump") / "d"
    done = dumping.ptdump_vm(vm[0], directory, "--stop")
    assert done.returncode == 0, done.stderr
    return read_vm(directory)


def nested_paging():
    for path in ("kvm_intel/parameters/ept", "kvm_amd/parameters/npt"):
        parameter = Path("/sys/module") / path
        if parameter.exists() and parameter.read_text().strip() in ("Y", "1"):
            return path.rpartition("/")[2]
    return "none"


def test_roots_are_named_by_what_the_host_uses_and_shadow_tables_never_pass_for_nested_ones(host):
    assert host.facts["nested_paging"] == nested_paging()
    kinds = {root.kind for root in host.roots}
    assert kinds == {"shadow"} if nested_paging() == "none" else kinds <= {"tdp_mmu", "legacy"}
    assert host.tree.encoding == "kvm" and all(root.table is not None for root in host.roots)


def test_every_page_the_guest_wrote_is_a_leaf_and_what_pagemap_says_is_behind_it(host, vm):
    rows = dumping.leaves(host.tree)
    high = rows[(rows[:, 0] >= dumping.HIGH) & (rows[:, 0] < dumping.HIGH + BYTES)]
    assert (512 ** (high[:, 1] - 1)).sum() == BYTES // 4096 and high[:, 3].all()
    first, *others = check_live(dumping.as_if_nested(host), vm[0])
    assert first.verdict == "ok" and first.examined >= BYTES // 4096 and not first.wrong
    assert not others


def test_slots_say_where_the_guests_memory_is_in_the_vmm(host, vm):
    found = {slot.gpa: slot for slot in host.slots if slot.space == 0}
    assert (found[0].bytes, found[0].hva) == (dumping.LOW, vm[1]["low"])
    assert (found[dumping.HIGH].bytes, found[dumping.HIGH].hva) == (BYTES, vm[1]["high"])
    assert not any(slot.flags for slot in (found[0], found[dumping.HIGH]))


def test_the_vcpu_is_the_thread_that_ran_it_on_its_cpu_and_node(host, vm):
    (vcpu,) = host.vcpus
    assert vcpu.tid == vm[0] and vcpu.root in [root.frame for root in host.roots]
    assert vcpu.cpu in os.sched_getaffinity(0) and vcpu.node == host.topology.node_of_cpu()[vcpu.cpu]


def test_the_tree_is_closed_and_as_large_as_kvm_counts(host):
    dumping.assert_closed(host.tree)
    assert len(np.unique(host.tree.frame)) == len(host.tree) and not host.tree.flags.any()
    assert np.array_equal(host.topology.node_of_frame(host.tree.frame), host.tree.node)
    after = host.facts["quiescence"]["after"]
    if {root.kind for root in host.roots} == {"shadow"}:
        assert len(host.tree) == after["n_used_mmu_pages"]


def test_a_stopped_vmm_is_read_quietly_and_goes_on(host, vm):
    facts = host.facts
    assert facts["stopped"] and facts["quiescence"]["quiet"] and not any(facts["reading"].values())
    assert facts["pid"] == vm[0] and facts["comm"] == "vm_guest" and facts["files_checked"]
    assert facts["retries"] == 0 and not facts["dirty_logging"] and facts["confidential"] == ""
    assert dumping.state(vm[0]) == "S"


def test_a_capture_of_a_vm_is_sealed_private_and_is_called_and_checks_as_what_it_is(vm, tmp_path, capsys):
    expected = 3 if nested_paging() == "none" else 0
    assert run(["dump", "vm", str(vm[0]), "--stop", "-o", str(tmp_path / "host")]) == expected
    first, said = capsys.readouterr().err.splitlines()
    assert "GB/s" in first and ("not known: nested page tables" in said) is bool(expected)
    manifest = read_manifest(tmp_path / "host")
    assert manifest.kind == "vm-host" and sorted(manifest.files) == FILES
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "host").iterdir())
    assert exit_code(list(check_capture(open_capture(tmp_path / "host")))) == expected


def test_a_running_guest_is_stopped_and_goes_on_even_when_the_dumper_is_killed(live_vmm, tmp_path):
    with dumping.running(live_vmm, 65536, 2 * dumping.MIB, 1, "spin") as (process, _):
        assert dumping.ptdump_vm(process.pid, tmp_path / "d", "--stop").returncode == 0
        command = [dumping.PTDUMP, "vm", str(process.pid), "-o", tmp_path / "e", "--stop"]
        dumper = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert dumping.wait_for(lambda: dumping.state(process.pid) == "T")
        dumper.kill()
        dumper.wait()
        assert dumping.wait_for(lambda: dumping.state(process.pid) in "RS")


def test_a_guest_whose_memory_is_taken_away_gives_closed_trees_and_says_what_changed(live_vmm, tmp_path):
    noisy = good = 0
    with dumping.running(live_vmm, 2048, 65536, 1, "churn") as (process, _):
        for attempt in range(dumping.MANY):
            if noisy and good >= 4:
                break
            done = dumping.ptdump_vm(process.pid, tmp_path / f"d{attempt}", "--retries", 0)
            assert done.returncode == 0 or (done.returncode == 2 and "can be dumped" in done.stderr)
            if done.returncode:
                continue
            host = read_vm(tmp_path / f"d{attempt}")
            dumping.assert_closed(host.tree)
            for bit, name in enumerate(("changed", "torn", "fault", "bad_type")):
                assert (host.tree.flags >> bit & 1).sum() == host.facts["reading"][name]
            good += 1
            noisy += not host.facts["quiescence"]["quiet"]
        assert good and noisy
        assert dumping.ptdump_vm(process.pid, tmp_path / "s", "--stop").returncode in (0, 2)


def test_shadow_tables_that_several_entries_share_appear_below_each(live_vmm, tmp_path):
    with dumping.running(live_vmm, 16, 4096, 1, 2) as (process, _):
        assert dumping.ptdump_vm(process.pid, tmp_path / "d").returncode == 0
    tree = read_vm(tmp_path / "d").tree
    dumping.assert_closed(tree)
    rows = dumping.leaves(tree)
    found = {at: dict(rows[rows[:, 0] >> 39 == at][:, [0, 2]].tolist()) for at in (0, 1, 2)}
    for at in (1, 2) if nested_paging() == "none" else ():
        assert found[at] and found[at].items() <= {a + (at << 39): f for a, f in found[0].items()}.items()


def test_a_guest_that_shares_its_tables_everywhere_does_not_blow_up_the_dump(live_vmm, tmp_path):
    with dumping.running(live_vmm, 2048, 2 * dumping.MIB, 1, 200) as (process, _):
        done = dumping.ptdump_vm(process.pid, tmp_path / "d")
        used = sum(path.stat().st_size for path in tmp_path.rglob("*"))
    if nested_paging() == "none":
        assert (done.returncode, used) == (2, 0)
        assert "tables: they lead to one another too often for a tree" in done.stderr


def test_the_guests_own_tables_are_read_through_its_slots(vm, tmp_path):
    lines = dump_vm(vm[0], tmp_path / "host", guest=True)
    assert any(line.startswith("root 0x1000 of vCPU 0: 4 tables") for line in lines)
    guest = read_snapshot(tmp_path / "host/cr3-1").guest
    assert guest.frame.tolist() == [1, 2, 0x100, 0x101] and guest.level.tolist() == [4, 3, 2, 2]
    rows = dumping.leaves(guest)
    assert (rows[:, 0] == rows[:, 2] << 12).all()
    assert rows[-1, 0] == dumping.HIGH + (1 << 30) - 2 * dumping.MIB
    assert sorted(read_manifest(tmp_path / "host").files) == FILES


# ptdump vm when there is no VM to dump, or more than one: one line says why, and nothing stays behind.

KVM_CREATE_VM = 0xAE01


@pytest.fixture
def bare_vm(vmm):
    """Descriptor of a VM without vCPUs, made by this very process."""
    dumping.need_kvm()
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
    done = dumping.ptdump_vm(os.getpid(), tmp_path / "d")
    assert_refused(done, tmp_path / "d", 2, "not a VMM: it has no kvm-vm or kvm-vcpu file")
    with pytest.raises(UsageError, match="not a VMM"):
        dump_vm(os.getpid(), tmp_path / "d")
    assert not any(tmp_path.iterdir())


def test_a_file_that_only_bears_the_name_is_no_vm(vmm, tmp_path):
    with open(tmp_path / "anon_inode:kvm-vm", "w"):
        assert_refused(dumping.ptdump_vm(os.getpid(), tmp_path / "d"), tmp_path / "d", 2, "not a VMM")


@pytest.mark.parametrize(("pid", "why"), [(2**22 + 1, "no such process"), (2, "a kernel thread")])
def test_what_is_no_process_with_memory_is_refused(vmm, tmp_path, pid, why):
    assert_refused(dumping.ptdump_vm(pid, tmp_path / "d"), tmp_path / "d", 2, why)


@pytest.mark.parametrize(
    "arguments",
    [["vm"], ["vm", "1"], ["vm", "1", "-o", "d", "--verify"], ["process", "1", "-o", "d", "--vm", "3"]],
)
def test_wrong_usage_ends_with_2(vmm, tmp_path, arguments):
    command = [dumping.PTDUMP, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "Usage: ptdump" in done.stderr and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--cr3", "0x1000"], "--cr3 goes with --guest-tables"),
        (["--guest-tables", "--cr3", "x"], "'x' is not an address"),
    ],
)
def test_options_that_go_together_are_asked_for_together(arguments, why):
    done = CliRunner().invoke(command, ["vm", "1", "-o", "d", *arguments])
    assert done.exit_code == 2 and why in done.output


def test_a_vm_that_no_vcpu_has_entered_has_no_tables(bare_vm, tmp_path):
    done = dumping.ptdump_vm(os.getpid(), tmp_path / "d")
    assert_refused(done, tmp_path / "d", 2, "its VM has no tables now: no vCPU has run")


def test_a_vm_that_another_process_made_is_refused_with_the_process_to_dump(bare_vm, tmp_path):
    child = subprocess.Popen(["sleep", "60"], pass_fds=[bare_vm])
    try:
        done = dumping.ptdump_vm(child.pid, tmp_path / "d")
        assert_refused(done, tmp_path / "d", 2, f"another process; dump PID {os.getpid()}, which made it")
    finally:
        child.kill()
        child.wait()


def test_one_of_several_vms_is_chosen_by_its_descriptor(vmm, tmp_path):
    dumping.need_kvm()
    with dumping.running(vmm, 16, 4096, 2) as (process, words):
        done = dumping.ptdump_vm(process.pid, tmp_path / "d")
        assert_refused(done, tmp_path / "d", 2, "holds several VMs; choose one with --vm FD: ")
        listed = done.stderr.rpartition(": ")[2].strip().split(", ")
        assert len(listed) == 2 and words["vm"] in listed
        done = dumping.ptdump_vm(process.pid, tmp_path / "d", "--vm", 0)
        assert_refused(done, tmp_path / "d", 2, "--vm 0 is not a descriptor of a VM; they are: ")
        for descriptor in listed:
            assert dumping.ptdump_vm(process.pid, tmp_path / descriptor, "--vm", descriptor).returncode == 0
        one, other = (read_vm(tmp_path / descriptor) for descriptor in listed)
        assert set(one.tree.frame.tolist()).isdisjoint(other.tree.frame.tolist())
        dump_vm(process.pid, tmp_path / "capture", vm=int(words["vm"]))


def test_a_vm_that_ends_while_it_is_read_leaves_nothing(vmm, tmp_path):
    dumping.need_kvm()
    with dumping.running(vmm, 65536, 2 << 20) as (process, _):
        threading.Timer(0.5, process.kill).start()
        with pytest.raises((PartialDataError, UsageError), match=f"PID {process.pid}: .*") as caught:
            for attempt in range(1000):
                dump_vm(process.pid, tmp_path / f"d{attempt}")
    assert any(word in str(caught.value) for word in ("ended", "no such", "has exited", "not a VMM"))
    assert not (tmp_path / f"d{attempt}").exists()


def test_levels_are_numbered_as_kvm_numbers_them():
    text = (dumping.REPOSITORY / "dumps/build/vmlinux.h").read_text()
    levels = dict(re.findall(r"\bPG_LEVEL_(4K|2M|1G|512G) = (\d)", text))
    assert levels == {"4K": "1", "2M": "2", "1G": "3", "512G": "4"}
    assert 1 << (3 + 9 * int(levels["1G"])) == dumping.MIB << 10


# ptdump's KVM programs, loaded with the BTF of kernels whose structures differ from this one's.

BTF = Path("/sys/kernel/btf")
HEADER = struct.Struct("<HBBIIIII")  # struct btf_header
N_USED = (b"n_used_mmu_pages", b"x_used_mmu_pages")
IN_STATISTICS = (b"mmu_shadow_zapped", b"mmu_shadow_pages\0")  # another u64 of kvm_vm_stat


def parts(path):
    """Types and strings of a BTF file."""
    data = path.read_bytes()
    *_, header, types, types_length, strings, strings_length = HEADER.unpack_from(data)
    types, strings = header + types, header + strings
    return data[types : types + types_length], data[strings : strings + strings_length]


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    dumping.need_kvm()
    dumping.make("dumps")
    program = tmp_path_factory.mktemp("loader") / "kvm_load"
    includes = [f"-I{dumping.REPOSITORY / part}" for part in ("dumps", "dumps/build")]
    subprocess.run(["cc", *includes, "-o", program, dumping.PROGRAMS / "kvm_load.c", "-lbpf"], check=True)
    return program


@pytest.mark.parametrize("renamed", [[], [N_USED], [N_USED, IN_STATISTICS]], ids=["here", "nowhere", "7.2"])
def test_the_number_of_shadow_tables_may_be_elsewhere_or_nowhere(loader, tmp_path, renamed):
    """Numbers in the BTF of the module kvm go on where the kernel's end."""
    types, strings = parts(BTF / "vmlinux")
    if (BTF / "kvm").exists():
        types, strings = (a + b for a, b in zip((types, strings), parts(BTF / "kvm"), strict=True))
    btf = HEADER.pack(0xEB9F, 1, 0, HEADER.size, 0, len(types), len(types), len(strings)) + types + strings
    for old, new in renamed:
        assert btf.count(b"\0" + old + b"\0") == 1
        btf = btf.replace(b"\0" + old + b"\0", b"\0" + new + b"\0")
    (tmp_path / "btf").write_bytes(btf)
    done = subprocess.run([loader, tmp_path / "btf"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
