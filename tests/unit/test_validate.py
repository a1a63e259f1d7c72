"""`validate`: its arithmetic, and its rows on Hydra, PTEMagnet and ports of other policies."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captures import pages_of, touches_of
from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze_papers import hydra, page_size, ports, ptemagnet, small_traces, vmitosis, vmitosis_moved, wide
from ptanalyze_papers import row as files
from ptanalyze_papers.bench import bench
from ptanalyze_papers.law_rows import misplaced, replicated, run_of
from ptanalyze_papers.row import Paper, Row, flat, published
from ptanalyze_papers.run import PAPERS, tally, validate
from ptanalyze_papers.script import TOP, Holes, Script
from ptanalyze_synth.process import START, new_group

LAW, BY_PAGES, REPLAYED, MODELLED, TRACED, FITTED, NOT_REPRODUCIBLE = files.KINDS

# `validate`: the arithmetic of rows, what counts as evidence, and files of published figures.


@pytest.fixture(scope="module")
def workshop():
    with bench(quick=True) as made:
        yield made


def row(ours, kind, value=10.0, bound="", name="one", **more):
    about = {"where": "Figure 1", "quantity": "q", "unit": "x", "note": ""}
    figure = Row(name=name, value=value, bound=bound, kind=kind, **about)
    paper = Paper(paper="P", title="T", citation="C", figure=(figure,))
    return paper.row(name, ours, **more)


def tallied(*rows):
    return tally(pd.DataFrame([flat(row) for row in rows]))


def test_fitted_rows_change_no_statistic():
    evidence = [row(10.4, REPLAYED), row(8, MODELLED), row(8, REPLAYED, 9, "at most")]
    alone = tallied(*evidence)
    together = tallied(*evidence, row(10, FITTED, 9), row(10, FITTED, 9, "at least"))
    counted = {"rows", *files.KINDS}
    one, other = ({k: v for k, v in row.items() if k not in counted} for row in (alone, together))
    assert one == other


def test_a_ratio_below_one_is_as_far_off_as_its_inverse():
    assert tallied(row(0.1, REPLAYED, 0.2))["max_error"] == pytest.approx((10 - 5) / (5 - 1))
    assert tallied(row(0, REPLAYED, 0.2))["max_error"] == pytest.approx(0.2 / 0.8)


def test_a_prediction_that_stands_in_two_figures_counts_once_by_its_larger_error():
    rows = [row(1.3, REPLAYED, 1.2, name=name, prediction="p") for name in ("a", "b")]
    rows.append(row(1.3, REPLAYED, 1.1, name="c", prediction="p"))
    found = tallied(*rows, row(1.31, REPLAYED, 1.2))
    assert (found["rows"], found["judged"], found["max_error"]) == (4, 2, pytest.approx(2.0))


def test_ratios_of_a_small_effect_and_bounds_are_counted_apart():
    rows = [row(1.29, LAW, 1.2, name="a"), row(1.03, LAW, 1.01, name="b"), row(1.2, LAW, 0.99, name="c")]
    found = tallied(*rows, row(29.0, LAW, 5.0, "at least"))
    assert (found["judged"], found["small"], found["both_small"]) == (3, 2, 1)
    assert (found["within_50"], found["median_error"]) == (1, pytest.approx(0.45))


def test_intervals_that_hold_the_published_number_are_counted_and_single_numbers_are_none():
    ends = ((9, 9.5, 10), (10.1, 11, 12), (10, 10, 10))
    rows = [row(Interval(*each), REPLAYED, np.float64(10)) for each in ends]
    found = tallied(*rows, row(Interval(9, 10, 11), FITTED), row(10, REPLAYED))
    assert (found["intervals"], found["inside"], found["without_width"]) == (3, 2, 1)
    assert found["width"] == pytest.approx(1 / 9)


@pytest.mark.parametrize("name", PAPERS)
def test_every_published_figure_cites_its_place_and_how_it_was_read(name):
    paper = published(name)
    assert paper.citation and paper.title
    assert len({one.name for one in paper.figure}) == len(paper.figure)
    for one in paper.figure:
        assert one.where.startswith(("Figure ", "Figures ", "Table ", "section ", "sections ", "poster")), one
        assert one.quantity and one.unit and one.kind in files.KINDS and one.note


def test_bounds_have_two_sides():
    """One that holds for any large number is hardly evidence: of four, two are missed, one has no number."""
    names = {one.name: one.bound for name in PAPERS for one in published(name).figure}
    other = {"at least": "-most", "at most": "-least"}
    alone = [name for name, of in names.items() if of and name.rpartition("-")[0] + other[of] not in names]
    known = "oblivious-local-local oblivious-one-remote interleaved-least oblivious-thp-most"
    assert alone == known.split()


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
    assert [page for page, *_ in touches_of(trace, least)] == [page for _, pages in turns for page in pages]
    assert trace.regions.tolist() == list(dict.fromkeys(p >> 9 for _, pages in turns for p in pages))
    assert [part.chunks.stop for part in parts[:-1]] == [part.chunks.start for part in parts[1:]]
    assert all(len(part.page) >= least for part in parts[:-1])
    assert trace.chunks["thread"].tolist() == [thread for thread, _ in turns]


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
    (store,) = hydra.figure_14(None)  # an interrupt of another socket: 1,000 and 182.7 ns
    assert store.ours.middle == pytest.approx(1 + 1182.7 / 1215.3, rel=0.001)


@pytest.mark.parametrize("shared", [0.25, 1.0])
def test_hydras_footprint_is_the_shared_leaf_tables_and_what_leads_to_them(shared):
    found, leaves = wide.footprint(2, shared), 2 * 512
    upper = 2 + 1 + 1  # of 2 GiB, aligned; each socket has a root and shares of both GiB
    assert found["linux"].pages["guest"] == leaves + upper
    assert found["mitosis"].pages["guest"] == 8 * (leaves + upper)
    assert found["hydra"].pages["guest"] == leaves * (1 + 7 * shared) + 8 * upper


def test_the_prefetch_curve_falls_and_ends_within_5_percent_of_mitosis(workshop):
    """For a lone thread, as in the paper's figure: its copies cost what the link takes."""
    found, pages = wide.traversal(workshop, wide.alone(), range(10))
    curve = [found[degree] for degree in range(10)]
    assert curve == sorted(curve, reverse=True)
    assert found[9] == pytest.approx(found["mitosis"], rel=0.05)
    spared = pages - pages // 512  # faults that only copy an entry, of 600 ns and the reading of its line
    assert 600 * spared < curve[0] - curve[9] < (600 + 320) * spared


