"""Number of CPUs of each node with a live thread of a process: the targets of a TLB shootdown."""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ..core.trace import Event, Trace
from ..core.walks import Placement


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
    """

    def __init__(self, trace: Trace, placement: Placement) -> None:
        self.cpu_node, self._event_cpu = placement.cpu_node, placement.event_cpu
        self._on = np.zeros(len(placement.cpu_node), np.int64)  # live threads of each CPU
        self._per_node = [0] * (int(placement.cpu_node.max(initial=0)) + 1)  # CPUs with some
        self._threads = list(self._per_node)
        self._cpu, self._moves = _where(trace, placement)
        started = set(trace.events["thread"][trace.events["kind"] == Event.THREAD_START].tolist())
        self._live = {thread for thread in self._cpu if thread not in started}
        self._next = 0
        self.moves: list[HomeMove] = []
        self._chunks: list[int] = []
        self._past: list[tuple[int, ...]] = []
        for thread in self._live:
            self._count(self._cpu[thread], 1)
        main = int(self.cpu_node[self._cpu[0]]) if 0 in self._cpu else 0
        self.home = self._now = self._threads.index(max(self._threads)) if self._live else main
        self._changed(0, 0)
        self._follow(trace.events)

    def home_at(self, event: int) -> int:
        """`home` just before an event."""
        return next((move.after for move in reversed(self.moves) if move.event < event), self.home)

    def others(self, events: np.ndarray) -> np.ndarray:
        """int32[n, nodes]: CPUs with a live thread when these events happened, that of the event left out."""
        counts: np.ndarray = np.array(self._past, np.int32)[self._version[events]]
        node = self.cpu_node[self._event_cpu[events]]
        counts[np.arange(len(events)), node] -= self._own[events]
        return counts

    def others_then(self, chunk: int, cpu: int) -> list[int]:
        """CPUs of each node with a live thread while `chunk` ran, without `cpu`, which ran it."""
        counts = list(self._past[bisect_right(self._chunks, chunk) - 1])
        counts[self.cpu_node[cpu]] = max(counts[self.cpu_node[cpu]] - 1, 0)
        return counts

    def _follow(self, events: np.ndarray) -> None:
        """Only events that start and end threads, and the first after each move, change anything."""
        chunk = np.maximum.accumulate(events["chunk"])
        moved = np.searchsorted(chunk, [at for at, _, _ in self._moves], side="right")
        starts = np.flatnonzero(np.isin(events["kind"], (Event.THREAD_START, Event.THREAD_EXIT)))
        self._version, self._own = np.zeros(len(events), np.int64), np.zeros(len(events), bool)
        done = 0
        for event in [*np.unique(np.concatenate([moved, starts])).tolist(), len(events)]:
            self._version[done:event] = len(self._past) - 1
            self._own[done:event] = self._on[self._event_cpu[done:event]] > 0
            self._move_until(event, int(chunk[event]) if event < len(events) else None)
            if event < len(events):
                self._happen(event, *(int(events[name][event]) for name in ("chunk", "kind", "thread")))
            done = event

    def _happen(self, event: int, chunk: int, kind: int, thread: int) -> None:
        if kind == Event.THREAD_START and thread not in self._live:
            self._live.add(thread)
            self._count(self._cpu.setdefault(thread, int(self._event_cpu[event])), 1)
        elif kind == Event.THREAD_EXIT and thread in self._live:
            self._live.discard(thread)
            self._count(self._cpu[thread], -1)
        else:
            return
        self._changed(event, chunk)

    def _move_until(self, event: int, chunk: int | None) -> None:
        """Make the thread moves before `chunk`; all of them for None."""
        while self._next < len(self._moves):
            at, mover, target = self._moves[self._next]
            if chunk is not None and at >= chunk:
                return
            if mover in self._live:
                self._count(self._cpu[mover], -1)
                self._count(target, 1)
            self._cpu[mover] = target
            self._next += 1
            self._changed(event, at)

    def _count(self, cpu: int, change: int) -> None:
        before = self._on[cpu] > 0
        self._on[cpu] += change
        self._per_node[self.cpu_node[cpu]] += int(self._on[cpu] > 0) - int(before)
        self._threads[self.cpu_node[cpu]] += change

    def _changed(self, event: int, chunk: int) -> None:
        self._chunks.append(chunk)
        self._past.append(tuple(self._per_node))
        most = max(self._threads)
        if most > self._threads[self._now]:
            self.moves.append(HomeMove(event, chunk, self._now, self._threads.index(most)))
            self._now = self.moves[-1].after


def _where(trace: Trace, placement: Placement) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """({thread: CPU of its first chunk}, [(chunk, thread, new CPU)] where a thread's CPU changes)."""
    thread = trace.chunks["thread"]
    cpu, moves = {}, []
    for index in np.unique(thread).tolist():
        chunks = np.flatnonzero(thread == index)
        cpus = placement.chunk_cpu[chunks]
        cpu[index] = int(cpus[0])
        for at in np.flatnonzero(np.diff(cpus)) + 1:
            moves.append((int(chunks[at]), index, int(cpus[at])))
    return cpu, sorted(moves)
