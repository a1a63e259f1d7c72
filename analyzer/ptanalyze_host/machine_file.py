"""A machine file for this host: what its kernel says of nodes, CPUs and caches, and the rest of a known CPU.

The kernel shows neither TLBs nor page-walk caches: they are those of the nearest bundled machine, and the
file's sources say so.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

import ptanalyze as pt

from . import sysfs
from .node_latency import (
    LEAST_TURNS,
    RANDOM_MEBIBYTES,
    TOOL,
    NodeLatency,
    added_by_walks,
    asymmetric,
    measure_cached,
    measure_nodes,
    measure_pages,
    measure_walks,
    walk_source,
)
from .relocate import spare

CPUINFO = Path("/proc/cpuinfo")
BOOT, STAT = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/stat")
MEASURE = "PTANALYZE_MEASURE"  # environment: no, and nothing is measured by itself
SPARE = 3  # times RANDOM_MEBIBYTES that must be free, for two buffers
MOST_KEPT = 1 << 16  # bytes
Time: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=100_000)]  # ns
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
AMX = ("sapphire-rapids", "emerald-rapids", "granite-rapids")
GHZ = re.compile(r"@ (\d{1,2}(?:\.\d{1,3})?)GHz", re.ASCII)
BOGOMIPS = re.compile(r"\d{1,6}(?:\.\d{1,3})?", re.ASCII)
SIZE = re.compile(r"(\d{1,9})([KMG])", re.ASCII)
SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOST_CACHE = 1 << 32


def host_machine(
    name: str, measured: NodeLatency | None = None, system: Path = sysfs.SYSTEM, cpuinfo: Path = CPUINFO
) -> pt.Machine:
    """Machine of this host, its nodes in the order of their numbers, those without CPUs as memory_nodes.

    CPUs of nodes without memory count with the nearest node that has some.

    measured  latencies of `measure_nodes`; None: what the firmware says (HMAT, SLIT)
    """
    cpu = cpu_facts(sysfs.text_of(cpuinfo))
    like, nodes = pt.load_machine(nearest(cpu)), host_nodes(system)
    if measured is None:
        latency = firmware_latency(system / "node", nodes, like)
    else:
        own = {group[0]: group for group in sysfs.groups_of(system / "node", nodes)}
        flags = (*measured.flags, *filter(None, [sysfs.without_memory([*own.values()])]))
        latency = replace(measured, flags=flags, groups=tuple(own[node] for node in measured.nodes))
    cpus = [tuple(cpu for node in group for cpu in nodes[node].cpus) for group in latency.groups]
    first = next(each for each in cpus if each)
    sources = {field: copied(like) for field in like.sources if field.startswith(("tlb", "walk", "share"))}
    sources["nodes"] = "sysfs: node*/cpulist, has_memory"
    ghz, sources["ghz"] = clock(system, first[0], cpu, like)
    l1d = like.l1d
    if l1d is not None:
        l1d, sources["l1d"] = data_cache(system, first, l1d, 1, like)
    l2, sources["l2"] = data_cache(system, first, like.l2, 2, like)
    last = max((level for level, _ in caches(system, first[0])), default=3)
    llc, sources["llc"] = data_cache(system, first, like.llc, last, like)
    timed = with_latency(like, latency, name)
    sources |= {key: timed.sources[key] for key in TIMED if key in timed.sources}
    return msgspec.structs.replace(
        timed,
        description=f"{cpu.get('model name', 'a host')}, as its kernel shows it",
        cpus_per_node=max(map(len, cpus)),
        ghz=ghz,
        l1d=l1d,
        l2=l2,
        llc=llc,
        sources=sources,
    )


def captured_host(
    capture: pt.Capture, system: Path = sysfs.SYSTEM, cpuinfo: Path = CPUINFO
) -> pt.Machine | None:
    """Machine of this host for a capture of it: None for any other.

    It is of this host if its dump names this CPU and nodes of these CPUs, distances and sizes, which is all
    that a Machine is made from; of a VM reads and page walks are measured, once. The description says whose
    numbers it has.
    """
    if not capture.has_snapshot and not capture.has_vm:
        return None
    dump = capture.vm if capture.has_vm else capture.snapshot
    cpu = cpu_facts(sysfs.found(cpuinfo) or "")
    if not cpu.get("model name") or dump.facts.get("cpu") != cpu["model name"]:
        return None
    try:
        nodes = dump.topology.nodes
        sizes = [4096 * int(np.diff(node.frames).sum()) for node in nodes]
        taken = {node.id: (node.cpus, node.distance, size) for node, size in zip(nodes, sizes, strict=True)}
        shown = shown_nodes(system)
        if taken != shown:
            return None
        machine, like = host_machine("this host", None, system, cpuinfo), nearest(cpu)
    except (pt.errors.PtanalyzeError, ValueError):  # odd text in /sys: nothing that says it is this host
        return None
    by = "HMAT" if "HMAT" in machine.sources["latency_idle"] else "the firmware's distances"
    said = f"not measured: TLBs of {like}, the nearest known, latencies by {by}"
    if "hypervisor" in cpu.get("flags", "").split():
        known = pages_of_vm(f"{cpu['model name']}; {shown}; {sysfs.found(BOOT)}", machine)
        if isinstance(known, str):
            said += f"; this is a VM, in which walks take longer: {known}"
        else:
            machine = as_timed(machine, known)
            said = f"measured in this VM: {in_words(known.interval())}; TLBs of {like}, the nearest known"
    return msgspec.structs.replace(machine, description=said)


KEPT, MOST = 600, 12  # seconds, measurements
Part: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What was measured of a VM; other guests of its host come and go, so again after KEPT seconds.

    local   ns: the fastest read with huge pages; cached: of `measure_cached`; both of the latest
    added   `added_by_walks` of each measurement, the latest last
    passing whether the latest was unsteady or made beside other load: the next one takes its place
    """

    vm: str
    local: Time
    cached: Annotated[float, msgspec.Meta(ge=0, le=100_000)]
    added: Annotated[list[tuple[Part, Part, Part]], msgspec.Meta(min_length=1, max_length=MOST)]
    passing: bool = False

    def interval(self) -> pt.Interval:
        """What walks add: the median of all medians, and a range to these and to the latest quartiles."""
        (low, _, high), middles = self.added[-1], [middle for _, middle, _ in self.added]
        return pt.Interval(min(low, *middles), float(np.median(middles)), max(high, *middles))


