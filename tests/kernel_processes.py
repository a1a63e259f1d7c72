"""Scripts that real kernels ran (golden/kernel) as small processes: each operation is one chunk.

A forked process is in no trace: its operations do nothing here, nor does the fork.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ptanalyze.core.trace import Event
from replay_cases import case
from strategies import PAGE, Page, build_snapshot, build_trace

BASE, OWN, NODES = 0x2000_0000_0000, 0x3000_0000_0000, 4
READ, WRITE = 1, 3
ANONYMOUS, FILE, SHARED = 0x100022, 0x100002, 0x100001  # with MAP_FIXED_NOREPLACE
FORKED = 8  # the first actor that is a process of its own
NO_STEP = ("fork", "exit")


def operations(scenario):
    return [step["op"] for step in scenario["steps"] if "op" in step]


def of_a_forked(step):
    """Whether a step is of a process that another one forked."""
    return "of" in step or ("op" in step and actor(step["op"]) >= FORKED)


def actor(line):
    return int(line.split()[1])


def parsed(line):
    word, thread, *rest = line.split()
    return word, int(thread), *(int(x) if x.isdecimal() else x for x in rest)


@dataclass
class Process:
    """A script so far: chunks [(thread, touches)] on `cpus`, events; own[cpu] is a page that the CPU has."""

    threads: int
    chunks: list = field(default_factory=list)
    cpus: list = field(default_factory=list)
    events: list = field(default_factory=list)
    event_cpus: list = field(default_factory=list)
    on: dict = field(default_factory=dict)

    def __post_init__(self):
        for t in range(self.threads):
            self.on[t] = t
            self._happened(t, Event.MMAP, (0, PAGE, WRITE, 0x22), self._own(t))
        for t in range(self.threads):
            self._ran(t, [])

    def _own(self, cpu):
        return OWN + (cpu << 39)

    def _ran(self, thread, touched):
        self.chunks.append((thread, touched or [(self._own(self.on[thread]), True)]))
        self.cpus.append(self.on[thread])

    def _happened(self, thread, *event):
        self.events.append((len(self.chunks), thread, *event))
        self.event_cpus.append(self.on[thread])

    def do(self, line):
        word, thread, *rest = parsed(line)
        if word in ("read", "write") and thread < FORKED:
            page, count, stride = rest
            touched = [(BASE + (page + i * stride) * PAGE, word == "write") for i in range(count)]
            return self._ran(thread, touched)
        if word == "spawn":
            parent, thread, self.on[rest[0]] = thread, *rest
            self._happened(thread, Event.THREAD_START, (100 + thread, parent), 0)
        elif word == "move" and thread < FORKED:
            self.on[thread] = rest[0]
        elif word not in NO_STEP and thread < FORKED:
            self._happened(thread, *system_call(word, BASE + rest[0] * PAGE, rest[1] * PAGE, rest[2:]))
        self._ran(thread if thread < FORKED else 0, [])


def system_call(word, at, length, rest):
    """(kind, arguments, result) of an operation that is a system call."""
    prot = WRITE if "rw" in rest else READ
    if word == "map":
        return Event.MMAP, (at, length, prot, ANONYMOUS), at
    if word == "file":
        return Event.MMAP, (at, length, prot, SHARED if "shared" in rest else FILE), at
    if word == "remap":
        return Event.MREMAP, (at, length, length, 3), BASE + rest[0] * PAGE
    return {
        "unmap": (Event.MUNMAP, (at, length), 0),
        "prot": (Event.MPROTECT, (at, length, prot), 0),
        "dontneed": (Event.MADVISE, (at, length, 4), 0),
        "huge": (Event.MADVISE, (at, length, 14), 0),
    }[word]


def scripted(scenario, threads):
    """The Case of a scenario; its snapshot says which regions are mapped by 2 MiB pages."""
    process = Process(threads)
    for line in operations(scenario):
        process.do(line)
    pages = [Page(OWN + (t << 39), 1 + t) for t in range(threads)]
    regions = sorted(huge_regions(operations(scenario)))
    pages += [Page(BASE + (region << 21), 512 * (1 + k), 2) for k, region in enumerate(regions)]
    snapshot = build_snapshot(pages, nodes=NODES, vmas=[(0, PAGE, "none")])
    trace = build_trace(process.chunks, process.events, max(process.on) + 1)
    made = case(snapshot, trace, NODES, threads)
    cpus, event_cpus = (np.array(x, np.int32) for x in (process.cpus, process.event_cpus))
    return made._replace(placement=replace(made.placement, chunk_cpu=cpus, event_cpu=event_cpus))


def huge_regions(lines):
    """Regions of 2 MiB that madvise made huge as a whole and that are touched."""
    calls = [parsed(line) for line in lines]
    huge = {
        r for word, _, *rest in calls if word == "huge" for r in range(rest[0] + 511 >> 9, sum(rest) >> 9)
    }
    used = set()
    for word, thread, *rest in calls:
        if word in ("read", "write") and thread < FORKED:
            used |= {rest[0] + i * rest[2] >> 9 for i in range(rest[1])}
    return huge & used
