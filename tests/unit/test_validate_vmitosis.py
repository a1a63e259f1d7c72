"""`validate` on vMitosis and Mitosis: rows, the curves of Figure 6, the scan period behind them."""

import numpy as np
import pytest

from ptanalyze.core.machine import load_machine
from ptanalyze_papers import mitosis, vmitosis, vmitosis_moved
from ptanalyze_papers.bench import bench
from ptanalyze_papers.law_rows import misplaced, predicted, replicated, run_of
from ptanalyze_papers.row import FITTED, LAW, MODELLED, REPLAYED, flat
from ptanalyze_papers.script import million_entries_per_second
from ptanalyze_papers.vmitosis_moved import (
    Curve,
    Pace,
    moved,
    next_period,
    one_pass,
    paces,
    published_curve,
    settled_period,
)
from ptanalyze_papers.wide import counted, remote

# vMitosis and Mitosis: rows that follow from published counts and sizes, against closed forms.

KIB_4, CASCADE = "thin-2D-4K", load_machine("vmitosis-cascade-lake")


@pytest.fixture(scope="module")
def workshop():
    with bench(quick=True) as made:
        yield made


def named(rows):
    return {one.name: one for one in rows}


def test_table_4_gives_the_four_groups_of_the_paper(workshop):
    found = named(vmitosis.table_4(workshop))
    assert [flat(found[name])["error"] for name in ("groups", "grouped")] == [0, 0]


def test_what_the_cost_file_was_made_from_is_marked_fitted(workshop):
    found = list(vmitosis.table_5(workshop))
    fitted = {one.name for one in found if one.kind == FITTED}
    assert len(fitted) == 10 and {"mprotect-4KiB-replication", "mmap-4GiB-linux"} <= fitted
    assert all(abs(flat(one)["error"]) < 0.002 for one in found if one.kind == FITTED)
    judged = [one for one in found if one.kind == REPLAYED]
    assert len(judged) == 8 and all(abs(flat(one)["error"]) < 0.06 for one in judged)


def test_more_copies_never_make_a_call_faster():
    for call in ("mmap", "mprotect", "munmap"):
        rates = [million_entries_per_second(CASCADE, call, 1 << 10, copies) for copies in (1, 2, 4)]
        assert rates == sorted(rates, reverse=True)


def test_the_run_that_the_law_was_calibrated_on_is_fitted_and_comes_back():
    found = [one for one in vmitosis.figure_1(None) if one.kind == FITTED]
    assert len(found) == 3
    for one in found:
        assert (
            one.ours.low == pytest.approx(one.ours.high, rel=1e-12) and abs(flat(one)["error"]) < 0.002
        )  # seconds are whole


def test_rows_of_figure_1_are_predicted_without_the_workload_itself():
    found = [one for one in vmitosis.figure_1(None) if one.read == "artifact"]
    assert len(found) == 3 * 6 * 2
    alone = [one for one in found if not one.name.endswith("-RR-RR") and one.kind == LAW]
    assert sum(abs(flat(one)["error"]) for one in alone) / len(alone) < 0.08


def test_figure_6_follows_from_one_repaired_configuration():
    found = named(vmitosis.figure_6(None))
    assert found["restored-gpt"].kind == found["artifact-RRIG"].kind == FITTED
    assert found["restored-gpt"].ours.middle == pytest.approx(65)
    # each table waited for alike: 1 + 2 (1/0.65 - 1)
    assert found["restored-none"].ours.middle == pytest.approx(100 / (1 + 2 * (1 / 0.65 - 1)))
    assert found["oblivious-drop"].ours.middle == pytest.approx(35)


def test_published_shares_of_a_socket_add_up_and_lean_on_one_socket_for_canneal():
    for vm in ("numa-visible", "numa-oblivious"):
        for workload in ("canneal", "graph500"):
            assert counted(workload, vm).sum(axis=1) == pytest.approx(1)
    assert counted("canneal", "numa-visible")[3, 0] == pytest.approx(0.8284, abs=1e-4)
    assert remote(counted("canneal", "numa-oblivious")) == pytest.approx((0.75, 0.75), abs=0.01)


def test_replicas_save_nothing_where_all_is_local_and_more_the_more_is_remote():
    run = run_of("wide-NV-4K", "graph500", "F")
    gains = [replicated(run, (share, share), KIB_4, "graph500")[0].middle for share in (0, 0.25, 0.75, 1)]
    assert gains[0] == 1 and gains == sorted(set(gains))


def test_misplaced_replicas_cost_nothing_where_all_was_remote_before():
    run = run_of("wide-NO-4K", "graph500", "OF")
    assert misplaced(run, (1.0, 0.5), KIB_4, "graph500").middle == pytest.approx(1)
    assert misplaced(run, (0.75, 0.5), KIB_4, "graph500").middle > 1


