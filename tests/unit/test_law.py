"""The run-time law, what is predicted by it alone, and its rivals."""

from pathlib import Path

import pytest
from analyzer.bench.rivals import LAW, ONE, alam, basu, gandhi, line, lines, mosmodel, pooled, rivals
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import ptanalyze
from naive.law import walk_cycles
from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval, combined, over_corners
from ptanalyze.cost import law as run_law
from ptanalyze.cost.law import CONTENDED, LOCAL, REMOTE, placement
from ptanalyze.cost.law import MeasuredRun as Run
from ptanalyze_law.calibrate import calibrate_runs
from ptanalyze_law.closed_forms import most_sharing, run_cycles, waited_cycles, waiting_of
from ptanalyze_law.predict import ORDER, ORDER_NATIVE, noise_of, order, predict_placement, predict_walks

# Predictions of run time from a calibration alone.

M = 2.1e7  # cycles: 1000 of them take 10 s of one CPU
LL = Run(1000 * M, 350 * M, 400 * M, seconds=10.0)
RRI = Run(2100 * M, 900 * M, 1000 * M)
CALIBRATED, CALIBRATED_TWICE = calibrate_runs(LL), calibrate_runs(LL, RRI, "RRI")


def test_the_local_run_and_the_measured_one_come_back_exactly():
    local, found = (predict_placement(CALIBRATED_TWICE, name) for name in ("LL", "RRI"))
    assert local.low == local.middle == local.high == 1 and local.measured
    assert found.low == found.middle == found.high == pytest.approx(2.1)
    assert found.cycles == pytest.approx((2100 * M,) * 3) and found.seconds == pytest.approx((21.0,) * 3)
    assert found.measured and not predict_placement(CALIBRATED_TWICE, "RR").measured
    assert not predict_placement(CALIBRATED_TWICE, "RRIM").measured  # repaired, not run


def test_repaired_tables_are_local_ones():
    once, twice = (predict_placement(made, "RRIM") for made in (CALIBRATED, CALIBRATED_TWICE))
    assert once.middle == twice.middle == 1
    noise = noise_of(CALIBRATED_TWICE, 1.0, CALIBRATED_TWICE.noise)
    assert (twice.high - 1) ** 2 == pytest.approx(CALIBRATED_TWICE.repair**2 + noise**2)
    assert predict_placement(CALIBRATED, "RRIE").middle == predict_placement(CALIBRATED, "RLI").middle
    assert predict_placement(CALIBRATED, "RRI+G").middle == predict_placement(CALIBRATED, "LRI").middle


@pytest.mark.parametrize("calibration", [CALIBRATED, CALIBRATED_TWICE])
def test_what_remote_tables_add_is_a_sum_over_tables(calibration):
    added = {name: predict_placement(calibration, name).middle - 1 for name in ORDER}
    assert added["RR"] == pytest.approx(added["LR"] + added["RL"])
    assert added["RRI"] == pytest.approx(added["LRI"] + added["RLI"])
    assert added["LRI"] > added["LR"] > 0 and added["RLI"] > added["RL"] > 0


@pytest.mark.parametrize("calibration", [CALIBRATED, CALIBRATED_TWICE])
def test_intervals_hold_their_middle_and_one_run_leaves_more_open_than_two(calibration):
    for one in (predict_placement(calibration, name) for name in order(calibration)):
        assert one.low <= one.middle <= one.high
        assert one.cycles == pytest.approx(tuple(r * 1000 * M for r in (one.low, one.middle, one.high)))
    for name in ("RR", "RRIE", "RRI"):
        wide, narrow = predict_placement(CALIBRATED, name), predict_placement(CALIBRATED_TWICE, name)
        assert wide.high - wide.low > narrow.high - narrow.low


def test_the_middle_is_the_closed_form():
    e, f = CALIBRATED.exposed.middle, CALIBRATED.dram_share.middle
    k, loaded = CALIBRATED.remote_stretch.middle, CALIBRATED.contended_stretch.middle
    assert predict_placement(CALIBRATED, "RR").middle == pytest.approx(1 + e * f * 0.75 * (k - 1))
    assert predict_placement(CALIBRATED, "LRI").middle == pytest.approx(1 + e * f * 0.75 / 2 * (loaded - 1))


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
    walked = 400.0 - 1000 * (1 - saved.middle) / made.exposed.middle
    again = calibrate_runs(Run(1000.0 * saved.middle, walked, 0.0), native=True)
    assert saved.middle < 1 and predict_placement(made, local).measured
    assert predict_placement(again, local).middle * saved.middle == pytest.approx(1, rel=0.05)