def pages_of_vm(vm: str, machine: pt.Machine) -> Kept | str:
    """What is kept of a VM (its CPU, nodes and boot) in the user's cache, else measured; or why it is not."""
    place, earlier = pt.safe_files.user_cache(), []
    if os.environ.get(MEASURE) == "no":
        return f"not measured, by {MEASURE}=no"
    file = place / "page-walks.json" if place and pt.safe_files.own_directory(place) else None
    if file:
        with suppress(OSError, pt.errors.PtanalyzeError, pt.safe_files.Undecodable):
            young = time.time() - file.stat().st_mtime < KEPT
            known = pt.safe_files.json_struct(pt.safe_files.read_inside(file, MOST_KEPT), Kept)
            if known.vm == vm:
                earlier = known.added[: -1 if known.passing else None]
                if young:
                    return known
    if spare(os.getpid()) < SPARE * RANDOM_MEBIBYTES << 20:
        return f"too little free memory to measure them, {SPARE * RANDOM_MEBIBYTES:,} MiB"
    try:
        pt.live.native(TOOL)
        pt.options.echo(f"ptanalyze: measuring page walks of this VM ({MEASURE}=no: never)", err=True)
        start = by_others()
        pairs, cached = measure_pages(turns=LEAST_TURNS), measure_cached(machine)
    except pt.UsageError as error:
        return f"not measured: {error}"
    if not pairs.size:
        return "not measured: huge pages are not to be had"
    added = added_by_walks(pairs)
    passing = unequal(added) or bool(loaded_since(*start))
    found = Kept(vm, float(pairs[:, 1].min()), cached, [*earlier, (*added,)][-MOST:], passing)
    if file:
        with suppress(OSError), pt.formats.atomic_write(file) as output:
            output.write(msgspec.json.encode(found))
    return found


