"""Small processes with every kind of memory-management event, and how to replay them."""

import itertools
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from naive.memory_manager import Deaf, Memory, common
from ptanalyze.analysis.replay import replay_walks, start
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.machine import Cache, load_costs, load_machine
from ptanalyze.core.trace import Event, WalkStream
from ptanalyze.cost.counts import Counts
from ptanalyze.cost.price import Unknowns, price
from ptanalyze.kernels import CALLS, EVENT_KINDS
from ptanalyze.policies import plan_for
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import cache_pass
from ptanalyze.world.mm_events import FLUSHING, effects_by_region, linux, page_up, regions_with_passed
from ptanalyze.world.scenario import Scenario
from ptanalyze.world.traced_program import Effort
from strategies import FRAMES_PER_NODE, PAGE, REGION, Page, build_snapshot, build_trace, place, small_machine

HEAP = 0x1000_0000_0000
REGIONS = (HEAP, HEAP + REGION, HEAP + (1 << 30), HEAP + (1 << 39))
SLOTS = (0, 1, 2, 3, 7, 8, 9, 255, 510, 511)
WHERE = st.builds(lambda region, slot: region + slot * PAGE, st.sampled_from(REGIONS), st.sampled_from(SLOTS))
LENGTH = st.sampled_from([PAGE, 2 * PAGE, 5 * PAGE, 300 * PAGE, REGION, 2 * REGION, 1 << 30])
ADVICE = st.sampled_from([4, 8, 14, 20])
KERNELS = ("5.18.1", "6.13.12", "6.14.0-rc1", "7.0.1")  # from the third on MADV_DONTNEED frees tables


class Case(NamedTuple):
    snapshot: object
    trace: object
    machine: object
    placement: object
    space: object
    stream: WalkStream


def every_touch_walks(trace, cpus=1):
    """The WalkStream of a Trace if every touch misses the TLB, and calls flush whatever they are for."""
    touches = list(trace.batches(1))
    page = np.concatenate([t.page for t in touches]) if touches else np.zeros(0, np.uint32)
    write = np.concatenate([t.write for t in touches]) if touches else np.zeros(0, bool)
    offset = np.concatenate([[0], np.cumsum(trace.chunks["touches"])])
    flushes = np.unique(invalidations(trace.events)["chunk"])
    return WalkStream(page, write, offset, np.zeros((cpus, 3), np.int64), flushes)


def invalidations(events):
    """EFFECT_DTYPE of calls of the region, with the whole pages whose translations they may change."""
    rows = effects_by_region(events)[1]
    rows = rows[np.isin(rows["what"], FLUSHING)]
    rows["start"], rows["end"] = rows["start"] >> np.uint64(12) << np.uint64(12), page_up(rows["end"])
    return rows


def case(snapshot, trace, nodes=2, cpus=None, machine=None):
    """A Case in which every touch is a walk."""
    machine = machine or small_machine(nodes)
    placement = place(trace, cpus or nodes, nodes)
    stream = every_touch_walks(trace, len(placement.cpu_node))
    space = address_space(snapshot, regions_with_passed(trace))
    return Case(snapshot, trace, machine, placement, space, stream)


def reads_of(case):
    return list(cache_pass(case.space, case.placement, case.machine, case.stream, batch=1 << 20))


def scenario_of(case, threads=1):
    """The Scenario of a Case: every touch is a walk, whatever the TLB."""
    kernel = linux("", case.snapshot.facts.get("kernel"))
    scenario = Scenario(
        case.snapshot, case.trace, case.machine, case.placement, Effort(threads), linux=kernel
    )
    return scenario.keeping(space=case.space, stream=case.stream, steady_stream=case.stream)


def run(case, name, params=None, batch=1 << 20, threads=1):
    """The PolicyRun of one policy over a Case."""
    plan = plan_for(name, params)
    scenario = plan.reshape(scenario_of(case, threads))
    done = start(plan, scenario)
    replay_walks([done], scenario, scenario.reads(batch))
    return done


def events(counters, host=False):
    """{(kind, from, to): count} of what happened at all."""
    found = (counters.host_events if host else counters.events).sum(axis=0)
    return {(EVENT_KINDS[k], int(a), int(b)): int(found[k, a, b]) for k, a, b in np.argwhere(found)}


