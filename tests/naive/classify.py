"""Classification by translating every 4 KiB page of every leaf entry, one at a time, in dicts."""

from collections import Counter

from naive.walker import Dimension, leaf_frame


def leaves(tree):
    """(table, level, first address, frame) of every leaf entry."""
    for table in range(len(tree)):
        level = int(tree.level[table])
        for slot in range(512):
            frame = leaf_frame(int(tree.entries[table, slot]), level, tree.encoding)
            if frame is not None:
                yield table, level, int(tree.base[table]) + (slot << (3 + 9 * level)), frame


def vma_of(snapshot, address):
    for k, vma in enumerate(snapshot.vmas):
        if int(vma["start"]) <= address < int(vma["end"]):
            return k
    return len(snapshot.vmas)


def host_node(snapshot, frame):
    """Node of the host's leaf entry for a guest frame, "unmapped" if it has none."""
    host = Dimension(snapshot.host, 0)
    level, found = host.leaf(frame << 12)
    if found is None:
        return "unmapped"
    return int(snapshot.host.node[host.table(level, frame << 12)])


def classify(snapshot, weight):
    """Counter of (VMA, node of the guest's leaf, node of the host's leaf, "unmapped" or None native)."""
    counts = Counter()
    for table, level, address, frame in leaves(snapshot.guest):
        vma = vma_of(snapshot, address)
        if vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]:
            continue
        pages = 512 ** (level - 1) if weight == "4k" else 1
        guest = int(snapshot.guest.node[table])
        if snapshot.native:
            counts[vma, guest, None] += pages
        elif level < 3 or pages == 1:
            counts.update((vma, guest, host_node(snapshot, frame + k)) for k in range(pages))
        else:  # a region without a leaf table of its own has one class
            host = Dimension(snapshot.host, 0)
            for region in range(frame >> 9, (frame >> 9) + 512):
                step = 1 if host.table(1, region << 21) is not None else 512
                for k in range(0, 512, step):
                    counts[vma, guest, host_node(snapshot, (region << 9) + k)] += step
    return counts
