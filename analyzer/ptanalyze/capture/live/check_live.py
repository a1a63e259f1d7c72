"""Compare a dump of a VM's nested tables with the /proc/PID/pagemap of the running VMM.

A nested leaf maps a guest-physical page to a host frame; a memory slot maps the same page to the VMM's
virtual memory, for which pagemap gives the frame. They must agree: so a user can verify a dump on
hardware that its authors did not have (Intel EPT).
"""

import mmap
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import numpy as np

from ...core import snapshot as entries
from ...core.errors import PartialDataError, UsageError
from ...core.snapshot import FRAME, NO_PARENT, Tree
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...formats.vm_file import HostDump, Slot
from ..check.finding import FAILED, NOTE, OK, PARTIAL, Finding
from .mismatch import NOWHERE, Mismatches, Piece
from .pause import state
from .process import check_process

PAGES = 512  # 4 KiB pages compared together: 2 MiB of guest-physical addresses
STALE = 0.01  # share of pages that may have changed since the dump before the dump itself is doubted
GUEST_MEMFD = 4  # KVM_MEM_GUEST_MEMFD: private memory is not in the VMM's address space

AGREE, OUTSIDE, PRIVATE, ZERO, GONE, HUGE, MOVED = range(7)
REASONS = {
    OUTSIDE: "lie in no memory slot",
    PRIVATE: "may be private memory (guest_memfd), which the VMM does not map",
    ZERO: "were the shared page of zeros then",
    GONE: "are not in the VMM's tables now (swapped, unmapped, or a device's)",
    HUGE: "of huge pages have moved since",
    MOVED: "have moved since",
}


def check_live(host: HostDump, pid: int) -> Iterator[Finding]:
    """Yield Findings of a HostDump against the running VMM `pid`, counted in 4 KiB pages, by reason.

    UsageError if `pid` cannot be read or no root maps guest-physical addresses.
    """
    counts: Counter[int] = Counter()
    mismatches = Mismatches(host)
    physical = [(root, root.table) for root in host.roots if root.table is not None and root.kind != "shadow"]
    if not physical:
        raise UsageError(
            "the dump holds shadow tables alone, which map guest-virtual addresses: nothing to compare with"
        )
    slots = {space: Slots(host.slots, space) for space in (0, 1)}
    zero = zero_frame()
    with Pagemap(pid) as pagemap:
        for root, table in physical:
            for piece in pieces(host.tree, table):
                verdict, virtual, seen = compare(piece, slots[int(root.smm)], pagemap, zero)
                counts.update(verdict[piece.frames >= 0].tolist())
                mismatches.add(piece, verdict, virtual, seen, AGREE)
    yield from findings(counts)
    yield from mismatches.findings(REASONS)
    yield counted_by_kvm(host)


def findings(counts: Counter[int]) -> Iterator[Finding]:
    """Yield a Finding for the agreement, and another per reason that occurred."""
    total = sum(counts.values())
    if not total:
        yield Finding("live: pages as in pagemap", 0, 0, PARTIAL, "the nested tables map nothing")
        return
    wrong = total - counts[AGREE]
    doubtful = wrong - counts[PRIVATE]
    verdict = OK if not doubtful else PARTIAL if doubtful <= STALE * total else FAILED
    why = f"differ; {STALE:.0%} at most may have changed since: dump again with --stop" if doubtful else ""
    yield Finding("live: pages as in pagemap", total, wrong, verdict, why)
    for reason, words in REASONS.items():
        if counts[reason]:
            yield Finding("live: why not", total, counts[reason], NOTE, words)


def counted_by_kvm(host: HostDump) -> Finding:
    """KVM counts its leaves (kvm_vm_stat.pages_4k, _2m, _1g): a quiet dump holds exactly as many.

    Tables that several roots share count once.
    """
    quiescence = host.facts.get("quiescence") or {"quiet": False, "after": {}}
    after = quiescence["after"]
    names = ("pages_4k", "pages_2m", "pages_1g")
    if not quiescence["quiet"] or not set(names) <= set(after):
        return Finding("ept: as many leaves as KVM", 0, 0, NOTE, "not comparable: KVM changed or hides them")
    tree = host.tree
    ours: Counter[int] = Counter()
    once = np.zeros(len(tree), bool)
    once[np.unique(tree.frame, return_index=True)[1]] = True
    for level, ids, raw in entries.blocks(tree, (1, 2, 3)):
        ours[level] += int(np.count_nonzero(entries.leaf(raw, level, tree.encoding)[once[ids]]))
    missing = [ours[level] - after[name] for level, name in enumerate(names, 1)]
    left_out = any(root.table is None or root.kind == "shadow" for root in host.roots)
    verdict = OK if not any(missing) else NOTE if left_out else PARTIAL
    why = (
        f"KVM counts {[after[name] for name in names]} leaves of 4 KiB, 2 MiB, 1 GiB" if any(missing) else ""
    )
    return Finding("ept: as many leaves as KVM", sum(ours.values()), sum(map(abs, missing)), verdict, why)


