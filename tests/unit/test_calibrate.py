"""Calibration from runs: what they identify, the prices that follow, the file that keeps them."""

import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import Latency, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.cost.counts import DRAM, LLC, STEADY
from ptanalyze.cost.law import MeasuredRun as Run
from ptanalyze.cost.law import outside_cycles, placement
from ptanalyze.cost.price import Law
from ptanalyze.formats.measured import write_calibration, write_machine
from ptanalyze.kernels.replay import counters
from ptanalyze_law import calibrate as calibration
from ptanalyze_law.assumed import LEAST_WAIT, FittedPrior, exposed_prior
from ptanalyze_law.calibrate import MANY_THREADS, ONE_OR_MANY, PART, SHARE, calibrate_runs, weighed
from ptanalyze_law.closed_forms import run_cycles
from ptanalyze_law.prior import STRETCH, runs
from ptanalyze_law.run_time import read_calibration
from replay_cases import COSTS, HEAP, answered, counts_of, priced
from strategies import PAGE, build_snapshot, build_trace, small_machine

LL = Run(1000.0, 350.0, 400.0)
PRIOR = {"native-thin": "native-thin", "thin-1D-THP": "thin-1D-4K"}
COMMON = FittedPrior(
    family="made up",
    workloads=("a", "b"),
    dram_share=Interval(0.7, 0.8, 0.9),
    many_share=Interval(0.0, 0.4, 1.0),
    gpt_part=Interval(0.47, 0.5, 0.53),
    contention=Interval(2.7, 2.9, 3.1),
    any_contention=Interval(2.5, 2.9, 3.3),
    anywhere=Interval(1.0, 3.0, 4.5),
    slope=1.4,
    walk_rate=0.75 / 1.75,
    stretch=1.9,
    data_share=Interval(0.2, 0.5, 1.0),
    data_loaded=Interval(1.0, 3.0, 9.0),
    noise=0.02,
    many_noise=0.06,
    any_noise=0.03,
    repair=0.04,
)


def at(name, e=0.8, f=0.8, far=1.9, loaded=3.6, local=LL):
    """The run at a placement that obeys the law, both tables with the same waiting."""
    waiting = f * local.walk / 2
    k = {"local": 1.0, "remote": far, "contended": loaded}
    gpt = local.gpt + waiting * (k[placement(name).gpt] - 1)
    ept = local.ept + waiting * (k[placement(name).ept] - 1)
    return Run(local.cycles + e * (gpt + ept - local.walk), gpt, ept)


@pytest.mark.parametrize("name", ["LR", "RL", "RR", "LRI", "RLI", "RRI", "RRIE", "RRIG"])
@given(st.floats(0.5, 1.0), st.floats(0.5, 1.0))
def test_any_remote_run_gives_e_and_f_exactly(name, e, f):
    far, loaded = 1.9, 1 + COMMON.contention.middle * 0.9
    found = calibrate_runs(LL, at(name, e, f, far, loaded), name, common=COMMON)
    assert found.exposed.low - 1e-9 <= e <= found.exposed.high + 1e-9  # as far as the noise of runs lets know
    assert found.exposed.middle == pytest.approx(e, abs=0.2)
    other, half = at(name, e, f, far, loaded), Interval(0.4, 0.8, 1.0)
    exact = calibration.waiting_shares(LL, other, half, found.shared, True, 0.0)
    assert [*exact[0]] == pytest.approx([e, e, e])
    assert found.dram_share.low - 1e-9 <= f <= found.dram_share.high + 1e-9
    assert found.shared.high == pytest.approx(0, abs=1e-9) and not found.flags


@given(st.floats(0.2, 1.0), st.floats(0.1, 0.45))
def test_a_remote_run_gives_how_much_of_the_time_a_walker_is_shared(s, walk):
    outside = outside_cycles(1000.0, 1000 * walk, s)
    walks = (1000 * walk * more for more in (1, 2))
    local, remote = (Run(run_cycles(outside, walked, s), walked, 0.0) for walked in walks)
    found = calibrate_runs(local, remote, "RP", native=True, walkers=1, common=COMMON)
    assert found.exposed == Interval.exactly(1.0)
    assert found.shared.middle == pytest.approx(s, abs=1e-4)
    assert found.dram_share.middle == pytest.approx(1)  # 1 / 0.9 with k = 1.9, which cannot be
    assert found.remote_stretch.middle == pytest.approx(2, rel=1e-4) and "taken for 2 times" in found.flags[0]


