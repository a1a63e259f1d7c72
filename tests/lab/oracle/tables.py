"""The page tables of a node as they lie in a stopped machine's memory, within the region of the scripts."""

import numpy as np

REGION, SPAN = 0x2000_0000_0000, 8 << 39
FRAME, PRESENT, LARGE = np.uint64(0x000F_FFFF_FFFF_F000), np.uint64(1), 0x80


class Tree:
    """
    tables     {level: [first page of each table]}, from the region's first page on; the root is page 0
    entries    {page: frame} of the present leaf entries
    elsewhere  tables that lie on another node than the root
    """

    def __init__(self, ram, root):
        self.ram, self.tables, self.entries, self.elsewhere = ram, {4: [0]}, {}, 0
        (self.node,) = ram.node([root]).tolist()
        self._below(root, 4, 0)

    def _below(self, frame, level, base):
        (content,) = self.ram.tables([frame])
        for slot in np.flatnonzero(content & PRESENT).tolist():
            va = base + (slot << (12 + 9 * (level - 1)))
            if not REGION <= va < REGION + SPAN:
                continue
            page, target = va - REGION >> 12, int(content[slot] & FRAME) >> 12
            if level == 1 or int(content[slot]) & LARGE:
                self.entries[page] = target
                continue
            self.tables.setdefault(level - 1, []).append(page)
            self.elsewhere += int(self.ram.node([target])[0] != self.node)
            self._below(target, level - 1, va)


def check(ram, roots):
    """A check of the facts: what the trees below `roots`, one per node, hold; `odd` where they disagree."""
    trees = [Tree(ram, root) for root in roots]
    found = {
        "tables": [{str(k): runs(v) for k, v in sorted(tree.tables.items())} for tree in trees],
        "entries": [runs(tree.entries) for tree in trees],
    }
    frame = {page: f for tree in trees for page, f in tree.entries.items()}
    odd = {
        "frames": sum(frame[page] != f for tree in trees for page, f in tree.entries.items()),
        "elsewhere": [tree.elsewhere for tree in trees],
    }
    return found | ({"odd": odd} if odd["frames"] or any(odd["elsewhere"]) else {})


def runs(pages):
    """ "0-2,5" of {0, 1, 2, 5}."""
    found = []
    for page in sorted(pages):
        if found and found[-1][1] == page - 1:
            found[-1][1] = page
        else:
            found.append([page, page])
    return ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in found)
