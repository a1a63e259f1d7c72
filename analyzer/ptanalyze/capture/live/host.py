"""A machine file for this host: what its kernel says of nodes, CPUs and caches, and the rest of a known CPU.

The kernel shows neither TLBs nor page-walk caches: they are those of the nearest bundled machine, and the
file's sources say so.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ...core.errors import InputError, UsageError
from ...core.machine import MOST_ENTRIES, Cache, Machine, load_machine
from ...core.sysfs import (
    LOCAL,
    SYSTEM,
    HostNode,
    HostNodes,
    found,
    groups_of,
    nodes_of,
    number,
    parse_cpus,
    read_hmat,
    text_of,
    whole,
    without_memory,
)
from ...formats.measured.latency import NodeLatency, apart, of_firmware, with_latency
from .native import native
from .record import GROWTH, rehearse
from .tracers import qemu

CPUINFO = Path("/proc/cpuinfo")
TIMED = ("latency_idle", "latency_contended", "oddities")  # sources of what is measured
AMD = ("AuthenticAMD", "HygonGenuine")  # vendors
ZEN3 = 0x19  # family
ZEN4 = (*range(0x10, 0x20), *range(0x60, 0x80), *range(0xA0, 0xB0))  # its models, arch/x86/kernel/cpu/amd.c
DIAMOND_RAPIDS = 19  # Intel's family; models of family 6 by their core (arch/x86/include/asm/intel-family.h):
CORES = {
    "hydra-haswell": (*range(26, 72), 79, 86),  # Broadwell, too; what is older is nearest to it
    "vmitosis-cascade-lake": (78, 85, 94, 102, 142, 158, 165, 166),  # Kaby, Coffee, Comet Lake are Skylakes
    "ice-lake": (106, 108, 125, 126, 140, 141, 157, 167),
    "emerald-rapids": (207,),
    "granite-rapids": (170, 172, 173, 174, 181, 189, 197, 198),
}
NEWER = 143  # other models from Sapphire Rapids on
GHZ = re.compile(r"@ (\d{1,2}(?:\.\d{1,3})?)GHz", re.ASCII)
BOGOMIPS = re.compile(r"\d{1,6}(?:\.\d{1,3})?", re.ASCII)
SIZE = re.compile(r"(\d{1,9})([KMG])", re.ASCII)
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST_CACHE = 1 << 32


def host_machine(
    name: str, measured: NodeLatency | None = None, system: Path = SYSTEM, cpuinfo: Path = CPUINFO
) -> Machine:
    """Machine of this host, its nodes in the order of their numbers, those without CPUs as memory_nodes.

    CPUs of nodes without memory count with the nearest node that has some.

    measured  latencies of `topology latency`; None: what the firmware says (HMAT, SLIT)
    """
    cpu = cpu_facts(text_of(cpuinfo))
    like, nodes = load_machine(nearest(cpu)), host_nodes(system)
    if measured is None:
        latency = firmware_latency(system / "node", nodes, like)
    else:
        latency = measured_here(measured, groups_of(system / "node", nodes), nodes)
    cpus = [tuple(cpu for node in group for cpu in nodes[node].cpus) for group in latency.groups]
    first = next(each for each in cpus if each)
    sources = {field: copied(like) for field in like.sources if field.startswith(("tlb", "walk", "share"))}
    sources["nodes"] = "sysfs: node*/cpulist, has_memory"
    ghz, sources["ghz"] = clock(system, first[0], cpu, like)
    l2, sources["l2"] = data_cache(system, first, like.l2, 2, like)
    llc, sources["llc"] = data_cache(system, first, like.llc, last_level(system, first[0]), like)
    timed = with_latency(like, latency, name)
    sources |= {key: timed.sources[key] for key in TIMED if key in timed.sources}
    return msgspec.structs.replace(
        timed,
        description=f"{cpu.get('model name', 'a host')}, as its kernel shows it",
        cpus_per_node=max(map(len, cpus)),
        ghz=ghz,
        l2=l2,
        llc=llc,
        sources=sources,
    )


def measured_here(measured: NodeLatency, groups: Sequence[tuple[int, ...]], nodes: HostNodes) -> NodeLatency:
    """The NodeLatency with groups of this host; UsageError where it is of another machine, or cut off."""
    homes = {group[0]: any(nodes[node].cpus for node in group) for group in groups}
    what = ""
    if odd := [node for node in measured.nodes if node not in homes]:
        what = f"node {odd[0]} is not here (nodes: {[*homes]})"
    elif odd := [node for node in measured.memory_nodes if homes[node]]:
        with_cpus = [node for node, some in homes.items() if some]
        what = f"no latencies from node {odd[0]}, which has CPUs here (nodes with CPUs: {with_cpus})"
    if what:
        raise UsageError(f"--latency: {measured.source}: {what}: the text is of another machine, or was cut")
    own = {group[0]: group for group in groups}
    flags = (*measured.flags, *filter(None, [without_memory(groups)]))
    return replace(measured, flags=flags, groups=tuple(own[node] for node in measured.nodes))


def copied(like: Machine) -> str:
    return f"as of {like.name}, the nearest machine known: no kernel shows this"


def cpu_facts(cpuinfo: str) -> dict[str, str]:
    """{field: value} of the first CPU."""
    first = cpuinfo.strip().split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def nearest(cpu: Mapping[str, str]) -> str:
    """Name of the bundled machine whose TLBs are likeliest to be this CPU's."""
    family, model = (whole(CPUINFO, field, cpu.get(field, "0")) for field in ("cpu family", "model"))
    if cpu.get("vendor_id") in AMD:
        return "epyc-genoa" if family > ZEN3 or (family == ZEN3 and model in ZEN4) else "epyc-milan"
    if family >= DIAMOND_RAPIDS:
        return "granite-rapids"
    others = "sapphire-rapids" if model >= NEWER else "vmitosis-cascade-lake"
    return next((name for name, models in CORES.items() if model in models), others)


