"""Twin of hydra-2d's host part: sets of who has which table and which entry, one read at a time."""

from collections import Counter


class LazyHost:
    """The host's table, which every node has a part of; what it holds are EPT entries."""

    def __init__(self, snapshot, space, nodes, degree=9, only_first=False):
        self.tables, self.raw, self.first = space.tables, snapshot.host.entries, space.guest_tables
        self.degree, self.only_first, self.events = degree, only_first, Counter()
        ids = range(self.first, self.first + space.host_tables)
        self.owner = {table: int(self.tables.node[table]) for table in ids}
        self.copies = {}  # (table, slot) -> nodes that copied it from the owner
        self.linked = {table: {self.owner[table]} for table in ids}
        self.has = {(up, self.owner[table]) for table in ids for up in self.path(table)}
        self.has |= {(table, node) for table in ids if self.tables.parent[table] < 0 for node in range(nodes)}

    def path(self, table):
        while table >= 0:
            yield table
            table = int(self.tables.parent[table])

    def maps(self, table, slot):
        raw = int(self.raw[table - self.first, slot])
        return raw & 7 and (self.tables.level[table] == 1 or raw & 0x80)

    def use(self, table, slot, node):
        """Node that serves the leaf entry to a CPU of `node`."""
        owner = self.owner[table]
        if node == owner or node in self.copies.get((table, slot), ()):
            return node
        if node in self.linked[table] and not self.maps(table, slot):
            return node  # it was mapped after the dump, and that went to every linked copy
        self.events["replica_faults", node, owner] += 1
        for up in self.path(table):
            if (up, node) not in self.has:
                self.has.add((up, node))
                self.events["tables_new", node, node] += 1
        wide = 2**self.degree if not self.only_first or node not in self.linked[table] else 1
        block = range(slot - slot % wide, slot - slot % wide + wide)
        for near in [s for s in block if s == slot or self.maps(table, s)]:
            if node not in self.copies.setdefault((table, near), set()):
                self.copies[table, near].add(node)
                self.events["pte_copies", node, owner] += 1
        self.linked[table].add(node)
        return owner


def replay(twin, space, placement, reads):
    """Reads of host entries of a LazyHost."""
    out = Counter()
    for w in range(len(reads.page)):
        node = int(placement.cpu_node[reads.cpu[w]])
        mask, dram = int(reads.read[w]), int(reads.dram[w])

        def nested(g, table, slot, server, node=node, mask=mask, dram=dram):
            for up in twin.path(table):
                bit = 8 * g + int(space.tables.level[up])
                if mask >> bit & 1:
                    if up == table and server is None:
                        server = twin.use(table, slot, node)
                    out[bit, node, server if up == table else node, dram >> bit & 1] += 1

        host, slot = int(reads.host_leaf[w]), int(reads.host_slot[w])
        if host >= 0:
            server = twin.use(host, slot, node)
            nested(0, host, slot, server)
        table = int(reads.leaf[w])
        while table >= 0:
            if space.tables.host_leaf[table] >= 0:
                g = int(space.tables.level[table])
                nested(g, int(space.tables.host_leaf[table]), int(space.tables.host_slot[table]), None)
            table = int(space.tables.parent[table])
    return out
