"""A machine file for this host: what its kernel says of nodes, CPUs and caches, and the rest of a known CPU.

The kernel shows neither TLBs nor page-walk caches: they are those of the nearest bundled machine, and the
file's sources say so.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from ...core.errors import UsageError
from ...core.machine import Cache, Machine, load_machine
from ...formats.hmat import read_hmat
from ...formats.machine_file import with_latency
from ...formats.node_latency import NodeLatency, with_columns_as_rows
from .topology import parse_cpus

SYSTEM = Path("/sys/devices/system")
CPUINFO = Path("/proc/cpuinfo")
TIMED = ("latency_idle", "latency_contended", "bandwidth")  # sources of what is measured
BANDWIDTH = "HMAT: of each node's nearest readers; 0: not told"
SLIT_LOCAL = 10  # ACPI: the distance to oneself
NEWER = 143  # Intel model numbers from Sapphire Rapids on (arch/x86/include/asm/intel-family.h)
OLDER = (60, 61, 63, 69, 70, 71, 79, 86)  # Haswell and Broadwell
INTEL = {
    106: "ice-lake",
    108: "ice-lake",
    207: "emerald-rapids",
    173: "granite-rapids",
    174: "granite-rapids",
}
ZEN3 = 0x19  # family
ZEN4 = (
    *range(0x10, 0x20),
    *range(0x60, 0x80),
    *range(0xA0, 0xB0),
)  # models of it (arch/x86/kernel/cpu/amd.c)
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def host_machine(
    name: str, measured: NodeLatency | None = None, system: Path = SYSTEM, cpuinfo: Path = CPUINFO
) -> Machine:
    """Machine of this host, its nodes in the order of their numbers, those without CPUs as memory_nodes.

    measured  latencies of `topology latency` or Intel MLC; None: what the firmware says (HMAT, SLIT)
    """
    cpu = cpu_facts(cpuinfo.read_text())
    like = load_machine(nearest(cpu))
    nodes, slow = node_cpus(system), memory_nodes(system)
    first = nodes[0][1]
    own = {
        "name": name,
        "description": f"{cpu.get('model name', 'a host')}, as its kernel shows it",
        "cpus_per_node": max(len(cpus) for _, cpus in nodes),
    }
    sources = {field: copied(like) for field in like.sources if field.startswith(("tlb", "walk", "share"))}
    sources["nodes"] = "sysfs: node*/cpulist"
    machine = msgspec.structs.replace(like.resized(len(nodes) + len(slow)), **own)
    ghz, sources["ghz"] = clock(system, cpu, like)
    l2, sources["l2"] = data_cache(system, first, like.l2, 2, like)
    llc, sources["llc"] = data_cache(system, first, like.llc, last_level(system, first[0]), like)
    machine = msgspec.structs.replace(machine, ghz=ghz, l2=l2, llc=llc)
    if measured is not None:
        must_be_of(measured, [node for node, _ in nodes], slow)
        timed = with_latency(machine, measured, name)
        ours = {key: timed.sources[key] for key in TIMED if key in timed.sources}
        return msgspec.structs.replace(timed, description=machine.description, sources=sources | ours)
    latency = firmware_latency(system, [node for node, _ in nodes], slow, like)
    sources["latency_contended"] = "not measured: no latencies under load"
    sources["latency_idle"] = latency.source
    known = with_latency(machine, latency, name)
    if latency.bandwidth is not None:
        sources["bandwidth"] = BANDWIDTH
    return msgspec.structs.replace(known, description=machine.description, sources=sources)


def must_be_of(measured: NodeLatency, nodes: list[int], slow: list[int]) -> None:
    """UsageError where nodes with CPUs were measured as without: of another machine, or cut off."""
    if odd := sorted(set(measured.memory_nodes) - set(slow)):
        what = (
            f"no latencies from node {odd[0]}, which has CPUs here (nodes with CPUs: {nodes})"
            if odd[0] in nodes
            else f"node {odd[0]} is not here (nodes: {sorted([*nodes, *slow])})"
        )
        raise UsageError(f"--latency: {measured.source}: {what}: the text is of another machine, or was cut")


def copied(like: Machine) -> str:
    return f"as of {like.name}, the nearest machine known: no kernel shows this"


def cpu_facts(cpuinfo: str) -> dict[str, str]:
    """{field: value} of the first CPU."""
    first = cpuinfo.split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def nearest(cpu: dict[str, str]) -> str:
    """Name of the bundled machine whose TLBs are likeliest to be this CPU's."""
    model = int(cpu.get("model", "0"))
    if cpu.get("vendor_id") == "AuthenticAMD":
        family = int(cpu.get("cpu family", "0"))
        newer = family > ZEN3 or (family == ZEN3 and model in ZEN4)
        return "epyc-genoa" if newer else "epyc-milan"
    if model in OLDER:
        return "hydra-haswell"
    return INTEL.get(model, "sapphire-rapids" if model >= NEWER else "vmitosis-cascade-lake")


def node_cpus(system: Path) -> list[tuple[int, tuple[int, ...]]]:
    """[(node, its CPUs)] of the nodes with CPUs. UsageError where there are none to be seen."""
    listed = [
        (int(path.parent.name[4:]), parse_cpus(path.read_text()))
        for path in (system / "node").glob("node[0-9]*/cpulist")
    ]
    found = sorted(one for one in listed if one[1])
    if not found:
        online = system / "cpu/online"
        if not online.exists():
            raise UsageError(f"{system}: shows neither nodes nor CPUs; is /sys mounted?")
        return [(0, parse_cpus(online.read_text()))]
    return found