def host_nodes(system: Path) -> dict[int, HostNode]:
    """{node: HostNode}, one with all CPUs without NUMA. UsageError where there are no CPUs to be seen."""
    nodes = nodes_of(system / "node")
    if any(one.cpus for one in nodes.values()):
        return nodes
    cpus = parse_cpus(found(system / "cpu/online") or "", system / "cpu/online")
    if not cpus:
        raise UsageError(f"{system}: shows neither nodes nor CPUs; is /sys mounted?")
    return {0: HostNode(cpus, True)}


def clock(system: Path, cpu: int, facts: Mapping[str, str], like: Machine) -> tuple[float, str]:
    """(GHz, source): the base frequency, as TSC and DRAM latencies are in; never that of the moment."""
    if khz := number(system / f"cpu/cpu{cpu}/cpufreq/base_frequency", 1, 10**9, missing=0):
        return khz / 1e6, "sysfs: cpufreq/base_frequency"
    if (named := GHZ.search(facts.get("model name", ""))) and float(named[1]):
        return float(named[1]), "the CPU's name"
    bogomips = facts.get("bogomips", "")
    if BOGOMIPS.fullmatch(bogomips) and float(bogomips):
        return max(
            round(float(bogomips) / 2000, 3), 0.001
        ), "/proc/cpuinfo: half of bogomips is the TSC's clock"
    return like.ghz, copied(like)


def caches(system: Path, cpu: int) -> Iterator[tuple[int, Path]]:
    """(level, its directory) of a CPU's data caches."""
    for place in sorted((system / f"cpu/cpu{cpu}/cache").glob("index[0-9]*")):
        if found(place / "type") != "Instruction":
            yield number(place / "level", 1, 9), place


def last_level(system: Path, cpu: int) -> int:
    return max((level for level, _ in caches(system, cpu)), default=3)


def data_cache(
    system: Path, cpus: Sequence[int], known: Cache, level: int, like: Machine
) -> tuple[Cache, str]:
    """(cache of a level that `cpus` of a node have, source).

    Several last-level caches of a node count as the one that a CPU uses; of one for several nodes each has
    a share by its CPUs.
    """
    place = dict(caches(system, cpus[0])).get(level)
    text = None if place is None else found(place / "size")
    if place is None or text is None:
        return known, copied(like)
    size = SIZE.fullmatch(text)
    if not size or not 1 <= int(size[1]) * SIZES[size[2]] <= MOST_CACHE:
        raise InputError(place / "size", "contents", repr(text[:30]), "expected a size such as 32768K")
    sharing = parse_cpus(found(place / "shared_cpu_list") or "", place / "shared_cpu_list")
    part = len({*cpus} & {*sharing}) / len(sharing) if cpus[0] in sharing and level > 2 else 1.0
    ways = number(place / "ways_of_associativity", 0, MOST_ENTRIES, missing=0) or known.ways
    taken = msgspec.structs.replace(known, bytes=int(int(size[1]) * SIZES[size[2]] * part), ways=ways)
    said = f", {100 * part:.0f} % of it: other nodes share it" if part < 1 else ""
    return taken, f"sysfs: cpu{cpus[0]}/cache/{place.name}{said}; cycles {copied(like)}"


