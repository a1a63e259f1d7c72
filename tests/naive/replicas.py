"""Trees of several nodes, leaf by leaf, in plain Python: entries as in the Intel SDM 3A, 4.5 and 4.6.1."""

from collections import Counter

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
            mine = of_tree.get((address, level))
            for word in words(mine, theirs):
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
