"""A World: its passes, kept when it only gets further notes, and its reads beside another simulator's."""

import os

import numpy as np
import pytest
from msgspec.structs import replace

from naive import physical
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.plan import Parameters
from ptanalyze.core.machine import Array, load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.world.captured_world import captured_world
from ptanalyze.world.site import Site
from replay_cases import case, world_of
from strategies import build_snapshot, build_trace

pytestmark = pytest.mark.twin

ACCESSES = 5_000 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 60_000
HEAP = 0x5600_0000_0000


def small_world():
    trace = build_trace([(0, [HEAP, HEAP + 4096])])
    return world_of(case(build_snapshot([(HEAP, 1), (HEAP + 4096, 2)]), trace))


def test_notes_are_added_and_every_pass_is_kept():
    world = small_world().noted("first")
    passes = {name: getattr(world, name) for name in ("space", "stream", "readers", "history", "data")}
    again = world.noted("second", "third")
    assert again.notes == ("first", "second", "third")
    assert world.notes == ("first",)
    assert all(vars(again)[name] is made for name, made in passes.items())


def test_what_is_known_before_events_is_the_same_of_a_site_and_of_its_world():
    world = small_world()
    site = Site(world.snapshot, world.trace, world.machine, world.placement)
    assert (site.nodes, site.sockets, site.readers) == (world.nodes, world.sockets, world.readers)
    assert site.captured is site and world.reshaped(domains=2).captured is world
    assert not hasattr(site, "history")


@pytest.mark.parametrize("pattern", ["uniform", "zipf:0.8", "zipf:1.2", "sequential"])
@pytest.mark.parametrize(("mib", "nodes", "llc_kib", "off"), [(64, 2, 64, 0), (2048, 4, 1024, 0.002)])
def test_reads_from_dram_are_those_of_a_simulator_by_physical_addresses(
    pattern, mib, nodes, llc_kib, off, tmp_path
):
    """Where table pages lie one after the other in memory; with several nodes, on each of them."""
    asked = Parameters(
        size=mib << 20, nodes=nodes, pattern=pattern, init_trace=False, accesses=ACCESSES, seed=3
    )
    synthesize(asked, tmp_path / "capture")
    capture, machine = open_capture(tmp_path / "capture"), load_machine("epyc-7543-16-nodes")
    few = replace(machine.tlb, l1_4k=Array(entries=16, ways=4), l2=Array(entries=64, ways=4))
    llc, l2 = replace(machine.llc, bytes=llc_kib << 10), replace(machine.l2, bytes=16 << 10)
    machine = replace(machine, tlb=few, llc=llc, l2=l2)
    world = captured_world(capture.snapshot, capture.trace, machine)
    dram = sum(int(np.bitwise_count(reads.dram).sum()) for _, reads in world.reads())

    pages = np.concatenate([touches.page for touches in capture.trace.batches(1)])
    pages = capture.trace.regions[pages >> 9].astype(np.int64) << 9 | pages & 511
    cpu = np.repeat(world.placement.chunk_cpu, capture.trace.chunks["touches"])
    cpu_node = world.placement.cpu_node.tolist()
    touches = zip(cpu.tolist(), pages.tolist(), strict=True)
    other = physical.replay(capture.snapshot.guest, machine, cpu_node, touches)
    assert len(world.stream) == sum(cpu.walks for cpu in other)
    assert dram / len(world.stream) == pytest.approx(
        sum(cpu.dram for cpu in other) / len(world.stream), abs=off
    )