def firmware_latency(folder: Path, nodes: HostNodes, like: Machine) -> NodeLatency:
    """NodeLatency as the firmware tells it: HMAT for the readers that it names, else its distances (SLIT).

    A distance of 10 stands for the local latency of the known machine. Where HMAT gives the latency of a
    node's nearest readers, others have that, times the ratio of distances.
    """
    far, hmat, ids = apart(folder, nodes), read_hmat(folder), [*nodes]
    ns = far * like.latency.idle[0][0] / LOCAL
    told = []
    for at, node in enumerate(ids):
        access = hmat.get(node) if nodes[node].memory else None
        near = (
            [ids.index(one) for one in access.initiators if one in nodes and nodes[one].cpus]
            if access
            else []
        )
        if access and near:
            told.append(node)
            ns[:, at] = access.ns * np.maximum(far[:, at] / far[near, at].min(), 1)
            ns[near, at] = access.ns
    guess = (
        f"estimate: distances of the firmware (SLIT) times {like.latency.idle[0][0]:g} ns, the local latency "
        f"of {like.name}; `ptanalyze topology latency` measures it"
    )
    hmats = f"HMAT for nodes {told} and their nearest readers, other readers by distance (SLIT)"
    every = told == [node for node, one in nodes.items() if one.memory]
    source = guess if not told else hmats if every else f"{hmats}; of other nodes {guess}"
    return of_firmware(folder, nodes, ns, source)


# What of this host can be used: tracer, dumper, rights, counters, KVM, nodes, disk; what each gives.

HERE = Path("/")
BTF = Path("sys/kernel/btf/vmlinux")
PERF = "apt install linux-perf, on Ubuntu linux-tools-generic"
COUNTERS = Path("sys/bus/event_source/devices")
PARANOID = Path("proc/sys/kernel/perf_event_paranoid")
THP = Path("sys/kernel/mm/transparent_hugepage/enabled")
ROOMY = 20 << 30


class Capability(NamedTuple):
    """A part of this host that commands use.

    id     stable, for scripts (`doctor --require`); what: the same for people
    there  whether we can use it, with the rights that we have; found: in words
    gives  what it is for
    missing  how to get it, "" where it is there; hint: how to get more of what is there, "" nothing more
    """

    id: str
    what: str
    there: bool
    found: str
    gives: str
    missing: str = ""
    hint: str = ""


CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}  # uapi/linux
BPF_READER = tuple(CAPABILITIES)  # what dumps/privileges.c asks for
STATUS = Path("proc/self/status")


def examine(place: Path = Path(), root: Path = HERE) -> Iterator[Capability]:
    """Each part of this host; `place` is where captures would be made.

    root  of a copied tree of /sys and /proc; tools, KVM and disk are this host's
    """
    yield tracer()
    yield tool("dump", "dumper", "ptdump", "`dump`, `record`: page tables with the node of each")
    yield tool("survey", "survey", "ptsurvey", "`survey`: every process by its remote page tables")
    yield tool("heat", "sampler", "ptheat", "`heat`, `record -p`: which pages a process uses")
    yield tool(
        "relocate", "relocation", "ptrelocate", "`relocate`: leaf tables of a process to its threads",
        ("CAP_SYS_PTRACE",),
    )  # fmt: skip
    yield btf(root)
    yield page_tables()
    yield counters(root)
    yield kvm()
    yield program(
        "vms", "qemu-system-x86_64", "VMs to try things in (tests/lab)", "apt install qemu-system-x86"
    )
    yield program("numactl", "numactl", "runs with memory on chosen nodes, today", "apt install numactl")
    yield nodes(root)
    yield huge_pages(root)
    yield disk(place)


def program(key: str, name: str, gives: str, how: str) -> Capability:
    path = shutil.which(name)
    return Capability(key, name, path is not None, path or "not found", gives, "" if path else how)


def tracer() -> Capability:
    gives = "`record`: traces of programs"
    try:
        found = qemu()
    except UsageError as error:
        name, _, why = str(error).partition(": ")
        said, _, how = why.partition("; ")
        return Capability("trace", "tracer", False, f"{name} {said}", gives, how)
    version = ".".join(map(str, found.version))
    return Capability(
        "trace", "tracer", True, f"QEMU {version}, {found.path}, with {found.plugin.name}", gives
    )


def tool(
    key: str,
    what: str,
    name: str,
    gives: str,
    needs: Sequence[str] = BPF_READER,
    status: Path = HERE / STATUS,
) -> Capability:
    """A native tool of ours, there if we also have the capabilities that it asks for."""
    try:
        found = str(native(name))
    except UsageError as error:
        return Capability(key, what, False, f"{name} not found", gives, str(error).partition("; ")[2])
    if lacking := [one for one in needs if not held(CAPABILITIES[one], status)]:
        return Capability(key, what, False, f"built, but needs root ({', '.join(lacking)})", gives, "sudo")
    return Capability(key, what, True, found, gives)


