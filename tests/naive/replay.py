"""Twin of kernels.replay: one walk, one read at a time; and of what comes before it."""

from collections import Counter

import numpy as np

from ptanalyze.core.trace import Event

from .memory_manager import MIB2, TOP, Deaf, Memory, up
from .policies import Fixed, Hydra
from .vmitosis_migrate import Following, Migrating
from .walker import caches_missed, leaf_frame


def live_cpus(trace, placement, number, cpu, nodes):
    """[per node] CPUs with a live thread when event `number` happens, `cpu` left out."""
    chunk = int(trace.events["chunk"][number])
    starts = {int(e["thread"]) for e in trace.events if e["kind"] == Event.THREAD_START}
    on = set()
    for thread in {int(t) for t in trace.chunks["thread"]} | starts:
        mine = [k for k in range(len(trace.chunks)) if trace.chunks["thread"][k] == thread]
        before = [k for k in mine if k < chunk]
        alive = thread not in starts
        for k in range(number + 1):
            kind = trace.events["kind"][k]
            if trace.events["thread"][k] == thread and kind in (Event.THREAD_START, Event.THREAD_EXIT):
                alive = kind == Event.THREAD_START
        if alive:
            own = [
                int(placement.event_cpu[k])
                for k in range(number + 1)
                if trace.events["thread"][k] == thread and trace.events["kind"][k] == Event.THREAD_START
            ]
            on.add(int(placement.chunk_cpu[(before or mine)[-1 if before else 0]]) if mine else own[0])
    counts = Counter(int(placement.cpu_node[c]) for c in on - {cpu})
    return [counts[n] for n in range(nodes)]


def replay(name, params, snapshot, trace, space, placement, reads, machine, every_step=False, again=None):
    """(reads, classes, events as {(kind, from, to): count}, [pages, peak]) of a policy.

    again  the reads of a further run over the same memory: what is counted then, and not before
    name  of the policy, or what makes its twin: called with (memory, space, machine)
    """
    nodes = machine.nodes
    memory = Memory(snapshot, trace, space, placement, None)
    memory.last = last_vmas(snapshot, trace, space, placement, nodes)
    memory.touched = Touched(memory, trace, placement)
    policy = make(name, params, memory, space, machine)
    memory.policy = policy
    for whole in (reads, again):
        if whole is not None:
            if whole is again:
                memory.undo(trace.events)
            policy.events = Counter()
            out, classes = walks(memory, policy, trace, space, placement, whole, nodes, every_step)
    policy.account_implicit_tables({t for t in memory.snapshot_tables if t not in memory.exists})
    return out, classes, +policy.events, [policy.pages, policy.peak]


def walks(memory, policy, trace, space, placement, reads, nodes, every_step):
    """(reads, classes) of all walks, with the events between them."""
    out, classes = Counter(), Counter()
    done = memory.began
    offset = np.concatenate([[0], np.cumsum(trace.chunks["touches"])])
    for w in range(len(reads.page) + 1):
        while done < memory.ended and offset[trace.events["chunk"][done]] <= w:
            event_now(memory, trace, placement, done, nodes)
            done += 1
            if every_step and hasattr(policy, "check"):
                policy.check()
        if w < len(reads.page):
            one_walk(memory, policy, space, placement, reads, w, out, classes)
            if every_step and hasattr(policy, "check"):
                policy.check()
    return out, classes


def event_now(memory, trace, placement, number, nodes):
    cpu = int(placement.event_cpu[number])
    live = live_cpus(trace, placement, number, cpu, nodes)
    memory.happen(trace.events[number], int(placement.cpu_node[cpu]), live)


def last_vmas(snapshot, trace, space, placement, nodes):
    """[(start, end, owner node)] when the trace has ended."""
    memory = Memory(snapshot, trace, space, placement, Deaf())
    for number in range(memory.began, memory.ended):
        event_now(memory, trace, placement, number, nodes)
    return [(lo, hi, memory.owner_of_lineage[lineage]) for lo, hi, lineage, _ in memory.pieces]


def make(name, params, memory, space, machine, data=None, home=0):
    nodes = machine.nodes
    if name == "vmitosis-migrate":
        return Migrating(memory, space, nodes, data, **params)
    if name == "mitosis" and params.get("mode") == "migrate":
        return Following(memory, space, nodes, home)
    if callable(name):
        return name(memory, space, machine)
    if name == "hydra":
        return Hydra(memory, space, nodes, **params)
    if name == "mitosis":
        asked = params.get("nodes")
        masks = [int(n) for n in asked.split(",")] if asked else list(machine.cpu_nodes)
        near = lambda n: min(masks, key=lambda m: (machine.latency.idle[n][m], m))  # noqa: E731
        serve = [n if n in masks else near(n) for n in range(nodes)]
        return Fixed(memory, space, nodes, replicas=masks, serve=serve)
    if name == "vmitosis-replicate":
        every, layers = list(range(nodes)), params.get("layers", "both")
        guest = {"captured": True} if layers == "ept" else {"replicas": every, "serve": every}
        return Fixed(memory, space, nodes, host_replicas=layers != "gpt", **guest)
    kinds = {
        "linux": {"captured": True},
        "first-touch": {"rule": "first"},
        "interleave": {"rule": "interleave", "weights": params.get("weights")},
        "bind": {"rule": params.get("node", 0)},
        "ideal": {"ideal": True},
    }
    return Fixed(memory, space, nodes, **kinds[name])


