"""Twin of world.page_homes and kernels.data_migration: pages in dicts, followed one walk at a time."""

from collections import Counter

import numpy as np

from ptanalyze.core.trace import Event

from .memory_manager import TOP, Memory, up
from .replay import Majority, Touched, alive, last_vmas, live_cpus, make, one_walk
from .walker import caches_missed, leaf_frame


class Data:
    """first: node a page will be on when it is mapped; node: where it is; host: by (host table, slot)."""

    def __init__(self, memory, case, moves, by_host):
        self.memory, self.case, self.moves, self.by_host = memory, case, moves, by_host
        self.space, self.tables = case.space, case.space.tables
        self.rows = sorted(set(self.space.regions.leaf.tolist()))
        self.host = self.host_nodes()
        self.first, self.node, self.marked, self.new_marks = {}, {}, set(), False
        self.place()
        self.order = sorted(self.touched_hosts() if by_host else self.rows, key=self.base)
        self.cursor, self.count, self.faults = 0, 0, 0
        # walks by (walker's node, node of the data when it walks, shares of the LLC that miss)
        self.read = Counter()
        self.began = self.refilled = int(case.trace.chunks["time"][0]) if len(case.trace.chunks) else 0
        self.next_scan = self.began + round(moves.delay_ms * 1e6)
        self.rate = moves.rate_limit_mb_s * 256 / 1e9
        self.burst = max(self.rate * 100_000_000, 1.0)
        self.credit = self.burst

    def base(self, table):
        return int(self.tables.base[table]), table

    def entry(self, table, slot):
        level = int(self.tables.level[table])
        return level, (int(self.tables.base[table]) >> (12 + 9 * (level - 1))) + slot

    def node_of(self, frame):
        topology = self.case.snapshot.topology
        if self.space.native and len(topology) < 2:
            return None
        node = int(topology.node_of_frame(np.array([frame]))[0])
        return node if 0 <= node < self.case.machine.nodes else None

    def frame(self, table, slot):
        if table >= self.space.guest_tables:
            return None
        tree = self.case.snapshot.guest
        return leaf_frame(int(tree.entries[table, slot]), int(tree.level[table]), tree.encoding)

    def host_nodes(self):
        found, tree = {}, self.case.snapshot.host
        for table in range(0 if tree is None else len(tree)):
            for slot in range(512):
                frame = leaf_frame(int(tree.entries[table, slot]), int(tree.level[table]), tree.encoding)
                if frame is not None and self.node_of(frame) is not None:
                    found[table + self.space.guest_tables, slot] = self.node_of(frame)
        return found

    def unit(self, frame):
        """(host table, slot) that maps a guest frame, or None."""
        if frame is None or not 0 <= frame >> 9 < len(self.space.host_of):
            return None
        table = int(self.space.host_of[frame >> 9])
        if table < 0:
            return None
        return table, frame >> 9 * (int(self.tables.level[table]) - 1) & 511

    def captured(self, frame):
        if frame is None:
            return None
        return self.node_of(frame) if self.space.native else self.behind(frame)

    def behind(self, frame):
        """Node of the host frame behind a guest frame."""
        unit, tree = self.unit(frame), self.case.snapshot.host
        if unit is None:
            return None
        table, level = unit[0] - self.space.guest_tables, int(self.tables.level[unit[0]])
        host = leaf_frame(int(tree.entries[table, unit[1]]), level, tree.encoding)
        return None if host is None else self.node_of(host + frame % 512 ** (level - 1))

    def place(self):
        pages = {self.entry(t, s): self.frame(t, s) for t in self.rows for s in range(512)}
        said = set(self.said())
        for entry, frame in pages.items():
            node = None if entry in said else self.captured(frame)
            if node is not None:
                self.first[entry] = node
        touched = Touched(self.memory, self.case.trace, self.case.placement)
        for entry in self.memory.valid:
            if entry not in self.first:
                self.first[entry] = touched.page(entry)
        for page, node in walks(self.case):
            self.first.setdefault(self.memory.entry(page), node)
        for entry in said & set(self.first):
            for unit in self.own_units(entry, pages[entry]):
                if unit in self.host:
                    self.host[unit] = self.first[entry]
        for entry in self.memory.valid:
            if entry in self.first:
                self.node[entry] = self.first.pop(entry)

    def said(self):
        """Pages that events say move."""
        for event in self.case.trace.events[self.memory.began : self.memory.ended]:
            a, b = int(event["a"]), int(event["b"])
            if event["kind"] == Event.MOVE_PAGES and event["result"] >= 0 and a < TOP and b < TOP:
                yield from (entry for entry, _ in self.memory.entries(a, a + up(b)))

    def own_units(self, entry, frame):
        """Host entries that map nothing but (a part of) this page."""
        unit = self.unit(frame)
        if unit is None or self.tables.level[unit[0]] > entry[0]:
            return []
        return [unit] if self.tables.level[unit[0]] == entry[0] else [(unit[0], slot) for slot in range(512)]

    def touched_hosts(self):
        found = set()
        for table in self.rows:
            for slot in range(512):
                unit = self.unit(self.frame(table, slot))
                found |= {unit[0]} if unit else set()
            while table >= 0:
                found |= {int(self.tables.host_leaf[table])} - {-1}
                table = int(self.tables.parent[table])
        return found

    def mapped(self, entry, node):
        self.node.setdefault(entry, self.first.pop(entry, node))

    def gone(self, entry):
        self.node.pop(entry, None)
        self.marked.discard(entry)

    def remapped(self, entry, to):
        if entry in self.node:
            self.node[to] = self.node[entry]
            self.first.pop(to, None)
            self.marked |= {to} if entry in self.marked else set()
        self.gone(entry)

    def table_of(self, entry):
        wanted = entry[0], entry[1] >> 9
        return next(t for t in self.rows if (int(self.tables.level[t]), self.entry(t, 0)[1] >> 9) == wanted)

    def move(self, entry, to, node):
        """An event moves a page; True if its own kernel rewrites its entry."""
        if entry not in self.node:
            return False
        frame = self.frame(self.table_of(entry), entry[1] & 511)
        if not self.by_host:
            return self.move_page(entry, to, node)
        for k in range(512 if entry[0] > 1 else 1):
            unit = self.unit(None if frame is None else frame + k)
            if unit in self.host and self.host[unit] != to:
                self.move_unit(unit, None, to, node)
        return False

    def move_page(self, entry, to, node):
        if self.node[entry] == to:
            return False
        self.count += 1
        self.node[entry] = to
        self.memory.policy.data(entry, to, node)
        unit = self.unit(self.frame(self.table_of(entry), entry[1] & 511))
        if unit and self.tables.level[unit[0]] <= entry[0]:
            for one in self.own_units(entry, self.frame(self.table_of(entry), entry[1] & 511)):
                self.note_host(one, to)
            self.memory.policy.look_at_host(unit[0], node)
        return True

    def note_host(self, unit, to):
        if unit in self.host:
            self.host[unit] = to

    def move_unit(self, unit, table, to, node):
        """table: flat id of the guest table walked through, None: a data page."""
        self.host[unit] = to
        policy = self.memory.policy
        mine = [t for t in range(self.space.guest_tables) if self.unit_of_table(t) == unit]
        self.count += table is None
        for each in sorted(mine, key=lambda t: t != table):
            if self.key(each) in self.memory.exists:
                policy.table_data(self.key(each), to, node)
        if table is None or self.key(table) in self.memory.exists:
            policy.host_data(unit[0], unit[1], to, node)
            policy.look_at_host(unit[0], node)

    def unit_of_table(self, table):
        host = int(self.tables.host_leaf[table])
        return (host, int(self.tables.host_slot[table])) if host >= 0 else None

    def key(self, table):
        level = int(self.tables.level[table])
        return level, int(self.tables.base[table]) >> (12 + 9 * level)

    def may_move(self, now, pages):
        if self.rate == 0:
            return True
        self.credit = min(self.credit + (now - self.refilled) * self.rate, self.burst)
        self.refilled = now
        if self.credit < pages:
            return False
        self.credit -= pages
        return True

    def hint(self, entry, node):
        """change_prot_numa and do_numa_page set the entry again, in every copy; the data stay."""
        self.memory.policy.hint(entry, node)

    def scan(self, now, node):
        self.next_scan = now + max(round(self.moves.scan_period_ms * 1e6), 1)
        budget, places = max(round(self.moves.scan_size_mb * 256), 1), 512 * len(self.order)
        for _ in range(places):
            if budget <= 0:
                return
            table, slot = self.order[self.cursor // 512], self.cursor % 512
            key = (table, slot) if self.by_host else self.entry(table, slot)
            small = not self.by_host and key[0] == 1
            stays = small and len(self.case.trace.threads) == 1 and self.node.get(key) == node
            if key in (self.host if self.by_host else self.node) and not stays:
                if not self.by_host and key not in self.marked:
                    self.hint(key, node)
                    self.new_marks = True
                self.marked.add(key)
                budget -= 512 ** (int(self.tables.level[table]) - 1)
            self.cursor = (self.cursor + 1) % places

    def touch(self, page, flat, now, node, misses):
        """After a walk: what was marked moves to the walker; (start, end) if a guest's page, else None."""
        entry = self.memory.entry(page)
        self.node.setdefault(entry, self.first.pop(entry, node))
        farthest = max(caches_missed(misses, 8), caches_missed(misses, 1))
        self.read[node, self.seen(entry, page, flat), farthest] += 1
        if not self.by_host:
            if entry in self.marked:
                self.marked.discard(entry)
                self.faults += 1
                if self.node[entry] != node and self.may_move(now, 512 ** (entry[0] - 1)):
                    self.move_page(entry, node, node)
                    size = 12 + 9 * (entry[0] - 1)
                    return entry[1] << size, (entry[1] + 1) << size
                self.hint(entry, node)
            return None
        frame = self.frame(flat, entry[1] & 511)
        inside = page % 512 ** (entry[0] - 1)
        self.touch_unit(self.unit(None if frame is None else frame + inside), None, now, node)
        while flat >= 0:
            self.touch_unit(self.unit_of_table(flat), flat, now, node)
            flat = int(self.tables.parent[flat])
        return None

    def seen(self, entry, page, flat):
        """The node of a page of data: of a hypervisor that moves data, where its entry says."""
        frame = self.frame(flat, entry[1] & 511) if self.by_host else None
        unit = self.unit(None if frame is None else frame + page % 512 ** (entry[0] - 1))
        return self.host.get(unit, self.node[entry])

    def touch_unit(self, unit, table, now, node):
        if unit in self.marked:
            self.marked.discard(unit)
            self.faults += 1
            if self.host[unit] != node and self.may_move(now, 512 ** (int(self.tables.level[unit[0]]) - 1)):
                self.move_unit(unit, table, node, node)


def walks(case):
    """(page number, node) of every walk."""
    cpus = np.repeat(case.placement.chunk_cpu, np.diff(case.stream.offset))
    for page, cpu in zip(case.stream.page.tolist(), cpus.tolist(), strict=True):
        yield int(case.space.regions.va[page >> 9]) << 9 | page & 511, int(case.placement.cpu_node[cpu])


def replay(name, params, case, reads, moves, by_host):
    """(reads, classes, events, host events, [pages, peak], data pages moved, walks by where their data are,
    hinting faults) with data that move."""
    trace, placement, space, nodes = case.trace, case.placement, case.space, case.machine.nodes
    memory = Memory(case.snapshot, trace, space, placement, None)
    data = Data(memory, case, moves, by_host)
    memory.last = last_vmas(case.snapshot, trace, space, placement, nodes)
    memory.touched = Touched(memory, trace, placement)
    majority = Majority(trace, placement)
    for number in range(memory.began):
        majority.event(number)
    policy = make(name, params, memory, space, case.machine, data, majority.home)
    if not hasattr(policy, "look_at_host"):
        policy.look_at_host = lambda table, node: None
    memory.policy, memory.data = policy, data
    out, classes, w = Counter(), Counter(), 0
    run = getattr(policy, "run", lambda to: None)
    number = memory.began
    for chunk in range(len(trace.chunks) + 1):
        while number < len(trace.events) and trace.events["chunk"][number] <= chunk:
            to = majority.event(number)
            run(to) if to is not None else None
            cpu = int(placement.event_cpu[number])
            live = live_cpus(trace, placement, number, cpu, nodes)
            if number < memory.ended:
                memory.happen(trace.events[number], int(placement.cpu_node[cpu]), live)
            number += 1
        if chunk == len(trace.chunks):
            break
        to = majority.chunk(chunk)
        run(to) if to is not None else None
        w = one_chunk(memory, data, policy, case, reads, chunk, w, out, classes)
    policy.account_implicit_tables({t for t in memory.snapshot_tables if t not in memory.exists})
    host = getattr(policy, "host_events", Counter())
    pages = [policy.pages, policy.peak]
    return out, classes, +policy.events, +host, pages, data.count, data.read, data.faults


def one_chunk(memory, data, policy, case, reads, chunk, w, out, classes):
    trace, placement = case.trace, case.placement
    count = int(trace.chunks["touches"][chunk])
    start = int(trace.chunks["time"][chunk])
    end = int(trace.chunks["time"][chunk + 1]) if chunk + 1 < len(trace.chunks) else start
    node = int(placement.cpu_node[placement.chunk_cpu[chunk]])
    for k in range(count):
        now = start + (end - start) // count * k
        if data.moves.autonuma and now >= data.next_scan:
            policy.by = 1
            data.scan(now, node)
            policy.by = 0
            if data.new_marks:  # change_prot_numa flushes what a scan has changed at once
                shoot(data, policy, trace, placement, chunk, case.machine.nodes, (0, 1 << 47))
        one_walk(memory, policy, case.space, placement, reads, w, out, classes)
        region = int(reads.page[w]) >> 9
        page = int(case.space.regions.va[region]) << 9 | int(reads.page[w]) & 511
        policy.by = 1
        moved = data.touch(page, int(reads.leaf[w]), now, node, reads.missed[w].tolist())
        policy.by = 0
        w += 1
        if moved and moved[1] - moved[0] > 4096:  # pmdp_invalidate, whatever TLBs may have
            shoot(data, policy, trace, placement, chunk, case.machine.nodes, moved)
    return w


def shoot(data, policy, trace, placement, chunk, nodes, pages):
    """Everyone but the CPU that walks."""
    live, cpu = alive(trace, placement, chunk), int(placement.chunk_cpu[chunk])
    counts = Counter(int(placement.cpu_node[c]) for c in live)
    here = int(placement.cpu_node[cpu])
    counts[here] = max(counts[here] - 1, 0)
    policy.by = 1
    policy.shoot(*pages, here, [counts[n] for n in range(nodes)])
    policy.by, data.new_marks = 0, False
