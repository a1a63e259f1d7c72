"""What a real kernel did with scripts (golden/kernel) beside what the replay and its twin do."""

import itertools
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from naive import policies as naive
from naive.memory_manager import Memory
from naive.replay import event_now, make
from ptanalyze.analysis.replay import PolicyRun, replay_walks, start
from ptanalyze.core.trace import Event, Reads
from ptanalyze.policies import plan_for
from replay_cases import case, events, scenario_of
from strategies import PAGE, Page, build_snapshot, build_trace

# Scripts that real kernels ran (golden/kernel) as small processes: each operation is one chunk. A forked
# process is in no trace: its operations do nothing here, nor does the fork.

BASE, OWN, NODES = 0x2000_0000_0000, 0x3000_0000_0000, 4
READ, WRITE = 1, 3
ANONYMOUS, FILE, SHARED = 0x100022, 0x100002, 0x100001  # with MAP_FIXED_NOREPLACE
FORKED = 8  # the first actor that is a process of its own
NO_STEP = ("fork", "exit")


def operations(scenario):
    return [step["op"] for step in scenario["steps"] if "op" in step]


def actor(line):
    return int(line.split()[1])


def parsed(line):
    word, thread, *rest = line.split()
    return word, int(thread), *(int(x) if x.isdecimal() else x for x in rest)


@dataclass
class Process:
    """A script so far: chunks [(thread, touches)] on `cpus`, events; own[cpu] is a page that the CPU has."""

    threads: int
    chunks: list = field(default_factory=list)
    cpus: list = field(default_factory=list)
    events: list = field(default_factory=list)
    event_cpus: list = field(default_factory=list)
    on: dict = field(default_factory=dict)

    def __post_init__(self):
        for t in range(self.threads):
            self.on[t] = t
            self._happened(t, Event.MMAP, (0, PAGE, WRITE, 0x22), self._own(t))
        for t in range(self.threads):
            self._ran(t, [])

    def _own(self, cpu):
        return OWN + (cpu << 39)

    def _ran(self, thread, touched):
        self.chunks.append((thread, touched or [(self._own(self.on[thread]), True)]))
        self.cpus.append(self.on[thread])

    def _happened(self, thread, *event):
        self.events.append((len(self.chunks), thread, *event))
        self.event_cpus.append(self.on[thread])

    def do(self, line):
        word, thread, *rest = parsed(line)
        if word in ("read", "write") and thread < FORKED:
            page, count, stride = rest
            touched = [(BASE + (page + i * stride) * PAGE, word == "write") for i in range(count)]
            return self._ran(thread, touched)
        if word == "spawn":
            parent, thread, self.on[rest[0]] = thread, *rest
            self._happened(thread, Event.THREAD_START, (100 + thread, parent), 0)
        elif word == "move" and thread < FORKED:
            self.on[thread] = rest[0]
        elif word not in NO_STEP and thread < FORKED:
            self._happened(thread, *system_call(word, BASE + rest[0] * PAGE, rest[1] * PAGE, rest[2:]))
        self._ran(thread if thread < FORKED else 0, [])


def system_call(word, at, length, rest):
    """(kind, arguments, result) of an operation that is a system call."""
    prot = WRITE if "rw" in rest else READ
    if word == "map":
        return Event.MMAP, (at, length, prot, ANONYMOUS), at
    if word == "file":
        return Event.MMAP, (at, length, prot, SHARED if "shared" in rest else FILE), at
    if word == "remap":
        return Event.MREMAP, (at, length, length, 3), BASE + rest[0] * PAGE
    return {
        "unmap": (Event.MUNMAP, (at, length), 0),
        "prot": (Event.MPROTECT, (at, length, prot), 0),
        "dontneed": (Event.MADVISE, (at, length, 4), 0),
        "huge": (Event.MADVISE, (at, length, 14), 0),
    }[word]


