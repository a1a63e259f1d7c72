"""Twins of the policies' hooks: dicts and sets, one entry and one node at a time."""

from collections import Counter


class Policy:
    """What a twin does unless its policy says otherwise: count pages and IPIs, move no table with data."""

    def grow(self, by):
        self.pages += by
        self.peak = max(self.peak, self.pages)

    def where_host(self, table, node):
        return self.host[table]

    def clear(self, entry):
        pass

    def host_data(self, table, slot, to, node):
        pass

    def table_data(self, table, to, node):
        pass

    def shoot(self, start, end, node, live, unmapping=False, times=1):
        for there, count in enumerate(live):
            self.events["ipis", node, there] += times * count


class Fixed(Policy):
    """All policies that keep a fixed set of copies; host_replicas: of each host table on every node.

    replicated  (level, number) -> whether that guest table is one of those on the nodes `replicas`
    """

    def __init__(
        self,
        memory,
        space,
        nodes,
        *,
        captured=False,
        rule=None,
        ideal=False,
        replicas=(),
        serve=None,
        replicated=lambda table: True,
        host_replicas=False,
        weights=None,
    ):
        self.gone = set()  # leaf tables that mremap took elsewhere
        self.memory, self.nodes, self.rule, self.next = memory, nodes, rule, {"guest": 0, "host": 0}
        self.weights = [int(w) for w in weights.split(",")] if weights else [1] * nodes
        self.events, self.ideal, self.replicas, self.serve = Counter(), ideal, replicas, serve
        self.replicated = replicated
        self.host_events, self.by = Counter(), 0
        self.captured, self.host, self.host_replicas = {}, {}, host_replicas
        tables = space.tables
        for t in range(space.guest_tables):
            if captured:
                level = int(tables.level[t])
                self.captured[level, int(tables.base[t]) >> (12 + 9 * level)] = int(tables.node[t])
        if rule is None and not ideal:
            ids = range(space.guest_tables, space.guest_tables + space.host_tables)
            self.host = {t: int(tables.node[t]) for t in ids}
        self.home = dict(self.captured)
        if rule == "first":
            self.home = {table: memory.touched.table(table) for table in memory.exists}
            self.host = memory.touched.hosts(space)
        elif rule is not None:
            self.home[memory.root] = self.pick(0)
        self.pages = self.peak = sum(self.takes(table) for table in memory.exists)

    def of(self, table):
        """Nodes with a copy of the table, none where it is at its home alone."""
        return self.replicas if self.replicated(table) else ()

    def takes(self, table):
        return max(len(self.of(table)), 1)

    def pick(self, node, side="guest"):
        if self.rule == "interleave":
            turns = [node for node in range(self.nodes) for _ in range(self.weights[node])]
            rounds, turn = divmod(self.next[side], len(turns))
            self.next[side] += 1
            return turns[((rounds if side == "host" else 0) + turn) % len(turns)]
        return node if self.rule in (None, "first") else self.rule

    def where(self, table, node):
        if self.ideal:
            return node
        if self.of(table):
            return self.serve[node]
        if table not in self.home:
            self.home[table] = self.pick(node)
        return self.home[table]

    def where_host(self, table, node):
        if self.ideal or self.host_replicas:
            return node
        if table not in self.host:
            self.host[table] = self.pick(node, "host")
        return self.host[table]

    @property
    def takes_tables(self):
        """Whether mremap moves leaf tables as they are: a single copy, mainline's."""
        return not self.replicas

    def table_moved(self, source, target, made, node):
        made = self.again(target, made)
        home = self.where(source, node)
        if made:
            self.make([table for table in made if table != target], node)
        else:
            self.events["tables_freed", node, self.where(target, node)] += 1
            self.grow(-1)
        self.home[target] = home
        self.home.pop(source, None)
        self.gone.add(source)
        for level, number in (source, target):
            self.write((level + 1, number >> 9), node)

    def again(self, leaf, made):
        """Tables to make, where the leaf table was moved away too."""
        if leaf not in self.gone:
            return made
        self.gone.discard(leaf)
        return [leaf]

    def make(self, made, node):
        for table in made:
            for there in self.of(table) or [self.where(table, node)]:
                self.events["tables_new", node, there] += 1
            self.grow(self.takes(table))

    def write(self, table, node, stores=1):
        first = self.where(table, node)
        self.events["pte_writes", node, first] += stores
        for there in self.of(table):
            if there != first:
                self.events["pte_fanout", node, there] += stores

    def walk(self, page, node, made):
        leaf = self.memory.chain(page)[0]
        if made is not None:
            self.make(self.again(leaf, made), node)
            self.events["faults", node, self.where(leaf, node)] += 1
            self.write(leaf, node)
        return self.where(leaf, node)

    def table_of(self, entry):
        return entry[0], entry[1] >> 9

    def changing(self, entries, node, stores=1):
        """stores: 1 clears it, or replaces it; 2 clears it and sets it to something else (mprotect)"""
        for entry in entries:
            self.write(self.table_of(entry), node, stores)

    def moved(self, entry, made, node):
        self.make(self.again(self.table_of(entry), made), node)
        self.write(self.table_of(entry), node)

    def data(self, entry, to, node):
        """Entry's data moved to node `to`, its kernel did it on a CPU of `node`."""
        self.changing([entry], node)

    def hint(self, entry, node):
        self.changing([entry], node)

    def host_data(self, table, slot, to, node):
        self.host_events["pte_writes", node, self.where_host(table, node)] += 1

    def table_data(self, table, to, node):
        """The hypervisor moved a guest table's page."""
        home = self.home.get(table)
        if not self.of(table) and home is not None and home != to:
            self.events["tables_moved", home, to] += 1
            self.home[table] = to

    def free(self, table, node):
        if table in self.gone:
            self.gone.discard(table)
            if table in self.captured:
                self.home[table] = self.captured[table]
            return
        for there in self.of(table) or [self.where(table, node)]:
            self.events["tables_freed", node, there] += 1
        self.grow(-self.takes(table))
        self.home.pop(table, None)
        if table in self.captured:
            self.home[table] = self.captured[table]

    def account_implicit_tables(self, tables):
        self.grow(sum(map(self.takes, tables)))


