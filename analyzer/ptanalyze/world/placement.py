"""Placement of the trace's threads on the replaying machine."""

import numpy as np

from ..core.errors import UNKNOWN_NODE, UsageError, is_whole, plural
from ..core.machine import Machine
from ..core.snapshot import Topology
from ..core.trace import Trace
from ..core.walks import ONE_THREAD, Placement
from .thread_moves import latest_cpu, move_threads

AUTO, RECORDED, ROUND_ROBIN, BLOCK = "auto", "recorded", "round-robin", "block"
HOW = (
    '"recorded", "round-robin", "block", a node for each thread as in "0,0,1,1", '
    "or the main thread's and the others' as in \"main=0,rest=round-robin\""
)


def place(
    trace: Trace, machine: Machine, how: str = AUTO, topology: Topology | None = None, moves: str = ""
) -> Placement:
    """Placement of a Trace's threads on a Machine; `how` is one of HOW, or "auto".

    auto         recorded when the capture's topology has several nodes, else round-robin
    recorded     each chunk on the node of the CPU it was recorded on
    round-robin  thread i on node i mod nodes; block: the first threads on node 0, the next on node 1, ...
    Each thread gets a CPU of its own while its node has some left; then CPUs are shared, and `how` says so.
    moves        threads that move later, as "0:1@30%" (thread_moves.move_threads)
    Raises UsageError for nodes and CPUs that the machine lacks, and for unknown recorded CPUs.
    """
    if how == AUTO:
        several = topology is not None and len(topology) > 1
        how = RECORDED if several and (trace.chunks["cpu"] >= 0).all() else ROUND_ROBIN
    placed = _recorded(trace, machine, topology) if how == RECORDED else _told(trace, machine, how)
    return move_threads(placed, trace, machine, moves) if moves else placed


def _told(trace: Trace, machine: Machine, how: str) -> Placement:
    threads = max(len(trace.threads), 1)
    nodes, said = _nodes(how, threads, machine)
    cpu, cpu_node, shared = _cpus(nodes, machine.cpus_per_node)
    if shared:
        said += f", {shared} threads share a CPU ({machine.cpus_per_node} per node)"
    return Placement(cpu[trace.chunks["thread"]], cpu_node, cpu[trace.events["thread"]], said)


def _recorded(trace: Trace, machine: Machine, topology: Topology | None) -> Placement:
    if topology is None or not len(topology):
        raise UsageError("placement = recorded: the capture knows no topology; use round-robin or block")
    node_of = topology.node_of_cpu()
    cpus = trace.chunks["cpu"].astype(np.int64)
    unknown = (cpus < 0) | (cpus >= len(node_of))
    unknown |= node_of[np.where(unknown, 0, cpus)] == UNKNOWN_NODE
    if unknown.any():
        raise UsageError(
            f"placement = recorded: CPU {cpus[np.argmax(unknown)]} of chunk {np.argmax(unknown)} is on no "
            "known node; use round-robin or block"
        )
    event, known = _events_cpus(trace, node_of, machine)
    used = np.unique(cpus)
    node = node_of[used]
    if len(used) and node.max() >= machine.nodes:
        raise UsageError(
            f"placement = recorded: threads ran on node {node.max()}, machine {machine.name} has nodes "
            f"0..{machine.nodes - 1}; use round-robin or block"
        )
    if slow := sorted(set(node.tolist()) & set(machine.memory_nodes)):
        raise UsageError(
            f"placement = recorded: threads ran on node {slow[0]}, which has no CPUs on machine "
            f"{machine.name}; use round-robin or block"
        )
    on = len(set(node.tolist()))
    how = f"recorded: {plural(len(used), 'CPU')} on {plural(on, 'node')}"
    used = np.union1d(cpus, event[known])
    chunk_cpu = np.searchsorted(used, cpus).astype(np.int32)
    event_cpu = latest_cpu(trace, chunk_cpu, np.zeros(len(event), np.int32))
    event_cpu[known] = np.searchsorted(used, event[known])
    node = node_of[used] if len(used) else np.zeros(1)
    return Placement(chunk_cpu, node.astype(np.int16), event_cpu, how)


def _events_cpus(trace: Trace, node_of: np.ndarray, machine: Machine) -> tuple[np.ndarray, np.ndarray]:
    """(int64[events] recorded CPU, bool[events] whether the machine has it)."""
    cpu = trace.events["cpu"].astype(np.int64)
    known = (cpu >= 0) & (cpu < len(node_of))
    node = node_of[cpu[known]]
    known[known] = (node != UNKNOWN_NODE) & (node < machine.nodes)
    return cpu, known


def _nodes(how: str, threads: int, machine: Machine) -> tuple[np.ndarray, str]:
    """(node of each thread, a line for people)."""
    order = np.arange(threads)
    if threads == 1 and how in (ROUND_ROBIN, BLOCK):
        return np.array(machine.cpu_nodes[:1]), f"{ONE_THREAD}, on node {machine.cpu_nodes[0]}"
    nodes = np.array(machine.cpu_nodes)
    over = f"over {len(nodes)} nodes" + (f", {threads} of them used" if threads < len(nodes) else "")
    if how == ROUND_ROBIN:
        return nodes[order % len(nodes)], f"round-robin {over}"
    if how == BLOCK:
        return nodes[order * len(nodes) // threads], f"in blocks {over}"
    if how.startswith("main="):
        main, _, rest = how[len("main=") :].partition(",rest=")
        others = _nodes(rest or ROUND_ROBIN, threads, machine)[0] if not is_whole(rest) else None
        nodes = np.full(threads, _node(rest, how, machine)) if others is None else others
        nodes[0] = _node(main, how, machine)
        return nodes, how
    given = [_node(part, how, machine) for part in how.split(",")]
    if len(given) != threads:
        raise UsageError(f"placement = {how}: {len(given)} nodes for {threads} threads")
    return np.array(given), how


def _node(text: str, how: str, machine: Machine) -> int:
    text = text.strip()
    if not is_whole(text):
        raise UsageError(f"placement = {how}: {text!r} is no node; give {HOW}")
    if int(text) >= machine.nodes:
        raise UsageError(
            f"placement = {how}: node {text}: machine {machine.name} has nodes 0..{machine.nodes - 1}"
        )
    if int(text) in machine.memory_nodes:
        raise UsageError(f"placement = {how}: node {text} of machine {machine.name} has no CPUs")
    return int(text)


def _cpus(nodes: np.ndarray, cpus_per_node: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(int32[threads] CPU of each thread, int16[cpus] node of each CPU, threads that share a CPU)."""
    known: dict[tuple[int, int], int] = {}
    cpu_node: list[int] = []
    cpu: list[int] = []
    used: dict[int, int] = {}
    for node in nodes.tolist():
        slot = used.get(node, 0)
        used[node] = slot + 1
        key = node, slot % cpus_per_node
        if key not in known:
            known[key] = len(cpu_node)
            cpu_node.append(node)
        cpu.append(known[key])
    shared = len(cpu) - len(cpu_node)
    return np.array(cpu, np.int32), np.array(cpu_node, np.int16), shared
