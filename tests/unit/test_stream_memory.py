"""What a process holds of a walk stream's file does not grow with it: every pass gives back what it read."""

import mmap

import numpy as np
import pytest

from ptanalyze.analysis.advise import workload
from ptanalyze.analysis.leaf_classes import classify_walks
from ptanalyze.core.trace import blocks, give_back
from ptanalyze.world import stream_store
from ptanalyze.world.moves import Moves
from ptanalyze.world.world import World
from strategies import build_snapshot, build_trace, place, small_machine

GIB, CHUNKS, WALKS = 1 << 30, 600, 4_200_000
SLACK = 6 << 20  # bytes around what is read that the kernel maps, too: pieces of 2 MiB


@pytest.fixture
def world(tmp_path):
    """A World whose stream of 16.8 MB of pages is a mapped file: 600 chunks of the same two threads."""
    machine = small_machine()
    trace = build_trace([(k % 2, [(GIB + k * 4096, False, 1)]) for k in range(CHUNKS)])
    trace.chunks["time"] = np.arange(CHUNKS) * 10**6
    page = np.sort(np.random.default_rng(1).integers(0, len(trace.regions) << 9, WALKS)).astype(np.uint32)
    snapshot = build_snapshot([(GIB + k * 4096, k) for k in range(512)])
    with stream_store.Writer(tmp_path, "walks") as writer:
        writer.append(page, page % 2 == 0, np.full(CHUNKS, WALKS // CHUNKS))
        stream = writer.seal(np.zeros((2, 3), np.int64))
    moves = Moves(autonuma=True, scan_period_ms=10_000)
    world = World(snapshot, trace, machine, place(trace, 2, 2), moves=moves)
    vars(world)["stream"] = stream
    return world


def held(stream):
    """Bytes of the file of a stream's pages that are resident in this process."""
    inside, total, at = False, 0, stream.page.ctypes.data
    with open("/proc/self/smaps") as lines:
        for line in lines:
            words = line.split()
            if "-" in words[0]:
                start, end = (int(bound, 16) for bound in words[0].split("-"))
                inside = start <= at < end
            elif inside and words[0] == "Rss:":
                total += int(words[1]) << 10
    return total


def load_again(world, tmp_path):
    return stream_store.load(tmp_path, "walks", CHUNKS, len(world.trace.regions), world.trace.touches)


PASSES = {
    "stored streams are looked at": load_again,
    "history": lambda world, _: world.history,
    "nodes of data": lambda world, _: world.data,
    "steady part": lambda world, _: world.steady,
    "cache pass": lambda world, _: [len(reads.page) for _, reads in world.reads()],
    "classes of walks": lambda world, _: classify_walks(world.space, world.stream, world.placement),
    "workload": lambda world, _: workload(world),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_gives_back_the_stream_behind_it(world, tmp_path, name):
    stream = world.stream
    assert int(stream.page.max()) < len(world.trace.regions) << 9
    assert held(stream) >= stream.page.nbytes  # the look at all of them is seen
    give_back(stream.page)
    kept = PASSES[name](world, tmp_path)
    assert held(stream) <= SLACK, kept


def test_blocks_are_all_of_an_array_and_behind_the_reader_nothing_is_held(world):
    stream, page = world.stream, world.stream.page
    give_back(page)
    found, most = [], 0
    for block in blocks(page, 100_000):
        found.append(np.array(block))
        most = max(most, held(stream))
    assert np.array_equal(np.concatenate(found), page)
    assert most <= 400_000 + SLACK


def test_pages_that_can_be_written_to_are_never_given_back(tmp_path):
    (tmp_path / "file").write_bytes(bytes(8 * mmap.PAGESIZE))
    private = np.memmap(tmp_path / "file", np.uint8, "c")
    private[:] = 7
    view = private[:]
    view.flags.writeable = False
    give_back(view)
    assert (private == 7).all()
