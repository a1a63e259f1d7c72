"""The fragmentation metric by translating every gPTE of every gPT line, one at a time, in dicts."""

from collections import Counter

from naive.classify import vma_of
from naive.walker import Dimension, leaf_frame


def ept_line(host, frame):
    """(level, table, line) of the ePT leaf entry of a guest frame, None where the host does not map it."""
    level, found = host.leaf(frame << 12)
    if found is None:
        return None
    return level, host.table(level, frame << 12), (frame >> 9 * (level - 1) & 511) // 8


def fragmentation(snapshot, by_vma):
    """(Counter of (VMA or 0, pages, distinct ePT lines), Counter of unresolved gPTEs by VMA or 0)."""
    host, lines, unresolved = Dimension(snapshot.host, 0), {}, Counter()
    for table in range(len(snapshot.guest)):
        for slot in range(512) if snapshot.guest.level[table] == 1 else ():
            frame = leaf_frame(int(snapshot.guest.entries[table, slot]), 1, snapshot.guest.encoding)
            vma = vma_of(snapshot, int(snapshot.guest.base[table]) + (slot << 12))
            if frame is None or (vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]):
                continue
            group, found = vma if by_vma else 0, ept_line(host, frame)
            if found is None:
                unresolved[group] += 1
            else:
                lines.setdefault((group, table, slot // 8), []).append(found)
    counts = Counter((group, len(found), len(set(found))) for (group, _, _), found in lines.items())
    return counts, unresolved
