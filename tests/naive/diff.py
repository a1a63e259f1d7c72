"""Two trees compared table by table, entry by entry, in dicts."""

from collections import Counter

from naive.walker import leaf_frame

USED = {"x86": 0x60, "ept": 0x300, "kvm": 0x360}


def tables(tree):
    """{(number of the root, level, first address): index}"""
    root, found = -1, {}
    for k in range(len(tree)):
        root += int(tree.parent[k]) < 0
        found[root, int(tree.level[k]), int(tree.base[k])] = k
    return found


def diff(one, other):
    """(Counter of (level, kind), Counter of (level, node, node), Counter of (level, what))."""
    pages, moves, entries = Counter(), Counter(), Counter()
    first, second = tables(one), tables(other)
    for key in first.keys() | second.keys():
        level = key[1]
        if key not in first:
            pages[level, "created"] += 1
            moves[level, None, int(other.node[second[key]])] += 1
            continue
        if key not in second:
            pages[level, "gone"] += 1
            moves[level, int(one.node[first[key]]), None] += 1
            continue
        a, b = first[key], second[key]
        before, after = int(one.node[a]), int(other.node[b])
        if one.frame[a] == other.frame[b]:
            pages[level, "same"] += 1
        elif before != after and before >= 0 and after >= 0:
            pages[level, "other node"] += 1
            moves[level, before, after] += 1
        else:
            pages[level, "moved"] += 1
        for old, new in zip(one.entries[a].tolist(), other.entries[b].tolist(), strict=True):
            was, is_now = (leaf_frame(raw, level, one.encoding) for raw in (old, new))
            mask = ~USED[one.encoding]
            if old & mask == new & mask or was is is_now is None:
                continue
            if was is None or is_now is None:
                entries[level, "appeared" if was is None else "vanished"] += 1
            else:
                entries[level, "other flags" if was == is_now else "other frame"] += 1
    return pages, moves, entries
