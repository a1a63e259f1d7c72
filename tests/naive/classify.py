"""Classification and fragmentation by translating every leaf entry, one at a time, in dicts."""

from collections import Counter
from itertools import combinations, pairwise, product

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


def classify(snapshot):
    """Counter of (VMA, node of the guest's leaf, node of the host's leaf, "unmapped" or None native)."""
    counts = Counter()
    for table, _, address, frame in leaves(snapshot.guest):
        vma = vma_of(snapshot, address)
        if vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]:
            continue
        host = None if snapshot.native else host_node(snapshot, frame)
        counts[vma, int(snapshot.guest.node[table]), host] += 1
    return counts


# Twin of the what-if without a trace: one mapped page, one reader, one read at a time.


def count(snapshot, nodes, guest_server, host_server):
    """(reads {(bit, reader, server): n}, classes {(reader, LL..RR): n}, pages the host does not map).

    guest_server, host_server  (table of that tree, reader) -> node
    """
    reads, classes, left_out = Counter(), Counter(), 0
    host = None if snapshot.native else Dimension(snapshot.host, 0)
    for table, level, address, frame in leaves(snapshot.guest):
        vma = vma_of(snapshot, address)
        if vma < len(snapshot.vmas) and snapshot.vmas["emulator"][vma]:
            continue
        nested = host_leaf(host, frame) if host else None
        if host and nested is None:
            left_out += 1
            continue
        for reader in range(nodes):
            server = guest_server(table, reader)
            reads[8 * level, reader, server] += 1
            kind = 2 * (server != reader)
            if nested is not None:
                host_table, host_level = nested
                server = host_server(host_table, reader)
                reads[host_level, reader, server] += 1
                kind += server != reader
            classes[reader, kind] += 1
    return reads, classes, left_out


def host_leaf(host, frame):
    level, found = host.leaf(frame << 12)
    return None if found is None else (host.table(level, frame << 12), level)


# The fragmentation metric by translating every gPTE of every gPT line, one at a time, in dicts.


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
    return Counter((group, len(found), len(set(found))) for (group, _, _), found in lines.items()), unresolved


# Groups of CPUs by brute force: every threshold, the closure of what lies below it, every pair looked at.


def levels(latency, cpus, gap):
    """[groups] of each consistent threshold, coarsest first. latency: {(a, b): ns}, each known pair once.

    None stands for a threshold whose groups the known pairs do not tell apart.
    """
    values = sorted(set(latency.values()))
    found = []
    for below, above in pairwise(values):
        if above / below < gap:
            continue
        near = closure({pair for pair, ns in latency.items() if ns <= below}, cpus)
        if any(near[pair] for pair, ns in latency.items() if ns > below):
            continue
        groups = sorted({tuple(b for b in sorted(cpus) if near[a, b]) for a in cpus})
        found.append(groups if all_told_apart(groups, latency) else None)
    return sorted(found, key=lambda groups: len(groups) if groups else len(cpus) + 1)


def closure(joined, cpus):
    """{(a, b): whether a chain of joined pairs leads from a to b} (Warshall)."""
    near = {(a, b): a == b or (a, b) in joined or (b, a) in joined for a, b in product(cpus, cpus)}
    for via, a, b in product(cpus, cpus, cpus):
        near[a, b] |= near[a, via] and near[via, b]
    return near


def all_told_apart(groups, latency):
    return all(
        any((a, b) in latency or (b, a) in latency for a, b in product(one, other))
        for one, other in combinations(groups, 2)
    )
