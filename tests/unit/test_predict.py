"""Predictions of run time from a calibration alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.cost.calibrate import calibrate_runs
from ptanalyze.cost.law import ORDER, ORDER_NATIVE, Run, outside_cycles, run_cycles
from ptanalyze.cost.predict import noise_of, order, predict_placement, predict_walks

M = 2.1e7  # cycles: 1000 of them take 10 s of one CPU
LL = Run(1000 * M, 350 * M, 400 * M, seconds=10.0)
RRI = Run(2100 * M, 900 * M, 1000 * M)
ONE, TWO = calibrate_runs(LL), calibrate_runs(LL, RRI, "RRI")


def test_the_local_run_and_the_measured_one_come_back_exactly():
    assert [getattr(predict_placement(TWO, "LL"), end) for end in ("low", "middle", "high")] == [1, 1, 1]
    found = predict_placement(TWO, "RRI")
    assert found.low == found.middle == found.high == pytest.approx(2.1)
    assert found.cycles == pytest.approx((2100 * M,) * 3) and found.seconds == pytest.approx((21.0,) * 3)
    assert found.measured and not predict_placement(TWO, "RR").measured
    assert (
        predict_placement(TWO, "LL").measured and not predict_placement(TWO, "RRIM").measured
    )  # repaired, not run


def test_repaired_tables_are_local_ones():
    assert predict_placement(TWO, "RRIM").middle == predict_placement(ONE, "RRIM").middle == 1
    high = predict_placement(TWO, "RRIM").high
    assert (high - 1) ** 2 == pytest.approx(TWO.repair**2 + noise_of(TWO, 1.0, TWO.noise) ** 2)
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
        assert one.cycles == pytest.approx(tuple(r * 1000 * M for r in (one.low, one.middle, one.high)))
    for name in ("RR", "RRIE", "RRI"):
        wide, narrow = predict_placement(ONE, name), predict_placement(TWO, name)
        assert wide.high - wide.low > narrow.high - narrow.low


def test_the_middle_is_the_closed_form():
    e, f = ONE.exposed.middle, ONE.dram_share.middle
    k, loaded = ONE.remote_stretch.middle, ONE.contended_stretch.middle
    assert predict_placement(ONE, "RR").middle == pytest.approx(1 + e * f * 0.75 * (k - 1))
    assert predict_placement(ONE, "LRI").middle == pytest.approx(1 + e * f * 0.75 / 2 * (loaded - 1))


@given(st.floats(1.05, 4.0), st.booleans())
def test_run_times_alone_of_two_runs_predict_the_others(slower, clock):
    local, remote = (Run(seconds=length) if clock else Run(length) for length in (1000.0, 1000.0 * slower))
    found = calibrate_runs(local, remote, "RR")
    assert predict_placement(found, "RR").middle == pytest.approx(slower)
    assert predict_placement(found, "LR").middle == pytest.approx(1 + (slower - 1) / 2)
    assert (predict_placement(found, "RRI").seconds is None) == (not clock)
    assert (predict_placement(found, "RRI").cycles is None) == clock


def test_wall_clock_is_predicted_from_wall_clock_and_cycles_from_cycles():
    found = calibrate_runs(LL, Run(2100 * M, 900 * M, 1000 * M, seconds=25.0), "RRI")
    there, half = predict_placement(found, "RRI"), predict_placement(found, "RLI")
    assert there.seconds == pytest.approx((25.0,) * 3) and there.cycles == pytest.approx((2100 * M,) * 3)
    assert half.seconds[1] == pytest.approx(10 * (1 + 1.5 / 2))
    assert half.cycles[1] == pytest.approx(1000 * M * (1 + 1.1 / 2))
    assert "2.500 times the 10 s" in " ".join(found.flags) and "2.100 times" in " ".join(found.flags)


def test_where_clocks_disagree_on_which_run_was_slower_cycles_are_taken():
    found = calibrate_runs(LL, Run(2100 * M, 900 * M, 1000 * M, seconds=10.0), "RRI")
    assert predict_placement(found, "RRI").middle == pytest.approx(2.1)
    assert "10 s are 1.000 times the 10 s" in " ".join(found.flags)


def test_what_a_single_thread_does_not_run_it_does_not_lose():
    ghz = 2.1e9
    all_of_it, half = (Run(ghz * 100, ghz * 30, ghz * 35, seconds) for seconds in (100.0, 200.0))
    most, least = (predict_placement(calibrate_runs(run), "RRI") for run in (all_of_it, half))
    assert least.seconds[1] - 200 == pytest.approx(most.seconds[1] - 100)
    assert least.cycles == pytest.approx(most.cycles) and least.high > 1 + (least.middle - 1) * 1.5


@pytest.mark.parametrize(("local", "back"), [("R:0.75,L:0.25", "LP"), ("R:1,L:0", "LP"), ("RPI", "LP")])
def test_tables_elsewhere_and_back_is_no_change(local, back):
    made = calibrate_runs(Run(1000.0, 400.0, 0.0), at=local, native=True)
    saved = predict_placement(made, back)
    again = calibrate_runs(
        Run(1000.0 * saved.middle, 400.0 - 1000 * (1 - saved.middle) / made.exposed.middle, 0.0),
        native=True,
    )
    assert saved.middle < 1 and predict_placement(made, local).measured
    assert predict_placement(again, local).middle * saved.middle == pytest.approx(1, rel=0.05)


def test_shares_lie_between_the_ends_and_their_share_of_the_way():
    ends = [predict_placement(ONE, name).middle for name in ("LL", "RR")]
    shares = predict_placement(ONE, "LL:0.25,RR:0.75").middle
    assert shares == pytest.approx(ends[0] + 0.75 * (ends[1] - ends[0]))
    mixed = predict_placement(ONE, "LL:0.25,LR:0.25,RL:0.25,RR:0.25").middle
    assert mixed == pytest.approx(ends[0] + 0.5 * (ends[1] - ends[0]))


def test_remote_data_stretch_cycles_outside_walks_alone():
    native = calibrate_runs(Run(1000.0, 400.0, 0.0), native=True)
    far = native.remote_stretch.middle - 1
    assert predict_placement(native, "LP-RD").middle == pytest.approx(
        1 + 0.6 * native.data_share.middle * far, rel=0.2
    )
    both = predict_placement(native, "RP-RD").middle - 1
    assert both == pytest.approx(
        predict_placement(native, "LP-RD").middle + predict_placement(native, "RP").middle - 2
    )
    assert predict_placement(native, "L:1,D:0.5").middle - 1 == pytest.approx(
        (predict_placement(native, "LP-RD").middle - 1) / 2
    )
    assert predict_placement(native, "LP-RDI").middle > predict_placement(native, "LP-RD").middle


@given(st.floats(0.01, 0.45), st.floats(0.5, 2.0))
def test_walk_cycles_of_another_run_give_its_cycles_by_the_law(walk, more):
    local = Run(1.0, walk, 0.0)
    found = calibrate_runs(local, native=True, walkers=0.5)
    assert predict_walks(found, walk).middle == pytest.approx(1)
    outside = outside_cycles(1.0, walk, found.shared.middle)
    expected = run_cycles(outside, walk * more, found.shared.middle)
    assert predict_walks(found, walk * more).middle == pytest.approx(expected)


def test_an_interval_reaches_from_walks_that_all_wait_to_a_walker_that_is_always_shared():
    """0.35 of the time in walks of which half are saved: Basu's end, s = 0, and the law's, s = 1."""
    for known in ({"threads": 2}, {}):
        made = calibrate_runs(Run(1e14, 3.5e13, 0.0), native=True, walkers=1, **known)
        found = predict_walks(made, 1.75e13)
        by_hand = [run_cycles(outside_cycles(1.0, 0.35, s), 0.175, s) for s in (0.0, 1.0)]
        assert by_hand[0] == pytest.approx(1 - 0.175)
        assert found.low < by_hand[1] < by_hand[0] < found.high
        assert found.middle == pytest.approx(by_hand[1] if known else by_hand[0])


def test_what_is_not_known_of_e_and_s_widens_every_prediction():
    def width(made, predict, *asked):
        found = predict(made, *asked)
        return found.high - found.low

    one = calibrate_runs(Run(1000 * M, 350 * M, 400 * M, 10.0))
    shared = calibrate_runs(Run(1000 * M, 350 * M, 0.0), native=True, walkers=1, threads=2)
    for made, name in ((one, "RR"), (shared, "RP")):
        exact = replace(
            made, exposed=Interval.exactly(made.exposed.middle), shared=Interval.exactly(made.shared.middle)
        )
        assert width(made, predict_placement, name) > width(exact, predict_placement, name)
        assert width(made, predict_walks, 500 * M) > width(exact, predict_walks, 500 * M)
        assert predict_placement(made, name).middle == predict_placement(exact, name).middle


def test_a_pair_that_loses_more_than_it_walks_reaches_to_the_line_through_both():
    local, remote = Run(1e14, 3e13, 0.0), Run(1.5e14, 6e13, 0.0)
    made = calibrate_runs(local, remote, "RP", native=True, walkers=1)
    line = 1 + 0.5 * 0.5
    bare = replace(made, counted_noise=0.0)
    found = predict_walks(bare, 4.5e13)
    assert found.middle != pytest.approx(line, rel=1e-4)
    assert found.low <= min(line, found.middle) and found.high >= max(line, found.middle) - 1e-12


@given(st.floats(0.3, 3.0))
def test_walk_cycles_of_either_run_of_a_pair_give_it_back_exactly(lost):
    local, remote = Run(1000.0, 200.0, 0.0, 10.0), Run(1000.0 + 200 * lost, 400.0, 0.0, 12.0)
    found = calibrate_runs(local, remote, "RP", native=True)
    assert predict_walks(found, 200.0).cycles[1] == pytest.approx(1000)
    there = predict_walks(found, 400.0)
    assert there.cycles[1] == pytest.approx(remote.cycles) and there.seconds[1] == pytest.approx(12)


def test_native_runs_have_their_own_placements():
    found = calibrate_runs(Run(1000.0, 350.0, 0.0), Run(1250.0, 600.0, 0.0), "RP")
    assert order(found) == ORDER_NATIVE
    assert predict_placement(found, "RP").middle == pytest.approx(1.25)
    assert predict_placement(found, "RPI").middle > 1.25
    with pytest.raises(UsageError, match="the calibration is native"):
        predict_placement(found, "RR")
    with pytest.raises(UsageError, match="of a virtual machine"):
        predict_placement(TWO, "RP")


NAMES = {
    True: ("LP", "RP", "RPI", "RPIM", "L:0.25,R:0.75", "RP-RD", "LP-RDI", "L:0.6,RI:0.4"),
    False: ("LL", "LR", "RL", "RR", "RRI", "LRI", "RRIE", "RRIM", "LL:0.25,RR:0.75", "RRI-RD", "LR:1,D:0.3"),
}


@st.composite
def runs(draw, native):
    numbers = st.none() | st.floats(1e-3, 1e15)
    cycles = draw(numbers)
    gpt = None if cycles is None else draw(st.none() | st.floats(0, 1.2).map(lambda part: part * cycles))
    ept = 0.0 if native else None if gpt is None else gpt * draw(st.floats(0, 1.5))
    cpus, huge = draw(st.none() | st.floats(0.01, 200)), draw(st.none() | st.floats(0, 1))
    return Run(cycles, gpt, ept, draw(numbers), cpus, draw(numbers), huge)


def test_walks_of_next_to_no_time_that_remote_tables_make_no_longer_wait_for_nothing():
    run = Run(1.0, 1.2e-38, 0.0)
    assert (
        predict_placement(calibrate_runs(run, Run(1.0, None, 0.0), "LP", at="RP", native=True), "LP").middle
        == 1
    )


def test_a_share_of_dram_beyond_floating_point_squares_is_no_crash():
    local, remote = Run(1.0, 9.5e-162, 9.5e-162), Run(2.0)
    found = calibrate_runs(local, remote, "LR")
    assert predict_placement(found, "LR").middle == pytest.approx(2)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_any_runs_give_finite_intervals_or_a_line(data, native):
    name = st.sampled_from(NAMES[native])
    try:
        made = calibrate_runs(
            data.draw(runs(native)),
            data.draw(st.none() | runs(native)),
            data.draw(name),
            at=data.draw(st.none() | name),
            native=native,
            walkers=data.draw(st.sampled_from([None, 0.5, 1.0, 2.0])),
        )
        found = [predict_placement(made, asked) for asked in NAMES[native]]
    except UsageError as refused:
        assert "\n" not in str(refused)
        return
    for one in found:
        for low, middle, high in filter(None, ((one.low, one.middle, one.high), one.cycles, one.seconds)):
            assert 0 <= low <= middle <= high < float("inf") or middle == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "doubted"), [(0.01, True), (0.4, False), (1.0, False), (3.5, False), (20.0, True)]
)
def test_walk_cycles_that_no_placement_gives_are_doubted(times, doubted):
    found = predict_walks(ONE, times * LL.walk)
    assert (found.doubt is not None) == doubted
    if doubted:
        assert f"are {times:.3g} times the local run's" in found.doubt