def test_one_run_gives_bounds_of_e_and_says_what_is_assumed():
    found = calibrate_runs(LL, common=COMMON)
    assert found.exposed.low == LEAST_WAIT * 0.5 and found.exposed.high == 1.0
    assert found.exposed.middle == pytest.approx((1 - (1 - 0.375) ** 2) / 0.75)
    assert found.remote is None and found.placement is None
    text = " ".join(found.assumed)
    assert "1 to 2 page walkers" in text and "a, b" in text and "f = 0.80 (0.00 to 1.00)" in text
    assert "1 or 2 threads per core: elapsed time is not known (--threads-per-core)" in text
    assert found.flags == (ONE_OR_MANY,) and found.noise == COMMON.any_noise
    alone = calibrate_runs(msgspec.structs.replace(LL, cpus=1.0), common=COMMON)
    assert "f = 0.80 (0.70 to 0.90)" in " ".join(alone.assumed) and alone.flags == ()


@given(st.floats(0.01, 2.0), st.sampled_from([1.0, 1.5, 2.0]))
def test_exposure_keeps_its_bounds(walk_per_cycle, walkers):
    found = exposed_prior(min(walk_per_cycle, walkers), Interval.exactly(walkers))
    assert 0 < found.low <= found.middle <= found.high <= 1
    assert found.high * min(walk_per_cycle, walkers) <= 1 + 1e-12


def test_two_saturated_walkers_expose_half_and_one_exposes_all():
    one, two, half = (Interval.exactly(walkers) for walkers in (1.0, 2.0, 0.5))
    assert exposed_prior(2.0, two).middle == 0.5
    assert exposed_prior(0.9, one).middle == exposed_prior(0.4, half).middle == 1
    assert exposed_prior(0.0, two).middle == 1
    assert exposed_prior(0.8, Interval(1.0, 1.0, 2.0)) == Interval(LEAST_WAIT * 0.5, 1.0, 1.0)


@pytest.mark.parametrize("each", [0.05, 0.3, 0.45])
def test_walkers_that_are_busy_by_chance_hide_as_much_as_a_simulation_says(each):
    """Two walkers, each busy for `each` of the time and independent: share of it with at least one busy."""
    busy = np.random.default_rng(3).random((2, 200_000)) < each
    waited = busy.any(axis=0).mean() / busy.sum(axis=0).mean()
    assert exposed_prior(2 * each, Interval.exactly(2.0)).middle == pytest.approx(waited, abs=0.005)


@given(st.floats(0.5, 1.0), st.floats(0.001, 1.0), st.floats(0.5, 0.9))
def test_a_measured_number_counts_by_what_its_noise_leaves(measured, within, middle):
    expected = Interval(0.5, middle, 1.0)
    found = weighed(measured, within, expected)
    assert min(measured, middle) - 1e-12 <= found <= max(measured, middle) + 1e-12
    assert weighed(measured, 1e-9, expected) == pytest.approx(measured)
    assert weighed(2.0, 1e-9, expected) == 1.0 and weighed(0.1, 1e-9, expected) == 0.5
    assert weighed(measured, 1e9, expected) == pytest.approx(middle)


def test_busy_hyperthreads_share_the_walkers_of_their_core():
    busy = Run(1000.0, 350.0, 400.0, cpus=48.0)
    alone = Run(1000.0, 350.0, 400.0, cpus=1.0)
    assert calibrate_runs(busy, common=COMMON).walkers == 1
    assert calibrate_runs(alone, common=COMMON).walkers == 2
    assert calibrate_runs(busy, common=COMMON, walkers=2).walkers == 1
    assert calibrate_runs(alone, common=COMMON, walkers=0.5).walkers == 0.5
    ghz, seconds = 2.1e9, 10.0
    counted = Run(36 * ghz * seconds, 1e11, 1e11, seconds)
    assert calibrate_runs(counted, common=COMMON).walkers == pytest.approx(2 / 1.5)
    everywhere = Run(36 * ghz * seconds, 1e11, 1e11, seconds, cpus=192.0)
    assert calibrate_runs(everywhere, common=COMMON).walkers == pytest.approx(2 / 1.5)
    wide = Run(150 * ghz * seconds, 1e11, 1e11, seconds)
    assert calibrate_runs(wide, common=COMMON).walkers == pytest.approx(2 / (150 / 96))
    assert calibrate_runs(counted, at="LL:0.5,RR:0.5", common=COMMON).walkers == 2


def test_busy_threads_of_cores_with_one_walker_wait_for_each_other():
    busy = Run(1000.0, 300.0, 0.0, cpus=48.0)
    found = calibrate_runs(busy, walkers=1, threads=2, native=True, common=COMMON)
    assert found.walkers == 0.5 and found.shared == Interval(0.0, 1.0, 1.0)
    assert found.dram_share == COMMON.many_share and "many threads" in " ".join(found.assumed)
    apart = calibrate_runs(busy, walkers=1, threads=1, native=True, common=COMMON)
    assert apart.walkers == 1
    assert apart.shared == Interval.exactly(0.0)
    assert apart.dram_share == found.dram_share
    alone = calibrate_runs(Run(1000.0, 300.0, 0.0, cpus=1.0), walkers=1, native=True, common=COMMON)
    assert found.flags == (MANY_THREADS,) and alone.flags == ()
    assert alone.walkers == 1 and alone.shared == Interval.exactly(0.0)
    assert alone.dram_share == COMMON.dram_share


