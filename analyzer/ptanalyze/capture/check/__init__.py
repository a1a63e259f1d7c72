"""Checks that a capture is usable: every finding has a name, a number and a reason."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ...core import snapshot as bits
from ...core.columns import FAILED, NOTE, OK, PARTIAL
from ...core.snapshot import Snapshot
from ...core.trace import MOST_THREADS, PAGE_SHIFT, REGION_SHIFT, SLOT_BITS, Event, Trace
from ...formats.capture import Capture
from ...formats.record import damaged_files
from ...world.address_space import address_space, known_pages
from ...world.mm_events import made, merged
from .tables import Check, check_tables, finding
from .vm import check_host, check_joined

# Checks of the other processes inside a capture: each is there, and is a sound capture itself.

WORST = (FAILED, PARTIAL, NOTE, OK)


def summed_up(pid: int, every: Sequence[Check]) -> Check:
    """The findings about a process as one: `wrong` of its checks are not ok, the worst is the verdict."""
    other = [one for one in every if one.verdict != OK]
    verdict = min([OK, *(one.verdict for one in other)], key=WORST.index)
    reasons = "; ".join(f"{one.name}: {one.reason}" for one in other if one.verdict == verdict)
    return Check(f"process {pid}", len(every), len(other), verdict, reasons)


# Whether a capture holds the page tables of what its trace touched, or that was freed before the dump.

FREED = 0.1  # share of touches beyond which a capture counts as partial
WAY_OUT = (
    "the memory was freed before the page tables were read, so those walks have no class; record again with "
    "--dump-at peak (or, if that was done, end the region earlier)"
)


END = np.uint64(1 << 63)  # no user address is beyond it


class Covered:
    """Touches whose leaf entry has a known place: `add` each batch, then `finding`.

    Native: the table page is in the dump. In a VM the entry must be there too: its frame leads to the host's.

    table    int64[R]  leaf table by region id, -1 none
    huge     bool[R]   whether a huge page maps the region
    """

    def __init__(self, trace: Trace, snapshot: Snapshot) -> None:
        tree, regions = snapshot.guest, address_space(snapshot, trace.regions).regions
        self.native, self.tree, self.touches, self.gone = snapshot.native, tree, 0, 0
        there = regions.leaf < len(tree)
        self.table = np.where(there & (regions.level == 1), regions.leaf, -1)
        self.huge = there & (regions.level > 1)

    @property
    def freed(self) -> float:
        """Share of the 2 MiB regions that were touched without a table or huge page in the dump."""
        return float(np.mean((self.table < 0) & ~self.huge)) if len(self.table) else 0.0

    def add(self, page: np.ndarray) -> None:
        """Count touches, by the page id of each."""
        there = ((self.table >= 0) & self.native | self.huge)[page >> SLOT_BITS]
        if not self.native:
            table = self.table[page >> SLOT_BITS]
            some = np.flatnonzero((table >= 0) & ~there)
            slot = page[some] & ((1 << SLOT_BITS) - 1)
            there[some] = bits.leaf(np.asarray(self.tree.entries[table[some], slot]), 1, self.tree.encoding)
        self.touches += len(page)
        self.gone += int(np.count_nonzero(~there))

    def finding(self) -> Check:
        gone = self.gone if self.gone > FREED * self.touches else 0
        share = 100 * (1 - gone / max(self.touches, 1))
        why = f"touches without a page table in the dump, which holds those of {share:.0f} %: {WAY_OUT}"
        return finding("trace: pages in the dump", self.touches, gone, why, PARTIAL)


# Whether a trace is whole and fits the page tables beside it; that it agrees with itself is read_trace's.

BATCH = 1 << 20
GUARD = np.uint64(1 << 21)  # stacks grow: a touch this close below a VMA is the VMA's own


def check_trace(
    trace: Trace, snapshot: Snapshot | None = None, interrupted: bool = False, *, quick: bool = False
) -> Iterator[Check]:
    """Findings about the trace and, with a snapshot, about how well both fit.

    interrupted  whether the person who recorded it ended it, as one ends a server, or had it ended (--then)
    quick        without decoding its touches
    """
    if snapshot is not None and not quick:
        yield from check_touches(trace, snapshot)
    yield how_it_ended(trace, interrupted)
    if lost := trace.facts.get("lost_threads", 0):
        every, why = lost + len(trace.threads), f"were not traced: {MOST_THREADS}"
        yield finding("trace: all threads", every, lost, why, PARTIAL)


def check_touches(trace: Trace, snapshot: Snapshot) -> Iterator[Check]:
    """Whether touches lie in what was mapped, and have page tables in the dump."""
    (starts, ends), vmas = program_maps(trace), snapshot.vmas
    starts, ends = merged(np.concatenate([vmas["start"], starts]), np.concatenate([vmas["end"], ends]))
    starts, dumped = np.append(starts, END), Covered(trace, snapshot)
    base, uncovered, first = trace.regions << np.uint64(REGION_SHIFT), 0, ""
    at = np.searchsorted(ends, base, side="right")
    doubtful = base + GUARD < starts[at]  # or a mapping ends in the region
    doubtful |= np.append(ends, END)[at] < base + np.uint64(1 << REGION_SHIFT)
    for batch in trace.batches(BATCH):
        dumped.add(batch.page)
        page = batch.page[doubtful[batch.page >> SLOT_BITS]]
        address = addresses(trace, page)
        stray = page[address + GUARD < starts[np.searchsorted(ends, address, side="right")]]
        uncovered += len(stray)
        if len(stray) and not first:
            first = f", the first at {int(addresses(trace, np.sort(stray))[0]):#x}"
    if len(snapshot.vmas):
        verdict = FAILED if uncovered * 100 > dumped.touches else NOTE
        reason = f"touches lie in nothing that was ever mapped{first}"
        yield finding("trace: covered by VMAs", dumped.touches, uncovered, reason, verdict)
    yield dumped.finding()


def how_it_ended(trace: Trace, interrupted: bool = False) -> Check:
    """A trace that was cut short is usable, and reported as such; Ctrl-C makes it as long as wanted."""
    ended = trace.facts.get("ended", "unknown")
    whole = ended in ("exit", "roi", "imported") or (ended == "signal" and interrupted)
    return finding("trace: finished", 1, not whole, f"ended by: {ended}", PARTIAL)


def program_maps(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends), uint64, in order and apart: what the program mapped, as far as its trace knows.

    A break that only falls tells of a heap that was there before the trace.
    """
    events = trace.events
    breaks = events["result"][(events["kind"] == Event.BRK) & (events["result"] > 0)].astype(np.uint64)
    heap = np.sort(breaks)[[0, -1]] if len(breaks) else np.zeros(2, np.uint64)
    starts, ends = made(events)
    return merged(np.append(starts, heap[0]), np.append(ends, heap[1]))