@st.composite
def memory_events(draw, chunks, threads, moving):
    kinds = [
        Event.MMAP, Event.MUNMAP, Event.MUNMAP, Event.MPROTECT, Event.MREMAP, Event.MADVISE, Event.BRK,
        Event.THREAD_EXIT, Event.THREAD_START,
    ]  # fmt: skip
    kinds += [Event.MOVE_PAGES] * 3 if moving else []
    found = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(kinds))
        where, length, advice = draw(WHERE), draw(LENGTH), draw(ADVICE)
        result = 0
        if kind == Event.MMAP:
            prot, flags = draw(st.sampled_from([3, 3, 0])), draw(st.sampled_from([0x22, 0x32]))
            arguments, result = (0, length, prot, flags), where
        elif kind == Event.MREMAP:
            old, new, target = min(length, REGION), min(draw(LENGTH), REGION), draw(WHERE)
            overlap = target < where + old and where < target + new
            arguments, result = (where, old, new, 1), where if overlap else target
        elif kind == Event.BRK:
            arguments, result = (where,), where
        elif kind == Event.MOVE_PAGES:
            arguments = (where >> 21 << 21, length, draw(st.integers(0, moving - 1)))
        elif kind == Event.MPROTECT:
            arguments = (where, length, draw(st.sampled_from([0, 1, 3])))
        else:
            arguments = (where, length, advice)
        result = -22 if draw(st.integers(0, 9)) == 0 else result
        chunk, thread = draw(st.integers(0, chunks)), draw(st.integers(0, threads - 1))
        found.append((chunk, thread, kind, arguments, result))
    for _ in range(draw(st.integers(0, 5))):
        who, where = draw(st.integers(0, threads - 1)), draw(st.sampled_from(REGIONS))
        found.insert(draw(st.integers(0, len(found))), (0, who, Event.FIRST_TOUCH, (where,), 0))
    if draw(st.booleans()):
        found.append((0, 0, Event.ROI_START, (), 0))
    if draw(st.booleans()):
        found.append((draw(st.integers(0, chunks)), 0, Event.ROI_END, (), 0))
    return sorted(found, key=lambda event: event[0])


def _spread(draw, pages, native, nodes):
    """Pages with data on any node; the host maps some by 2 MiB."""
    nodes_of = [draw(st.integers(0, nodes - 1)) for _ in pages]
    if native:
        placed = zip(pages, nodes_of, strict=True)
        return [Page(p.va, n * FRAMES_PER_NODE + p.frame, p.level) for p, n in placed], None
    huge = draw(st.booleans())
    host = [
        Page(p.frame << 12, n * FRAMES_PER_NODE + p.frame, p.level)
        for p, n in zip(pages, nodes_of, strict=True)
        if p.level == 1 or huge
    ]
    tables = draw(st.integers(-1, nodes - 1))
    if tables >= 0:  # the guest's own tables share a page of the host's
        host.append(Page(1 << 32, tables * FRAMES_PER_NODE + (1 << 20), 2))
    if draw(st.booleans()):  # and so do all small pages
        host = [p for p in host if p.level > 1 or p.va >> 21 != 1] + [Page(1 << 21, 512, 2)]
    return pages, host


@st.composite
def cases(draw, native=True, moving=False):
    """A few regions, some mapped by 2 MiB pages, touched from several nodes among all kinds of events.

    moving  the data are on several nodes, and events move them
    """
    nodes, threads = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    mapped = draw(st.lists(WHERE, min_size=1, max_size=12, unique=True))
    huge = set(draw(st.lists(st.sampled_from(REGIONS), max_size=1)))
    pages = [Page(va, 1000 + k) for k, va in enumerate(sorted(mapped)) if va >> 21 << 21 not in huge]
    pages += [Page(region, 512 * (3 + k), 2) for k, region in enumerate(sorted(huge))]
    bounds = sorted({HEAP - REGION, HEAP + (1 << 40), *draw(st.lists(WHERE, max_size=3))})
    vmas = [(a, b, "v") for a, b in itertools.pairwise(bounds)]
    vmas = vmas[: draw(st.integers(1, len(vmas)))]
    spread = draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=3))
    host_pages = None if native else []
    if moving:
        pages, host_pages = _spread(draw, pages, native, nodes)
    captured_on = draw(st.sampled_from([1, nodes])) if native else nodes
    spread = [node % captured_on for node in spread]
    snapshot = build_snapshot(
        pages, host_pages, nodes=captured_on, table_nodes=spread, host_table_nodes=spread, vmas=vmas
    )
    snapshot = replace(snapshot, facts={**snapshot.facts, "kernel": draw(st.sampled_from(KERNELS))})
    where = st.one_of(st.sampled_from(mapped[:3]), st.sampled_from(mapped), WHERE) if moving else WHERE
    touched = st.lists(st.tuples(where, st.booleans()), max_size=8)
    chunks = draw(st.lists(st.tuples(st.integers(0, threads - 1), touched), max_size=8))
    trace = build_trace(chunks, draw(memory_events(len(chunks), threads, nodes if moving else 0)), threads)
    machine = small_machine(nodes)
    machine = msgspec.structs.replace(
        machine,
        l1d=draw(st.sampled_from([None, Cache(bytes=128, ways=2, share=1.0, cycles=5.0)])),
        llc=msgspec.structs.replace(machine.llc, shares=(0.25, 1.0)),
        walk_caches=msgspec.structs.replace(machine.walk_caches, cycles=12.0),
    )
    return case(snapshot, trace, nodes, draw(st.integers(nodes, 2 * nodes)), machine)


