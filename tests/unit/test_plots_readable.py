"""Plots can be read, and say what they draw from."""

import inspect
import json
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot, rcParams

import ptanalyze
from plot_texts import clipped, overlapping, readable, words, written
from ptanalyze.analysis import frames
from ptanalyze.capture.check import check_capture
from ptanalyze.capture.vm.diff import diff
from ptanalyze.capture.vm.join import Fit, Share
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine
from ptanalyze.show import plots
from ptanalyze.show.plots.style import literal_table, point_labels
from ptanalyze_host.survey import Surveyed
from ptanalyze_host.survey_command import answer
from ptanalyze_law.run_time import coefficients_frame
from ptanalyze_papers.run import flat, published_frame, validate

# Every plot of replays can be read, whatever stands on it: few policies, thirty, long names, many nodes.

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


def test_labels_stand_in_the_order_of_their_points_and_apart():
    figure = pyplot.Figure(figsize=(9, 5))
    axis = figure.subplots()
    x, y = [2000, 200, 0], [50, 0, 100]
    axis.plot(x, y, "o")
    point_labels(axis, ["middle", "low", "high"], x, y)
    (beside,) = (other for other in figure.axes if other is not axis)
    at = dict(zip([text.get_text() for text in beside.get_yticklabels()], beside.get_yticks(), strict=True))
    assert sorted(at, key=at.get) == ["low", "middle", "high"] and readable(figure)


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


# Plots of machines, policies, calibrations, and of published numbers beside ours.


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


def latency_of(machine):
    both = {"idle": machine.latency.idle, "contended": machine.latency.contended}
    return frames.latency_frame(both, range(machine.nodes))


@pytest.mark.parametrize("name", ["hydra-haswell", "epyc-genoa-cxl"])
def test_a_machines_matrices_are_drawn_as_they_are(name):
    machine = load_machine(name)
    figure = plots.latency(latency_of(machine))
    assert readable(figure)
    for axes, matrix in zip(figure.axes, (machine.latency.idle, machine.latency.contended), strict=False):
        shown = axes.collections[0].get_array().reshape(machine.nodes, machine.nodes)
        assert np.array_equal(shown, np.array(matrix))
        assert {patch.get_xy() for patch in axes.patches} == {(n, n) for n in range(machine.nodes)}


@pytest.mark.parametrize("cpus", [2, 16, 192])
def test_cpus_stand_by_their_groups_which_are_boxed(cpus):
    far = np.arange(cpus)[:, None] % 2 != np.arange(cpus) % 2
    ns = np.where(far, 125.0, 50.0)
    np.fill_diagonal(ns, np.nan)
    groups = [list(range(first, cpus, 2)) for first in (0, 1)]
    figure = plots.latency(frames.latency_frame({"measured": ns}, range(cpus), "CPU", groups))
    assert readable(figure)
    shown = figure.axes[0].collections[0].get_array().reshape(cpus, cpus)
    half = cpus // 2
    assert (shown[:half, half:] == 125).all() and not (shown[:half, :half] == 125).any()
    assert [patch.get_xy() for patch in figure.axes[0].patches] == [(0, 0), (half, half)]


def test_cpus_without_groups_say_so():
    figure = plots.latency(frames.latency_frame({"measured": [[np.nan, 80], [80, np.nan]]}, (0, 1), "CPU"))
    assert readable(figure) and any("which form no groups" in text for text in texts(figure))


def test_machines_are_markers_at_their_latencies():
    table = ptanalyze.list_machines()
    figure = plots.machines(table)
    assert readable(figure)
    shown = {line.get_label(): line.get_xdata() for line in figure.axes[0].lines}
    assert np.allclose(shown["local"], table["local_ns"]) and np.allclose(shown["remote"], table["remote_ns"])


def test_policies_have_a_dot_for_each_thing_they_act_on_and_need():
    table = ptanalyze.list_policies()
    figure = plots.policies(table)
    assert readable(figure)
    dots = sum(len(line.get_xdata()) for line in figure.axes[0].lines)
    words = [said for side in ("acts_on", "needs") for said in table[side] if said]
    assert dots == sum(len(said.split(", ")) for said in words)
    long = table.assign(policy=[f"{name}+a-policy-with-a-very-long-name" for name in table["policy"]])
    many = pd.concat([long, long.assign(policy="b-" + long["policy"])], ignore_index=True)
    assert len(many) >= 30 and readable(plots.policies(many))
    assert readable(plots.policies(table[table["policy"] == "mitosis"]))