def test_a_node_that_its_own_threads_load_half_is_half_way():
    half = calibrate_runs(Run(1000.0, 350.0, 400.0, cpus=12.5), common=COMMON)
    ends = zip(COMMON.dram_share, COMMON.many_share, strict=True)
    assert [*half.dram_share] == pytest.approx([(alone + many) / 2 for alone, many in ends])


def test_whether_threads_of_a_machine_that_is_not_named_share_walkers_is_open():
    """64 hyperthreads of 32 cores with one walker each: not the machine of the reference runs."""
    busy = Run(64 * 2.1e9, 10 * 2.1e9, 0.0, seconds=1.0)
    found = calibrate_runs(busy, walkers=1, native=True, common=COMMON)
    assert found.walkers == 1 and found.shared == Interval(0.0, 0.0, 1.0)
    assert "on how many cores is not known (-m, --threads-per-core)" in found.assumed[0]
    named = calibrate_runs(busy, walkers=1, native=True, common=COMMON, machine="vmitosis-cascade-lake")
    assert named.walkers == pytest.approx(1 / (64 / 48))
    one = calibrate_runs(Run(2.1e9, 1e9, 0.0, seconds=1.0), walkers=1, native=True, common=COMMON)
    assert one.walkers == 1 and one.dram_share == COMMON.dram_share


def test_cpu_time_says_nothing_of_threads():
    """A thread that runs for 13 hours is one: s is not 1 because of that."""
    short, long = (
        calibrate_runs(Run(cycles, cycles / 4, 0.0), walkers=1, native=True, common=COMMON)
        for cycles in (1e12, 1e14)
    )
    for found in (short, long):
        assert found.walkers == 1 and found.shared == Interval(0.0, 0.0, 1.0)
        assert found.flags == (ONE_OR_MANY,) and found.assumed == short.assumed
    timed = calibrate_runs(Run(1e14, 2.5e13, 0.0, 1e14 / 2.1e9), walkers=1, native=True, common=COMMON)
    assert timed.shared == Interval.exactly(0.0) and timed.assumed[0].endswith("one thread: 1 CPUs were busy")


def test_one_thread_shares_no_walker_whatever_a_second_run_loses():
    """1.44 cycles lost per walk cycle: with one thread something else was slower too, and it is said."""
    local, remote = Run(1e12, 3e11, 0.0, 480.0), Run(1.432e12, 6e11, 0.0, 687.0)
    found = calibrate_runs(local, remote, "RP", walkers=1, native=True, common=COMMON)
    assert "one thread" in found.assumed[0] and found.shared == Interval.exactly(0.0)
    assert "1.44 times as much as walk cycles, a thread alone on its core loses at most 1" in found.flags[0]
    open_ = [msgspec.structs.replace(run, seconds=None) for run in (local, remote)]
    either = calibrate_runs(*open_, "RP", walkers=1, native=True, common=COMMON)
    assert either.shared.low == 0 and either.shared.middle == either.shared.high > 0.4
    assert "one thread" not in " ".join(either.assumed) and "taken for 2 times" in either.flags[0]


def test_walk_cycles_bound_the_threads_that_share_a_walker():
    """0.9 walk cycles per cycle: one walker serves 1.1 threads at most."""
    found = calibrate_runs(Run(1000.0, 900.0, 0.0), walkers=1, threads=2, native=True, common=COMMON)
    assert found.walkers == pytest.approx(0.9) and found.shared.high == pytest.approx(1 / 0.9 - 1)


@pytest.fixture
def machine(tmp_path):
    """machine(idle, contended): a machine file with these measured latencies."""

    def write(idle, contended=None):
        model = load_machine("hydra-haswell").resized(len(idle))
        sources = {**model.sources, "latency_contended": "measured"}
        latency = Latency(idle=idle, contended=contended)
        path = tmp_path / "mine.toml"
        write_machine(path, msgspec.structs.replace(model, latency=latency, sources=sources))
        return path

    return write


def test_latencies_that_were_measured_replace_the_fitted_ones(machine):
    idle, loaded = ((80.0, 160.0), (160.0, 80.0)), ((100.0, 320.0), (320.0, 100.0))
    found = calibrate_runs(LL, machine=machine(idle, loaded), common=COMMON)
    assert found.remote_stretch == Interval.exactly(2.0)
    assert found.contended_stretch.middle == 4.0
    assert found.contended_stretch.high == pytest.approx(1 + 3 * 3.1 / 2.9)
    found = calibrate_runs(LL, machine=machine(idle), common=COMMON)
    assert [*found.contended_stretch] == pytest.approx([1 + ratio for ratio in COMMON.anywhere])
    assert "contention of other machines" in " ".join(found.assumed)