def as_a_kernel_does(case):
    """The Case without calls that no kernel carries out: what moves, grows or is advised is mapped, and what
    moves or grows goes, as an mmap without MAP_FIXED does, where nothing is. Not drawn: a touch outside all
    VMAs or in a reserved one of what lies in another before or after, which ends a program."""
    events = case.trace.events.copy()
    calls = ~np.isin(events["kind"], (Event.ROI_START, Event.ROI_END))
    memory = Memory(
        case.snapshot, replace(case.trace, events=events[calls]), case.space, case.placement, Deaf()
    )  # fmt: skip
    region, slot = case.stream.page >> 9, case.stream.page & 511
    touched = ((case.space.regions.va[region] << np.uint64(21)) + (slot << np.uint64(12))).tolist()
    kept, mapped, outside, before = np.ones(len(events), bool), set(), set(), 0
    for number in [*np.flatnonzero(calls & (events["result"] >= 0)).tolist(), None]:
        now = len(touched) if number is None else case.stream.offset[events["chunk"][number]]
        there = {
            byte for byte in touched if any(lo <= byte < hi and prot for lo, hi, _, prot in memory.pieces)
        }
        mapped, outside, before = mapped | there, outside | {*touched[before:now]} - there, now
        if number is None:
            break
        event = events[number]
        a, b, c = (int(event[name]) for name in "abc")
        end, kind, free = int(event["result"]), event["kind"], (0, 0)
        if kind == Event.MMAP and not int(event["d"]) & 0x10:
            free = end, end + b
        elif kind == Event.BRK and memory.brk is not None:
            free = memory.brk, end
        elif kind == Event.MREMAP:
            free = (end if end != a else a + b), end + c
        if kind in (Event.MREMAP, Event.MADVISE):
            kept[number] = sum(hi - lo for lo, hi, *_ in common(memory.pieces, a, a + b)) == b
        kept[number] &= free[0] >= free[1] or not memory.overlaps(*free)
        if kept[number]:
            memory.happen(event, 0, [])
    assume(not mapped & outside)
    return with_events(case, kept)


def with_events(case, kept):
    """The Case with those of its events alone, bool[n]."""
    placement = replace(case.placement, event_cpu=case.placement.event_cpu[kept])
    return case._replace(trace=replace(case.trace, events=case.trace.events[kept]), placement=placement)


# whatif of small captures, and a machine without paging-structure caches: every walk reads every level.

COSTS = load_costs(load_machine("sapphire-rapids"))


def answered(snapshot, policies, trace=None, nodes=2, **options):
    """[Result] of [(policy, parameters)]; where options say no other, on a small machine, by COSTS."""
    how = {"machine": small_machine(nodes), "costs": COSTS, **options}
    return replay_snapshot(snapshot, trace, policies, Setup.of(**how))


def ask(snapshot, *names, params=None, trace=None, machine=None):
    """[Result]: linux's, then those of the policies, all with the same parameters."""
    policies, small = [(name, params or {}) for name in names], small_machine(2)
    none = dict.fromkeys(("pde", "pdpte", "pml4e", "pml5e", "nested"))
    cold = msgspec.structs.replace(small, walk_caches=msgspec.structs.replace(small.walk_caches, **none))
    how = {"threads_on": "round-robin", "baseline": "linux", "cold": True}
    return answered(snapshot, policies, trace, machine=machine or cold, **how)


# Prices of Counters that a test makes by hand.


def both(count):
    """int64[sides, ...] of events, as Counts.events of a run."""
    return np.stack([count.events, count.host_events])


def counts_of(runs, executed=0.0, **more):
    """Counts of Counters of a run, or of [Counters] at several shares of the LLC, the best guess first."""
    runs = runs if isinstance(runs, list) else [runs]
    first, nodes = runs[0], runs[0].reads.shape[1]
    pages = dict.fromkeys(("guest", "guest_peak", "guest_single", "host", "host_single", "aside"), 0)
    fields = {
        "policy": "", "params": {}, "run": None,
        "reads": np.stack([run.reads for run in runs])[None], "classes": first.classes[None],
        "events": both(first)[None], "before": 0 * both(first),
        "calls": np.zeros((1, 4, len(CALLS), nodes), np.int64), "instructions": np.array([float(executed)]),
        "hits": np.zeros(3, np.int64), "pages": pages,
    }  # fmt: skip
    return Counts(**(fields | more))


def priced(base, *policies, machine, costs, executed=0.0, calibration=None, contended=(False,), **more):
    """[Result] of Counters, the baseline's first; more: fields of all Counts."""
    every = [counts_of(one, executed, **more) for one in (base, *policies)]
    return price(every, machine, costs, Unknowns(contended, calibration))
