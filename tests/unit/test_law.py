"""The run-time law: closed forms, inverses, and intervals that hold every combination of their unknowns."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval, over_corners
from ptanalyze.cost.closed_forms import (
    CONTENDED,
    LOCAL,
    ORDER,
    ORDER_NATIVE,
    REMOTE,
    Run,
    added_cycles,
    exposed_share,
    placement,
    run_cycles,
    waiting_cycles,
)

shares = st.floats(0.05, 1.0)
stretches = st.floats(1.0, 5.0)
cycles = st.floats(1.0, 1e6)


@st.composite
def intervals(draw, values):
    return Interval(*sorted(draw(st.tuples(values, values, values))))


def test_with_all_tables_local_the_stretches_do_not_matter():
    assert run_cycles(100, 0.5, 40, 60, share_gpt=0.9, share_ept=0.7) == 150


def test_a_remote_table_stretches_only_its_own_part_from_dram():
    assert run_cycles(100, 0.5, 40, 60, 0.5, 1.0, stretch_gpt=3) == 100 + 0.5 * (40 * 2 + 60)
    assert run_cycles(100, 0.5, 40, 60, 0.5, 1.0, stretch_ept=3) == 100 + 0.5 * (40 + 60 * 3)
    assert run_cycles(100, 0.5, 40, stretch_gpt=3) == 100 + 0.5 * 120


@given(cycles, shares, cycles, cycles, shares, shares, stretches, stretches)
def test_waiting_for_dram_is_the_law_less_the_local_run(nw, e, gpt, ept, f_g, f_e, k_g, k_e):
    waiting = e * (f_g * gpt + f_e * ept)
    part = f_g * gpt / (f_g * gpt + f_e * ept)
    added = run_cycles(nw, e, gpt, ept, f_g, f_e, k_g, k_e) - run_cycles(nw, e, gpt, ept)
    assert added_cycles(waiting, part, k_g, k_e) == pytest.approx(added, rel=1e-9, abs=1e-6)


@given(cycles, st.floats(0.0, 1.0), st.floats(1.1, 5.0), st.floats(1.1, 5.0))
def test_waiting_cycles_undo_added_cycles(waiting, part, k_g, k_e):
    assert waiting_cycles(added_cycles(waiting, part, k_g, k_e), part, k_g, k_e) == pytest.approx(waiting)


@given(cycles, shares, cycles, cycles, shares, shares, st.floats(1.1, 5.0))
def test_two_runs_give_back_the_share_that_is_exposed(nw, e, gpt, ept, f_g, f_e, k):
    local = Run(run_cycles(nw, e, gpt, ept), gpt, ept)
    stretched = gpt * (1 + f_g * (k - 1)), ept * (1 + f_e * (k - 1))
    remote = Run(run_cycles(nw, e, gpt, ept, f_g, f_e, k, k), *stretched)
    added = remote.cycles - local.cycles
    assert exposed_share(local, remote) == pytest.approx(e, rel=1e-9 + 1e-9 * local.cycles / added)


@given(intervals(shares), intervals(shares), intervals(stretches), shares, shares, st.floats(0, 1))
def test_an_interval_of_corners_holds_all_that_lies_between(e, f, k, a, b, c):
    def within(interval, t):
        return min(max(interval.low + t * (interval.high - interval.low), interval.low), interval.high)

    def slowdown(e, f, k):
        return run_cycles(10, e, 40, 60, f, f, k, k)

    found = over_corners(slowdown, e, f, k)
    value = slowdown(within(e, a), within(f, b), within(k, c))
    assert found.low <= found.middle <= found.high
    assert found.low - 1e-9 <= value <= found.high + 1e-9
    assert found.middle == slowdown(e.middle, f.middle, k.middle)


@given(cycles, shares, shares, stretches, st.floats(0.0, 1.0))
def test_the_law_grows_with_each_of_its_unknowns(gpt, e, f, k, more):
    base = run_cycles(5, e, gpt, 7, f, f, k, k)
    assert run_cycles(5, e + more, gpt, 7, f, f, k, k) >= base
    assert run_cycles(5, e, gpt, 7, f + more, f, k, k) >= base
    assert run_cycles(5, e, gpt, 7, f, f, k, k + more) >= base


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
    ],
)
def test_placements_are_named_as_in_the_figures(name, gpt, ept):
    found = placement(name)
    assert (found.gpt, found.ept) == (gpt, ept)
    assert found.all_local == ({gpt, ept} <= {LOCAL, None})


@pytest.mark.parametrize(
    "name", ["", "XX", "RRX", "LLLL", "rr", "I", "RRII", "LP-RD", "RPI-RDI", "TRR", "RR\n"]
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError, match="placement"):
        placement(name)


def test_every_placement_that_is_predicted_has_a_name_that_is_read():
    assert [placement(name).ept is None for name in ORDER] == [False] * len(ORDER)
    assert [placement(name).ept is None for name in ORDER_NATIVE] == [True] * len(ORDER_NATIVE)
    assert {placement(name).state for name in ORDER} == {LOCAL, REMOTE, CONTENDED}


def test_walk_cycles_that_are_not_counted_are_not_zero():
    assert Run(10.0).walk is None and Run(10.0, 3.0).walk is None
    assert Run(10.0, 3.0, 0.0).walk == 3.0


def test_a_run_with_an_unknown_field_is_no_run():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"cycles": 1.0, "walks": 2.0}, Run)
