"""What the tests of `ptdump vm` share: a little VMM of ours, and dumps of its guest."""

import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from native.dumping import PROGRAMS, PTDUMP, make

MIB = 1 << 20
LOW = 16 * MIB  # of memory at guest-physical 0: code and page tables
HIGH = 1 << 30  # where the memory begins that the guest writes to


def build_vmm(tmp_path_factory):
    """Path of the compiled VMM; also builds ptdump."""
    make("dumps")
    program = tmp_path_factory.mktemp("vmm") / "vm_guest"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-pthread", "-o", program, PROGRAMS / "vm_guest.c"]
    subprocess.run(command, check=True)
    return program


def need_kvm():
    """Without the device there is no VM to dump; a device that is there must work."""
    if not Path("/dev/kvm").exists():
        pytest.skip("no /dev/kvm on this machine: dumps of VMs are not tested")


def ptdump_vm(pid, directory, *options):
    command = [PTDUMP, "vm", str(pid), "-o", directory, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def as_if_nested(host):
    """HostDump whose shadow roots are called nested ones: right for our guest, whose own map is identity."""
    roots = tuple(msgspec.structs.replace(root, kind="legacy") for root in host.roots)
    return replace(host, roots=roots)
