"""Twin of kernels.memory_manager and faults: a process's memory as lists and dicts, one entry at a time."""

from ptanalyze.core.trace import Event

TOP, MIB2, EMPTY = 1 << 63, 1 << 21, "empty"
CLEARING = {4, 9, 21, 24, 100, 101, 102}
UPDATING = {8, 20, 25}
ANONYMOUS_PRIVATE, GROWS_DOWN = 0x22, 0x100
TELLS_APART = 0x46000  # MAP_LOCKED, MAP_NORESERVE, MAP_HUGETLB are flags of the VMA too


def up(length):
    return (length + 4095) // 4096 * 4096


class Deaf:
    """A policy that is not told yet, or data that nobody follows."""

    def __getattr__(self, name):
        return lambda *_, **__: None


def made(events, first=0):
    """(start, end) of what events from `first` on mapped, or opened of what was reserved."""
    brk = None
    for number, event in enumerate(events):
        a, b, c = (int(event[name]) for name in "abc")
        result, kind = int(event["result"]), event["kind"]
        if kind == Event.BRK and result > 0:
            if brk is not None and number >= first:
                yield brk, up(result)
            brk = up(result)
        elif number < first:
            continue
        elif kind == Event.MMAP and result > 0:
            yield result, result + up(b)
        elif kind == Event.MREMAP and result > 0:
            yield result + (up(b) if result == a else 0), result + up(c)
    yield from (opened for number, *opened in openings(events) if number >= first)


def openings(events):
    """(number of the event, start, end): what mmap(PROT_NONE) reserved becomes usable."""
    reserved = []
    for number, event in enumerate(events):
        a, b, c, result = (int(event[name]) for name in ("a", "b", "c", "result"))
        maps, protects = event["kind"] == Event.MMAP and result > 0, event["kind"] == Event.MPROTECT
        start, end = (result, result + up(b)) if maps else (a, a + up(b))
        if (maps or (protects and result >= 0)) and max(a, b) < TOP:
            yield from ((number, *both) for both in common(reserved, start, end) if c)
            reserved = outside(reserved, start, end) if c or maps else reserved
            reserved += [(start, end)] if maps and not c else []


def merged(pieces):
    """[(start, end, (lineage, prot))]: neighbours of one VMA with one protection are one again."""
    found = []
    for start, end, lineage, prot in sorted(pieces):
        if found and found[-1][1:] == (start, (lineage, prot)):
            start = found.pop()[0]
        found.append((start, end, (lineage, prot)))
    return found


