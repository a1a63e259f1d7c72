"""The page walker over dicts: table by (dimension, level, base), caches as OrderedDicts."""

from naive.setassoc import SetAssoc

FRAME = (1 << 52) - (1 << 12)


def leaf_frame(raw, level, encoding):
    """Page frame a raw entry maps as a leaf at its level, or None."""
    if encoding == "x86":
        hint = raw & 0x100 or (level > 1 and raw & 0x80)
        if not raw & 1 and not hint:
            return None
        address = raw if raw & 1 else ~raw
    else:
        present = raw & 7 if encoding == "ept" else raw & 0x800
        if not present:
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
        lines = lambda c: SetAssoc(c.lines // c.ways, c.ways)  # noqa: E731
        cpus = range(len(cpu_node))
        self.pwc = [{level: array(a) for level, a in shapes.items()} for _ in cpus]
        self.host_pwc = [{level: array(a) for level, a in shapes.items()} for _ in cpus]
        self.nested = [array(caches.nested) for _ in cpus]
        self.l2 = [lines(machine.l2) for _ in cpus]
        self.llc = [lines(machine.llc) for _ in range(max(cpu_node) + 1)]

    def flush(self):
        for caches in self.pwc:
            for array in caches.values():
                array.clear()

    def walk(self, cpu, address):
        """(leaf id, slot, (host leaf id, slot) or (-1, -1), {bits read}, {bits from DRAM}) of one walk."""
        self.read, self.dram = set(), set()
        leaf_level, frame = self.guest.leaf(address)
        levels = self.guest.tree.levels
        top, known = self.start(self.pwc[cpu], address, leaf_level, levels)
        for level in range(top, leaf_level - 1, -1):
            table = self.ids[level, address >> (12 + 9 * level) << (12 + 9 * level)]
            if self.host and not (known and level == top) and table in self.guest_frame:
                self.translate(cpu, level, self.guest_frame[table])
            self.fetch(cpu, 8 * level, table, address >> (3 + 9 * level) & 511)
        host = self.translate(cpu, 0, frame) if self.host and frame is not None else (-1, -1)
        return table, address >> (3 + 9 * leaf_level) & 511, host, self.read, self.dram

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
        if not self.l2[cpu].touch(line, line) and not self.llc[self.cpu_node[cpu]].touch(line, line):
            self.dram.add(bit)
