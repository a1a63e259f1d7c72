"""Scripts that a real kernel ran (golden/kernel) as small processes: each operation is one chunk."""

import itertools
import json
from pathlib import Path

import numpy as np

from naive import policies as naive
from naive.memory_manager import Memory
from naive.replay import event_now
from ptanalyze.analysis.runs import replay_walks, start
from ptanalyze.core.trace import Event
from ptanalyze.core.walks import Reads
from ptanalyze.policies import plan_for
from replay_cases import case, events, world_of
from strategies import PAGE, Page, build_snapshot, build_trace

FACTS = Path(__file__).parent / "golden" / "kernel"
BASE, OWN, NODES = 0x2000_0000_0000, 0x3000_0000_0000, 4
READ, WRITE = 1, 3


def facts(name):
    return json.loads((FACTS / f"{name}.json").read_text())


def numbers(runs):
    """{0, 1, 2, 5} of "0-2,5"."""
    spans = [[int(x) for x in run.split("-")] for run in runs.split(",") if run]
    return {page for span in spans for page in range(span[0], span[-1] + 1)}


def operations(scenario):
    return [step["op"] for step in scenario["steps"] if "op" in step]


def _parsed(line):
    word, thread, page, count, *rest = line.split()
    return word, int(thread), int(page), int(count), *rest


def _event(word, at, length, rest):
    """(kind, arguments, result) of an operation, None if it only touches pages."""
    prot = WRITE if rest and rest[0] == "rw" else READ
    return {
        "map": (Event.MMAP, (at, length, prot, 0x100022), at),
        "unmap": (Event.MUNMAP, (at, length), 0),
        "prot": (Event.MPROTECT, (at, length, prot), 0),
        "dontneed": (Event.MADVISE, (at, length, 4), 0),
        "huge": (Event.MADVISE, (at, length, 14), 0),
        "remap": (
            Event.MREMAP,
            (at, length, length, 3),
            BASE + int(rest[0]) * PAGE if word == "remap" else 0,
        ),
    }.get(word)


def translated(lines, threads):
    """(chunks, events): thread t first maps and touches a page of its own, again after each system call."""
    own = [OWN + (t << 39) for t in range(threads)]
    happened = [(0, t, Event.MMAP, (0, PAGE, WRITE, 0x22), own[t]) for t in range(threads)]
    chunks = [(t, [(own[t], True)]) for t in range(threads)]
    for line in lines:
        word, thread, page, count, *rest = _parsed(line)
        event = _event(word, BASE + page * PAGE, count * PAGE, rest)
        if event:
            happened.append((len(chunks), thread, *event))
            touched = [(own[thread], True)]
        else:
            touched = [(BASE + (page + i * int(rest[0])) * PAGE, word == "write") for i in range(count)]
        chunks.append((thread, touched))
    return chunks, happened


def scripted(scenario, threads):
    """The Case of a scenario; its snapshot says which regions are mapped by 2 MiB pages."""
    lines = operations(scenario)
    calls = [_parsed(line) for line in lines]
    huge = {p for word, _, page, n, *_ in calls if word == "huge" for p in range(page >> 9, page + n >> 9)}
    used = {page + i * int(rest[0]) >> 9 for word, _, page, n, *rest in calls if word in ("read", "write")
            for i in range(n)}  # fmt: skip
    pages = [Page(OWN + (t << 39), 1 + t) for t in range(threads)]
    pages += [Page(BASE + (region << 21), 512 * (1 + k), 2) for k, region in enumerate(sorted(huge & used))]
    snapshot = build_snapshot(pages, nodes=NODES, vmas=[(0, PAGE, "none")])
    return case(snapshot, build_trace(*translated(lines, threads), threads), NODES, threads)


def leaf_reads(case):
    """Reads in which each walk reads its leaf entry and nothing else."""
    page, write, regions = case.stream.page, case.stream.write, case.space.regions
    chunk = np.repeat(np.arange(len(case.trace.chunks)), case.trace.chunks["touches"])
    region, none = page >> 9, np.full(len(page), -1)
    slot = np.where(regions.slot[region] < 0, page & 511, regions.slot[region])
    read = np.uint64(1) << (8 * regions.level[region]).astype(np.uint64)
    return Reads(
        case.placement.chunk_cpu[chunk], page, write, regions.leaf[region], slot.astype(np.int16),
        none.astype(np.int32), none.astype(np.int16), read, np.zeros(len(page), np.uint64),
    )  # fmt: skip


def replayed(case, name, params, done):
    """Replay a policy; done(run) is called before the first operation and after each."""
    world = world_of(case)
    run = start(plan_for(name, params), world)
    reads, bounds = leaf_reads(case), case.stream.offset.tolist()
    threads = int(case.trace.chunks["thread"].max()) + 1
    ends = [0, *bounds[threads:]]
    batches = [(slice(a, b), Reads(*(column[a:b] for column in reads))) for a, b in itertools.pairwise(ends)]
    replay_walks([run], world, batches, lambda walks: done(run))


def changes(now, before):
    """{kind: [per node]} of the events that `now` has and `before` has not; by the node they go to."""
    found = {}
    for key in now.keys() | before.keys():
        kind, _, to = key
        found.setdefault(kind, [0] * NODES)[to] += now.get(key, 0) - before.get(key, 0)
    return found