def as_timed(machine: pt.Machine, known: Kept) -> pt.Machine:
    """Machine with local reads as fast as the fastest of huge pages, distances as they are, and its walks."""
    times = known.local / machine.latency.idle[0][0]
    idle = tuple(tuple(round(ns * times, 1) for ns in row) for row in machine.latency.idle)
    by = machine.sources["latency_idle"]
    said = f"measured: {known.local:.0f} ns local; others times {times:.2f}: {by}"
    timed = msgspec.structs.replace(
        machine,
        latency=msgspec.structs.replace(machine.latency, idle=idle),
        sources={**machine.sources, "latency_idle": said},
    )
    return with_own_cycles(timed, known.interval(), RANDOM_MEBIBYTES << 20, known.cached)


def shown_nodes(system: Path) -> dict[int, tuple[tuple[int, ...], tuple[int, ...], int]]:
    """{node: (CPUs, distances to all nodes, bytes of its memory blocks)} as ptdump reads them."""
    folder, nodes = system / "node", host_nodes(system)
    block = int(sysfs.found(system / "memory/block_size_bytes") or "0", 16)
    far = sysfs.distances(folder, nodes)
    blocks = {node: block * len([*(folder / f"node{node}").glob("memory[0-9]*")]) for node in nodes}
    return {node: (nodes[node].cpus, tuple(far[node].values()), blocks[node]) for node in nodes}


def copied(like: pt.Machine) -> str:
    return f"from {like.name}, the nearest machine known: no kernel shows this"