def test_a_speed_up_carries_over_by_remote_share_and_distance():
    canneal = hydra.runs("native-wide", use=("fit",))["Canneal"]
    added = canneal["I"].cycles / canneal["I+M"].cycles - 1
    far = (3 * 230 + 4 * 320) / 7 / 110
    expected = 1 + added * (7 / 8 * (far - 1)) / (3 / 4 * (580 / 280 - 1))
    assert hydra.eight_sockets("I") == pytest.approx(expected)


# Rows on ports of Mitosis and Hydra: what they compare, and that nothing measured goes into our number.


def test_predictions_do_not_change_with_what_was_measured(monkeypatch):
    ours = [one.ours for one in small_traces.small_traces("cc", None)]
    known = small_traces.measured()
    doubled = {
        key: run._replace(time=run.time * (2 if key[-1] == "linux" else 1)) for key, run in known.items()
    }
    monkeypatch.setattr(small_traces, "measured", lambda: doubled)
    assert [one.ours for one in small_traces.small_traces("cc", None)] == ours


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


@given(st.floats(1.9, 7.99))
def test_the_co_runner_is_the_one_whose_expected_fragmentation_is_asked_for(lines):
    assert 1 + 7 * new_group(wide.corunner(lines)) == pytest.approx(lines, abs=1e-6)