class Memory:
    """An entry is (level, page >> 9 * (level - 1)); a table is (level, page >> 9 * level).

    vma[entry] = (lineage, prot) or None; valid = mapped entries; exists = table pages there are.
    Every change is told to `policy`, which sees this object as it was before the change.
    """

    def __init__(self, snapshot, trace, space, placement, policy):
        self.levels = snapshot.guest.levels
        self.root = (self.levels, 0)
        levels = zip(space.regions.va, space.regions.level, strict=True)
        self.region_level = {int(va): int(level) for va, level in levels}
        chunks = [k for k, thread in enumerate(trace.chunks["thread"]) if thread == 0]
        main = [int(placement.chunk_cpu[k]) for k in chunks]
        self.main = int(placement.cpu_node[main[0]]) if main else 0
        self.owner_of_lineage, self.kind_of_lineage, self.pieces = [], [], []
        for vma in snapshot.vmas:
            start, end, prot = (int(vma[name]) for name in ("start", "end", "prot"))
            self.pieces.append((start, end, self.new_lineage(self.main), prot))
        self.brk, self.data = None, Deaf()
        major, minor = snapshot.facts.get("kernel", "6.1").split(".")[:2]
        version = 100 * int(major) + int(minor.partition("-")[0])
        self.frees_emptied, self.spares_none = version >= 614, version >= 519
        for start, end in made(trace.events):
            self.cut(start, end)
        self.vma, self.valid, self.policy = {}, set(), policy
        for start, end, lineage, prot in self.pieces:
            self.set_vma(start, end, (lineage, prot))
        self.exists, self.untouched = set(), set()
        roi = [k for k, event in enumerate(trace.events) if event["kind"] == Event.ROI_START]
        self.began = roi[0] if roi else 0
        ends = [k for k, event in enumerate(trace.events) if event["kind"] == Event.ROI_END]
        self.ended = ends[-1] if ends and ends[-1] > max(roi, default=-1) else len(trace.events)
        if roi:
            self.valid = self.mapped_before(snapshot, trace, placement)
        touched = {table for va in self.region_level for table in self.chain(va << 9)}
        self.snapshot_tables = {
            (int(lv), int(base) >> (12 + 9 * int(lv)))
            for lv, base in zip(snapshot.guest.level, snapshot.guest.base, strict=True)
        }
        self.exists = {t for t in self.snapshot_tables if t not in touched} | {self.root}
        self.untouched = self.exists - touched
        for level, number in self.valid:
            self.exists |= set(self.chain(number << 9 * (level - 1)))
        for level, number in list(self.untouched):
            self.exists |= {(up_, number >> 9 * (up_ - level)) for up_ in range(level, self.levels + 1)}

    def mapped_before(self, snapshot, trace, placement):
        """Let everything up to the region of interest happen; entries that were mapped when it began."""
        policy, self.policy = self.policy, Deaf()
        for number in range(self.began):
            self.happen(trace.events[number], int(placement.cpu_node[placement.event_cpu[number]]), [])
        self.policy, self.vma = policy, {}
        for start, end, vma in merged(self.pieces):
            self.set_vma(start, end, vma)
        for va in sorted(va for va, level in self.region_level.items() if level > 1):
            self.take_joined(va, (self.region_level[va], va >> 9 * (self.region_level[va] - 2)))
        later = {e for start, end in made(trace.events, self.began) for e, _ in self.entries(start, end)}
        there = present(snapshot.guest)
        known = {e for e in there if e[1] >> 9 * (2 - e[0]) in self.region_level or e[0] > 1}
        return {e for e in known - later if self.vma.get(e) is not None}

    def new_lineage(self, owner, kind=None):
        self.owner_of_lineage.append(owner)
        self.kind_of_lineage.append(kind)
        return len(self.owner_of_lineage) - 1

    def joined(self, start, end, prot, flags, node):
        """Lineage of what mmap makes: that of the neighbour below, else above, whose VMA can just grow."""
        anonymous = flags & ANONYMOUS_PRIVATE == ANONYMOUS_PRIVATE and not flags & GROWS_DOWN
        kind = (node, flags & TELLS_APART) if anonymous else None
        for touches in (lambda p: p[1] == start, lambda p: p[0] == end):
            for piece in self.pieces:
                if touches(piece) and kind and piece[3] == prot and self.kind_of_lineage[piece[2]] == kind:
                    return piece[2]
        return self.new_lineage(node, kind)

    def leaf_level(self, page):
        return self.region_level[page >> 9]

    def entry(self, page):
        level = self.leaf_level(page)
        return level, page >> 9 * (level - 1)

    def chain(self, page):
        """Tables from the leaf table up."""
        return [(lv, page >> 9 * lv) for lv in range(self.leaf_level(page), self.levels + 1)]

    def owner(self, entry):
        vma = self.vma.get(entry)
        return self.main if vma is None else self.owner_of_lineage[vma[0]]

    def entries(self, start, end):
        """[(entry, whole)] of the touched regions in a range: small ones in address order, then huge ones."""
        first, last = start >> 12, (end + 4095) >> 12
        for va in sorted(self.region_level, key=lambda va: (self.region_level[va] > 1, va)):
            lo, hi = max(first, va << 9), min(last, (va + 1) << 9)
            if lo >= hi:
                continue
            level = self.region_level[va]
            if level == 1:
                yield from (((1, page), True) for page in range(lo, hi))
            else:
                yield (level, va >> 9 * (level - 2)), hi - lo == 512

    def set_vma(self, start, end, vma):
        for entry, whole in self.entries(start, end):
            if whole:
                self.vma[entry] = vma

    def take_joined(self, va, entry):
        """A huge page that several VMAs side by side cover belongs to the first of them."""
        pages = [page << 12 for page in range(va << 9, (va + 1) << 9)]
        owners = [next((p for p in self.pieces if p[0] <= page < p[1]), None) for page in pages]
        if None not in owners:
            self.vma.setdefault(entry, owners[0][2:])

    def cut(self, start, end):
        """Take start..end out of the VMAs: what was there."""
        gone, kept = [], []
        for lo, hi, lineage, prot in self.pieces:
            if start >= end or hi <= start or end <= lo:
                kept.append((lo, hi, lineage, prot))
                continue
            gone.append((max(lo, start), min(hi, end), lineage, prot))
            kept += [(lo, start, lineage, prot)] if lo < start else []
            kept += [(end, hi, lineage, prot)] if end < hi else []
        self.pieces = kept
        return sorted(gone)

    def within(self, start, end):
        return [(max(lo, start), min(hi, end), lineage, prot) for lo, hi, lineage, prot in self.pieces]

    def overlaps(self, start, end):
        return any(lo < end and start < hi for lo, hi, _, _ in self.pieces)

    def fault(self, page, node):
        """A walk: does it fault? Tables made, from the top."""
        entry = self.entry(page)
        if entry in self.valid:
            return None
        self.valid.add(entry)
        self.data.mapped(entry, node)
        made = [t for t in reversed(self.chain(page)) if t not in self.exists]
        self.exists |= set(made)
        return made

    def happen(self, event, node, live):
        a, b, c, d = (int(event[name]) for name in "abcd")
        result, kind = int(event["result"]), int(event["kind"])
        if result < 0 or a >= TOP or b >= TOP:
            return
        self.changed, self.gathered = [], 0
        if kind == Event.MMAP and result > 0:
            self.take(result, result + up(b), node, "clear")
            self.cut(result, result + up(b))
            self.shoot(result, result + up(b), node, live, unmapping=True)
            lineage = self.joined(result, result + up(b), c, d, node)
            self.add(result, result + up(b), (lineage, c))
        elif kind == Event.MUNMAP:
            self.unmap(a, a + up(b), node, live)
        elif kind == Event.MPROTECT:
            pieces = self.cut(a, a + up(b))
            for entry, whole in list(self.entries(a, a + up(b))):
                if has_pages(entry, pieces, (c,) if entry[0] == 1 else (0, c)):
                    before = [*self.changed]
                    self.take_one(entry, whole, node, "update")
                    if self.spares_none and not has_pages(entry, pieces):
                        self.changed = before  # in no TLB
            self.shoot(a, a + up(b), node, live)
            for lo, hi, lineage, _ in pieces:
                self.add(lo, hi, (lineage, c))
        elif kind == Event.MADVISE and c in CLEARING | UPDATING:
            self.take(a, a + up(b), node, "clear" if c in CLEARING else "update")
            freed = self.emptied(a, a + up(b)) if self.frees_emptied and c in (4, 24) else []
            self.shoot(a, a + up(b), node, live, c in CLEARING, self.free_all(freed, node))
        elif kind == Event.MREMAP:
            self.remap(a, up(b), up(c), d, result, node, live)
        elif kind == Event.BRK:
            self.set_brk(up(result), node, live)
        elif kind == Event.MOVE_PAGES:
            by_address = sorted(self.entries(a, a + up(b)), key=lambda found: found[0][1] << 9 * found[0][0])
            for entry, _ in by_address:
                self.changed += [entry] if self.data.move(entry, c, node) else []
            self.shoot(a, a + up(b), node, live)

    def free_all(self, tables, node):
        freed = [table for table in tables if table in self.exists]
        for table in freed:
            self.policy.free(table, node)
            self.exists.discard(table)
        return freed

    def emptied(self, start, end):
        """Leaf tables that there are of whole 2 MiB of one VMA in a range."""
        for lo, hi, _ in merged(self.pieces):
            for va in sorted(self.region_level):
                inside = max(lo, start) <= va << 21 and (va + 1) << 21 <= min(hi, end)
                if inside and self.region_level[va] == 1:
                    yield 1, va

    def remap(self, source, old, new, flags, target, node, live):
        if source == target:
            if new < old:
                self.unmap(source + new, source + old, node, live)
            below = [p for p in self.pieces if p[0] <= source + old - 1 < p[1]] if old else []
            if new > old and below:
                self.take(source + old, source + new, node, "clear")
                self.cut(source + old, source + new)
                self.shoot(source + old, source + new, node, live, unmapping=True)
                self.add(source + old, source + new, below[0][2:])
            return
        self.take(target, target + new, node, "clear")
        self.cut(target, target + new)
        self.shoot(target, target + new, node, live, unmapping=True)
        if new < old:
            self.unmap(source + new, source + old, node, live)
            old = new
        here = [p for p in self.pieces if p[0] <= source < p[1]]
        lineage = self.new_lineage(self.owner_of_lineage[here[0][2]] if here else self.main)
        self.add(target, target + new, (lineage, here[0][3] if here else 3))
        for start, end in extents(source, old, target):
            if self.moves_table(start, end, target - source, node):
                self.shoot(start, end, node, live)
                continue
            for page in range(start >> 12, end >> 12):
                if self.region_level.get(page >> 9) == 1:
                    to = page + (target - source) // 4096
                    if self.region_level.get(to >> 9) == 1:
                        self.move(page, to, node)
                    else:
                        self.take_one((1, page), True, node, "clear")
            self.shoot(start, end, node, live)
        for entry, whole in [e for e in self.entries(source, source + old) if e[0][0] > 1]:
            if whole or has_pages(entry, self.within(source, source + old)):
                self.take_one(entry, whole, node, "clear")
        if flags & 4:
            self.shoot(source, source + old, node, live)
        else:
            self.cut(source, source + old)
            self.leave(source, source + old, node, live)

    def moves_table(self, start, end, shift, node):
        """Whether a leaf table moved whole: all 2 MiB of it, in one VMA, both ends aligned, some mapped."""
        first, to = start >> 12, start + shift >> 12
        inside = [edge for lo, hi, _ in merged(self.pieces) for edge in (lo, hi) if start < edge < end]
        whole = end - start == MIB2 and start % MIB2 == 0 == shift % MIB2 and not inside
        small = self.region_level.get(first >> 9) == 1 == self.region_level.get(to >> 9)
        mapped = [page for page in range(first, first + 512) if (1, page) in self.valid]
        if not (whole and small and mapped and getattr(self.policy, "takes_tables", False)):
            return False
        made = [t for t in reversed(self.chain(to)) if t not in self.exists]
        self.exists |= set(made)
        for page in mapped:
            self.changed.append((1, page))
            self.valid.discard((1, page))
            self.valid.add((1, page - first + to))
            self.data.remapped((1, page), (1, page - first + to))
        self.policy.table_moved((1, first >> 9), (1, to >> 9), made, node)
        return True

    def move(self, page, to, node):
        if (1, page) not in self.valid:
            return
        self.policy.changing([(1, page)], node)
        self.changed.append((1, page))
        self.policy.clear((1, page))
        self.valid.discard((1, page))
        made = [t for t in reversed(self.chain(to)) if t not in self.exists]
        self.exists |= set(made)
        self.valid.add((1, to))
        self.data.remapped((1, page), (1, to))
        self.policy.moved((1, to), made, node)

    def set_brk(self, end, node, live):
        before, self.brk = self.brk, end
        if before is None or before == end:
            return
        if end < before:
            return self.unmap(end, before, node, live)
        heap = [p for p in self.pieces if p[0] <= before - 1 < p[1]]
        vma = heap[0][2:] if heap else (self.new_lineage(node), 3)
        self.take(before, end, node, "clear")
        self.cut(before, end)
        self.shoot(before, end, node, live, unmapping=True)
        self.add(before, end, vma)

    def unmap(self, start, end, node, live):
        if end > start:
            self.take(start, end, node, "clear")
            self.cut(start, end)
            self.leave(start, end, node, live)

    def undo(self, events):
        """From what the region left to what a further run finds, on the main thread's node."""
        for start, end, there in undoing(events[: self.ended], self.began):
            if there is None:
                self.unmap(start, end, self.main, [])
            elif there == EMPTY:
                self.take(start, end, self.main, "clear")
                self.free_all(self.emptied(start, end), self.main)
                for lo, hi, lineage, _ in self.cut(start, end):
                    self.add(lo, hi, (lineage, 0))
            else:
                self.remap(start, end - start, end - start, 2, there, self.main, [])
        before = events[: self.began]
        breaks = [event for event in before if event["kind"] == Event.BRK and event["result"] >= 0]
        self.brk = up(int(breaks[-1]["result"])) if breaks else None

    def leave(self, start, end, node, live):
        def empty(t):
            return not self.overlaps(t[1] << (12 + 9 * t[0]), (t[1] + 1) << (12 + 9 * t[0]))

        gone = set()
        for va in self.region_level:
            if va << 21 < end and start < (va + 1) << 21:
                gone |= {t for t in self.chain(va << 9) if empty(t) and t != self.root}
        below = [t for va in self.region_level for t in self.chain(va << 9)]
        gone |= {t for t in below if any(t[0] <= g[0] and t[1] >> 9 * (g[0] - t[0]) == g[1] for g in gone)}
        freed = sorted(gone)
        for entry in sorted(self.valid):
            if (entry[0], entry[1] >> 9) in freed:
                self.take_one(entry, True, node, "clear")
        self.shoot(start, end, node, live, unmapping=True, freed=self.free_all(freed, node))
        self.set_vma(start, end, None)

    def add(self, start, end, vma):
        if end > start:
            self.pieces.append((start, end, *vma))
            whole = next(p for p in merged(self.pieces) if p[0] <= start < p[1])
            self.set_vma(max(whole[0], start - MIB2), min(whole[1], end + MIB2), vma)

    def take(self, start, end, node, what):
        for entry, whole in list(self.entries(start, end)):
            if whole or has_pages(entry, self.within(start, end)):
                self.take_one(entry, whole, node, what)

    def take_one(self, entry, whole, node, what):
        if entry not in self.valid:
            return
        goes = what == "clear" and whole  # a huge page of which a part goes is split: cleared and set
        self.policy.changing([entry], node, stores=1 if goes else 2)
        self.changed.append(entry)
        if goes:
            self.gathered += 1
            self.policy.clear(entry)
            self.valid.discard(entry)
            self.data.gone(entry)

    def shoot(self, start, end, node, live, unmapping=False, freed=()):
        """Flushes of the TLBs, if an entry changed or a table went: one of each 9,698 pages that went."""
        full, rest = divmod(self.gathered, 9698)
        if times := full + (len(self.changed) > self.gathered - rest or len(freed) > 0):
            self.policy.shoot(start, end, node, live, unmapping, times)
        self.changed, self.gathered = [], 0


