"""Fragmentation of the ePT, and PTEMagnet, which keeps it low."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.classify import fragmentation as naive_fragmentation
from naive.classify import leaves
from naive.ptemagnet import ptemagnet as naive_ptemagnet
from ptanalyze.core.errors import UsageError
from ptanalyze.core.trace import EVENT_DTYPE, Event
from ptanalyze.cost.counts import DRAM
from ptanalyze.policies import plan_for, ptemagnet
from ptanalyze.world.address_space import address_space
from ptanalyze.world.reservations import measure, reserve
from ptanalyze.world.scenario import Scenario, untouched
from replay_cases import answered
from strategies import Page, build_snapshot, build_trace, place, small_machine, snapshots, traces, with_vmas

pytestmark = pytest.mark.twin


# PTEMagnet's allocator against its naive twin, and in the paper's closed forms.

GIB, MIB2, KIB4 = 1 << 30, 1 << 21, 1 << 12
NAMES = ("", "", "", "[heap]", "/lib/x", "[vdso]")


def anonymous(pages, host_pages=()):
    """A VM's snapshot in which all pages are anonymous memory."""
    return build_snapshot(pages, host_pages, vmas=[(0, 1 << 47, "")])


def scenario_of(snapshot, trace=None, machine=None):
    machine = machine or small_machine()
    if trace is None:
        return untouched(snapshot, machine)
    return Scenario(snapshot, trace, machine, place(trace, 2, machine.nodes))


def touching(pages, frames=None, order=None, events=()):
    """Scenario in which one thread touches pages (numbers from 1 GiB on) of a VM, mapped to `frames`."""
    mapped = dict(zip(pages, frames if frames is not None else pages, strict=True))
    snapshot = anonymous([(GIB + p * KIB4, f) for p, f in mapped.items()])
    touched = [GIB + p * KIB4 for p in (order if order is not None else pages)]
    return scenario_of(snapshot, build_trace([(0, touched)], events))


def frames_of(snapshot):
    """{page number: frame} of the guest's 4 KiB pages."""
    return {address >> 12: frame for _, level, address, frame in leaves(snapshot.guest) if level == 1}


@st.composite
def near_frames(draw):
    """Neighbouring pages on near frames, some shared or in gaps of the host, and a few far ones."""
    slots = draw(st.lists(st.integers(0, 40), min_size=1, max_size=30, unique=True))
    frame = st.integers(0, 60) | st.integers(505, 530) | st.sampled_from([4096, 1 << 18])
    pages = [Page(GIB + s * KIB4, draw(frame), protnone=draw(st.booleans())) for s in slots]
    named = [Page(MIB2, 512, 2)] if draw(st.booleans()) else []
    nodes = draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
    snapshot = build_snapshot(pages, named, host_table_nodes=nodes, host_encoding="kvm")
    if draw(st.booleans()):  # a frame outside the VM's memory
        leaf = np.flatnonzero(snapshot.guest.level == 1)[0]
        snapshot.guest.entries[leaf, draw(st.integers(0, 40))] = (1 << 51) | 0x67
    return snapshot


def with_more_events(trace, snapshot, draw):
    """The trace with mremap events among its own, and perhaps a region of interest from its begin."""
    mapped = [address for _, _, address, _ in leaves(snapshot.guest)]
    rows = [tuple(event) for event in trace.events]
    for _ in range(draw(st.integers(0, 2))):
        old, new = draw(st.sampled_from(mapped)), draw(st.sampled_from(mapped)) + 9 * KIB4
        event = np.zeros(1, EVENT_DTYPE)
        event["chunk"], event["kind"] = draw(st.integers(0, len(trace.chunks))), Event.MREMAP
        event["a"], event["b"], event["c"], event["result"] = old, 4 * KIB4, 6 * KIB4, new
        rows.append(tuple(event[0]))
    rows.sort(key=lambda row: row[0])
    if draw(st.booleans()):
        begin = np.zeros(1, EVENT_DTYPE)
        begin["kind"] = Event.ROI_START
        rows.insert(0, tuple(begin[0]))
    return replace(trace, events=np.array(rows, EVENT_DTYPE))


