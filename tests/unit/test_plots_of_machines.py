"""Plots of machines, policies, calibrations, and of published numbers beside ours."""

import numpy as np
import pandas as pd
import pytest

import ptanalyze
from plot_texts import readable, words
from ptanalyze.analysis import frames
from ptanalyze.core.errors import UsageError
from ptanalyze.core.machine import load_machine, machine_names
from ptanalyze.show import plots
from ptanalyze.validate.leave_one_out import leave_one_out, summary
from ptanalyze.validate.run import flat, validate


def texts(figure):
    return [text.replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ") for text in words(figure)]


def latency_of(machine):
    both = {"idle": machine.latency.idle, "contended": machine.latency.contended}
    return frames.latency_frame(both, range(machine.nodes))


@pytest.mark.parametrize("name", machine_names())
def test_a_machines_matrices_are_drawn_as_they_are(name):
    machine = load_machine(name)
    figure = plots.latency(latency_of(machine))
    assert readable(figure)
    for axes, matrix in zip(figure.axes, (machine.latency.idle, machine.latency.contended), strict=False):
        shown = axes.collections[0].get_array().reshape(machine.nodes, machine.nodes)
        assert np.array_equal(shown, np.array(matrix))
        assert {patch.get_xy() for patch in axes.patches} == {(n, n) for n in range(machine.nodes)}


def test_one_node_and_64_are_readable():
    for nodes in (1, 64):
        assert readable(plots.latency(latency_of(load_machine("hydra-haswell").resized(nodes))))


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
    table = frames.coefficients_frame(ptanalyze.calibrate(file))
    figure = plots.coefficients(table)
    assert readable(figure)
    dots = [x for axes in figure.axes for line in axes.lines for x in line.get_xdata()]
    assert sorted(dots) == pytest.approx(sorted(table["middle"]))


def test_errors_of_predictions_are_markers_within_the_largest():
    table = summary(leave_one_out())
    figure = plots.prediction_errors(table)
    assert readable(figure)
    axes = figure.axes[0]
    shown = {line.get_label(): line.get_xdata() for line in axes.lines}
    assert np.allclose(shown["median"], 100 * table["median"]) and np.allclose(
        shown["mean"], 100 * table["mean"]
    )
    ends = [path.vertices[1, 0] for path in axes.collections[0].get_paths()]
    assert np.allclose(ends, 100 * table["max"])


@pytest.fixture(scope="module")
def published():
    found = validate(("vmitosis",), "Figure 1", quick=True)
    return frames.published_frame([flat(row) for _, rows in found for row in rows])


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
    evidence = there[there["kind"].isin(["replayed", "modelled"])]
    error = 100 * evidence["error"].abs().median()
    said = f"{len(evidence)} replayed and modelled rows: median error {error:.1f} %"
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
