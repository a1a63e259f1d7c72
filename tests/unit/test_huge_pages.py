"""Huge pages: where they are, what walks then read, and memory that forbids them."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas import DataFrame
from test_walker import assert_as_naive

from naive.memory_manager import COLLAPSE, HUGE, MARKS, NO_HUGE, HugeKernel, marked_pages
from naive.trees import (
    blocks_in_use,
    blocks_the_host_maps,
    eligible,
    leaf_map,
    main_node,
    nearest_free,
    regions,
    stays_small,
    summary,
)
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.columns import CAREFUL, GONE, message
from ptanalyze.core.snapshot import VMA_DTYPE, Topology
from ptanalyze.core.trace import Event
from ptanalyze.formats.heat import ENDS, RECORD_DTYPE, ROUND
from ptanalyze.policies import plan_for
from ptanalyze.world import trees
from ptanalyze.world.mm_events import advice
from ptanalyze.world.scenario import Scenario, ScenarioOptions, captured_scenario, untouched
from ptanalyze.world.trees import overlap, within
from ptanalyze_pages.hugepages_command import view
from ptanalyze_pages.mappings import half_of, line_to_type, rates, walks_by_vma
from ptanalyze_pages.mappings import huge_pages as huge_pages_of
from ptanalyze_synth.capture import synth
from replay_cases import COSTS, answered, cases, scenario_of
from replay_cases import ask as ask_of
from strategies import (
    PAGE,
    REGION,
    Page,
    build_snapshot,
    build_trace,
    place,
    small_machine,
    snapshots,
    traces,
)

pytestmark = pytest.mark.twin


# Huge pages: which regions, in which frames, and what walks then read.

EXAMPLES = 10 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60
GIB = 1 << 30
MIB = 1 << 20


def full(regions=1, host=None, vma=None):
    """An anonymous VMA of whole regions, each page mapped; a VM's guest frames lie 1:1 from 8 MiB on."""
    pages = [(GIB + k * PAGE, 2048 + k) for k in range(512 * regions)]
    return build_snapshot(pages, host, vmas=[vma or (GIB, GIB + regions * REGION, "")])


def ask(snapshot, *names, params=None, touched=(GIB,), trace=True):
    """[Result]: linux's, then those of the policies."""
    return ask_of(snapshot, *names, params=params, trace=build_trace([(0, list(touched))]) if trace else None)


@pytest.mark.parametrize(("layers", "walks"), [("both", 2), ("gpt", 8), ("ept", 8)])
def test_a_tlb_entry_spans_the_smaller_of_both_pages_and_a_note_tells_of_the_filter_pass(layers, walks):
    touched = [GIB + k * PAGE for k in range(8)]
    chunks = build_trace([(0, touched), (1, touched)])
    how = {"cold": True, "threads_on": "round-robin", "baseline": "linux"}
    _, thp = answered(full(1, []), [("thp", {"layers": layers})], chunks, **how)
    assert thp.walks == 2 * walks // (2 if layers == "both" else 1)
    assert ("thp: page sizes change TLB reach: a filter pass of its own" in thp.notes) == (layers == "both")
    assert (thp.finding("contiguous") is not None) == (layers != "ept"), "compaction is not priced"


def test_the_heap_and_memory_with_a_name_of_its_own_are_anonymous_and_what_is_shared_is_not():
    for name in ("[heap]", "[anon:glibc: malloc]", "[stack]"):
        assert ask(full(1, vma=(GIB, GIB + REGION, name)), "thp")[-1].facts["regions_promoted"] == 1
    snapshot = full(1)
    snapshot.vmas["shared"] = True
    assert ask(snapshot, "thp")[-1].facts["regions_promoted"] == 0


def test_regions_whose_tables_were_gone_stay_small_and_are_counted():
    thp = ask(full(1), "thp", touched=[GIB, 5 * GIB, 5 * GIB + REGION])[-1]
    assert "thp: 2 touched regions were gone at the snapshot: they stay 4 KiB" in thp.notes
    found = thp.finding(GONE)
    assert found.numbers["share"] == 2 / 3 and found.weight == CAREFUL
    assert found.text.startswith("67 % of the walks go to memory that was freed before")
    assert not ask(full(1), "thp")[-1].finding(GONE)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=12), st.lists(st.integers(0, 30), max_size=14, unique=True))
