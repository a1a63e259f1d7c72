"""Placement of the trace's threads on the replaying machine."""

import re
from collections import Counter
from dataclasses import replace
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import DEFAULT_MACHINE, UNKNOWN_NODE, UsageError, is_whole, plural
from ..core.machine import Machine, load_machine, machine_names
from ..core.snapshot import Topology
from ..core.trace import ONE_THREAD, Event, Placement, Trace
from .mm_events import chunk_at

# Threads that move: from a point of the trace on, the threads of node A run on node B.

ACTIVE = 3  # CPUs: mm_active_cpus_exceeds(mm, 3), arch/x86/mm/tlb.c
MOVE = re.compile(r"(\d{1,18}):(\d{1,18})@([\d.]+(?:%|m?s))")
MOVES_FORM = "write FROM:TO@SHARE% of the trace's touches or FROM:TO@TIME, as 0:1@30% or 0:1@2.5s"


def move_threads(placement: Placement, trace: Trace, machine: Machine, moves: str) -> Placement:
    """Placement after moves as "0:1@30%,1:2@60%"; '@2.5s' counts from the trace's first chunk.

    From the first chunk at or after that point on, all threads of node A run on B: every CPU of A gets a CPU
    of its own on B while B has some left, then they are shared. UsageError names an impossible move.
    """
    chunk_cpu, event_cpu = placement.chunk_cpu.copy(), np.array(placement.event_cpu, np.int32)
    cpu_node, how = placement.cpu_node.tolist(), placement.how
    in_order = sorted((_parsed(part.strip(), trace, machine) for part in moves.split(",")), key=itemgetter(0))
    for chunk, source, target, text in in_order:
        after = trace.events["chunk"] > chunk
        later = np.union1d(chunk_cpu[chunk:], event_cpu[after])
        node = np.array(cpu_node)[later]
        leaving, taken = later[node == source].tolist(), set(later[node == target].tolist())
        onto = _cpus_of_moves(leaving, taken, target, cpu_node, machine.cpus_per_node)
        table = np.arange(len(cpu_node), dtype=np.int32)
        table[leaving] = onto
        chunk_cpu[chunk:], event_cpu[after] = table[chunk_cpu[chunk:]], table[event_cpu[after]]
        shared = len(leaving) + len(taken) - len(set(onto) | taken)
        how += f", then {text}"
        how += f" ({shared} of them share a CPU)" if shared else "" if leaving else " (nothing runs there)"
    nodes = np.array(cpu_node, np.int16)
    return replace(placement, chunk_cpu=chunk_cpu, cpu_node=nodes, event_cpu=event_cpu, how=how)