def test_a_table_is_not_waited_for_longer_than_it_is_walked():
    found = calibrate_runs(Run(1000.0, 10.0, 700.0), common=COMMON)
    assert found.gpt_part.high == pytest.approx(10 / (0.8 * 710))


def test_a_native_run_has_one_table():
    found = calibrate_runs(Run(1000.0, 350.0, 0.0), common=COMMON)
    assert found.native and found.gpt_part == Interval.exactly(1.0)
    assert calibrate_runs(Run(1000.0, 350.0), Run(1300.0, 700.0), "RP", common=COMMON).native


@pytest.mark.parametrize(
    ("local", "remote", "name", "why"),
    [
        (Run(1000.0, 1500.0, 700.0), None, None, "local run: walk cycles = 2,200: more than 2 page walkers"),
        (LL, Run(2000.0, 3500.0, 700.0), "RR", "remote run: walk cycles = 4,200"),
        (LL, Run(900.0, 700.0, 800.0), "RR", "remote run: cycles = 900: not above"),
        (LL, LL, "RR", "not above the local run"),
        (LL, at("RR"), None, "needs its placement"),
        (LL, at("RR"), "LL", "all tables are local"),
        (LL, at("RR"), "RRIM", "all tables are local"),
        (LL, at("RR"), "LL:0.98,LR:0.02", "as remote as the local run's"),
        (Run(1000.0), Run(seconds=10.0), "RR", "cycles of one run and seconds of the other"),
        (Run(seconds=10.0), Run(seconds=9.0), "RR", "remote run: seconds = 9: not above the local run's 10"),
        (Run(seconds=10.0), None, None, "local run: its cycles are not counted: add a run"),
        (Run(seconds=0.0), Run(seconds=9.0), "RR", "local run: seconds = 0"),
        (Run(), Run(seconds=9.0), "RR", "local run: neither cycles nor seconds"),
        (LL, at("RR"), "RP", "ePT walk cycles = 400: a native run has none"),
        (Run(1e-308), None, None, "local run: cycles = 1e-308"),
        (Run(float("nan"), 1.0, 1.0), None, None, "local run: cycles = nan"),
        (Run(float("inf"), 1.0, 1.0), None, None, "local run: cycles = inf"),
        (Run(10.0, -1.0, 1.0), None, None, "gpt = -1"),
        (Run(10.0, 0.0, 0.0), None, None, "walk cycles = 0"),
        (Run(10.0), None, None, "not counted: add a run"),
        (LL, Run(1300.0, float("nan"), 1.0), "RR", "remote run: gpt = nan"),
    ],
)
def test_counters_that_contradict_are_refused_by_name(local, remote, name, why):
    with pytest.raises(UsageError, match=why):
        calibrate_runs(local, remote, name, common=COMMON)


@pytest.mark.parametrize(
    ("remote", "name", "why"),
    [
        (Run(1300.0, 351.0, 800.0), "RR", "gpt: remote, yet its walk cycles change by \\+0.3%"),
        (Run(1300.0, 250.0, 900.0), "LR", "gpt: local in both runs, yet its walk cycles change by -29%"),
        (Run(1900.0, 550.0, 600.0), "RR", "something else slowed the run too"),
        (Run(1900.0, 351.0, 401.0), "RR", "cycles grow 450.00 times as much"),
        (Run(1900.0, 350.0, 400.0), "RR", "cycles grow by 90 %, walk cycles by 0: something else slowed"),
        (Run(1900.0, 340.0, 400.0), "LR", "cycles grow by 90 %, walk cycles by -10: something else slowed"),
        (Run(1100.0, 351.0, 401.0), "RR", "ept: remote, yet"),
    ],
)
def test_what_does_not_fit_the_placement_is_flagged_by_name(remote, name, why):
    flags = "; ".join(calibrate_runs(LL, remote, name, common=COMMON).flags)
    assert re.search(why, flags), flags


def test_a_run_that_walks_less_and_is_faster_is_not_said_to_be_slowed():
    """vMitosis' GUPS, local and repaired tables, 1e9 cycles: 2.3 % faster with 2.6 % fewer walk cycles."""
    local, mended = Run(541.0, 456.8, 482.6), Run(528.4, 448.9, 466.0)
    assert calibration.suspicious(local, mended, placement("RRIM")) == []


@pytest.mark.parametrize(
    ("idle", "why"), [(((80.0,),), "a single node"), (((80.0, 80.0), (80.0, 80.0)), "1 times as far")]
)
def test_a_machine_without_farther_nodes_is_refused(machine, idle, why):
    with pytest.raises(UsageError, match=why):
        calibrate_runs(LL, machine=machine(idle), common=COMMON)


