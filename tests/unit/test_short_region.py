"""What a short region leaves open: the interval of its speed-up has that of a long one in it."""

import msgspec
import pytest

import ptanalyze
from ptanalyze.core.machine import load_machine

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


def replayed(tmp_path, machine, accesses, **options):
    made = {"threads": 2, "init": "single", "init_trace": False, "accesses": accesses}
    capture = ptanalyze.synth(tmp_path / f"{accesses} {options}", BIG, **made)
    return ptanalyze.replay(capture, "mitosis", machine=machine, **options).results


def test_the_interval_of_a_short_region_has_the_speed_up_of_a_long_one_in_it(tmp_path, machine):
    short, long = (replayed(tmp_path, machine, accesses)[1] for accesses in (SHORT, LONG))
    assert short.short_region and not long.short_region
    found, truth = short.price.speedup, long.price.speedup
    assert found.middle < 1.01 < truth.low, "the caches hold all that is read"
    assert found.low <= 1.01 and found.high >= truth.middle


def test_the_far_end_is_the_speed_up_of_the_first_run_but_for_what_is_paid_once(tmp_path, machine):
    linux, copied = replayed(tmp_path, machine, SHORT, cold=True)
    _, short = replayed(tmp_path, machine, SHORT)
    assert short.price.speedup.high > copied.price.speedup.high, "which pays for its copies"
    assert short.price.speedup.high <= linux.price.walk_cycles / copied.price.walk_cycles
