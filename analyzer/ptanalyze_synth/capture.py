"""A synthetic capture as a directory, as a dumper and a tracer would write it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import ptanalyze as pt

from .kernels import ADDRESS, FIRST_TOUCH, INTERLEAVE, Radix, Space
from .plan import Layout, Parameters, Plan, refused, whole_pages
from .plan import plan as plan_of
from .process import (
    FIRST_TID,
    PAGE_SHIFT,
    START,
    Frames,
    Process,
    Recorder,
    State,
    growth,
    new_group,
    new_state,
)

LOCAL, REMOTE = 10, 20  # distances of the ACPI SLIT
HVA = 0x7F0000000000
METHOD = "synth"
SLACK = 1.05  # upper tables, the trace


@dataclass(frozen=True)
class Made:
    """Sizes of a capture: tables by level of each dimension, table pages by node, accesses traced."""

    guest: dict[int, int]
    host: dict[int, int] | None
    guest_nodes: dict[int, int]
    host_nodes: dict[int, int] | None
    accesses: int


def synthesize(
    asked: Parameters,
    out: str | os.PathLike[str],
    *,
    trace: bool = True,
    progress: pt.process.Progress = None,
) -> tuple[Plan, Made]:
    """Write the capture that Parameters describe to the new directory `out`; returns (Plan, Made).

    trace  False: page tables alone. UsageError for contradictions, a full disk or a full modelled machine;
    nothing is left then.
    """
    plan = plan_of(asked)
    asked = plan.asked
    with pt.formats.new_capture(out) as inside:
        must_fit(plan, inside)
        state = new_state(plan, inside)
        if trace:
            with pt.formats.new_trace(inside / pt.formats.TRACE, **trace_facts(asked)) as writer:
                process = Process(plan, state, Recorder(plan, writer))
                process.run(progress)
        else:
            process = Process(plan, state, Recorder(plan))
            process.run(progress)
        snapshot = finish(plan, state, inside)
        pt.formats.seal(
            inside,
            "vm" if plan.nested else "process",
            {"synth": {**asked.facts(), "version": pt.__version__}},
        )
    return plan, made_of(snapshot, process.recorder.accesses if trace else 0)


def must_fit(plan: Plan, directory: Path) -> None:
    """UsageError, before anything is written, where the disk has no room for the page tables."""
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    tables = float(np.count_nonzero(~plan.huge))
    if plan.nested:
        tables += plan.regions * growth(plan.asked.fragmentation) * (1 - (plan.asked.host_thp or 0))
    need = int(tables * pt.formats.TABLE_BYTES * SLACK)
    if need > free:
        raise pt.UsageError(
            f"{directory.parent}: about {pt.errors.show_size(need)} of page tables do not fit, "
            f"{pt.errors.show_size(free)} are free"
        )


def trace_facts(asked: Parameters) -> dict[str, Any]:
    said = [
        f"--{name.replace('_', '-')}={value}" for name, value in asked.facts().items() if value is not None
    ]
    return {
        "ended": "exit",
        "pid": FIRST_TID,
        "tracer": f"ptanalyze synth {pt.__version__}",
        "command": " ".join(["synth", *said]),
        "instructions": True,
    }


def finish(plan: Plan, state: State, directory: Path) -> pt.Snapshot:
    """Write everything but the trace; returns the Snapshot, whose entries are in their files by then."""
    space, topology = state.space, topology_of(plan, state.frames.host)
    facts = {"method": METHOD, "pid": FIRST_TID, "comm": METHOD, "stopped": True, "synth": plan.asked.facts()}
    if plan.asked.scale > 1:
        facts["scale"] = plan.asked.scale
    host = None
    if state.host is None:
        behind = space.guest.frame
    else:
        behind = frames_behind(space)
        host = tree_of(space.host, state.host, space.host.frame, topology, plan.asked.levels, "ept")
        seen = guest_topology(plan, state.frames)
        facts["vm"] = vm_facts(plan, space, seen)
    guest = tree_of(space.guest, state.guest, behind, topology, plan.asked.levels, "x86")
    vmas = np.array([(START, START + (plan.pages << PAGE_SHIFT), 3, False, False)], pt.snapshot.VMA_DTYPE)
    snapshot = pt.Snapshot(guest, vmas, ("",), topology, host, facts)
    write_tree(directory, "gpt", space.guest, guest)
    if host is not None:
        write_tree(directory, "ept", space.host, host)
        pt.formats.write_vm(directory, host_dump(plan, state.frames, host, topology))
    with pt.formats.atomic_write(directory / "maps") as out:
        out.write(pt.formats.format_maps(vmas, ("",)).encode())
    pt.formats.write_json(directory, snapshot, facts)
    return snapshot


def topology_of(plan: Plan, frames: int) -> pt.snapshot.Topology:
    """Nodes of `frames` frames each, with the CPUs threads may run on (of a VM: its vCPUs)."""
    return pt.snapshot.Topology(
        tuple(node_of(plan, n, frames, plan.asked.nodes) for n in range(plan.asked.nodes))
    )


def guest_topology(plan: Plan, frames: Frames) -> pt.snapshot.Topology:
    """Topology as the guest sees it: a node per host node, or one for all."""
    return pt.snapshot.Topology(
        tuple(node_of(plan, n, frames.guest, frames.guest_nodes) for n in range(frames.guest_nodes))
    )


def node_of(plan: Plan, n: int, frames: int, nodes: int) -> pt.snapshot.Node:
    cpus = plan.threads.cpu_node
    mine = np.flatnonzero(cpus == n) if nodes == plan.asked.nodes else np.arange(len(cpus))
    distance = tuple(LOCAL if other == n else REMOTE for other in range(nodes))
    return pt.snapshot.Node(
        n, tuple(mine.tolist()), np.array([[n * frames, (n + 1) * frames]], np.int64), distance
    )


def frames_behind(space: Space) -> np.ndarray:
    """int64[T]: host frame behind each guest table's frame, -1 for tables that were not made."""
    frame, host = space.guest.frame, space.host
    region = np.maximum(frame, 0) >> 9
    table, huge = host.leaf[region], host.huge[region]
    entry = host.entries[table, np.where(huge, region, frame) & 511]
    behind = ((entry & ADDRESS) >> np.uint64(12)).astype(np.int64) + np.where(huge, frame & 511, 0)
    return np.where(frame < 0, -1, behind)


