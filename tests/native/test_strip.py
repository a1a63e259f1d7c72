"""What the tracer leaves out changes no first-level TLB that its header names: plain LRU lists say so."""

import ctypes
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native import tracing
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.trace import read_trace
from ptanalyze.formats.trace_writer import trace_writer
from ptanalyze.kernels import trace_codec as strip_kernel
from ptanalyze.world.address_space import address_space
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import place
from trace_copy import write_event

CHUNK = 4096
REACH = [(1, 16, 4), (1, 1, 64), (2, 8, 4), (2, 4, 8), (2, 1, 64), (3, 1, 64)]
LARGER = [(1, 32, 4), (1, 16, 6), (1, 48, 5), (2, 16, 4), (2, 8, 5)]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tracing.encoder(tmp_path_factory.mktemp("strip"))


def strip(library, accesses, room=CHUNK, whole=False):
    """[[(page, store, count)] of each chunk] that the tracer writes for [(page, store)]."""
    packed = np.array([page << 1 | store for page, store in accesses], np.uint64)
    out = np.zeros(2 * len(packed) + 2, np.uint64)
    library.strip.restype = ctypes.c_size_t
    n = library.strip(
        ctypes.c_void_p(packed.ctypes.data), ctypes.c_size_t(len(packed)), ctypes.c_uint32(room),
        ctypes.c_int(whole), ctypes.c_void_p(out.ctypes.data),
    )  # fmt: skip
    chunks = [[]]
    for word in out[:n].tolist():
        if word:
            chunks[-1].append((word >> 19, bool(word & 1), word >> 1 & (1 << 18) - 1))
        else:
            chunks.append([])
    return chunks[:-1]


def merged(accesses):
    """[(page, store, count)] of consecutive accesses."""
    touches = []
    for page, store in accesses:
        if touches and touches[-1][0] == page:
            touches[-1] = (page, touches[-1][1] or store, touches[-1][2] + 1)
        else:
            touches.append((page, store, 1))
    return touches


def in_chunks(touches, room=CHUNK):
    return [touches[at : at + room] for at in range(0, len(touches), room)]


def after(touches, array):
    """([(page, store) of each touch that misses], what each set holds at the end, the oldest first)."""
    size, sets, ways = array
    held, misses = {}, []
    for page, store, _ in touches:
        entry = page >> 9 * (size - 1)
        lru = held.setdefault(entry % sets, {})
        if entry in lru:
            del lru[entry]
        else:
            misses.append((page, store))
            if len(lru) == ways:
                del lru[next(iter(lru))]
        lru[entry] = True
    return misses, {number: [*lru] for number, lru in held.items()}


def stored(touches):
    return {page for page, store, _ in touches if store}


def stays_exact(library, accesses, room=CHUNK):
    """The stripped records of each chunk, after checking them; returns how many there are."""
    chunks, whole = strip(library, accesses, room), in_chunks(merged(accesses), room)
    for array in REACH + LARGER if chunks != whole else ():
        assert after(chain(*chunks), array) == after(chain(*whole), array), array
    for kept, touches in zip(chunks, whole, strict=True):
        assert sum(count for *_, count in kept) == sum(count for *_, count in touches)
        assert stored(kept) == stored(touches)
    return sum(map(len, chunks))


def test_the_header_names_the_arrays_that_the_tests_check(library):
    n = ctypes.c_size_t.in_dll(library, "reaches").value
    rows = np.ctypeslib.as_array((ctypes.c_uint16 * (4 * n)).in_dll(library, "reach")).reshape(n, 4)
    assert [tuple(row) for row in rows[:, :3].tolist()] == REACH == list(strip_kernel.REACH)
    assert not rows[:, 3].any()


GIB, REGION = 1 << 18, 1 << 9  # in pages
PAGES = {
    "one set of 16": st.integers(0, 7).map(lambda k: 5 + 16 * k),
    "sets of 16 and their neighbours": st.integers(0, 120),
    "regions of one set of 8": st.integers(0, 6).map(lambda k: 8 * REGION * k + 3 * k),
    "regions of one set of 4": st.integers(0, 10).map(lambda k: 4 * REGION * k + 3 * k),
    "many pages, many regions": st.integers(0, 90).map(lambda k: (k * 37 % 101) * REGION + k),
    "several GiB": st.integers(0, 70).map(lambda k: k * GIB + k % 16 * REGION + 11 * k),
}


@pytest.mark.parametrize("kind", PAGES)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_misses_and_what_the_tlb_holds_are_those_of_all_touches(library, kind, data):
    pages = st.one_of(PAGES[kind], PAGES["one set of 16"], st.sampled_from([1, 2 * GIB]))
    accesses = data.draw(st.lists(st.tuples(pages, st.booleans()), min_size=1, max_size=300))
    stays_exact(library, accesses, data.draw(st.sampled_from([7, 64, CHUNK])))


