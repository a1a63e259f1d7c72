"""Whether a policy gains by shorter walks or by less work of the kernel, and how advice says so."""

from dataclasses import replace

from ptanalyze.analysis.ranking import because
from ptanalyze.analysis.replay import replay_world
from ptanalyze.analysis.saved import by_the_kernel
from ptanalyze.analysis.setup import Setup
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.policies import plan_for
from replay_cases import HEAP, case, world_of
from strategies import PAGE, build_snapshot, build_trace, small_machine

COSTS = load_costs(load_machine("vmitosis-cascade-lake"))
ALL = [HEAP + k * PAGE for k in range(512)]


def results(*names, calls=()):
    """Of one thread that touches 2 MiB three times, on one node of two."""
    snapshot = build_snapshot(
        [(va, 512 + k) for k, va in enumerate(ALL)], nodes=2, vmas=[(HEAP, HEAP + 512 * PAGE, "[heap]")]
    )
    trace = build_trace([(0, ALL)] * 3, [(0, 0, Event.ROI_START, (), 0), *calls], 2)
    plans = [plan_for(name) for name in ("linux", *names)]
    return replay_world(
        world_of(case(snapshot, trace, 2)), plans, Setup.of(machine=small_machine(2), costs=COSTS)
    )


def test_a_gain_by_fewer_faults_is_said_to_be_the_kernels():
    freed = [(1, 0, Event.MADVISE, (HEAP, 512 * PAGE, 4), 0)]
    linux, thp = results("thp", calls=freed)
    kernel = by_the_kernel(linux, thp)
    spared = linux.price.management_cycles - thp.price.management_cycles
    assert linux.count("faults") == 512 and thp.count("faults") < 10
    assert (
        kernel.share > 0.5
        and abs(kernel.share * (linux.price.run_cycles - thp.price.run_cycles) / spared - 1) < 1e-6
    )
    said = because(linux, thp)
    assert f"{thp.count('faults')} page faults instead of 512" in said
    assert "% of what it saves is work of the kernel" in said and "it walks" in said


def test_a_gain_by_fewer_walks_alone_says_nothing_about_the_kernel():
    linux, thp = results("thp")
    assert linux.price.walk_cycles > thp.price.walk_cycles
    assert because(linux, thp).startswith(f"it walks {thp.walks:,} times instead of {linux.walks:,}")


def test_without_run_times_or_savings_there_is_no_part_of_the_kernel():
    linux, thp = results("thp")
    assert by_the_kernel(linux, linux) is None
    assert by_the_kernel(linux, replace(thp, price=replace(thp.price, kernel_share=None))) is None