def held(capability: int, status: Path = HERE / STATUS) -> bool:
    """Whether it is among our effective capabilities (proc(5): CapEff)."""
    words = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", found(status) or "", re.MULTILINE)
    return bool(words and int(words[1], 16) >> capability & 1)


def btf(root: Path = HERE) -> Capability:
    file, how = root / BTF, "a kernel built with CONFIG_DEBUG_INFO_BTF=y"
    there, gives = file.exists(), "a dumper that runs on this kernel"
    return Capability("btf", "BTF", there, f"{'' if there else 'no '}{file}", gives, "" if there else how)


def page_tables() -> Capability:
    """Tried on ourselves: capabilities, BPF and BTF together."""
    part = "rights", "BPF and rights"
    gives = "page tables of live processes and VMs"
    try:
        rehearse(native("ptdump"))
    except UsageError as error:
        why = str(error).removeprefix("page tables cannot be read: ").partition(". Nothing was run")[0]
        if "not found" in why:
            return Capability(*part, False, "not tried without the dumper", gives, "see dumper")
        root = all(map(held, CAPABILITIES.values()))
        how = (
            "sudo"
            if not root
            else "PTDUMP_BPF_LOG=1 in the environment"
            if (HERE / BTF).exists()
            else "see BTF"
        )
        return Capability(*part, False, why.partition("; ")[0], gives, how)
    return Capability(*part, True, "read our own page tables", gives)


def counters(root: Path = HERE) -> Capability:
    part = "counters", "perf counters"
    gives = "`calibrate`: run times from measured walk cycles, narrower ranges"
    if not shutil.which("perf"):
        return Capability(*part, False, "no perf", gives, PERF)
    units = [path.name for path in (root / COUNTERS).glob("cpu*")]
    if not units:
        how = "run `perf stat` on real hardware, calibrate from its output here"
        return Capability(*part, False, "this CPU shows none (a VM without a virtual PMU)", gives, how)
    level, status = found(root / PARANOID) or "0", root / STATUS
    allowed = level == "-1" or whole(root / PARANOID, "contents", level, 0, 9) <= 2
    if not allowed and not any(held(CAPABILITIES[one], status) for one in ("CAP_PERFMON", "CAP_SYS_ADMIN")):
        return Capability(*part, False, f"perf_event_paranoid is {level}", gives, "sudo")
    return Capability(*part, True, ", ".join(units), gives)


def kvm() -> Capability:
    gives = "`dump vm`: nested page tables of VMs"
    device, found, how = Path("/dev/kvm"), "/dev/kvm", ""
    if not device.exists():
        found, how = "no /dev/kvm", "real hardware or nested virtualization; kvm module"
    elif not os.access(device, os.R_OK | os.W_OK):
        found, how = "/dev/kvm: no permission", "join the group kvm, or sudo"
    return Capability("kvm", "KVM", not how, found, gives, how)


def nodes(root: Path = HERE) -> Capability:
    folder = root / SYSTEM.relative_to(HERE) / "node"
    count = max(len(groups_of(folder, nodes_of(folder))), 1)
    gives = "captures of where a kernel placed page tables on several nodes"
    missing = "" if count > 1 else "a machine model: -m, see `ptanalyze machines`"
    return Capability("nodes", "NUMA nodes", count > 1, f"{count}", gives, missing)


def huge_pages(root: Path = HERE) -> Capability:
    part, gives = ("thp", "huge pages"), "2 MiB pages: what the policy thp estimates"
    file = root / THP
    text = found(file)
    if text is None:
        return Capability(*part, False, f"no {file}", gives, "a kernel with CONFIG_TRANSPARENT_HUGEPAGE")
    chosen = re.search(r"\[(\w+)\]", text)
    state = chosen[1] if chosen else "unknown"
    how = "" if state == "always" else f"echo always | sudo tee {HERE / THP}"
    never = state == "never"
    return Capability(*part, not never, state, gives, how if never else "", "" if never else how)


def disk(place: Path) -> Capability:
    free = shutil.disk_usage(place).free
    seconds = free / GROWTH
    found = f"{free / 1e9:.0f} GB free here"
    gives = f"traces of {seconds:.0f} s of one thread's own time and more"
    missing = "" if free > ROOMY else "free space, or --max-bytes"
    return Capability("disk", "disk", free > ROOMY, found, gives, missing)