def test_coefficients_are_dots_in_bars(tmp_path):
    counted = {"cycles": 9, "dtlb_load_misses.walk_pending": 3, "dtlb_store_misses.walk_pending": 1}
    file = tmp_path / "perf.csv"
    events = {**counted, "ept.walk_pending": 3}.items()
    file.write_text("".join(f"{number}00000000,,{event}:u,100,100.00,,\n" for event, number in events))
    table = coefficients_frame(ptanalyze.calibrate(file))
    figure = plots.coefficients(table)
    assert readable(figure)
    dots = [x for axes in figure.axes for line in axes.lines for x in line.get_xdata()]
    assert sorted(dots) == pytest.approx(sorted(table["middle"]))


@pytest.fixture(scope="module")
def published():
    found = validate(("vmitosis",), "Figure 1", quick=True)
    return published_frame([flat(row) for _, rows in found for row in rows])


def test_few_published_rows_have_a_line_each_at_ours_over_theirs(published):
    rows = published[(published["bound"] == "") & published["ours"].notna()].head(12)
    figure = plots.validation(rows)
    assert readable(figure)
    axes = figure.axes[0]
    shown = [x for line in axes.lines if line.get_linestyle() == "None" for x in line.get_xdata()]
    assert sorted(shown) == pytest.approx(sorted(np.clip(rows["ours"] / rows["published"], 0.25, 4)))
    assert len(axes.get_yticks()) == len(rows)