def test_shares_lie_between_the_ends_and_their_share_of_the_way():
    ends = [predict_placement(CALIBRATED, name).middle for name in ("LL", "RR")]
    shares = predict_placement(CALIBRATED, "LL:0.25,RR:0.75").middle
    assert shares == pytest.approx(ends[0] + 0.75 * (ends[1] - ends[0]))
    mixed = predict_placement(CALIBRATED, "LL:0.25,LR:0.25,RL:0.25,RR:0.25").middle
    assert mixed == pytest.approx(ends[0] + 0.5 * (ends[1] - ends[0]))


def test_remote_data_stretch_cycles_outside_walks_alone():
    native = calibrate_runs(Run(1000.0, 400.0, 0.0), native=True)
    expected = 1 + 0.6 * native.data_share.middle * (native.remote_stretch.middle - 1)
    assert predict_placement(native, "LP-RD").middle == pytest.approx(expected, rel=0.2)
    both = predict_placement(native, "RP-RD").middle - 1
    apart = (predict_placement(native, name).middle for name in ("LP-RD", "RP"))
    assert both == pytest.approx(sum(apart) - 2)
    half, whole = (predict_placement(native, name).middle - 1 for name in ("L:1,D:0.5", "LP-RD"))
    assert half == pytest.approx(whole / 2)
    assert predict_placement(native, "LP-RDI").middle > predict_placement(native, "LP-RD").middle


@given(st.floats(0.01, 0.45), st.floats(0.5, 2.0))
def test_walk_cycles_of_another_run_give_its_cycles_by_the_law(walk, more):
    found = calibrate_runs(Run(1.0, walk, 0.0), native=True, walkers=0.5)
    assert predict_walks(found, walk).middle == pytest.approx(1)
    outside = run_law.outside_cycles(1.0, walk, found.shared.middle)
    expected = run_cycles(outside, walk * more, found.shared.middle)
    assert predict_walks(found, walk * more).middle == pytest.approx(expected)


def test_an_interval_reaches_from_walks_that_all_wait_to_a_walker_that_is_always_shared():
    """0.35 of the time in walks of which half are saved: Basu's end, s = 0, and the law's, s = 1."""
    for known in ({"threads": 2}, {}):
        made = calibrate_runs(Run(1e14, 3.5e13, 0.0), native=True, walkers=1, **known)
        found = predict_walks(made, 1.75e13)
        by_hand = [run_cycles(run_law.outside_cycles(1.0, 0.35, s), 0.175, s) for s in (0.0, 1.0)]
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
        exposed, shared = (Interval.exactly(one.middle) for one in (made.exposed, made.shared))
        exact = replace(made, exposed=exposed, shared=shared)
        assert width(made, predict_placement, name) > width(exact, predict_placement, name)
        assert width(made, predict_walks, 500 * M) > width(exact, predict_walks, 500 * M)
        assert predict_placement(made, name).middle == predict_placement(exact, name).middle


def test_a_pair_that_loses_more_than_it_walks_reaches_from_basu_to_its_own_curve():
    local, remote = Run(1e14, 3e13, 0.0), Run(1.5e14, 6e13, 0.0)
    made = replace(calibrate_runs(local, remote, "RP", native=True, walkers=1), counted_noise=0.0)
    found = predict_walks(made, 4.5e13)
    assert found.middle == pytest.approx(1 + 0.5 * 0.5, abs=0.02)  # the line
    outside = [run_law.outside_cycles(1.0, 0.3), run_law.outside_cycles(1.5, 0.6)]
    basu = (outside[0] + outside[1] / 1.5**2) / (1 + 1 / 1.5**2) + 0.45
    assert min(found.low, found.high, key=lambda end: abs(end - basu)) == pytest.approx(basu)


@given(st.floats(1.05, 1.7))
def test_walk_cycles_of_either_run_of_a_pair_give_it_back_where_walkers_allow_both(lost):
    local, remote = Run(1000.0, 200.0, 0.0, 10.0), Run(1000.0 + 200 * lost, 400.0, 0.0, 12.0)
    found = calibrate_runs(local, remote, "RP", native=True, walkers=1, threads=2)
    for run in (local, remote):
        assert predict_walks(found, run.gpt).cycles[1] == pytest.approx(run.cycles, rel=1e-3)


