"""`validate`: its arithmetic, and its rows on Hydra, PTEMagnet and ports of other policies."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze_papers import hydra, ports, ptemagnet, small_traces, wide
from ptanalyze_papers import row as files
from ptanalyze_papers.bench import bench
from ptanalyze_papers.ports import FIGURES
from ptanalyze_papers.row import Paper, Row, flat, published
from ptanalyze_papers.run import PAPERS, by_figure, figures, tally, validate
from ptanalyze_papers.script import TOP, Holes, Script
from ptanalyze_synth.process import START, new_group

LAW, REPLAYED, MODELLED, TRACED, FITTED, NOT_REPRODUCIBLE = files.KINDS

# `validate`: the arithmetic of rows, what counts as evidence, and files of published figures.


def row(ours, kind, value=10.0, bound="", name="one", **more):
    figure = Row(
        name=name, where="Figure 1", quantity="q", unit="x", value=value, bound=bound, kind=kind, note=""
    )
    paper = Paper(paper="P", title="T", citation="C", figure=(figure,))
    return paper.row(name, ours, **more)


def tallied(*rows):
    return tally(pd.DataFrame([flat(row) for row in rows]))


def test_fitted_rows_change_no_statistic():
    evidence = [row(10.4, REPLAYED), row(8, MODELLED), row(8, REPLAYED, 9, "at most")]
    alone, together = (
        tallied(*evidence),
        tallied(*evidence, row(10, FITTED, 9), row(10, FITTED, 9, "at least")),
    )
    counted = {"rows", *files.KINDS}
    assert {k: v for k, v in alone.items() if k not in counted} == {
        k: v for k, v in together.items() if k not in counted
    }


def test_a_prediction_that_stands_in_two_figures_counts_once_by_its_larger_error():
    rows = [row(1.3, REPLAYED, 1.2, name=name, prediction="p") for name in ("a", "b")]
    rows.append(row(1.3, REPLAYED, 1.1, name="c", prediction="p"))
    found = tallied(*rows, row(1.31, REPLAYED, 1.2))
    assert (found["rows"], found["judged"], found["max_error"]) == (4, 2, pytest.approx(2.0))


def test_intervals_that_hold_the_published_number_are_counted_and_single_numbers_are_none():
    ends = ((9, 9.5, 10), (10.1, 11, 12), (10, 10, 10))
    rows = [row(Interval(*each), REPLAYED, np.float64(10)) for each in ends]
    found = tallied(*rows, row(Interval(9, 10, 11), FITTED), row(10, REPLAYED))
    assert (found["intervals"], found["inside"], found["without_width"]) == (3, 2, 1)
    assert found["width"] == pytest.approx(1 / 9)


@pytest.mark.parametrize("number", [float, np.float64])
def test_numbers_of_no_width_that_miss_are_marked(number):
    ends = ((11, 11, 11), (10, 10, 10), (10.5, 11, 12))
    rows = [*(row(Interval(*map(number, each)), REPLAYED) for each in ends), row(11, REPLAYED)]
    lines = by_figure(pd.DataFrame([flat(one) for one in rows]), [])
    assert [", no width" in line for line in lines if " 10 x " in line] == [True, False, False, False]


@pytest.mark.parametrize("name", PAPERS)
def test_every_published_figure_cites_its_place_and_how_it_was_read(name):
    paper = published(name)
    assert paper.citation and paper.title
    assert len({one.name for one in paper.figure}) == len(paper.figure)
    for one in paper.figure:
        assert one.where.startswith(("Figure ", "Figures ", "Table ", "section ", "sections ", "poster")), one
        assert one.quantity and one.unit and one.kind in files.KINDS and one.note


def test_a_paper_and_a_row_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match=r"--paper x: choose from .*vmitosis"):
        validate(["x"])
    with pytest.raises(UsageError, match="no published figure is named 'x'"):
        published("vmitosis")["x"]


# Hydra's rows: the modelled workloads against closed forms, and what is fitted is called so.

PAGES = st.lists(st.integers(0, 1 << 35), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 3), PAGES), min_size=1, max_size=8), st.integers(1, 20))
def test_a_script_is_decoded_to_the_pages_it_touches_in_order(turns, least):
    script = Script([0, 1, 0, 1])
    for thread, pages in turns:
        script.touch(thread, pages)
    trace = script.trace()
    parts = list(trace.batches(least))
    dense = np.concatenate([part.page for part in parts]).astype(np.int64)
    found = (trace.regions[dense >> 9].astype(np.int64) << 9) + (dense & 511)
    assert found.tolist() == [page for _, pages in turns for page in pages]
    assert trace.regions.tolist() == list(dict.fromkeys(p >> 9 for _, pages in turns for p in pages))
    assert [part.chunks.stop for part in parts[:-1]] == [part.chunks.start for part in parts[1:]]
    assert all(len(part.page) >= least for part in parts[:-1])
    assert trace.chunks["thread"].tolist() == [thread for thread, _ in turns]


def test_calls_of_a_script_come_before_what_follows_them():
    script = Script([0, 2])
    script.mmap(1, 512, 4)
    script.touch(1, 513)
    script.mprotect(1, 512, 4)
    script.munmap(0, 512, 4)
    events = script.trace().events
    assert events["kind"].tolist() == [Event.MMAP, Event.MPROTECT, Event.MUNMAP]
    assert events["chunk"].tolist() == [0, 1, 1]
    assert (events["result"][0], events["b"][0], events["thread"][0]) == (512 << 12, 4 << 12, 1)
    assert script.placement == "0,2"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 600)), max_size=30))
def test_holes_give_the_highest_room_and_never_what_is_taken(turns):
    holes, held = Holes(), []
    for take, pages in turns:
        if take or not held:
            at = holes.take(pages)
            assert all(at + pages <= start or start + size <= at for start, size in held)
            above = sorted(start for start, _ in held if start >= at + pages)
            assert at + pages == (above[0] if above else TOP)
            held.append((at, pages))
        else:
            holes.give(*held.pop(0))
    for one in held:
        holes.give(*one)
    assert holes.holes == [(0, TOP)]


def test_what_the_cost_file_is_derived_from_is_called_fitted_and_met():
    rows = [row for figure in (hydra.figure_1, hydra.figure_10) for row in figure(None)]
    fitted = {row.name: row for row in rows if row.kind == FITTED}
    assert set(fitted) == {
        "mprotect-linux", "mprotect-mitosis-alone", "munmap-mitosis-crowded", "munmap-hydra-crowded",
    }  # fmt: skip
    assert all(abs(flat(row)["error"]) < 0.01 for row in fitted.values())


@pytest.mark.parametrize("shared", [0.25, 1.0])
def test_hydras_footprint_is_the_shared_leaf_tables_and_what_leads_to_them(shared):
    found, leaves = wide.footprint(2, shared), 2 * 512
    upper = 2 + 1 + 1  # of 2 GiB, aligned; each socket has a root and shares of both GiB
    assert found["linux"].pages["guest"] == leaves + upper
    assert found["mitosis"].pages["guest"] == 8 * (leaves + upper)
    assert found["hydra"].pages["guest"] == leaves * (1 + 7 * shared) + 8 * upper


def test_the_prefetch_curve_falls_and_ends_within_5_percent_of_mitosis():
    """For a lone thread, as in the paper's figure: its copies cost what the link takes."""
    with bench(quick=True) as workshop:
        found, pages = wide.traversal(workshop, wide.alone(), range(10))
    curve = [found[degree] for degree in range(10)]
    assert curve == sorted(curve, reverse=True)
    assert found[9] == pytest.approx(found["mitosis"], rel=0.05)
    spared = pages - pages // 512  # faults that only copy an entry, of 600 ns and the reading of its line
    assert 600 * spared < curve[0] - curve[9] < (600 + 320) * spared