def cpu_facts(cpuinfo: str) -> dict[str, str]:
    """{field: value} of the first CPU."""
    pairs = (line.partition(":") for line in cpuinfo.strip().split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def nearest(cpu: Mapping[str, str]) -> str:
    """Name of the bundled machine whose TLBs are likeliest to be this CPU's."""
    family, model = (sysfs.whole(CPUINFO, field, cpu.get(field, "0")) for field in ("cpu family", "model"))
    if cpu.get("vendor_id") in AMD:
        return "epyc-genoa" if family > ZEN3 or (family == ZEN3 and model in ZEN4) else "epyc-milan"
    if family >= DIAMOND_RAPIDS:
        return "granite-rapids"
    others = "sapphire-rapids" if model >= NEWER else "vmitosis-cascade-lake"
    core = next((name for name, models in CORES.items() if model in models), others)
    # a hypervisor may show an older model
    return AMX[0] if (core not in AMX and "amx_tile" in cpu.get("flags", "").split()) else core


def host_nodes(system: Path) -> dict[int, sysfs.HostNode]:
    """{node: HostNode}, one with all CPUs without NUMA. UsageError where there are no CPUs to be seen."""
    nodes = sysfs.nodes_of(system / "node")
    if any(one.cpus for one in nodes.values()):
        return nodes
    cpus = sysfs.parse_cpus(sysfs.found(system / "cpu/online") or "", system / "cpu/online")
    if not cpus:
        raise pt.UsageError(f"{system}: shows neither nodes nor CPUs; is /sys mounted?")
    return {0: sysfs.HostNode(cpus, True)}


def clock(system: Path, cpu: int, facts: Mapping[str, str], like: pt.Machine) -> tuple[float, str]:
    """(GHz, source): the base frequency, as TSC and DRAM latencies are in; never that of the moment."""
    if khz := sysfs.number(system / f"cpu/cpu{cpu}/cpufreq/base_frequency", 1, 10**9, missing=0):
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
        if sysfs.found(place / "type") != "Instruction":
            yield sysfs.number(place / "level", 1, 9), place


def data_cache(
    system: Path, cpus: Sequence[int], known: pt.machine.Cache, level: int, like: pt.Machine
) -> tuple[pt.machine.Cache, str]:
    """(cache of a level that `cpus` of a node have, source).

    Several last-level caches of a node count as the one that a CPU uses; of one for several nodes each has
    a share by its CPUs.
    """
    place = dict(caches(system, cpus[0])).get(level)
    text = None if place is None else sysfs.found(place / "size")
    if place is None or text is None:
        return known, copied(like)
    size = SIZE.fullmatch(text)
    if not size or not 1 <= int(size[1]) * SIZES[size[2]] <= MOST_CACHE:
        raise pt.errors.InputError(
            place / "size", "contents", repr(text[:30]), "expected a size such as 32768K"
        )
    sharing = sysfs.parse_cpus(sysfs.found(place / "shared_cpu_list") or "", place / "shared_cpu_list")
    part = len({*cpus} & {*sharing}) / len(sharing) if cpus[0] in sharing and level > 2 else 1.0
    ways = sysfs.number(place / "ways_of_associativity", 0, pt.machine.MOST_ENTRIES, missing=0) or known.ways
    taken = msgspec.structs.replace(known, bytes=int(int(size[1]) * SIZES[size[2]] * part), ways=ways)
    said = f", {100 * part:.0f} % of it: other nodes share it" if part < 1 else ""
    return taken, f"sysfs: cpu{cpus[0]}/cache/{place.name}{said}; cycles {copied(like)}"


def firmware_latency(folder: Path, nodes: sysfs.HostNodes, like: pt.Machine) -> NodeLatency:
    """NodeLatency as the firmware tells it: HMAT for the readers that it names, else its distances (SLIT).

    A distance of 10 stands for the local latency of the known machine. Where HMAT gives the latency of a
    node's nearest readers, others have that, times the ratio of distances.
    """
    far, hmat, ids = apart(folder, nodes), sysfs.read_hmat(folder), [*nodes]
    ns = far * like.latency.idle[0][0] / sysfs.LOCAL
    told = []
    for at, node in enumerate(ids):
        readers, least = hmat.get(node, ((), 0.0))
        near = [ids.index(one) for one in readers if one in nodes and nodes[one].cpus]
        if near and nodes[node].memory:
            told.append(node)
            ns[:, at] = least * np.maximum(far[:, at] / far[near, at].min(), 1)
            ns[near, at] = least
    guess = (
        f"estimate: distances of the firmware (SLIT) times {like.latency.idle[0][0]:g} ns, the local latency "
        f"of {like.name}; --measure measures it"
    )
    hmats = f"HMAT for nodes {told} and their nearest readers, other readers by distance (SLIT)"
    every = told == [node for node, one in nodes.items() if one.memory]
    source = guess if not told else hmats if every else f"{hmats}; of other nodes {guess}"
    return of_firmware(folder, nodes, ns, source)


# Machines with the latencies of a NodeLatency.


def with_columns_as_rows(ns: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """float64[n, n]: `ns` with rows for nodes without CPUs (bool[n]): see NodeLatency.memory_nodes."""
    full = ns.copy()
    full[np.ix_(memory, ~memory)] = ns[np.ix_(~memory, memory)].T
    nearest = ns[~memory][:, memory].min(axis=0)
    full[np.ix_(memory, memory)] = np.maximum.outer(nearest, nearest)
    return full


def apart(folder: Path, nodes: sysfs.HostNodes) -> np.ndarray:
    """float64[n, n]: the firmware's distances between nodes."""
    rows = sysfs.distances(folder, nodes)
    return np.array([[row[to] for to in nodes] for row in rows.values()], np.float64)


def of_firmware(folder: Path, nodes: sysfs.HostNodes, ns: np.ndarray, source: str) -> NodeLatency:
    """NodeLatency of float64[n, n] of all nodes: of those with memory, to which the CPUs of others count.

    Such CPUs count by their number. Both ways of a pair are averaged; none is below the reader's own.
    """
    groups, ids = sysfs.groups_of(folder, nodes), [*nodes]
    cpus = np.array([[len(nodes[node].cpus) * (node in group) for node in ids] for group in groups], float)
    memory, homes = cpus.sum(axis=1) == 0, [group[0] for group in groups]
    if memory.all():
        raise pt.errors.InputError(folder, "node*/cpulist", "empty", "no node with CPUs")
    mean = cpus / np.maximum(cpus.sum(axis=1, keepdims=True), 1) @ ns[:, [ids.index(home) for home in homes]]
    with_cpus = [home for home, none in zip(homes, memory, strict=True) if not none]
    flags = [*asymmetric("idle", with_cpus, mean[~memory][:, ~memory]), sysfs.without_memory(groups)]
    both = np.ix_(~memory, ~memory)
    mean[both] = (mean[both] + mean[both].T) / 2
    own = np.where(memory, 0, mean.diagonal())
    mean = np.maximum(mean, np.maximum.outer(own, own))
    if memory.any():
        mean = with_columns_as_rows(mean, memory)
    slow = tuple(home for home in homes if home not in with_cpus)
    return NodeLatency(tuple(homes), mean, None, source, tuple(filter(None, flags)), slow, tuple(groups))


def with_latency(machine: pt.Machine, measured: NodeLatency, name: str) -> pt.Machine:
    """Machine with the nodes and latencies of a NodeLatency; both directions of a pair averaged.

    No latencies under load where none were measured. UsageError where a remote node is nearer than the local.
    """
    sized = machine.resized(len(measured.nodes))
    slow = tuple(measured.nodes.index(node) for node in measured.memory_nodes)
    own = measured.groups or tuple((node,) for node in measured.nodes)
    idle = _both_ways(measured.idle)
    contended = None if measured.contended is None else _both_ways(measured.contended)
    odd = np.array(idle) < np.array(idle).diagonal()[:, None]
    if odd.any():
        a, b = (int(at) for at in np.argwhere(odd)[0])
        raise pt.UsageError(
            f"latency: [{a}][{b}] = {idle[a][b]:g} ns is below node {a}'s own memory: measure again"
        )
    none = "not measured: no latencies under load"
    said = {"latency_idle": measured.source, "latency_contended": measured.source if contended else none}
    said |= {"oddities": "; ".join(measured.flags)} if measured.flags else {}
    return msgspec.structs.replace(
        sized,
        name=name,
        description=f"{machine.name} with latencies measured elsewhere",
        latency=pt.machine.Latency(idle=idle, contended=contended),
        memory_nodes=slow,
        host_nodes=() if own == tuple((node,) for node in range(len(own))) else own,
        sources={**machine.sources, **said},
    )


def with_walks(
    machine: pt.Machine, nodes: Sequence[int], walks: Mapping[tuple[int, int], float], source: str
) -> tuple[pt.Machine, str]:
    """(Machine with measured Latency.walk, "" or why they cannot be: in words).

    walks  ns by (reader's node, node of the leaf tables), of all `nodes`, in the machine's order
    """
    ns = np.array([[walks[a, b] for b in nodes] for a in nodes])
    latency = msgspec.structs.replace(machine.latency, walk=_both_ways(ns))
    made = msgspec.structs.replace(
        machine, latency=latency, sources={**machine.sources, "latency_walk": source}
    )
    for field, value, why in pt.machine.walk_faults(made):
        return msgspec.structs.replace(made, latency=machine.latency), f"{field} = {value:g}: {why}"
    return made, ""


def by_others() -> tuple[float, float]:
    """(CPU seconds since the boot of all but this process and its ended children, other guests' too; now)."""
    user, nice, system, _, _, *more = map(int, sysfs.text_of(STAT).split()[1:9])
    busy = (user + nice + system + sum(more)) / os.sysconf("SC_CLK_TCK")
    return busy - sum(os.times()[:4]), time.monotonic()


def loaded_since(before: float, began: float) -> str:
    """Words on other load since `by_others` was that; "" for a quarter of a CPU."""
    others, seconds = np.subtract(by_others(), (before, began))
    took = f"other programs or guests took {others / max(seconds, 1):.1f} CPUs meanwhile"
    return took * bool(others > 1 + seconds / 4)


def in_words(added: pt.Interval) -> str:
    """What walks add to a read of data, "58 % of it (52-64)", and whether that is doubtful."""
    low, middle, high = (100 * part for part in added)
    busy = ", unsteadily: other programs or guests are or were busy" * unequal(added)
    return f"small pages add {middle:.0f} % ({low:.0f}-{high:.0f}) to a random read{busy}"


def unequal(added: pt.Interval) -> bool:
    """Whether quartiles are further apart than half of the median."""
    return added.high - added.low > added.middle / 2


def with_own_cycles(machine: pt.Machine, added: pt.Interval, bytes_: int, cached: float = 0.0) -> pt.Machine:
    """Machine whose walks take what they took beside `bytes_` of random data: more than the read of a leaf
    entry, from the first cache that holds them all, is the walk's own (WalkCaches.cycles).

    added  by walks, as a part of a read of local memory; cached  ns of `measure_cached`
    """
    ns = added.middle * machine.latency.idle[0][0]
    caches = [cache for cache in (machine.l2, machine.llc) if cache.bytes * cache.share >= bytes_ / 512]
    read = caches[0].cycles if caches else float(machine.table_cycles().diagonal().mean())
    cycles = round(max(ns * machine.ghz - read, machine.walk_caches.cycles), 1)
    said = f"measured: {in_words(added)} of {bytes_ >> 20} MiB, {ns:.0f} ns"
    spread = [round(end / added.middle, 3) for end in (added.low, added.high) if added.middle]
    sources = {"walk_cycles": f"{said}, {read:.0f} cycles of them a read of the entry"}
    sources |= {"llc_data": f"measured: {cached:.0f} ns"} if cached else {}
    return msgspec.structs.replace(
        machine,
        walk_caches=msgspec.structs.replace(machine.walk_caches, cycles=cycles),
        walk_spread=(spread[0], spread[1]) if spread else machine.walk_spread,
        llc_data=round(max(cached * machine.ghz, machine.llc.cycles), 1) if cached else None,
        sources={**machine.sources, **sources},
    )


def _both_ways(matrix: np.ndarray) -> pt.machine.Matrix:
    return tuple(map(tuple, ((matrix + matrix.T) / 2).tolist()))


def write_machine_file(path: str, measure: bool) -> Iterator[str]:
    """Write the machine file of this host to the new file `path`; lines for people.

    measure  whether latencies and page walks are measured; else they are what the firmware says
    PartialDataError, and no file, where page walks were measured on a machine too busy to trust them.
    """
    if Path(path).exists():
        raise pt.UsageError(f"--from-host {path}: exists already; name a new file, or delete it first")
    known, walks, pairs, start = None, {}, np.empty((0, 2)), by_others()
    if measure:
        pt.options.echo("ptanalyze: measuring, half a minute for one node; it slows other programs", err=True)
        with pt.terminal.progress_bar() as progress:
            known = measure_nodes(progress=progress)
            walks = measure_walks(progress=progress)
            pairs = measure_pages(progress=progress)
    added = added_by_walks(pairs) if pairs.size else None
    why = loaded_since(*start) or (in_words(added) if added and unequal(added) else "")
    if why:
        way = "measure again, or leave out --measure"
        raise pt.errors.PartialDataError(f"{path}: not written: {why}; {way}")
    machine = host_machine(Path(path).stem, known)
    if known and walks:
        machine, odd = with_walks(machine, known.nodes, walks, walk_source(walks))
        if odd:
            yield f"page walks are not in the file: {odd.removesuffix('; leave it out')}"
    if added:
        machine = with_own_cycles(machine, added, RANDOM_MEBIBYTES << 20, measure_cached(machine))
        yield f"page walks: {in_words(added)}, at load {os.getloadavg()[0]:.1f} (ours included)"
    pt.measured.write_machine(path, machine)
    size, sources = pt.errors.plural(machine.nodes, "node"), machine.sources
    yield f"{path}: {size} of {machine.cpus_per_node} CPUs at {machine.ghz:g} GHz; use it with -m {path}"
    yield f"latencies: {sources['latency_idle']}"
    if "oddities" in sources:
        yield sources["oddities"]
    yield f"TLBs and page-walk caches: {sources['tlb']}"
