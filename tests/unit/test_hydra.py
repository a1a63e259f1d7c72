"""Hydra when threads move between nodes: copies follow by themselves (Gao et al., sections 3.1 and 5.4)."""

import numpy as np
import pytest

from ptanalyze.core.trace import Event, Placement
from ptanalyze.kernels import PTE_COPY, PTE_FANOUT, REPLICA_FAULT
from replay_cases import HEAP, case, events, run
from strategies import PAGE, REGION, build_snapshot, build_trace

pytestmark = pytest.mark.twin

PAGES = [HEAP + k * PAGE for k in range(40)]


def one_thread(nodes_of_chunks, chunks=None, happened=(), nodes_of_events=()):
    """A thread that runs each chunk (by default all pages) on the node given; node n has CPU n."""
    snapshot = build_snapshot([(va, k) for k, va in enumerate(PAGES)], vmas=[(HEAP, HEAP + REGION, "h")])
    touched = chunks or [PAGES] * len(nodes_of_chunks)
    process = case(snapshot, build_trace([(0, vas) for vas in touched], list(happened)))
    cpus = [np.array(nodes, np.int32) for nodes in (nodes_of_chunks, nodes_of_events)]
    return process._replace(placement=Placement(cpus[0], np.array([0, 1], np.int16), cpus[1], "by chunk"))


@pytest.mark.parametrize(("prefetch", "remote"), [(0, 40), (1, 20), (3, 5), (9, 1)])
def test_a_thread_that_moved_reads_each_entry_remotely_once_and_with_prefetching_each_block(prefetch, remote):
    """Figure 7: Linux stays remote, Mitosis is local at once, Hydra after its first touches."""
    process = one_thread([0, 1, 1])
    hydra = run(process, "hydra", {"prefetch": prefetch, "prefetch_on": "every"}).counters
    assert hydra.classes.tolist() == [[40, 0, 0, 0], [80, 0, 0, 0]], "walks end in their own tables"
    assert hydra.reads[8, 1].sum(axis=1).tolist() == [remote, 80 - remote]
    assert hydra.events[:, REPLICA_FAULT, 1, 0].sum() == remote
    assert hydra.events[:, PTE_COPY, 1, 0].sum() == 40
    assert run(process, "linux").counters.classes[1].tolist() == [0, 0, 80, 0]
    assert run(process, "mitosis").counters.classes[1].tolist() == [80, 0, 0, 0]


def test_both_nodes_copies_are_written_after_the_move_and_only_the_cpu_it_is_on_is_left_to_interrupt():
    flips = [(k, 0, Event.MPROTECT, (HEAP, PAGE, k % 2), 0) for k in (1, 2)]
    done = run(one_thread([0, 1], happened=flips, nodes_of_events=[0, 1]), "hydra").counters
    assert done.events[:, PTE_FANOUT].sum() == 2, "the second flip clears and sets on node 0 and on node 1"
    assert not any(key[0].startswith("ipis") for key in events(done))