def has_pages(entry, pieces, but=(0,)):
    """Whether one of the VMAs' pieces lies in an entry, and its protection is none of `but`."""
    at, end = (number << (3 + 9 * entry[0]) for number in (entry[1], entry[1] + 1))
    return any(max(lo, at) < min(hi, end) and prot not in but for lo, hi, _, prot in pieces)


def outside(ranges, start, end):
    pieces = [(lo, min(hi, start)) for lo, hi in ranges] + [(max(lo, end), hi) for lo, hi in ranges]
    return [(lo, hi) for lo, hi in pieces if lo < hi]


def common(ranges, start, end):
    """[(start, end)] of what ranges (start, end, ...) have of start..end."""
    return [(max(lo, start), min(hi, end)) for lo, hi, *_ in ranges if max(lo, start) < min(hi, end)]


def undoing(events, began):
    """[(start, end, None: unmap it, EMPTY, or where to move it back)] from the last to the first.

    What mmap without MAP_FIXED and what grows maps was free; unless the region unmapped it before, which then
    finds it again. What mremap moved leaves free addresses, and takes with it that they were unmapped.
    """
    done, gone, free, brk = [], [], [], None  # ranges that the region unmapped; that are free when it begins
    opened = [*openings(events)]

    def maps(start, end):
        nonlocal gone, free
        if start < end:
            new = [(start, end)]
            for again in common(gone, start, end):
                new = outside(new, *again)
            done.extend((lo, hi, None) for lo, hi in new)
            gone, free = outside(gone, start, end), free + new

    def unmaps(start, end):
        nonlocal gone
        if start < end:
            new = [(start, end)]
            for one in common(free, start, end):
                new = outside(new, *one)
            gone = outside(gone, start, end) + new

    for number, event in enumerate(events):
        a, b, c, d = (int(event[name]) for name in "abcd")
        result, kind = int(event["result"]), int(event["kind"])
        if result < 0 or a >= TOP or b >= TOP:
            continue
        if kind == Event.BRK:
            brk, before = up(result), brk
            if before is not None and number >= began:
                maps(before, brk)
                unmaps(brk, before)
        elif number < began:
            continue
        for _, start, end in [one for one in opened if one[0] == number]:
            new = [(start, end)]
            for other in [*common(gone, start, end), *common(free, start, end)]:
                new = outside(new, *other)
            done.extend((*one, EMPTY) for one in new)
        if kind == Event.MMAP and result > 0 and not (d & 0x10 and not d & 0x100000):
            maps(result, result + up(b))
        elif kind == Event.MUNMAP:
            unmaps(a, a + up(b))
        elif kind == Event.MREMAP:
            old, new = up(b), up(c)
            kept = min(old, new)
            if result != a and kept:
                then_gone, then_free = (common(ranges, a, a + kept) for ranges in (gone, free))
                gone, free = (outside(outside(r, a, a + kept), result, result + kept) for r in (gone, free))
                gone += [(lo - a + result, hi - a + result) for lo, hi in then_gone]
                free += [(lo - a + result, hi - a + result) for lo, hi in then_free] + [(a, a + kept)]
                done.append((result, result + kept, a))
            unmaps(a + kept, a + old)
            if not d & 2:
                maps(result + kept, result + new)
    return done[::-1]