def scripted(scenario, threads):
    """The Case of a scenario; its snapshot says which regions are mapped by 2 MiB pages."""
    process = Process(threads)
    for line in operations(scenario):
        process.do(line)
    pages = [Page(OWN + (t << 39), 1 + t) for t in range(threads)]
    regions = sorted(huge_regions(operations(scenario)))
    pages += [Page(BASE + (region << 21), 512 * (1 + k), 2) for k, region in enumerate(regions)]
    snapshot = build_snapshot(pages, nodes=NODES, vmas=[(0, PAGE, "none")])
    made = case(snapshot, build_trace(process.chunks, process.events, max(process.on) + 1), NODES, threads)
    cpus, event_cpus = (np.array(x, np.int32) for x in (process.cpus, process.event_cpus))
    return made._replace(placement=replace(made.placement, chunk_cpu=cpus, event_cpu=event_cpus))


def huge_regions(lines):
    """Regions of 2 MiB that madvise made huge as a whole and that are touched."""
    calls = [parsed(line) for line in lines]
    huge = {
        r for word, _, *rest in calls if word == "huge" for r in range(rest[0] + 511 >> 9, sum(rest) >> 9)
    }
    used = set()
    for word, thread, *rest in calls:
        if word in ("read", "write") and thread < FORKED:
            used |= {rest[0] + i * rest[2] >> 9 for i in range(rest[1])}
    return huge & used


FACTS = Path(__file__).parent / "golden" / "kernel"


def facts(name):
    return json.loads((FACTS / f"{name}.json").read_text())


def numbers(runs):
    """{0, 1, 2, 5} of "0-2,5"."""
    spans = [[int(x) for x in run.split("-")] for run in runs.split(",") if run]
    return {page for span in spans for page in range(span[0], span[-1] + 1)}


def leaf_reads(case):
    """Reads in which each walk reads its leaf entry and nothing else."""
    page, write, regions = case.stream.page, case.stream.write, case.space.regions
    chunk = np.repeat(np.arange(len(case.trace.chunks)), case.trace.chunks["touches"])
    region, none = page >> 9, np.full(len(page), -1)
    slot = np.where(regions.slot[region] < 0, page & 511, regions.slot[region])
    read = np.uint64(1) << (8 * regions.level[region]).astype(np.uint64)
    return Reads(
        case.placement.chunk_cpu[chunk], page, write, regions.leaf[region], slot.astype(np.int16),
        none.astype(np.int32), none.astype(np.int16), read, np.zeros((len(page), 1), np.uint64),
    )  # fmt: skip


class Watched(PolicyRun):
    """A PolicyRun that keeps what is mapped."""

    def replay(self, scenario, reads, fault, mapped, first, last=False):
        self.mapped = mapped
        super().replay(scenario, reads, fault, mapped, first, last)


def replayed(case, name, params, threads, done):
    """Replay a policy; done(run) is called before the first operation and after each."""
    scenario = scenario_of(case)
    run = start(plan_for(name, params), scenario)
    run.__class__ = Watched
    reads, bounds = leaf_reads(case), case.stream.offset.tolist()
    ends = [0, *bounds[threads:]]
    batches = [(slice(a, b), Reads(*(column[a:b] for column in reads))) for a, b in itertools.pairwise(ends)]
    replay_walks([run], scenario, batches, lambda *walks: done(run))


def changes(now, before):
    """{kind: [per node]} of the events that `now` has and `before` has not; by the node they go to."""
    found = {}
    for key in now.keys() | before.keys():
        kind, _, to = key
        found.setdefault(kind, [0] * NODES)[to] += now.get(key, 0) - before.get(key, 0)
    return found


