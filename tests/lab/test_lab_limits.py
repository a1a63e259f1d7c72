"""`ptdump process` in control groups of version 2 and under each of Yama's ptrace_scope."""

import pytest

from ptanalyze.formats.snapshot import read_snapshot

from . import images
from .machine import SVM_CPU, Machine
from .runs import boot
from .touched import Region, arguments, bind

TABLES = Region("4k", bind(0), bind(0), mib=16 << 10, step=2 << 20)  # 8,192 leaf tables: 32 MiB
LIMIT = 600  # seconds: the end of a machine that hangs, however busy this one is
ENOUGH, TIGHT = 256, 48  # MiB of a control group


@pytest.mark.lab(full=True)
def test_control_groups_of_version_2_and_yama(kernel, ptdump, programs, place, request):
    machine = Machine(nodes=1, fast=True, cpu=SVM_CPU)
    files = {
        "script": images.LAB / "scripts/limits.sh",
        "ptdump": ptdump,
        "toucher": programs / "toucher",
        "vmm": programs / "vmm",
        "toucher.arguments": arguments(1 << 40, [TABLES]),
        "group.mib": f"{ENOUGH} {TIGHT}",
    }
    image = images.initramfs(kernel, modules=["kvm_amd"], libraries_of=[ptdump])
    share = boot(request.node.name, machine, kernel, image, files, place, limit=LIMIT, tries=2).share
    streamed = {}
    for mib in (ENOUGH, TIGHT):
        assert (share / f"in{mib}.status").read_text() == "0\n", (share / f"in{mib}.output").read_text()
        assert "oom_kill 0" in (share / f"in{mib}.events").read_text()
        dump = read_snapshot(share / f"in{mib}")
        assert len(dump.guest) > 8192
        streamed[mib] = dump.facts["streamed"]
    assert streamed == {ENOUGH: False, TIGHT: True}
    for scope in range(4):
        assert (share / f"scope{scope}.status").read_text() == "0\n", "Yama refuses those who attach alone"
        memory, vm = ((share / f"scope{scope}.{what}").read_text() for what in ("memory", "vm"))
        assert ("Permission denied" in memory) == (scope == 3), (
            "/proc/PID/mem, which guest tables are read from"
        )
        assert ("needs CAP_SYS_PTRACE, and kernel.yama.ptrace_scope below 3" in vm) == (scope == 3), vm