def test_at_the_measured_price_of_many_threads_what_is_left_is_the_copying_of_every_entry():
    with bench(quick=True) as workshop:
        (many, pages), (lone, _) = (wide.traversal(workshop, costs) for costs in (None, wide.alone()))
    costs = load_costs(load_machine("hydra-haswell"))
    assert many[9] - lone[9] == pytest.approx(pages * (costs.pte_copy_ns - 1.5))
    assert many["mitosis"] == lone["mitosis"]


def test_a_speed_up_carries_over_by_remote_share_and_distance():
    canneal = hydra.runs("native-wide", use=("fit",))["Canneal"]
    added = canneal["I"].cycles / canneal["I+M"].cycles - 1
    far = (3 * 230 + 4 * 320) / 7 / 110
    expected = 1 + added * (7 / 8 * (far - 1)) / (3 / 4 * (580 / 280 - 1))
    assert hydra.eight_sockets("I") == pytest.approx(expected)


# Rows on ports of Mitosis and Hydra: what they compare, and that nothing measured goes into our number.


@pytest.fixture(scope="module")
def rows():
    with bench(quick=True) as workshop:
        return {title: list(run(workshop)) for title, run in FIGURES.items()}


def test_graph_kernels_are_predicted_from_their_traces_for_every_graph_placement_and_policy(rows):
    for kernel in ("pr", "bc", "cc"):
        here = [
            one
            for one in rows[kernel]
            if one.quantity.endswith((", EPYC: speed-up of Mitosis", ", EPYC: speed-up of Hydra"))
        ]
        assert len(here) == 8 * 2 * 2 and {one.kind for one in here} == {TRACED}
    assert [title for title, _ in figures("ports", "pr, kron27")] == ["pr"]


def test_the_measured_speed_up_is_the_ratio_of_the_trials_of_the_same_placement():
    found = {(one.one.input, round(one.speedup, 3), one.runs) for one in small_traces.pairs()}
    assert {("kron27", 1.002, (1, 1)), ("kron30", 2.367, (1, 1))} <= found


def test_predictions_do_not_change_with_what_was_measured(monkeypatch):
    ours = [one.ours for one in small_traces.small_traces("cc", None)]
    known = small_traces.measured()
    doubled = {
        key: run._replace(time=run.time * (2 if key[-1] == "linux" else 1)) for key, run in known.items()
    }
    monkeypatch.setattr(small_traces, "measured", lambda: doubled)
    assert [one.ours for one in small_traces.small_traces("cc", None)] == ours