@pytest.mark.parametrize(
    ("local", "remote", "why"),
    [
        (Run(1e12, 3e11, 0.0, 100.0), Run(2e12, 9e11, 0.0, 271.0), "there.csv: 271 s are 2.710 times the"),
        (Run(10.0, 3.0, 0.0, instructions=10), Run(20.0, 9.0, 0.0, instructions=13), "13 inst.* 1.30 times"),
        (Run(1e12, 3e11, 0.0, cpus=4.0), Run(2e12, 9e11, 0.0, cpus=3.0), "there.csv: 3 CPUs were busy, 4 in"),
        (Run(1e12, 3e11, 0.0, 10.0, 4.0), Run(2e12, 9e11, 0.0, 20.0, 4.0), "here.csv: 1e\\+12 cycles in 10"),
    ],
)
def test_two_runs_that_contradict_each_other_are_named_with_file_and_values(local, remote, why):
    sources = {"local": "here.csv", "remote": "there.csv"}
    found = calibrate_runs(local, remote, "RP", native=True, common=COMMON, sources=sources)
    assert re.search(why, "; ".join(found.flags)), found.flags
    assert all("\n" not in flag for flag in found.flags)


def test_a_run_that_something_else_slowed_down_leaves_a_loaded_node_more_uncertain():
    sane, odd = (calibrate_runs(LL, Run(c, 550.0, 600.0), "RR", common=COMMON) for c in (1300.0, 2000.0))
    assert odd.contended_stretch.high - 1 == pytest.approx(2 * (sane.contended_stretch.high - 1))
    assert odd.contended_stretch.middle == sane.contended_stretch.middle


def test_huge_pages_in_the_host_leave_the_waiting_to_the_gpt():
    assert calibrate_runs(Run(10.0, 4.0, 1.6), Run(13.0, 7.0, 1.6), "RR", common=COMMON).gpt_part == PART


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Run(10.0, 4.0, 1.6), "ePT walk cycles are 0.40 times the gPT's"),
        (Run(10.0, 4.0, 4.0, huge_walks=0.95), "95 % of its walks end at 2 MiB pages"),
    ],
)
def test_huge_pages_are_known_from_the_counters_and_leave_everything_open(run, why):
    found = calibrate_runs(run, common=COMMON)
    assert (found.dram_share.low, found.dram_share.high) == (0, 1)
    assert re.search(f"2 MiB pages: {why}.*add a run with remote tables", found.flags[0])
    assert not calibrate_runs(Run(10.0, 4.0, 4.2, cpus=1.0, huge_walks=0.05), common=COMMON).flags


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (Run(10.0, 4.0, 4.0, huge_walks=0.4), "40 % of its walks end at 2 MiB pages, the others"),
        (Run(10.0, 8.0, 4.0, cpus=1.0), "walks all of the time as if they were of 4 KiB"),
    ],
)
def test_fragmented_huge_pages_are_refused_from_a_local_run_alone(run, why):
    """vMitosis, TF: GUPS RRIM walks 1.7 times its cycles, the ePT 0.64 times the gPT."""
    with pytest.raises(UsageError, match=rf"fragmented memory: .*{why}.*add a run with remote tables"):
        calibrate_runs(run, common=COMMON)
    slower = msgspec.structs.replace(run, cycles=13.0, gpt=run.gpt + 3)
    assert calibrate_runs(run, slower, "RR", common=COMMON).remote == slower


def test_what_a_loaded_node_costs_is_open_on_a_machine_where_it_was_not_measured(machine):
    """An estimate in a machine file is one; a measured file, and the reference machine, are known better."""
    guessed = calibrate_runs(LL, common=COMMON, machine="epyc-7543-16-nodes").contended_stretch
    far = calibrate_runs(LL, common=COMMON, machine="epyc-7543-16-nodes").remote_stretch.middle
    assert guessed.low == far and guessed.high == pytest.approx(1 + COMMON.anywhere.high * (far - 1))
    model = load_machine("epyc-7543-16-nodes").latency
    model_like = machine(model.idle, model.contended)
    measured = calibrate_runs(LL, common=COMMON, machine=model_like).contended_stretch
    assert guessed.middle == measured.middle and measured.low > guessed.low


def test_the_share_with_huge_pages_is_the_mean_of_the_published_programs():
    """Natively and over a shadow table: time that an idle remote node adds, per walk cycle and stretch."""
    found = {}
    for family, local, remote in (("native-thin", "TLP-LD", "TRP-LD"), ("thin-1D-THP", "TL", "TR")):
        for workload, configs in runs(family, ("no",)).items():
            here, there = configs[local], configs[remote]
            walking = here.walk / here.cycles * (STRETCH[PRIOR[family]] - 1)
            share = (there.cycles / here.cycles - 1) / walking
            found.setdefault(workload.casefold(), []).append(min(max(share, 0), 1))
    means = {workload: np.mean(shares) for workload, shares in found.items()}
    assert set(means) == {"gups", "btree", "canneal", "pagerank", "liblinear"}
    assert np.mean([*means.values()]) == pytest.approx(SHARE.middle, abs=0.2)
    assert min(means.values()) < 0.05 and max(means.values()) > 0.5