def held(run, space):
    """[{level: {first page of each table}}] and [{first page of each leaf entry}], per node."""
    tables, entries = [{} for _ in range(NODES)], [set() for _ in range(NODES)]
    has, bits = holdings(run)
    own = OWN - BASE >> 12
    for level, base, nodes in zip(space.tables.level, space.tables.base, has, strict=True):
        page = int(base) - BASE >> 12 if level < 4 else 0
        for n in range(NODES):
            if page < own and int(nodes) >> n & 1:
                tables[n].setdefault(str(level), set()).add(page)
    _, rows = np.unique(space.regions.leaf, return_inverse=True)
    for va, row, slot in zip(space.regions.va, rows, space.regions.slot, strict=True):
        first = (int(va) << 21) - BASE >> 12
        for n in range(NODES):
            valid = np.unpackbits(bits[row, n].view(np.uint8), bitorder="little")
            pages = np.flatnonzero(valid) if slot < 0 else range(valid[slot])
            entries[n] |= {first + int(k) for k in pages} if first < own else set()
    return tables, entries


def holdings(run):
    """(uint64[T] nodes that have each table, uint64[L, nodes, 8] entries that each node's copy has)."""
    state, mapped = run.states[0], run.mapped
    if run.plan.name == "hydra":
        return state.tables, state.entries
    nodes = sum(1 << int(n) for n in state.copies)
    valid = np.ascontiguousarray(np.broadcast_to(mapped.valid[:, None], (len(mapped.valid), NODES, 8)))
    return mapped.exists * np.uint64(nodes), valid


def seen_by_replay(process, policy, params, threads):
    """[(events so far, tables, entries)] before the first operation and after each, as `held` gives them."""
    seen = []

    def done(run):
        seen.append((events(run.counters), *held(run, process.space)))

    replayed(process, policy, params, threads, done)
    return seen


def twin_holdings(twin, memory):
    """([(table, node)], {entry: nodes that have it})."""
    if isinstance(twin, naive.Hydra):
        return twin.has, twin.copies
    every = range(NODES)
    return {(t, n) for t in memory.exists | {memory.root} for n in every}, dict.fromkeys(memory.valid, every)


def seen_by_twin(process, policy, params, threads):
    """What the naive twin counts."""
    memory = Memory(process.snapshot, process.trace, process.space, process.placement, None)
    memory.last, number, found = [], 0, []
    memory.policy = twin = make(policy, params, memory, process.space, process.machine)
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
        has, copies = twin_holdings(twin, memory)
        tables, entries = [{} for _ in range(NODES)], [set() for _ in range(NODES)]
        for (level, table), n in has:
            page = (table << 9 * level) - base if level < 4 else 0
            if page < own:
                tables[n].setdefault(str(level), set()).add(page)
        for (level, entry), nodes in copies.items():
            for n in nodes if (entry << 9 * (level - 1)) - base < own else ():
                entries[n].add((entry << 9 * (level - 1)) - base)
        found.append((dict(+twin.events), tables, entries))
    return found[threads - 1 :]


def observed(scenario, policy, params, threads, model):
    """What a model does: per step what `measured` gives of the kernel."""
    seen, found, k = model(scripted(scenario, threads), policy, params, threads), [], 0
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


def measured(scenario, policy="hydra"):
    """What the kernel counts; under mitosis an entry that is copied is one that is written there too."""
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
                fanout = k["pte_pages"] - k["pte_writes"]
                rows |= {"pte_copies": k["copied"], "pte_writes": k["pte_writes"], "pte_fanout": fanout}
                if policy == "mitosis":
                    rows |= {"pte_copies": 0, "pte_fanout": fanout + k["copied"] + k["eager"]}
                rows |= {"ipis": k["ipis_sent"], "ipis_saved": k["ipis_saved"]}
        found.append(rows)
    return found


def differences(scenario, policy, params, threads, model=seen_by_replay):
    """(quantities compared, {(step, quantity): (kernel, replay)} of those that differ).

    What a forked process does is no part of the process that a trace follows: it is left out.
    """
    compared, found = 0, {}
    theirs, mine = measured(scenario, policy), observed(scenario, policy, params, threads, model)
    for step, real, ours in zip(scenario["steps"], theirs, mine, strict=True):
        if "of" in step or ("op" in step and actor(step["op"]) >= FORKED):
            continue
        compared += len(real)
        name = step.get("op") or f"check {step['check']}"
        found |= {(name, what): (real[what], ours[what]) for what in real if real[what] != ours[what]}
    return compared, found
