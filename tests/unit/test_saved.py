"""Whether a policy gains by shorter walks or by less work of the kernel, and how advice says so."""

from dataclasses import replace

from ptanalyze.analysis.advise import because, by_the_kernel, causes
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_world
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


def test_how_long_a_call_takes_is_one_number_and_what_it_takes_from_other_cpus_another():
    linux, thp = results("thp", calls=[(1, 0, Event.MADVISE, (HEAP, 512 * PAGE, 4), 0)])
    assert causes(linux, linux) == []

    def with_call(result, **values):
        [call] = result.price.system_calls
        return replace(result, price=replace(result.price, system_calls=(call._replace(**values),)))

    linux = with_call(linux, ns=2402.0, stolen_ns=750.0, calls=10**9)
    thp = with_call(thp, ns=1777.0, stolen_ns=0.0, slowdown=1777 / 2402, calls=10**9)
    taken = "madvise takes 0 ns instead of 750 from other CPUs"
    assert causes(linux, thp) == [taken, "madvise takes 0.74 times as long"]


def test_without_run_times_or_savings_there_is_no_part_of_the_kernel():
    linux, thp = results("thp")
    assert by_the_kernel(linux, linux) is None
    assert by_the_kernel(linux, replace(thp, price=replace(thp.price, kernel_share=None))) is None
