"""Which node owns each VMA: an interval map that the trace's memory-management events change over time.

Hydra (section 3.2) gives every VMA an owner: the node of the thread that asked for it. VMAs older than the
trace belong to the main thread's node. What munmap and mprotect split and mremap moves keeps its owner
(copy_vma in mm/mmap.c). An anonymous mapping side by side with one of the same owner, protection and flags is
one VMA with it (can_vma_merge_after and _before, which in Hydra's kernels compare owners too); what mremap
moved never is. The heap that brk grows is one VMA, and undoing an mprotect merges what it had split.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple, TypeAlias

UNKNOWN_VMA = 0  # id of what lies in no VMA that is known


class Piece(NamedTuple):
    """Bytes start..end of one VMA: `lineage` is the call that made it, `prot` its protection now."""

    start: int
    end: int
    lineage: int
    prot: int


Carved: TypeAlias = tuple[int, int, Piece | None]  # start, end, the piece that was there


class VmaMap:
    """Disjoint pieces of VMAs, sorted; `owner[id]` is the owner node of every VMA id ever given out."""

    def __init__(self, unknown_owner: int) -> None:
        self.pieces: list[Piece] = []
        self._starts: list[int] = []  # of the pieces
        self.owner = [unknown_owner]
        self._lineage_owner: list[int] = []
        self._lineage_kind: list[int | None] = []
        self._ids: dict[tuple[int, int], int] = {}

    def lineage(self, owner: int, kind: int | None = None) -> int:
        """A new VMA's lineage, owned by node `owner`; kind: flags it shares to merge, None: it never does."""
        self._lineage_owner.append(owner)
        self._lineage_kind.append(kind)
        return len(self._lineage_owner) - 1

    def joined(self, start: int, end: int, prot: int, owner: int, kind: int | None) -> int:
        """Lineage of a mapping where nothing is: of the VMA before or after it if they merge, else a new one.

        Between two that it would merge with it joins the lower one: both were used, and by then they have
        anonymous memory of their own, which does not merge (is_mergeable_anon_vma).
        """
        for near in (self.at(start - 1) if start else None, self.at(end)):
            if near is None or kind is None or near.prot != prot:
                continue
            if (self._lineage_owner[near.lineage], self._lineage_kind[near.lineage]) == (owner, kind):
                return near.lineage
        return self.lineage(owner, kind)

    def id(self, lineage: int, prot: int) -> int:
        """VMA id of the pieces with this lineage and protection."""
        key = lineage, prot
        if key not in self._ids:
            self._ids[key] = len(self.owner)
            self.owner.append(self._lineage_owner[lineage])
        return self._ids[key]

    def owner_of(self, piece: Piece | None) -> int:
        """Owner node of a Piece, of the unknown VMA for None."""
        return self.owner[UNKNOWN_VMA] if piece is None else self._lineage_owner[piece.lineage]

    def put(self, start: int, end: int, lineage: int, prot: int) -> Piece:
        """Add a piece where nothing is; it is one with those of its VMA that it touches: the whole."""
        first = last = bisect_left(self._starts, start)
        before = self.pieces[first - 1] if first else None
        after = self.pieces[last] if last < len(self.pieces) else None
        if before and before.end == start and before[2:] == (lineage, prot):
            first, start = first - 1, before.start
        if after and after.start == end and after[2:] == (lineage, prot):
            last, end = last + 1, after.end
        whole = Piece(start, end, lineage, prot)
        self.pieces[first:last] = [whole]
        self._starts[first:last] = [start]
        return whole

    def carve(self, start: int, end: int) -> list[Carved]:
        """Remove start..end; returns what was `within`."""
        found = self.within(start, end)
        first, last = self._span(start, end) if found else (0, 0)
        if first == last:
            return found
        low, high, kept = self.pieces[first], self.pieces[last - 1], []
        if low.start < start:
            kept.append(Piece(low.start, start, low.lineage, low.prot))
        if end < high.end:
            kept.append(Piece(end, high.end, high.lineage, high.prot))
        self.pieces[first:last] = kept
        self._starts[first:last] = [piece.start for piece in kept]
        return found

    def within(self, start: int, end: int) -> list[Carved]:
        """[(start, end, Piece or None)] covering start..end: None where there is no VMA."""
        if end <= start:
            return []
        found: list[Carved] = []
        at = start
        first, last = self._span(start, end)
        for piece in self.pieces[first:last]:
            lo, hi = max(piece.start, start), min(piece.end, end)
            if at < lo:
                found.append((at, lo, None))
            found.append((lo, hi, piece))
            at = hi
        if at < end:
            found.append((at, end, None))
        return found

    def at(self, address: int) -> Piece | None:
        """The Piece that holds `address`, or None."""
        first, last = self._span(address, address + 1)
        return self.pieces[first] if first < last else None

    def any(self, start: int, end: int) -> bool:
        """Some VMA overlaps start..end."""
        first, last = self._span(start, end)
        return first < last

    def _span(self, start: int, end: int) -> tuple[int, int]:
        first = bisect_right(self._starts, start) - 1
        if first < 0 or self.pieces[first].end <= start:
            first += 1
        return first, bisect_left(self._starts, end, first)
