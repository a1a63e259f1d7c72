"""TLBs, paging-structure caches, L2 and LLC of a native machine with 4 KiB pages, by physical addresses.

Nothing of the package's own numbers: pages go by virtual page number, entries are found by following frames
from the root, and a cache line is its physical address, whose low bits choose the set.
"""


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
    number = int(cache.bytes * cache.share) // 64
    return Lru(number // cache.ways, cache.ways)


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
