"""Prices: closed forms of the additive law, and its intervals."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.cost import price as cost
from ptanalyze.cost.price import held_ns, lock_note
from ptanalyze.cost.result import CallCost, SystemCalls
from ptanalyze.kernels.replay import FAULT, LL, RL, Counters, counters
from ptanalyze.kernels.steps import CALLS
from strategies import build_trace, small_machine

COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
MACHINE = small_machine(2)  # 2 GHz, 100 ns local, 200 ns remote, L2 14 and LLC 50 cycles


def test_a_local_dram_read_costs_its_latency_and_a_remote_one_the_remote_latency():
    count = counters(2)
    count.reads[8, 0, 0, 1], count.reads[8, 0, 1, 1], count.reads[16, 1, 0, 0] = 3, 2, 5
    assert cost.walk_cycles(count.reads, MACHINE) == (3 * 200 + 2 * 400 + 5 * 32, 0)


def test_guest_and_host_reads_are_told_apart_by_their_bits():
    count = counters(2)
    count.reads[8, 0, 0, 1], count.reads[9, 0, 0, 1], count.reads[1, 0, 0, 1] = 1, 1, 1
    assert cost.walk_cycles(count.reads, MACHINE) == (200, 400)


def reads(local, remote):
    count = counters(2)
    count.reads[8, 0, 0, 1], count.reads[8, 0, 1, 1] = local, remote
    count.classes[0, LL], count.classes[0, RL] = local, remote
    return count


def test_the_speed_up_follows_the_additive_law_at_each_end():
    base, new = reads(0, 1000), reads(1000, 0)
    before = cost.price(base, MACHINE, COSTS)
    found = cost.price(new, MACHINE, COSTS, before, instructions=100_000).speedup

    def law(e, cpi, waits):
        outside = 100_000 * cpi + waits * 1000 * 200
        return (outside + e * 400_000) / (outside + e * 200_000)

    assert found.high == pytest.approx(law(0.9, 0.5, 0))
    assert found.low == pytest.approx(law(0.5, 2.0, 1))
    assert found.middle == pytest.approx(law(0.7, 1.25, 0.5))


@st.composite
def several_runs(draw):
    """([Counters], [SystemCalls], [instructions]) of as many runs."""
    runs, made, executed = [], [], []
    numbers = np.random.default_rng(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 4))):
        run = counters(2)
        for array in run:
            array[...] = numbers.integers(0, 1000, array.shape) * (numbers.random(array.shape) < 0.3)
        runs.append(run)
        made.append(SystemCalls(*numbers.integers(0, 50, (3, len(CALLS), 2))))
        executed.append(float(numbers.integers(1, 10**6)))
    return runs, made, executed


@given(several_runs())
def test_runs_along_an_axis_are_priced_as_each_alone(drawn):
    """To the last bit."""
    runs, made, executed = drawn
    more = {"collapsed_ns": 7.0}
    alone = [
        cost.price(
            run, MACHINE, COSTS, cost.price(run, MACHINE, COSTS, None, n, False, m), n, False, m, **more
        )
        for run, m, n in zip(runs, made, executed, strict=True)
    ]
    stacked = Counters(*map(np.stack, zip(*runs, strict=True)))
    calls = SystemCalls(*map(np.stack, zip(*made, strict=True)))
    base = cost.price(stacked, MACHINE, COSTS, None, np.array(executed), False, calls)
    found = cost.price(stacked, MACHINE, COSTS, base, np.array(executed), False, calls, **more)
    assert found.of(0) == alone[0]
    assert [replace(found.of(k), system_calls=()) for k in range(len(runs))] == [
        replace(one, system_calls=()) for one in alone
    ]
    if len(runs) > 1:
        covering = found.covering(0).speedup
        assert covering.low == min(one.speedup.low for one in alone[:-1])
        assert covering.high == max(one.speedup.high for one in alone[:-1])


def test_fewer_walks_wait_for_their_data_as_the_baselines_do():
    """Data are read whether or not the TLB holds their page: huge pages do not spare the waits."""
    before = cost.price(reads(1000, 0), MACHINE, COSTS)
    none = cost.price(counters(2), MACHINE, COSTS, before, instructions=100_000).speedup
    assert none.low == pytest.approx((200_000 + 200_000 + 0.5 * 200_000) / (200_000 + 200_000))


def test_data_of_walks_from_dram_are_waited_for_at_least_a_tenth_of_a_read():
    """600 walks read their leaf entry from DRAM, 100 of these fault; in a VM the host's entry counts too."""
    count = reads(600, 0)
    count.reads[16, 0, 0, 1], count.reads[1, 0, 0, 1] = 900, 500
    assert cost.walks_with_data_in_dram(count) == 600
    count.events[0, FAULT, 0, 0] = 100
    assert cost.walks_with_data_in_dram(count) == 500
    count.reads[1, 0, 0, 1] = 900
    assert cost.walks_with_data_in_dram(count) == 800
    assert tuple(cost.with_data_in_dram(COSTS, 0.5).data_exposed) == (0.05, 0.5, 1.0)
    assert cost.with_data_in_dram(COSTS, 0.0) == COSTS
    wide = msgspec.structs.replace(COSTS, data_exposed=Interval(0.0, 0.01, 0.02))
    assert tuple(cost.with_data_in_dram(wide, 1.0).data_exposed) == (0.02, 0.02, 0.02)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**12))
