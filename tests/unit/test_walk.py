import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptanalyze.analysis.walk import explain
from ptanalyze.core.errors import UNKNOWN_NODE, UsageError
from strategies import FRAMES_PER_NODE, Page, build_snapshot

pytestmark = pytest.mark.twin

VA = 0x7F12_3456_7000


@pytest.mark.parametrize(
    ("levels", "host_levels", "reads"), [(4, None, 4), (5, None, 5), (4, 4, 24), (5, 5, 35), (4, 5, 29)]
)
def test_a_cold_walk_reads_every_level_of_both_dimensions(levels, host_levels, reads):
    host = None if host_levels is None else []
    snapshot = build_snapshot([(VA, 77)], host, levels=levels, host_levels=host_levels or 4)
    path = explain(snapshot, VA + 0x123)
    assert len(path.steps) == reads
    assert (path.page_frame, path.page_bytes, path.stopped) == (77, 4096, "")


def test_a_huge_page_ends_the_walk_one_level_early_at_the_frame_of_the_address():
    snapshot = build_snapshot([Page(VA & -(1 << 21), 512 * 9, 2)])
    path = explain(snapshot, VA)
    assert [step.level for step in path.steps] == [4, 3, 2]
    assert path.page_frame == 512 * 9 + (VA >> 12) % 512
    assert path.page_bytes == 2 << 20


@given(guest=st.integers(1, 3), host=st.integers(1, 3))
@settings(max_examples=9, deadline=None)
def test_mixed_leaf_sizes_map_the_smaller_of_both(guest, host):
    address = 5 << 30
    frame = 3 << 18
    snapshot = build_snapshot([Page(address, frame, guest)], [Page(frame << 12, 7 << 18, host)])
    path = explain(snapshot, address)
    assert path.page_frame == 7 << 18
    assert path.page_bytes == 1 << (3 + 9 * min(guest, host))


def test_an_unmapped_address_says_at_which_level_it_stops():
    path = explain(build_snapshot([(VA, 77)]), VA + (1 << 12))
    assert path.page_frame is None
    assert path.stopped == "the PT entry at level 1 is not present"


def test_a_guest_table_that_the_host_does_not_map_ends_the_walk():
    snapshot = build_snapshot([(VA, 77)], [])
    hollow = snapshot.host.entries.copy()
    hollow[snapshot.host.level == 1] = 0
    snapshot = build_snapshot([(VA, 77)], [])
    snapshot.host.entries[:] = hollow
    path = explain(snapshot, VA)
    assert path.page_frame is None
    assert "ePT entry at level 1 is not present" in path.stopped


def test_a_page_that_the_host_does_not_map_has_no_frame():
    snapshot = build_snapshot([(VA, 77)], [])
    leaf = int(np.flatnonzero((snapshot.host.level == 1) & (snapshot.host.base == 0))[0])
    snapshot.host.entries[leaf, 77] = 0
    path = explain(snapshot, VA)
    assert [step.dimension for step in path.steps].count("gPT") == 4
    assert (path.page_frame, path.page_bytes, path.page_node) == (None, None, UNKNOWN_NODE)
    assert path.stopped == "the ePT entry at level 1 is not present"


def test_a_guest_table_whose_frame_nobody_knows_ends_the_walk_before_the_host():
    snapshot = build_snapshot([(VA, 77)], [])
    snapshot.guest.frame[snapshot.guest.level == 3] = -1
    path = explain(snapshot, VA)
    assert [step.dimension for step in path.steps] == ["ePT"] * 4 + ["gPT"]
    assert path.stopped == "the frame of the gPT table at level 3 is unknown"


def test_each_step_knows_the_node_of_its_table_and_the_page_its_own():
    snapshot = build_snapshot([(VA, FRAMES_PER_NODE + 5)], table_nodes=(0, 1))
    path = explain(snapshot, VA)
    assert [step.node for step in path.steps] == [0, 1, 0, 1]
    assert path.page_node == 1


@pytest.mark.parametrize("address", [-1, 1 << 48])
def test_an_address_beyond_the_levels_is_refused(address):
    with pytest.raises(UsageError, match="outside what 4 levels map"):
        explain(build_snapshot([(VA, 1)]), address)
