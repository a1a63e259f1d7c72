"""Recorded KVM guests: joined, checked, walked and classified against following the raw pointers."""

import numpy as np
import pytest

from naive.nested import Pointers, published_counts
from ptanalyze.analysis.leaf_classes import classify_pages
from ptanalyze.analysis.walk import explain
from ptanalyze.capture.check import FAILED, check_capture
from ptanalyze.formats.capture import open_capture
from ptanalyze.world.address_space import Nested, address_space
from samples import touched
from vm_samples import NAMES, joined

pytestmark = pytest.mark.twin

SMALL = NAMES[1:]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """{name: (Snapshot, Fit, capture directory)}"""
    place = tmp_path_factory.mktemp("vms")
    made = {name: joined(name, place) for name in NAMES}
    return {name: (open_capture(path).snapshot, fit, path) for name, (path, fit) in made.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_host_maps_every_table_and_page_of_its_own_guest(recorded, name):
    _, fit, _ = recorded[name]
    assert fit.tables.mapped == fit.tables.frames > 300
    assert fit.pages.mapped == fit.pages.frames > 25_000


@pytest.mark.parametrize("name", NAMES)
def test_no_check_of_a_joined_capture_fails(recorded, name):
    findings = list(check_capture(open_capture(recorded[name][2])))
    assert [f for f in findings if f.verdict == FAILED] == []
    assert {f.name for f in findings if f.wrong} == {"vmas: known"}


@pytest.mark.parametrize("name", SMALL)
def test_every_touched_page_translates_to_what_the_pointers_lead_to(recorded, name):
    snapshot, _, path = recorded[name]
    guest, host = Pointers(snapshot.guest), Pointers(snapshot.host)
    addresses = touched((path.parent / "touch.log").read_text())
    frames = np.array([guest.walk(int(va))[0] for va in addresses])
    expected = np.array([host.walk(int(frame) << 12)[0] for frame in frames])
    assert np.array_equal(Nested(snapshot).host_frames(frames), expected)
    for k in range(0, len(addresses), len(addresses) // 20):
        assert explain(snapshot, int(addresses[k])).page_frame == expected[k]


@pytest.mark.parametrize("name", NAMES)
def test_regions_of_touched_pages_are_translated_by_leaf_tables_of_the_snapshot(recorded, name):
    snapshot, _, path = recorded[name]
    addresses = touched((path.parent / "touch.log").read_text())
    space = address_space(snapshot, np.unique(addresses >> np.uint64(21)))
    assert space.inferred_tables == 0
    assert set(space.unresolved.values()) == {0}
    assert (space.tables.host_leaf[: space.guest_tables] >= space.guest_tables).all()


@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_those_of_the_published_definition(recorded, name):
    snapshot, _, _ = recorded[name]
    sockets = [node.id for node in snapshot.topology.nodes]
    expected = published_counts(
        snapshot.guest,
        snapshot.host,
        lambda f: int(snapshot.topology.node_of_frame(np.array([f]))[0]),
        sockets,
    )
    found = classify_pages(address_space(snapshot, np.zeros(0, np.uint64))).by_class()[0]
    assert found.tolist() == [[expected[s, c] for c in ("LL", "LR", "RL", "RR")] for s in sockets]


def test_guests_that_see_their_nodes_agree_with_the_host_and_others_cannot(recorded):
    bound, _, _ = recorded["visible-bound"]
    facts = bound.facts["vm"]
    by_host = {str(node): int((bound.guest.node == node).sum()) for node in range(4)}
    assert facts["guest_tables_by_guest_node"] == by_host and not facts["numa_oblivious"]
    oblivious, _, _ = recorded["oblivious-interleaved-thp"]
    assert oblivious.facts["vm"]["numa_oblivious"]
    assert oblivious.facts["vm"]["guest_tables_by_guest_node"] == {"0": len(oblivious.guest)}
    assert len(np.unique(oblivious.guest.node)) == 4