def latest_cpu(trace: Trace, chunk_cpu: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """int32[events]: CPU of the latest chunk of an event's thread before it, else of the thread's first.

    otherwise  int32[events]: for threads without chunks
    """
    cpu = np.array(otherwise, np.int32)
    for thread in np.unique(trace.events["thread"]).tolist():
        chunks = np.flatnonzero(trace.chunks["thread"] == thread)
        if len(chunks):
            mine = np.flatnonzero(trace.events["thread"] == thread)
            at = np.searchsorted(chunks, trace.events["chunk"][mine]) - 1
            cpu[mine] = chunk_cpu[chunks[np.maximum(at, 0)]]
    return cpu


def _parsed(text: str, trace: Trace, machine: Machine) -> tuple[int, int, int, str]:
    """(first chunk after the move, source, target, text)"""
    match = MOVE.fullmatch(text)
    if not match:
        raise UsageError(f"move-threads = {text}: {MOVES_FORM}")
    source, target = (_with_cpus(f"move-threads = {text}", int(match[k]), machine) for k in (1, 2))
    if source == target:
        raise UsageError(f"move-threads = {text}: from a node to itself; {MOVES_FORM}")
    return chunk_at(trace, "move-threads =", match[3], "touches"), source, target, text


def _cpus_of_moves(
    leaving: list[int], taken: set[int], target: int, cpu_node: list[int], most: int
) -> list[int]:
    """CPU on node `target` for each of `leaving`; new ones are added to `cpu_node`."""
    there = [cpu for cpu, node in enumerate(cpu_node) if node == target]
    free = [cpu for cpu in there if cpu not in taken]
    for _ in range(min(len(leaving) - len(free), most - len(there))):
        free.append(len(cpu_node))
        there.append(len(cpu_node))
        cpu_node.append(target)
    free = free[: len(leaving)]
    return free + [there[k % len(there)] for k in range(len(leaving) - len(free))]


AUTO, RECORDED, ROUND_ROBIN, BLOCK = "auto", "recorded", "round-robin", "block"
HOW = '"recorded", "round-robin", "block" or a node for each thread as in "0,0,1,1"'


def place(
    trace: Trace, machine: Machine, how: str = AUTO, topology: Topology | None = None, moves: str = ""
) -> Placement:
    """Placement of a Trace's threads on a Machine; `how` is one of HOW, or "auto".

    auto         recorded when the capture's topology has several nodes, else round-robin
    recorded     each chunk on the node of the CPU it was recorded on
    round-robin  thread i on node i mod nodes; block: the first threads on node 0, the next on node 1, ...
    Each thread gets a CPU of its own while its node has some left; then CPUs are shared, and `how` says so.
    moves        threads that move later, as "0:1@30%" (move_threads)
    Raises UsageError for nodes and CPUs that the machine lacks, and for unknown recorded CPUs.
    """
    if how == AUTO:
        several = topology is not None and len(topology) > 1
        how = RECORDED if several and (trace.chunks["cpu"] >= 0).all() else ROUND_ROBIN
    if how == RECORDED:
        placed = _recorded(trace, machine, topology)
    else:
        nodes, line = _nodes(how, max(len(trace.threads), 1), machine, np.unique(trace.chunks["thread"]))
        cpu, cpu_node = _cpus(nodes, machine.cpus_per_node)
        if shared := len(cpu) - len(cpu_node):
            sharing = "1 thread shares a CPU" if shared == 1 else f"{shared} threads share CPUs"
            line += f", {sharing} ({plural(machine.cpus_per_node, 'CPU')} per node)"
        placed = Placement(cpu[trace.chunks["thread"]], cpu_node, cpu[trace.events["thread"]], line)
    return move_threads(placed, trace, machine, moves) if moves else placed


def _recorded(trace: Trace, machine: Machine, topology: Topology | None) -> Placement:
    if topology is None or not len(topology):
        why = "the capture knows no topology; use round-robin or block"
        raise UsageError(f"--threads-to-nodes recorded: {why}")
    node_of = np.append(topology.node_of_cpu(), np.int16(UNKNOWN_NODE))
    cpus, event = (column["cpu"].astype(np.int64) for column in (trace.chunks, trace.events))
    of_chunk, of_event = (
        node_of[np.where((cpu >= 0) & (cpu < len(node_of)), cpu, -1)] for cpu in (cpus, event)
    )
    if (of_chunk == UNKNOWN_NODE).any():
        chunk = int(np.argmax(of_chunk == UNKNOWN_NODE))
        raise UsageError(
            f"--threads-to-nodes recorded: CPU {cpus[chunk]} of chunk {chunk} is on no known node; use "
            "round-robin or block"
        )
    there = np.unique(of_chunk)[::-1].tolist()
    nodes = [_with_cpus("--threads-to-nodes recorded", node, machine) for node in there]
    how = f"recorded: {plural(len(np.unique(cpus)), 'CPU')} on {plural(len(nodes), 'node')}"
    known = (of_event != UNKNOWN_NODE) & (of_event < machine.nodes)
    used = np.union1d(cpus, event[known])
    chunk_cpu = np.searchsorted(used, cpus).astype(np.int32)
    event_cpu = latest_cpu(trace, chunk_cpu, np.zeros(len(event), np.int32))
    event_cpu[known] = np.searchsorted(used, event[known])
    node = node_of[used] if len(used) else np.zeros(1)
    return Placement(chunk_cpu, node.astype(np.int16), event_cpu, how)


def _nodes(how: str, threads: int, machine: Machine, running: np.ndarray) -> tuple[np.ndarray, str]:
    """(node of each thread, a line for people). running: those that access memory, as an answer counts them:
    others may be left out of a list, and run where the first does."""
    order = np.arange(threads)
    if threads == 1 and how in (ROUND_ROBIN, BLOCK):
        return np.array(machine.cpu_nodes[:1]), f"{ONE_THREAD}, on node {machine.cpu_nodes[0]}"
    nodes = np.array(machine.cpu_nodes)
    some = f", {threads} of them used" if threads < len(nodes) else ""
    over = f"over {plural(len(nodes), 'node')}{some}"
    if how == ROUND_ROBIN:
        return nodes[order % len(nodes)], f"round-robin {over}"
    if how == BLOCK:
        return nodes[order * len(nodes) // threads], f"in blocks {over}"
    given = []
    for text in map(str.strip, how.split(",")):
        if not is_whole(text):
            raise UsageError(f"--threads-to-nodes {how}: {text!r} is not a node; give {HOW}")
        given.append(_with_cpus(f"--threads-to-nodes {how}", int(text), machine))
    if len(given) == threads:
        return np.array(given), how
    if len(given) != len(running):
        idle = f", or for {len(running)}, those that access memory" if 0 < len(running) < threads else ""
        raise UsageError(f"--threads-to-nodes {how}: {len(given)} nodes for {threads} threads{idle}")
    every = np.full(threads, given[0])
    every[running] = given
    return every, how


def with_node(node: int) -> Machine | None:
    """The default Machine, else the smallest of the package, that has CPUs on this node; None: none has."""
    having = [each for each in map(load_machine, machine_names()) if node in each.cpu_nodes]
    return min(having, key=lambda each: (each.name != DEFAULT_MACHINE, each.nodes), default=None)


def _with_cpus(option: str, node: int, machine: Machine) -> int:
    """The node; UsageError where the machine has no such node, or no CPUs on it."""
    if node >= machine.nodes:
        there = f"machine {machine.name} has nodes 0..{machine.nodes - 1}"
        larger = with_node(node)
        fits = f"use -m {larger.name} ({larger.nodes} nodes), or " if larger else ""
        raise UsageError(f"{option}: node {node}: {there}; {fits}name nodes that it has")
    if node in machine.memory_nodes:
        raise UsageError(f"{option}: node {node} of machine {machine.name} has no CPUs; name one that has")
    return node


def _cpus(nodes: np.ndarray, cpus_per_node: int) -> tuple[np.ndarray, np.ndarray]:
    """(int32[threads] CPU of each thread, int16[cpus] node of each CPU)."""
    numbers: dict[tuple[int, int], int] = {}  # of (node, CPU within it)
    threads, cpu = Counter[int](), list[int]()
    for node in nodes.tolist():
        cpu.append(numbers.setdefault((node, threads[node] % cpus_per_node), len(numbers)))
        threads[node] += 1
    return np.array(cpu, np.int32), np.array([node for node, _ in numbers], np.int16)


# Number of CPUs of each node with a live thread of a process: the targets of a TLB shootdown.


class HomeMove(NamedTuple):
    """Most live threads run on `after`, not `before`, from event `event` and the first walk of `chunk` on."""

    event: int
    chunk: int
    before: int
    after: int


class LiveCpus:
    """Follows the trace's threads from its begin to its end. Linux keeps their CPUs as mm_cpumask.

    A thread lives from its THREAD_START event (from the beginning without one) to its THREAD_EXIT, on the
    CPU of its latest chunk (of its first chunk before that).

    home   node on which most live threads run at first; another node needs more of them to take over
    moves  [HomeMove]
    broadcast  whether a process that has been active on more than ACTIVE CPUs sends no IPIs any more
    """

    def __init__(self, trace: Trace, placement: Placement, broadcast: bool = False) -> None:
        events, self._event_cpu, self.cpu_node = trace.events, placement.event_cpu, placement.cpu_node
        kind, thread = events["kind"], events["thread"]
        nodes = int(self.cpu_node.max(initial=0)) + 1
        cpu, changes = _changes(trace, placement)
        live = set(cpu) - set(thread[kind == Event.THREAD_START].tolist())
        on = np.bincount([cpu[one] for one in live], minlength=len(self.cpu_node))  # live threads of each CPU
        self.moves: list[HomeMove] = []
        self._own, since = np.zeros(len(events), bool), [0]
        self._chunks, self._past = [0], [np.bincount(self.cpu_node[on > 0], minlength=nodes)]
        main = int(self.cpu_node[cpu[0]]) if 0 in cpu else 0
        self.home = int(np.bincount(self.cpu_node, on, nodes).argmax()) if live else main
        now, done = self.home, 0
        for at, chunk, index, target in changes:
            self._own[done:at] = on[self._event_cpu[done:at]] > 0
            done, before = at, cpu[index] if index in live else None
            if target is not None:
                cpu[index] = target
            elif kind[at] == Event.THREAD_START:
                live.add(index)
                cpu.setdefault(index, int(self._event_cpu[at]))
            else:
                live.discard(index)
            after = cpu[index] if index in live else None
            if after == before:
                continue
            for where, change in ((before, -1), (after, 1)):
                if where is not None:
                    on[where] += change
            since.append(at)
            self._chunks.append(chunk)
            self._past.append(np.bincount(self.cpu_node[on > 0], minlength=nodes))
            threads = np.bincount(self.cpu_node, on, nodes)
            if threads.max() > threads[now]:
                self.moves.append(HomeMove(at, chunk, now, int(threads.argmax())))
                now = self.moves[-1].after
        self._own[done:] = on[self._event_cpu[done:]] > 0
        self._version = np.searchsorted(since, np.arange(len(events)), side="right") - 1
        active = np.array([cpus.sum() > ACTIVE for cpus in self._past])
        self._broadcast = int(active.argmax()) if broadcast and active.any() else len(self._past)

    def others(self, events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(int32[n, nodes]: CPUs to interrupt, those with a live thread but for the event's own; bool[n]:
        whether it shoots down without interrupting anyone), when each event happens."""
        return self._others(self._version[events], self._event_cpu[events], self._own[events])

    def others_then(self, chunks: np.ndarray, cpus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same as `others` while each chunk runs, on these CPUs."""
        return self._others(np.searchsorted(self._chunks, chunks, side="right") - 1, cpus, 1)

    def _others(self, version: np.ndarray, cpu: np.ndarray, own: Any) -> tuple[np.ndarray, np.ndarray]:
        counts, broadcast = np.array(self._past, np.int32)[version], version >= self._broadcast
        counts[np.arange(len(cpu)), self.cpu_node[cpu]] -= own
        counts[broadcast] = 0
        return np.maximum(counts, 0), broadcast


def _changes(
    trace: Trace, placement: Placement
) -> tuple[dict[int, int], list[tuple[int, int, int, int | None]]]:
    """({thread: CPU of its first chunk}, [(event, chunk, thread, new CPU)] in order: threads that move before
    the event, and where the CPU is None those that it starts or ends)."""
    events, thread, cpu = trace.events, trace.chunks["thread"].astype(np.int64), placement.chunk_cpu
    order = np.argsort(thread, kind="stable")
    same = np.diff(thread[order], prepend=-1) == 0
    first, moved = order[~same], np.sort(order[same & (np.diff(cpu[order], prepend=-1) != 0)])
    chunk = np.maximum.accumulate(events["chunk"])
    lives = np.flatnonzero(np.isin(events["kind"], (Event.THREAD_START, Event.THREAD_EXIT)))
    moves = np.searchsorted(chunk, moved, side="right"), moved, thread[moved], cpu[moved]
    rows = [
        *zip(*(column.tolist() for column in moves), strict=True),
        *zip(lives.tolist(), chunk[lives].tolist(), events["thread"][lives].tolist(), repeat(None)),
    ]
    begun = dict(zip(thread[first].tolist(), cpu[first].tolist(), strict=True))
    return begun, sorted(rows, key=lambda row: (row[0], row[3] is None))
