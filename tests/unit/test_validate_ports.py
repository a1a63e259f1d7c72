"""Rows on ports of Mitosis and Hydra: what they compare, and that nothing measured goes into our number."""

import pytest

from ptanalyze.validate import ports
from ptanalyze.validate.bench import bench
from ptanalyze.validate.ports import FIGURES
from ptanalyze.validate.row import MODELLED, NOT_REPRODUCIBLE, REPLAYED
from ptanalyze.validate.run import figures


@pytest.fixture(scope="module")
def rows():
    with bench(quick=True) as workshop:
        return {title: list(run(workshop)) for title, run in FIGURES.items()}


def test_every_kernel_has_a_row_per_graph_placement_and_policy(rows):
    for kernel in ("pr", "bc", "cc"):
        assert len(rows[kernel]) == len(ports.QUICK) * 2 * 2
        assert all(one.kind == MODELLED and one.ours.low <= one.ours.middle for one in rows[kernel])
    assert len(ports.GRAPHS) == 8 and {"kron27", "uni30"} < set(ports.GRAPHS)


def test_of_kernels_that_nobody_asked_for_no_capture_is_made():
    assert [title for title, _ in figures("ports", "pr, kron27")] == ["pr"]
    with bench(quick=True, wanted="pr, kron28") as workshop:
        assert list(ports.page_rank(workshop)) == [] == list(workshop.directory.iterdir())


def test_the_measured_speed_up_is_the_ratio_of_the_trials_of_the_same_placement():
    seconds = ports.measured()
    step = [
        seconds["pr", "linux", graph, 1] / seconds["pr", "mitosis", graph, 1]
        for graph in ("kron27", "kron30")
    ]
    assert step == [pytest.approx(1.002, abs=0.001), pytest.approx(2.367, abs=0.001)]


def test_predictions_do_not_change_with_what_was_measured(monkeypatch):
    def predicted():
        with bench(quick=True) as workshop:
            return ports.predicted(workshop, "cc", "uni17", 20_000)

    ours = predicted()
    monkeypatch.setattr(ports, "measured", dict)
    assert predicted() == ours


def test_local_tables_gain_where_the_lines_that_random_reads_need_outgrow_the_caches():
    with bench(quick=True) as workshop:
        small = ports.predicted(workshop, "bc", "uni20", 40_000)
        large = ports.predicted(workshop, "bc", "uni28", 2_500_000)
    for data in (0, 1):
        assert small["mitosis", data].high == pytest.approx(1, abs=0.005)
        assert 1.01 < large["mitosis", data].middle < large["mitosis", data].high
        assert large["mitosis", data].low >= 1  # with half of the L3 left to page tables they nearly fit
        assert large["mitosis", 0] != large["mitosis", 1], "over one node's tables, and over interleaved ones"
        assert large["hydra", data].middle == pytest.approx(large["mitosis", data].middle, rel=0.01)


def test_entries_that_degree_9_copies_in_vain_are_counted_though_the_kernel_means_another_number(rows):
    unused = {one.figure.name: one for one in rows["orders"] if one.figure.name.endswith("-unused")}
    assert sorted(unused) == ["bc-unused", "cc-unused", "pr-unused"]
    for one in unused.values():
        assert 86 < one.figure.value < 97 and 0 <= one.ours.middle < 100
        assert one.kind == NOT_REPRODUCIBLE and one.counts


def test_prefetching_a_table_page_halves_the_faults_of_a_b_tree_with_every_degree(rows):
    events = {
        one.figure.name: one.ours.middle
        for one in rows["orders"]
        if one.figure.name.startswith("btree-events")
    }
    assert events["btree-events-6"] / events["btree-events-3"] == pytest.approx(1 / 8, rel=0.01)
    assert events["btree-events-9"] / events["btree-events-6"] == pytest.approx(1 / 8, rel=0.01)


def test_histories_of_8_nodes_have_every_degree_and_as_many_entries_at_each():
    counts = ports.histories("btree")
    assert counts.index.tolist() == list(range(10))
    assert counts.entries_copied.max() / counts.entries_copied.min() < 1.001
    assert counts.events[9] == pytest.approx(333_704, abs=30)


def test_what_the_graph_kernels_of_the_histories_do_besides_is_said(rows):
    graphs = [one for one in rows["orders"] if one.figure.name.split("-")[0] in ports.PORTS_ORDERS_GRAPHS]
    graphs = [one for one in graphs if not one.figure.name.endswith("-unused")]
    assert graphs and all(one.kind == NOT_REPRODUCIBLE and "building" in one.note for one in graphs)


def test_runs_on_shared_walkers_follow_from_counters_of_linux():
    found = list(ports.policies(None))
    assert len(found) == 12 and {one.kind for one in found} == {REPLAYED}
    assert len({one.figure.name for one in found}) == 12
    counted = [one for one in found if "walks" in one.figure.name]
    assert len(counted) == 10 and max(abs(one.error) for one in counted) < 0.02
    assert all(one.ours.low <= one.figure.value <= one.ours.high for one in found)
    published = {one.figure.quantity.partition(":")[0]: one.figure.value for one in found}
    assert published["canneal"] > published["btree"] > 1.2