@pytest.mark.parametrize("kind", PAGES)
def test_long_runs_of_hot_pages_between_others_stay_exact(library, kind):
    """Working sets that drift: a few hot pages, a stream, now and then a jump; runs beyond a chunk."""
    rng = np.random.default_rng(list(PAGES).index(kind))
    spread = {"one set of 16": 16, "regions of one set of 8": 8 * REGION, "several GiB": GIB + REGION + 1}
    step = spread.get(
        kind,
        {"regions of one set of 4": 4 * REGION, "many pages, many regions": 37 * REGION + 1}.get(kind, 1),
    )
    for hot, every in ((3, 2), (5, 3), (20, 5), (45, 9), (70, 4)):
        base = rng.integers(0, 200, 6000) // 50 * hot + rng.zipf(1.3, 6000) % hot
        stream = np.arange(6000) // every
        page = np.where(rng.integers(0, every, 6000) == 0, 7000 + stream, base) * step
        accesses = list(zip(page.tolist(), (rng.integers(0, 3, 6000) == 0).tolist(), strict=True))
        stays_exact(library, accesses)


def test_a_loop_over_few_pages_keeps_the_first_and_the_last_touch_of_each(library):
    accesses = [(page, False) for _ in range(100) for page in (1, 2, 900, 77777)]
    assert [len(chunk) for chunk in strip(library, accesses)] == [8]


def test_a_loop_over_more_pages_of_a_set_than_it_has_ways_keeps_every_touch(library):
    accesses = [(16 * k, False) for _ in range(50) for k in range(5)]
    assert stays_exact(library, accesses) == 250


def test_the_first_store_to_a_page_is_a_record_of_its_own(library):
    accesses = [
        (1, False),
        (2, False),
        (1, False),
        (2, False),
        (1, True),
        (2, False),
        (1, True),
        (2, False),
        (1, False),
    ]
    (chunk,) = strip(library, accesses)
    assert [(page, store) for page, store, _ in chunk] == [
        (1, False),
        (2, False),
        (1, True),
        (2, False),
        (1, True),
    ]
    assert sum(count for *_, count in chunk) == len(accesses)


def test_nothing_is_forgotten_and_nothing_remembered_across_chunks(library):
    accesses = [(page, False) for _ in range(20) for page in (1, 2)]
    chunks = strip(library, accesses, room=10)
    assert [sum(count for *_, count in chunk) for chunk in chunks] == [10] * 4
    for chunk in chunks:
        assert [page for page, *_ in chunk] == [1, 2, 1, 2]


def test_without_stripping_consecutive_accesses_are_merged_and_nothing_else(library):
    rng = np.random.default_rng(5)
    accesses = [
        (int(page), bool(page & 1)) for page in np.repeat(rng.integers(0, 9, 6000), rng.integers(1, 4, 6000))
    ]
    assert strip(library, accesses, whole=True) == in_chunks(merged(accesses))


def test_where_nothing_can_be_left_out_it_is_no_longer_tried(library):
    accesses = [(int(page), False) for page in np.random.default_rng(6).integers(0, 1 << 20, 9 * CHUNK)]
    assert stays_exact(library, accesses) == sum(map(len, in_chunks(merged(accesses))))
    hot = [(page, False) for _ in range(10 * CHUNK) for page in (1, 2)]
    sizes = [len(chunk) for chunk in strip(library, accesses + hot)]
    assert min(sizes) < 10 and all(a >= b for a, b in pairwise(sizes[10:]))


def test_a_real_program_walks_the_same_under_every_machine(library, tmp_path):
    """Chunk by chunk, by the tracer's own code: pages, stores, hits and walks by chunk."""
    capture = open_capture("sysbench-memory")  # the one that is not stripped
    trace = capture.trace
    short = copy_of(trace, tmp_path / "trace.ptt", lambda accesses: strip(library, accesses)[0])
    assert short.touches < trace.touches / 1.2 and short.regions.tolist() == trace.regions.tolist()
    space, placement = address_space(capture.snapshot, trace.regions), place(trace, 3, 2)
    for name in machine_names():
        tlb = load_machine(name).tlb
        expected, found = (TlbFilter(t, space, placement, tlb).first() for t in (trace, short))
        for column in ("page", "write", "offset", "hits"):
            assert np.array_equal(getattr(found, column), getattr(expected, column)), (name, column)


def copy_of(trace, path, records_of):
    """The trace with other records for the accesses of each chunk."""
    with trace_writer(path, **trace.facts) as writer:
        events = list(trace.events)
        for batch in trace.batches(1 << 16):
            number = (trace.regions[batch.page >> 9].astype(np.int64) << 9) | (batch.page & 511)
            start = int(trace.chunks["first"][batch.chunks.start])
            for at in range(batch.chunks.start, batch.chunks.stop):
                while events and events[0]["chunk"] <= at:
                    write_event(writer, events.pop(0))
                chunk = trace.chunks[at]
                first = int(chunk["first"]) - start
                part = slice(first, first + int(chunk["touches"]))
                page, count = np.repeat(number[part], batch.count[part]), batch.count[part]
                write = np.zeros(len(page), bool)
                write[np.cumsum(count) - count] = batch.write[part]
                records = records_of(list(zip(page.tolist(), write.tolist(), strict=True)))
                fields = {name: chunk[name] for name in ("thread", "cpu", "time", "instructions")}
                writer.chunk(*map(np.array, zip(*records, strict=True)), **fields)
        for event in events:
            write_event(writer, event)
    return read_trace(path)


def test_a_page_that_is_touched_without_end_fills_no_count(library):
    (chunk,) = strip(library, [(3, True)] * 200_000 + [(4, False)] + [(3, False)] * 200_000)
    assert all(count < 1 << 18 for *_, count in chunk)
    assert sum(count for *_, count in chunk) == 400_001
