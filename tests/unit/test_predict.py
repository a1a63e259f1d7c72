"""Predictions of run time from a calibration alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.cost.calibrate import calibrate_runs
from ptanalyze.cost.closed_forms import ORDER, ORDER_NATIVE, Run
from ptanalyze.cost.predict import NOISE, order, predict_placement

LL = Run(1000.0, 350.0, 400.0, seconds=10.0)
RRI = Run(2100.0, 900.0, 1000.0)
ONE, TWO = calibrate_runs(LL), calibrate_runs(LL, RRI, "RRI")


def test_the_local_run_and_the_measured_one_come_back_exactly():
    assert [getattr(predict_placement(TWO, "LL"), end) for end in ("low", "middle", "high")] == [1, 1, 1]
    found = predict_placement(TWO, "RRI")
    assert found.low == found.middle == found.high == pytest.approx(2.1)
    assert found.cycles == pytest.approx((2100.0,) * 3) and found.seconds == pytest.approx((21.0,) * 3)
    assert found.measured and not predict_placement(TWO, "RR").measured
    assert (
        predict_placement(TWO, "LL").measured and not predict_placement(TWO, "RRIM").measured
    )  # repaired, not run


def test_repaired_tables_are_local_ones():
    assert predict_placement(TWO, "RRIM").middle == predict_placement(ONE, "RRIM").middle == 1
    assert predict_placement(TWO, "RRIM").high == pytest.approx(1 + NOISE)
    assert predict_placement(ONE, "RRIE").middle == predict_placement(ONE, "RLI").middle
    assert predict_placement(ONE, "RRI+G").middle == predict_placement(ONE, "LRI").middle


@pytest.mark.parametrize("calibration", [ONE, TWO])
def test_what_remote_tables_add_is_a_sum_over_tables(calibration):
    added = {name: predict_placement(calibration, name).middle - 1 for name in ORDER}
    assert added["RR"] == pytest.approx(added["LR"] + added["RL"])
    assert added["RRI"] == pytest.approx(added["LRI"] + added["RLI"])
    assert added["LRI"] > added["LR"] > 0 and added["RLI"] > added["RL"] > 0


@pytest.mark.parametrize("calibration", [ONE, TWO])
def test_intervals_hold_their_middle_and_one_run_leaves_more_open_than_two(calibration):
    for one in (predict_placement(calibration, name) for name in order(calibration)):
        assert one.low <= one.middle <= one.high
        assert one.cycles == pytest.approx(tuple(r * 1000 for r in (one.low, one.middle, one.high)))
    for name in ("RR", "LR", "RRI"):
        wide, narrow = predict_placement(ONE, name), predict_placement(TWO, name)
        assert wide.high - wide.low > narrow.high - narrow.low


def test_the_middle_is_the_closed_form():
    e, f = ONE.exposed.middle, ONE.dram_share.middle
    k, loaded = ONE.remote_stretch.middle, ONE.contended_stretch.middle
    assert predict_placement(ONE, "RR").middle == pytest.approx(1 + e * f * 0.75 * (k - 1))
    assert predict_placement(ONE, "LRI").middle == pytest.approx(1 + e * f * 0.75 / 2 * (loaded - 1))


@given(st.floats(0.1, 1.0), st.floats(1.05, 4.0))
def test_cycles_alone_of_two_runs_predict_the_others(share, slower):
    found = calibrate_runs(Run(1000.0), Run(1000.0 * slower), "RR")
    assert predict_placement(found, "RR").middle == pytest.approx(slower)
    assert predict_placement(found, "LR").middle == pytest.approx(1 + (slower - 1) / 2)
    assert predict_placement(found, "RRI").seconds is None


def test_native_runs_have_their_own_placements():
    found = calibrate_runs(Run(1000.0, 350.0, 0.0), Run(1250.0, 600.0, 0.0), "RP")
    assert order(found) == ORDER_NATIVE
    assert predict_placement(found, "RP").middle == pytest.approx(1.25)
    assert predict_placement(found, "RPI").middle > 1.25
    with pytest.raises(UsageError, match="the calibration is native"):
        predict_placement(found, "RR")
    with pytest.raises(UsageError, match="of a virtual machine"):
        predict_placement(TWO, "RP")