@pytest.mark.parametrize(
    ("local", "remote", "name", "why"),
    [
        (LL, Run(2400.0, 1120.0, 1280.0), "RR", "RR: walk cycles .* 3.2 times .* idle .* 1.90 times"),
        (LL, Run(100_000.0, 35_000.0, 40_000.0), "RRI", "RRI: walk cycles .* 100 times .* loaded"),
        (Run(seconds=2.77), Run(seconds=277.0), "RRI", "RRI: seconds of there.csv are 100 times those of"),
        (Run(1000.0, 750.0, 0.0), Run(1800.0, 1700.0, 0.0), "L:0.8,R:0.2", "L:0.8,R:0.2: walk cycles of"),
    ],
)
def test_a_run_slower_than_its_placement_can_make_it_is_said_to_be_other_work(local, remote, name, why):
    names = {"local": "here.csv", "remote": "there.csv"}
    found = calibrate_runs(local, remote, name, sources=names, common=COMMON)
    assert sum(bool(re.match(why, flag)) for flag in found.flags) == 1


@pytest.mark.parametrize("family", ["thin-2D-4K", "thin-1D-4K", "native-thin"])
def test_no_published_run_is_slower_than_its_placement_can_make_it(family):
    walkers = 1 if family == "native-thin" else None
    for configs in runs(family).values():
        local = configs.get("LL") or configs.get("L") or configs["LP-LD"]
        for name, run in configs.items():
            where = placement(name)
            if where.tables_local or where.data != "local" or run.cycles is None:
                continue
            flags = calibrate_runs(local, run, name, walkers=walkers).flags
            assert not [flag for flag in flags if "makes them at most" in flag], (family, name)


def test_elapsed_time_in_another_unit_is_refused_or_said():
    with pytest.raises(UsageError, match=r"local run: 6e\+11 cycles in 0.000288 s are 992,063 busy CPUs"):
        calibrate_runs(Run(6e11, 2e11, 2e11, seconds=288e-6), common=COMMON)
    (said,) = calibrate_runs(Run(6e11, 2e11, 2.2e11, seconds=288e3), common=COMMON).flags
    assert said.startswith("local run: 0.00099 CPUs were busy in its 288000 s: it waited for something else")
    assert not calibrate_runs(Run(6e11, 2e11, 2.2e11, seconds=288.0), common=COMMON).flags


# Run time in the proportions of a measured run: closed forms, and what does not fit is refused.

MACHINE = small_machine(2)  # 2 GHz, 100 ns local, 200 ns remote, L2 14 and LLC 50 cycles
NATIVE = msgspec.structs.replace(
    calibrate_runs(Run(1e12, 4e11, 0.0), native=True), exposed=Interval(0.5, 0.6, 0.8), name="btree", at="LP"
)


def read(local, remote, cached=0, host=0):
    count = counters(2)
    count.reads[8, 0, ..., DRAM], count.reads[8, 0, 0, LLC] = (local, remote), cached
    count.reads[1, 0, 1, DRAM] = host
    return count


def prices(*counts, calibration=None):
    return priced(*counts, machine=MACHINE, costs=COSTS, calibration=calibration)


def cycles(*counts, calibration, machine=MACHINE):
    """Run cycles of Counters at best guess, in those of the calibrated run."""
    every = [counts_of(one) for one in counts]
    law = Law(every[0], machine, STEADY, COSTS, (False,), calibration, None)
    return [law.run(law.walks(one), 0.0)[0] for one in every]


def test_remote_walks_stretch_the_measured_walk_cycles_as_the_replay_says():
    base, local = prices(read(0, 1000), read(1000, 0), calibration=NATIVE)
    law = lambda e: (1e12 + e * 4e11) / 1e12  # noqa: E731 - all remote takes twice the walk cycles
    assert local.speedup.middle == pytest.approx(law(0.6))
    assert (local.speedup.low, local.speedup.high) == (pytest.approx(law(0.5)), pytest.approx(law(0.8)))
    assert cycles(read(0, 1000), read(1000, 0), calibration=NATIVE) == pytest.approx([1.24e12, 1e12])
    assert base.speedup.low == base.speedup.high == 1


def counted_at(at):
    """All walks remote, as under a baseline that had them so, and made local: (run cycles, local Result)."""
    there, counts = msgspec.structs.replace(NATIVE, at=at), (read(0, 1000), read(1000, 0))
    return cycles(*counts, calibration=there), prices(*counts, calibration=there)[1]


