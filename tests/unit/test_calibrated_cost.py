"""Run time in the proportions of a measured run: closed forms, and what does not fit is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.cost import price as cost
from ptanalyze.cost.calibrate import calibrate_runs
from ptanalyze.cost.law import Run
from ptanalyze.kernels.replay import counters
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace, small_machine

COSTS = load_costs(load_machine("sapphire-rapids"))
MACHINE = small_machine(2)  # 2 GHz, 100 ns local, 200 ns remote, L2 14 and LLC 50 cycles
NATIVE = msgspec.structs.replace(
    calibrate_runs(Run(1e12, 4e11, 0.0), native=True), exposed=Interval(0.5, 0.6, 0.8), name="btree", at="LP"
)


def read(local, remote, cached=0, host=0):
    count = counters(2)
    count.reads[8, 0, 0, 1], count.reads[8, 0, 1, 1], count.reads[8, 0, 0, 0] = local, remote, cached
    count.reads[1, 0, 1, 1] = host
    return count


def test_remote_walks_stretch_the_measured_walk_cycles_as_the_replay_says():
    base = cost.price(read(0, 1000), MACHINE, COSTS, calibration=NATIVE)
    local = cost.price(read(1000, 0), MACHINE, COSTS, base, calibration=NATIVE)
    law = lambda e: (1e12 + e * 4e11) / 1e12  # noqa: E731 - all remote takes twice the walk cycles
    assert local.speedup.middle == pytest.approx(law(0.6))
    assert (local.speedup.low, local.speedup.high) == (pytest.approx(law(0.5)), pytest.approx(law(0.8)))
    assert local.run_cycles == pytest.approx(1e12)
    assert base.run_cycles == pytest.approx(1.24e12)
    assert base.speedup.low == base.speedup.high == 1


def counted_at(at):
    """All walks remote, as under a baseline that had them so, and made local: (baseline's Price, local's)."""
    there = msgspec.structs.replace(NATIVE, at=at)
    base = cost.price(read(0, 1000), MACHINE, COSTS, calibration=there)
    return base, cost.price(read(1000, 0), MACHINE, COSTS, base, calibration=there)


def test_without_a_placement_the_calibrated_run_is_the_baseline():
    """Its counters have the remote walks in them: half of 4e11 cycles go away, 1e12 stay the run's."""
    base, local = counted_at(None)
    assert base.run_cycles == pytest.approx(1e12)
    assert local.run_cycles == pytest.approx(1e12 - 0.6 * 2e11)
    assert local.speedup.middle == pytest.approx(1 / (1 - 0.6 * 0.2))
    assert "tables placed as under the baseline" in local.assumptions


def test_walk_cycles_of_a_run_with_a_part_of_its_tables_remote_are_shared_out_by_the_part():
    """4e11 cycles at 0.75 remote, twice as far: 1.75 all-local runs' worth, of which all remote is 2."""
    base, local = counted_at("L:0.25,R:0.75")
    one = 4e11 / 1.75
    assert local.run_cycles == pytest.approx(1e12 + 0.6 * (one - 4e11))
    assert base.run_cycles == pytest.approx(1e12 + 0.6 * (2 * one - 4e11))
    assert "tables at L:0.25,R:0.75" in local.assumptions


def test_each_table_of_a_vm_is_where_its_run_had_it():
    """1,000 reads of each table, local in the replay; the ePT was remote in the counted run."""
    two = msgspec.structs.replace(NATIVE, native=False, local=Run(1e12, 4e11, 2e11), at="LR")
    count = read(1000, 0)
    count.reads[1, 0, 0, 1] = 1000
    base = cost.price(count, MACHINE, COSTS, calibration=two)
    assert base.run_cycles == pytest.approx(1e12 - 0.6 * 1e11)


def test_a_placement_under_load_takes_latencies_under_load():
    with pytest.raises(UsageError, match=r"latency\.contended = none"):
        counted_at("RPI")
    loaded = msgspec.structs.replace(
        MACHINE, latency=msgspec.structs.replace(MACHINE.latency, contended=((100.0, 300.0), (300.0, 100.0)))
    )
    there = msgspec.structs.replace(NATIVE, at="RPI")
    base = cost.price(read(1000, 0), loaded, COSTS, calibration=there)
    assert base.run_cycles == pytest.approx(1e12 - 0.6 * 4e11 * 2 / 3)


def test_the_share_that_waits_for_dram_is_what_the_simulated_caches_say():
    price = cost.price(read(100, 0, cached=100), MACHINE, COSTS)
    assert price.dram_shares == (pytest.approx(200 / 232), None)
    assert price.local_walk_cycles == (price.walk_cycles, 0)


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_scale_of_the_trace_does_not_matter(local, remote, cached):
    found = []
    for times in (1, 7):
        base = cost.price(
            read(times * local, times * remote, times * cached), MACHINE, COSTS, calibration=NATIVE
        )
        ideal = read(times * (local + remote), 0, times * cached)
        found.append(cost.price(ideal, MACHINE, COSTS, base, calibration=NATIVE).speedup.middle)
    assert found[0] == pytest.approx(found[1])


