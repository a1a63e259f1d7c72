"""Translation by following the pointers of table pages, as a walker does: no first addresses, no parents."""

from collections import Counter

from naive.walker import FRAME, leaf_frame

PRESENT = {"x86": 1, "kvm": 0x801}


class Pointers:
    """A tree as a dict from frame to entries, walked from the frame of its root."""

    def __init__(self, tree, root=0):
        self.levels, self.encoding, self.root = tree.levels, tree.encoding, int(tree.frame[root])
        self.tables = {
            (int(level), int(frame)): row.tolist()
            for level, frame, row in zip(tree.level, tree.frame, tree.entries, strict=True)
        }
        self.node = {
            (int(level), int(frame)): int(node)
            for level, frame, node in zip(tree.level, tree.frame, tree.node, strict=True)
        }

    def walk(self, address):
        """(frame of the 4 KiB page, level of the leaf, node of the leaf's table), or None."""
        at = self.root
        for level in range(self.levels, 0, -1):
            raw = self.tables[level, at][address >> (3 + 9 * level) & 511]
            frame = leaf_frame(raw, level, self.encoding)
            if frame is not None:
                return frame + (address >> 12 & (1 << 9 * (level - 1)) - 1), level, self.node[level, at]
            needed = PRESENT.get(self.encoding)
            if not (raw & 7 if needed is None else raw & needed == needed) or level == 1:
                return None
            at = (raw & FRAME) >> 12
        return None


def published_counts(guest, host, host_node, sockets):
    """vMitosis, Figure 2: for each socket and leaf entry of the guest, L or R of both leaf tables.

    host_node  takes a host frame to its node: it places the guest's tables, through the nested ones.
    Returns Counter of (socket, "LL" | "LR" | "RL" | "RR").
    """
    counts, outer = Counter(), Pointers(host)
    for table in range(len(guest)):
        level = int(guest.level[table])
        mine = host_node(outer.walk(int(guest.frame[table]) << 12)[0])
        for raw in guest.entries[table].tolist():
            frame = leaf_frame(raw, level, "x86")
            if frame is None:
                continue
            _, _, nested = outer.walk(frame << 12)
            for socket in sockets:
                counts[socket, "LR"[mine != socket] + "LR"[nested != socket]] += 1
    return counts