def pieces(tree: Tree, root: int) -> Iterator[Piece]:
    """Yield a Piece for each level-1 table and each 2 MiB of a huge page below `root`."""
    starts = np.append(np.flatnonzero(tree.parent == NO_PARENT), len(tree))
    last = starts[np.searchsorted(starts, root, side="right")]
    pages = np.arange(PAGES)
    for table in range(root, last):
        level, base = int(tree.level[table]), int(tree.base[table])
        if level > 3:
            continue
        raw = np.asarray(tree.entries[table])
        leaf = entries.leaf(raw, level, tree.encoding)
        frames = entries.frame(raw, level, tree.encoding)
        if level == 1 and leaf.any():
            yield Piece(base, np.where(leaf, frames, -1), table)
        for slot in np.flatnonzero(leaf).tolist() if level > 1 else ():
            for piece in range(512 ** (level - 2)):
                at = base + (slot << (3 + 9 * level)) + piece * PAGES * 4096
                yield Piece(at, frames[slot] + piece * PAGES + pages, table, slot)


def compare(
    piece: Piece, slots: "Slots", pagemap: "Pagemap", zero: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each page of a piece: verdict int64[512]; virtual address uint64[512], NOWHERE in no slot; what
    pagemap says of that, uint64[512]."""
    address = piece.base + np.arange(PAGES, dtype=np.int64) * 4096
    verdict, virtual = np.full(PAGES, OUTSIDE), np.full(PAGES, NOWHERE, np.uint64)
    words = np.zeros(PAGES, np.uint64)
    for first, last, start, private in slots.overlaps(piece.base, piece.base + PAGES * 4096):
        inside = (address >= first) & (address < last)
        virtual[inside] = np.uint64(start) + (address[inside] - first).astype(np.uint64)
        seen = np.zeros(PAGES, np.uint64)
        seen[inside] = words[inside] = pagemap.words(start, int(inside.sum()))
        there = seen & PRESENT != 0
        same = there & ((seen & FRAME).astype(np.int64) == piece.frames)
        wrong = np.where(there, HUGE if piece.huge else MOVED, PRIVATE if private else GONE)
        wrong = np.where(~same & (piece.frames == zero), ZERO, wrong)
        verdict[inside] = np.where(same, AGREE, wrong)[inside]
    return verdict, virtual, words


class Slots:
    """Memory slots of a KVM address space, by guest-physical address."""

    def __init__(self, slots: Iterable[Slot], space: int) -> None:
        self.slots = sorted((s for s in slots if s.space == space), key=lambda s: s.gpa)
        self.ends = [slot.gpa + slot.bytes for slot in self.slots]

    def overlaps(self, first: int, last: int) -> Iterator[tuple[int, int, int, bool]]:
        """Yield (first, last, virtual address of first, may be private) of the parts in slots."""
        for slot in self.slots[bisect_right(self.ends, first) :]:
            if slot.gpa >= last:
                return
            low, high = max(first, slot.gpa), min(last, slot.gpa + slot.bytes)
            yield low, high, slot.hva + low - slot.gpa, bool(slot.flags & GUEST_MEMFD)


class Pagemap:
    """/proc/PID/pagemap, opened while the block runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def __enter__(self) -> Self:
        check_process(Path(f"/proc/{self.pid}"), self.pid)
        try:
            self.file = os.open(f"/proc/{self.pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"PID {self.pid}: cannot read its pagemap: {error.strerror}; run as root"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    def words(self, address: int, count: int) -> np.ndarray:
        """uint64[count] from the page at virtual `address` on, 0 beyond the end of user space.

        PartialDataError once the process is gone.
        """
        raw = os.pread(self.file, count * 8, address // 4096 * 8)
        if len(raw) < count * 8 and state(f"/proc/{self.pid}") in "ZX":
            raise PartialDataError(f"PID {self.pid}: ended while its pages were compared")
        return np.frombuffer(raw.ljust(count * 8, b"\0"), np.uint64)


def zero_frame() -> int:
    """Frame of the page of zeros that untouched memory shares; UsageError if frames are hidden from us."""
    with mmap.mmap(-1, 2 * 4096, flags=mmap.MAP_PRIVATE) as pages:
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        pages.read_byte()  # only read, so that it stays the page of zeros
        address = np.frombuffer(pages, np.uint8).ctypes.data
        with Pagemap(os.getpid()) as own:
            frame = int(own.words(address, 1)[0] & FRAME)
    if not frame:
        raise UsageError("page frames are hidden from us (CAP_SYS_ADMIN): run as root")
    return frame
