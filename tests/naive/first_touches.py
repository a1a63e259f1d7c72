"""Twin of world.first_touches: one 2 MiB region after the other."""

from ptanalyze.core.trace import Event

from .memory_manager import MIB2, TOP, up
from .walker import leaf_frame


class Touched:
    """What threads touched first before the region of interest; nodes of tables and pages that there were."""

    def __init__(self, memory, trace, placement):
        self.memory, self.first = memory, {}  # region -> (number of the event, node)
        for number in range(memory.began):
            event = trace.events[number]
            a, b, kind, result = (int(event[name]) for name in ("a", "b", "kind", "result"))
            if kind == Event.FIRST_TOUCH:
                self.first[a // MIB2] = number, int(placement.cpu_node[placement.event_cpu[number]])
            elif a >= TOP or b >= TOP:
                continue
            elif (kind == Event.MUNMAP and result >= 0) or (kind == Event.MREMAP and 0 < result != a):
                self.forget(a, a + up(b))
            elif kind == Event.MMAP and result > 0:
                self.forget(result, result + up(b))

    def forget(self, start, end):
        for region in list(self.first):
            if start <= region * MIB2 and (region + 1) * MIB2 <= end:
                del self.first[region]

    def within(self, start, end):
        """Node of the first touch of a range, or None."""
        return min((v for k, v in self.first.items() if start <= k * MIB2 < end), default=(0, None))[1]

    def page(self, entry):
        """Node of a page that was mapped: who touched its 2 MiB first (or all of it), else mapped it."""
        level, number = entry
        start = number << (3 + 9 * level)
        length = max(1 << (3 + 9 * level), MIB2)
        node = self.within(start // length * length, start // length * length + length)
        return self.memory.owner(entry) if node is None else node

    def table(self, table):
        """Node of a table that there is: pte_alloc_one runs in the fault that needs it."""
        memory, (level, number) = self.memory, table
        start, end = number << (12 + 9 * level), (number + 1) << (12 + 9 * level)
        if table == memory.root:
            return memory.main
        touched = self.within(start, end)
        if touched is not None:
            return touched
        entries = sorted(e for e in memory.valid if (e[0], e[1] >> 9) == table)
        if entries:
            return memory.owner(entries[0])
        children = sorted(t for t in memory.exists if t[0] == level - 1 and t[1] >> 9 == number)
        if children:
            return self.table(children[0])
        vmas = sorted(vma for vma in memory.last if vma[0] < end and start < vma[1])
        return vmas[0][2] if vmas else memory.main

    def hosts(self, space):
        """{host table: node}: made by the violation of the first guest table, or its page, that needs it."""
        memory, tables, tree, found = self.memory, space.tables, space.snapshot.guest, {}
        if space.native:
            return found

        def turn(flat):
            start, length = int(tables.base[flat]), 1 << (12 + 9 * int(tables.level[flat]))
            orders = [v[0] for k, v in self.first.items() if start <= k * MIB2 < start + length]
            return not orders, min(orders, default=0), flat

        for flat in sorted(range(space.guest_tables), key=turn):
            level = int(tables.level[flat])
            key = level, int(tables.base[flat]) >> (12 + 9 * level)
            if key not in memory.exists:
                continue
            needs = {int(tables.host_leaf[flat])}
            for entry in (e for e in memory.valid if (e[0], e[1] >> 9) == key):
                frame = leaf_frame(int(tree.entries[flat, entry[1] & 511]), level, tree.encoding)
                for region in range(frame >> 9, (frame + 512 ** (level - 1) - 1 >> 9) + 1):
                    needs |= {int(space.host_of[region])} if region < len(space.host_of) else set()
            for host in needs:
                while host >= 0:
                    found.setdefault(host, self.table(key))
                    host = int(tables.parent[host])
        return found
