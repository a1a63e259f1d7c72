"""The modelled process from its first fault to its last access."""

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np

from ...core.progress import Progress
from ...core.trace import Event
from ...kernels.synth import move_pages, touch, unmap
from .frames import full
from .patterns import page_source, written
from .plan import RANGE, Plan
from .recorder import ANONYMOUS, FIXED, PAGE_SHIFT, READ, READ_WRITE, Recorder
from .space import START, State

TURN = 4096  # pages that a thread touches before the next has its turn: a chunk of the trace
SHOWN = 1 << 20  # pages or accesses between two updates of the progress bar


def now_and_then(progress: Progress, total: int, what: str) -> Callable[[int], None]:
    """A function that adds a turn's pages or accesses to a progress(done, total, what) or None."""
    done = shown = 0

    def show(turn: int) -> None:
        nonlocal done, shown
        done += turn
        if progress is not None and done >= shown + SHOWN:
            shown = done
            progress(done, total, what)

    return show


class Process:
    """Runs a Plan over a State; `recorder` gets everything that belongs in the trace."""

    def __init__(self, plan: Plan, state: State, recorder: Recorder) -> None:
        self.plan, self.state, self.recorder = plan, state, recorder
        self.node = plan.threads.node.tolist()
        self.rng = plan.rng(20)
        self.small = np.flatnonzero(~plan.huge[: plan.pages >> 9])
        self.cursor, self.credit = 0, 0.0
        self.turn = max(TURN // plan.asked.scale, 1)  # a scaled trace has fewer accesses per second

    def run(self, progress: Progress = None) -> None:
        """The whole run. UsageError when the machine's memory is full."""
        self.recorder.begin()
        show = now_and_then(progress, self.plan.pages, "pages faulted in")
        for thread, pages in self.first_touches():
            self.fault(pages, thread)
            if self.plan.init_traced:
                self.recorder.chunk(thread, pages, np.ones(len(pages), bool))
            else:
                self.recorder.first_touches(thread, pages)
            show(len(pages))
        if not self.plan.init_traced:
            self.recorder.event(Event.ROI_START, 0)
        if self.recorder.writer is not None or self.changes_tables():
            self.access(progress)

    def changes_tables(self) -> bool:
        return self.plan.asked.munmap_every is not None or self.plan.data is not None

    def first_touches(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (thread, its next pages): each thread its part, turn by turn, or thread 0 all of it."""
        if self.plan.asked.init == "single":
            parts = [(0, 0, self.plan.pages)]
        else:
            part = self.plan.threads.part.tolist()
            parts = list(zip(range(len(part) - 1), part[:-1], part[1:], strict=True))
        for start in range(0, max(last - first for _, first, last in parts), TURN):
            for thread, first, last in parts:
                if first + start < last:
                    yield thread, np.arange(first + start, min(first + start + TURN, last))

    def fault(self, pages: np.ndarray, thread: int) -> None:
        if touch(self.state.space, pages, self.node[thread]) < len(pages):
            raise full(self.plan, self.state.frames)

    def access(self, progress: Progress) -> None:
        """Threads take turns; a turn also ends where something else is due."""
        sources = {thread: page_source(self.plan, thread) for thread in self.plan.active}
        writes = self.plan.rng(12)
        show, done = now_and_then(progress, self.plan.accesses, "accesses"), 0
        if self.plan.move is not None and self.plan.move[0] == 0:
            self.move_threads()
        for thread in cycle(self.plan.active):
            pages = sources[thread](min(self.turn, self.next_stop(done) - done))
            if not len(pages):
                continue
            if self.plan.asked.munmap_every is not None:
                self.fault(pages, thread)
            wrote = written(sources[thread], pages, self.plan, writes)
            self.recorder.chunk(thread, pages, wrote)
            done += len(pages)
            self.happen(done, thread)
            self.move_data(done, len(pages))
            show(len(pages))
            if done == self.plan.accesses:
                return

    def next_stop(self, done: int) -> int:
        """The first number of accesses after `done` at which something is due."""
        every = (self.plan.asked.mprotect_every, self.plan.asked.munmap_every)
        stops = [(done // n + 1) * n for n in every if n is not None]
        stops += [at[0] for at in (self.plan.move, self.plan.data) if at is not None and at[0] > done]
        return min([self.plan.accesses, *stops])

    def happen(self, done: int, thread: int) -> None:
        """Do what is due after `done` accesses, in the thread whose turn it was."""
        asked = self.plan.asked
        if asked.mprotect_every is not None and done % asked.mprotect_every == 0:
            self.mprotect(thread)
        if asked.munmap_every is not None and done % asked.munmap_every == 0:
            self.munmap(thread)
        if self.plan.move is not None and done == self.plan.move[0]:
            self.move_threads()

    def mprotect(self, thread: int) -> None:
        """Read-only and back, as a collector's or a checkpointer's write barrier: two shootdowns."""
        region = int(self.rng.integers(0, self.plan.pages >> 9))
        first, pages = region << 9, 512
        if not self.plan.huge[region]:
            first, pages = first + int(self.rng.integers(0, 512 - RANGE + 1)), RANGE
        for prot in (READ, READ_WRITE):
            self.recorder.event(
                Event.MPROTECT, thread, START + (first << PAGE_SHIFT), pages << PAGE_SHIFT, prot
            )

    def munmap(self, thread: int) -> None:
        """A few small pages go, and are mapped again; whoever touches them next faults."""
        region = int(self.small[self.rng.integers(0, len(self.small))])
        first = (region << 9) + int(self.rng.integers(0, 512 - RANGE + 1))
        address, length = START + (first << PAGE_SHIFT), RANGE << PAGE_SHIFT
        unmap(self.state.space, first, first + RANGE)
        self.recorder.event(Event.MUNMAP, thread, address, length)
        self.recorder.mmap(thread, address, length, ANONYMOUS | FIXED)

    def move_threads(self) -> None:
        threads = self.plan.threads
        self.node = threads.cpu_node[threads.moved_cpu].tolist()
        self.recorder.move_threads()

    def move_data(self, done: int, accesses: int) -> None:
        """Pages of the node that threads left follow them, in address order, as fast as the rate allows."""
        plan = self.plan
        if plan.data is None or plan.move is None or done <= plan.data[0] or self.cursor >= plan.pages:
            return
        self.credit += accesses * plan.data[1] / 1e6
        budget = int(self.credit)
        moved = np.empty(budget + 511, np.int64)
        _, source, target = plan.move
        self.cursor, n = move_pages(self.state.space, self.cursor, plan.pages, budget, source, target, moved)
        if self.cursor < 0:
            raise full(plan, self.state.frames)
        self.credit -= n
        for run in np.split(moved[:n], np.flatnonzero(np.diff(moved[:n]) != 1) + 1):
            if len(run):
                first, length = START + (int(run[0]) << PAGE_SHIFT), len(run) << PAGE_SHIFT
                self.recorder.event(Event.MOVE_PAGES, self.mover(), first, length, target)

    def mover(self) -> int:
        """A thread that moved: the kernel's balancing works in its context (task_numa_work)."""
        threads = self.plan.threads
        return int(np.flatnonzero(threads.cpu != threads.moved_cpu)[0])
