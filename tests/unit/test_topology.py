"""Frame ranges of NUMA nodes from memory blocks and zones."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.capture.live.process import (
    block_ranges,
    parse_cpus,
    parse_zones,
    read_topology,
    tidy,
    topology_of,
)

ZONEINFO = """Node 0, zone      DMA
  pages free     3840
        spanned  4095
        present  3998
  start_pfn:           1
Node 0, zone   Normal
        spanned  0
  start_pfn:           0
Node 1, zone   Normal
        spanned  8192
  start_pfn:           40960
"""


def test_cpu_lists_are_expanded():
    assert parse_cpus("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11) and parse_cpus("\n") == ()


def test_zones_without_memory_are_left_out():
    assert parse_zones(ZONEINFO) == [(1, 4096, 0), (40960, 49152, 1)]


def test_a_block_of_two_nodes_is_divided_as_their_zones_are():
    zones = [(0, 150, 0), (150, 300, 1)]
    assert sorted(block_ranges([(0, 0), (1, 0), (1, 1), (2, 1)], 100, zones)) == [
        (0, 100, 0),
        (100, 150, 0),
        (150, 200, 1),
        (200, 300, 1),
    ]


def test_frames_that_two_nodes_claim_belong_to_none():
    assert tidy([(0, 10, 0), (8, 20, 1)]) == [(0, 8, 0), (10, 20, 1)]
    assert tidy([(0, 10, 0), (10, 20, 0), (15, 18, 0)]) == [(0, 20, 0)]


RANGES = st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(0, 2)).map(
    lambda r: (r[0], r[0] + r[1], r[2])
)


@given(st.lists(RANGES, max_size=4))
def test_tidy_ranges_are_disjoint_and_claim_nothing_new(ranges):
    kept = tidy(ranges)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(kept))
    for start, end, node in kept:
        for frame in range(start, end):
            assert any(a <= frame < b and n == node for a, b, n in ranges)


def test_frames_resolve_to_their_node():
    topology = topology_of([(0, (0,), (10, 20)), (1, (1,), (20, 10))], [(0, 100, 0), (100, 300, 1)])
    assert topology.node_of_frame([0, 99, 100, 299, 300]).tolist() == [0, 0, 1, 1, -1]


def test_this_machine_has_nodes_with_cpus_and_frames():
    topology, source = read_topology()
    assert len(topology) >= 1 and source.startswith("frame ranges")
    assert all(len(node.frames) for node in topology.nodes if node.cpus)
