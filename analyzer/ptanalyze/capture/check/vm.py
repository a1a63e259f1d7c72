"""Checks that nested tables stay within the VM's memory slots and that both sides of a joined capture fit."""

import mmap
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...core import snapshot as entries
from ...core.columns import FAILED, NOTE, OK, PARTIAL
from ...core.errors import PartialDataError, UsageError
from ...core.snapshot import FRAME, NO_PARENT, Snapshot, Tree, words
from ...core.snapshot import PAGEMAP_PRESENT as PRESENT
from ...core.sysfs import shown, state
from ...formats.snapshot import HostDump, Root, Slot
from ...world.address_space import Nested
from ..live.process import check_process
from ..vm.join import Slots as JoinSlots
from ..vm.join import fit
from .tables import Check, check_tree, finding


def check_host(host: HostDump) -> Iterator[Check]:
    """Findings about a host's dump of a VM: every tree, its roots, slots and vCPUs."""
    yield from check_tree(host.tree, "ept", host.topology)
    yield from check_memory(host)
    moved = host.facts.get("quiescence") or {"quiet": True}
    reason = "the VM's nested tables changed while they were read"
    yield finding("dump: quiet", 1, not moved["quiet"], reason, PARTIAL)


def check_memory(host: HostDump) -> Iterator[Check]:
    """Findings about roots, slots and vCPUs of a HostDump."""
    left_out = [root.why or "no reason given" for root in host.roots if root.table is None]
    yield finding(
        "ept: roots",
        len(host.roots),
        len(left_out),
        f"are not here: {'; '.join(sorted(set(left_out)))}",
        NOTE,
    )
    usable = [root for root in host.roots if root.table is not None and root.kind != "shadow"]
    shadow = "only shadow tables: they map guest-virtual addresses, not guest-physical ones"
    yield Check(
        "ept: guest-physical", 1, int(not usable), OK if usable else PARTIAL, "" if usable else shadow
    )
    slots = [slot for slot in host.slots if slot.space == 0]
    yield finding("vm: slots known", 1, not slots, "the capture does not know the VM's memory slots", PARTIAL)
    if slots:
        examined, outside = outside_slots(host, usable)
        yield finding("ept: inside slots", examined, outside, "nested leaves map what is in no slot", PARTIAL)
    lost = sum(vcpu.node is None for vcpu in host.vcpus)
    yield finding("vm: vCPUs placed", len(host.vcpus), lost, "vCPUs ran on an unknown node", NOTE)


def outside_slots(host: HostDump, roots: Iterable[Root]) -> tuple[int, int]:
    """(leaf entries below ordinary roots, number of those that begin outside every slot)."""
    tree, inside = host.tree, JoinSlots(host.slots)
    ordinary = [root.table for root in roots if root.table is not None and not root.smm]
    root_of = np.flatnonzero(tree.parent == NO_PARENT)[np.cumsum(tree.parent == NO_PARENT) - 1]
    wanted = np.isin(root_of, ordinary)
    examined = outside = 0
    for level, ids, raw in entries.blocks(tree, (1, 2, 3)):
        table, slot = np.nonzero(entries.leaf(raw, level, tree.encoding) & wanted[ids][:, None])
        frames = (tree.base[ids[table]] >> np.uint64(12)).astype(np.int64) + (slot << (9 * (level - 1)))
        examined += len(frames)
        outside += int(np.count_nonzero(~inside.hold(frames)))
    return examined, outside


def check_joined(snapshot: Snapshot, host: HostDump) -> Iterator[Check]:
    """Findings about a joined capture: are the guest's tables and pages in the host's nested tables?"""
    yield from check_memory(host)
    doubts = ((snapshot.facts.get("vm") or {}).get("fit") or {}).get("doubts") or []
    yield finding("vm: one boot", 1, bool(doubts), "; ".join(map(str, doubts)), PARTIAL)
    nested, guest = Nested(snapshot), snapshot.guest
    covered = fit(guest, nested, JoinSlots(host.slots), snapshot.topology, host.vcpus)
    for what, share, verdict in (("tables", covered.tables, PARTIAL), ("pages", covered.pages, NOTE)):
        reason = f"are not mapped by the host: {share.not_faulted} not faulted in, {share.outside} in no slot"
        yield finding(f"vm: {what} in ept", share.frames, share.missing, f"guest {what} {reason}", verdict)
    node = snapshot.topology.node_of_frame(nested.host_frames(guest.frame))
    yield finding(
        "gpt: nodes agree",
        len(guest),
        np.count_nonzero(guest.node != node),
        "guest tables' nodes are not those of the host frames behind them",
        FAILED,
    )


# Report of pages on which dump and pagemap disagree.

EACH = 3  # examples of each reason
NOWHERE = np.uint64((1 << 64) - 1)  # in place of a virtual address: in no slot
SIGNS = ("kernel", "cpu", "nested_paging", "page_type", "encryption_bit", "stopped", "retries", "parameters")


@dataclass(frozen=True)
class Piece:
    """512 pages of guest-physical memory: those of a level-1 table, or a part of a huge page.

    base    first guest-physical address; frames  int64[512] of each page, -1 unmapped
    table   its index in the tree; slot  of the huge page's entry, None of a level-1 table
    """

    base: int
    frames: np.ndarray
    table: int
    slot: int | None = None

    @property
    def huge(self) -> bool:
        return self.slot is not None


