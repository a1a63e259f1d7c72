"""A synthetic capture as a directory, as a dumper and a tracer would write it."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import ptanalyze as pt
from ptanalyze_formats.trace_writer import new_trace

from .kernels import ADDRESS, PAGE_SHIFT, Radix, Space
from .parameters import Parameters, whole_pages
from .plan import Layout, Plan, refused
from .plan import plan as plan_of
from .process import FIRST_TID, START, Frames, Process, Recorder, State, growth, new_state

LOCAL, REMOTE = 10, 20  # distances of the ACPI SLIT
MOVED = 4096  # tables at a time: 16 MiB
HVA = 0x7F0000000000
METHOD = "synth"
SLACK = 1.05  # upper tables, the trace


def synthesize(
    asked: Parameters,
    out: str | os.PathLike[str],
    *,
    trace: bool = True,
    progress: pt.process.Progress = None,
) -> tuple[Process, pt.Snapshot]:
    """Write the capture that Parameters describe to the new directory `out`; returns (Process, Snapshot).

    trace  False: page tables alone. UsageError for contradictions, a full disk or a full modelled machine;
    nothing is left then.
    """
    plan = plan_of(asked)
    asked = plan.asked
    with pt.formats.new_capture(out) as inside:
        must_fit(plan, inside)
        state = new_state(plan, inside)
        writing = new_trace(inside / pt.formats.TRACE, **trace_facts(asked)) if trace else nullcontext()
        with writing as writer:
            process = Process(plan, state, Recorder(plan, writer))
            process.run(progress)
        snapshot = finish(plan, state, inside)
        pt.formats.seal(
            inside,
            "vm" if plan.nested else "process",
            {"synth": {**asked.facts(), "version": pt.__version__}},
        )
    return process, snapshot


def must_fit(plan: Plan, directory: Path) -> None:
    """UsageError, before anything is written, where the disk has no room for the page tables."""
    room = os.statvfs(directory)
    free = room.f_bavail * room.f_frsize
    tables = float(np.count_nonzero(~plan.huge))
    if plan.nested:
        tables += plan.regions * growth(plan.asked.fragmentation) * (1 - (plan.asked.host_thp or 0))
    need = int(2 * tables * pt.snapshot.ENTRIES_PER_TABLE * 8 * SLACK)  # as they are made, and as a file
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
    """Write everything but the trace; returns the Snapshot."""
    space, topology = state.space, topology_of(plan, state.frames.host, plan.asked.nodes)
    facts = {"method": METHOD, "pid": FIRST_TID, "comm": METHOD, "stopped": True, "synth": plan.asked.facts()}
    if plan.asked.scale > 1:
        facts["scale"] = plan.asked.scale
    host = None
    if state.host is None:
        behind = space.guest.frame
    else:
        behind = frames_behind(space)
        host = tree_of(space.host, state.host, space.host.frame, topology, plan.asked.levels, "ept")
        facts["vm"] = vm_facts(plan, space, topology_of(plan, state.frames.guest, state.frames.guest_nodes))
    guest = tree_of(space.guest, state.guest, behind, topology, plan.asked.levels, "x86")
    vmas = np.array([(START, START + (plan.pages << PAGE_SHIFT), 3, False, False)], pt.snapshot.VMA_DTYPE)
    snapshot = pt.Snapshot(guest, vmas, ("",), topology, host, facts)
    pt.formats.write_tree(directory, "gpt", guest)
    if host is not None:
        pt.formats.write_tree(directory, "ept", host)
        pt.formats.write_vm(directory, host_dump(plan, state.frames, host, topology))
    with pt.formats.atomic_write(directory / "maps") as out:
        out.write(pt.formats.format_maps(vmas, ("",)).encode())
    pt.formats.write_json(directory, snapshot)
    return snapshot


def topology_of(plan: Plan, frames: int, nodes: int) -> pt.snapshot.Topology:
    """`nodes` nodes of `frames` frames each, with the CPUs that threads may run on; an oblivious guest's one
    node has all."""
    cpus, made = plan.threads.cpu_node, []
    for n in range(nodes):
        mine = np.flatnonzero(cpus == n) if nodes == plan.asked.nodes else np.arange(len(cpus))
        distance = tuple(LOCAL if other == n else REMOTE for other in range(nodes))
        ranges = np.array([[n * frames, (n + 1) * frames]], np.int64)
        made.append(pt.snapshot.Node(n, tuple(mine.tolist()), ranges, distance))
    return pt.snapshot.Topology(tuple(made))


def frames_behind(space: Space) -> np.ndarray:
    """int64[T]: host frame behind each guest table's frame, -1 for tables that were not made."""
    frame, host = space.guest.frame, space.host
    region = np.maximum(frame, 0) >> 9
    table, huge = host.leaf[region], host.huge[region]
    entry = host.entries[table, np.where(huge, region, frame) & 511]
    behind = ((entry & ADDRESS) >> np.uint64(12)).astype(np.int64) + np.where(huge, frame & 511, 0)
    return np.where(frame < 0, -1, behind)


def tree_of(
    radix: Radix, layout: Layout, behind: np.ndarray, topology: pt.snapshot.Topology, levels: int, code: str
) -> pt.snapshot.Tree:
    """Tree of the tables that were made, which move to the front of their file: memory may not hold them."""
    kept = np.flatnonzero(radix.frame >= 0)
    number = np.cumsum(radix.frame >= 0) - 1
    parent = layout.parent[kept]
    parent = np.where(parent < 0, parent, number[parent]).astype(np.int32)
    node = topology.node_of_frame(behind[kept])
    flags = np.zeros(len(kept), np.uint8)
    columns = layout.base[kept], radix.frame[kept], parent, node, layout.level[kept], flags
    for start in range(0, len(kept), MOVED):
        tables = kept[start : start + MOVED]
        radix.entries[start : start + len(tables)] = radix.entries[tables]
    return pt.snapshot.Tree(radix.entries[: len(kept)], *columns, levels, code)


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


# A synthetic capture from Python: `ptanalyze.synth`.


def synth(
    directory: pt.formats.PathLike, size: int | str | None = None, *, trace: bool = True, **parameters: Any
) -> pt.Capture:
    """Make the capture of a synthetic workload in a new directory, and load it.

    size        of the dataset: bytes, or "64M"; None: that of the graph that `pattern` names
    parameters  of parameters.Parameters (`ptanalyze synth --help` says what they mean)
    """
    known = Parameters.__dataclass_fields__
    for name, value in parameters.items():
        if name not in known:
            raise refused(name, value, f"no such parameter; there are: {', '.join(known)}")
    asked = Parameters(whole_pages(size) if isinstance(size, str) else size, **parameters)
    synthesize(asked, Path(directory), trace=trace)
    return pt.load(directory)
