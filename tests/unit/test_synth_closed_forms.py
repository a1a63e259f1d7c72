"""What synthetic captures must add up to, by arithmetic."""

import numpy as np
import pytest

from ptanalyze.analysis.classify import walk_locality
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.setup import Setup
from ptanalyze.capture.synth.capture import fragmentation as expected_fragmentation
from ptanalyze.capture.synth.capture import leaf_classes, synthesize
from ptanalyze.capture.synth.plan import Parameters, lay_out, whole_pages
from ptanalyze.capture.synth.plan import plan as plan_of
from ptanalyze.capture.synth.process import START, frames_of
from ptanalyze.core.machine import load_machine
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.tables import enclosing_tables
from ptanalyze.world.address_space import address_space
from ptanalyze.world.fragmentation import measure

pytestmark = pytest.mark.twin

MIB = 1 << 20
NODES = 4


def made(directory, **options):
    """(Plan, Capture) of a small VM, by default with page tables alone."""
    trace = options.pop("trace", False)
    parameters = Parameters(**{"size": 64 * MIB, "guest": "visible", "accesses": 1} | options)
    plan, _ = synthesize(parameters, directory / "made", trace=trace)
    return plan, open_capture(directory / "made")


def space_of(capture):
    return address_space(capture.snapshot, np.zeros(0, np.uint64))


def shares(capture):
    """float64[sockets, classes] of all leaf entries."""
    seen = classify_pages(space_of(capture)).by_class()[0]
    return seen / seen.sum(axis=1, keepdims=True)


def expected_shares(plan):
    return np.stack(list(leaf_classes(plan).values()), axis=1)


@pytest.mark.parametrize(
    "options",
    [
        {"placement": "bind:2", "host_placement": "bind:1"},
        {"placement": "first-touch"},
        {"placement": "first-touch", "init": "single"},
        {"guest": "oblivious", "host_placement": "bind:3"},
        {"guest": "oblivious", "init": "single"},
        {"placement": "first-touch", "host_placement": "bind:0"},
        {"guest": "native", "placement": "bind:1"},
        {"guest": "native", "threads": 3},
    ],
    ids=str,
)
def test_placement_that_draws_nothing_gives_exact_shares(options, tmp_path):
    plan, capture = made(tmp_path, **options)
    assert np.allclose(shares(capture), expected_shares(plan), atol=0.002)


@pytest.mark.parametrize("guest", ["visible", "oblivious"])
def test_two_interleaved_dimensions_are_both_local_once_in_n_squared(guest, tmp_path):
    options = {"host_placement": "interleave", "size": 256 * MIB}
    if guest == "visible":
        options["placement"] = "interleave"
    plan, capture = made(tmp_path, guest=guest, **options)
    assert np.allclose(expected_shares(plan)[:, 0], 1 / NODES**2)
    tables = plan.regions
    spread = np.sqrt(1 / NODES**2 * (1 - 1 / NODES**2) / tables)
    assert np.abs(shares(capture)[:, 0] - 1 / NODES**2).max() < 5 * spread
    assert np.abs(shares(capture)[:, 0].mean() - 1 / NODES**2) < 5 * spread / 2


def test_threads_that_touch_their_own_part_first_walk_locally_in_both_dimensions(tmp_path):
    _, capture = made(tmp_path, size=32 * MIB, trace=True, sharing="private", accesses=10000)
    seen, how = walk_locality(capture, Setup.of(machine=load_machine("vmitosis-cascade-lake")))
    assert how.startswith("recorded")
    local, *rest = seen.by_class()[0].T
    assert local.sum() > 32 * MIB // 4096 and not any(count.any() for count in rest)


def metric_of(capture):
    lines = measure(space_of(capture)).counts[0].sum(axis=0)
    return float(lines @ np.arange(len(lines)) / lines.sum())


def test_one_thread_without_a_co_runner_is_not_fragmented_at_all(tmp_path):
    plan, capture = made(tmp_path, threads=1)
    assert metric_of(capture) == 1.0 == expected_fragmentation(plan)


def test_fragmentation_follows_its_closed_form_from_1_to_8(tmp_path):
    found = []
    for chance in (0.0, 0.05, 0.2, 0.5, 0.9, 1.0):
        place = tmp_path / str(chance)
        place.mkdir()
        plan, capture = made(place, threads=1, size=32 * MIB, fragmentation=chance)
        found.append(metric_of(capture))
        assert found[-1] == pytest.approx(expected_fragmentation(plan), rel=0.06)
    assert found == sorted(found) and found[-1] == 8.0


@pytest.mark.parametrize("levels", [4, 5])
def test_the_table_count_of_the_paper_s_largest_workload(levels):
    """vMitosis, Table 6: 1.5 TiB of 4 KiB pages take 3 GB a dimension."""
    regions = (START >> 21) + np.arange(whole_pages("1.5T") >> 21)
    layout = lay_out(regions, np.zeros(len(regions), bool), levels)
    by_level = {int(level): int(np.count_nonzero(layout.level == level)) for level in np.unique(layout.level)}
    assert by_level == {1: 786432, 2: 1536, 3: 3, 4: 1} | ({5: 1} if levels == 5 else {})
    assert round(len(layout) * 4096 / 1e9, 1) == 3.2 and round(len(layout) * 4096 / 2**30, 1) == 3.0
    assert (layout.parent == enclosing_tables(layout.level.astype(np.int64), levels)).all()


def test_only_a_remainder_has_small_pages_when_all_regions_are_huge(tmp_path):
    size = 16 * MIB + 5 * 4096
    _, capture = made(tmp_path, guest="native", size=size, thp=1.0, threads=1)
    guest = capture.snapshot.guest
    assert np.count_nonzero(guest.level == 1) == 1
    assert np.count_nonzero(guest.entries[guest.level == 1]) == 5


def test_a_machine_that_is_full_spills_to_the_next_node(tmp_path):
    _, capture = made(
        tmp_path, guest="native", size=24 * MIB, nodes=2, placement="bind:0", node_memory=whole_pages("16M")
    )
    node = capture.snapshot.guest.node
    assert set(node.tolist()) == {0}
    leaves = capture.snapshot.guest.entries[capture.snapshot.guest.level == 1]
    frames = (leaves >> np.uint64(12) & np.uint64((1 << 40) - 1)).astype(np.int64)
    assert set(np.unique(capture.snapshot.topology.node_of_frame(frames)).tolist()) == {0, 1}


@pytest.mark.parametrize("nodes, guest", [(4, "oblivious"), (16, "oblivious"), (60, "visible")])
def test_the_largest_workload_fits_a_guest_by_default(nodes, guest):
    plan = plan_of(Parameters(size=whole_pages("1.5T"), nodes=nodes, guest=guest))
    frames = frames_of(plan)
    assert frames.guest * frames.guest_nodes <= 1 << 32
    assert frames.room.max() <= frames.guest and frames.room.sum() > plan.pages
    assert frames.host * nodes >= frames.guest * frames.guest_nodes
