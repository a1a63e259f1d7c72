"""Threads that move: from a point of the trace on, the threads of node A run on node B."""

import re
from dataclasses import replace

import numpy as np

from ..core.errors import UsageError
from ..core.machine import Machine
from ..core.trace import Trace
from ..core.walks import Placement

MOVE = re.compile(r"(\d{1,18}):(\d{1,18})@(\d+(?:\.\d+)?)(%|s)")
MOVES_FORM = "write FROM:TO@SHARE% of the trace's touches or FROM:TO@SECONDS s, as 0:1@30% or 0:1@2.5s"


def move_threads(placement: Placement, trace: Trace, machine: Machine, moves: str) -> Placement:
    """Placement after moves as "0:1@30%,1:2@60%"; '@2.5s' counts from the trace's first chunk.

    From the first chunk at or after that point on, all threads of node A run on B: every CPU of A gets a CPU
    of its own on B while B has some left, then they are shared. UsageError names an impossible move.
    """
    chunk_cpu, event_cpu = placement.chunk_cpu.copy(), np.array(placement.event_cpu, np.int32)
    cpu_node, how = placement.cpu_node.tolist(), placement.how
    for chunk, source, target, text in _in_order(moves, trace, machine):
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
    return replace(
        placement, chunk_cpu=chunk_cpu, cpu_node=np.array(cpu_node, np.int16), event_cpu=event_cpu, how=how
    )


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


def _in_order(moves: str, trace: Trace, machine: Machine) -> list[tuple[int, int, int, str]]:
    """[(first chunk after the move, source, target, text)], as they happen."""
    parsed = [_parsed(part.strip(), trace, machine) for part in moves.split(",")]
    return sorted(parsed, key=lambda move: move[0])


def _parsed(text: str, trace: Trace, machine: Machine) -> tuple[int, int, int, str]:
    match = MOVE.fullmatch(text)
    if not match:
        raise UsageError(f"move-threads = {text}: {MOVES_FORM}")
    source, target = int(match[1]), int(match[2])
    for node in (source, target):
        if node in machine.memory_nodes:
            raise UsageError(f"move-threads = {text}: node {node} of machine {machine.name} has no CPUs")
        if node >= machine.nodes:
            raise UsageError(
                f"move-threads = {text}: node {node}: machine {machine.name} has nodes 0..{machine.nodes - 1}"
            )
    if source == target:
        raise UsageError(f"move-threads = {text}: from a node to itself; {MOVES_FORM}")
    return _chunk(float(match[3]), match[4], text, trace), source, target, text


def _chunk(amount: float, unit: str, text: str, trace: Trace) -> int:
    if unit == "%":
        if amount > 100:
            raise UsageError(f"move-threads = {text}: {amount:g} % is beyond the trace's end; {MOVES_FORM}")
        return int(np.searchsorted(trace.chunks["first"], amount / 100 * trace.touches))
    time = trace.chunks["time"]
    if len(time) > 1 and time[0] == time[-1]:
        raise UsageError(f"move-threads = {text}: the trace has no times; give a share, as 0:1@30%")
    return int(np.searchsorted(time, time[0] + amount * 1e9)) if len(time) else 0


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