def one_walk(memory, policy, space, placement, reads, w, out, classes):
    node = int(placement.cpu_node[reads.cpu[w]])
    region, low = int(reads.page[w]) >> 9, int(reads.page[w]) & 511
    page = int(space.regions.va[region]) << 9 | low
    mask, misses, tables = int(reads.read[w]), reads.missed[w].tolist(), space.tables
    fault = memory.fault(page, node)
    server = policy.walk(page, node, fault)
    leaf = memory.chain(page)[0]
    if fault is not None:
        policy.events["pages_zeroed", node, node] += 512 ** (leaf[0] - 1)
    host = int(reads.host_leaf[w])
    remote_host = host >= 0 and policy.where_host(host, node) != node
    remote_leaf = policy.where(leaf, node) != node  # the walk is done: a fault, if any, has copied the entry
    classes[node, 2 * int(remote_leaf) + int(remote_host)] += 1
    flat = int(reads.leaf[w])

    def read(bit, where):
        if mask >> bit & 1:
            out[bit, node, where(), caches_missed(misses, bit)] += 1

    def nested(g, table):
        while table >= 0:
            read(8 * g + int(tables.level[table]), lambda t=table: policy.where_host(t, node))
            table = int(tables.parent[table])

    read(8 * leaf[0], lambda: server)
    nested(0, host)
    while flat >= 0:
        level = int(tables.level[flat])
        if level > leaf[0]:
            key = level, page >> 9 * level
            read(8 * level, lambda k=key: policy.where(k, node))
        nested(level, int(tables.host_leaf[flat]))
        flat = int(tables.parent[flat])


def cycles(counted, classes, machine):
    """Cycles of walks, as (reads, classes) of `replay` count them: each read takes those of the first cache
    that has it, or of the node whose DRAM serves it, and each walk some of its own."""
    smaller = sum(share < machine.llc.share for share in set(machine.llc.shares or ()))
    total = machine.walk_caches.cycles * sum(classes.values())
    for (_, reader, server, caches), number in counted.items():
        if caches == 0:
            total += number * machine.l1d.cycles
        elif caches == 1:
            total += number * machine.l2.cycles
        elif caches - 2 <= smaller:
            total += number * machine.llc.cycles
        else:
            total += number * machine.latency.idle[reader][server] * machine.ghz
    return total


# Twin of scenario.first_touches: one 2 MiB region after the other.
class Touched:
    """What threads touched first before the region of interest; nodes of tables and pages that there were."""

    def __init__(self, memory, trace, placement):
        self.memory, self.first, brk = memory, {}, None  # region -> (number of the event, node)
        for number in range(memory.began):
            event = trace.events[number]
            a, b, c = (int(event[name]) for name in "abc")
            kind, result = event["kind"], int(event["result"])
            if kind == Event.FIRST_TOUCH:
                self.first[a // MIB2] = number, int(placement.cpu_node[placement.event_cpu[number]])
            elif a >= TOP or b >= TOP or result < 0:
                continue
            elif kind == Event.MUNMAP or (kind == Event.MREMAP and result != a):
                self.forget(a, a + up(b))
            elif kind == Event.MREMAP:
                self.forget(a + up(c), a + up(b))
            elif kind == Event.MMAP and result > 0:
                self.forget(result, result + up(b))
            elif kind == Event.BRK:
                self.forget(up(result), brk or 0)
                brk = up(result)

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


# Where the live threads of a trace run, event by event.
class Majority:
    """Node on which most live threads run."""

    def __init__(self, trace, placement):
        self.trace, self.placement = trace, placement
        chunks = trace.chunks["thread"].tolist()
        self.at = {t: int(placement.chunk_cpu[chunks.index(t)]) for t in set(chunks)}
        self.live = set(self.at) - {int(e["thread"]) for e in trace.events if e["kind"] == Event.THREAD_START}
        counts = self.counts()
        self.home = counts.index(max(counts)) if self.live else (self.node(self.at[0]) if 0 in self.at else 0)

    def node(self, cpu):
        return int(self.placement.cpu_node[cpu])

    def counts(self):
        found = Counter(self.node(self.at[t]) for t in self.live)
        return [found[n] for n in range(int(self.placement.cpu_node.max(initial=0)) + 1)]

    def changed(self):
        """The new home, or None."""
        counts = self.counts()
        if max(counts) <= counts[self.home]:
            return None
        self.home = counts.index(max(counts))
        return self.home

    def event(self, number):
        event, thread = self.trace.events[number], int(self.trace.events["thread"][number])
        if event["kind"] == Event.THREAD_START:
            self.at.setdefault(thread, int(self.placement.event_cpu[number]))
            self.live.add(thread)
        elif event["kind"] == Event.THREAD_EXIT:
            self.live.discard(thread)
        return self.changed()

    def chunk(self, number):
        self.at[int(self.trace.chunks["thread"][number])] = int(self.placement.chunk_cpu[number])
        return self.changed()


def alive(trace, placement, chunk):
    """CPUs with a live thread while a chunk runs."""
    state = Majority(trace, placement)
    for k in range(chunk + 1):
        for number in np.flatnonzero(trace.events["chunk"] == k).tolist():
            state.event(number)
        state.chunk(k)
    return {state.at[t] for t in state.live}
