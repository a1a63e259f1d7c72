"""The modelled process from its first fault to its last access."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

import ptanalyze as pt
from ptanalyze_formats.trace_writer import UNKNOWN_THREAD, TraceWriter

from .kernels import FIRST_TOUCH, INTERLEAVE, PAGE_SHIFT, Memory, Radix, Space, move_pages, touch, unmap
from .parameters import PAGE
from .patterns import page_source, written
from .plan import RANGE, Layout, Plan, lay_out, refused

# Memory sizes of the nodes of the modelled machine and of its VM.

BLOCK = 512  # frames of a pageblock
HYPERVISOR = 16  # a host node has this many parts, of which one is not the VM's
GUEST_TOP = 1 << 32  # guest frames end below 16 TiB: the analysis counts higher frames as outside
MOST_FREED = 1 << 24
MARGIN = 1.02


@dataclass(frozen=True)
class Frames:
    """Equal nodes. host: frames of each host (or native) node; guest: of each guest node, 0 if there is none.

    guest_nodes  1 in an oblivious guest
    room         int64[nodes]: frames of each node of the process's own machine that the run may need
    freed        room of the list of frames given back
    """

    host: int
    guest: int
    guest_nodes: int
    room: np.ndarray
    freed: int


def frames_of(plan: Plan) -> Frames:
    """Frames of a Plan: --node-memory, or enough that each node holds what the policies send it.

    UsageError for less than 16M, no whole 2 MiB, or guest memory above 16 TiB.
    """
    asked, freed = plan.asked, given_back(plan)
    need = needed(plan, min(freed, plan.pages))
    nodes = 1 if asked.guest == "oblivious" else asked.nodes
    host = default_memory(need) if asked.node_memory is None else asked.node_memory // PAGE
    if host < 8 * BLOCK or host % BLOCK or host > GUEST_TOP:
        raise refused("node_memory", pt.errors.show_size(asked.node_memory or 0), "16M to 16T, whole 2 MiB")
    if not plan.nested:
        return Frames(host, 0, nodes, np.minimum(need, host), freed)
    guest = (host * (HYPERVISOR - 1) // HYPERVISOR // BLOCK * BLOCK) * asked.nodes // nodes
    if guest * nodes > GUEST_TOP and (asked.node_memory is not None or need.max() > GUEST_TOP // nodes):
        allowed = "a guest's memory ends below 16T, nodes are alike; give less to spill to the next node"
        raise refused("node_memory", pt.errors.show_size(host * PAGE), allowed)
    guest = min(guest, GUEST_TOP // nodes // BLOCK * BLOCK)
    return Frames(host, guest, nodes, np.minimum(need, guest), freed)


def given_back(plan: Plan) -> int:
    """At least as many frames as munmap gives back."""
    every = plan.asked.munmap_every
    if every is None:
        return 1
    most = (plan.accesses // every + 1) * RANGE
    if most > MOST_FREED:
        raise refused("munmap_every", every, f"at least {plan.accesses * RANGE // MOST_FREED + 1} here")
    return most


def needed(plan: Plan, again: int) -> np.ndarray:
    """int64[nodes]: frames that each node of the process's machine may have to give, rounded up."""
    asked, pages = plan.asked, pages_on(plan) + again
    if plan.data is not None:
        pages += plan.pages
    tables = plan.regions + (plan.regions >> 9) + 64
    return (((pages * growth(asked.fragmentation) * MARGIN).astype(np.int64) + tables) // BLOCK + 16) * BLOCK


def growth(fragmentation: float) -> float:
    """Frames used up for each page that is faulted in: a co-runner takes the rest of 8 frames.

    The place of a page among 8 frames is a Markov chain: after a share F of pages it goes back to the first,
    else to the next. It stands at the first with probability F / (1 - (1 - F)^8), once in 8 frames.
    """
    return 8 * new_group(fragmentation)


def new_group(fragmentation: float) -> float:
    """Probability that a page begins 8 frames of its own, in the long run; 1/8 without a co-runner."""
    return fragmentation / (1 - (1 - fragmentation) ** 8) if fragmentation > 0 else 0.125


def pages_on(plan: Plan) -> np.ndarray:
    """int64[nodes]: the most pages that the policy puts on each node at first."""
    on = np.zeros(1 if plan.asked.guest == "oblivious" else plan.asked.nodes, np.int64)
    if plan.policy == INTERLEAVE:
        return on + plan.pages // len(on) + 8 * BLOCK * int(np.sqrt(plan.regions) + 1)
    if plan.policy == FIRST_TOUCH and plan.asked.init == "parallel":
        np.add.at(on, plan.threads.node, np.diff(plan.threads.part))
    else:
        on[plan.threads.node[0] if plan.policy == FIRST_TOUCH else plan.policy] = plan.pages
    return on


def default_memory(need: np.ndarray) -> int:
    """Frames of a node: the largest need, a hypervisor's part, any ePT; whole 64 MiB, or whole GiB."""
    least = int(need.max()) * HYPERVISOR // (HYPERVISOR - 1) + int(need.sum()) // 256 + HYPERVISOR * BLOCK
    unit = (1 << 18) if least >= 1 << 18 else 1 << 14
    return -(-least // unit) * unit


def full(plan: Plan, frames: Frames) -> pt.UsageError:
    """The error of a run that found no frame."""
    given = pt.errors.show_size(frames.host * PAGE)
    total = needed(plan, min(given_back(plan), plan.pages)).sum()
    enough = pt.errors.show_size(default_memory(np.array([total])) * PAGE)
    return pt.UsageError(
        f"--node-memory {given}: the machine is full; leave it out, or give more ({enough} is enough)"
    )


# The modelled kernels' state: page tables in files being written, and free memory.

START = (
    1 << 46
)  # first byte of the dataset: aligned to 512 GiB, below the addresses that a 4-level kernel hands out
X86 = (0x67, 0x8000000000000067, 0x80000000000000E7)  # present, writable, user, accessed, dirty; NX; PS
EPT = (0x107, 0x377, 0x3F7)  # read, write, execute, accessed; write-back, ignore PAT, dirty; bit 7
ALL = 1 << 32


@dataclass(frozen=True)
class State:
    """space: changed by the kernels; guest, host: Layouts of all tables there may be (host None: native)."""

    space: Space
    frames: Frames
    guest: Layout
    host: Layout | None


def new_state(plan: Plan, directory: Path) -> State:
    """State before the process begins; in `directory` are files with room for all entries."""
    frames, asked = frames_of(plan), plan.asked
    guest = lay_out((START >> 21) + np.arange(plan.regions), plan.huge, asked.levels)
    key = [int(k) for k in plan.rng(3).integers(0, 1 << 32, 3)]
    radix = new_radix(directory, guest, guest.leaf, plan.huge, X86)
    span = frames.guest or frames.host
    memory = new_memory(span, frames.guest_nodes, frames.room, frames.freed, plan.policy, key[0])
    host, nested = None, empty_radix()
    host_room = np.full(asked.nodes, frames.host)
    host_memory = new_memory(frames.host, asked.nodes, host_room, 1, plan.host_policy, key[1])
    if plan.nested:
        host, nested = new_host(plan, directory, memory)
    bound, share = asked.guest == "visible", int(asked.fragmentation * ALL)
    faults = np.zeros(1, np.int64)
    space = Space(radix, memory, nested, host_memory, plan.nested, bound, share, key[2], faults)
    return State(space, frames, guest, host)


def new_memory(span: int, nodes: int, room: np.ndarray, freed: int, policy: int, key: int) -> Memory:
    """Memory with all frames free but the first 2 MiB of each node, which are its kernel's."""
    first = np.arange(nodes) * (span // BLOCK)
    return Memory(
        first + 1,
        first + np.minimum(room, span) // BLOCK,
        np.zeros((nodes, 2), np.int64),
        np.zeros((nodes, freed), np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(1, np.int64),
        span,
        policy,
        key,
    )


def new_host(plan: Plan, directory: Path, memory: Memory) -> tuple[Layout, Radix]:
    """(Layout, Radix) over every guest frame that the guest's memory may ever give."""
    regions = np.concatenate([np.arange(a, b) for a, b in zip(memory.block, memory.end, strict=True)])
    size = memory.span // BLOCK * len(memory.block)
    draws = plan.rng(2).random(size) < (plan.asked.host_thp or 0)
    layout = lay_out(regions, draws[regions], plan.asked.levels)
    leaf = np.full(size, -1, np.int32)
    leaf[regions] = layout.leaf
    return layout, new_radix(directory, layout, leaf, draws, EPT)


def new_radix(
    directory: Path, layout: Layout, leaf: np.ndarray, huge: np.ndarray, flags: tuple[int, ...]
) -> Radix:
    with tempfile.TemporaryFile(dir=directory) as file:
        entries = pt.formats.map_new(file, "<u8", (len(layout), pt.snapshot.ENTRIES_PER_TABLE))
    made = np.full(len(layout), -1, np.int64)
    return Radix(entries, made, layout.parent, layout.slot, leaf, huge, *(np.uint64(f) for f in flags))


def empty_radix() -> Radix:
    none = np.zeros((0, BLOCK), np.uint64)
    ids, flags = np.zeros(0, np.int32), [np.uint64(f) for f in EPT]
    return Radix(none, np.zeros(0, np.int64), ids, ids.astype(np.int16), ids, np.zeros(0, bool), *flags)


# Actions of the modelled process as frames of a trace: one clock, one CPU per thread.

ANONYMOUS = 0x22  # MAP_PRIVATE | MAP_ANONYMOUS
FIXED = 0x10
READ, READ_WRITE = 1, 3
FIRST_TID = 1000
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
            self.event(pt.trace.Event.THREAD_START, thread, FIRST_TID + thread, parent)
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
        self.event(pt.trace.Event.MPROTECT, 0, LIBRARY + TEXT, (LIBRARY_BYTES - TEXT) // 2, READ)
        self.event(pt.trace.Event.MUNMAP, 0, LIBRARY, LIBRARY_BYTES)

    def mmap(self, thread: int, address: int, length: int, flags: int) -> None:
        asked = address if flags & FIXED else 0
        self.event(pt.trace.Event.MMAP, thread, asked, length, READ_WRITE, flags, result=address)

    def event(self, kind: pt.trace.Event, thread: int, *arguments: int, result: int = 0) -> None:
        if self.writer is not None:
            now = {"result": result, "thread": thread, "cpu": self.cpu[thread], "time": self.time()}
            self.writer.event(kind, *arguments, **now)

    def chunk(self, thread: int, pages: np.ndarray, write: np.ndarray) -> None:
        """A turn of a thread: pages int64[n] counted from the dataset's first, write bool[n]."""
        if self.writer is not None:
            first = np.flatnonzero(np.concatenate(([True], pages[1:] != pages[:-1])))
            self.writer.chunk(
                (START >> PAGE_SHIFT) + pages[first],
                np.logical_or.reduceat(write, first),
                np.append(first[1:], len(pages)) - first,
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
            self.event(pt.trace.Event.FIRST_TOUCH, thread, START + (region << 21))
        self.untouched[regions] = False

    def time(self) -> int:
        return int(self.accesses * self.ns)

    def move_threads(self) -> None:
        self.cpu = self.plan.threads.moved_cpu.tolist()


TURN = 4096  # pages that a thread touches before the next has its turn: a chunk of the trace
SHOWN = 1 << 20  # pages or accesses between two updates of the progress bar


def now_and_then(progress: pt.process.Progress, total: int, what: str) -> Callable[[int], None]:
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

    def run(self, progress: pt.process.Progress = None) -> None:
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
            self.recorder.event(pt.trace.Event.ROI_START, 0)
        changes = self.plan.asked.munmap_every is not None or self.plan.data is not None
        if self.recorder.writer is not None or changes:
            self.access(progress)

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

    def access(self, progress: pt.process.Progress) -> None:
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
            self.recorder.chunk(thread, pages, written(sources[thread], pages, self.plan, writes))
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

    def region(self, thread: int, regions: np.ndarray) -> int:
        """One of the regions of 2 MiB that are the thread's own: all, where memory is shared."""
        low, high = self.plan.threads.part[thread : thread + 2].tolist()
        own = regions if self.plan.anywhere else regions[(regions >= -(-low >> 9)) & (regions < high >> 9)]
        own = own if len(own) else regions[np.searchsorted(regions, low >> 9, "right") - 1 :][:1]
        return int(own[self.rng.integers(0, len(own))])

    def mprotect(self, thread: int) -> None:
        """Read-only and back, as a collector's or a checkpointer's write barrier: two shootdowns."""
        region = self.region(thread, np.arange(self.plan.pages >> 9))
        first, pages = region << 9, 512
        if not self.plan.huge[region]:
            first, pages = first + int(self.rng.integers(0, 512 - RANGE + 1)), RANGE
        for prot in (READ, READ_WRITE):
            self.recorder.event(
                pt.trace.Event.MPROTECT, thread, START + (first << PAGE_SHIFT), pages << PAGE_SHIFT, prot
            )

    def munmap(self, thread: int) -> None:
        """A few small pages go, and are mapped again; whoever touches them next faults."""
        first = (self.region(thread, self.small) << 9) + int(self.rng.integers(0, 512 - RANGE + 1))
        address, length = START + (first << PAGE_SHIFT), RANGE << PAGE_SHIFT
        unmap(self.state.space, first, first + RANGE)
        self.recorder.event(pt.trace.Event.MUNMAP, thread, address, length)
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
                threads = self.plan.threads  # one that moved: balancing works in its context (task_numa_work)
                mover = int(np.flatnonzero(threads.cpu != threads.moved_cpu)[0])
                self.recorder.event(pt.trace.Event.MOVE_PAGES, mover, first, length, target)