@given(st.floats(0.3, 1.6))
def test_a_thread_with_a_walker_of_its_own_waits_for_all_walks_whatever_two_runs_say(lost):
    """e = 1: each run is as good a measure of the rest, by its noise."""
    local, remote = (Run(1000.0, 200.0, 0.0, cpus=1.0), Run(1000.0 + 200 * lost, 400.0, 0.0, cpus=1.0))
    found = calibrate_runs(local, remote, "RP", native=True, walkers=1)
    assert found.exposed.middle == pytest.approx(1) and found.exposed.high == 1
    weights = 1000.0**-2, remote.cycles**-2
    rest = (800 * weights[0] + (remote.cycles - 400) * weights[1]) / sum(weights)
    assert predict_walks(found, 300.0).cycles[1] == pytest.approx(rest + 300)


def test_native_runs_have_their_own_placements():
    found = calibrate_runs(Run(1000.0, 350.0, 0.0), Run(1250.0, 600.0, 0.0), "RP")
    assert order(found) == ORDER_NATIVE
    assert predict_placement(found, "RP").middle == pytest.approx(1.25)
    assert predict_placement(found, "RPI").middle > 1.25
    with pytest.raises(UsageError, match="the calibration is native"):
        predict_placement(found, "RR")
    with pytest.raises(UsageError, match="of a virtual machine"):
        predict_placement(CALIBRATED_TWICE, "RP")


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


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans())
def test_any_runs_give_finite_intervals_or_a_line(data, native):
    name = st.sampled_from(NAMES[native])
    try:
        pair = data.draw(runs(native)), data.draw(st.none() | runs(native))
        walkers, at = data.draw(st.sampled_from([None, 0.5, 1.0, 2.0])), data.draw(st.none() | name)
        made = calibrate_runs(*pair, data.draw(name), at=at, native=native, walkers=walkers)
        found = [predict_placement(made, asked) for asked in NAMES[native]]
    except UsageError:
        return
    for one in found:
        for low, middle, high in filter(None, ((one.low, one.middle, one.high), one.cycles, one.seconds)):
            assert 0 <= low <= middle <= high < float("inf") or middle == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "doubted"), [(0.01, True), (0.4, False), (1.0, False), (3.5, False), (20.0, True)]
)
def test_walk_cycles_that_no_placement_gives_are_doubted(times, doubted):
    found = predict_walks(CALIBRATED, times * LL.walk)
    assert (found.doubt is not None) == doubted
    if doubted:
        assert f"are {times:.3g} times the local run's" in found.doubt


# The run-time law: closed forms, inverses, and intervals that hold every combination of their unknowns.

shares = st.floats(0.05, 1.0)
stretches = st.floats(1.0, 5.0)
cycles = st.floats(1.0, 1e6)


@st.composite
def intervals(draw, values):
    return Interval(*sorted(draw(st.tuples(values, values, values))))


def law(nw, e, gpt, ept, f_g, f_e, k_g, k_e, s=0.0):
    return run_cycles(nw, e * walk_cycles(gpt, ept, f_g, f_e, k_g, k_e), s)


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
    assert run_law.outside_cycles(whole, waited, s) == pytest.approx(outside, rel=1e-6, abs=1e-6 * whole)
    assert waited_cycles(whole, outside, s) == pytest.approx(waited, rel=1e-6, abs=1e-6 * whole)


@given(cycles, cycles, st.floats(0.0, 1.0))
def test_a_further_cycle_of_waiting_loses_between_one_and_two(outside, waited, s):
    step = 1e-4 * (outside + waited)
    ends = waited + step, waited - min(step, waited)
    found = (run_cycles(outside, ends[0], s) - run_cycles(outside, ends[1], s)) / (step + min(step, waited))
    busy = waited / (outside + waited)
    lost = 1 + s * (2 * busy - busy**2)
    assert found == pytest.approx(lost, rel=1e-3) and 1 <= lost <= 2


@given(cycles, st.floats(0.01, 0.99))
def test_sharing_ends_where_the_run_holds_no_more_waiting(whole, part):
    s = min(most_sharing(whole, part * whole), 1.0)
    assert run_law.outside_cycles(whole, part * whole, s) >= -1e-6 * whole