def test_each_dimension_grows_by_its_own_counter():
    two = msgspec.structs.replace(NATIVE, native=False, local=Run(1e12, 4e11, 2e11))
    base = cost.price(read(1000, 0, host=500), MACHINE, COSTS, calibration=two)  # its host reads are remote
    assert base.run_cycles == pytest.approx(1e12 + 0.6 * 2e11)


def test_threads_that_share_a_walker_gain_more_than_their_walk_cycles():
    """All remote takes twice the walk cycles: 4e11 become 8e11, and the other thread's wait grows."""
    shared = msgspec.structs.replace(NATIVE, exposed=Interval.exactly(1.0), shared=Interval.exactly(1.0))
    base = cost.price(read(0, 1000), MACHINE, COSTS, calibration=shared)
    local = cost.price(read(1000, 0), MACHINE, COSTS, base, calibration=shared)
    outside = (1 + (1 - 4 * 0.4**2) ** 0.5) / 2 - 0.4  # of 1e12: C = Z + X + X^2 / (Z + X)
    slower = outside + 0.8 + 0.8**2 / (outside + 0.8)
    assert base.run_cycles == pytest.approx(slower * 1e12)
    assert local.speedup.middle == pytest.approx(slower) and slower > 1.4


def test_whether_a_walker_is_shared_is_an_interval_of_the_speed_up():
    exact = [Interval.exactly(s) for s in (0.0, 1.0)]
    either = Interval(0.0, 0.0, 1.0)

    def gain(shared):
        known = msgspec.structs.replace(NATIVE, exposed=Interval.exactly(1.0), shared=shared)
        base = cost.price(read(0, 1000), MACHINE, COSTS, calibration=known)
        return cost.price(read(1000, 0), MACHINE, COSTS, base, calibration=known).speedup

    apart, together = (gain(shared).middle for shared in exact)
    found = gain(either)
    assert (found.low, found.middle, found.high) == pytest.approx((apart, apart, together))


def asked(calibration, host=None):
    vas = [HEAP + k * PAGE for k in range(8)]
    pages = [(va, k) for k, va in enumerate(vas)]
    snapshot = build_snapshot(pages, host, table_nodes=(1,), vmas=[(HEAP, HEAP + 8 * PAGE, "h")])
    trace = build_trace([(0, vas)], [(0, 0, Event.ROI_START, (), 0)])
    return replay_snapshot(
        snapshot,
        trace,
        [("mitosis", {})],
        Setup.of(machine=small_machine(2), costs=COSTS, cold=True, calibration=calibration),
    )


def test_the_what_if_names_the_calibrated_run():
    linux, mitosis = asked(NATIVE)
    assert "the calibrated run btree" in mitosis.price.assumptions
    assert mitosis.price.walk_cycles < linux.price.walk_cycles
    assert mitosis.price.speedup.middle < 1 < mitosis.once.cycles  # copies are made for 8 accesses


def test_walks_that_cannot_be_those_of_the_counted_run_are_refused():
    """The machine has no latencies under load: 8 walks take as long as they do, but for what caches take."""
    linux, _ = asked(msgspec.structs.replace(NATIVE, at=None))
    middle = linux.price.walk_cycles / 8
    assert asked(walking(middle * 1.9)) and asked(walking(middle / 1.9))
    for counted in (middle * 4, middle / 4):
        with pytest.raises(UsageError, match=r"btree: .* per walk counted, .* in the trace") as refused:
            asked(walking(counted))
        assert f" {counted:.0f} cycles" in str(refused.value) and f" {middle:.0f} (" in str(refused.value)
        assert "\n" not in str(refused.value) and "leave --calibration out" in str(refused.value)


def walking(cycles):
    """The calibration of a run with that many cycles per walk, of which the baseline is."""
    return msgspec.structs.replace(NATIVE, at=None, local=Run(1e12, 4e11, 0.0, walks=4e11 / cycles))


def test_a_calibration_of_another_kind_of_run_is_refused():
    with pytest.raises(UsageError, match="btree: of a run that was native, the capture is a VM's"):
        asked(NATIVE, host=[])
    with pytest.raises(UsageError, match="btree: has no walk cycles"):
        asked(msgspec.structs.replace(NATIVE, exposed=None))
    with pytest.raises(UsageError, match="btree: has no walk cycles"):
        asked(msgspec.structs.replace(NATIVE, local=Run(1e12)))
