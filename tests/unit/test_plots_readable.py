"""Every plot of replays can be read, whatever stands on it: few policies, thirty, long names, many nodes."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import ptanalyze
from plot_texts import clipped, overlapping, readable, written
from ptanalyze.core.machine import load_machine
from ptanalyze.show import plots
from ptanalyze.show.plots.speedup import point_labels, spread
from ptanalyze.show.plots.style import narrow

SMALL = {"accesses": 4000, "mprotect_every": 500, "init_trace": False}
TABLES = {
    plots.speedup: "frame",
    plots.pareto: "frame",
    plots.footprint: "frame",
    plots.roofline: "frame",
    plots.reads: "reads",
    plots.locality: "leaves",
    plots.timeline: "timeline",
}
PHONE = [plots.speedup, plots.pareto, plots.footprint, plots.reads, plots.locality, plots.timeline]
LONG = [f"policy-{k}-of-a-long-name+another-policy-of-a-long-name" for k in range(29)]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    vm = ptanalyze.synth(tmp_path_factory.mktemp("plots") / "vm", "16M", guest="visible", threads=4, **SMALL)
    return ptanalyze.replay(vm, ["linux", "mitosis", "hydra"], windows=5, cold=True)


def only(table, *policies):
    chosen = table[table["policy"].isin(policies)]
    chosen.attrs = table.attrs
    return chosen


def called(table, names):
    """The baseline's rows, and mitosis's under each of these names."""
    copies = [only(table, "mitosis").assign(policy=name) for name in names]
    more = pd.concat([only(table, "linux"), *copies], ignore_index=True)
    more.attrs = table.attrs
    return more


def test_labels_beside_points_keep_apart_in_order_and_stay_near():
    places = spread(np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.full(5, 0.1))
    assert places.tolist() == pytest.approx([0.9, 0.6, 0.5, 0.4, 0.1])
    crowded = spread(np.zeros(10), np.full(10, 0.1))
    assert crowded.tolist() == pytest.approx(np.arange(0.95, 0, -0.1).tolist())


@pytest.mark.parametrize("high", [0, 100])
def test_labels_are_where_their_points_are_and_their_lines_do_not_cross(high):
    figure = pyplot.Figure(figsize=(9, 5))
    axis = figure.subplots()
    x, y = [2000, 200, 0, 1000], [50, high, high, high + 0.01]
    axis.plot(x, y, "o")
    axis.axhline(100 - high)
    point_labels(axis, ["alone", "left", "leftmost", "right"], x, y)
    (beside,) = (other for other in figure.axes if other is not axis)
    at = dict(
        zip([text.get_text() for text in beside.get_yticklabels()], beside.get_yticks().tolist(), strict=True)
    )
    assert at["alone"] == pytest.approx(0.5, abs=0.001)
    downward = ["leftmost", "left", "right"] if high == 0 else ["right", "left", "leftmost"]
    assert sorted(downward, key=at.__getitem__, reverse=True) == downward


def test_overlaps_clipping_and_hidden_ticks_are_found():
    figure = pyplot.Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.set_xticks([0, 5], ["inside", "outside"])
    axes.set_xlim(0, 1)
    figure.text(0.5, 0.6, "one above")
    figure.text(0.5, 0.6, "the other")
    figure.text(0.95, 0.2, "too long for it")
    found = written(figure)
    assert overlapping(found) == [("one above", "the other")]
    assert clipped(found, figure.bbox) == ["too long for it"]
    assert "inside" in [text for text, _ in found] and "outside" not in [text for text, _ in found]


def test_a_small_plot_for_a_phone_has_room_for_what_is_written_below_it(replayed):
    table = replayed.frame
    linux = table[table["policy"] == "linux"]
    alike = [linux.assign(policy=f"policy-{k}-that-changes-nothing") for k in range(9)]
    faster = linux.assign(policy="faster", speedup=2.0, speedup_low=1.5, speedup_high=3.0)
    few = pd.concat([linux, faster, *alike], ignore_index=True)
    few.attrs = table.attrs
    with narrow():
        figure = plots.speedup(few)
    (rows,) = (axis.get_position().height * figure.get_figheight() for axis in figure.axes[:1])
    assert figure.get_supxlabel().count("\n") > 3 and rows > 0.5 and readable(figure)


@pytest.mark.parametrize("draw", PHONE)
def test_a_plot_for_a_phone_is_narrow_and_as_readable(draw, replayed):
    with narrow():
        figure = draw(getattr(replayed, TABLES[draw]))
    assert figure.get_figwidth() < 4.5 and readable(figure)


@pytest.mark.parametrize("draw", TABLES)
def test_three_policies_one_alone_and_thirty_whose_names_take_two_lines_are_readable(draw, replayed):
    table = getattr(replayed, TABLES[draw])
    assert readable(draw(table)) and readable(draw(only(table, "linux")))
    thirty = called(table, LONG)
    assert thirty["policy"].nunique() == 30
    assert readable(draw(thirty))


@pytest.mark.parametrize("draw", TABLES)
def test_laying_out_a_plot_again_as_a_file_does_moves_no_text(draw, replayed):
    figure = draw(getattr(replayed, TABLES[draw]))
    once, again = (boxes(figure, engine) for engine in (None, figure.get_layout_engine()))
    assert np.abs(again - once).max() < 1


def boxes(figure, engine):
    """float64[texts, 4], in pixels"""
    if engine is not None:
        engine.execute(figure)
    return np.array([box.extents for _, box in written(figure)])


def test_what_the_numbers_below_sockets_count_stands_apart_from_the_next_panels(replayed):
    leaves = called(replayed.leaves, ["a", "b", "c"])
    leaves.attrs = {**leaves.attrs, "run": "warm"}
    assert readable(plots.locality(leaves))


def test_five_panels_stand_in_rows_of_three(replayed):
    figure = plots.locality(called(replayed.leaves, list("abcd")))
    assert figure.axes[0].get_ylabel() == "% of walks as traced"
    grid = figure.axes[0].get_gridspec()
    assert (grid.nrows, grid.ncols) == (2, 3)
    assert sum(len(axis.containers) > 0 for axis in figure.axes) == 5


def test_a_logarithmic_axis_of_speed_ups_says_so(replayed):
    far = replayed.frame.assign(speedup=[1, 4, 9], speedup_low=[1, 3, 8], speedup_high=[1, 5, 10])
    assert plots.speedup(far).axes[0].get_xlabel().endswith("(right: faster; log scale)")
    assert plots.speedup(replayed.frame).axes[0].get_xlabel().endswith("(right: faster)")


def test_memory_of_page_tables_is_written_with_its_unit_however_little(replayed):
    frame = replayed.frame.assign(pt_bytes=[12 << 10, 3 << 20, 3 << 20], pt_bytes_extra=0)
    figure = plots.footprint(frame)
    numbers = [label.get_text() for label in figure.axes[-1].get_yticklabels()]
    assert [number.split()[-1] for number in numbers] == ["KiB", "MiB", "MiB"]
    assert "KiB with linux" in figure.get_suptitle()


def test_sixty_nodes_are_readable(tmp_path_factory):
    place, how = tmp_path_factory.mktemp("plots") / "sixty", {"guest": "visible", "placement": "interleave"}
    capture = ptanalyze.synth(place, "128M", nodes=60, threads=60, accesses=12000, init_trace=False, **how)
    machine = load_machine("hydra-haswell").resized(60)
    replayed = ptanalyze.replay(capture, ["mitosis"], machine=machine, cold=True)
    one = replayed.leaves[replayed.leaves["policy"] == "linux"]
    assert readable(plots.locality(replayed.leaves)) and readable(plots.locality(one))
    alone = replayed.reads[replayed.reads["policy"] == "mitosis"]
    assert readable(plots.reads(replayed.reads)) and readable(plots.reads(alone))
    pages = ptanalyze.page_tables(capture)
    assert readable(plots.page_table_map(pages)) and readable(plots.table_pages(pages))


def test_eight_nodes_are_readable(tmp_path_factory):
    place = tmp_path_factory.mktemp("plots") / "eight"
    capture = ptanalyze.synth(place, "16M", nodes=8, threads=8, placement="interleave", **SMALL)
    replayed = ptanalyze.replay(capture, ["linux", "mitosis", "hydra"], machine="hydra-haswell", cold=True)
    one = replayed.leaves[replayed.leaves["policy"] == "linux"]
    assert readable(plots.locality(replayed.leaves)) and readable(plots.locality(one))
    assert readable(plots.reads(replayed.reads))
    assert readable(plots.page_table_map(ptanalyze.page_tables(capture)))
