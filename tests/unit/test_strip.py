"""What is left out of a trace changes no TLB, no walk and no count; a TLB that it would change is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive.setassoc import SetAssoc
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.core.trace import Event
from ptanalyze.formats.foreign.text_traces import import_lackey
from ptanalyze.formats.trace import read_trace
from ptanalyze.kernels.trace_codec import REACH, keep
from ptanalyze.world.address_space import address_space
from ptanalyze.world.site import bare_snapshot
from ptanalyze.world.tlb_filter import TlbFilter
from strategies import build_snapshot, build_trace, place, small_tlb
from stripped_traces import same_walks, stripped, walks

pytestmark = pytest.mark.twin

LARGER = ((1, 32, 4), (1, 48, 5), (2, 16, 4), (2, 8, 5))
GIB, REGION = 1 << 18, 1 << 9  # in pages
PAGES = st.one_of(
    st.integers(0, 7).map(lambda k: 5 + 16 * k),
    st.integers(0, 120),
    st.integers(0, 10).map(lambda k: 4 * REGION * k + 3 * k),
    st.integers(0, 90).map(lambda k: (k * 37 % 101) * REGION + k),
    st.integers(0, 70).map(lambda k: k * GIB + k % 16 * REGION + 11 * k),
)


def after(pages, array):
    """(positions of the misses among `pages`, the array's sets at the end)."""
    size, sets, ways = array
    lru = SetAssoc(sets, ways)
    entries = [page >> 9 * (size - 1) for page in pages]
    misses = [at for at, entry in enumerate(entries) if not lru.touch(entry, entry)]
    return misses, [list(row) for row in lru.sets]


def stays_exact(page, write):
    count = np.ones(len(page), np.int64)
    kept = keep(np.array(page, np.int64), np.array(write, bool), count)
    left = np.flatnonzero(kept)
    for array in REACH + LARGER:
        misses, held = after(page, array)
        found, holds = after([page[at] for at in left], array)
        assert [int(left[at]) for at in found] == misses and holds == held, array
    for number in set(page):
        mine = [at for at in range(len(page)) if page[at] == number]
        assert sum(int(count[at]) for at in mine if kept[at]) == len(mine)
        stores = [at for at in mine if write[at]]
        assert not stores or kept[stores[0]]
    return kept


@settings(deadline=None)
@given(touches=st.lists(st.tuples(PAGES, st.booleans()), max_size=300))
def test_misses_of_every_array_and_what_it_holds_are_those_of_all_touches(touches):
    stays_exact([page for page, _ in touches], [write for _, write in touches])


@pytest.mark.parametrize("step", [1, 16, 4 * REGION, 37 * REGION + 1, GIB + REGION + 1])
def test_drifting_sets_of_hot_pages_stay_exact(step):
    rng = np.random.default_rng(step)
    for hot in (3, 5, 20, 70):
        base = rng.integers(0, 200, 2500) // 50 * hot + rng.zipf(1.3, 2500) % hot
        page = np.where(rng.integers(0, 6, 2500) == 0, 7000 + np.arange(2500) // 3, base) * step
        stays_exact(page.tolist(), (rng.integers(0, 3, 2500) == 0).tolist())


def test_of_a_loop_over_few_pages_little_remains():
    assert stays_exact([1, 2, 900, 77777] * 100, [False] * 400).sum() == 8


def test_no_record_stands_for_more_accesses_than_the_format_can_say():
    count = np.full(9, (1 << 18) - 1, np.int64)
    assert keep(np.array([1, 2, 1, 2, 1, 2, 1, 2, 1], np.int64), np.zeros(9, bool), count).all()
    assert count.max() == (1 << 18) - 1


KIB4, MIB2, GB = 1 << 12, 1 << 21, 1 << 30


@pytest.mark.parametrize("leaf", [1, 2])
@pytest.mark.parametrize("kind", [Event.MUNMAP, Event.MPROTECT])
def test_walks_after_shootdowns_and_on_a_shared_cpu_are_the_same(kind, leaf, tmp_path):
    """Threads on shared CPUs take turns; after each, pages they just used are unmapped or protected."""
    rng = np.random.default_rng(leaf)
    snapshot = build_snapshot([(GB, 2048), (4 * GB, 8, 2)] if leaf == 2 else [(GB, 2048), (4 * GB, 4096)])
    pages = [GB + KIB4 * k for k in range(12)] + [
        4 * GB + MIB2 // (512 if leaf == 1 else 1) * k for k in range(8)
    ]
    turns = [
        (int(rng.integers(0, 6)), [pages[k] for k in rng.zipf(1.4, 150) % len(pages)]) for _ in range(60)
    ]
    events = [
        (turn, 0, kind, (pages[turn % len(pages)], KIB4 * (1 + turn % 40), 1), 0) for turn in range(1, 60)
    ]
    trace = build_trace(turns, events)
    trace.events["time"] = trace.events["chunk"] * 1000 - 1
    assert same_walks(trace, snapshot, tmp_path / "trace.ptt") < 0.8


REFUSED = {
    "sets": (small_tlb((32, 4), (16, 4)), 1, "l1_4k"),
    "ways": (small_tlb((48, 3), (16, 4)), 1, "l1_4k"),
    "one set": (small_tlb((8, 8), (16, 4)), 1, "l1_4k"),
    "2 MiB": (small_tlb((64, 4), (16, 4), (8, 4)), 2, "l1_2m"),
    "1 GiB": (small_tlb((64, 4), (16, 4), (8, 8)), 3, "l1_1g"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_tlb_that_the_trace_was_not_stripped_for_is_refused_in_one_line(why, tmp_path):
    tlb, size, field = REFUSED[why]
    snapshot = build_snapshot([(4 * GB, 1 << 18 if size == 3 else 512, size)])
    trace = build_trace([(0, [4 * GB, 4 * GB + KIB4] * 9)])
    short = stripped(trace, tmp_path / "trace.ptt")
    space, placement = address_space(snapshot, trace.regions), place(trace, 1, 1)
    with pytest.raises(UsageError, match=f"^tlb.{field} = [^\n]*--strip off[^\n]*$"):
        TlbFilter(short, space, placement, tlb).first()
    assert len(TlbFilter(trace, space, placement, tlb).first())


def test_an_array_for_pages_that_the_trace_lacks_may_have_any_shape(tmp_path):
    trace = build_trace([(0, [GB, GB + KIB4] * 9)])
    short = stripped(trace, tmp_path / "trace.ptt")
    space = address_space(build_snapshot([(GB, 9)]), trace.regions)
    assert len(TlbFilter(short, space, place(trace, 1, 1), small_tlb((64, 4), (16, 4), (3, 1))).first()) == 2


def test_an_imported_trace_is_stripped_and_has_the_same_walks(tmp_path):
    rng = np.random.default_rng(9)
    text = b"".join(
        b"I  400000,4\n L %x,8\n S 7ff0000000,8\n" % (0x10000 + 4096 * int(k))
        for k in rng.zipf(1.3, 5000) % 3000
    )
    (tmp_path / "text").write_bytes(text)
    for name, strip in (("whole", False), ("short", True)):
        assert import_lackey(tmp_path / "text", tmp_path / name, strip=strip) == 10_000
    whole, short = read_trace(tmp_path / "whole"), read_trace(tmp_path / "short")
    assert whole.facts["stripped"] == () and short.facts["stripped"] == REACH
    assert short.touches < whole.touches / 3 and short.accesses == whole.accesses
    machine = load_machine(machine_names()[0])
    expected, found = (walks(trace, bare_snapshot(trace), machine) for trace in (whole, short))
    assert found.page.tolist() == expected.page.tolist() and found.hits.tolist() == expected.hits.tolist()
