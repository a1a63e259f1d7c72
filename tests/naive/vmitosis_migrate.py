"""Twin of vmitosis-migrate: no counters, the children of a table page are counted anew each time."""

from collections import Counter

from .policies import Fixed
from .walker import leaf_frame


class Migrating(Fixed):
    def __init__(self, memory, space, nodes, data, layers="both", verify="start"):
        super().__init__(memory, space, nodes, captured=True)
        if space.native and len(data.case.snapshot.topology) == 1:
            self.captured = {}
            self.home = {table: memory.touched.table(table) for table in memory.exists}
        self.space, self.tables, self.known = space, space.tables, data
        self.guest = layers != "ept"
        self.layers, self.child = layers, dict(data.node)
        self.still = self.untouched_children()
        if verify == "start":
            if self.guest and not data.by_host:
                for table in sorted(memory.exists, key=lambda t: t[0]):
                    self.look_at(table, 0, up=False)
            if layers != "gpt":
                for table in sorted(self.host, reverse=True):
                    self.look_at_host(table, 0, up=False)

    def untouched_children(self):
        """Counter of nodes by table, for the data of tables there are that the trace does not touch."""
        found, tree = {}, self.known.case.snapshot.guest
        for table in set(range(len(tree))) - set(self.known.rows):
            if self.known.key(table) not in self.memory.exists:
                continue
            level, entries = int(tree.level[table]), filter(None, tree.entries[table].tolist())
            frames = [leaf_frame(int(raw), level, tree.encoding) for raw in entries]
            found[self.known.key(table)] = Counter(self.known.captured(f) for f in frames if f is not None)
        return found

    def children(self, table):
        count = Counter(self.still.get(table, {}))
        count += Counter(n for (lv, k), n in self.child.items() if (lv, k >> 9) == table)
        below = (t for t in self.memory.exists if t[0] == table[0] - 1 and t[1] >> 9 == table[1])
        count += Counter(self.home[t] for t in below)
        return count

    def look_at(self, table, node, up=True):
        best = best_of(self.children(table), self.home[table], self.nodes)
        if best == self.home[table]:
            return
        self.events["tables_moved", self.home[table], best] += 1
        self.home[table] = best
        if table[0] < self.memory.levels:
            parent = table[0] + 1, table[1] >> 9
            self.events["pte_writes", node if up else self.home[parent], self.home[parent]] += 1
            if up:
                self.look_at(parent, node)

    def host_children(self, table):
        count = Counter(n for (t, _), n in self.known.host.items() if t == table)
        return count + Counter(self.host[t] for t in self.host if self.tables.parent[t] == table)

    def look_at_host(self, table, node, up=True):
        if self.layers == "gpt":
            return
        best = best_of(self.host_children(table), self.host[table], self.nodes)
        if best == self.host[table]:
            return
        self.host_events["tables_moved", self.host[table], best] += 1
        self.host[table] = best
        parent = int(self.tables.parent[table])
        if parent >= 0:
            self.host_events["pte_writes", node if up else self.host[parent], self.host[parent]] += 1
            if up:
                self.look_at_host(parent, node)

    def walk(self, page, node, made):
        if made is not None:
            entry = self.memory.entry(page)
            self.child[entry] = self.known.node[entry]
        return super().walk(page, node, made)

    def clear(self, entry):
        self.leaving = self.child.pop(entry, None)

    def moved(self, entry, made, node):
        super().moved(entry, made, node)
        if self.leaving is not None:
            self.child[entry] = self.leaving

    def data(self, entry, to, node):
        super().data(entry, to, node)
        self.child[entry] = to
        if self.guest:
            self.look_at(self.table_of(entry), node)


class Following(Fixed):
    """mitosis, mode = migrate."""

    def __init__(self, memory, space, nodes, home):
        super().__init__(memory, space, nodes, replicas=[home], serve=[home] * nodes)

    def run(self, to):
        before, pages = self.replicas[0], self.pages
        self.events["tables_moved", before, to] += pages
        self.events["tables_freed", to, before] += pages
        self.grow(pages)
        self.grow(-pages)
        self.replicas, self.serve = [to], [to] * self.nodes


def best_of(count, home, nodes):
    best = home
    for node in range(nodes):
        if count[node] > count[best]:
            best = node
    return best
