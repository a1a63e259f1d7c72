"""What a real kernel did with scripts (golden/kernel) beside what the replay and its twin do."""

import itertools
import json
from pathlib import Path

import numpy as np

from kernel_processes import BASE, NODES, OWN, of_a_forked, scripted
from naive import policies as naive
from naive.memory_manager import Memory
from naive.replay import event_now, make
from ptanalyze.analysis.replay import Run, replay_walks, start
from ptanalyze.core.walks import Reads
from ptanalyze.policies import plan_for
from replay_cases import events, world_of

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
        none.astype(np.int32), none.astype(np.int16), read, np.zeros(len(page), np.uint64),
    )  # fmt: skip


class Watched(Run):
    """A Run that keeps what is mapped."""

    def replay(self, world, reads, fault, mapped, first, last=False):
        self.mapped = mapped
        super().replay(world, reads, fault, mapped, first, last)


def replayed(case, name, params, threads, done):
    """Replay a policy; done(run) is called before the first operation and after each."""
    world = world_of(case)
    run = start(plan_for(name, params), world)
    run.__class__ = Watched
    reads, bounds = leaf_reads(case), case.stream.offset.tolist()
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
            here = (
                {first + int(k) for k in np.flatnonzero(valid)}
                if slot < 0
                else {first}
                if valid[slot]
                else ()
            )
            entries[n] |= set(here) if first < own else set()
    return tables, entries


def holdings(run):
    """(uint64[T] nodes that have each table, uint64[L, nodes, 8] entries that each node's copy has)."""
    state, mapped = run.states[0], run.mapped
    if run.plan.name == "hydra":
        return state.tables, state.entries
    nodes = sum(1 << int(n) for n in state.copies)
    shape = (len(mapped.valid), NODES, 8)
    return mapped.exists * np.uint64(nodes), np.ascontiguousarray(
        np.broadcast_to(mapped.valid[:, None], shape)
    )


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
    """The same of the naive twin."""
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
    """The same of the kernel; under mitosis an entry that is copied is one that is written there too."""
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
        if of_a_forked(step):
            continue
        compared += len(real)
        name = step.get("op") or f"check {step['check']}"
        found |= {(name, what): (real[what], ours[what]) for what in real if real[what] != ours[what]}
    return compared, found