def test_a_policy_against_itself_neither_gains_nor_loses(local, remote, executed):
    same = reads(local, remote)
    found = cost.price(same, MACHINE, COSTS, cost.price(same, MACHINE, COSTS), executed).speedup
    assert found.low == found.middle == found.high == 1


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**9))
def test_the_interval_holds_its_middle(a, b, executed):
    before = cost.price(reads(0, b), MACHINE, COSTS)
    found = cost.price(reads(a, 0), MACHINE, COSTS, before, executed).speedup
    assert found.low <= found.middle <= found.high


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**9))
def test_no_policy_gains_more_than_all_that_page_tables_take_of_the_run(local, remote, faults, executed):
    """A policy without any walk and fault gains just that, and one without walks what walks take."""
    machine, costs, count = MACHINE, COSTS, reads(local, remote)
    count.events[0, FAULT, 0, 0] = faults
    base = cost.price(count, machine, costs, None, executed)
    walkless = cost.price(count._replace(reads=count.reads * 0), machine, costs, base, executed)
    nothing = cost.price(counters(2), machine, costs, base, executed)
    most = [1 / (1 - share.high) for share in (base.walk_share, base.table_share)]
    assert walkless.speedup.high == pytest.approx(most[0])
    assert nothing.speedup.high == pytest.approx(most[1]) and most[1] >= most[0]
    assert base.kernel_share.middle * base.run_cycles == pytest.approx(base.management_cycles)


def test_without_instructions_there_is_no_speed_up():
    same = cost.price(reads(1, 1), MACHINE, COSTS)
    assert cost.price(reads(1, 1), MACHINE, COSTS, same).speedup is None


def test_contended_latencies_are_used_when_asked_for():
    machine = load_machine("ptemagnet-broadwell")
    idle, contended = (
        cost.price(reads(0, 10), machine, COSTS, contended=c).walk_cycles for c in (False, True)
    )
    assert contended / idle == pytest.approx(300 / 140)


def test_instructions_are_counted_ones_or_assumed_from_accesses():
    trace = build_trace([(0, [(0x1000, False, 4)])])
    assert cost.instructions(trace, COSTS)[0] == 12
    trace.chunks["instructions"] = 7
    assert cost.instructions(trace, COSTS) == (7.0, "instructions as counted")


def priced_calls(*calls):
    """A Price of 1,000,000 cycles with CallCosts of (name, calls, ns per call)."""
    costs = tuple(CallCost(name, n, 0, 0, 0, 0, 0, 0, 0, ns, 0.0, None) for name, n, ns in calls)
    return replace(cost.price(reads(1, 0), MACHINE, COSTS), system_calls=costs, run_cycles=1e6)


def test_the_lock_on_mappings_is_held_by_the_calls_that_change_them():
    assert held_ns(priced_calls(("munmap", 3, 100.0), ("madvise", 5, 1000.0), ("mprotect", 2, 7.0))) == 314


def test_a_lock_that_is_held_for_much_of_the_run_is_said_and_only_where_threads_can_wait():
    half = priced_calls(("munmap", 1, 62_500.0))  # at 2 GHz 125,000 cycles of 250,000 on each of 4 CPUs
    assert "for 50 % of the run" in lock_note(half, 4, 2.0)
    assert lock_note(half, 1, 2.0) == "" == lock_note(half, 2, 2.0)
    assert "for 100 % of the run" in lock_note(half, 64, 2.0)