class Hydra(Policy):
    def __init__(self, memory, space, nodes, prefetch=9, prefetch_on="first", tlbflush="munmap-all"):
        self.memory, self.nodes, self.events = memory, nodes, Counter()
        self.degree, self.on, self.filter = prefetch, prefetch_on, tlbflush
        self.by, self.pending, self.held = 0, {0: set(), 1: set()}, {0: set(), 1: set()}
        self.rewritten = {0: set(), 1: set()}  # 2 MiB, None where entries or tables went
        self.host = {t: int(n) for t, n in enumerate(space.tables.node)}
        self.has = {(memory.root, n) for n in range(nodes)}  # (table, node)
        self.copies = {e: {memory.owner(e)} for e in memory.valid}  # entry -> nodes
        self.rings = {}  # leaf table -> disjoint sets of linked nodes
        for entry in memory.valid:
            self.own(entry, memory.owner(entry), count=False)
        parents = {(t[0] + 1, t[1] >> 9) for t in memory.exists}
        for table in memory.exists - parents - {memory.chain(va << 9)[0] for va in memory.region_level}:
            for node in self.vma_owners(table):
                self.give(table, node, count=False)
        self.pages = self.peak = len(self.has)

    def vma_owners(self, table):
        """Owners of the VMAs in the table's span when the trace ends: memory.last is set by the driver."""
        lo, hi = table[1] << (12 + 9 * table[0]), (table[1] + 1) << (12 + 9 * table[0])
        return {n for a, b, n in self.memory.last if a < hi and lo < b} or {self.memory.main}

    def up(self, table):
        return [(lv, table[1] >> 9 * (lv - table[0])) for lv in range(table[0], self.memory.levels + 1)]

    def give(self, table, node, by=None, count=True):
        for t in self.up(table):
            if (t, node) not in self.has:
                self.has.add((t, node))
                if count:
                    self.events["tables_new", by, node] += 1
                    self.grow(1)

    def ring(self, table, node):
        return next((r for r in self.rings.get(table, []) if node in r), None)

    def own(self, entry, node, by=None, count=True):
        """Have the leaf table on a node; True if it had no copy of it."""
        table = entry[0], entry[1] >> 9
        self.give(table, node, by, count)
        if self.ring(table, node) is not None:
            return False
        self.rings.setdefault(table, []).append({node})
        return True

    def where(self, table, node):
        return node

    def walk(self, page, node, made):
        entry = self.memory.entry(page)
        table, owner = (entry[0], entry[1] >> 9), self.memory.owner(entry)
        if node in self.copies.get(entry, ()):
            return node
        if made is not None:
            self.own(entry, owner, node)
            self.events["faults", node, owner] += 1
            self.store(entry, node)
        else:
            self.events["replica_faults", node, owner] += 1
        if node != owner:
            for e in self.window(entry, self.own(entry, node, node)):
                if owner in self.copies.get(e, ()) and node not in self.copies[e]:
                    self.copies[e].add(node)
                    self.events["pte_copies", node, owner] += 1
            a, b = self.ring(table, node), self.ring(table, owner)
            if a is not b:
                self.rings[table] = [r for r in self.rings[table] if r is not a and r is not b] + [a | b]
        return owner

    def window(self, entry, first):
        degree = self.degree if self.on == "every" or first else 0
        level, number = entry
        lo = number - number % 2**degree
        same = lambda n: self.memory.vma.get((level, n)) == self.memory.vma.get(entry)  # noqa: E731
        begin, end = number, number + 1
        while begin > lo and same(begin - 1):
            begin -= 1
        while end < lo + 2**degree and same(end):
            end += 1
        return [(level, n) for n in range(begin, end)]

    def sharers(self, entry):
        return self.ring((entry[0], entry[1] >> 9), self.memory.owner(entry))

    def store(self, entry, node, stores=1, stays=True):
        """set_pte and its like: the owner's copy, and those linked to it; all have the entry then."""
        owner, sharers = self.memory.owner(entry), self.sharers(entry)
        self.events["pte_writes", node, owner] += stores
        for there in sharers - {owner}:
            self.events["pte_fanout", node, there] += stores
        if stays:
            self.copies[entry] = set(sharers)

    def changing(self, entries, node, stores=1):
        for entry in entries:
            sharers = self.sharers(entry)
            assert self.copies[entry] <= sharers, "a node with a copy is not linked to the owner"
            self.held[self.by] |= self.copies[entry]
            self.pending[self.by] |= sharers
            self.rewritten[self.by].add(entry[1] << 9 * (entry[0] - 1) >> 9 if stores == 2 else None)
            self.store(entry, node, stores, stays=stores == 2)

    def clear(self, entry):
        del self.copies[entry]

    def moved(self, entry, made, node):
        self.own(entry, self.memory.owner(entry), node)
        self.store(entry, node)

    def free(self, table, node):
        for there in range(self.nodes):
            if (table, there) in self.has:
                self.has.discard((table, there))
                self.events["tables_freed", node, there] += 1
                self.grow(-1)
                self.pending[self.by].add(there)
                self.rewritten[self.by].add(None)
        self.rings.pop(table, None)

    def shoot(self, start, end, node, live, unmapping=False, times=1):
        sharing, held, changed = self.pending[self.by], self.held[self.by], self.rewritten[self.by]
        self.pending[self.by], self.held[self.by], self.rewritten[self.by] = set(), set(), set()
        filtered = {
            "off": False,
            "single": start >> 21 == (end - 1) >> 21 or (len(changed) < 2 and None not in changed),
            "munmap-all": unmapping or start >> 21 == end >> 21,
            "all": True,
            "all-or-none": not sharing - {node},
        }[self.filter]
        for there, count in enumerate(live):
            kind = "ipis" if there in sharing or not filtered else "ipis_saved"
            assert kind == "ipis" or there not in held, "a CPU that may cache the entry was spared"
            self.events[kind, node, there] += times * count

    def data(self, entry, to, node):
        self.changing([entry], node)
        self.copies[entry] = set(self.sharers(entry))

    def hint(self, entry, node):
        self.data(entry, None, node)

    def account_implicit_tables(self, tables):
        for table in sorted(tables, reverse=True):
            for node in self.vma_owners(table):
                for t in self.up(table):
                    if (t, node) not in self.has:
                        self.has.add((t, node))
                        self.grow(1)

    def check(self):
        """The owner has every valid entry (section 3.2), and who has an entry has its tables."""
        for entry in self.memory.valid:
            assert self.memory.owner(entry) in self.copies[entry]
            for node in self.copies[entry]:
                assert all((t, node) in self.has for t in self.up((entry[0], entry[1] >> 9)))
        assert set(self.copies) == self.memory.valid


# Twin of replicas some of whose pages are on the next replica's node (vMitosis, sections 3.3.4, 4.2.2).


class Misplaced(Fixed):
    """chosen: flat ids of the guest tables whose replicas are misplaced; groups: [[node, ...]]."""

    def __init__(self, memory, space, nodes, chosen, groups):
        firsts = [group[0] for group in groups]
        home = {node: group[0] for group in groups for node in group}
        super().__init__(memory, space, nodes, replicas=firsts, serve=home, host_replicas=True)
        after = dict(zip(firsts, firsts[1:] + firsts[:1], strict=True))
        self.away = {node: after[home[node]] for node in home}
        self.misplaced = {
            (level, int(space.tables.base[t]) >> (12 + 9 * level))
            for t in chosen
            for level in [int(space.tables.level[t])]
        }

    def where(self, table, node):
        return self.away[node] if table in self.misplaced else self.serve[node]
