"""Page walkers over dicts, with the caches and TLBs of one CPU."""

from collections import Counter, OrderedDict
from functools import cache

from ptanalyze.core.trace import Event

# The page walker over dicts: table by (dimension, level, base), caches as OrderedDicts.
FRAME = (1 << 52) - (1 << 12)


def leaf_frame(raw, level, encoding):
    """Page frame a raw entry maps as a leaf at its level, or None."""
    if encoding == "x86":
        if not raw & 1 and not (raw & 0x100 or (level > 1 and raw & 0x80)):
            return None
        address = raw if raw & 1 else ~raw
    else:
        if not (raw & 7 if encoding == "ept" else raw & 0x800):
            return None
        address = raw
    if level > 3 or (level > 1 and not raw & 0x80):
        return None
    return (address & FRAME) >> (3 + 9 * level) << (9 * (level - 1))


class Dimension:
    """One tree with its flat ids: finds the leaf of an address top down, and the tables on the way."""

    def __init__(self, tree, first_id):
        self.tree, self.first = tree, first_id
        self.at = {(int(lv), int(b)): k for k, (lv, b) in enumerate(zip(tree.level, tree.base, strict=True))}

    def table(self, level, address):
        span = 12 + 9 * level
        return self.at.get((level, address >> span << span))

    def leaf(self, address):
        """(level, frame of the 4 KiB page or None): a leaf table wins, then the huge entries above it."""
        for level in (1, 2, 3):
            table = self.table(level, address)
            if table is None:
                continue
            raw = int(self.tree.entries[table, address >> (3 + 9 * level) & 511])
            frame = leaf_frame(raw, level, self.tree.encoding)
            if frame is not None:
                return level, frame + (address >> 12 & (1 << 9 * (level - 1)) - 1)
            if level == 1:
                return 1, None
        return 1, None

    def mapped(self, address):
        """(frame of the 4 KiB page, what else its entry tells the hardware), or None."""
        level, frame = self.leaf(address)
        if frame is None:
            return None
        raw = int(self.tree.entries[self.table(level, address), address >> (3 + 9 * level) & 511])
        if self.tree.encoding == "ept":
            return frame, (raw & 0b100_0111_1111, raw >> 57 & 0b1011)
        return frame, (raw & 0b1_1001_1110, raw >> 59)


class Walker:
    """All CPUs of a machine. `ids`: (level, base) of every guest table, inferred ones too -> flat id."""

    def __init__(self, snapshot, ids, machine, cpu_node):
        self.guest = Dimension(snapshot.guest, 0)
        self.host = None if snapshot.host is None else Dimension(snapshot.host, len(snapshot.guest))
        self.ids, self.cpu_node = ids, cpu_node
        self.guest_frame = {k: int(f) for k, f in enumerate(snapshot.guest.frame)}
        caches = machine.walk_caches
        shapes = {1: caches.pde, 2: caches.pdpte, 3: caches.pml4e, 4: caches.pml5e}
        array = lambda a: SetAssoc(a.sets, a.ways) if a else SetAssoc(1, 0)  # noqa: E731
        cpus = range(len(cpu_node))
        self.pwc = [{level: array(a) for level, a in shapes.items()} for _ in cpus]
        self.host_pwc = [{level: array(a) for level, a in shapes.items()} for _ in cpus]
        self.nested = [array(caches.nested) for _ in cpus]
        self.l1d = [private(machine.l1d) for _ in cpus]
        self.l2 = [private(machine.l2) for _ in cpus]
        shares = sorted({machine.llc.share, *(machine.llc.shares or ())})
        self.llc = [[last_level(machine.llc, share) for share in shares] for _ in range(max(cpu_node) + 1)]

    def flush(self):
        for caches in self.pwc:
            for array in caches.values():
                array.clear()

    def walk(self, cpu, address):
        """(leaf id, slot, (host leaf id, slot) or (-1, -1), {bits read}, [{bits that miss} L1D, L2, and the
        LLC at each share]) of one walk."""
        self.read, self.missed = set(), [set() for _ in range(2 + len(self.llc[0]))]
        leaf_level, frame = self.guest.leaf(address)
        top, known = self.start(self.pwc[cpu], address, leaf_level, self.guest.tree.levels)
        for level in range(top, leaf_level - 1, -1):
            table = self.ids[level, address >> (12 + 9 * level) << (12 + 9 * level)]
            if self.host and not (known and level == top) and table in self.guest_frame:
                self.translate(cpu, level, self.guest_frame[table])
            self.fetch(cpu, 8 * level, table, address >> (3 + 9 * level) & 511)
        host = self.translate(cpu, 0, frame) if self.host and frame is not None else (-1, -1)
        return table, address >> (3 + 9 * leaf_level) & 511, host, self.read, self.missed

    def translate(self, cpu, g, frame):
        """The nested walk that finds a guest frame: (host table with its leaf, slot), or (-1, -1)."""
        address = frame << 12
        level, _ = self.host.leaf(address) if frame >= 0 else (1, None)
        table = self.host.table(level, address) if frame >= 0 else None
        if table is None:
            return -1, -1
        page = frame >> 9 * (level - 1)
        if not self.nested[cpu].touch(page, (level, page)):
            top, _ = self.start(self.host_pwc[cpu], address, level, self.host.tree.levels)
            for h in range(top, level - 1, -1):
                step = self.host.first + self.host.table(h, address)
                self.fetch(cpu, 8 * g + h, step, address >> (3 + 9 * h) & 511)
        return self.host.first + table, page & 511

    def start(self, caches, address, leaf_level, levels):
        """(level of the first table that is read, whether a paging-structure cache led there)."""
        for level in range(leaf_level, levels):
            prefix = address >> (12 + 9 * level)
            if caches[level].touch(prefix, prefix):
                return level, True
        return levels, False

    def fetch(self, cpu, bit, table, slot):
        self.read.add(bit)
        line = (table << 6) + (slot >> 3)
        for own, missed in zip((self.l1d[cpu], self.l2[cpu]), self.missed, strict=False):
            if own.touch(line, line):
                return
            missed.add(bit)
        for llc, missed in zip(self.llc[self.cpu_node[cpu]], self.missed[2:], strict=True):
            if not llc.touch(line, line):
                missed.add(bit)


