"""Actions of the modelled process as frames of a trace: one clock, one CPU per thread."""

import numpy as np

from ...core.trace import REGION_SHIFT, Event
from ...formats.trace_writer import UNKNOWN_THREAD, TraceWriter
from .plan import Plan
from .space import START

ANONYMOUS = 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
FIXED = 0x10
READ, READ_WRITE = 1, 3
FIRST_TID = 1000
PAGE_SHIFT = 12
LIBRARY, TEXT, LIBRARY_BYTES = START - (1 << 30), 1 << 20, 2 << 20


class Recorder:
    """Writes to a TraceWriter; without one it only keeps the time. Accesses are spread evenly over time."""

    def __init__(self, plan: Plan, writer: TraceWriter | None = None) -> None:
        self.writer, self.plan = writer, plan
        self.cpu = plan.threads.cpu.tolist()
        self.accesses = 0
        self.ns = 1e9 / (plan.asked.rate * len(plan.threads))
        self.untouched = np.ones((plan.pages + 511) >> 9, bool)

    def begin(self) -> None:
        """Threads start; the first maps the dataset, or each its part (the owners of Hydra's VMAs)."""
        threads, part = len(self.plan.threads), self.plan.threads.part.tolist()
        for thread in range(threads):
            parent = 0 if thread else UNKNOWN_THREAD
            self.event(Event.THREAD_START, thread, FIRST_TID + thread, parent)
        if not self.plan.init_traced:
            self.load()
        if self.plan.asked.mapped_by == "main":
            threads, part = 1, [0, self.plan.pages]
        for thread in range(threads):
            first, last = part[thread : thread + 2]
            self.mmap(thread, START + (first << PAGE_SHIFT), (last - first) << PAGE_SHIFT, ANONYMOUS)

    def load(self) -> None:
        """A program's calls before its region: a library is mapped and relocated, and unmapped in the end.

        In the order of ld.so's (elf/dl-map-segments.h, _dl_protect_relro) and dlclose's.
        """
        self.mmap(0, LIBRARY, LIBRARY_BYTES, ANONYMOUS)
        self.mmap(0, LIBRARY + TEXT, LIBRARY_BYTES - TEXT, ANONYMOUS | FIXED)
        self.event(Event.MPROTECT, 0, LIBRARY + TEXT, (LIBRARY_BYTES - TEXT) // 2, READ)
        self.event(Event.MUNMAP, 0, LIBRARY, LIBRARY_BYTES)

    def mmap(self, thread: int, address: int, length: int, flags: int) -> None:
        asked = address if flags & FIXED else 0
        self.event(Event.MMAP, thread, asked, length, READ_WRITE, flags, result=address)

    def event(
        self, kind: Event, thread: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0, result: int = 0
    ) -> None:
        if self.writer is not None:
            self.writer.event(
                int(kind), a, b, c, d, result, thread=thread, cpu=self.cpu[thread], time=self.time()
            )

    def chunk(self, thread: int, pages: np.ndarray, write: np.ndarray) -> None:
        """A turn of a thread: pages int64[n] counted from the dataset's first, write bool[n]."""
        if self.writer is not None:
            first = np.flatnonzero(np.diff(pages, prepend=-1))
            self.writer.chunk(
                (START >> PAGE_SHIFT) + pages[first],
                np.logical_or.reduceat(write, first),
                np.diff(first, append=len(pages)),
                thread=thread,
                cpu=self.cpu[thread],
                time=self.time(),
                instructions=round(len(pages) * self.plan.asked.instructions_per_access),
            )
        self.accesses += len(pages)

    def first_touches(self, thread: int, pages: np.ndarray) -> None:
        """What a tracer notes of touches before the region of interest; pages as in `chunk`."""
        regions = np.unique(pages >> 9)
        for region in regions[self.untouched[regions]].tolist():
            self.event(Event.FIRST_TOUCH, thread, START + (region << REGION_SHIFT))
        self.untouched[regions] = False

    def time(self) -> int:
        return int(self.accesses * self.ns)

    def move_threads(self) -> None:
        self.cpu = self.plan.threads.moved_cpu.tolist()