def held(state, space):
    """[{level: {first page of each table}}] and [{first page of each leaf entry}], per node, of hydra."""
    tables, entries = [{} for _ in range(NODES)], [set() for _ in range(NODES)]
    own = OWN - BASE >> 12
    for level, base, nodes in zip(space.tables.level, space.tables.base, state.tables, strict=True):
        page = int(base) - BASE >> 12 if level < 4 else 0
        for n in range(NODES):
            if page < own and int(nodes) >> n & 1:
                tables[n].setdefault(str(level), set()).add(page)
    _, rows = np.unique(space.regions.leaf, return_inverse=True)
    for va, row, slot in zip(space.regions.va, rows, space.regions.slot, strict=True):
        first = (int(va) << 21) - BASE >> 12
        for n in range(NODES):
            bits = np.unpackbits(state.entries[row, n].view(np.uint8), bitorder="little")
            here = (
                {first + int(k) for k in np.flatnonzero(bits)} if slot < 0 else {first} if bits[slot] else ()
            )
            entries[n] |= set(here) if first < own else set()
    return tables, entries


def seen_by_replay(process, params):
    """[(events so far, tables, entries)] before the first operation and after each, as `held` gives them."""
    seen = []

    def done(run):
        seen.append((events(run.counters), *held(run.states[0], process.space)))

    replayed(process, "hydra", params, done)
    return seen


def seen_by_twin(process, params):
    """The same of the naive twin."""
    memory = Memory(process.snapshot, process.trace, process.space, process.placement, None)
    memory.last, number, found = [], 0, []
    memory.policy = twin = naive.Hydra(memory, process.space, NODES, **params)
    chunks, region = process.trace.chunks, process.space.regions.va
    own, base = OWN - BASE >> 12, BASE >> 12
    for k in range(len(chunks)):
        while number < len(process.trace.events) and process.trace.events["chunk"][number] <= k:
            event_now(memory, process.trace, process.placement, number, NODES)
            number += 1
        node = int(process.placement.cpu_node[process.placement.chunk_cpu[k]])
        for touched in process.stream.page[process.stream.offset[k] : process.stream.offset[k + 1]].tolist():
            page = int(region[touched >> 9]) << 9 | touched & 511
            twin.walk(page, node, memory.fault(page, node))
        twin.check()
        tables, entries = [{} for _ in range(NODES)], [set() for _ in range(NODES)]
        for (level, table), n in twin.has:
            page = (table << 9 * level) - base if level < 4 else 0
            if page < own:
                tables[n].setdefault(str(level), set()).add(page)
        for (level, entry), nodes in twin.copies.items():
            for n in nodes if (entry << 9 * (level - 1)) - base < own else ():
                entries[n].add((entry << 9 * (level - 1)) - base)
        found.append((dict(+twin.events), tables, entries))
    return found[int(chunks["thread"].max()) :]


def observed(scenario, params, threads, model):
    """What a model does: per step what `measured` gives of the kernel."""
    seen, found, k = model(scripted(scenario, threads), params), [], 0
    for step in scenario["steps"]:
        k += "op" in step
        now, tables, entries = seen[k]
        if "check" in step:
            rows = {
                f"level {lv} tables, node {n}": tables[n].get(lv, set())
                for n in range(NODES)
                for lv in "1234"
            }
            rows |= {f"leaf entries, node {n}": entries[n] for n in range(NODES)}
        else:
            rows = counted(changes(now, seen[k - 1][0]))
        found.append(rows)
    return found


def counted(change):
    """{quantity: value} of an operation of the replay."""
    total = {kind: sum(per_node) for kind, per_node in change.items()}
    rows = {"faults": total.get("faults", 0) + total.get("replica_faults", 0)}
    rows["IPIs"] = change.get("ipis", [0] * NODES)
    names = ("pte_copies", "pte_writes", "pte_fanout", "ipis", "ipis_saved")
    return rows | {kind: total.get(kind, 0) for kind in names}


def measured(scenario):
    """The same of the kernel."""
    found = []
    for step in scenario["steps"]:
        if "check" in step:
            tables = step["tables"]
            rows = {
                f"level {lv} tables, node {n}": numbers(tables[n].get(lv, ""))
                for n in range(NODES)
                for lv in "1234"
            }
            rows |= {f"leaf entries, node {n}": numbers(step["entries"][n]) for n in range(NODES)}
        else:
            rows = {"faults": step["faults"], "IPIs": [sum(step["ipis"][n::NODES]) for n in range(NODES)]}
            k = step.get("counted")
            if k:
                rows |= {"pte_copies": k["copied"], "pte_writes": k["pte_writes"]}
                rows |= {"pte_fanout": k["pte_pages"] - k["pte_writes"]}
                rows |= {"ipis": k["ipis_sent"], "ipis_saved": k["ipis_saved"]}
        found.append(rows)
    return found


def differences(scenario, params, threads, model=seen_by_replay):
    """(quantities compared, {(step, quantity): (kernel, replay)} of those that differ)."""
    compared, found = 0, {}
    for step, real, ours in zip(
        scenario["steps"], measured(scenario), observed(scenario, params, threads, model), strict=True
    ):
        compared += len(real)
        name = step.get("op") or f"check {step['check']}"
        found |= {(name, what): (real[what], ours[what]) for what in real if real[what] != ours[what]}
    return compared, found
