"""Twin of kernels.replay: one walk, one read at a time."""

from collections import Counter

import numpy as np

from ptanalyze.core.trace import Event

from .first_touches import Touched
from .memory_manager import Deaf, Memory
from .policies import Fixed, Hydra
from .vmitosis_migrate import Following, Migrating


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
            if trace.events["thread"][k] == thread and trace.events["kind"][k] in (
                Event.THREAD_START,
                Event.THREAD_EXIT,
            ):
                alive = trace.events["kind"][k] == Event.THREAD_START
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
            policy.events = Counter()
            out, classes = walks(memory, policy, trace, space, placement, whole, nodes, every_step)
    policy.settle({t for t in memory.snapshot_tables if t not in memory.exists})
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
        masks = (
            [int(n) for n in params["nodes"].split(",")] if params.get("nodes") else list(machine.cpu_nodes)
        )
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
    mask, dram, tables = int(reads.read[w]), int(reads.dram[w]), space.tables
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
            out[bit, node, where(), dram >> bit & 1] += 1

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