def test_many_published_rows_are_gathered_by_paper_and_kind(published):
    papers = [published.assign(paper=f"A Paper of Year {k}") for k in range(-(-200 // len(published)))]
    many = pd.concat(papers, ignore_index=True)
    figure = plots.validation(many)
    assert readable(figure)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    there = many[(many["bound"] == "") & many["ours"].notna()]
    assert len(names) == there.groupby(["paper", "kind"]).ngroups
    evidence = there[there["kind"].isin(["law", "replayed", "modelled", "traced small"])]
    error = 100 * evidence["error"].abs().median()
    said = f"{len(evidence)} rows that can fail: median error {error:.1f} %"
    assert any(text.startswith(said) for text in texts(figure))


def test_what_has_no_ratio_is_counted_below(published):
    bounds = published.head(4).assign(
        bound=["", "at least", "at least", "at most"], holds=[None, True, False, True]
    )
    assert any("2 of 3 published bounds hold" in text for text in texts(plots.validation(bounds)))


def test_empty_tables_are_one_line(published):
    for draw, table in (
        (plots.latency, frames.latency_frame({"idle": None}, ())),
        (plots.machines, ptanalyze.list_machines().iloc[:0]),
        (plots.policies, ptanalyze.list_policies().iloc[:0]),
        (plots.validation, published.assign(bound="at least")),
    ):
        with pytest.raises(UsageError, match="nothing to draw: "):
            draw(table)


# Each plot says which columns it draws: with those alone it draws the same.

DRAWN = [name for name in plots.__all__ if name != "save"]


def moved_threads():
    """A published and a predicted line of three points, as vmitosis_moved.samples has them."""
    line = {"variant": "RRI", "title": "nothing migrates", "seconds": [-5.0, 5.0, 15.0]}
    line |= {"share": [1, 0.4, 0.5], "low": [1, 0.3, 0.4], "high": [1, 0.5, 0.6]}
    return pd.concat([pd.DataFrame(line | {"source": of}) for of in ("published", "predicted")])


@pytest.fixture(scope="module")
def tables(tmp_path_factory, published):
    """{plot: a table for it}"""
    place = tmp_path_factory.mktemp("documented")
    vm = ptanalyze.synth(place / "vm", "64M", guest="visible", accesses=40000)
    found = ptanalyze.replay(vm, ["linux", "mitosis", "hydra"], windows=3, cold=True)
    pages = ptanalyze.page_tables(vm)
    machine = load_machine("hydra-haswell")
    counters = place / "perf.csv"
    walks = ("dtlb_load_misses", "dtlb_store_misses", "ept")
    events = {"cycles": 9000, **{f"{unit}.walk_pending": 1000 for unit in walks}}
    counters.write_text("".join(f"{count}00000,,{event}:u\n" for event, count in events.items()))
    calibration = ptanalyze.calibrate(counters, native=False)
    errors = {"family": ["vmitosis"], "method": ["law"], "second": ["any"], "points": [9]}
    errors |= {name: [0.1] for name in ("mean", "median", "max")}
    return {
        "changes": frames.changes_frame(diff(vm, vm)),
        "checks": frames.findings_frame(list(check_capture(vm))),
        "coefficients": coefficients_frame(calibration),
        "comparison": ptanalyze.compare(found.frame.iloc[[0]], found.frame.iloc[[1]]),
        "curve": ptanalyze.sweep(vm, ["hydra"], {"prefetch": [0, 9]}),
        "fit": frames.fit_frame(Fit(Share(10, 9, 1, 0), Share(10, 5, 3, 2), 4, 4)),
        "footprint": found.frame,
        "fragmentation": ptanalyze.fragmentation(vm, after=True),
        "latency": frames.latency_frame({"idle": machine.latency.idle}, range(machine.nodes)),
        "locality": ptanalyze.classify(vm),
        "machines": ptanalyze.list_machines(),
        "page_table_map": pages,
        "pareto": found.frame,
        "policies": ptanalyze.list_policies(),
        "prediction": ptanalyze.predict(calibration),
        "prediction_errors": pd.DataFrame(errors),
        "reads": found.reads,
        "roofline": found.frame,
        "speedup": found.frame,
        "survey": answer(
            [Surveyed(7, "db", "process", "/", 8192, 1 << 20, {0: 3, 1: 1}, {0: 2}, 0, {1: 1.0})], 1, 2
        ).table,
        "table_pages": pages,
        "throughput": moved_threads(),
        "timeline": found.timeline,
        "validation": published,
        "walk": ptanalyze.walk(vm, int(pages["base"].iloc[-1])),
        "walk_map": ptanalyze.walk_map(vm),
    }


@pytest.mark.parametrize("name", DRAWN)
def test_the_columns_that_a_plot_names_are_all_that_it_needs(tables, name):
    draw, table = getattr(plots, name), tables[name]
    told = inspect.getdoc(draw).partition("\ncolumns  ")[2]
    named = set(re.findall(r"\w+", told)) | set(table.attrs.get("swept", ()))
    columns = [column for column in table.columns if column in named]
    alone = table[columns]
    alone.attrs = table.attrs
    assert columns and words(draw(alone)) == words(draw(table))


@pytest.mark.parametrize("name", ["latency", "walk", "roofline", "page_table_map", "timeline"])
def test_the_attrs_that_a_plot_names_are_there(tables, name):
    told = inspect.getdoc(getattr(plots, name)).partition("attrs ")[2]
    assert set(re.findall(r"\w+", told)) <= set(tables[name].attrs)


# A plot as a file and in a notebook.


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    place = tmp_path_factory.mktemp("plots") / "native"
    return ptanalyze.replay(ptanalyze.synth(place, "16M", accesses=4000, init_trace=False), ["mitosis"])


def test_a_notebook_shows_a_plot_by_itself(few):
    assert plots.speedup(few.frame)._repr_png_().startswith(b"\x89PNG")


def test_plots_leave_pyplot_and_its_settings_alone(few):
    before = dict(rcParams)
    plots.speedup(few.frame)
    assert dict(rcParams) == before and pyplot.get_fignums() == []


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_are_the_same_bytes_each_time(few, tmp_path, ending):
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.speedup(few.frame), path)
    a, b = (path.read_bytes() for path in paths)
    assert a == b and len(a) > 1000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_svg_text_is_text(few, tmp_path):
    plots.save(plots.speedup(few.frame), tmp_path / "a.svg")
    assert ">mitosis</text>" in (tmp_path / "a.svg").read_text()


def test_another_ending_names_those_there_are(few, tmp_path):
    for name in ("a.gif", "a", "png"):
        with pytest.raises(UsageError, match=r"FILE\.png, FILE\.svg or FILE\.pdf"):
            plots.save(plots.speedup(few.frame), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# Texts that plots show: printable, no formulas, and their tables' attrs cheap to pass on.

ATTRS = {"machine": {"name": "a$b", "latency": [[1.0, 2.0], [3.0, 4.0]]}, "notes": ["x\ny"], "n": 3}


def shown():
    table = pd.DataFrame({"policy": ["a$b", "c\x1bd"], "walks": [1, 2]})
    table.attrs = ATTRS
    return literal_table(table)


def test_texts_are_printable_and_no_formulas_wherever_they_stand():
    table = shown()
    assert list(table["policy"]) == [r"a\$b", r"c\x1bd"] and list(table["walks"]) == [1, 2]
    assert table.attrs["machine"]["name"] == r"a\$b" and "\n" not in table.attrs["notes"][0]
    assert json.loads(json.dumps(table.attrs))["machine"]["latency"] == ATTRS["machine"]["latency"]
    assert ATTRS["machine"]["name"] == "a$b", "the caller's own stay as they are"


def test_what_pandas_makes_of_a_table_shares_its_attrs():
    table = shown()
    part = table[table["walks"] > 1]
    assert part.attrs["machine"] is table.attrs["machine"] and part.attrs["notes"] is table.attrs["notes"]
