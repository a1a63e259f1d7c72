"""What threads of a synthetic capture touch, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naive import synth as naive
from ptanalyze.capture.synth.patterns import half_bits, page_source
from ptanalyze.capture.synth.plan import Parameters, whole_pages
from ptanalyze.capture.synth.plan import plan as plan_of
from ptanalyze.capture.synth.process import frames_of
from ptanalyze.core.errors import UsageError
from ptanalyze.kernels import synth as kernels

pytestmark = pytest.mark.twin

MIB = 1 << 20
WORD = st.integers(0, (1 << 32) - 1)


def source(thread=0, **options):
    return page_source(plan_of(Parameters(**{"size": 8 * MIB, "nodes": 2} | options)), thread)


@given(WORD, WORD)
def test_numbers_are_drawn_as_the_twin_draws_them(key, n):
    assert kernels.draw(key, n) == naive.draw(key, n)


def test_drawn_numbers_are_even_over_nodes_and_unlike_those_of_the_next_key():
    n = np.arange(20000)
    one, other = (np.array([naive.draw(key, int(i)) for i in n]) for key in (5, 6))
    for nodes in (2, 3, 4, 8):
        counts = np.bincount(one * nodes >> 32, minlength=nodes)
        assert np.abs(counts / len(n) - 1 / nodes).max() < 5 * np.sqrt(1 / nodes / len(n))
    both = np.bincount((one * 4 >> 32) * 4 + (other * 4 >> 32), minlength=16) / len(n)
    assert np.abs(both - 1 / 16).max() < 5 * np.sqrt(1 / 16 / len(n))


@settings(deadline=None)
@given(st.integers(1, 3000), WORD)
def test_a_permutation_reaches_every_number_once(n, key):
    out = np.empty(n, np.int64)
    kernels.permute(np.arange(n), n, half_bits(n), key, out)
    assert sorted(out.tolist()) == list(range(n))


@pytest.mark.parametrize("sharing", ["shared", "private"])
def test_once_touches_every_page_once_and_in_no_order(sharing):
    take = source(1, pattern="once", sharing=sharing)
    pages = np.concatenate([take(700), take(700), take(700), take(700)])
    first, last = (0, 2048) if sharing == "shared" else (1024, 2048)
    assert sorted(pages.tolist()) == list(range(first, last))
    assert np.count_nonzero(np.diff(pages) == 1) < 20
    assert len(take(5)) == 0


def test_one_thread_may_touch_every_page_once_alone():
    plan = plan_of(Parameters(size=8 * MIB, nodes=2, pattern="once:1"))
    assert plan.active == (1,) and plan.accesses == 2048
    assert len(page_source(plan, 1)(5000)) == 2048


@pytest.mark.parametrize("pattern", ["uniform", "zipf:0.9", "zipf:1", "zipf:2"])
def test_private_accesses_stay_in_a_thread_s_own_part(pattern):
    pages = source(1, pattern=pattern, sharing="private")(5000)
    assert pages.min() >= 1024 and pages.max() < 2048


@pytest.mark.parametrize("pattern", ["uniform", "zipf:1"])
def test_a_share_of_the_accesses_goes_anywhere(pattern):
    pages = source(1, pattern=pattern, sharing="0.5")(20000)
    assert np.mean(pages < 1024) == pytest.approx(0.25, abs=0.1)
    assert pages.min() >= 0 and pages.max() < 2048


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.4])
def test_the_popularity_of_pages_falls_as_a_power_of_their_rank(exponent):
    pages = source(pattern=f"zipf:{exponent}", size=64 * MIB)(400000)
    counts = np.sort(np.bincount(pages, minlength=16384))[::-1]
    ranks = np.array([2, 64])
    slope = np.diff(np.log(counts[ranks - 1].astype(float)))[0] / np.diff(np.log(ranks + 0.5))[0]
    assert slope == pytest.approx(-exponent, abs=0.12)


def test_popular_pages_are_not_neighbours():
    pages = source(pattern="zipf:1")(50000)
    top = np.argsort(np.bincount(pages, minlength=2048))[-8:]
    assert np.diff(np.sort(top)).min() > 8


@pytest.mark.parametrize("exponent", [0.8, 1.2])
@pytest.mark.parametrize("sets", [512, 8192])
def test_entries_of_popular_pages_share_out_the_sets_of_a_cache_as_chance_has_it(exponent, sets):
    """However tables are numbered: by address, or with the table above 512 of them in between."""
    pages = source(pattern=f"zipf:{exponent}", size=16384 * MIB)(200_000)
    lines = np.unique(pages >> 3)
    for number in (lines, lines + (lines >> 15 << 6)):
        each = np.bincount(number % sets, minlength=sets)
        assert each.var() / each.mean() == pytest.approx(1 - len(lines) / (1 << 19), abs=0.2)


def test_sequential_goes_round_from_the_thread_s_own_part_on():
    assert source(1, pattern="sequential")(1026).tolist() == [*range(1024, 2048), 0, 1]
    assert source(1, pattern="sequential", sharing="private")(1026)[-2:].tolist() == [1024, 1025]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"size": MIB}, "--size 1M: 2M to 4T"),
        ({"nodes": 0}, "--nodes 0: 1 to 60"),
        ({"levels": 3}, "--levels 3: one of 4, 5"),
        ({"guest": "vm"}, "--guest vm: one of native, visible, oblivious"),
        ({"mapped_by": "all"}, "--mapped-by all: one of main, threads"),
        ({"fragmentation": 1.5}, "--fragmentation 1.5: a share, 0 to 1"),
        ({"writes": float("nan")}, "--writes nan: a share, 0 to 1"),
        ({"threads": 5}, "--threads 5: at most 4"),
        ({"threads_to_nodes": "0,2"}, "--threads-to-nodes 0,2: round-robin, block"),
        ({"threads_to_nodes": "0"}, "--threads-to-nodes 0: 1 nodes for 2 threads"),
        ({"placement": "bind:2"}, "NODE of 0..1"),
        ({"placement": "local"}, "first-touch, interleave, or bind:NODE"),
        ({"host_placement": "interleave"}, "--host-placement interleave: needs a VM"),
        ({"host_thp": 0.0}, "--host-thp 0.0: needs a VM"),
        ({"guest": "oblivious", "placement": "interleave"}, "the guest sees one node"),
        ({"pattern": "zipf:0"}, "zipf:S (S above 0, at most 8)"),
        ({"pattern": "zipf"}, "zipf:S"),
        ({"pattern": "once:2"}, "THREAD of 0..1"),
        ({"pattern": "once", "accesses": 5}, "--accesses 5: --pattern once"),
        ({"pattern": "once", "sharing": "0.5"}, "shared or private with --pattern once"),
        ({"pattern": "once:0", "sharing": "private"}, "--sharing private"),
        ({"sharing": "some"}, "shared, private, or a share"),
        ({"move": "0.5:0:0"}, "two different nodes of 0..1"),
        ({"move": "2:0:1"}, "T a fraction of the access phase"),
        ({"move_data": "0.5:10"}, "give --move as well"),
        ({"move": "0:0:1", "move_data": "0.5:0"}, "RATE above 0"),
        ({"thp": 1.0, "munmap_every": 5}, "--thp leaves no 4 KiB pages"),
        ({"rate": 0.0}, "--rate 0.0: above 0"),
        ({"accesses": 1 << 39, "munmap_every": 1}, "--munmap-every 1: at least"),
        ({"node_memory": 1 << 20}, "--node-memory 1M: 16M to 16T"),
        ({"node_memory": 12 << 40, "guest": "visible"}, "memory ends below 16T"),
    ],
    ids=str,
)
def test_what_is_out_of_range_or_contradicts_itself_is_refused_with_what_is_allowed(options, words):
    with pytest.raises(UsageError) as refused:
        frames_of(plan_of(Parameters(**{"size": 8 * MIB, "nodes": 2} | options)))
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "12", "1X", "0G", "1.5K", "-1G", "infG", "9" * 400 + "T"])
def test_a_size_is_whole_pages(text):
    with pytest.raises(UsageError, match="give whole 4 KiB pages"):
        whole_pages(text)


def test_sizes_are_read_in_binary_units():
    assert (whole_pages("64M"), whole_pages("1.5T"), whole_pages("2GiB")) == (64 << 20, 3 << 39, 2 << 30)
    assert whole_pages("10m") == whole_pages(" 10 MiB ") == whole_pages("10485760") == 10 << 20
