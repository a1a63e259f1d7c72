"""Page tables of a guest's address space, counted a level at a time: their frames, and what they map."""

from dataclasses import dataclass

import numpy as np

from ...core import snapshot as bits
from ...core.snapshot import ENTRIES_PER_TABLE
from .guest_tables import MAX_TABLES, PAGE, USER_SLOTS, Read

AT_ONCE = 1024  # tables in memory together: 4 MiB
MOST_POINTERS = 1 << 22  # to tables of the next level, before those that are the same are merged: 32 MiB


@dataclass(frozen=True)
class Counts:
    """The user half of an address space.

    frames  {level: int64[n], guest frames of its tables, each once, ascending}; the root's level first
    mapped  {level: entries that map a page of 4 KiB (1), 2 MiB (2), 1 GiB (3)}
    unread  tables that lie in no memory, or were too many: of these one may be counted several times
    """

    frames: dict[int, np.ndarray]
    mapped: dict[int, int]
    unread: int

    @property
    def mapped_bytes(self) -> int:
        return sum(count << (3 + 9 * level) for level, count in self.mapped.items())

    @property
    def huge_bytes(self) -> int:
        """Mapped by entries above the leaf tables."""
        return self.mapped_bytes - (self.mapped.get(1, 0) << 12)


def count_tables(read: Read, root: int, levels: int, limit: int = MAX_TABLES) -> Counts | None:
    """Counts below the page frame `root`, None if that cannot be read.

    limit  most tables of a level

    Each frame is read at most once per level, so that loops and garbage cost bounded time.
    """
    frames, mapped, unread = {}, {}, 0
    wanted = np.array([root], np.int64)
    for level in range(levels, 0, -1):
        there: list[np.ndarray] = []
        below = np.zeros(0, np.int64)
        mapped[level] = 0
        for start in range(0, len(wanted), AT_ONCE):
            some, raw = tables_in(read, wanted[start : start + AT_ONCE])
            if level == levels:
                raw = raw[:, :USER_SLOTS]
            there.append(some)
            mapped[level] += int(np.count_nonzero(bits.leaf(raw, level)))
            below = np.append(below, bits.frame(raw[bits.table(raw, level)], level, leaves=False))
            if len(below) > MOST_POINTERS:
                below, over = at_most(limit, below)
                unread += over
        frames[level] = np.concatenate(there) if there else np.zeros(0, np.int64)
        if level == levels and not len(frames[level]):
            return None
        unread += len(wanted) - len(frames[level])
        wanted, over = at_most(limit, below)
        unread += over
    return Counts(frames, mapped, unread)


def at_most(limit: int, frames: np.ndarray) -> tuple[np.ndarray, int]:
    """(the first `limit` of the different frames, ascending; how many more there are)."""
    found = np.unique(frames)
    return found[:limit], max(len(found) - limit, 0)


def tables_in(read: Read, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int64[k] those of `frames` that can be read, uint64[k, 512] what is in them)."""
    raw = np.zeros((len(frames), ENTRIES_PER_TABLE), np.uint64)
    kept = np.zeros(len(frames), bool)
    for k, frame in enumerate(frames.tolist()):
        content = read(frame * PAGE, PAGE)
        if content is not None and len(content) == PAGE:
            raw[k], kept[k] = np.frombuffer(content, "<u8"), True
    return frames[kept], raw[kept]
