"""Two threads carry walks through their steps as one does; none is left when nobody asks any more."""

import threading

import numpy as np
import pytest
from test_walker import every_touch_walks

from ptanalyze.core.trace import Event
from ptanalyze.kernels import walker
from ptanalyze.world.address_space import address_space
from ptanalyze.world.cache_pass import Steps, cache_pass
from strategies import build_snapshot, build_trace, place, small_machine

GIB, KIB4 = 1 << 30, 1 << 12
CHUNKS, WALKS = 40, 300


@pytest.fixture
def batches(monkeypatch):
    """What makes an iterator of Reads, in pieces of 128 walks; chunk 7 has no walk."""
    monkeypatch.setattr(walker, "PIECE", 128)
    rng, mapped = np.random.default_rng(6), [(GIB * (k + 1), 5 + k) for k in range(6)]
    touched = GIB * rng.integers(1, 7, (CHUNKS, WALKS)) + KIB4 * rng.integers(0, 512, (CHUNKS, WALKS))
    addresses = [[] if chunk == 7 else row for chunk, row in enumerate(touched.tolist())]
    events = [(chunk, 0, Event.MUNMAP, (8 * GIB, KIB4), 0) for chunk in range(0, CHUNKS, 3)]
    trace = build_trace([(chunk % 2, row) for chunk, row in enumerate(addresses)], events)
    snapshot, machine = build_snapshot(mapped, []), small_machine(nested=True)
    space, placement = address_space(snapshot, trace.regions), place(trace, 2, machine.nodes)
    stream = every_touch_walks(trace)
    return lambda **how: cache_pass(space, placement, machine, stream, events=trace.events, **how)


@pytest.mark.parametrize("batch", [1, 1000, 1 << 20])
def test_two_threads_find_what_one_finds(batches, batch):
    one, two = (list(batches(batch=batch, threads=threads)) for threads in (1, 2))
    assert [chunks for chunks, _ in one] == [chunks for chunks, _ in two]
    for (_, alone), (_, shared) in zip(one, two, strict=True):
        for column, other in zip(alone, shared, strict=True):
            np.testing.assert_array_equal(column, other)
    assert sum(len(reads.page) for _, reads in one) == (CHUNKS - 1) * WALKS


def test_no_thread_is_left_when_nobody_asks_for_the_rest(batches):
    before = set(threading.enumerate())
    rest = batches(batch=1000, threads=2)
    next(rest)
    assert set(threading.enumerate()) - before
    rest.close()
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("step", ["locate", "descend", "fetch"])
def test_what_a_thread_fails_with_is_raised(batches, step, monkeypatch):
    """Also where it is not the last piece of a batch."""
    real, count = getattr(Steps, step), []

    def fail(steps, piece, *how):
        count.append(piece)
        if len(count) == 3:
            raise MemoryError("no room")
        return real(steps, piece, *how)

    monkeypatch.setattr(Steps, step, fail)
    before = set(threading.enumerate())
    with pytest.raises(MemoryError, match="no room"):
        list(batches(batch=1000, threads=2))
    assert not set(threading.enumerate()) - before
