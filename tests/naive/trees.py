"""Twins of the surgery on page tables: a tree is {address: (level, frame, flags)}, one leaf at a time."""

from collections import Counter

from naive.walker import FRAME, Dimension, leaf_frame

HUGE, MIB2 = 0x80, 1 << 21


def leaf_map(tree):
    """{address: (level, first frame, flags without HUGE)} of every leaf entry."""
    found = {}
    for table in range(len(tree)):
        level = int(tree.level[table])
        for slot in range(512):
            raw = int(tree.entries[table, slot])
            frame = leaf_frame(raw, level, tree.encoding)
            if frame is not None:
                address = int(tree.base[table]) + (slot << (3 + 9 * level))
                found[address] = level, frame, raw & ~FRAME & ~HUGE
    return found


def by_steps(tree, address):
    """(tables passed, level, frame of the 4 KiB page) by following entries' positions, None if not mapped."""
    at = {(int(lv), int(b)): k for k, (lv, b) in enumerate(zip(tree.level, tree.base, strict=True))}
    passed = []
    for level in range(tree.levels, 0, -1):
        span = 12 + 9 * level
        table = at.get((level, address >> span << span))
        if table is None:
            return None
        if passed:
            assert int(tree.parent[table]) == passed[-1]
        passed.append(table)
        raw = int(tree.entries[table, address >> (3 + 9 * level) & 511])
        frame = leaf_frame(raw, level, tree.encoding)
        if frame is not None:
            return passed, level, frame + (address >> 12 & (1 << 9 * (level - 1)) - 1)
        if not raw & 1:
            return None
    return None


def shadow_pages(snapshot):
    """({address: (smaller level, host frame)}, pages without a host frame) of the guest's 4 KiB pages.

    Of 2 MiB that no leaf table of the host maps, only the first page stands for all.
    """
    host, found, missing = Dimension(snapshot.host, 0), {}, 0
    for address, (level, frame, _) in leaf_map(snapshot.guest).items():
        page, pages = 0, 512 ** (level - 1)
        while page < pages:
            whole = level > 1 and host.table(1, frame + page << 12) is None
            below, number = host.leaf(frame + page << 12)
            if number is None:
                missing += 512 if whole else 1
            else:
                found[address + (page << 12)] = min(level, below), number
            page += 512 if whole else 1
    return found, missing


def regions(tree):
    """{base: {slot: frame}} of the leaf tables."""
    found = {}
    for address, (level, frame, _) in leaf_map(tree).items():
        if level == 1:
            found.setdefault(address // MIB2 * MIB2, {})[address // 4096 % 512] = frame
    return found


def eligible(snapshot, min_pages):
    """Bases of the guest's regions that one anonymous private VMA of the program's holds."""
    return [
        base
        for base, pages in sorted(regions(snapshot.guest).items())
        if len(pages) >= min_pages
        and any(
            vma["start"] <= base and base + MIB2 <= vma["end"] and not vma["shared"] and not vma["emulator"]
            for vma, name in zip(snapshot.vmas, snapshot.vma_names, strict=True)
            if name == "" or name.startswith(("[heap]", "[stack", "[anon"))
        )
    ]


def blocks_in_use(snapshot, promoted):
    """Blocks of 512 guest frames in which something is that is not promoted."""
    used, tree = set(), snapshot.guest
    for address, (level, frame, _) in leaf_map(tree).items():
        if level > 1 or address // MIB2 * MIB2 not in promoted:
            used |= {(frame >> 9) + k for k in range(512 ** max(level - 2, 0))}
    for table in range(len(tree)):
        if not (tree.level[table] == 1 and int(tree.base[table]) in promoted):
            used.add(int(tree.frame[table]) >> 9)
    return used


def main_node(snapshot, frames):
    """Node that most frames are on, the lowest of equals."""
    counts = Counter(snapshot.topology.node_of_frame(frames).tolist())
    return min(counts, key=lambda node: (-counts[node], node))


def stays_small(base, fragmentation, seed, dimension):
    """Whether no contiguous memory is found for a region: splitmix64 of its number, in Python's integers."""
    z, wrap = (base // MIB2 * 2 + dimension + seed * 0x9E3779B97F4A7C15) % 2**64, 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % wrap
    z = (z ^ z >> 27) * 0x94D049BB133111EB % wrap
    return ((z ^ z >> 31) >> 11) / 2**53 < fragmentation


def nearest_free(home, *pools):
    """Free homes go to the first that asks; the others, by home, take the next above, else the lowest."""
    given = [-1] * len(home)
    for k, block in enumerate(home):
        if block not in given and any(block in pool for pool in pools):
            given[k] = block
    for pool in pools:
        left, low = sorted(set(pool) - set(given)), []
        for k in sorted((k for k in range(len(home)) if given[k] < 0), key=lambda k: (home[k], k)):
            above = [block for block in left if block >= home[k]]
            if above:
                given[k] = above[0]
                left.remove(above[0])
            else:
                low.append(k)
        for k, block in zip(low, left, strict=False):
            given[k] = block
    return given


def blocks_the_host_maps(snapshot):
    """(blocks of 512 guest frames that the host maps as a whole, those that it maps a part of)."""
    whole, part = set(), set()
    for address, (level, _, _) in leaf_map(snapshot.host).items():
        if level > 1:
            whole |= {(address >> 21) + k for k in range(512 ** (level - 2))}
    for base, pages in regions(snapshot.host).items():
        (whole if len(pages) == 512 else part).add(base >> 21)
    return whole, part


def summary(snapshot, tree, table):
    """(mapped pages, entry that gives its flags, first frame on the main node) of a leaf table."""
    raw = [int(entry) for entry in tree.entries[table]]
    there = [entry for entry in raw if leaf_frame(entry, 1, tree.encoding) is not None]
    if not there:
        return 0, 0, 0
    frames = [leaf_frame(entry, 1, tree.encoding) for entry in there]
    node = main_node(snapshot, frames)
    first = next(f for f in frames if snapshot.topology.node_of_frame([f])[0] == node)
    follows = {"x86": 1, "ept": 7, "kvm": 0x801}[tree.encoding]
    walked = [e for e in there if e & follows == follows or (tree.encoding == "ept" and e & follows)]
    return len(there), (walked or there)[0], first