def tree_of(
    radix: Radix,
    layout: Layout,
    behind: np.ndarray,
    topology: pt.snapshot.Topology,
    levels: int,
    encoding: str,
) -> pt.snapshot.Tree:
    """Tree of the tables that were made; its entries stay where they are until write_tree."""
    kept = np.flatnonzero(radix.frame >= 0)
    number = np.cumsum(radix.frame >= 0) - 1
    parent = layout.parent[kept]
    parent = np.where(parent < 0, parent, number[parent]).astype(np.int32)
    node = topology.node_of_frame(behind[kept])
    flags = np.zeros(len(kept), np.uint8)
    columns = layout.base[kept], radix.frame[kept], parent, node, layout.level[kept], flags
    return pt.snapshot.Tree(radix.entries, *columns, levels, encoding)


def write_tree(directory: Path, name: str, radix: Radix, tree: pt.snapshot.Tree) -> None:
    pt.formats.keep_tables(radix.entries, np.flatnonzero(radix.frame >= 0))
    pt.formats.close_entries(directory, name, tree)
    pt.formats.write_records(directory, name, tree)


def vm_facts(plan: Plan, space: Space, seen: pt.snapshot.Topology) -> dict[str, Any]:
    """Facts of both sides, as of `ptanalyze join`."""
    node = seen.node_of_frame(space.guest.frame[space.guest.frame >= 0])
    return {
        "seconds_apart": None,
        "guest_nodes": msgspec.to_builtins(pt.formats.node_records(seen)),
        "guest_tables_by_guest_node": {str(n): int(np.count_nonzero(node == n)) for n in np.unique(node)},
        "numa_oblivious": len(seen) == 1 < plan.asked.nodes,
        "host": {"method": METHOD},
    }


