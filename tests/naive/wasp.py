"""Twin of the WASP daemon and its kernel, after the public port.

waspd.c of WASP-daemon at e93634b, arch/x86/mm/mitosis_*.c of WASP-linux-7.0.0 at d0b9a1a6a.
"""

from collections import Counter

from ptanalyze.core.trace import Event

from .memory_manager import present
from .policies import Policy


def daemon(chunks, walks, interval, hysteresis, mar, miss):
    """[(time, on?)] of waspd's main loop over chunks [(time, accesses)] with `walks` each; times in ns."""
    found, enabled, above_since, below_since, before = [], False, None, None, (0, 0)
    now = interval
    while chunks and now <= chunks[-1][0] and chunks[0][0] != chunks[-1][0]:
        done = [k for k, (time, _) in enumerate(chunks) if time < now]
        loads, misses = sum(chunks[k][1] for k in done), sum(walks[k] for k in done)
        d_mem, d_walk = loads - before[0], misses - before[1]
        before = loads, misses
        if d_mem / interval > mar and (d_walk / d_mem if d_mem else 0.0) > miss:
            below_since = None
            above_since = now if above_since is None else above_since
            if not enabled and now - above_since >= hysteresis:
                enabled = True
                found.append((now, True))
        else:
            above_since = None
            below_since = now if below_since is None else below_since
            if enabled and now - below_since >= hysteresis:
                enabled = False
                found.append((now, False))
        now += interval
    return found


def least_latency(machine):
    """compute_steering_matrix: a nearer replica than the node's own, if there is one."""
    steer = []
    latency = machine.latency.contended or machine.latency.idle
    for node in range(machine.nodes):
        best = node
        for replica in range(machine.nodes):
            if latency[node][replica] < latency[node][best]:
                best = replica
        steer.append(best)
    return steer


