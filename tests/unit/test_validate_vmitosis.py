"""vMitosis and Mitosis: rows that follow from published counts and sizes, against closed forms."""

import pytest

from ptanalyze.core.machine import load_machine
from ptanalyze.validate import mitosis, vmitosis
from ptanalyze.validate.bench import bench
from ptanalyze.validate.law_rows import beside, misplaced, predicted, replicated, run_of, shares
from ptanalyze.validate.row import DEFINITION, FITTED, REPLAYED
from ptanalyze.validate.script import million_entries_per_second
from ptanalyze.validate.wide import counted, remote

KIB_4, CASCADE = "thin-2D-4K", load_machine("vmitosis-cascade-lake")


@pytest.fixture(scope="module")
def workshop():
    with bench(quick=True) as made:
        yield made


def named(rows):
    return {one.figure.name: one for one in rows}


def test_table_4_gives_the_four_groups_of_the_paper(workshop):
    found = named(vmitosis.table_4(workshop))
    assert (found["groups"].error, found["grouped"].error) == (0, 0)


def test_table_6_is_exact_to_rounding(workshop):
    found = named(vmitosis.table_6(workshop))
    for copies in (1, 2, 4):
        for name in ("ept", "gpt", "both"):
            one = found[f"{name}-{copies}"]
            assert round(one.ours.middle) == one.figure.value
        assert round(found[f"share-{copies}"].ours.middle, 1) == found[f"share-{copies}"].figure.value
    assert round(found["huge-extra"].ours.middle) == 36
    assert round(found["one-table-share"].ours.middle, 1) == 0.2
    assert found["ept-4"].ours.middle == 4 * found["ept-1"].ours.middle


def test_one_and_a_half_tebibytes_need_a_table_page_a_region_and_their_upper_levels():
    small, huge = (vmitosis.table_bytes(3 << 39, huge) // 4096 for huge in (False, True))
    assert small == (3 << 18) + 1536 + 3 + 1
    assert huge == 1536 + 3 + 1


def test_cold_walks_read_24_35_and_4_entries(workshop):
    found = named(vmitosis.cold_walks(workshop))
    assert [found[name].ours.middle for name in ("reads-4", "reads-5", "shadow-reads")] == [24, 35, 4]


def test_what_the_cost_file_was_made_from_is_marked_fitted(workshop):
    found = list(vmitosis.table_5(workshop))
    fitted = {one.figure.name for one in found if one.kind == FITTED}
    assert len(fitted) == 10 and {"mprotect-4KiB-replication", "mmap-4GiB-linux"} <= fitted
    assert all(abs(one.error) < 0.002 for one in found if one.kind == FITTED)
    judged = [one for one in found if one.kind == REPLAYED]
    assert len(judged) == 8 and all(abs(one.error) < 0.06 for one in judged)


def test_more_copies_never_make_a_call_faster():
    for call in ("mmap", "mprotect", "munmap"):
        rates = [million_entries_per_second(CASCADE, call, 1 << 10, copies) for copies in (1, 2, 4)]
        assert rates == sorted(rates, reverse=True)


def test_the_run_that_the_law_was_calibrated_on_is_fitted_and_comes_back():
    found = [one for one in vmitosis.figure_1(None) if one.kind == FITTED]
    assert len(found) == 3
    for one in found:
        assert one.ours.low == one.ours.high and abs(one.error) < 0.002  # seconds are whole


def test_rows_of_figure_1_are_predicted_without_the_workload_itself():
    found = [one for one in vmitosis.figure_1(None) if one.figure.read == "artifact"]
    assert len(found) == 3 * 6 * 2
    alone = [one for one in found if not one.figure.name.endswith("-RR-RR") and one.kind == REPLAYED]
    assert all(one.mean and one.constant for one in alone)
    assert sum(abs(one.error) for one in alone) / len(alone) < 0.08


def test_what_the_law_takes_for_granted_is_no_evidence():
    for figure in (vmitosis.figure_1, vmitosis.figure_3, vmitosis.figure_6):
        for one in figure(None):
            if one.figure.name.endswith(("RRIM", "-to-best", "over-ept", "by-half", "restored-both")):
                assert one.kind == DEFINITION, one.figure.name


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
    gains = [replicated(run, share, share, KIB_4, "graph500").middle for share in (0, 0.25, 0.75, 1)]
    assert gains[0] == 1 and gains == sorted(set(gains))


def test_remote_shares_of_both_tables_are_shares_of_four_classes():
    assert shares((0.25, 0.5), False) == "LL:0.375000,LR:0.375000,RL:0.125000,RR:0.125000"
    assert shares((0.75, 0.0), True) == "L:0.2500,R:0.7500"


def test_baselines_know_nothing_of_the_workload_itself():
    measured = {("a", "F"): 2.0, ("a", "I"): 4.0, ("b", "F"): 100.0, ("c", "F"): 3.0}
    assert beside(measured, "b", "F") == {"mean": 2.5, "constant": 3.0}


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
                assert found[name].kind == REPLAYED and found[name].mean
    one = predicted("native-thin", "native-thin", "GUPS", "LP-LD", "RPI-LD", "RPI-LD")
    assert one.low == one.middle == one.high  # what was measured comes back


def test_mitosis_table_5_is_a_ratio_of_published_means():
    found = named(mitosis.table_5(None))
    assert found["table-5-PROTECT-1"].figure.value == pytest.approx(1144 / 939)
    assert len(found) == 18 and {one.where for one in (r.figure for r in found.values())} == {"Table 5"}
