"""What of this host can be used: tracer, dumper, rights, counters, KVM, nodes, disk; what each gives."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...core.errors import UsageError
from .native import native
from .qemu import qemu
from .ready import GROWTH, rehearse

BTF = Path("/sys/kernel/btf/vmlinux")
PERF = "apt install linux-perf, on Ubuntu linux-tools-generic"
COUNTERS = Path("/sys/bus/event_source/devices")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
NODES = Path("/sys/devices/system/node")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
ROOMY = 20 << 30


class Symptom(NamedTuple):
    """what    the part; `there`: whether it can be used
    found   in words; gives: what one can do with it; missing: how to get it, "" where it is there"""

    what: str
    there: bool
    found: str
    gives: str
    missing: str = ""


def examine(place: Path = Path()) -> Iterator[Symptom]:
    """Each part of this host; `place` is where captures would be made."""
    yield tracer()
    yield tool("dumper", "ptdump", "`dump`, `record`: page tables with the node of each")
    yield tool("survey", "ptsurvey", "`survey`: every process by its remote page tables; needs root")
    yield tool("sampler", "ptheat", "`heat`: which pages a process uses; needs root")
    yield btf()
    yield page_tables()
    yield counters()
    yield kvm()
    yield program("qemu-system-x86_64", "VMs to try things in (tests/lab)", "apt install qemu-system-x86")
    yield program("numactl", "runs with memory on chosen nodes, today", "apt install numactl")
    yield nodes()
    yield huge_pages()
    yield disk(place)


def program(name: str, gives: str, how: str) -> Symptom:
    path = shutil.which(name)
    return Symptom(name, path is not None, path or "not found", gives, "" if path else how)


def tracer() -> Symptom:
    gives = "`record`: traces of programs"
    try:
        found = qemu()
    except UsageError as error:
        name, _, why = str(error).partition(": ")
        return Symptom("tracer", False, f"{name} {why.partition('; ')[0]}", gives, why.partition("; ")[2])
    version = ".".join(map(str, found.version))
    return Symptom("tracer", True, f"QEMU {version}, {found.path}, with {found.plugin.name}", gives)


def tool(what: str, name: str, gives: str) -> Symptom:
    """A native tool of ours."""
    try:
        return Symptom(what, True, str(native(name)), gives)
    except UsageError as error:
        return Symptom(what, False, f"{name} not found", gives, str(error).partition("; ")[2])


def btf() -> Symptom:
    gives = "a dumper that runs on this kernel"
    if BTF.exists():
        return Symptom("BTF", True, str(BTF), gives)
    return Symptom("BTF", False, f"no {BTF}", gives, "a kernel built with CONFIG_DEBUG_INFO_BTF=y")


def page_tables() -> Symptom:
    """Tried on ourselves: capabilities, BPF and BTF together."""
    gives = "page tables of live processes and VMs"
    try:
        rehearse(native("ptdump"))
    except UsageError as error:
        why = str(error).removeprefix("page tables cannot be read: ").partition(". Nothing was run")[0]
        if "not found" in why:
            return Symptom("BPF and rights", False, "not tried without the dumper", gives, "see dumper")
        return Symptom("BPF and rights", False, why, gives, "sudo")
    return Symptom("BPF and rights", True, "read our own page tables", gives)


def counters() -> Symptom:
    gives = "`calibrate`: run times from measured walk cycles, narrower ranges"
    if not shutil.which("perf"):
        return Symptom("perf counters", False, "no perf", gives, PERF)
    units = [path.name for path in COUNTERS.glob("cpu*")] if COUNTERS.is_dir() else []
    if not units:
        return Symptom(
            "perf counters", False, "this CPU shows none (a VM without a virtual PMU)", gives,
            "run `perf stat` on real hardware, calibrate from its output here",
        )  # fmt: skip
    level = int(PARANOID.read_text()) if PARANOID.exists() else 0
    if level > 2 and os.geteuid():
        return Symptom("perf counters", False, f"perf_event_paranoid is {level}", gives, "sudo")
    return Symptom("perf counters", True, ", ".join(units), gives)


def kvm() -> Symptom:
    gives = "`dump vm`: nested page tables of VMs"
    device = Path("/dev/kvm")
    if not device.exists():
        return Symptom(
            "KVM", False, "no /dev/kvm", gives, "real hardware or nested virtualization; kvm module"
        )
    if not os.access(device, os.R_OK | os.W_OK):
        return Symptom("KVM", False, "/dev/kvm: no permission", gives, "join the group kvm, or sudo")
    return Symptom("KVM", True, "/dev/kvm", gives)


def nodes() -> Symptom:
    count = max(len(list(NODES.glob("node[0-9]*"))), 1)
    gives = "captures of where a kernel placed page tables on several nodes"
    missing = "" if count > 1 else "a machine model: -m, see `ptanalyze machines`"
    return Symptom("NUMA nodes", count > 1, f"{count}", gives, missing)


def huge_pages() -> Symptom:
    gives = "2 MiB pages: what the policy thp estimates"
    if not THP.exists():
        return Symptom("huge pages", False, f"no {THP}", gives, "a kernel with CONFIG_TRANSPARENT_HUGEPAGE")
    chosen = re.search(r"\[(\w+)\]", THP.read_text())
    state = chosen[1] if chosen else "unknown"
    how = f"echo always | sudo tee {THP}"
    return Symptom("huge pages", state != "never", state, gives, "" if state == "always" else how)


def disk(place: Path) -> Symptom:
    free = shutil.disk_usage(place).free
    seconds = free / GROWTH
    found = f"{free / 1e9:.0f} GB free here"
    gives = f"traces of {seconds:.0f} s of one thread's own time and more"
    missing = "" if free > ROOMY else "free space, or --max-bytes"
    return Symptom("disk", free > ROOMY, found, gives, missing)
