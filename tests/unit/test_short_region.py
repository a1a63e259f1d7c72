"""What a short region leaves open: the interval of its speed-up has that of a long one in it."""

import msgspec
import pytest

import ptanalyze
from ptanalyze.analysis.findings import lines_by_node
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.machine import load_costs, load_machine
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace, small_machine

BIG = 1 << 30  # its leaf entries fill 32,768 lines
SHORT, LONG = 8192, 80_000  # accesses; the short one has a chunk of each thread


@pytest.fixture(scope="module")
def machine():
    """Its caches have 8,192 lines for page tables."""
    known = load_machine("vmitosis-cascade-lake")
    small = {"share": 1.0, "shares": None}
    return msgspec.structs.replace(
        known,
        l2=msgspec.structs.replace(known.l2, bytes=known.l2.ways << 9, **small),
        llc=msgspec.structs.replace(known.llc, bytes=1 << 19, ways=16, **small),
    )


def replayed(tmp_path, machine, accesses, pattern="uniform", sharing="shared", **options):
    made = {"threads": 2, "init": "single", "init_trace": False, "accesses": accesses}
    place = tmp_path / f"{accesses} {pattern} {options}".replace(":", "-")
    capture = ptanalyze.synth(place, BIG, pattern=pattern, sharing=sharing, **made)
    return ptanalyze.replay(capture, "mitosis", machine=machine, **options).results


def test_the_interval_of_a_short_region_has_the_speed_up_of_a_long_one_in_it(tmp_path, machine):
    short, long = (replayed(tmp_path, machine, accesses)[1] for accesses in (SHORT, LONG))
    assert short.short_region and not long.short_region
    found, truth = short.price.speedup, long.price.speedup
    assert found.low <= 1.01 < truth.low, "the caches hold all that is read"
    assert found.high >= truth.middle


@pytest.mark.parametrize(
    ("pattern", "sharing", "off"),
    [
        ("uniform", "shared", 0.05),
        ("uniform", "private", 0.3),  # each thread walks half of the lines: nobody knows from a short region
        ("zipf:0.6", "shared", 0.1),
        ("zipf:1.0", "shared", 0.5),  # hot lines are read more than once, the others not as often as these
        ("btree", "shared", 0.3),
        ("anneal", "shared", 0.1),
        ("sequential", "shared", 0.3),
    ],
)
def test_the_middle_is_near_the_speed_up_of_a_long_one(tmp_path, machine, pattern, sharing, off):
    """`off`: of the effect. The end where all lines are cached is off by all of it."""
    short, long = (replayed(tmp_path, machine, accesses, pattern, sharing) for accesses in (SHORT, 5 * LONG))
    assert short[1].short_region and not long[1].short_region
    found, truth = short[1].price.speedup.middle, long[1].price.speedup.middle
    assert abs(found - truth) < off * (truth - 1)
    assert short[0].price.walk_share.middle == pytest.approx(long[0].price.walk_share.middle, abs=0.09)
    assert short[1].once.when == long[1].once.when == "later"
    assert short[1].price.walk_cycles < long[1].price.walk_cycles * SHORT / LONG, (
        "counts are the region's own"
    )


def test_lines_count_as_read_once_unless_they_are_read_again_later():
    """200 lines of 8 pages each, a page of each, then the second of half of these."""
    pages = [HEAP + k * PAGE for k in range(1600)]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(pages)])
    trace = build_trace([(0, [*pages[::8], *pages[1:800:8]]), (1, pages[:64])])
    world = Setup.of(machine=small_machine(2), costs=load_costs(load_machine("vmitosis-cascade-lake"))).world(
        snapshot, trace
    )
    assert lines_by_node(world) == (200 + 8, 100 + 8), "eight lines of the other node in one go"


def test_the_far_end_is_the_speed_up_of_the_first_run_but_for_what_is_paid_once(tmp_path, machine):
    linux, copied = replayed(tmp_path, machine, SHORT, cold=True)
    _, short = replayed(tmp_path, machine, SHORT)
    assert short.price.speedup.high > copied.price.speedup.high, "which pays for its copies"
    assert short.price.speedup.high <= linux.price.walk_cycles / copied.price.walk_cycles
