"""`ptanalyze doctor`: what of this host can be used, and what each missing part would give."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

import ptanalyze as pt

from . import sysfs
from .survey import host_nodes

BTF = Path("/sys/kernel/btf/vmlinux")
PERF = "apt install linux-perf, on Ubuntu linux-tools-generic"
COUNTERS = Path("/sys/bus/event_source/devices")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
KVM = Path("/dev/kvm")
NESTED = (Path("/sys/module/kvm_intel/parameters/ept"), Path("/sys/module/kvm_amd/parameters/npt"))
STATUS = Path("/proc/self/status")
ROOMY = 20 << 30
# include/uapi/linux/capability.h: what dumps/privileges.c asks for
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}

LIVE = ("dump", "rights")
NEEDS = dict.fromkeys(("record -p", "dump process", "survey"), LIVE) | {  # parts that a command needs
    "record": ("trace", *LIVE),
    "record --no-dump": ("trace",),
    "dump vm": (*LIVE, "kvm"),
    **dict.fromkeys(PAGES := ("trial --pages", "hugepages"), ("rights",)),  # whatever thp is set to
    "relocate": (*LIVE, "nodes"),
}


@click.command("doctor")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, for a fleet: host, kernel, version, a summary (commands that work here, parts that are "
    "missing), and for each part id, what, there, found, gives, missing.",
)
@click.option(
    "--require",
    "required",
    metavar="ID,...",
    help="Exit with 1 unless all of these can be used: trace, dump, btf, rights, counters, kvm, nodes, thp, "
    "disk. Default: none.",
)
def command(as_json: bool, required: str | None) -> int:
    """Check what this host supports: tracer, dumper, rights, counters, KVM, nodes, disk.

    For anything missing, it prints what that would enable and how to get it. What needs root is missing
    without root. It changes nothing; as root it reads its own page tables as a test. Analysis alone needs
    none of this. The manual's page on permissions lists the rights that each command needs. Exit code 0
    whatever is missing, with --require 1 if one of those parts is.

    \b
    Examples:
      ptanalyze doctor
      sudo ptanalyze doctor --json
      sudo ptanalyze doctor --json | jq -e '.summary.commands | index("survey")'
      sudo ptanalyze doctor --require trace,dump,rights
    """
    parts = {part.id: part for part in examine()}
    asked = [name.strip() for name in required.split(",")] if required is not None else []
    for name in asked:
        if name not in parts:
            meant = pt.errors.meant(name, [*parts])
            raise pt.UsageError(f"--require {name}: no such part; {meant}known: {', '.join(parts)}")
    if as_json:
        host = os.uname()
        about: dict[str, Any] = {"host": host.nodename, "kernel": host.release, "version": pt.__version__}
        missing = [one.id for one in parts.values() if one.missing]
        about["summary"] = {"commands": usable(parts), "missing": missing}
        pt.terminal.print_json("doctor", [part._asdict() for part in parts.values()], {}, **about)
    else:
        pt.terminal.print_view(view([*parts.values()]))
    lacking = [parts[name] for name in dict.fromkeys(asked) if not parts[name].there]
    for part in lacking:
        why = "; ".join(filter(None, (f"missing ({part.found})", part.missing)))
        pt.options.echo(f"ptanalyze: --require {part.id}: {why}", err=True)
    return 1 if lacking else 0


def view(parts: Sequence[Capability]) -> Iterator[pt.columns.Section]:
    """What one can do here, then a line for each part that can be used, and for each other what it needs."""
    from textwrap import wrap

    from rich.text import Text

    yield pt.columns.Section(lines=[*can({part.id: part for part in parts}), ""])
    lines: list[str | Text] = []
    for part in sorted(parts, key=lambda part: not part.there):
        mark = ("  ok", "green") if part.there else ("  --", "yellow")
        width = pt.terminal.SCREEN - 27
        first, *rest = wrap(part.found, width, break_long_words=False, break_on_hyphens=False)
        lines.append(Text.assemble(mark, f"  {part.what:<20} {first}"))
        lines += [Text(f"{'':<27}{line}") for line in rest]
        if part.missing:
            lines += [Text(f"{'':<8}gives {part.gives}"), Text(f"{'':<8}needs: {part.missing}")]
    yield pt.columns.Section(lines=lines)


def usable(parts: dict[str, Capability]) -> list[str]:
    """Commands all of whose parts are there."""
    kept = PAGES if pt.live.keeps_page_size(os.getpid()) else ()
    gone = {name for name, part in parts.items() if not part.there}
    return [name for name, needs in NEEDS.items() if name not in kept and gone.isdisjoint(needs)]


def can(parts: dict[str, Capability]) -> list[str]:
    """What to do with what is there, in a sentence, and the line to type; on one node page size is first."""
    here, root, own = usable(parts), f"  {pt.errors.as_root()} ", f"  {pt.errors.program()} "
    size = "On one node page size is the question; a process that makes system calls answers it:"
    alone = "trial --pages" in here and not parts["nodes"].there
    pages = [size, f"{root}trial --pages -p NAME"] if alone else []
    if not parts["trace"].there:
        return [*pages, "You can analyse captures and the bundled samples:", f"{own}whatif -p hydra"]
    if "record" in here or parts["dump"].missing == "sudo":
        who = "You" if "record" in here else "As root you"
        return [*pages, f"{who} can record programs with page tables:", f"{root}record -- ./app"]
    return [*pages, "You can record traces without page tables:", f"{own}record --no-dump -- ./app"]


class Capability(NamedTuple):
    """A part of this host that commands use.

    id       stable, for scripts (`doctor --require`); what: the same for people
    there    whether we can use it, with the rights that we have; found: in words
    gives    what it is for
    missing  how to get it; "" where it is there, or this machine has none and nothing is wrong
    """

    id: str
    what: str
    there: bool
    found: str
    gives: str
    missing: str = ""


def examine() -> Iterator[Capability]:
    """Each part of this host."""
    yield tracer()
    yield dumper()
    gives = "a dumper that runs on this kernel"
    missing = "" if BTF.exists() else "a kernel built with CONFIG_DEBUG_INFO_BTF=y"
    yield Capability("btf", "BTF", not missing, f"no {BTF}" if missing else f"{BTF}", gives, missing)
    yield page_tables()
    yield counters()
    yield kvm()
    gives = "captures of where a kernel placed page tables on several nodes"
    found = f"{count}" if (count := host_nodes()) > 1 else "1: no page table is remote on this machine"
    yield Capability("nodes", "NUMA nodes", count > 1, found, gives)
    yield huge_pages()
    yield disk()


def tracer() -> Capability:
    gives = "`record`: traces of programs"
    try:
        emulator = pt.live.qemu()
    except pt.UsageError as error:
        name, _, why = str(error).partition(": ")
        reason, _, how = why.partition("; ")
        return Capability("trace", "tracer", False, f"{name} {reason}", gives, how)
    text = f"QEMU {'.'.join(map(str, emulator.version))}, {emulator.path}, with {emulator.plugin.name}"
    return Capability("trace", "tracer", True, text, gives)


def dumper() -> Capability:
    """ptdump and its like, there if we also have the capabilities that they ask for."""
    part, gives = ("dump", "dumper"), "`dump`, `record`, `survey`: page tables with the node of each"
    try:
        path, _ = (str(pt.live.native(tool)) for tool in ("ptdump", "ptsurvey"))
    except pt.UsageError as error:
        missing, _, how = str(error).partition("; ")
        return Capability(*part, False, missing.replace(":", ""), gives, how)
    if lacking := [name for name, number in CAPABILITIES.items() if not held(number)]:
        return Capability(*part, False, f"built, but needs root ({', '.join(lacking)})", gives, "sudo")
    return Capability(*part, True, path, gives)


def held(capability: int) -> bool:
    """Whether it is among our effective capabilities (proc(5): CapEff)."""
    words = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", sysfs.found(STATUS) or "", re.MULTILINE)
    return bool(words and int(words[1], 16) >> capability & 1)


def page_tables() -> Capability:
    """Whether our own page tables can be read: capabilities, BPF and BTF together."""
    part, gives = ("rights", "BPF and rights"), "page tables of live processes and VMs"
    try:
        pt.live.rehearse(pt.live.native("ptdump"))
    except pt.UsageError as error:
        why = str(error).removeprefix("page tables cannot be read: ")
        if "not found" in why:
            return Capability(*part, False, "not tried without the dumper", gives, "see dumper")
        root = all(map(held, CAPABILITIES.values()))
        how = "PTDUMP_BPF_LOG=1 in the environment" if BTF.exists() else "see BTF"
        return Capability(*part, False, why.partition("; ")[0], gives, how if root else "sudo")
    return Capability(*part, True, "read our own page tables", gives)


def counters() -> Capability:
    part = "counters", "perf counters"
    gives = "`calibrate`: run times from measured walk cycles, narrower ranges"
    if not shutil.which("perf"):
        return Capability(*part, False, "no perf", gives, PERF)
    units = [path.name for path in COUNTERS.glob("cpu*")]
    if not units:
        how = "run `perf stat` on real hardware, calibrate from its output here"
        return Capability(*part, False, "this CPU shows none (a VM without a virtual PMU)", gives, how)
    level = sysfs.found(PARANOID) or "0"
    allowed = level == "-1" or sysfs.whole(PARANOID, "contents", level, 0, 9) <= 2
    if not allowed and not any(held(CAPABILITIES[name]) for name in ("CAP_PERFMON", "CAP_SYS_ADMIN")):
        return Capability(*part, False, f"perf_event_paranoid is {level}", gives, "sudo")
    return Capability(*part, True, ", ".join(units), gives)


def kvm() -> Capability:
    gives, text, how = "`dump vm`: nested page tables of VMs", f"{KVM}", ""
    nested = {sysfs.found(parameter) for parameter in NESTED} - {None}
    if not KVM.exists():
        text, how = f"no {KVM}", "real hardware or nested virtualization; kvm module"
    elif not os.access(KVM, os.R_OK | os.W_OK):
        text, how = f"{KVM}: no permission", "join the group kvm, or sudo"
    elif nested and not nested & {"1", "Y"}:
        text, how = f"{KVM} with shadow page tables", "EPT or NPT: modprobe kvm_intel ept=1, kvm_amd npt=1"
    return Capability("kvm", "KVM", not how, text, gives, how)


def huge_pages() -> Capability:
    part, gives = ("thp", "huge pages"), "2 MiB pages for programs that ask for them: the line of `advise`"
    state = pt.live.huge_pages()
    if state is None:
        return Capability(*part, False, "none", gives, "a kernel with CONFIG_TRANSPARENT_HUGEPAGE")
    if state == "never":
        return Capability(*part, False, state, gives, f"echo madvise | sudo tee {THP}")
    return Capability(*part, True, state, gives)


def disk() -> Capability:
    free = shutil.disk_usage(".").free  # captures are made here
    gives = f"traces of {free / pt.live.GROWTH:.0f} s of one thread's own time and more"
    missing = "" if free > ROOMY else "free space, or --max-bytes"
    return Capability("disk", "disk", free > ROOMY, f"{free / 1e9:.0f} GB free here", gives, missing)
