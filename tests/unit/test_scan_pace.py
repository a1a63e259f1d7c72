"""The scan period of Linux' NUMA balancing: against its integers, and closed forms of its passes."""

import pytest

from ptanalyze.validate.vmitosis_moved import Pace, next_period, one_pass, paces, settled_period

MIB, SCAN = 30 * 1024, 256


def kernel(period, local, remote):
    """update_task_scan_period of a task that shares all of its pages, in milliseconds."""
    slot, ratio = -(-period // 10), local * 10 // (local + remote)
    step = max(ratio - 7, 1) * slot if ratio >= 7 else -(7 - ratio) * slot
    return max(period + step, 100)


@pytest.mark.parametrize("period", [100, 110, 500, 1000, 1690, 24000])
@pytest.mark.parametrize("local", range(0, 101, 5))
def test_the_period_follows_the_kernel_s_integers(period, local):
    assert next_period(period, local / 100, SCAN) == pytest.approx(kernel(period, local, 100 - local))


def test_a_period_grows_by_three_tenths_per_local_pass_that_fits():
    first, second = one_pass(1000, MIB, SCAN), one_pass(1300, MIB, SCAN)
    assert (first, second) == (120, 156)
    assert settled_period(first - 1, MIB, SCAN) == 1000
    assert settled_period(first, MIB, SCAN) == 1300
    assert settled_period(first + second, MIB, SCAN) == 1690
    assert settled_period(first + second - 1, MIB, SCAN) == 1300


def test_the_fastest_pace_is_of_tasks_that_begin_and_the_slowest_keeps_its_period():
    middle, fastest, slowest = paces(300, MIB, SCAN)
    assert fastest == Pace(120, 300)
    assert middle == pytest.approx(Pace(202.8, 507))
    assert slowest == pytest.approx(Pace(202.8, 1690))


def test_no_scan_marks_more_than_2560_mib_per_second():
    assert next_period(200, 0.0, SCAN) == 100 and next_period(200, 0.0, 2560) == 1000