class Wasp(Policy):
    """A process under the daemon; params: those of `daemon`, by name."""

    def __init__(self, memory, space, machine, snapshot, trace, placement, params):
        self.memory, self.nodes, self.trace, self.placement = memory, machine.nodes, trace, placement
        self.steer, self.events, self.on = least_latency(machine), Counter(), False
        self.home, self.captured, self.host = {}, Counter(), {}
        tables = space.tables
        for t in range(space.guest_tables):
            level = int(tables.level[t])
            self.home[level, int(tables.base[t]) >> (12 + 9 * level)] = int(tables.node[t])
        self.again = dict(self.home)
        if len(snapshot.topology) == 1:  # a capture of one node does not say where tables would be
            self.home = {table: memory.touched.table(table) for table in memory.exists}
            self.again = {memory.root: memory.main}
        for t in range(space.guest_tables, space.guest_tables + space.host_tables):
            self.host[t] = int(tables.node[t])
        for level, number in present(snapshot.guest):
            self.captured[level, number >> 9] += 1
        self.touched = {memory.chain(va << 9)[0] for va in memory.region_level}
        chunks = [(int(c["time"]), int(c["accesses"])) for c in trace.chunks]
        self.chunk_of_walk = [k for k, c in enumerate(trace.chunks) for _ in range(int(c["touches"]))]
        self.due = daemon(chunks, [int(c["touches"]) for c in trace.chunks], **params)
        self.walked = 0
        self.pages = self.peak = len(memory.exists)

    def main_node(self, chunk):
        mine = [k for k, c in enumerate(self.trace.chunks) if c["thread"] == 0]
        now = [k for k in mine if k <= chunk] or mine[:1] or [min(chunk, len(self.trace.chunks) - 1)]
        cpu = int(self.placement.chunk_cpu[now[0] if now[0] > chunk else now[-1]])
        return int(self.placement.cpu_node[cpu])

    def live(self, chunk, main):
        """[per node] CPUs that run the process while `chunk` runs, the main thread's left out."""
        starts = {int(e["thread"]) for e in self.trace.events if e["kind"] == Event.THREAD_START}
        cpus = set()
        for thread in {int(t) for t in self.trace.chunks["thread"]} | starts:
            alive, cpu = thread not in starts, None
            for k, event in enumerate(self.trace.events):
                if event["thread"] == thread and event["chunk"] <= chunk:
                    if event["kind"] == Event.THREAD_START:
                        alive, cpu = True, int(self.placement.event_cpu[k]) if cpu is None else cpu
                    elif event["kind"] == Event.THREAD_EXIT:
                        alive = False
            mine = [k for k, c in enumerate(self.trace.chunks) if c["thread"] == thread]
            here = [k for k in mine if k <= chunk] or mine[:1]
            if here:
                cpu = int(self.placement.chunk_cpu[here[-1]])
            if alive:
                cpus.add(cpu)
        counts = Counter(int(self.placement.cpu_node[cpu]) for cpu in cpus)
        counts[main] = max(counts[main] - 1, 0)
        return [counts[node] for node in range(self.nodes)]

    def switch(self, chunk, exists, valid):
        main = self.main_node(chunk)
        others, root = self.live(chunk, main), self.home.setdefault(self.memory.root, main)
        for table in sorted(exists):
            home = self.home.get(table, root)
            for node in range(self.nodes):
                if node == home:
                    continue
                if self.on:
                    self.events["tables_freed", main, node] += 1
                else:
                    self.events["tables_new", main, node] += 1
                    self.events["pte_copies", main, home] += self.entries(table, exists, valid)
            self.home[table] = root
        for node in range(self.nodes):
            self.events["ipis", main, node] += others[node]  # on_each_cpu_mask: to another root
            if not self.on:  # flush_tlb_mm, and the matrix, from the daemon's CPU
                self.events["ipis", main, node] += 2 * (others[node] + (node == main))
        more = len(exists) * (self.nodes - 1)
        self.on = not self.on
        self.grow(more if self.on else -more)

    def entries(self, table, exists, valid):
        children = sum(1 for t in exists if t[0] == table[0] - 1 and t[1] >> 9 == table[1])
        if table in self.touched:
            return children + sum(1 for e in valid if (e[0], e[1] >> 9) == table)
        return children + self.captured[table]

    def where(self, table, node):
        return self.steer[node] if self.on else self.home.setdefault(table, node)

    def make(self, made, node):
        for table in made:
            if self.on:
                self.home[table] = self.home[self.memory.root]
            for there in range(self.nodes) if self.on else [self.where(table, node)]:
                self.events["tables_new", node, there] += 1
        self.grow(len(made) * (self.nodes if self.on else 1))

    def write(self, table, node, stores=1):
        first = self.where(table, node)
        self.events["pte_writes", node, first] += stores
        for there in range(self.nodes) if self.on else ():
            if there != first:
                self.events["pte_fanout", node, there] += stores

    def walk(self, page, node, made):
        chunk, entry = self.chunk_of_walk[self.walked], self.memory.entry(page)
        while self.due and self.due[0][0] <= self.trace.chunks["time"][chunk]:
            time, on = self.due.pop(0)
            assert on != self.on
            when = next(k for k, t in enumerate(self.trace.chunks["time"]) if t >= time)
            new, added = (set(), set()) if made is None else (set(made), {entry})
            self.switch(when, self.memory.exists - new, self.memory.valid - added)
        self.walked += 1
        leaf = self.memory.chain(page)[0]
        if made is not None:
            self.make(made, node)
            self.events["faults", node, self.where(leaf, node)] += 1
            self.write(leaf, node)
        return self.where(leaf, node)

    def changing(self, entries, node, stores=1):
        for entry in entries:
            self.write((entry[0], entry[1] >> 9), node, stores)

    def moved(self, entry, made, node):
        self.make(made, node)
        self.write((entry[0], entry[1] >> 9), node)

    def data(self, entry, to, node):
        self.changing([entry], node)

    def free(self, table, node):
        for there in range(self.nodes) if self.on else [self.where(table, node)]:
            self.events["tables_freed", node, there] += 1
        self.grow(-(self.nodes if self.on else 1))
        self.home.pop(table, None)
        self.captured[table] = 0
        if table in self.again:
            self.home[table] = self.again[table]

    def account_implicit_tables(self, tables):
        self.grow(len(tables) * (self.nodes if self.on else 1))