def test_mitosis_rows_cover_every_workload_with_and_without_a_second_run():
    found = named(mitosis.figure_6(None))
    for workload in mitosis.WORKLOADS:
        for config, second in (("RP-LD", "RPI-LD"), ("RPI-LD", "RP-LD")):
            for name in (
                f"Figure6-native-thin-{workload}-{config}",
                f"Figure6-native-thin-{workload}-{config}-{second}",
            ):
                assert found[name].kind == LAW
    one = predicted("native-thin", "GUPS", "LP-LD", "RPI-LD", "RPI-LD")
    assert one.low == one.middle == one.high  # what was measured comes back


# vMitosis, Figure 6: the figures of a curve, of curves drawn by hand, of the paper's and of ours.

DROP, LOW, END = 40.0, 30.0, 90.0


def drawn(dip=True, jump=300.0, last=1000.0):
    """100 before, DROP after the move at 100 s, LOW from 200 to 250 s, END from `jump` s on."""
    ends = np.arange(5.0, 100 + last, 5.0)
    since = ends - 100
    speed = np.where(since <= 0, 100.0, np.where(since <= jump, DROP, END))
    if dip:
        speed[(since > 200) & (since <= 250)] = LOW
    return Curve.of(ends, 7e5 * speed, 100.0)


def test_the_figures_of_a_curve_of_steps_are_its_steps():
    found = moved(drawn())
    assert found.drop == pytest.approx(DROP) and found.end == pytest.approx(END)
    assert found.dip == pytest.approx(100 * (1 - LOW / DROP))
    assert found.recover == pytest.approx(300, abs=5)


def test_a_curve_without_a_second_dip_has_none_and_one_that_stays_down_has_recovered_at_once():
    assert moved(drawn(dip=False)).dip == 0
    flat = moved(drawn(dip=False, jump=np.inf))
    assert flat.end == pytest.approx(DROP) and flat.recover == pytest.approx(70, abs=5)


def test_a_single_low_sample_is_no_dip():
    curve = drawn(dip=False)
    curve.share[60] = 0.01
    assert moved(curve).dip == 0


def test_published_ends_are_those_of_the_text_and_of_the_rows_that_were_taken_from_the_artifact():
    for variant, name in (("RRI", "artifact-RRI"), ("RRIG", "artifact-RRIG")):
        assert moved(published_curve(variant)).end == pytest.approx(vmitosis_moved.PAPER[name].value, abs=0.1)
    assert moved(published_curve("RRI")).end == pytest.approx(50, abs=3)


def test_every_published_curve_drops_dips_and_recovers():
    for variant in vmitosis_moved.CURVES:
        found = moved(published_curve(variant))
        assert 30 < found.drop < 45 and found.dip > 15 and 300 < found.recover < 500


@pytest.fixture(scope="module")
def rows():
    with bench() as workshop:
        return {one.name: one for one in vmitosis_moved.figure_6_modelled(workshop)}


@pytest.mark.full
def test_four_curves_have_rows_for_all_that_is_predicted(rows):
    curves = [one for name, one in rows.items() if name.startswith("moved-")]
    assert len(curves) == 14 and not {"moved-RRIM-end", "moved-O-IR-end"} & set(rows)
    assert all(one.kind == MODELLED and one.note for one in rows.values())


@pytest.mark.full
def test_drops_and_ends_are_near_the_second_dip_is_in_its_interval_and_recovery_is_too_soon(rows):
    """What the model holds and what it does not: the row that says so must not turn into praise unseen."""
    for variant in vmitosis_moved.CURVES:
        of = {name: rows.get(f"moved-{variant}-{name}") for name in vmitosis_moved.QUANTITIES}
        assert abs(flat(of["drop"])["error"]) < 0.13
        assert of["end"] is None or abs(flat(of["end"])["error"]) < 0.10
        assert -0.5 < flat(of["recover"])["error"] < -0.1, "always too soon"
        guest = vmitosis_moved.VARIANTS[variant].guest == "visible"
        dip = of["dip"]
        assert (dip.ours.low > 6) == guest, "each page that a guest moves interrupts, with a VM exit each"
        held = dip.ours.low <= dip.value <= dip.ours.high
        assert held == guest, "the hypervisor's gPT follows too soon to show a dip"


@pytest.mark.full
def test_the_faster_pages_move_the_deeper_and_the_earlier_the_dip(rows):
    for variant in vmitosis_moved.CURVES[:3]:
        middle, *_, fastest, slowest = map(moved, vmitosis_moved.predicted()[variant])
        assert fastest.dip > middle.dip > slowest.dip
        assert fastest.recover < middle.recover < slowest.recover


# The scan period of Linux' NUMA balancing: against its integers, and closed forms of its passes.

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
