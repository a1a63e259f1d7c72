"""ptdump vm on a little VMM of ours: roots, slots, vCPUs, every leaf, as far as the KVM here goes."""

import json
import os
import signal
import socket
import stat
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from native.dumping import MANY, PTDUMP, assert_closed, leaves, running, state, wait_for
from native.vms import HIGH, LOW, MIB, as_if_nested, need_kvm, ptdump_vm
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.capture.check.vm import check_live
from ptanalyze.capture.live.dump_vm import dump_vm, dump_vm_series
from ptanalyze.core.errors import PartialDataError, UsageError
from ptanalyze.formats.manifest import read_manifest
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.formats.vm import read_vm

pytestmark = pytest.mark.native
BYTES = 64 * MIB
FILES = ["ept.entries", "ept.tables", "maps", "vm.json"]


@pytest.fixture(scope="module")
def vmm(vmm):
    need_kvm()
    return vmm


@pytest.fixture(scope="module")
def vm(vmm):
    with running(vmm) as (process, words):
        assert words, "the guest did not run, though there is a /dev/kvm"
        yield process.pid, {name: int(value) for name, value in words.items()}


@pytest.fixture(scope="module")
def host(vm, tmp_path_factory):
    directory = tmp_path_factory.mktemp("dump") / "d"
    done = ptdump_vm(vm[0], directory, "--stop")
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
    rows = leaves(host.tree)
    high = rows[(rows[:, 0] >= HIGH) & (rows[:, 0] < HIGH + BYTES)]
    assert (512 ** (high[:, 1] - 1)).sum() == BYTES // 4096 and high[:, 3].all()
    first, *others = check_live(as_if_nested(host), vm[0])
    assert first.verdict == "ok" and first.examined >= BYTES // 4096 and not first.wrong
    assert [each.name for each in others] == ["ept: as many leaves as KVM"] and others[0].verdict == "ok"


def test_slots_say_where_the_guests_memory_is_in_the_vmm(host, vm):
    found = {slot.gpa: slot for slot in host.slots if slot.space == 0}
    assert (found[0].bytes, found[0].hva) == (LOW, vm[1]["low"])
    assert (found[HIGH].bytes, found[HIGH].hva) == (BYTES, vm[1]["high"])
    assert not any(slot.flags for slot in (found[0], found[HIGH]))


def test_the_vcpu_is_the_thread_that_ran_it_on_its_cpu_and_node(host, vm):
    (vcpu,) = host.vcpus
    assert vcpu.tid == vm[0] and vcpu.root in [root.frame for root in host.roots]
    assert vcpu.cpu in os.sched_getaffinity(0) and vcpu.node == host.topology.node_of_cpu()[vcpu.cpu]


def test_the_tree_is_closed_and_as_large_as_kvm_counts(host):
    assert_closed(host.tree)
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
    assert state(vm[0]) == "S"


def without_age(tree):
    """The entries of present tables without the accessed bits, which the kernel clears when it ages pages."""
    return tree.entries & ~np.uint64(1 << 5 | 1 << 8)


def test_tables_that_do_not_fit_in_memory_are_streamed_with_the_same_result(vmm, tmp_path):
    with running(vmm, 4096, 2 * MIB) as (process, _):
        process.send_signal(signal.SIGSTOP)
        assert wait_for(lambda: state(process.pid) == "T")
        for name, options in (("a", ()), ("b", ("--memory", 1))):
            assert ptdump_vm(process.pid, tmp_path / name, *options).returncode == 0
        whole, streamed = read_vm(tmp_path / "a"), read_vm(tmp_path / "b")
    assert streamed.facts["streamed"] and not whole.facts["streamed"] and len(whole.tree) > 2048
    assert np.array_equal(without_age(whole.tree), without_age(streamed.tree))
    assert np.array_equal(whole.tree.frame, streamed.tree.frame)


def test_a_capture_of_a_vm_is_sealed_private_and_checks_as_what_it_is(vm, tmp_path):
    from ptanalyze.formats.capture import open_capture

    lines = dump_vm(vm[0], tmp_path / "host", stop=True)
    manifest = read_manifest(tmp_path / "host")
    assert manifest.kind == "vm-host" and sorted(manifest.files) == FILES and "GB/s" in lines[0]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (tmp_path / "host").iterdir())
    expected = 3 if nested_paging() == "none" else 0
    assert exit_code(list(check_capture(open_capture(tmp_path / "host")))) == expected


def test_a_series_is_as_many_sealed_captures_in_time(vm, tmp_path):
    begun = time.monotonic()
    made = [capture for capture, _ in dump_vm_series(vm[0], tmp_path / "h", 0.2, 3)]
    assert [capture.name for capture in made] == ["h.0001", "h.0002", "h.0003"]
    assert time.monotonic() - begun >= 0.4
    assert all(read_manifest(capture).kind == "vm-host" for capture in made)
    with pytest.raises(UsageError, match=r"h\.0001: exists already"):
        next(dump_vm_series(vm[0], tmp_path / "h", 0.2, 3))


