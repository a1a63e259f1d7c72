"""Captures that stand for larger programs: what they say, and what shrinks when they are replayed."""

import json

import numpy as np
import pytest

from ptanalyze import synth, whatif
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import Array, load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.snapshot import read_snapshot
from ptanalyze.world.moves import Moves, scaled_machine, scaled_moves

MIB = 1 << 20


def made(place, **parameters):
    known = {"size": 4 * MIB, "accesses": 20_000, "threads": 2, "init_trace": False}
    synthesize(Parameters(**{**known, **parameters}), place)
    return open_capture(place)


def world_of(capture, **options):
    return Setup.of(machine="vmitosis-cascade-lake", **options).world(capture.snapshot, capture.trace)


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
    assert (small.tlb.l2, small.tlb.l1_2m, small.tlb.l2_1g) == (
        Array(entries=12, ways=12),
        Array(entries=12, ways=4),
        Array(entries=1, ways=1),
    )
    assert small.tlb.l1_1g == Array(entries=1, ways=1)
    assert scaled_machine(machine, 16).tlb.l1_2m == machine.tlb.l1_2m
    no_second = load_machine("epyc-7543-16-nodes")
    assert scaled_machine(no_second, 16).tlb.l1_1g == Array(entries=4, ways=4)
    assert small.walk_caches.pde == small.walk_caches.nested == Array(entries=1, ways=1)
    assert scaled_machine(machine, 100).tlb.l2 == Array(entries=12, ways=12), "of 15 those that fill its sets"
    assert small.walk_caches.pml5e is None
    assert scaled_machine(machine, 4).walk_caches.pde == Array(entries=8, ways=4)


def test_a_scaled_capture_answers_as_the_whole_program_where_huge_pages_reach_farther(tmp_path):
    """Uniform reads of 4 GiB, of which TLBs reach 3 with 2 MiB pages, and of 1/16 of it: as many walks."""
    how = {"accesses": 200_000, "threads": 4, "init": "single", "init_trace": False}
    machine = {"machine": "vmitosis-cascade-lake", "cache_share": "0.25"}
    whole = whatif(synth(tmp_path / "whole", 4 << 30, **how), ["mitosis", "thp"], **machine)
    small = whatif(synth(tmp_path / "small", 256 * MIB, scale=16, **how), ["mitosis", "thp"], **machine)
    assert small["walks"].tolist() == pytest.approx(whole["walks"].tolist(), rel=0.03)
    assert small["reads_per_walk"].tolist() == pytest.approx(whole["reads_per_walk"].tolist(), rel=0.03)
    assert small["speedup"].tolist() == pytest.approx(whole["speedup"].tolist(), rel=0.05)
    assert small["speedup"][2] > 1


def test_a_pass_over_all_pages_takes_as_long_as_over_those_of_the_program():
    moves = scaled_moves(Moves(autonuma=True, rate_limit_mb_s=60.0), 120)
    assert (moves.scan_size_mb, moves.rate_limit_mb_s) == (pytest.approx(256 / 120), 0.5)
    assert moves.scan_period_ms == 1000


def test_a_scaled_capture_is_replayed_with_less_and_says_so(tmp_path):
    plain, scaled = made(tmp_path / "plain"), made(tmp_path / "scaled", scale=16)
    assert (plain.snapshot.scale, scaled.snapshot.scale) == (1, 16)
    assert "scale" not in plain.snapshot.facts
    worlds = [world_of(capture, autonuma=True) for capture in (plain, scaled)]
    assert worlds[0].machine.llc.bytes >= 15 * worlds[1].machine.llc.bytes
    assert [world.moves.scan_size_mb for world in worlds] == [256, 16]
    assert worlds[0].notes == () and "a program of 16 times its memory" in worlds[1].notes[0]


def test_turns_are_shorter_as_each_access_of_a_scaled_trace_stands_for_more_time(tmp_path):
    plain, scaled = made(tmp_path / "plain"), made(tmp_path / "scaled", scale=16)
    assert (plain.trace.chunks["accesses"].max(), scaled.trace.chunks["accesses"].max()) == (4096, 256)
    assert plain.trace.accesses == scaled.trace.accesses == 20_000
    assert np.array_equal(plain.snapshot.guest.entries, scaled.snapshot.guest.entries)


@pytest.mark.parametrize("scale", [0, -1, 1_000_001])
def test_a_scale_out_of_range_is_refused(tmp_path, scale):
    with pytest.raises(UsageError, match=rf"--scale {scale}: 1 to 1000000"):
        made(tmp_path / "none", scale=scale)


@pytest.mark.parametrize("scale", [0, -3, 1.5, "120", None, [2], 10**30])
def test_a_capture_whose_scale_is_none_is_damaged(tmp_path, scale):
    capture = made(tmp_path / "scaled", scale=16)
    path = capture.directory / "snapshot.json"
    record = json.loads(path.read_text())
    record["facts"]["scale"] = scale
    path.write_text(json.dumps(record))
    with pytest.raises(CaptureError, match=r"facts\.scale") as caught:
        read_snapshot(tmp_path / "scaled")
    assert "\n" not in str(caught.value)