def addresses(trace: Trace, pages: np.ndarray) -> np.ndarray:
    """uint64[n]: first byte of each page id."""
    region = trace.regions[pages >> SLOT_BITS]
    slot = (pages & ((1 << SLOT_BITS) - 1)).astype(np.uint64)
    return ((region << np.uint64(SLOT_BITS)) | slot) << np.uint64(PAGE_SHIFT)


__all__ = ["FAILED", "NOTE", "OK", "PARTIAL", "Check", "check_capture", "exit_code"]


def check_capture(capture: Capture, *, quick: bool = False) -> Iterator[Check]:
    """Yield a Check for each check of a capture, files first.

    Damaged files end the list: their contents cannot be trusted.
    quick  compare lengths of files, not contents, and leave the touches of the trace alone
    """
    damaged = list(damaged_files(capture.directory, capture.manifest, quick=quick))
    how = "as long as sealed" if quick else "as sealed"
    every = "; ".join(f"{name}: {why}" for name, why in damaged)
    yield finding(f"files: {how}", len(capture.manifest.files), len(damaged), every)
    if damaged:
        return
    if not quick:
        vars(capture)["damaged"] = {}  # what is read now need not be compared once more
    if capture.has_snapshot:
        yield from check_tables(capture.snapshot)
        if heat := capture.snapshot.heat:
            gone = len(heat.address) - known_pages(capture.snapshot.guest, heat)
            why = "used when they were sampled, unmapped or of another size in the page tables: left out"
            yield finding("heat: pages mapped", len(heat.address), gone, why, NOTE)
    if capture.has_vm:
        host = capture.vm
        yield from check_joined(capture.snapshot, host) if capture.has_snapshot else check_host(host)
    if capture.has_trace:
        said = capture.manifest.provenance
        interrupted = True in (said.get("interrupted"), said.get("ended_after_region"))
        snapshot = capture.snapshot if capture.has_snapshot else None
        yield from check_trace(capture.trace, snapshot, interrupted, quick=quick)
    count, names = capture.untraced_children
    if count:
        why = f"not traced ({', '.join(names) or 'names unknown'}): --follow-fork traces them"
        yield Check("trace: children", count, count, NOTE, why)
    if capture.processes or capture.manifest.provenance.get("processes"):
        lost, missing = len(capture.lost), ", ".join(f"pid-{pid}" for pid in capture.lost[:5])
        yield finding("processes: there", len(capture.processes) + lost, lost, f"not in it: {missing}")
        for pid, one in capture.processes.items():
            yield summed_up(pid, list(check_capture(one, quick=quick)))


def exit_code(findings: Iterable[Check]) -> int:
    """0 all well, 1 something failed, 3 usable but partial."""
    verdicts = {finding.verdict for finding in findings}
    return 1 if FAILED in verdicts else 3 if PARTIAL in verdicts else 0