def test_entries_that_degree_9_copies_in_vain_are_counted_though_the_kernel_means_another_number(rows):
    unused = {one.name: one for one in rows["orders"] if one.name.endswith("-unused")}
    assert sorted(unused) == ["bc-unused", "cc-unused", "pr-unused"]
    for one in unused.values():
        assert 86 < one.value < 97 and 0 <= one.ours.middle < 100
        assert one.kind == NOT_REPRODUCIBLE and flat(one)["judged"]


def test_prefetching_a_table_page_halves_the_faults_of_a_b_tree_with_every_degree(rows):
    events = {one.name: one.ours.middle for one in rows["orders"] if one.name.startswith("btree-events")}
    assert events["btree-events-6"] / events["btree-events-3"] == pytest.approx(1 / 8, rel=0.01)
    assert events["btree-events-9"] / events["btree-events-6"] == pytest.approx(1 / 8, rel=0.01)


def test_runs_on_shared_walkers_follow_from_counters_of_linux():
    found = list(ports.policies(None))
    assert len(found) == 12 and {one.kind for one in found} == {LAW}
    assert len({one.name for one in found}) == 12
    counted = [one for one in found if "walks" in one.name]
    assert len(counted) == 10 and max(abs(flat(one)["error"]) for one in counted) < 0.02
    assert all(one.ours.low <= one.value <= one.ours.high for one in found)
    published = {one.quantity.partition(":")[0]: one.value for one in found}
    assert published["canneal"] > published["btree"] > 1.2


# PTEMagnet's rows: the modelled graph analysis against closed forms, and what is fitted is called so.


@pytest.fixture(scope="module")
def workshop():
    with bench(quick=True) as made:
        yield made


@given(st.floats(1.9, 7.99))
def test_the_co_runner_is_the_one_whose_expected_fragmentation_is_asked_for(lines):
    assert 1 + 7 * new_group(wide.corunner(lines)) == pytest.approx(lines, abs=1e-6)


@given(st.integers(1, 20))
def test_streams_read_neighbours_and_stay_in_the_dataset(run):
    pages, trace = 1 << 10, wide.streams(1 << 10, 1, run).trace()
    (touches,) = trace.batches(1 << 20)
    page = (
        (trace.regions[touches.page >> 9].astype(np.int64) << 9) + (touches.page & 511) - START // wide.PAGE
    )
    assert page.min() >= 0 and page.max() < pages
    for turn in page.reshape(8, -1):
        inside = np.arange(1, len(turn)) % run != 0
        assert ((np.diff(turn) % pages == 1) | ~inside).all()


def test_a_co_runner_scatters_as_asked_and_ptemagnet_gathers_all(workshop):
    rows = {row.name: row for row in ptemagnet.section_3(workshop)}
    assert flat(rows["scattered-alone"])["error"] == pytest.approx(0, abs=0.01)
    assert flat(rows["scattered-stress"])["error"] == pytest.approx(0, abs=0.01)
    at_8 = wide.corunner(6.8) ** 7  # a co-runner after each of the first seven pages
    assert rows["regions-at-8"].ours.middle == pytest.approx(100 * at_8, rel=0.2)  # of 1,024 lines
    assert ptemagnet.repaired(workshop) == 1.0


def test_scattering_costs_reads_of_the_ept_and_hardly_any_of_the_gpt(workshop):
    alone, stress = (ptemagnet.counts(workshop, lines) for lines in (2.8, 6.8))
    assert stress["walks"] == alone["walks"]
    assert stress["host_dram_reads"] > 1.5 * alone["host_dram_reads"]
    assert stress["guest_dram_reads"] < 1.2 * alone["guest_dram_reads"]
    assert stress["guest_reads_per_walk"] == alone["guest_reads_per_walk"]


def test_time_follows_the_published_walk_cycles_and_their_exposure(workshop):
    assert ptemagnet.exposed() == pytest.approx(0.11 / 0.61)
    (time,) = (row for row in ptemagnet.table_4(workshop) if row.name == "objdet-time")
    assert 1 - 0.17 * 0.11 / 0.61 > time.ours.middle > 1 - 0.17 * 0.11 / 0.61 * 1.5


# Programs of the ports, predicted from small traces.


def test_each_measured_run_of_a_program_that_was_traced_is_predicted():
    """What the pages of the manual say of them: rank and ratio hold, the size is coarse."""
    rows = [one for program in small_traces.PROGRAMS for one in small_traces.small_traces(program, None)]
    assert {one.program for one in small_traces.replayed()} == set(small_traces.PROGRAMS)
    assert len(rows) == tallied(*rows)["judged"] > 150
    assert len({one.name for one in rows}) == len(rows)
    plain = [one for one in rows if "earlier" not in one.quantity]
    both = np.array([(one.value, one.ours.middle) for one in plain])
    ranks = both.argsort(axis=0).argsort(axis=0)
    assert np.corrcoef(ranks.T)[0, 1] > 0.7
    assert 0.04 < tallied(*plain)["ratio_median_error"] < 0.12
