"""Waits for data: what a trace rules out, beside the data caches themselves, simulated line by line."""

from collections import OrderedDict

import msgspec
import pytest

import ptanalyze
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.cost.price import OVERLAP

BIG = 256 << 20  # its leaf entries fill 8,192 lines
HALVES = {"share": 0.5, "shares": None}


@pytest.fixture(scope="module")
def machine():
    """Half of its caches are data's: 512 lines of an L2, 2,048 of the LLC, and as many are page tables'."""
    known = load_machine("vmitosis-cascade-lake")
    return msgspec.structs.replace(
        known,
        l2=msgspec.structs.replace(known.l2, bytes=1 << 16, ways=16, **HALVES),
        llc=msgspec.structs.replace(known.llc, bytes=1 << 18, ways=16, **HALVES),
    )


def made(tmp_path, pattern, accesses=200_000):
    how = {"threads": 2, "init": "single", "init_trace": False, "pattern": pattern}
    return ptanalyze.synth(tmp_path / pattern.replace(":", "-"), BIG, accesses=accesses, **how)


def from_dram(trace, lines):
    """Accesses of the second of two runs whose line is not among the last `lines`: one a page, by thread."""
    misses, caches = 0, {}
    for again in (False, True):
        for batch in trace.batches(1 << 20):
            touches = trace.chunks["touches"][batch.chunks].tolist()
            first = 0
            for thread, count in zip(trace.chunks["thread"][batch.chunks].tolist(), touches, strict=True):
                held = caches.setdefault(thread, OrderedDict())
                for page in batch.page[first : first + count].tolist():
                    if page not in held:
                        misses += again
                        if len(held) == lines:
                            held.popitem(last=False)
                    held[page] = True
                    held.move_to_end(page)
                first += count
    return misses


@pytest.mark.parametrize("pattern", ["uniform", "zipf:0.6", "zipf:1.1", "sequential", "btree"])
def test_no_more_data_are_said_to_be_in_dram_than_a_simulation_finds_there(tmp_path, machine, pattern):
    """One line a page is the fewest there can be; the data's halves of L2 and LLC are taken as one cache."""
    capture = made(tmp_path, pattern)
    linux = ptanalyze.replay(capture, "mitosis", machine=machine).results[0]
    least = float(linux.price.assumptions.split(" instruction and ")[1].split(" to ")[0]) * OVERLAP
    found = from_dram(ptanalyze.load(capture).trace, 2048 + 512) / linux.walks
    assert least <= found * 1.02 + 0.01, (least, found)


def test_uniform_reads_without_waits_for_data_are_no_corner_of_the_interval(tmp_path, machine):
    """Huge pages spare every walk: instructions are left, and a tenth of a read for each miss."""
    costs = load_costs(machine)
    linux, thp = ptanalyze.replay(made(tmp_path, "uniform"), "thp", machine=machine).results
    missing = linux.reads[8, ..., 1].sum() / linux.walks
    assert 0.6 < missing < 0.9
    left = 200_000 * costs.instructions_per_access * costs.cycles_per_instruction.low
    left += missing / OVERLAP * linux.price.data_cycles
    walks = [costs.exposed.high * one.price.walk_cycles for one in (linux, thp)]
    most = (left + walks[0]) / (left + walks[1])
    assert thp.price.speedup.high == pytest.approx(most, rel=1e-3)
    assert most < 20 < most * left / (left - missing / OVERLAP * linux.price.data_cycles)


def test_pages_beyond_all_lines_of_the_caches_have_data_in_dram(tmp_path, machine):
    """Page tables that fit, under more pages than caches have lines: nothing is known from the walks."""
    held = msgspec.structs.replace(machine.llc, bytes=1 << 21)
    large = msgspec.structs.replace(machine, llc=held)
    linux = ptanalyze.replay(made(tmp_path, "uniform"), "mitosis", machine=large).results[0]
    assert linux.reads[8, ..., 1].sum() < 0.01 * linux.walks
    reached = 2 * 65536 * (1 - (1 - 1 / 65536) ** 100_000)
    missing = (reached - 2 * ((1 << 21) + (1 << 16)) / 64) / linux.walks
    least = float(linux.price.assumptions.split(" instruction and ")[1].split(" to ")[0]) * OVERLAP
    assert 0.05 < missing == pytest.approx(least, rel=0.06)


def test_the_first_read_of_a_line_rules_nothing_out(tmp_path, machine):
    """Page after page, as traced: each line of the tables comes from DRAM once, the data may be anywhere."""
    capture = made(tmp_path, "sequential", 100_000)
    large = msgspec.structs.replace(machine, llc=msgspec.structs.replace(machine.llc, bytes=1 << 22))
    linux = ptanalyze.replay(capture, "mitosis", machine=large, cold=True).results[0]
    assert linux.reads[8, ..., 1].sum() > 10_000 and "and 0 to 1 waits" in linux.price.assumptions