def test_blocks_are_given_out_as_the_naive_twin_does(home, free):
    pools = [np.array(sorted(pool), np.int64) for pool in (free[::2], free[1::2])]
    got = trees.nearest_free(np.array(home, np.int64), *pools)
    assert got.tolist() == nearest_free(home, *(pool.tolist() for pool in pools))


ENTRY = st.builds(
    lambda flags, frame: flags | frame << 12,
    st.sampled_from([0, 1, 2, 7, 0x67, 0x80, 0x100, 0x800, 0x801, 0x867, 1 << 63 | 0x67]),
    st.integers(0, 3 << 24) | st.integers(0, 3000),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(ENTRY, max_size=9), min_size=1, max_size=3), st.sampled_from(["x86", "ept", "kvm"]))
def test_leaf_tables_are_summed_up_as_the_naive_twin_does(rows, encoding):
    snapshot = build_snapshot([(GIB + k * REGION, 5) for k in range(len(rows))], [], nodes=2)
    tree = replace(snapshot.guest, encoding=encoding)
    tables = np.flatnonzero(tree.level == 1)
    for k, row in zip(tables, rows, strict=True):
        tree.entries[k, : len(row)] = row
        tree.entries[k, len(row) :] = 0
    found = trees.candidates(tree, 1, True, snapshot.topology)
    expected = [(k, *summary(snapshot, tree, k)) for k in tables.tolist()]
    got = [tuple(int(x) for x in row) for row in zip(*found, strict=True)]
    assert got == [row for row in expected if row[1]]


@pytest.mark.parametrize(("read", "said"), [(1, []), (40, []), (240, ["unwritten"])])
def test_what_was_read_and_never_written_is_more_memory_with_huge_pages(read, said):
    """calloc maps one page of zeros wherever nothing was written: huge pages make memory of it."""
    pages = [(GIB + k * PAGE, k if k % 2 or k >= 2 * read else 512) for k in range(512)]
    snapshot = build_snapshot(pages, vmas=[(GIB, GIB + REGION, "")])
    options = ScenarioOptions(machine=small_machine(1))
    shaped = plan_for("thp").reshape(captured_scenario(snapshot, None, options))
    assert shaped.facts["bloat_bytes"] == PAGE * read * (read > 1)
    assert [one.code for one in shaped.findings if one.code == "unwritten"] == said


@st.composite
def processes(draw):
    """Snapshots in which some VMAs are anonymous."""
    snapshot = draw(snapshots())
    bases = [int(b) for b in snapshot.guest.base[snapshot.guest.level == 1]] or [0]
    cut = draw(st.lists(st.sampled_from(bases), max_size=2, unique=True))
    bounds = sorted({0, 1 << 56, *cut, *(at + REGION for at in cut)})
    vmas = np.zeros(len(bounds) - 1, VMA_DTYPE)
    vmas["start"], vmas["end"] = bounds[:-1], bounds[1:]
    vmas["shared"] = [draw(st.integers(0, 5)) == 0 for _ in vmas]
    names = tuple(draw(st.sampled_from(["", "", "[heap]", "/bin/x"])) for _ in vmas)
    return replace(snapshot, vmas=vmas, vma_names=names)