def test_a_series_ends_with_what_was_made_when_the_vm_goes_away(vmm, tmp_path):
    with running(vmm) as (process, _):
        series = dump_vm_series(process.pid, tmp_path / "h", 0.1, 3)
        next(series)
        process.kill()
        process.wait()
        with pytest.raises(PartialDataError, match=r"1 of 3 dumps made: PID .*no such process"):
            next(series)
    assert [path.name for path in tmp_path.iterdir()] == ["h.0001"]


def test_a_running_guest_is_stopped_and_goes_on_even_when_the_dumper_is_killed(vmm, tmp_path):
    with running(vmm, 65536, 2 * MIB, 1, "spin") as (process, _):
        assert ptdump_vm(process.pid, tmp_path / "d", "--stop").returncode == 0
        command = [PTDUMP, "vm", str(process.pid), "-o", tmp_path / "e", "--stop"]
        dumper = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert wait_for(lambda: state(process.pid) == "T")
        dumper.kill()
        dumper.wait()
        assert wait_for(lambda: state(process.pid) in "RS")


def test_a_guest_whose_memory_is_taken_away_gives_closed_trees_and_says_what_changed(vmm, tmp_path):
    noisy = good = 0
    with running(vmm, 2048, 65536, 1, "churn") as (process, _):
        for attempt in range(MANY):
            if noisy and good >= 4:
                break
            done = ptdump_vm(process.pid, tmp_path / f"d{attempt}", "--retries", 0)
            assert done.returncode == 0 or (done.returncode == 2 and "can be dumped" in done.stderr)
            if done.returncode:
                continue
            host = read_vm(tmp_path / f"d{attempt}")
            assert_closed(host.tree)
            for bit, name in enumerate(("changed", "torn", "fault", "bad_type")):
                assert (host.tree.flags >> bit & 1).sum() == host.facts["reading"][name]
            good += 1
            noisy += not host.facts["quiescence"]["quiet"]
        assert good and noisy
        assert ptdump_vm(process.pid, tmp_path / "s", "--stop").returncode in (0, 2)


def test_shadow_tables_that_several_entries_share_appear_below_each(vmm, tmp_path):
    with running(vmm, 16, 4096, 1, 2) as (process, _):
        assert ptdump_vm(process.pid, tmp_path / "d").returncode == 0
    tree = read_vm(tmp_path / "d").tree
    assert_closed(tree)
    rows = leaves(tree)
    found = {at: dict(rows[rows[:, 0] >> 39 == at][:, [0, 2]].tolist()) for at in (0, 1, 2)}
    for at in (1, 2) if nested_paging() == "none" else ():
        assert found[at] and found[at].items() <= {a + (at << 39): f for a, f in found[0].items()}.items()


def test_a_guest_that_shares_its_tables_everywhere_does_not_blow_up_the_dump(vmm, tmp_path):
    with running(vmm, 2048, 2 * MIB, 1, 200) as (process, _):
        done = ptdump_vm(process.pid, tmp_path / "d")
        used = sum(path.stat().st_size for path in tmp_path.rglob("*"))
    if nested_paging() == "none":
        assert (done.returncode, used) == (2, 0)
        assert "tables: they lead to one another too often for a tree" in done.stderr


@contextmanager
def answering(path, cr3):
    """A QMP socket that says of one vCPU in 64-bit mode what the monitor of QEMU would."""
    answers = {
        "qmp_capabilities": {},
        "query-cpus-fast": [{"cpu-index": 0, "thread-id": 1}],
        "human-monitor-command": f"CR0=80050033 CR2=0 CR3={cr3:x} CR4=000006a0 EFER=0000000000000d01",
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve():
            there, _ = server.accept()
            with there, there.makefile("rw") as lines:
                print(json.dumps({"QMP": {}}), file=lines, flush=True)
                for line in lines:
                    print(
                        json.dumps({"return": answers[json.loads(line)["execute"]]}), file=lines, flush=True
                    )

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join(10)


def test_the_guests_own_tables_are_read_through_its_slots_without_anyone_inside(vm, tmp_path):
    with answering(tmp_path / "qmp", 0x1000) as path:
        lines = dump_vm(vm[0], tmp_path / "host", qmp=path)
    assert any(line.startswith("root 0x1 of vCPU 0: 4 tables") for line in lines)
    guest = read_snapshot(tmp_path / "host/cr3-1").guest
    assert guest.frame.tolist() == [1, 2, 0x100, 0x101] and guest.level.tolist() == [4, 3, 2, 2]
    rows = leaves(guest)
    assert (rows[:, 0] == rows[:, 2] << 12).all() and rows[-1, 0] == HIGH + (1 << 30) - 2 * MIB
    assert sorted(read_manifest(tmp_path / "host").files) == FILES


def test_nothing_is_kept_when_the_guests_tables_cannot_be_read(vm, tmp_path):
    with pytest.raises(UsageError, match="cannot talk to QEMU"):
        dump_vm(vm[0], tmp_path / "host", qmp=tmp_path / "none")
    with answering(tmp_path / "qmp", 1 << 40) as path, pytest.raises(UsageError, match="cannot be read"):
        dump_vm(vm[0], tmp_path / "host", qmp=path)
    assert [path.name for path in tmp_path.iterdir()] == ["qmp"]