def test_without_a_placement_the_calibrated_run_is_the_baseline():
    """Its counters have the remote walks in them: half of 4e11 cycles go away, 1e12 stay the run's."""
    found, local = counted_at(None)
    assert found == pytest.approx([1e12, 1e12 - 0.6 * 2e11])
    assert local.speedup.middle == pytest.approx(1 / (1 - 0.6 * 0.2))
    assert "tables placed as under the baseline" in local.assumptions
    beside = msgspec.structs.replace(NATIVE, at=None, remote=Run(2e12, 9e11, 0.0), placement="RPI")
    all_local = cycles(read(0, 1000), read(1000, 0), calibration=NATIVE)  # at LP, as beside a remote run
    assert cycles(read(0, 1000), read(1000, 0), calibration=beside) == all_local


def test_walk_cycles_of_a_run_with_a_part_of_its_tables_remote_are_shared_out_by_the_part():
    """4e11 cycles at 0.75 remote, twice as far: 1.75 all-local runs' worth, of which all remote is 2."""
    found, local = counted_at("L:0.25,R:0.75")
    one = 4e11 / 1.75
    assert found == pytest.approx([1e12 + 0.6 * (2 * one - 4e11), 1e12 + 0.6 * (one - 4e11)])
    assert "tables at L:0.25,R:0.75" in local.assumptions


def test_each_table_of_a_vm_is_where_its_run_had_it():
    """1,000 reads of each table, local in the replay; the ePT was remote in the counted run."""
    two = msgspec.structs.replace(NATIVE, native=False, local=Run(1e12, 4e11, 2e11), at="LR")
    count = read(1000, 0)
    count.reads[1, 0, 0, DRAM] = 1000
    [base] = cycles(count, calibration=two)
    assert base == pytest.approx(1e12 - 0.6 * 1e11)


def test_a_placement_under_load_takes_latencies_under_load():
    with pytest.raises(UsageError, match=r"latency\.contended = none"):
        counted_at("RPI")
    latency = msgspec.structs.replace(MACHINE.latency, contended=((100.0, 300.0), (300.0, 100.0)))
    loaded = msgspec.structs.replace(MACHINE, latency=latency)
    [base] = cycles(read(1000, 0), machine=loaded, calibration=msgspec.structs.replace(NATIVE, at="RPI"))
    assert base == pytest.approx(1e12 - 0.6 * 4e11 * 2 / 3)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_scale_of_the_trace_does_not_matter(local, remote, cached):
    found = []
    for times in (1, 7):
        base = read(times * local, times * remote, times * cached)
        ideal = read(times * (local + remote), 0, times * cached)
        found.append(prices(base, ideal, calibration=NATIVE)[1].speedup.middle)
    assert found[0] == pytest.approx(found[1])


def test_threads_that_share_a_walker_gain_more_than_their_walk_cycles():
    """All remote takes twice the walk cycles: 4e11 become 8e11, and the other thread's wait grows."""
    shared = msgspec.structs.replace(NATIVE, exposed=Interval.exactly(1.0), shared=Interval.exactly(1.0))
    _, local = prices(read(0, 1000), read(1000, 0), calibration=shared)
    outside = (1 + (1 - 4 * 0.4**2) ** 0.5) / 2 - 0.4  # of 1e12: C = Z + X + X^2 / (Z + X)
    slower = outside + 0.8 + 0.8**2 / (outside + 0.8)
    assert cycles(read(0, 1000), calibration=shared) == pytest.approx([slower * 1e12])
    assert local.speedup.middle == pytest.approx(slower) and slower > 1.4


def test_whether_a_walker_is_shared_is_an_interval_of_the_speed_up():
    exact = [Interval.exactly(s) for s in (0.0, 1.0)]
    either = Interval(0.0, 0.0, 1.0)

    def gain(shared):
        known = msgspec.structs.replace(NATIVE, exposed=Interval.exactly(1.0), shared=shared)
        return prices(read(0, 1000), read(1000, 0), calibration=known)[1].speedup

    apart, together = (gain(shared).middle for shared in exact)
    found = gain(either)
    assert (found.low, found.middle, found.high) == pytest.approx((apart, apart, together))


def asked(calibration, host=None, executed=0):
    vas = [HEAP + k * PAGE for k in range(8)]
    pages = [(va, k) for k, va in enumerate(vas)]
    snapshot = build_snapshot(pages, host, table_nodes=(1,), vmas=[(HEAP, HEAP + 8 * PAGE, "h")])
    trace = build_trace([(0, vas)], [(0, 0, Event.ROI_START, (), 0)])
    trace.chunks["instructions"] = executed
    return answered(snapshot, [("mitosis", {})], trace, cold=True, calibration=calibration)