@given(st.integers(1, 20))
def test_streams_read_neighbours_and_stay_in_the_dataset(run):
    pages, trace = 1 << 10, wide.streams(1 << 10, 1, run).trace()
    (touches,) = trace.batches(1 << 20)
    page = pages_of(trace, touches.page) - START // wide.PAGE
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
    alone, stress = (ptemagnet.replayed(workshop, lines) for lines in (2.8, 6.8))
    slower = named(ptemagnet.table_1(workshop))["time"].ours
    assert slower.middle == pytest.approx(stress.run_cycles / alone.run_cycles) and slower.low > 1


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


# vMitosis and Mitosis: rows that follow from published counts and sizes, against closed forms.


def named(rows):
    return {one.name: one for one in rows}


def test_what_the_cost_file_was_made_from_is_marked_fitted(workshop):
    found = list(vmitosis.table_5(workshop))
    fitted = {one.name for one in found if one.kind == FITTED}
    assert len(fitted) == 10 and {"mprotect-4KiB-replication", "mmap-4GiB-linux"} <= fitted
    assert all(abs(flat(one)["error"]) < 0.002 for one in found if one.kind == FITTED)
    judged = [one for one in found if one.kind == REPLAYED]
    assert len(judged) == 8 and all(abs(flat(one)["error"]) < 0.06 for one in judged)


def test_rows_of_figure_1_are_predicted_without_the_workload_itself():
    found = [one for one in vmitosis.figure_1(None) if one.read == "artifact"]
    assert len(found) == 3 * 6 * 2
    alone = [one for one in found if not one.name.endswith("-RR-RR") and one.kind == LAW]
    assert sum(abs(flat(one)["error"]) for one in alone) / len(alone) < 0.08


def test_walks_are_the_longer_the_more_tables_are_remote_and_loaded(workshop):
    """Closed form: what two tables add to a walk adds up."""
    found = named(vmitosis.walks(workshop))
    assert len(found) == 3 * (6 + 2), "huge pages of a quick run nearly fit into the TLB: no row"
    assert {name for name, one in found.items() if one.kind == FITTED} == {"walks-gups-R", "walks-gups-RI"}
    for workload in vmitosis.SIZES:
        names = (*vmitosis.FIGURE_1, "R", "RI")
        ours = {name: found[f"walks-{workload}-{name}"].ours.middle for name in names}
        assert ours["LR"] + ours["RL"] - 1 == pytest.approx(ours["RR"])
        assert ours["LRI"] + ours["RLI"] - 1 == pytest.approx(ours["RRI"])
        assert 1 < ours["R"] < ours["RI"] and ours["RR"] < ours["LRI"] < ours["RRI"]


def test_figure_6_follows_from_one_repaired_configuration():
    found = named(vmitosis.figure_6(None))
    assert found["restored-gpt"].kind == found["artifact-RRIG"].kind == FITTED
    assert found["restored-gpt"].ours.middle == pytest.approx(65)
    # each table waited for alike: 1 + 2 (1/0.65 - 1)
    assert found["restored-none"].ours.middle == pytest.approx(100 / (1 + 2 * (1 / 0.65 - 1)))
    assert found["oblivious-drop"].ours.middle == pytest.approx(35)


def test_replicas_save_nothing_where_all_is_local_and_more_the_more_is_remote():
    run = run_of("wide-NV-4K", "graph500", "F")
    parts = ((share, share) for share in (0, 0.25, 0.75, 1))
    gains = [replicated(run, part, "thin-2D-4K", "graph500")[0].middle for part in parts]
    assert gains[0] == 1 and gains == sorted(set(gains))


def test_misplaced_replicas_cost_nothing_where_all_was_remote_before():
    run = run_of("wide-NO-4K", "graph500", "OF")
    assert misplaced(run, (1.0, 0.5), "thin-2D-4K", "graph500").middle == pytest.approx(1)
    assert misplaced(run, (0.75, 0.5), "thin-2D-4K", "graph500").middle > 1


# Placements by page size, and the bars that they had to meet.


@pytest.fixture(scope="module")
def by_page_size():
    """DataFrame of the rows of both papers."""
    rows = [one for paper in page_size.SERIES for one in page_size.rows(paper, None)]
    return pd.DataFrame([flat(one) for one in rows])