def caches_missed(planes, bit):
    """Number of caches that miss a read, of a walk's Reads.missed."""
    return sum((plane >> bit & 1) << k for k, plane in enumerate(planes))


def private(cache):
    """A data cache of a CPU; one that walks do not read through holds nothing."""
    return SetAssoc(cache.lines // cache.ways, cache.ways) if cache else SetAssoc(1, 0)


def last_level(llc, share):
    """A cache for a share of the LLC, of as many sets at all shares: whole, each has 4 times its ways."""
    sets = llc.bytes // (64 * 4 * llc.ways) or 1
    lines = max(int(llc.bytes * share) // 64 // llc.ways, 1) * llc.ways
    return Sliced(sets, lines // sets, lines % sets)


# Translation by following the pointers of table pages, as a walker does: no first addresses, no parents.
PRESENT = {"x86": 1, "kvm": 0x801}


class Pointers:
    """A tree as a dict from frame to entries, walked from the frame of its root."""

    def __init__(self, tree, root=0):
        self.levels, self.encoding, self.root = tree.levels, tree.encoding, int(tree.frame[root])
        keys = list(zip(tree.level.tolist(), tree.frame.tolist(), strict=True))
        self.tables = dict(zip(keys, tree.entries.tolist(), strict=True))
        self.node = dict(zip(keys, tree.node.tolist(), strict=True))

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


# A set-associative true-LRU array: one OrderedDict a set, the most recent last.
class SetAssoc:
    def __init__(self, sets, ways, one_more=0):
        """one_more  the first sets that have one more way"""
        self.sets, self.ways, self.one_more = [OrderedDict() for _ in range(sets)], ways, one_more

    def touch(self, index, tag):
        """Whether the set of `index` holds the tag; afterwards it does, as the most recent."""
        at = self.set_of(index)
        row = self.sets[at]
        hit = tag in row
        row[tag] = True
        row.move_to_end(tag)
        if len(row) > self.ways + (at < self.one_more):
            row.popitem(last=False)
        return hit

    def set_of(self, index):
        return index % len(self.sets)

    def drop(self, tag):
        for row in self.sets:
            row.pop(tag, None)

    def clear(self):
        for row in self.sets:
            row.clear()


class Sliced(SetAssoc):
    """One whose set is a part of the range of a hash: lines of a table at even distances, tables anywhere."""

    def set_of(self, line):
        spread = (line ^ line // 64) * 2654435761 % 2**32  # the golden part of 2^32 (Knuth 6.4)
        return spread * len(self.sets) // 2**32


# The TLB of one CPU: entries are (size, page number of that size); the real page number chooses the set.
FLUSH_CEILING = 33


def joined_groups(snapshot, joins):
    """Function of page number // joins: whether these pages share an entry; each is followed by itself."""
    guest, host = Dimension(snapshot.guest, 0), snapshot.host and Dimension(snapshot.host, 0)

    @cache
    def joined(group):
        pages = [guest.mapped(page << 12) for page in range(group * joins, (group + 1) * joins)]
        behind = [host.mapped(page[0] << 12) if page else None for page in pages] if host else pages
        return in_a_row(pages, joins) and in_a_row(behind, joins)

    return joined


def in_a_row(pages, joins):
    """Runs of [(frame, attributes) or None]."""
    return None not in pages and pages == [
        (pages[0][0] // joins * joins + k, pages[0][1]) for k in range(joins)
    ]


class NaiveTlb:
    def __init__(self, tlb, joined=None):
        self.joins, self.joined = tlb.joins, joined
        array = lambda a: SetAssoc(a.sets, a.ways) if a else SetAssoc(1, 0)  # noqa: E731
        self.l1 = {1: array(tlb.l1_4k), 2: array(tlb.l1_2m), 3: array(tlb.l1_1g)}
        shared, none = array(tlb.l2), array(None)
        self.l2 = {
            size: shared if name in tlb.l2_holds else none for size, name in ((1, "4k"), (2, "2m"), (3, "1g"))
        }
        if tlb.l2_1g:
            self.l2[3] = array(tlb.l2_1g)
        self.hits = [0, 0, 0]

    def touch(self, page_number, size):
        """0, 1, 2: hit the first level, hit the second, missed both."""
        number, what = page_number >> 9 * (size - 1), size
        if size == 1 and self.joined and self.joined(page_number // self.joins):
            number, what = page_number // self.joins, "joined"
        where = next(
            (k for k, level in enumerate((self.l1, self.l2)) if level[size].touch(number, (what, number))), 2
        )
        self.hits[where] += 1
        return where

    def shoot_down(self, start, end, entries):
        """Drop what maps bytes of start..end; beyond 33 entries, everything."""
        for array in (*self.l1.values(), *self.l2.values()):
            for row in array.sets:
                for size, number in list(row):
                    bytes_ = self.joins << 12 if size == "joined" else 1 << (3 + 9 * size)
                    if entries > FLUSH_CEILING or (number * bytes_ < end and start < (number + 1) * bytes_):
                        del row[size, number]


class Flushed:
    """What calls flush: the pages from the first to the last that was mapped and is changed.

    level  {address >> 21: page size as TLBs see it} of the touched regions; there: pages mapped at first
    """

    def __init__(self, level, there=()):
        self.level, self.mapped, self.prot, self.brk = level, set(there), {}, None

    def touch(self, page):
        first = page >> 9 << 9
        self.mapped |= {*range(first, first + 512)} if self.level[page >> 9] > 1 else {page}

    def taken(self, start, length, keep=False):
        found = {page for page in self.mapped if start >> 12 <= page < start + length + 4095 >> 12}
        self.mapped -= set() if keep else found
        return found

    def happen(self, event):
        """[(first byte, one past the last, entries)] that a call flushes."""
        a, b, c, d, result, kind = (int(event[name]) for name in ("a", "b", "c", "d", "result", "kind"))
        found, moved = [], set()
        if result < 0 or max(a, b) >= 1 << 63:
            return []
        if kind == Event.MMAP and result > 0:
            found = [self.taken(result, b)] if d & 0x10 else []
            self.prot |= dict.fromkeys(range(result >> 12, result + b + 4095 >> 12), c)
        elif kind == Event.MUNMAP:
            found = [self.taken(a, b)]
        elif kind == Event.MPROTECT:
            pages = range(a >> 12, a + b + 4095 >> 12)
            found = [{page for page in self.taken(a, b, keep=True) if self.prot.get(page) not in (0, c)}]
            self.prot |= dict.fromkeys(pages, c)
        elif kind == Event.MADVISE:
            found = [self.taken(a, b, keep=c != 4)] if c in (4, 8) else []
        elif kind == Event.MREMAP:
            found = [self.taken(result, c)] if d & 2 and result != a else []
            found.append(self.taken(a + c, b - c))
            self.prot |= dict.fromkeys(range(result + min(b, c) >> 12, result + c >> 12))
            if result != a:
                moved = self.taken(a, min(b, c))
                there = {page + (result - a >> 12): self.prot.get(page) for page in moved}
                self.mapped |= {page for page in there if page >> 9 in self.level}
                self.prot |= there
        return [self.range_of(pages, pages is moved) for pages in (*found, moved) if pages]

    def range_of(self, pages, moved):
        first, last = min(pages), max(pages)
        shift = 9 if not moved and all(self.level[page >> 9] > 1 for page in pages) else 0
        return first << 12, last + 1 << 12, (last >> shift) - (first >> shift) + 1


# TLBs, paging-structure caches, L2 and LLC of a native machine with 4 KiB pages, by physical addresses.
# Nothing of the package's own numbers: pages go by virtual page number, entries are found by following frames
# from the root, and a cache line is its physical address, whose low bits choose the set.
class Lru:
    """Sets as lists of tags, the most recently used last."""

    def __init__(self, sets, ways):
        self.sets, self.ways = [[] for _ in range(sets)], ways

    def holds(self, number):
        row = self.sets[number % len(self.sets)]
        hit = number in row
        if hit:
            row.remove(number)
        row.append(number)
        del row[: -self.ways]
        return hit


class Cpu:
    def __init__(self, machine, llc):
        lru = lambda array: Lru(array.entries // array.ways, array.ways)  # noqa: E731
        caches = machine.walk_caches
        self.l1, self.l2_tlb = lru(machine.tlb.l1_4k), lru(machine.tlb.l2)
        self.leads_to = {1: lru(caches.pde), 2: lru(caches.pdpte), 3: lru(caches.pml4e)}  # level of a table
        self.l2, self.llc = lines(machine.l2), llc
        self.walks = self.dram = 0


def lines(cache):
    return Lru((int(cache.bytes * cache.share) // 64) // cache.ways, cache.ways)


def replay(tree, machine, cpu_node, touches):
    """Cpus after `touches`, (CPU, virtual page number) each, of the pages of a Tree of four levels."""
    llc = {node: lines(machine.llc) for node in cpu_node}
    cpus = [Cpu(machine, llc[node]) for node in cpu_node]
    memory = {int(frame): table for frame, table in zip(tree.frame, tree.entries, strict=True)}
    for cpu, page in touches:
        touch(cpus[cpu], page, memory, int(tree.frame[0]))
    return cpus


def touch(cpu, page, memory, root):
    if cpu.l1.holds(page) or cpu.l2_tlb.holds(page):
        return
    cpu.walks += 1
    # the shortest way is looked for first: whatever is missed on the way is filled
    known = next((level for level in (1, 2, 3) if cpu.leads_to[level].holds(page >> 9 * level)), 4)
    frame = root
    for level in (4, 3, 2, 1):
        slot = page >> 9 * (level - 1) & 511
        if level <= known:
            line = (frame << 12 | slot << 3) >> 6
            if not cpu.l2.holds(line) and not cpu.llc.holds(line):
                cpu.dram += 1
        frame = int(memory[frame][slot]) >> 12 & (1 << 40) - 1 if level > 1 else None


# Memory that does not grow, folded: a dictionary of pages, line by line.


def naive_fold(touched, fixed, factor):
    """{page: page that is seen in its place} of the `fixed` pages of lines of eight with a touched page.

    touched  page numbers; fixed: a range of them
    """
    lines = sorted({page // 8 for page in touched if any(8 * (page // 8) + k in fixed for k in range(8))})
    kept = max(round(len(lines) / factor), 1)
    return {
        8 * line + k: 8 * lines[number % kept] + k
        for number, line in enumerate(lines)
        for k in range(8)
        if 8 * line + k in fixed
    }


# A fully associative LRU cache of lines, exactly.


def lru_misses(lines, size):
    """Misses in the second pass of a stream that a first pass has warmed the cache with."""
    held, misses = OrderedDict(), 0
    for turn in range(2):
        for line in lines.tolist():
            if line in held:
                held.move_to_end(line)
                continue
            misses += turn
            held[line] = True
            if len(held) > size:
                held.popitem(last=False)
    return misses