@pytest.mark.parametrize("times", [1, 1000])
def test_run_cycles_are_those_of_the_region(times):
    """However long the counted run was: upkeep of the region is divided by them."""
    linux, _ = asked(msgspec.structs.replace(NATIVE, at=None, local=Run(times * 1e12, times * 4e11, 0.0)))
    assert linux.run_cycles == pytest.approx(2.5 * linux.walk_cycles)


def test_walks_that_cannot_be_those_of_the_counted_run_are_refused():
    """The machine has no latencies under load: 8 walks take as long as they do, but for what caches take."""
    linux, _ = asked(msgspec.structs.replace(NATIVE, at=None))
    middle = linux.walk_cycles / 8
    assert asked(walking(middle * 1.9)) and asked(walking(middle / 1.9))
    for counted in (middle * 4, middle / 4):
        with pytest.raises(UsageError, match=r"btree: .* per walk counted, .* in the trace") as refused:
            asked(walking(counted))
        assert f" {counted:.0f} cycles" in str(refused.value) and f" {middle:.0f} (" in str(refused.value)
        assert "leave --calibration out" in str(refused.value)


@pytest.mark.parametrize(
    ("counted", "traced", "alike"), [(4, 7.9, True), (4, 2.1, True), (4, 8.1, False), (4, 1.9, False)]
)
def test_another_program_is_told_by_its_instructions_per_access(counted, traced, alike):
    run = Run(1e12, 4e11, 0.0, instructions=counted * 1e9, accesses=1e9)
    other = msgspec.structs.replace(NATIVE, at=None, local=run)
    if alike:
        assert asked(other, executed=round(8 * traced))
        return
    with pytest.raises(UsageError, match=rf"btree: {counted} instructions .* {traced:.2g} in the trace"):
        asked(other, executed=round(8 * traced))


def walking(cycles):
    """The calibration of a run with that many cycles per walk, of which the baseline is."""
    return msgspec.structs.replace(NATIVE, at=None, local=Run(1e12, 4e11, 0.0, walks=4e11 / cycles))


def test_a_calibration_of_another_kind_of_run_is_refused():
    with pytest.raises(UsageError, match="btree: of a run that was native, the capture is a VM's"):
        asked(NATIVE, host=[])
    with pytest.raises(UsageError, match="btree: has no walk cycles"):
        asked(msgspec.structs.replace(NATIVE, exposed=None))
    for walked in (None, 0.0):
        with pytest.raises(UsageError, match="btree: has no walk cycles"):
            asked(msgspec.structs.replace(NATIVE, local=Run(1e12, walked, 0.0)))


# The file that keeps a calibration: it gives back what was written, and what is none is refused.


def kept(tmp_path, calibration):
    path = tmp_path / "c.toml"
    write_calibration(path, calibration)
    return path


@pytest.mark.parametrize("name", [None, "RRI", "LR"])
def test_a_calibration_file_gives_back_what_was_written(tmp_path, name):
    asked = {"name": 'a "b"\\\n\x7f é𝄞', "sources": {"lo cal": "x\ty"}}
    made = calibrate_runs(LL, name and at(name), name, common=COMMON, **asked)
    assert read_calibration(kept(tmp_path, made)) == made
    assert [p.name for p in tmp_path.iterdir()] == ["c.toml"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("version = 2", "version = 1", "version = 1: this release reads version 2"),
        ("walkers = 2.0", "walkers = 0.0", "walkers = 0"),
        ("\nnoise = 0.03", "\nnoise = -0.03", "noise = -0.03"),
        ("repair = 0.04", "repair = inf", "repair = inf"),
        ("walkers = 2.0", 'walkers = 2.0\nat = "LP"', "at = LP"),
        ("walkers = 2.0", 'walkers = 2.0\nat = "RRI"', "remote = RRI"),
        ('format = "ptanalyze-calibration"', 'format = "x"', "format = x"),
        ("walkers = 2.0", "wolkers = 2.0", "wolkers"),
        ("gpt = 350.0", "gpt = inf", "local.gpt = inf"),
        ("low = 0.47", "low = 0.65", "gpt_part = 0.65"),
        ("high = 0.53", "high = 5.5", "gpt_part"),
        ('placement = "RRI"', "", "placement = None"),
        ('placement = "RRI"', 'placement = "LL"', "remote = LL"),
        ('placement = "RRI"', 'placement = "RP"', "placement = RP"),
        ("[local]", "[local", "not a TOML file"),
        ("native = false", "native = true", "placement = RRI"),
    ],
)
def test_a_wrong_calibration_file_is_refused_by_field(tmp_path, old, new, why):
    path = kept(tmp_path, calibrate_runs(LL, at("RRI"), "RRI", common=COMMON))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=why) as refused:
        read_calibration(path)
    assert str(path) in str(refused.value)