@given(cycles, shares, cycles, cycles, shares, shares, stretches, stretches)
def test_waiting_for_dram_is_the_law_less_the_local_run(nw, e, gpt, ept, f_g, f_e, k_g, k_e):
    waiting = e * (f_g * gpt + f_e * ept)
    part = f_g * gpt / (f_g * gpt + f_e * ept)
    added = law(nw, e, gpt, ept, f_g, f_e, k_g, k_e) - law(nw, e, gpt, ept, f_g, f_e, 1, 1)
    assert waiting * waiting_of(part, k_g, k_e) == pytest.approx(added, rel=1e-9, abs=1e-6)


@given(intervals(shares), intervals(stretches))
def test_independent_unknowns_are_added_as_the_legs_of_a_right_angle(f, k):
    found = combined(lambda f, k: f + k, f, k)
    assert found.middle == f.middle + k.middle
    both = (f.high - f.middle) ** 2 + (k.high - k.middle) ** 2
    assert (found.high - found.middle) ** 2 == pytest.approx(both, abs=1e-9)
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


STATES = {"L": LOCAL, "R": REMOTE, "C": CONTENDED, "-": None}
NAMED = {  # gPT and ePT
    "LL": "LL", "LR": "LR", "RL": "RL", "RLI": "CL", "RRI": "CC", "RRIE": "CL", "RRI+G": "LC", "RRIM": "LL",
    "RRE": "RL", "LP": "L-", "RP-LD": "R-", "RPI-LD": "C-", "RPI-LD+M": "L-", "RIM": "L-", "R": "R-",
    "LP-RD": "L-", "RPI-RDI": "C-", "RRI-RD": "CC", "RR:1": "RR", "LL:0.1,LR:0.2,RL:0.3,RR:0.4": "RR",
    "LL:50%, LRI:50%": "LC", "L:0.25,R:0.75,D:0.75": "R-",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_placements_are_named_as_in_the_figures(name):
    found, (gpt, ept) = placement(name), map(STATES.get, NAMED[name])
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


# Rival models of run time: closed forms, and the table that puts them beside the law.

ADR = Path(ptanalyze.__file__).parents[1] / "docs/adr/0029-a-law-beside-its-rivals.md"
ALL_LOCAL, HUGE = (40.0, 100.0), (10.0, 60.0)
numbers = st.floats(0.1, 10.0)


@pytest.fixture(scope="module")
def table():
    return rivals()


def test_each_model_by_hand():
    assert basu(ALL_LOCAL)(70) == 130  # 60 outside walks
    assert alam(HUGE)(70) == 120  # 50 outside walks
    assert gandhi(ALL_LOCAL, HUGE)(80) == 150  # from 50 without walks, 50 more for each 40
    assert line(ALL_LOCAL, HUGE)(70) == 140  # 40 more for each 30
    for model in (basu(ALL_LOCAL), gandhi(ALL_LOCAL, HUGE), line(ALL_LOCAL, HUGE)):
        assert model(ALL_LOCAL[0]) == pytest.approx(ALL_LOCAL[1])


@given(numbers, numbers, numbers)
def test_polynomials_give_back_polynomials(a, b, c):
    points = [(x, a + b * x + c * x * x) for x in (1.0, 2.0, 3.0, 5.0, 8.0)]
    for degree in (2, 3):
        assert mosmodel(points, degree)(4.0) == pytest.approx(a + 4 * b + 16 * c, rel=1e-6)
    added = [(x, b * x + c * x * x) for x in (0.1, 0.5, 1.0, 2.0)]
    assert pooled(ALL_LOCAL, added, 2)(140.0) == pytest.approx(100 * (1 + b + c), rel=1e-6)


def test_the_law_is_no_worse_than_the_others_from_the_same_runs(table):
    errors = table.error.abs().groupby([table.family, table.known, table.model]).mean()
    for family in ("thin-2D-4K", "thin-1D-4K", "native-thin", "ports-xeon"):
        assert errors[family, ONE, LAW] < errors[family, ONE].drop(LAW).min(), family


def test_the_table_of_the_adr_is_that_of_the_script(table):
    assert "\n".join(lines(table)) in ADR.read_text("utf-8")