def clock(system: Path, cpu: dict[str, str], like: Machine) -> tuple[float, str]:
    """(GHz, source): the base frequency, as TSC and DRAM latencies are in."""
    for file in ("base_frequency", "cpuinfo_max_freq"):
        path = system / "cpu/cpu0/cpufreq" / file
        if path.exists():
            return int(path.read_text()) / 1e6, f"sysfs: cpufreq/{file}"
    if named := re.search(r"@ ([\d.]+)GHz", cpu.get("model name", "")):
        return float(named[1]), "the CPU's name"
    if "cpu MHz" in cpu:
        return round(float(cpu["cpu MHz"]) / 1000, 3), "/proc/cpuinfo, cpu MHz"
    return like.ghz, copied(like)


def caches(system: Path, cpu: int) -> Iterator[tuple[int, Path]]:
    """(level, its directory) of a CPU's data caches."""
    for place in sorted((system / f"cpu/cpu{cpu}/cache").glob("index[0-9]*")):
        if (place / "type").read_text().strip() != "Instruction":
            yield int((place / "level").read_text()), place


def last_level(system: Path, cpu: int) -> int:
    return max((level for level, _ in caches(system, cpu)), default=3)


def data_cache(
    system: Path, cpus: tuple[int, ...], known: Cache, level: int, like: Machine
) -> tuple[Cache, str]:
    """(cache of a level, source); several last-level caches of a node count as the one that a CPU uses."""
    place = dict(caches(system, cpus[0])).get(level)
    if place is None or not (place / "size").exists():
        return known, copied(like)
    number, unit = re.fullmatch(r"(\d+)([KMG])", (place / "size").read_text().strip()).groups()  # type: ignore[union-attr]
    ways = (
        int((place / "ways_of_associativity").read_text())
        if (place / "ways_of_associativity").exists()
        else 0
    )
    size = int(number) * SIZES[unit]
    taken = msgspec.structs.replace(known, bytes=size, ways=ways or known.ways)
    return taken, f"sysfs: cpu{cpus[0]}/cache/{place.name}; cycles {copied(like)}"


def memory_nodes(system: Path) -> list[int]:
    """Nodes with memory and without CPUs, as CXL memory has."""
    has = system / "node/has_memory"
    known = set(parse_cpus(has.read_text())) if has.exists() else None
    none = [
        int(path.parent.name[4:])
        for path in (system / "node").glob("node[0-9]*/cpulist")
        if not path.read_text().strip()
    ]
    return sorted(node for node in none if known is None or node in known)


def firmware_latency(system: Path, cpu_nodes: list[int], slow: list[int], like: Machine) -> NodeLatency:
    """NodeLatency as the firmware tells it: HMAT for the readers that it names, else its distances (SLIT).

    A distance of 10 stands for the local latency of the known machine. Where HMAT gives the latency of a
    node's nearest readers, others have that, times the ratio of distances. No pair is below the reader's own.
    """
    nodes = sorted([*cpu_nodes, *slow])
    apart, hmat = distances(system, nodes), read_hmat(system / "node")
    ns = apart * like.latency.idle[0][0] / SLIT_LOCAL
    gb_per_s = np.zeros_like(ns)
    memory, told = np.isin(nodes, slow), []
    for at, node in enumerate(nodes):
        access = hmat.get(node)
        near = [nodes.index(one) for one in access.initiators if one in cpu_nodes] if access else []
        if access and near:
            told.append(node)
            ns[:, at] = access.ns * np.maximum(apart[:, at] / apart[near, at].min(), 1)
            ns[near, at], gb_per_s[near, at] = access.ns, access.gb_per_s
    both = np.ix_(~memory, ~memory)
    ns[both] = (ns[both] + ns[both].T) / 2
    own = np.where(memory, 0, ns.diagonal())
    ns = np.maximum(ns, np.maximum.outer(own, own))
    if slow:
        ns = with_columns_as_rows(ns, memory)
    guess = (
        f"estimate: distances of the firmware (SLIT) times {like.latency.idle[0][0]:g} ns, the local latency "
        f"of {like.name}; `ptanalyze topology latency` measures it"
    )
    hmats = f"HMAT for nodes {told} and their nearest readers, other readers by distance (SLIT)"
    source = guess if not told else hmats if told == nodes else f"{hmats}; of other nodes {guess}"
    return NodeLatency(tuple(nodes), ns, None, source, (), tuple(slow), gb_per_s if gb_per_s.any() else None)


def distances(system: Path, nodes: list[int]) -> np.ndarray:
    """float64[n, n]: the firmware's distances between nodes, at least 10; both ways of a pair averaged."""
    if len(nodes) == 1 and not (system / f"node/node{nodes[0]}/distance").exists():
        return np.full((1, 1), float(SLIT_LOCAL))
    every = sorted(int(path.name[4:]) for path in (system / "node").glob("node[0-9]*"))
    rows = [
        [int(text) for text in (system / f"node/node{node}/distance").read_text().split()] for node in nodes
    ]
    table = np.array([[row[every.index(node)] for node in nodes] for row in rows], np.float64)
    return np.maximum((table + table.T) / 2, SLIT_LOCAL)
