"""The run-time law: closed forms, inverses, and intervals that hold every combination of their unknowns."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval, combined, over_corners
from ptanalyze.cost.law import (
    CONTENDED,
    LOCAL,
    ORDER,
    ORDER_NATIVE,
    REMOTE,
    Run,
    exposed_share,
    lost_share,
    most_sharing,
    outside_cycles,
    placement,
    run_cycles,
    sharing,
    waited_cycles,
    waiting_of,
    walk_cycles,
)

shares = st.floats(0.05, 1.0)
stretches = st.floats(1.0, 5.0)
cycles = st.floats(1.0, 1e6)


@st.composite
def intervals(draw, values):
    return Interval(*sorted(draw(st.tuples(values, values, values))))


def law(nw, e, gpt, ept, f_g, f_e, k_g, k_e, s=0.0):
    return run_cycles(nw, e * walk_cycles(gpt, ept, f_g, f_e, k_g, k_e), s)


def test_with_all_tables_local_the_stretches_do_not_matter():
    assert run_cycles(100, 0.5 * walk_cycles(40, 60, share_gpt=0.9, share_ept=0.7)) == 150


def test_a_remote_table_stretches_only_its_own_part_from_dram():
    assert walk_cycles(40, 60, 0.5, 1.0, stretch_gpt=3) == 40 * 2 + 60
    assert walk_cycles(40, 60, 0.5, 1.0, stretch_ept=3) == 40 + 60 * 3
    assert walk_cycles(40, stretch_gpt=3) == 120


def test_two_threads_of_a_core_wait_for_each_others_walks():
    """Mean value analysis by hand: one server, two customers, one unit of thought and one of service."""
    alone = 1 + 1  # a cycle of one customer
    busy = 1 / alone  # of the time
    assert run_cycles(1, 1, 1) == 1 + 1 * (1 + busy) == 2.5
    assert run_cycles(1, 1, 0) == 2 and run_cycles(1, 1, 0.5) == 2.25
    assert run_cycles(0, 3, 1) == 6  # nothing but walks: one of two threads waits at any time
    assert run_cycles(5, 0, 1) == 5


def test_a_simulated_walker_with_two_threads_loses_what_the_closed_form_says():
    """An event at a time: exponential thinking and walking, first come first served."""
    import heapq
    import random

    draw, think, walk = random.Random(7).expovariate, 3.0, 1.5
    free, done, arrivals = 0.0, 0, [(draw(1 / think), k) for k in range(2)]
    heapq.heapify(arrivals)
    while done < 60_000:
        now, thread = heapq.heappop(arrivals)
        free = max(free, now) + draw(1 / walk)
        done += 1
        heapq.heappush(arrivals, (free + draw(1 / think), thread))
    assert 2 * free / done == pytest.approx(run_cycles(think, walk, 1), rel=0.02)


@given(cycles, st.floats(0.0, 1e6), st.floats(0.0, 1.0))
def test_the_inverses_give_back_what_is_outside_and_what_is_waited_for(outside, waited, s):
    whole = run_cycles(outside, waited, s)
    assert outside_cycles(whole, waited, s) == pytest.approx(outside, rel=1e-6, abs=1e-6 * whole)
    assert waited_cycles(whole, outside, s) == pytest.approx(waited, rel=1e-6, abs=1e-6 * whole)


@given(cycles, cycles, st.floats(0.0, 1.0))
def test_a_further_cycle_of_waiting_loses_between_one_and_two(outside, waited, s):
    step = 1e-4 * (outside + waited)
    found = (run_cycles(outside, waited + step, s) - run_cycles(outside, waited - min(step, waited), s)) / (
        step + min(step, waited)
    )
    assert found == pytest.approx(lost_share(outside, waited, s), rel=1e-3)
    assert 1 <= lost_share(outside, waited, s) <= 2


@given(st.floats(0.1, 1.0), st.floats(1.5, 30.0), st.floats(1.1, 3.0))
def test_two_runs_give_back_how_much_of_the_time_a_walker_is_shared(s, outside, more):
    local = Run(run_cycles(outside, 1, s), 1.0, 0.0)
    remote = Run(run_cycles(outside, more, s), more, 0.0)
    assert sharing(local, remote) == pytest.approx(s, abs=1e-6)


@given(cycles, st.floats(0.01, 0.99))
def test_sharing_ends_where_the_run_holds_no_more_waiting(whole, part):
    s = min(most_sharing(whole, part * whole), 1.0)
    assert outside_cycles(whole, part * whole, s) >= -1e-6 * whole


@given(cycles, shares, cycles, cycles, shares, shares, stretches, stretches)
def test_waiting_for_dram_is_the_law_less_the_local_run(nw, e, gpt, ept, f_g, f_e, k_g, k_e):
    waiting = e * (f_g * gpt + f_e * ept)
    part = f_g * gpt / (f_g * gpt + f_e * ept)
    added = law(nw, e, gpt, ept, f_g, f_e, k_g, k_e) - law(nw, e, gpt, ept, f_g, f_e, 1, 1)
    assert waiting * waiting_of(part, k_g, k_e) == pytest.approx(added, rel=1e-9, abs=1e-6)


@given(cycles, shares, cycles, cycles, shares, shares, st.floats(1.1, 5.0))
def test_two_runs_give_back_the_share_that_is_exposed(nw, e, gpt, ept, f_g, f_e, k):
    local = Run(law(nw, e, gpt, ept, f_g, f_e, 1, 1), gpt, ept)
    stretched = gpt * (1 + f_g * (k - 1)), ept * (1 + f_e * (k - 1))
    remote = Run(law(nw, e, gpt, ept, f_g, f_e, k, k), *stretched)
    added = remote.cycles - local.cycles
    assert exposed_share(local, remote) == pytest.approx(e, rel=1e-9 + 1e-9 * local.cycles / added)


@given(intervals(shares), intervals(stretches))
def test_independent_unknowns_are_added_as_the_legs_of_a_right_angle(f, k):
    found = combined(lambda f, k: f + k, f, k)
    assert found.middle == f.middle + k.middle
    assert (found.high - found.middle) ** 2 == pytest.approx(
        (f.high - f.middle) ** 2 + (k.high - k.middle) ** 2, abs=1e-9
    )
    one = combined(lambda k: 1 + k, k)
    assert (one.low, one.high) == (pytest.approx(1 + k.low), pytest.approx(1 + k.high))


@given(intervals(shares), intervals(shares), intervals(stretches), shares, shares, st.floats(0, 1))
def test_an_interval_of_corners_holds_all_that_lies_between(e, f, k, a, b, c):
    def within(interval, t):
        return min(max(interval.low + t * (interval.high - interval.low), interval.low), interval.high)

    def slowdown(e, f, k):
        return law(10, e, 40, 60, f, f, k, k)

    found = over_corners(slowdown, e, f, k)
    value = slowdown(within(e, a), within(f, b), within(k, c))
    assert found.low <= found.middle <= found.high
    assert found.low - 1e-9 <= value <= found.high + 1e-9
    assert found.middle == slowdown(e.middle, f.middle, k.middle)


@given(cycles, shares, shares, stretches, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_law_grows_with_each_of_its_unknowns(gpt, e, f, k, s, more):
    base = law(5, e, gpt, 7, f, f, k, k, s) * (1 - 1e-12)
    assert law(5, e + more, gpt, 7, f, f, k, k, s) >= base
    assert law(5, e, gpt, 7, f + more, f, k, k, s) >= base
    assert law(5, e, gpt, 7, f, f, k, k + more, s) >= base
    assert law(5, e, gpt, 7, f, f, k, k, s + more) >= base


@pytest.mark.parametrize(
    ("name", "gpt", "ept"),
    [
        ("LL", LOCAL, LOCAL),
        ("LR", LOCAL, REMOTE),
        ("RL", REMOTE, LOCAL),
        ("RLI", CONTENDED, LOCAL),
        ("RRI", CONTENDED, CONTENDED),
        ("RRIE", CONTENDED, LOCAL),
        ("RRI+G", LOCAL, CONTENDED),
        ("RRIM", LOCAL, LOCAL),
        ("RRE", REMOTE, LOCAL),
        ("LP", LOCAL, None),
        ("RP-LD", REMOTE, None),
        ("RPI-LD", CONTENDED, None),
        ("RPI-LD+M", LOCAL, None),
        ("RIM", LOCAL, None),
        ("R", REMOTE, None),
        ("LP-RD", LOCAL, None),
        ("RPI-RDI", CONTENDED, None),
        ("RRI-RD", CONTENDED, CONTENDED),
        ("RR:1", REMOTE, REMOTE),
        ("LL:0.1,LR:0.2,RL:0.3,RR:0.4", REMOTE, REMOTE),
        ("LL:50%, LRI:50%", LOCAL, CONTENDED),
        ("L:0.25,R:0.75,D:0.75", REMOTE, None),
    ],
)
def test_placements_are_named_as_in_the_figures(name, gpt, ept):
    found = placement(name)
    assert (found.gpt, found.ept) == (gpt, ept)
    assert found.tables_local == ({gpt, ept} <= {LOCAL, None})


def test_shares_are_those_of_each_table_and_of_the_data():
    found = placement("LL:0.1,LR:0.2,RL:0.3,RR:0.4")
    assert (found.gpt_share, found.ept_share) == (pytest.approx(0.7), pytest.approx(0.6))
    assert not found.whole and placement("RRI").whole and placement("L:0,R:1").whole
    assert found.stretches(2, 5) == (pytest.approx(1.7), pytest.approx(1.6))
    assert placement("L:25%,R:75%,DI:10%").data_share == pytest.approx(0.1)
    assert placement("L:25%,R:75%,DI:10%").data == placement("RPI-RDI").data == CONTENDED
    assert placement("LP-RD").data == REMOTE and not placement("LP-RD").all_local
    assert placement("L:1").all_local and placement("LL:1,RR:0").all_local


@pytest.mark.parametrize(
    "name",
    [
        *("", "XX", "RRX", "LLLL", "rr", "I", "RRII", "LP-XD", "LP-RDII", "TRR", "RR\n", ":1", "D:1"),
        *("LL:0.5", "LL:0.5,R:0.5", "RR:2", "RR:200%", "RR:-1", "RR:nan", "RR:", "RR:0.5,RRI:0.5"),
        *("RR:1,D:1.5", "RR:1,,LL:0", "RR:1e0", "RR:" + "9" * 400),
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="placement"):
        placement(name)


def test_every_placement_that_is_predicted_has_a_name_that_is_read():
    assert [placement(name).ept is None for name in ORDER] == [False] * len(ORDER)
    assert [placement(name).ept is None for name in ORDER_NATIVE] == [True] * len(ORDER_NATIVE)
    assert {placement(name).state for name in ORDER} == {LOCAL, REMOTE, CONTENDED}


def test_walk_cycles_that_are_not_counted_are_not_zero():
    assert Run(seconds=3.0).length == 3 and Run(10.0, seconds=3.0).length == 10
    assert Run(10.0).walk is None and Run(10.0, 3.0).walk is None
    assert Run(10.0, 3.0, 0.0).walk == 3.0


def test_a_run_with_an_unknown_field_is_no_run():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"cycles": 1.0, "walking": 2.0}, Run)
