"""Number of CPUs of each node with a live thread of a process: the targets of a TLB shootdown."""

from bisect import bisect_right

import numpy as np

from ..core.trace import Event, Trace
from ..core.walks import Placement


class LiveCpus:
    """Follows the trace's threads; `advance` in event order. Linux keeps this as mm_cpumask.

    A thread lives from its THREAD_START event (from the beginning without one) to its THREAD_EXIT, on the
    CPU of its latest chunk (of its first chunk before that).

    home  node on which most live threads run; another node needs more of them to take over
    runs  [(chunk, home before, home from its first walk on)] since they were last taken away
    """

    def __init__(self, trace: Trace, placement: Placement) -> None:
        self.cpu_node = placement.cpu_node
        self.threads_on = np.zeros(len(placement.cpu_node), np.int64)
        self.per_node = [0] * (int(placement.cpu_node.max(initial=0)) + 1)
        self._threads = list(self.per_node)
        self._cpu, self._moves = _where(trace, placement)
        started = set(trace.events["thread"][trace.events["kind"] == Event.THREAD_START].tolist())
        self._live = {thread for thread in self._cpu if thread not in started}
        self._next = 0
        self.runs: list[tuple[int, int, int]] = []
        self._chunks: list[int] = []
        self._past: list[tuple[int, ...]] = []
        for thread in self._live:
            self._count(self._cpu[thread], 1)
        main = int(self.cpu_node[self._cpu[0]]) if 0 in self._cpu else 0
        self.home = self._threads.index(max(self._threads)) if self._live else main
        self._changed(0)

    def advance(self, chunk: int, kind: int, thread: int, cpu: int) -> None:
        """Everything up to `chunk` has run; then this event happens on `cpu`."""
        if self._next < len(self._moves):
            self._move_until(chunk)
        if kind == Event.THREAD_START and thread not in self._live:
            self._live.add(thread)
            self._count(self._cpu.setdefault(thread, cpu), 1)
        elif kind == Event.THREAD_EXIT and thread in self._live:
            self._live.discard(thread)
            self._count(self._cpu[thread], -1)
        else:
            return
        self._changed(chunk)

    def finish(self) -> None:
        """Everything has run."""
        self._move_until(None)

    def others(self, cpu: int) -> list[int]:
        """[per node] number of CPUs with a live thread, `cpu` left out."""
        counts = list(self.per_node)
        if self.threads_on[cpu] > 0:
            counts[self.cpu_node[cpu]] -= 1
        return counts

    def others_then(self, chunk: int, cpu: int) -> list[int]:
        """As `others`, while `chunk` ran on `cpu`."""
        counts = list(self._past[bisect_right(self._chunks, chunk) - 1])
        counts[self.cpu_node[cpu]] = max(counts[self.cpu_node[cpu]] - 1, 0)
        return counts

    def _move_until(self, chunk: int | None) -> None:
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
            self._changed(at)

    def _count(self, cpu: int, change: int) -> None:
        before = self.threads_on[cpu] > 0
        self.threads_on[cpu] += change
        self.per_node[self.cpu_node[cpu]] += int(self.threads_on[cpu] > 0) - int(before)
        self._threads[self.cpu_node[cpu]] += change

    def _changed(self, chunk: int) -> None:
        self._chunks.append(chunk)
        self._past.append(tuple(self.per_node))
        most = max(self._threads)
        if most > self._threads[self.home]:
            self.runs.append((chunk, self.home, self._threads.index(most)))
            self.home = self._threads.index(most)


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