def test_two_local_runs_give_the_law_of_any_program():
    """C = NW + e W, at the steep end a cycle for each of threads that share a walker, until nothing is left
    of the 0.1 with huge pages; in the middle no less than the walkers of a core allow."""
    for walk, walkers, shared, ends in (  # e = 0.6
        (1.1, 2, 0.0, [1.3, 1.3, 1.5]),
        (1.1, 1, 0.0, [1.3, 1.5, 1.5]),
        (1.1, 1, 1.0, [1.3, 1.75, 2.0]),
        (0.6, 1, 1.0, [1, 1, 1]),
        (0.35, 2, 0.0, [0.75, 0.85, 0.85]),
        (0.05, 2, 0.0, [0.6, 0.67, 0.67]),
        (0.05, 1, 0.0, [0.6, 0.6, 0.67]),
        (0.05, 1, 1.0, [0.5, 0.55, 0.67]),
    ):
        low, middle, high = page_size.by_pages(1 / 0.7, 0.6, 0.1, walk, walkers, shared)
        assert [low * 1.03, middle, high / 1.03] == pytest.approx(ends)


def test_page_size_predicts_placements_as_well_as_is_said_and_no_better(by_page_size):
    """Run time off by 4 % (thin, two tables) and 7 % (wide, native) at most, 85 % inside."""
    used = by_page_size[by_page_size.kind == BY_PAGES]
    groups = used.groupby("where")
    off = {where.removeprefix("page size: "): part.error.abs().mean() for where, part in groups}
    assert off["thin, two tables"] < 0.04
    assert max(error for where, error in off.items() if not where.startswith("thin, t")) < 0.07
    assert used.effect_error.abs().median() < 0.2
    assert (len(used), int(used.inside.sum())) == (42, 39)
    widths = (used.high - used.low) / (used.published - 1).abs().clip(lower=0.05)
    assert 0.8 < widths.median() < 0.9
    thin = used[used["where"].str.startswith("page size: thin, ") & ~used["where"].str.endswith("native")]
    assert (thin.basu / thin.published - 1).abs().mean() > 0.25


def test_where_huge_pages_tell_nothing_it_says_so(by_page_size):
    refused = by_page_size[by_page_size.kind == NOT_REPRODUCIBLE]
    assert len(refused) == 4 and refused.ours.isna().all() and refused.note.str.startswith("refused: ").all()


# vMitosis, Figure 6: the figures of a curve, of curves drawn by hand, of the paper's and of ours.

DROP, LOW, END = 40.0, 30.0, 90.0


def drawn(dip=True, jump=300.0, last=1000.0):
    """100 before, DROP after the move at 100 s, LOW from 200 to 250 s, END from `jump` s on."""
    ends = np.arange(5.0, 100 + last, 5.0)
    since = ends - 100
    speed = np.where(since <= 0, 100.0, np.where(since <= jump, DROP, END))
    if dip:
        speed[(since > 200) & (since <= 250)] = LOW
    return vmitosis_moved.Curve.of(ends, 7e5 * speed, 100.0)


def test_the_figures_of_a_curve_of_steps_are_its_steps():
    found = vmitosis_moved.moved(drawn())
    assert found.drop == pytest.approx(DROP) and found.end == pytest.approx(END)
    assert found.dip == pytest.approx(100 * (1 - LOW / DROP))
    assert found.recover == pytest.approx(300, abs=5)


def test_a_curve_without_a_second_dip_has_none_and_one_that_stays_down_has_recovered_at_once():
    assert vmitosis_moved.moved(drawn(dip=False)).dip == 0
    flat = vmitosis_moved.moved(drawn(dip=False, jump=np.inf))
    assert flat.end == pytest.approx(DROP) and flat.recover == pytest.approx(70, abs=5)


def test_a_single_low_sample_is_no_dip():
    curve = drawn(dip=False)
    curve.share[60] = 0.01
    assert vmitosis_moved.moved(curve).dip == 0