SHARES = st.sampled_from([0, 0, 0.3, 0.7])


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(processes(), SHARES, st.integers(1, 3), st.integers(0, 3))
def test_the_guests_huge_pages_are_those_of_the_naive_twin(snapshot, share, least, seed):
    scenario = untouched(snapshot, small_machine())
    params = {"layers": "gpt", "fragmentation": share, "min_pages": least, "seed": seed}
    shaped = plan_for("thp", params).reshape(scenario)
    before, after = leaf_map(snapshot.guest), leaf_map(shaped.snapshot.guest)
    could = eligible(snapshot, least)
    chosen = [base for base in could if not stays_small(base, share, seed, 0)]
    promoted = [base for base in chosen if after.get(base, (1,))[0] == 2]
    facts, small = shaped.facts, regions(snapshot.guest)
    assert facts["regions_left_by_fragmentation"] == len(could) - len(chosen)
    assert facts["regions_without_a_block"] == len(chosen) - len(promoted)
    assert facts["bloat_bytes"] == sum(512 - len(small[base]) for base in promoted) * PAGE
    stay = {at: leaf for at, leaf in before.items() if leaf[0] > 1 or at // REGION * REGION not in promoted}
    assert {at: leaf for at, leaf in after.items() if at not in promoted} == stay
    blocks = [after[base][1] >> 9 for base in promoted]
    if snapshot.native:
        nodes = snapshot.topology.node_of_frame(np.array(blocks, np.int64) << 9).tolist()
        assert nodes == [main_node(snapshot, list(small[base].values())) for base in promoted]
        return
    used = blocks_in_use(snapshot, promoted)
    whole, part = (blocks - used for blocks in blocks_the_host_maps(snapshot))
    home = [small[base][flagged(before, base)] >> 9 for base in promoted]
    if len(promoted) == len(chosen):
        assert blocks == nearest_free(home, whole, part)
    else:
        assert set(blocks) == whole | part and len(blocks) == len(set(blocks))


def flagged(leaves, base):
    """Slot of the first mapped page of a region."""
    small = [at for at, leaf in leaves.items() if leaf[0] == 1 and at // REGION * REGION == base]
    return min(at // PAGE % 512 for at in small)


@settings(max_examples=EXAMPLES, deadline=None)
@given(snapshots(native=False), SHARES, st.integers(1, 3))
def test_the_hosts_huge_pages_are_those_of_the_naive_twin(snapshot, share, least):
    scenario = untouched(snapshot, small_machine())
    params = {"layers": "ept", "host_fragmentation": share, "host_min_pages": least}
    shaped = plan_for("thp", params).reshape(scenario)
    before, after, small = leaf_map(snapshot.host), leaf_map(shaped.snapshot.host), regions(snapshot.host)
    could = [base for base, pages in small.items() if len(pages) >= least]
    promoted = [base for base in could if not stays_small(base, share, 0, 1)]
    assert shaped.facts["ept_regions_promoted"] == len(promoted)
    assert shaped.facts["ept_regions_left_by_fragmentation"] == len(could) - len(promoted)
    stay = {at: leaf for at, leaf in before.items() if leaf[0] > 1 or at // REGION * REGION not in promoted}
    assert {at: leaf for at, leaf in after.items() if at not in promoted} == stay
    for base in promoted:
        level, frame, flags = after[base]
        assert (level, flags) == (2, before[base + min(small[base]) * PAGE][2]) and frame % 512 == 0
        assert snapshot.topology.node_of_frame([frame])[0] == main_node(snapshot, list(small[base].values()))


@settings(max_examples=EXAMPLES, deadline=None)
@given(processes(), st.data(), SHARES)
def test_walks_over_huge_pages_read_what_the_naive_walker_reads(snapshot, data, share):
    trace, machine = data.draw(traces(snapshot)), small_machine()
    scenario = Scenario(snapshot, trace, machine, place(trace, 2, 2))
    shaped = plan_for("thp", {"fragmentation": share}).reshape(scenario)
    assert_as_naive(shaped.snapshot, trace, machine, 1000)


def test_a_page_that_is_marked_for_numa_balancing_is_a_huge_page_that_is():
    snapshot = build_snapshot([Page(GIB + k * PAGE, 700 + k, protnone=True) for k in range(3)],
                              vmas=[(GIB, 2 * GIB, "")])  # fmt: skip
    shaped = plan_for("thp").reshape(untouched(snapshot, small_machine()))
    assert leaf_map(shaped.snapshot.guest) == {GIB: (2, 512, 0x100)}
    assert shaped.unwalked_table_pages == 1  # in deposit: VmPTE of 384 MiB is 812 kB with either


@pytest.mark.parametrize(("regions", "touched"), [(1, 512), (3, 3)])
def test_a_huge_fault_zeroes_2_mib_at_the_price_of_512_pages(regions, touched):
    """n faults of 4 KiB that fill a region zero no more than its one fault of 2 MiB."""
    step = regions * REGION // touched
    linux, thp = ask(full(regions), "thp", touched=tuple(GIB + k * step for k in range(touched)))
    small = COSTS.fault_ns + COSTS.entry.fill.first
    assert (linux.count("faults"), linux.count("pages_zeroed")) == (touched, touched)
    assert (thp.count("faults"), thp.count("pages_zeroed")) == (regions, 512 * regions)
    tables = COSTS.table_ns + COSTS.entry.rewrite.first  # linux makes a leaf table per region
    more = 512 * regions * COSTS.zero_ns + regions * small - touched * (small + COSTS.zero_ns)
    found = thp.fault_ns - linux.fault_ns
    assert found == pytest.approx(more - regions * tables, abs=regions * COSTS.entry.rewrite.first + 1e-6)


@pytest.mark.parametrize("mapped", [512, 3])
def test_collapsing_copies_what_was_mapped_and_zeroes_the_rest_once(mapped):
    pages = [(GIB + k * PAGE, 2048 + k) for k in range(mapped)]
    snapshot = build_snapshot(pages, vmas=[(GIB, GIB + REGION, "")])
    linux, thp = ask_of(snapshot, "thp", trace=build_trace([(0, [GIB])], [(0, 0, Event.ROI_START, (), 0)]))
    assert thp.data_copied == mapped and thp.count("pages_zeroed") == 0
    ns = mapped * COSTS.collapse_ns + (512 - mapped) * COSTS.zero_ns
    assert thp.once_cycles - linux.once_cycles == pytest.approx(ns * small_machine(2).ghz)


@pytest.mark.parametrize(("pages", "node_mib", "says"), [
    (512, 64, []),
    (256, 64, []),
    (128, 64, ["huge pages add 1.5 MiB to the 512 KiB that the program has"]),
    (256, 1, ["with huge pages the program takes 2.0 MiB, more than a node of the captured machine holds ("]),
    (1, 1, ["huge pages add 2.0 MiB to the 4 KiB", "with huge pages the program takes 2.0 MiB, more than"]),
])  # fmt: skip
def test_memory_that_huge_pages_add_is_set_against_what_there_is(pages, node_mib, says):
    snapshot = build_snapshot([(GIB + k * PAGE, k) for k in range(pages)], vmas=[(GIB, GIB + REGION, "")])
    node = snapshot.topology.nodes[0]
    node = replace(node, frames=np.array([[0, node_mib * MIB // PAGE]]))
    linux, thp = ask(replace(snapshot, topology=Topology((node,))), "thp")
    assert linux.careful == [] and len(thp.careful) == len(says)
    assert all(found.text.startswith(said) for found, said in zip(thp.careful, says, strict=True))


# Memory that a program forbids huge pages stays 4 KiB under thp.

TOP = 64
ADDRESS = st.integers(1, TOP).map(lambda page: page * PAGE)
LENGTH = st.integers(0, 12 * PAGE)


def event(kind, arguments, result):
    return st.tuples(st.just(kind), arguments, result)


CALLS = st.one_of(
    event(
        Event.MADVISE,
        st.tuples(ADDRESS, LENGTH, st.sampled_from([NO_HUGE, NO_HUGE, HUGE, HUGE, COLLAPSE, COLLAPSE, 4])),
        st.sampled_from([0, 0, -12, -22]),
    ),
    event(Event.MMAP, st.tuples(ADDRESS, LENGTH), ADDRESS | st.just(-12)),
    event(Event.MUNMAP, st.tuples(ADDRESS, LENGTH), st.just(0)),
    event(Event.MREMAP, st.tuples(ADDRESS, LENGTH, LENGTH), ADDRESS | st.just(-12)),
    event(Event.BRK, st.tuples(ADDRESS), ADDRESS),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(CALLS, max_size=12))
def test_the_marked_pages_are_those_of_the_naive_twin(calls):
    events = build_trace([], [(0, 0, *call) for call in calls]).events
    for mark in MARKS:
        found = getattr(advice(events), mark)
        assert (np.diff(found.reshape(-1).astype(np.int64)) > 0).all()
        pages = {page for start, end in found.tolist() for page in range(start // PAGE, end // PAGE)}
        assert pages == marked_pages(events, mark)


@given(
    st.lists(st.integers(1, 60), max_size=8, unique=True).map(sorted),
    st.lists(st.integers(0, 60), min_size=1),
    st.integers(1, 9),
)
def test_regions_overlap_ranges_as_sets_of_pages_do(bounds, bases, length):
    ranges = np.array(bounds[: len(bounds) // 2 * 2], np.uint64).reshape(-1, 2)
    marked = {page for start, end in ranges.tolist() for page in range(start, end)}
    got = overlap(np.array(bases, np.uint64), length, ranges).tolist()
    assert got == [not marked.isdisjoint(range(base, base + length)) for base in bases]
    inside = within(np.array(bases, np.uint64), length, ranges).tolist()
    assert inside == [marked.issuperset(range(base, base + length)) for base in bases]


def thp(calls, regions=4, host=None, **params):
    return results(calls, regions, host, **params)[-1]


def results(calls, regions=4, host=None, tracer="", allowed=None, cold=True, **params):
    """[linux's, thp's Result] of `regions` full regions from 1 GiB on in one VMA, a page of each touched."""
    snapshot = replace(full(regions, host), facts={"huge_pages": allowed} if allowed else {})
    trace = build_trace([(0, [GIB + k * REGION for k in range(regions)])], [(0, 0, *call) for call in calls])
    trace = replace(trace, facts={**trace.facts, "tracer": tracer})
    how = {"cold": cold, "threads_on": "round-robin", "baseline": "linux"}
    return answered(snapshot, [("thp", params)], trace, **how)


EDGE = st.sampled_from([0, 1, 5, 300, 511, 512, 513, 700, 1023, 1024])
PARTS = st.tuples(EDGE, EDGE).filter(lambda edges: edges[0] < edges[1])
CHANGES = st.sampled_from(
    [(Event.MUNMAP, 0), (Event.MMAP, 3), (Event.MPROTECT, 0), (Event.MPROTECT, 1), (Event.MPROTECT, 3)]
    + [(Event.MADVISE, advice) for advice in (4, 4, 8, 20)]
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(CHANGES, PARTS) | EDGE.map(lambda page: page % 1024), max_size=14), st.booleans())
def test_split_pages_fault_as_in_the_naive_kernel(program, frees):
    kernel, first, chunks = HugeKernel(frees), GIB // PAGE, []
    kernel.happen(Event.MMAP, first, 1024, 3)
    calls = [(0, 0, Event.MMAP, (GIB, 2 * REGION, 3, 0x32), GIB)]
    for step in program:
        if isinstance(step, int):
            if kernel.vma.get(first + step):
                kernel.touch(first + step)
                chunks.append((0, [GIB + step * PAGE]))
            continue
        (kind, value), (lo, hi) = step
        there = {kernel.vma.get(first + page) for page in range(lo, hi)}
        if kind in (Event.MADVISE, Event.MPROTECT) and there & {None, value if kind == Event.MPROTECT else 0}:
            continue  # fails, or changes nothing
        kernel.happen(kind, first + lo, hi - lo, value)
        where = GIB + lo * PAGE, (hi - lo) * PAGE, value, 0x32
        calls.append((len(chunks), 0, kind, where, where[0] if kind == Event.MMAP else 0))
    snapshot = replace(full(2), facts={"kernel": "6.18.1" if frees else "6.1.0"})
    counted = ask_of(snapshot, "thp", trace=build_trace(chunks, calls))[-1] if chunks else None
    got = (counted.count("faults"), counted.count("pages_zeroed")) if chunks else (0, 0)
    assert got == (kernel.faults, kernel.zeroed)


def opened(k, prot=3):
    return Event.MPROTECT, (GIB + k * 32 * PAGE, 32 * PAGE, prot), 0


def committed(k):
    return Event.MMAP, (GIB + k * 32 * PAGE, 32 * PAGE, 3, 0x32), GIB + k * 32 * PAGE


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize(
    ("by", "reserved", "then", "small"),
    [(opened, 0, [], 0), (opened, 0, [opened(5, 1)], 1), (opened, 0, [opened(5, 0), opened(5)], 1),
     (opened, 1, [], 4), (committed, 0, [], 0), (committed, 0, [committed(5)], 1), (committed, 3, [], 4)],
)  # fmt: skip
def test_what_opens_memory_that_was_reserved_splits_no_page(by, begins, reserved, then, small):
    """Growth of glibc's arenas: mmap(PROT_NONE), then mprotect by a few pages, used at once; of a JVM's heap:
    mmap(MAP_FIXED) there. None of it interrupts the second thread."""
    calls = [(0, 0, Event.MMAP, (GIB, 4 * REGION, reserved, 0x4022), GIB)]
    calls += [(k, 0, *by(k)) for k in range(64)] + [(64, 0, *call) for call in then]
    seen = [(k % 2, [GIB + k * 32 * PAGE]) for k in range(64)]
    calls += [(64, 0, Event.ROI_START, (), 0)] * begins
    result = ask_of(full(4), "thp", trace=build_trace([*seen, *seen], calls))[-1]
    assert result.facts["regions_promoted"] == 4 and result.facts.get("regions_split", 0) == small
    assert small or result.count("ipis") == 0


def heap(k):
    return Event.BRK, (GIB + 33 * k * PAGE,), GIB + 33 * k * PAGE


TRIMMED = [(k, call) for k in range(64) for call in (heap(k), heap(k + 2), heap(k + 1))] + [(64, heap(65))]
PART = (Event.MMAP, (GIB + MIB, MIB, 3, 0x22), GIB + MIB), (Event.MUNMAP, (GIB + MIB, MIB), 0)
MADE_NEW = [(0, PART[0]), (1, PART[1]), (1, (Event.MMAP, (GIB, 4 * REGION, 3, 0x22), GIB))]
BEGIN = Event.ROI_START, (), 0


@pytest.mark.parametrize("begins", [[], [(2, BEGIN)], [(64, BEGIN)]])
@pytest.mark.parametrize(("calls", "small"), [(TRIMMED, 0), (MADE_NEW, 0), ([*MADE_NEW, (2, PART[1])], 1)])
def test_only_what_one_vma_held_is_split(calls, small, begins):
    """A heap's trims while it grows, and a mapping before the one that the 2 MiB have in the end."""
    seen = [(0, [GIB + MIB]), (0, [GIB + MIB]), *((0, [GIB + 33 * k * PAGE]) for k in range(2, 64))]
    events = [(at, 0, *call) for at, call in sorted([*calls, *begins], key=lambda call: call[0])]
    result = ask_of(full(4), "thp", trace=build_trace([*seen, *seen], events))[-1]
    assert result.facts.get("regions_split", 0) == small


def advised(start, length, advice=NO_HUGE, result=0):
    return Event.MADVISE, (GIB + start, length, advice), result


@pytest.mark.parametrize(("calls", "promoted"), [
    ([], 4),
    ([advised(0, 4 * REGION)], 0),
    ([advised(REGION, REGION)], 3),
    ([advised(REGION + 7 * PAGE, PAGE)], 3),
    ([advised(REGION - PAGE, 2 * PAGE)], 2),
    ([advised(0, 4 * REGION, result=-22)], 4),
    ([advised(0, 4 * REGION), advised(0, 2 * REGION, HUGE)], 2),
    ([advised(0, 4 * REGION), (Event.MMAP, (0, REGION, 3, 0x22), GIB)], 1),
    ([advised(0, 4 * REGION), (Event.MUNMAP, (GIB, 4 * REGION), 0)], 0),
])  # fmt: skip
def test_what_is_forbidden_stays_small_and_is_counted_and_said(calls, promoted):
    result = thp(calls)
    assert result.facts["regions_promoted"] == promoted
    assert result.facts.get("regions_forbidden", 0) == 4 - promoted
    said = [note for note in result.notes if "MADV_NOHUGEPAGE" in note]
    line = f"thp: {2 * (4 - promoted)} MiB are MADV_NOHUGEPAGE: thp leaves them alone"
    assert said == ([line] if promoted < 4 else [])


def test_a_guests_advice_does_not_bind_its_host():
    result = thp([advised(0, 4 * REGION)], host=[])
    assert result.facts["regions_promoted"] == 0 and result.facts["ept_regions_promoted"] >= 4


QEMU = "qemu-user plugin, API 1"
ASKED, COLLAPSED = advised(0, 3 * REGION, HUGE), advised(REGION, REGION, COLLAPSE)


@pytest.mark.parametrize(("calls", "allowed", "huge", "more"), [
    ([ASKED], "madvise", 3, 1),
    ([ASKED], "always", 3, 1),
    ([ASKED], None, 3, 1),
    ([ASKED], "never", 0, 4),
    ([ASKED], "forbidden", 0, 0),
    ([COLLAPSED], "never", 1, 3),
    ([COLLAPSED], "forbidden", 0, 0),
    ([ASKED, COLLAPSED], "madvise", 3, 1),
    ([ASKED, advised(0, REGION)], "madvise", 2, 1),
    ([advised(PAGE, 3 * REGION, HUGE)], "madvise", 2, 2),
    ([advised(0, 4 * REGION, HUGE, result=-22)], "madvise", 0, 4),
])  # fmt: skip
def test_what_the_program_asked_for_and_the_machine_gives_is_huge_in_the_baseline(calls, allowed, huge, more):
    linux, thp = results(calls, tracer=QEMU, allowed=allowed)
    assert linux.pages["guest_single"] == 3 + 4 - huge and thp.facts["regions_promoted"] == more
    assert linux.count("pages_zeroed") == 512 * huge + 4 - huge
    said = [note for note in linux.notes if f"{2 * huge} MiB have huge pages under every policy" in note]
    assert len(said) == (huge > 0) and all(("is assumed" in note) == (not allowed) for note in said)


def prctl(a, b=0):
    return Event.THP_DISABLE, (a, b), -22


@pytest.mark.parametrize(
    ("calls", "allowed"), [([], "forbidden"), ([prctl(1)], "madvise"), ([prctl(0), prctl(1)], None)]
)
def test_a_process_without_huge_pages_by_prctl_gets_none_and_that_is_said(calls, allowed):
    linux, thp = results([*calls, ASKED], allowed=allowed, tracer=QEMU)
    assert linux.pages["guest_single"] == 3 + 4
    assert thp.facts["regions_forbidden"] == 4
    assert "thp: 8 MiB are PR_SET_THP_DISABLE: thp leaves them alone" in thp.notes


@pytest.mark.parametrize("calls", [[prctl(1), prctl(0)], [prctl(1, 2)]])
def test_prctl_taken_back_or_but_for_what_is_advised_forbids_nothing_that_is_advised(calls):
    linux, _ = results([*calls, ASKED], allowed="madvise", tracer=QEMU)
    assert linux.pages["guest_single"] == 3 + 4 - 3


# Huge pages by mapping.


@pytest.mark.compiled
def test_what_mappings_save_adds_up_to_what_thp_saves_and_its_waste(tmp_path):
    capture = synth(tmp_path / "made", "64M", accesses=40_000, scale=16, init_trace=False)
    frame, whole = huge_pages_of(capture), replay(capture, ["thp"]).results
    assert frame["walks"].sum() == frame.attrs["walks"] == whole[0].walks
    saved = whole[0].walks - whole[1].walks
    assert frame["walks_saved"].sum() == frame.attrs["walks"] - frame.attrs["walks_left"] == saved > 0
    assert frame["waste_bytes"].sum() == whole[1].facts["bloat_bytes"]
    assert frame["huge_bytes"].sum() == whole[1].facts["regions_promoted"] << 21
    assert frame["saved_per_mib"].is_monotonic_decreasing
    assert frame["line"].iloc[0].startswith("madvise(its start, 0x")
    first, _, last = view(frame)
    assert first.lines[0] == str(message("hugepages", "best", name="anonymous memory",
        start=frame["start"].iloc[0], share=frame["saved_share"].iloc[0]))  # fmt: skip
    assert frame["line"].iloc[0] in "".join(map(str, last.lines))


@pytest.mark.twin
@settings(max_examples=20, deadline=None)
@given(cases())
def test_walks_are_counted_to_the_vma_around_them_as_by_hand(case):
    scenario = scenario_of(case)
    vmas, naive = scenario.snapshot.vmas, [0] * (len(scenario.snapshot.vmas) + 1)
    for page in scenario.stream.page.tolist():
        address = int(scenario.space.regions.va[page >> 9]) << 21 | (page & 511) << 12
        inside = [k for k, vma in enumerate(vmas) if vma["start"] <= address < vma["end"]]
        naive[inside[0] if inside else -1] += 1
    assert walks_by_vma(scenario, scenario.stream).tolist() == naive


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("[heap]", "GLIBC_TUNABLES="), ("", "madvise(its start, 0x200000"), ("[stack]", "-"),
        ("/dev/shm/buffers", "sudo mount -o remount,huge=advise /dev/shm; madvise"),
        ("/opt/table", "its contents"),
        ("/memfd:x (deleted)", "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        ("[anon: arena]", "madvise("),
    ],
)  # fmt: skip
def test_each_mapping_comes_with_its_line(name, said):
    vma = name, 0x200000, 0x400000
    line = line_to_type(*vma, fits=True, asked=False)
    assert "./app" not in line and f"{0x400000:x}" not in line, "addresses are those of the traced run"
    assert line.startswith(said) and line_to_type(*vma, fits=True, asked=True).startswith("nothing")
    arena = line_to_type(name, 64 << 20, 128 << 20, fits=True, asked=False)  # of a thread, by glibc
    assert ("; from malloc: MALLOC_ARENA_MAX=1 GLIBC" in arena) is (not name)
    assert line_to_type(*vma, fits=False, asked=False) == (line if name.startswith("/") else "-")


@pytest.mark.parametrize("walks", [200, 20_000])
def test_lines_are_those_of_mappings_that_save_what_is_worth_typing(walks):
    """The best of those with huge pages; the small one is spared walks by its neighbour."""
    table = DataFrame(
        {
            "start": [0x1000, 0x200000, 0x400000],
            "name": ["", "/x", "[stack]"],
            "walks": 100,
            "walks_saved": [100, 80, 80],
            "huge_bytes": [0, 2 << 20, 2 << 20],
            "waste_bytes": 0,
            "saved_per_mib": [0.0, 40.0, 40.0],
            "line": ["-", "its contents", "-"],
        }
    )
    table["saved_share"] = table["walks_saved"] / walks
    table.attrs = {"walks": walks, "findings": []}
    first, _, last = view(table)
    assert first.lines[0] == str(message("hugepages", "best", name="/x", start=0x200000, share=80 / walks))
    assert bool(last.lines) == (walks == 200)
    assert not last.lines or "200000" in str(last.lines[0])


# Which blocks are accessed most, from accessed bits that are cleared in the order of addresses.


def readings(rates, rounds, seed=1):
    """Records of a sampling: blocks accessed at random at `rates` per ms, the first cleared 30 ms earlier."""
    chance, records = np.random.default_rng(seed), []
    windows = np.linspace(34, 4, len(rates))
    for turn in range(rounds):
        for block, (rate, window) in enumerate(zip(rates, windows, strict=True)):
            pages = np.unique(chance.integers(0, 512, chance.poisson(rate * window)))
            bits = np.zeros(512, np.uint8)
            bits[pages] = 1
            if len(pages):
                at = (block << 21, 1, int(window * 1e4), int(window * 1e6))
                records.append((*at, np.packbits(bits).view(np.uint64)))
        words = np.zeros(8, np.uint64)
        words[ROUND] = turn
        records.append((0, ENDS, 0, 0, words))
    return np.array(records, RECORD_DTYPE)


def test_accesses_are_counted_by_the_time_since_a_table_was_cleared():
    expected = np.repeat([6.0, 1.0, 12.0], 40)
    found = rates(readings(expected, 40), np.arange(120) << 21).sum(0) / 2 * 1e6
    for part in np.split(np.arange(120), 3):
        assert found[part].mean() == pytest.approx(expected[part].mean(), rel=0.05)


@pytest.mark.parametrize(("rate", "rounds"), [(6.0, 30), (0.2, 4)])
def test_half_of_a_uniform_use_is_in_half_of_the_blocks(rate, rounds):
    """However few samples there are; a hot tenth that takes all is told from that."""
    address = np.arange(256) << 21
    halves = [half_of(rates(readings([rate] * 256, rounds, seed), address)) for seed in range(8)]
    assert np.mean(halves) == pytest.approx(128, abs=10)
    hot = [50 * rate] * 25 + [rate / 50] * 231
    assert half_of(rates(readings(hot, rounds), address)) == pytest.approx(13, abs=3)
