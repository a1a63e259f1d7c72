"""Page tables as dicts: changed, compared, read from dumps and from hostile memory."""

from collections import Counter

from naive.walker import FRAME, Dimension, leaf_frame

# Twins of the surgery on page tables: a tree is {address: (level, frame, flags)}, one leaf at a time.

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
    """(pages but that of zeros, how often it maps that, entry that gives its flags, first frame on the main
    node) of a leaf table."""
    rows = [[leaf_frame(int(e), 1, tree.encoding) for e in row] for row in tree.entries[tree.level == 1]]
    zero = {frame for row in rows for frame, times in Counter(row).items() if times > 1}
    raw = [int(entry) for entry in tree.entries[table]]
    there = [entry for entry in raw if leaf_frame(entry, 1, tree.encoding) is not None]
    if not there:
        return 0, 0, 0, 0
    frames = [leaf_frame(entry, 1, tree.encoding) for entry in there]
    node = main_node(snapshot, frames)
    first = next(f for f in frames if snapshot.topology.node_of_frame([f])[0] == node)
    follows = {"x86": 1, "ept": 7, "kvm": 0x801}[tree.encoding]
    walked = [e for e in there if e & follows == follows or (tree.encoding == "ept" and e & follows)]
    zeros = sum(f in zero for f in frames)
    return len(frames) - zeros, zeros, (walked or there)[0], first


# Two trees compared table by table, entry by entry, in dicts.

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


# What Intel's CPUs accept as an EPT entry.


def misconfigured(entry, level):
    """Why an Intel CPU would reject an EPT entry (SDM 3C, 29.3.3.1), "" when it would not."""
    if not entry & 7:
        return ""
    if entry & 3 == 2:
        return "writable but not readable"
    leaf = level == 1 or (level < 4 and entry >> 7 & 1)
    if leaf and entry >> 3 & 7 in (2, 3, 7):
        return "reserved memory type"
    if not leaf and entry >> 3 & (0x1F if level > 3 else 0xF):
        return "reserved bits of a pointer"
    if leaf and level > 1 and entry >> 12 & ((1 << 9 * (level - 1)) - 1):
        return "huge page not aligned"
    return ""


# Reading hostile page tables out of a dict {frame: {slot: entry}}: one recursive walk over numbers.

FRAME_BITS = (1 << 52) - (1 << 12)


def read_guest_tables(memory, root, levels, limit, slots=range(256)):
    """([(base, frame, parent, level)], [{slot: entry} kept], {reason: entries dropped}); None: no root."""
    rows, kept, dropped, budget = [], [], {}, [4 * limit]

    def drop(why):
        dropped[why] = dropped.get(why, 0) + 1

    def visit(frame, level, base, parent, above):
        budget[0] -= 1
        if any(frame == known for _, known, _, _ in rows):
            return "points to a table above it" if frame in above else "seen before"
        if len(rows) >= limit:
            return "over the limit"
        if frame not in memory:
            return "beyond memory"
        me = len(rows)
        rows.append((base, frame, parent, level))
        table = {slot: raw for slot, raw in memory[frame].items() if raw and (parent >= 0 or slot in slots)}
        kept.append(table)
        for slot in sorted(table):
            raw = table[slot]
            if level == 1 or not raw & 1 or (level <= 3 and raw & 0x80):
                continue
            why = "over the limit"
            if budget[0] > 0:
                below = base + (slot << (3 + 9 * level))
                why = visit((raw & FRAME_BITS) >> 12, level - 1, below, me, [*above, frame])
            if why:
                del table[slot]
                drop(why)
        return ""

    return None if visit(root, levels, 0, -1, []) else (rows, kept, dropped)


# Trees of several nodes, leaf by leaf, in plain Python: entries as in the Intel SDM 3A, 4.5 and 4.6.1.

ADDRESS = (1 << 52) - (1 << 12)


def leaves(tree):
    """{(address, level): (frame, writable, user's, executable, {accessed, dirty})} that a CPU would use."""
    found = {}
    child = {(int(p), int(b)): k for k, (p, b) in enumerate(zip(tree.parent, tree.base, strict=True))}

    def down(table, level, base, write, user, execute):
        for slot, entry in enumerate(tree.entries[table].tolist()):
            if not entry & 1:
                continue
            address = base + (slot << (12 + 9 * (level - 1)))
            w, u, x = write and bool(entry & 2), user and bool(entry & 4), execute and not entry >> 63
            if level == 1 or entry & 0x80:
                frame = ((entry & ADDRESS) >> 12) // 512 ** (level - 1) * 512 ** (level - 1)
                marks = {name for name, bit in (("accessed", 0x20), ("dirty", 0x40)) if entry & bit}
                found[address, level] = (frame, w, u, x, marks)
            else:
                down(child[table, address], level - 1, address, w, u, x)

    down(0, int(tree.level[0]), 0, True, True, True)
    return found


def compare(trees, owners):
    """{(tree, level): Counter} of trees against the owners', owners [(start, end, tree)] or None: tree 0."""
    known = [leaves(tree) for tree in trees]
    counts = {}
    for address, level in sorted(set().union(*known)):
        owner = 0 if owners is None else -1
        for start, end, tree in owners or ():
            if start <= address < end:
                owner = tree
        theirs = known[owner].get((address, level)) if owner >= 0 else None
        for tree, of_tree in enumerate(known):
            if tree == owner:
                continue
            for word in words(of_tree.get((address, level)), theirs):
                counts.setdefault((tree, level), Counter())[word] += 1
    return counts


def words(mine, theirs):
    if mine is None and theirs is None:
        return []
    if theirs is None:
        return ["stale"]
    if mine is None:
        return ["missing"]
    if mine[0] != theirs[0]:
        return ["frame"]
    if any(a and not b for a, b in zip(mine[1:4], theirs[1:4], strict=True)):
        return ["more"]
    if mine[1:4] != theirs[1:4]:
        return ["less"]
    return ["same", "marks"] if mine[4] - theirs[4] else ["same"]