def test_published_ends_are_those_of_the_text_and_of_the_rows_that_were_taken_from_the_artifact():
    for variant, name in (("RRI", "artifact-RRI"), ("RRIG", "artifact-RRIG")):
        end = vmitosis_moved.moved(vmitosis_moved.published_curve(variant)).end
        assert end == pytest.approx(vmitosis_moved.PAPER[name].value, abs=0.1)
    assert vmitosis_moved.moved(vmitosis_moved.published_curve("RRI")).end == pytest.approx(50, abs=3)


@pytest.fixture(scope="module")
def moved_rows():
    with bench() as workshop:
        return {one.name: one for one in vmitosis_moved.figure_6_modelled(workshop)}


@pytest.mark.full
def test_four_curves_have_rows_for_all_that_is_predicted(moved_rows):
    curves = [one for name, one in moved_rows.items() if name.startswith("moved-")]
    assert len(curves) == 14 and not {"moved-RRIM-end", "moved-O-IR-end"} & set(moved_rows)
    assert all(one.kind == MODELLED and one.note for one in moved_rows.values())


@pytest.mark.full
def test_drops_and_ends_are_near_the_second_dip_is_in_its_interval_and_recovery_is_too_soon(moved_rows):
    """What the model holds and what it does not: the row that says so must not turn into praise unseen."""
    for variant in vmitosis_moved.CURVES:
        of = {name: moved_rows.get(f"moved-{variant}-{name}") for name in vmitosis_moved.QUANTITIES}
        assert abs(flat(of["drop"])["error"]) < 0.13
        assert of["end"] is None or abs(flat(of["end"])["error"]) < 0.10
        assert -0.5 < flat(of["recover"])["error"] < -0.1, "always too soon"
        guest = vmitosis_moved.VARIANTS[variant].guest == "visible"
        dip = of["dip"]
        assert (dip.ours.low > 6) == guest, "each page that a guest moves interrupts, with a VM exit each"
        held = dip.ours.low <= dip.value <= dip.ours.high
        assert held == guest, "the hypervisor's gPT follows too soon to show a dip"


# The scan period of Linux' NUMA balancing: against its integers, and closed forms of its passes.

MIB, SCAN = 30 * 1024, 256


@pytest.mark.parametrize("period", [100, 110, 500, 1000, 1690, 24000])
@pytest.mark.parametrize("local", range(0, 101, 5))
def test_the_period_follows_the_kernel_s_integers(period, local):
    """update_task_scan_period, of a task that shares all its pages."""
    slot, ratio = -(-period // 10), local // 10
    step = max(ratio - 7, 1) * slot if ratio >= 7 else -(7 - ratio) * slot
    expected = max(period + step, 100)
    assert vmitosis_moved.next_period(period, local / 100, SCAN) == pytest.approx(expected)


def test_a_period_grows_by_three_tenths_per_local_pass_that_fits():
    first, second = vmitosis_moved.one_pass(1000, MIB, SCAN), vmitosis_moved.one_pass(1300, MIB, SCAN)
    assert (first, second) == (120, 156)
    assert vmitosis_moved.settled_period(first - 1, MIB, SCAN) == 1000
    assert vmitosis_moved.settled_period(first, MIB, SCAN) == 1300
    assert vmitosis_moved.settled_period(first + second, MIB, SCAN) == 1690
    assert vmitosis_moved.settled_period(first + second - 1, MIB, SCAN) == 1300


def test_the_fastest_pace_is_of_tasks_that_begin_and_the_slowest_keeps_its_period():
    middle, fastest, slowest = vmitosis_moved.paces(300, MIB, SCAN)
    assert fastest == vmitosis_moved.Pace(120, 300)
    assert middle == pytest.approx(vmitosis_moved.Pace(202.8, 507))
    assert slowest == pytest.approx(vmitosis_moved.Pace(202.8, 1690))


def test_no_scan_marks_more_than_2560_mib_per_second():
    assert [vmitosis_moved.next_period(200, 0.0, marked) for marked in (SCAN, 2560)] == [100, 1000]