def plain(scenario):
    """(walks, steps, premapped pages) of a Scenario as the naive twin takes them."""
    tables, regions, history = scenario.space.tables, scenario.space.regions, scenario.history
    pages = scenario.stream.page.astype(np.int64)
    walks = (regions.va[pages >> 9].astype(np.int64) << 9 | pages & 511).tolist()
    first = {r: int(tables.base[t]) >> 12 for r, t in enumerate(history.rows.leaf) if tables.level[t] == 1}
    taken = history.steps
    columns = [getattr(taken, name).tolist() for name in ("at", "kind", "row", "lo", "hi", "number", "to")]
    steps = []
    for at, kind, row, lo, hi, other, to in zip(*columns, strict=True):
        if kind in (1, 3) and row in first:
            steps.append((at, kind, first[row] + lo, hi - lo, first[other] + to if kind == 3 else 0))
    valid = np.unpackbits(history.valid.view(np.uint8), axis=1, bitorder="little")
    return walks, steps, {first[r] + int(s) for r, s in np.argwhere(valid) if r in first}


def reserved(scenario, *how, **named):
    return reserve(scenario, scenario.history, *how, **named)


@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([2, 4, 8, 8, 64, 512]), st.sampled_from([-1, -1, 0, 3, 20]))
def test_frames_and_counts_are_those_of_the_naive_allocator(data, size, limit):
    snapshot = data.draw(near_frames() | near_frames() | snapshots(native=False))
    snapshot = with_vmas(snapshot, data.draw, NAMES)
    scenario = scenario_of(snapshot, with_more_events(data.draw(traces(snapshot)), snapshot, data.draw))
    found = reserved(scenario, size, limit)
    frames, counts, unused = naive_ptemagnet(snapshot, *plain(scenario), size, limit)
    assert frames_of(found.snapshot) == frames_of(snapshot) | frames
    assert found.counts == {name: counts[name] for name in found.counts} | {"unused_walks": sum(unused)}


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([2, 8, 512]), st.sampled_from([-1, 0, 9]))
def test_no_frame_is_given_twice_and_tables_stay(data, size, limit):
    snapshot = with_vmas(data.draw(near_frames() | snapshots(native=False)), data.draw, NAMES)
    before = frames_of(snapshot)
    after = frames_of(reserved(scenario_of(snapshot), size, limit).snapshot)
    assert after.keys() == before.keys()
    moved = {page for page in after if after[page] != before[page]}
    staying = set(snapshot.guest.frame.tolist()) | {before[p] for p in before if p not in moved}
    given = [after[page] for page in moved]
    assert len(set(given)) == len(given) and not set(given) & (staying - {before[p] for p in moved})


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(64)))
def test_full_groups_are_in_one_line_whatever_the_order_of_faults(order):
    scenario = touching(range(64), [3 * k + 1 for k in range(64)], order)
    shaped = ptemagnet.reshape(scenario, ptemagnet.Params())
    assert measure(scenario.space).mean() == 3
    assert measure(shaped.space, filled=True).mean() == 1
    assert shaped.facts["unused_bytes_end"] == 0 and shaped.facts["reservations"] == 8


def test_file_pages_shared_frames_and_huge_pages_keep_their_frames():
    vmas = [(GIB, GIB + 4 * KIB4, "/usr/bin/x"), (GIB + 4 * KIB4, 16 * GIB, "")]
    small = {0: 100, 4: 302, 5: 201, 6: 201}
    pages = [*((GIB + k * KIB4, frame) for k, frame in small.items()), (4 * GIB, 1024, 2)]
    snapshot = build_snapshot(pages, [], vmas=vmas)
    found = reserved(scenario_of(snapshot))
    assert list(found.kept.values()) == [1, 2, 0]
    after = frames_of(found.snapshot)
    assert [after[(GIB >> 12) + k] for k in (0, 4, 5, 6)] == [100, 300, 201, 201]
    above = snapshot.guest.level == 2
    assert (found.snapshot.guest.entries[above] == snapshot.guest.entries[above]).all()


def test_with_endless_caches_each_ept_line_comes_from_dram_once():
    """Each page in an ePT line of its own, as among seven co-runners; then eight share one."""
    order = np.random.default_rng(1).permutation(512)
    scenario = touching(range(512), [8 * k for k in range(512)], order.tolist())
    machine = small_machine(cache_lines=(1 << 14, 1 << 16), nested=False)
    names = ("linux", "ptemagnet", "vmitosis-replicate", "ptemagnet+vmitosis-replicate")
    how = {"cold": True, "machine": machine, "threads_on": "0", "costs": "server-2020"}
    results = answered(scenario.snapshot, [(name, {}) for name in names], scenario.trace, **how)
    guest_bits = [8, 16, 24, 32]
    linux = results[0].reads
    for name, result, lines in zip(names, results, (512, 64, 512, 64), strict=True):
        leaf = result.reads[1]
        assert result.policy == name
        assert leaf.sum() == result.walks == 512
        assert leaf[..., DRAM].sum() == lines
        assert (result.reads[guest_bits].sum(axis=(1, 2)) == linux[guest_bits].sum(axis=(1, 2))).all()


