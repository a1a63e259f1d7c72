"""Captures that stand for larger runs: what they say, and what shrinks or is folded in a replay."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze import kernels, replay, synth, whatif
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.size import TIMES, needed_curve, size_curve
from ptanalyze.analysis.verdict import TABLES
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import Array, load_machine
from ptanalyze.core.snapshot import EMULATOR
from ptanalyze.formats.capture import open_capture
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import in_turns
from ptanalyze.world.scaling import (
    StandsFor,
    fixed_vmas,
    growth,
    mapped_bytes,
    more_tables,
    scaled_machine,
    stands_for,
)
from ptanalyze_synth.capture import synthesize
from ptanalyze_synth.parameters import Parameters
from strategies import build_snapshot

KIB4, MIB, GIB = 1 << 12, 1 << 20, 1 << 30


def made(place, **parameters):
    known = {"size": 4 * MIB, "accesses": 20_000, "threads": 2, "init_trace": False}
    synthesize(Parameters(**{**known, **parameters}), place)
    return open_capture(place)


def test_caches_shrink_to_whole_sets_and_at_least_one():
    machine = load_machine("vmitosis-cascade-lake")
    small = scaled_machine(machine, 120)
    assert small.l2.bytes == 8 * 16 * 64 and small.llc.bytes == 443 * 11 * 64
    assert scaled_machine(machine, 10**6).llc.bytes == 11 * 64
    assert scaled_machine(machine, 1) == machine
    assert small.latency == machine.latency


def test_the_last_tlb_level_shrinks_and_the_first_only_as_far_as_the_second():
    machine = load_machine("vmitosis-cascade-lake")
    small = scaled_machine(machine, 120)
    assert small.tlb.l1_4k == machine.tlb.l1_4k
    assert (small.tlb.l2, small.tlb.l1_2m) == (Array(entries=12, ways=12), Array(entries=12, ways=4))
    assert small.tlb.l2_1g == small.tlb.l1_1g == Array(entries=1, ways=1)
    assert scaled_machine(machine, 16).tlb.l1_2m == machine.tlb.l1_2m
    assert scaled_machine(load_machine("epyc-7543-16-nodes"), 16).tlb.l1_1g == Array(entries=4, ways=4)
    assert small.walk_caches.pde == small.walk_caches.nested == Array(entries=1, ways=1)
    assert scaled_machine(machine, 100).tlb.l2 == Array(entries=12, ways=12), "of 15 those that fill its sets"
    assert small.walk_caches.pml5e is None
    assert scaled_machine(machine, 4).walk_caches.pde == Array(entries=8, ways=4)


def test_a_scaled_capture_answers_as_the_whole_program_where_huge_pages_reach_farther(tmp_path):
    """Uniform reads of 4 GiB, of which TLBs reach 3 with 2 MiB pages, and of 1/16 of it: as many walks.

    Of more lines than the caches of a node hold."""
    how = {"accesses": 1_000_000, "threads": 4, "init": "single", "init_trace": False}
    machine = "vmitosis-cascade-lake"
    whole = whatif(synth(tmp_path / "whole", 4 << 30, **how), ["mitosis", "thp"], machine=machine)
    small = whatif(synth(tmp_path / "small", 256 * MIB, scale=16, **how), ["mitosis", "thp"], machine=machine)
    assert small["walks"].tolist() == pytest.approx(whole["walks"].tolist(), rel=0.03)
    assert small["reads_per_walk"].tolist() == pytest.approx(whole["reads_per_walk"].tolist(), rel=0.03)
    assert small["speedup"].tolist() == pytest.approx(whole["speedup"].tolist(), rel=0.05)
    assert small["speedup"][2] > 1


@pytest.mark.parametrize("scale", [0, -1, 1_000_001])
def test_a_scale_out_of_range_is_refused(tmp_path, scale):
    with pytest.raises(UsageError, match=rf"--scale {scale}: 1 to 1000000"):
        made(tmp_path / "none", scale=scale)


# What is asked, and what is refused.


def test_a_factor_or_a_size_is_asked_for(tmp_path):
    capture = made(tmp_path / "made", size=64 * MIB, accesses=1000)
    assert stands_for(None) == StandsFor() and stands_for("16x") == stands_for(16)
    assert growth(capture.snapshot, stands_for("1G")).factor == pytest.approx(16)
    assert growth(capture.snapshot, stands_for("2.5x")).factor == 2.5
    assert stands_for("1G").factor(96 * MIB, 32 * MIB) == pytest.approx((1024 - 32) / 64)
    no_factors = ["", "x", "-4", "0.5x", "0", "64", "2.5", "67108864", "200Q", "1e9", "inf", "4 times", 10**9]
    for wrong in no_factors:
        with pytest.raises(UsageError, match=r"^--stands-for .*(1 to 1000000|factor as 64x, a size as 64G)"):
            stands_for(wrong)
    with pytest.raises(UsageError, match=r"--stands-for 32\.0 MiB: the capture maps 64\.0 MiB; give"):
        growth(capture.snapshot, stands_for("32M"))
    with pytest.raises(UsageError, match="no page tables that tell its size"):
        stands_for("32M").factor(0)
    assert stands_for(None, "heap") == StandsFor(fixed="heap") and not stands_for(None, "heap").larger


VMAS = [
    (GIB, GIB + 64 * KIB4, "/bin/app"),
    (2 * GIB, 2 * GIB + 3 * KIB4, "[stack]"),
    (3 * GIB, 3 * GIB + 4 * KIB4, ""),
    (4 * GIB, 4 * GIB + 1024 * KIB4, "[heap]"),
    (5 * GIB, 5 * GIB + 200 * KIB4, "data"),
    (6 * GIB, 6 * GIB + 512 * KIB4, "tracer", True),
]


def several():
    """A snapshot that maps every page of VMAS; the first is code."""
    at = ((start + KIB4 * page, 1) for start, end, *_ in VMAS for page in range((end - start) // KIB4))
    snapshot = build_snapshot(list(at), vmas=VMAS)
    snapshot.vmas["prot"] = [5, 3, 3, 3, 3, 5]
    return snapshot


@pytest.mark.parametrize(("asked", "fixed"), [
    ("", [True, True, True, False, False, False]),
    ("none", [False] * 6),
    ("heap", [False, False, False, True, False, False]),
    ("1M", [True, True, True, False, True, False]),
    (f"{5 * GIB + 5:#x},/bin/app", [True, False, False, False, True, False]),
    ("tracer", [False] * 6),
])  # fmt: skip
def test_which_memory_does_not_grow(asked, fixed):
    snapshot = several()
    mapped = mapped_bytes(snapshot)
    assert mapped.tolist() == [n * KIB4 for n in (64, 3, 4, 1024, 200, 0, 0)]
    assert fixed_vmas(snapshot, mapped, asked).tolist() == fixed


@pytest.mark.parametrize(("how", "why"), [
    ({"weigh": "leaf"}, "page tables alone tell nothing"),
    ({"cold": True}, "leave out --cold"),
    ({"fixed": "none"}, None),
    ({}, None),
])  # fmt: skip
def test_questions_about_a_larger_run_that_cannot_be_answered(tmp_path, how, why):
    capture = made(tmp_path / "made", size=8 * MIB)
    if why is None:
        assert len(whatif(capture, "mitosis", stands_for=4, **how)) == 2
        return
    with pytest.raises(UsageError, match=rf"^--stands-for.*{why}"):
        whatif(capture, "mitosis", stands_for=4, **how)


# One mechanism: made smaller, or asked for larger.


def test_the_answer_for_a_small_trace_is_that_of_a_direct_trace_at_16_times_the_size(tmp_path):
    """Uniform reads of 256 MiB, and of 16 MiB that stand for them, on a machine whose caches the lines of the
    larger exceed. The bar is 5 % of the effect."""
    known = {"accesses": 400_000, "threads": 4, "nodes": 4, "init": "parallel"}
    machine = scaled_data_caches("vmitosis-cascade-lake", 64)
    direct = whatif(made(tmp_path / "direct", **known | {"size": 256 * MIB}), "mitosis", machine=machine)
    asked = made(tmp_path / "asked", **known | {"size": 16 * MIB})
    stood = whatif(asked, "mitosis", stands_for="256M", machine=machine)
    assert whatif(asked, "mitosis", machine=machine)["speedup"][1] == pytest.approx(1, abs=0.01)
    assert direct["speedup"][1] > 1.05
    assert stood["speedup"][1] - 1 == pytest.approx(direct["speedup"][1] - 1, rel=0.05)
    assert stood["dram_reads_per_walk"][1] == pytest.approx(direct["dram_reads_per_walk"][1], rel=0.05)


def scaled_data_caches(name, by):
    machine = load_machine(name)
    small = scaled_machine(machine, by)
    return msgspec.structs.replace(machine, l2=small.l2, llc=small.llc)


# Tables of the larger run: as many leaf tables more as memory, and what is above them.


@pytest.mark.parametrize("how", [{}, {"scale": 16}, {"guest": "visible"}])
def test_a_larger_run_has_the_tables_that_its_memory_takes(tmp_path, how):
    """64 MiB for 64 GiB, by hand: 32,768 leaf tables, 64 above them, one of each upper level."""
    capture = made(tmp_path / "made", size=64 * MIB, threads=4, nodes=4, **how)
    linux, mitosis, thp = replay(capture, ["mitosis", "thp"], stands_for=1024 // how.get("scale", 1)).results
    tables = 64 * 512 + 64 + 1 + 1
    assert linux.pages["guest"] == linux.pages["guest_peak"] == tables
    assert thp.pages["guest"] == 64 + 1 + 1
    assert mitosis.pages["guest"] == 4 * tables
    assert mitosis.once(kernels.TABLE_NEW) == pytest.approx(3 * tables, rel=1e-3)
    assert mitosis.once(kernels.PTE_COPY) == pytest.approx(3 * (64 << 18), rel=0.01)
    if "guest" in how:
        assert linux.pages["host"] == pytest.approx(tables, rel=0.01)


def test_tables_of_memory_that_does_not_grow_stay():
    """By hand: heap and data grow; each of the others has a leaf table and one above."""
    snapshot = several()
    asked = growth(snapshot, StandsFor(512))
    assert asked.memory == pytest.approx((512 * 1224 + 71) / (1024 + 200 + 64 + 3 + 4))
    space = address_space(snapshot, np.zeros(0, np.uint64))
    captured = 1 + 1 + 6 + 7
    space.snapshot.guest.flags[(snapshot.guest.base == 6 * GIB) & (snapshot.guest.level < 3)] |= EMULATOR
    larger = 1 + 1 + 3 + (2 + 1) + 3 + (1024 + 200)
    assert more_tables(space, asked) == (pytest.approx(larger / (captured - 2)), 1.0)
    assert more_tables(space, growth(snapshot, StandsFor())) == (1.0, 1.0)


# The latencies of a larger run.


def test_a_larger_run_has_loaded_memory_as_an_end(tmp_path):
    machine = scaled_data_caches("vmitosis-cascade-lake", 64)
    capture = made(tmp_path / "made", size=16 * MIB, accesses=200_000, threads=4, nodes=4)
    how = {"machine": machine, "stands_for": 16}
    larger, loaded = (replay(capture, "mitosis", **how, **more).results for more in ({}, {"contended": True}))
    assert larger[1].speedup.middle < loaded[1].speedup.middle
    assert larger[1].speedup.high == loaded[1].speedup.high
    assert larger[1].speedup.low < loaded[1].speedup.low


# CPUs that share a cache walk at the same time, whatever the length of the trace's chunks.


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 60), max_size=3))
def test_turns_keep_each_cpus_order_and_flushes_and_leave_no_cpu_behind(cpus, flushes):
    cpu, flushes = np.array(cpus, np.int32), np.array(sorted(flushes), np.int64)
    order = in_turns(cpu, flushes)
    assert sorted(order.tolist()) == list(range(len(cpu)))
    part = np.searchsorted(flushes, np.arange(len(cpu)), side="right")
    assert (np.diff(part[order]) >= 0).all()
    for one in set(cpus):
        assert (np.diff(order[cpu[order] == one]) > 0).all()
    for one, number in Counter(part.tolist()).items():
        seen = cpu[order[part[order] == one]]
        for which in set(seen.tolist()):
            at = np.flatnonzero(seen == which)
            assert np.abs((np.arange(len(at)) + 0.5) / len(at) - (at + 0.5) / number).max() < 4 / len(at)


# The size curve.


def test_the_size_curve_turns_where_the_caches_no_longer_hold_the_leaf_entries(tmp_path):
    machine = scaled_data_caches("vmitosis-cascade-lake", 64)
    capture = made(tmp_path / "made", size=16 * MIB, accesses=100_000, threads=4, nodes=4)
    curve = size_curve(capture, "mitosis", machine=machine, cache_share="0.25")
    assert curve.times == (1, 4, 16, 64, 256) and [len(results) for results in curve.results] == [2] * 5
    gains = [size["speedup"] for size in curve.of("mitosis")]
    assert curve.best == "mitosis" and curve.turn == 2
    assert gains[0] == pytest.approx(1, abs=0.002)
    assert gains[2] > 1.05 and gains == sorted(gains)
    assert curve.of("mitosis")[2]["bytes"] == 256 * MIB
    assert curve.message.code == "turns" and " at 256 MiB, " in curve.message.numbers["gains"]
    small = {"machine": scaled_data_caches("vmitosis-cascade-lake", 1024), "cache_share": "0.25"}
    message = size_curve(capture, "mitosis", times=[4], **small).message
    assert bool(curve.message.numbers["held"]) is curve.cached and not message.numbers["held"]
    assert message.code == "gains" and message.numbers["gains"].count(" at ") == 1
    assert curve.frame["stands_for"].tolist() == [n for n in curve.times for _ in range(2)]
    one = whatif(capture, "mitosis", machine=machine, cache_share="0.25", stands_for=16)
    assert curve.of("mitosis")[2]["speedup"] == one["speedup"][1]
    large = Setup.of(machine=machine, cache_share="0.25", stands_for=16)
    parts = replay(capture, "mitosis", large, judged=True).verdict.parts
    bound = next(part.gain for part in parts if part.kind == TABLES)
    told = one.loc[1, ["speedup_low", "speedup", "speedup_high"]]
    assert [*bound] == pytest.approx(told.tolist(), rel=1e-3)


def test_a_part_of_a_long_region_says_nothing_of_larger_runs(tmp_path, monkeypatch):
    capture = made(tmp_path / "made")
    replayed = replay(capture, ["mitosis", "thp"])
    assert replayed.fits_caches and needed_curve(capture, (), Setup.of(), replayed).times == (1, *TIMES)
    monkeypatch.setattr("ptanalyze.analysis.size.MOST_TOUCHES", 10_000)
    curve = needed_curve(capture, (), Setup.of(), replayed)
    assert (curve.times, curve.message.code, curve.best) == ((1,), "long", "mitosis")


@pytest.mark.parametrize(("how", "why"), [
    ({"stands_for": 4}, "--sizes: the sizes of runs take the place of --stands-for"),
    ({"times": [0.5]}, "--sizes 0.5: write"),
    ({"times": []}, "--sizes : write"),
    ({"weigh": "leaf"}, "page tables alone tell nothing"),
])  # fmt: skip
def test_sizes_that_cannot_be_answered(tmp_path, how, why):
    with pytest.raises(UsageError, match=why):
        size_curve(made(tmp_path / "made"), "mitosis", **how)
