"""Which node owns each VMA: an interval map that the trace's memory-management events change over time.

Hydra (section 3.2) gives every VMA an owner: the node of the thread that asked for it. VMAs older than the
trace belong to the main thread's node. What munmap, mprotect and mremap split keeps its owner; VMAs of
separate calls are never merged, the heap that brk grows is one VMA, and undoing an mprotect merges what it
had split.
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
        self.owner = [unknown_owner]
        self._lineage_owner: list[int] = []
        self._ids: dict[tuple[int, int], int] = {}

    def lineage(self, owner: int) -> int:
        """A new VMA's lineage, owned by node `owner`."""
        self._lineage_owner.append(owner)
        return len(self._lineage_owner) - 1

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

    def put(self, start: int, end: int, lineage: int, prot: int) -> None:
        """Add a piece where nothing is."""
        self.pieces.insert(bisect_left(self.pieces, (start,)), Piece(start, end, lineage, prot))

    def carve(self, start: int, end: int) -> list[Carved]:
        """Remove start..end; returns [(start, end, Piece or None)] covering it: None where no VMA was."""
        if end <= start:
            return []
        found: list[Carved] = []
        at, kept = start, []
        first, last = self._span(start, end)
        for piece in self.pieces[first:last]:
            lo, hi = max(piece.start, start), min(piece.end, end)
            if at < lo:
                found.append((at, lo, None))
            found.append((lo, hi, piece))
            at = hi
            if piece.start < lo:
                kept.append(piece._replace(end=lo))
            if hi < piece.end:
                kept.append(piece._replace(start=hi))
        self.pieces[first:last] = kept
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
        first = bisect_right(self.pieces, (start,)) - 1
        if first < 0 or self.pieces[first].end <= start:
            first += 1
        return first, bisect_left(self.pieces, (end,))