def test_ptemagnet_refuses_a_group_that_is_no_power_of_two_and_a_native_capture():
    with pytest.raises(UsageError, match="group = 12: one of 2, 4, 8"):
        ptemagnet.reshape(touching([0]), ptemagnet.Params(group=12))
    with pytest.raises(UsageError, match=r"ept\.tables"):
        plan_for("ptemagnet").reshape(scenario_of(build_snapshot([(GIB, 5)])))


# Fragmentation of the ePT against the naive translation of every gPTE, and in closed form.


def space_of(snapshot):
    return address_space(snapshot, np.zeros(0, np.uint64))


def measured(pages, host_pages=(), **options):
    return measure(space_of(build_snapshot(pages, host_pages)), **options)


@st.composite
def dense(draw):
    """A snapshot with gPT lines of several pages, near and far frames, holes, and host leaves of any size."""
    slots = draw(st.lists(st.integers(0, 40), min_size=1, max_size=24, unique=True))
    frame = st.integers(0, 40) | st.integers(505, 520) | st.sampled_from([4095, 4096, 8191, 1 << 18, 1 << 21])
    pages = [Page(GIB + s * KIB4, draw(frame), protnone=draw(st.booleans())) for s in slots]
    huge = draw(st.lists(st.sampled_from([(MIB2, 2), (GIB, 3), (0, 2)]), unique=True))
    snapshot = build_snapshot(
        pages, [Page(at, at >> 12, level) for at, level in huge],
        host_encoding=draw(st.sampled_from(["ept", "kvm"])),
    )  # fmt: skip
    for table in np.flatnonzero(snapshot.host.level == 1)[: draw(st.integers(0, 2))]:
        snapshot.host.entries[table, draw(st.integers(0, 40))] = 0
    return snapshot


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["vma", "all"]))
def test_every_line_is_counted_as_the_naive_translation_counts_it(data, by):
    snapshot = with_vmas(data.draw(snapshots(native=False) | dense()), data.draw)
    lines, unresolved = naive_fragmentation(snapshot, by == "vma")
    found = measure(space_of(snapshot), by=by)
    counted = Counter({tuple(map(int, at)): int(found.counts[tuple(at)]) for at in np.argwhere(found.counts)})
    assert counted == lines
    assert Counter({k: int(n) for k, n in enumerate(found.unresolved) if n}) == unresolved


def test_pages_of_one_program_between_those_of_k_others_are_k_plus_1_times_as_scattered():
    """Section 3.2: co-runners that fault in turn push neighbours apart."""
    for others in range(8):
        assert measured([(GIB + k * KIB4, k * (others + 1)) for k in range(512)]).mean() == others + 1


def test_only_full_lines_can_be_looked_at_alone():
    found = measured([(GIB + k * KIB4, 8 * k) for k in range(8)] + [(GIB + 9 * KIB4, 99)])
    assert found.mean() == 4.5 and found.mean(full=True) == 8
    assert [row["gPT lines"] for row in found.summary() + found.summary(full=True)] == [2, 1]


def test_frames_the_host_does_not_map_are_unresolved_until_the_host_fills_them():
    snapshot = build_snapshot([(GIB + k * KIB4, 8 * k) for k in range(8)], [])
    snapshot.host.entries[int(space_of(snapshot).host_of[0]) - len(snapshot.guest), [8, 16]] = 0
    found = measure(space_of(snapshot))
    assert found.unresolved.tolist() == [2] and found.mean() == 6 and found.mean(full=True) is None
    assert measure(space_of(snapshot), filled=True).mean() == 8


def test_a_native_capture_and_an_unknown_grouping_are_refused_with_the_way_out():
    with pytest.raises(UsageError, match="dump vm"):
        measure(space_of(build_snapshot([(GIB, 5)])))
    with pytest.raises(UsageError, match="one of all, vma"):
        measured([(GIB, 5)], by="thread")