class Mismatches:
    """The first pages of each reason, and whether all frames differ in the same way."""

    def __init__(self, host: HostDump) -> None:
        self.host, self.found = host, 0
        self.examples: dict[int, list[str]] = {}
        self.differences: set[int] = set()

    def add(
        self, piece: Piece, verdict: np.ndarray, virtual: np.ndarray, seen: np.ndarray, agree: int
    ) -> None:
        """verdict[512], virtual addresses uint64[512] (or NOWHERE), pagemap words uint64[512]."""
        wrong = np.flatnonzero((verdict != agree) & (piece.frames >= 0))
        self.found += len(wrong)
        for reason in np.unique(verdict[wrong]).tolist():
            kept = self.examples.setdefault(reason, [])
            for page in wrong[verdict[wrong] == reason][: EACH - len(kept)].tolist():
                kept.append(self.told(piece, page, int(virtual[page]), int(seen[page])))
        there = wrong[(seen[wrong] >> np.uint64(63)).astype(bool)]
        if len(self.differences) < 2:
            other = piece.frames[there] ^ (seen[there] & FRAME).astype(np.int64)
            self.differences |= set(np.unique(other)[:2].tolist())

    def told(self, piece: Piece, page: int, virtual: int, word: int) -> str:
        """One page: the entry, bit by bit, and what pagemap has instead."""
        tree = self.host.tree
        slot = page if piece.slot is None else piece.slot
        entry, level = int(tree.entries[piece.table][slot]), int(tree.level[piece.table])
        ept = tree.encoding == "ept" or self.host.facts.get("nested_paging") == "ept"
        where = f"guest-physical {piece.base + page * 4096:#x}"
        bits, mapped = words(entry, level, ept), int(piece.frames[page])
        here = f"entry {entry:#018x} of level {level} ({bits}): frame {mapped:#x}"
        if virtual == int(NOWHERE):
            return f"{where}: {here}; in no slot"
        frame = f"frame {word & FRAME:#x}" if word & PRESENT else "not present"
        return f"{where}: {here}; pagemap of {virtual:#x}: {word:#018x}, {frame}"

    def findings(self, reasons: dict[int, str]) -> Iterator[Check]:
        """Yield examples, by reason, and what else belongs into a report; nothing where all agrees."""
        for reason in (one for one in reasons if one in self.examples):
            for text in self.examples[reason]:
                yield Check("live: for instance", 0, 0, NOTE, text)
        if len(self.differences) == 1 and self.found > 1:
            (bits,) = self.differences
            why = "bits that are no address, such as a memory-encryption key, or a slot that is shifted"
            text = f"all frames differ by the same bits, {bits:#x}: {why}, rather than pages that moved"
            yield Check("live: one difference", 0, 0, NOTE, text)
        if self.examples:
            facts = self.host.facts
            known = "; ".join(
                f"{name} {facts[name]}" for name in SIGNS if facts.get(name) not in (None, "", {})
            )
            encoding = f"{self.host.tree.encoding}, {self.host.tree.levels} levels"
            text = f"for a report, with the lines above: {encoding}{'; ' * bool(known)}{known}"
            yield Check("live: where", 0, 0, NOTE, text)


# Compare a dump of a VM's nested tables with the /proc/PID/pagemap of the running VMM.
#
# A nested leaf maps a guest-physical page to a host frame; a memory slot maps the same page to the VMM's
# virtual memory, for which pagemap gives the frame. They must agree: so a user can verify a dump on hardware
# that its authors did not have (Intel EPT).

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


def check_live(host: HostDump, pid: int) -> Iterator[Check]:
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


def findings(counts: Counter[int]) -> Iterator[Check]:
    """Yield a Check for the agreement, and another per reason that occurred."""
    total = sum(counts.values())
    if not total:
        yield Check("live: pages as in pagemap", 0, 0, PARTIAL, "the nested tables map nothing")
        return
    wrong = total - counts[AGREE]
    doubtful = wrong - counts[PRIVATE]
    verdict = OK if not doubtful else PARTIAL if doubtful <= STALE * total else FAILED
    why = f"differ; {STALE:.0%} at most may have changed since: dump again with --stop" if doubtful else ""
    yield Check("live: pages as in pagemap", total, wrong, verdict, why)
    for reason, told in REASONS.items():
        if counts[reason]:
            yield Check("live: why not", total, counts[reason], NOTE, told)


def counted_by_kvm(host: HostDump) -> Check:
    """KVM counts its leaves (kvm_vm_stat.pages_4k, _2m, _1g): a quiet dump holds exactly as many.

    Tables that several roots share count once.
    """
    quiescence = host.facts.get("quiescence") or {"quiet": False, "after": {}}
    after = quiescence["after"]
    names = ("pages_4k", "pages_2m", "pages_1g")
    if not quiescence["quiet"] or not set(names) <= set(after):
        return Check("ept: as many leaves as KVM", 0, 0, NOTE, "not comparable: KVM changed or hides them")
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
    return Check("ept: as many leaves as KVM", sum(ours.values()), sum(map(abs, missing)), verdict, why)


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
        check_process(shown(self.pid), self.pid)
        try:
            self.file = os.open(shown(self.pid) / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
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
        if len(raw) < count * 8 and state(shown(self.pid)) in "ZX":
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
