"""Both kernels, and a TLB that is split by set: the same walks on every machine of the package."""

import numpy as np
import pytest

from ptanalyze.core.errors import bundled
from ptanalyze.core.machine import load_machine
from ptanalyze.core.trace import Event
from ptanalyze.world import tlb_filter
from ptanalyze.world.address_space import address_space
from ptanalyze.world.tlb_filter import TlbFilter, parts_of
from strategies import build_snapshot, build_trace, place, small_tlb

GIB, KIB4 = 1 << 30, 1 << 12
MIB2 = 1 << 21
PARTS = {"epyc-7543-16-nodes": 1, "epyc-genoa": 1, "epyc-milan": 1}  # one set of first-level entries


@pytest.fixture(scope="module")
def long_case():
    """A thread's trace with pages of two sizes, a chunk of 9,000 touches, shootdowns of a page and of all."""
    rng = np.random.default_rng(8)
    small = GIB + KIB4 * rng.integers(0, 3000, 16_000)
    pages = np.where(rng.random(16_000) < 0.2, 4 * GIB + MIB2 * rng.integers(0, 90, 16_000), small).tolist()
    run = [(page, page % 3 == 0, 1) for page in pages]
    events = [(2, 0, Event.MUNMAP, (pages[0], KIB4), 0), (3, 0, Event.MUNMAP, (GIB, 99 * KIB4), 0)]
    trace = build_trace(
        [(0, run[:9000]), (0, run[9000:13000]), (1, run[13000:15000]), (0, run[15000:])], events
    )
    mapped = [(GIB, 5), *((4 * GIB + k * MIB2, 512 * (k + 1), 2) for k in range(90))]
    return trace, address_space(build_snapshot(mapped), trace.regions), place(trace, 1, 1)


def same(a, b):
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("page", "write", "offset", "hits")
    )


@pytest.mark.parametrize("name", [path.stem for path in bundled("models").glob("machines/*.toml")])
def test_a_tlb_split_by_set_gives_the_same_walks_on_every_machine(long_case, name, monkeypatch):
    tlb = load_machine(name).tlb
    whole, split = (TlbFilter(*long_case, tlb, threads=n, batch=5000) for n in (1, 4))
    first, again = whole.first(), whole.again(2)
    monkeypatch.setattr(tlb_filter, "is_common", lambda tlb: False)  # only the slower kernel splits
    assert 1000 < len(first) < 16_000 and same(first, split.first()) and same(again, split.again(2))
    assert [len(parts) for parts in split.states] == [PARTS.get(name, 4)]


def test_parts_are_of_the_sets_of_all_arrays_that_pages_use():
    tlb = small_tlb((16, 4), (48, 4), (8, 2))  # 4, 12 and 4 sets
    assert [parts_of(tlb, [1], wanted) for wanted in (1, 2, 3, 4, 8)] == [1, 2, 4, 4, 4]
    assert parts_of(small_tlb((16, 4), (48, 4), (6, 2)), [1], 4) == 4
    assert parts_of(small_tlb((16, 4), (48, 4), (6, 2)), [1, 2], 4) == 1
    assert parts_of(small_tlb((16, 4), (12, 2)), [1], 4) == 2
    assert parts_of(small_tlb((64, 4), (64, 4), l2_1g=(3, 1)), [3], 4) == 1