def host_dump(
    plan: Plan, frames: Frames, tree: pt.snapshot.Tree, topology: pt.snapshot.Topology
) -> pt.formats.HostDump:
    """vm.json: a slot for each guest node, all vCPUs on the one root."""
    size, root = frames.guest << PAGE_SHIFT, int(tree.frame[0])
    slots = tuple(
        pt.formats.Slot(gpa=n * size, bytes=size, hva=HVA + n * size) for n in range(frames.guest_nodes)
    )
    vcpus = tuple(
        pt.formats.Vcpu(tid=2 * FIRST_TID + cpu, cpu=cpu, node=node, root=root)
        for cpu, node in enumerate(plan.threads.cpu_node.tolist())
    )
    roots = (pt.formats.Root(frame=root, kind="tdp_mmu", table=0, levels=plan.asked.levels),)
    return pt.formats.HostDump(
        tree, topology, slots, vcpus, roots, {"method": METHOD, "comm": METHOD, "stopped": True}
    )


def made_of(snapshot: pt.Snapshot, accesses: int) -> Made:
    host = snapshot.host
    return Made(
        counted(snapshot.guest.level),
        None if host is None else counted(host.level),
        counted(snapshot.guest.node),
        None if host is None else counted(host.node),
        accesses,
    )


def counted(values: np.ndarray) -> dict[int, int]:
    return {
        int(value): int(count) for value, count in zip(*np.unique(values, return_counts=True), strict=True)
    }


# A synthetic capture from Python: `ptanalyze.synth`.


def synth(
    directory: pt.formats.PathLike, size: int | str | None = None, *, trace: bool = True, **parameters: Any
) -> pt.Capture:
    """Make the capture of a synthetic workload in a new directory, and load it.

    size        of the dataset: bytes, or "64M"; None: that of the graph that `pattern` names
    parameters  of plan.Parameters (`ptanalyze synth --help` says what they mean)
    """

    known = Parameters.__dataclass_fields__
    for name, value in parameters.items():
        if name not in known:
            raise refused(name, value, f"no such parameter; there are: {', '.join(known)}")
    asked = Parameters(whole_pages(size) if isinstance(size, str) else size, **parameters)
    synthesize(asked, Path(directory), trace=trace)
    return pt.load(directory)


# Expected results of a synthetic capture, where a closed form exists.


def leaf_classes(plan: Plan) -> dict[str, np.ndarray] | None:
    """{class: float64[nodes]}: expected share of leaf entries by class, seen from each socket; None: no form.

    First touch puts leaf tables on the nodes of the threads that own the mapped part; interleaving draws
    nodes evenly; two dimensions are independent unless both follow the threads: a share of a socket's own gPT
    times a share of its own ePT (vMitosis, section 2.2: 1/N^2). Huge leaves lie in tables that span 1 GiB,
    which several threads may share: no form.
    """
    if plan.asked.munmap_every is not None or plan.data is not None or plan.asked.node_memory is not None:
        return None
    if plan.asked.thp or plan.asked.host_thp:
        return None
    host = spread(plan, plan.host_policy)
    if not plan.nested:
        local = spread(plan, plan.policy)
        return {"Local": local, "Remote": 1 - local}
    policy = plan.host_policy if plan.asked.guest == "oblivious" else plan.policy
    guest = spread(plan, policy)
    together = guest if policy == plan.host_policy == FIRST_TOUCH else guest * host
    return {
        "Local-Local": together,
        "Local-Remote": guest - together,
        "Remote-Local": host - together,
        "Remote-Remote": 1 - guest - host + together,
    }


def spread(plan: Plan, policy: int) -> np.ndarray:
    """float64[nodes]: expected share of the leaf tables' entries on each node."""
    nodes = plan.asked.nodes
    if policy == INTERLEAVE:
        return np.full(nodes, 1 / nodes)
    share = np.zeros(nodes)
    if policy >= 0:
        share[policy] = 1
    elif plan.asked.init == "single":
        share[plan.threads.node[0]] = 1
    else:
        np.add.at(share, plan.threads.node, np.diff(plan.threads.part) / plan.pages)
    return share


def fragmentation(plan: Plan) -> float | None:
    """PTEMagnet's metric (section 3.2): lines of ePT entries behind a line of gPT entries; None: no form.

    A page shares its line with the page before it unless it begins 8 frames of its own: 1 + 7 p, with p from
    process.new_group. Without a co-runner groups stay aligned: 1.
    """
    plain = plan.policy != INTERLEAVE and plan.asked.munmap_every is None and plan.data is None
    if not plan.nested or not plain or plan.asked.thp == 1:
        return None
    chance = plan.asked.fragmentation
    return 1.0 + 7 * new_group(chance) if chance > 0 else 1.0