def extents(source, length, target):
    """(start, end) of what mremap moves at a time: within one leaf table, of both old and new."""
    at = source
    while at < source + length:
        room = min(MIB2 - at % MIB2, MIB2 - (at - source + target) % MIB2)
        yield at, min(at + room, source + length)
        at += room


def present(tree):
    """Entries (level, number) of all leaves of a tree."""
    for table in range(len(tree)):
        level, base = int(tree.level[table]), int(tree.base[table])
        for slot in range(512):
            raw = int(tree.entries[table, slot])
            if raw and (level == 1 or (level < 4 and raw & 0x80)):
                yield level, (base >> (12 + 9 * (level - 1))) + slot


# Memory that a program forbids huge pages or asks them for, page by page, as Linux marks its VMAs.

PAGE = 4096
ENOMEM = -12
HUGE, NO_HUGE, COLLAPSE = 14, 15, 25  # MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE
DONTNEED, FREE, REMOVE = 4, 8, 9
MARKS = {
    "forbidden": ({NO_HUGE}, {HUGE}),
    "asked": ({HUGE}, {NO_HUGE}),
    "collapsed": ({COLLAPSE}, {DONTNEED, FREE, REMOVE}),
}


def pages_of(start, length):
    return range(start // PAGE, -(-(start + length) // PAGE))


def marked_pages(events, mark):
    """Numbers of the pages whose VMA carries VM_NOHUGEPAGE, or did when it was unmapped; other MARKS alike.

    hugepage_madvise (mm/khugepaged.c, Linux 6.12) sets and clears the flag; a new VMA is without; mremap
    (mm/mremap.c) gives the moved or grown VMA the flags of the old one.
    """
    (sets, clears), marked, brk = MARKS[mark], set(), None
    for event in events:
        kind, result = event["kind"], int(event["result"])
        a, b, c = (int(event[name]) for name in "abc")
        if kind == Event.MADVISE and result in (0, ENOMEM) and c in sets:
            marked.update(pages_of(a, b))
        elif kind == Event.MADVISE and result in (0, ENOMEM) and c in clears:
            marked.difference_update(pages_of(a, b))
        elif kind == Event.MMAP and result > 0:
            marked.difference_update(pages_of(result, b))
        elif kind == Event.BRK and result > 0:
            if brk is not None and result > brk:
                marked.difference_update(range(-(-brk // PAGE), -(-result // PAGE)))
            brk = result
        elif kind == Event.MREMAP and result > 0 and b:
            old = [page in marked for page in pages_of(a, b)]
            new = pages_of(result, c)
            flags = (old + old[-1:] * len(new))[: len(new)]
            marked.difference_update(new)
            marked.update(page for page, flag in zip(new, flags, strict=True) if flag)
    return marked


# Twin of world.mm_events: one mremap after the other, each region looked for on its own.

REGION = 1 << 21


def regions_with_passed(touched, events):
    """[address // REGION]: those of `touched`, in this order, then those that mremap moved them to."""
    known = list(touched)
    for event in events:
        source, old, there = (int(event[name]) for name in ("a", "b", "result"))
        size = up(min(old, int(event["c"])))
        if event["kind"] != Event.MREMAP or there <= 0 or there == source or max(source, old, size) >= TOP:
            continue
        for region in sorted(known):
            first, past = max(region * REGION, source), min((region + 1) * REGION, source + size)
            if first >= past:
                continue
            for at in range((first - source + there) // REGION, (past - 1 - source + there) // REGION + 1):
                if at not in known:
                    known.append(at)
    return known


class HugeKernel:
    """Linux that maps 2 MiB wherever it may, page by page: a PMD entry is "huge", or pages of a leaf table.

    frees  MADV_DONTNEED frees the leaf tables that it empties
    """

    def __init__(self, frees):
        self.frees, self.vma, self.pmd, self.faults, self.zeroed = frees, {}, {}, 0, 0

    def touch(self, page):
        block = range(page >> 9 << 9, (page >> 9) + 1 << 9)
        entry = self.pmd.get(page >> 9)
        if entry == "huge" or (entry is not None and page in entry):
            return
        of_one_vma = len({self.vma.get(other) for other in block}) == 1
        huge = entry is None and of_one_vma  # create_huge_pmd asks for pmd_none
        self.faults, self.zeroed = self.faults + 1, self.zeroed + (512 if huge else 1)
        self.pmd[page >> 9] = "huge" if huge else {page} | (entry or set())

    def happen(self, kind, start, pages, value):
        """A call on pages that are mapped; value: its protection or advice."""
        last = start + pages
        for block in {page >> 9 for page in range(start, last)}:
            whole = start <= block << 9 and (block + 1) << 9 <= last
            one_vma = len({self.vma.get(page) for page in range(block << 9, (block + 1) << 9)}) == 1
            entry = self.pmd.get(block)
            goes = kind in (Event.MUNMAP, Event.MMAP) or (kind == Event.MADVISE and value == 4)
            if entry == "huge" and not whole:  # __split_huge_pmd, split_folio
                entry = set(range(block << 9, (block + 1) << 9))
            if goes and entry is not None:
                left = set() if entry == "huge" else entry - set(range(start, last))
                stays = entry != "huge" and not (self.frees and kind == Event.MADVISE and whole and one_vma)
                entry = left if stays else None
            self.pmd[block] = entry
        for page in range(start, last):
            if kind == Event.MUNMAP:
                self.vma.pop(page, None)
            elif kind in (Event.MMAP, Event.MPROTECT):
                self.vma[page] = value
        for block in {page >> 9 for page in range(start, last)} if kind == Event.MUNMAP else ():
            if not any(page in self.vma for page in range(block << 9, (block + 1) << 9)):
                self.pmd[block] = None  # free_pgtables
