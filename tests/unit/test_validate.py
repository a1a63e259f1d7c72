"""`validate`: the arithmetic of rows, what counts as evidence, and files of published figures."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.validate import row as files
from ptanalyze.validate.row import (
    DEFINITION,
    FITTED,
    KINDS,
    MODELLED,
    REPLAYED,
    Figure,
    Paper,
    baselines,
    not_reproducible,
    published,
    ratios,
    row,
    tally,
)
from ptanalyze.validate.run import PAPERS, figures, flat, plain, validate


def figure(value=10.0, bound="", name="one"):
    return Figure(name=name, where="Figure 1", quantity="q", unit="x", value=value, bound=bound, paper="P")


def percent(value):
    return Figure(name="s", where="Figure 1", quantity="q", unit="%", value=value, paper="P")


def test_the_error_is_relative_to_the_published_number_and_keeps_its_sign():
    assert row(figure(10), 12, REPLAYED).error == pytest.approx(0.2)
    assert row(figure(10), 7.5, MODELLED).error == pytest.approx(-0.25)
    assert row(figure(10), Interval(1, 9, 20), MODELLED).error == pytest.approx(-0.1)


def test_an_interval_of_any_make_becomes_low_middle_and_high():
    ours = row(figure(), Interval(1, 2, 3), REPLAYED).ours
    assert (ours.low, ours.middle, ours.high) == (1, 2, 3)


def test_a_published_zero_is_met_or_has_no_relative_error():
    assert row(figure(0), 0, REPLAYED).error == 0
    missed = row(figure(0), 0.1, REPLAYED)
    assert missed.error is None
    found = tally([missed, row(figure(0), 0, REPLAYED)])
    assert (found["judged"], found["no_error"], found["within_25"]) == (2, 1, 1)


@pytest.mark.parametrize(("bound", "ours", "holds"), [
    ("at least", 10, True), ("at least", 9.99, False), ("at most", 10, True), ("at most", 10.01, False),
])  # fmt: skip
def test_a_bound_holds_or_not_and_has_no_error(bound, ours, holds):
    one = row(figure(10, bound), ours, REPLAYED)
    assert (one.holds, one.error) == (holds, None)
    found = tally([one])
    assert (found["judged"], found["bounds"], found["bounds_held"]) == (0, 1, holds)


def test_without_a_number_of_ours_there_is_neither_error_nor_verdict():
    for bound in ("", "at most"):
        one = not_reproducible(figure(10, bound), "no counters")
        assert (one.ours, one.error, one.holds) == (None, None, None)


def test_what_cannot_be_reproduced_says_why():
    with pytest.raises(AssertionError, match="says why"):
        not_reproducible(figure(), "")


@given(st.lists(st.sampled_from([FITTED, DEFINITION]), max_size=8))
def test_rows_that_are_no_evidence_change_no_statistic(kinds):
    evidence = [
        row(figure(), 10.4, REPLAYED),
        row(figure(), 8, MODELLED),
        row(figure(9, "at most"), 8, REPLAYED),
    ]
    others = [row(figure(), 10, kind, "why", mean=10, constant=10) for kind in kinds]
    others += [row(figure(9, "at least"), 10, kind, "why") for kind in kinds]
    alone, together = tally(evidence), tally(evidence + others)
    counted = {"rows", *KINDS}
    assert {k: v for k, v in alone.items() if k not in counted} == {
        k: v for k, v in together.items() if k not in counted
    }
    assert baselines(others) == []


@pytest.mark.parametrize("kind", [FITTED, DEFINITION])
def test_a_perfect_number_that_is_fitted_is_no_success(kind):
    found = tally([row(figure(), 10, kind, "why")])
    assert found["rows"] == found[kind] == 1
    assert (found["judged"], found["within_10"], found["mean_error"]) == (0, 0, None)


def test_rows_within_10_25_and_50_percent_are_counted_with_the_edges_in():
    found = tally([row(percent(100), ours, REPLAYED) for ours in (100, 110, 90.5, 125, 150, 151)])
    assert [found[f"within_{n}"] for n in (10, 25, 50)] == [3, 4, 5]
    assert found["mean_error"] == pytest.approx((0 + 10 + 9.5 + 25 + 50 + 51) / 600)
    assert (found["median_error"], found["max_error"]) == (pytest.approx(0.175), pytest.approx(0.51))


@given(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=20, unique=True))
def test_median_and_mean_do_not_exceed_the_worst_error(values):
    found = tally([row(figure(7), value, REPLAYED) for value in values])
    assert 0 <= found["median_error"] <= found["max_error"] * (1 + 1e-12)
    assert 0 <= found["mean_error"] <= found["max_error"] * (1 + 1e-12)
    assert found["within_10"] <= found["within_25"] <= found["within_50"] <= found["judged"] == len(values)


def test_the_error_of_a_ratio_is_that_of_its_effect():
    one = row(figure(1.35), 1.28, REPLAYED)
    assert one.error == pytest.approx(-0.0519, abs=1e-4) and one.effect_error == pytest.approx(-0.2)
    assert row(figure(0.8), 0.9, REPLAYED).effect_error == pytest.approx(0.5)
    assert row(percent(50), 40, REPLAYED).effect_error == pytest.approx(-0.2)


def test_effects_below_5_percent_are_judged_against_5_percent():
    assert row(figure(1.0), 1.01, REPLAYED).effect_error == pytest.approx(0.2)
    assert row(figure(0.98), 1.0, REPLAYED).effect_error == pytest.approx(0.4)


def test_a_prediction_that_stands_in_two_figures_counts_once_by_its_larger_error():
    rows = [row(figure(1.2, name=name), 1.3, REPLAYED) for name in ("a", "b")]
    rows.append(row(figure(1.1, name="c"), 1.3, REPLAYED))
    found = tally([*rows, row(figure(1.2), 1.31, REPLAYED)])
    assert (found["rows"], found["judged"], found["max_error"]) == (4, 2, pytest.approx(2.0))


def test_a_number_of_ours_counts_although_we_call_it_not_reproducible():
    found = tally([not_reproducible(figure(1.5), "why", 2.0), not_reproducible(figure(1.5), "why")])
    assert (found["judged"], found["not reproducible"], found["mean_error"]) == (1, 2, pytest.approx(1.0))


def test_coverage_stands_beside_the_width_of_intervals():
    rows = [row(figure(1.5), Interval(1.4, 1.5, 1.6 + k), MODELLED) for k in (0, 0.2, 1.0)]
    found = tally([*rows, row(figure(1.5), 1.45, MODELLED)])
    assert (found["intervals"], found["inside"]) == (3, 3)
    assert found["width"] == pytest.approx(0.4 / 0.5)


def test_baselines_are_judged_on_the_rows_that_have_both_and_are_evidence():
    rows = [
        row(percent(10), 11, REPLAYED, mean=15, constant=20),
        row(percent(10), 10, REPLAYED, mean=15),
        row(percent(10), 10, FITTED, mean=10, constant=10),
        row(percent(0), 0, REPLAYED, mean=1, constant=1),
    ]
    found = {one["who"]: one for one in baselines(rows)}
    assert [found[who]["mean_error"] for who in ("ours", "configuration mean", "constant speed-up")] == [
        pytest.approx(0.1), pytest.approx(0.5), pytest.approx(1.0),
    ]  # fmt: skip
    assert {one["rows"] for one in found.values()} == {1}


def test_intervals_that_hold_the_published_number_are_counted_and_single_numbers_are_none():
    rows = [
        row(figure(10), Interval(*ends), REPLAYED) for ends in ((9, 9.5, 10), (10.1, 11, 12), (10, 10, 10))
    ]
    fitted = row(figure(10), Interval(9, 10, 11), FITTED)
    found = tally([*rows, fitted])
    assert (found["intervals"], found["inside"]) == (2, 1)


def test_ratios_are_told_from_counts_shares_and_sizes():
    share = Figure(name="s", where="Figure 1", quantity="q", unit="%", value=1)
    one, other = row(figure(), 1, REPLAYED), row(share, 1, REPLAYED)
    assert ratios([one, other]) == [one]


@pytest.mark.parametrize(
    ("value", "shown"), [(3.006, "3.006"), (0.002295, "0.002295"), (24, "24"), (35e6, "35,000,000")]
)
def test_numbers_are_shown_with_four_digits_and_never_rounded_to_fit(value, shown):
    assert plain(value) == shown


def test_a_flat_row_has_everything_a_program_asks_for():
    one = flat(row(figure(10), Interval(8, 9, 12), MODELLED, "note", mean=1, constant=2))
    assert (one["low"], one["ours"], one["high"], one["error"]) == (8, 9, 12, pytest.approx(-0.1))
    assert (one["paper"], one["kind"], one["configuration_mean"]) == ("P", MODELLED, 1)


@pytest.mark.parametrize("name", PAPERS)
def test_every_published_figure_cites_its_place_and_how_it_was_read(name):
    paper = published(name)
    assert paper.citation and paper.title
    for one in paper.figure:
        assert one.where.startswith(("Figure ", "Figures ", "Table ", "section ", "sections ", "poster")), one
        assert one.quantity and one.unit and one.paper == paper.paper


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_functions_named_after_figures_and_tables(name):
    module = importlib.import_module(f"ptanalyze.validate.{PAPERS[name]}")
    assert module.FIGURES and all(callable(run) for run in module.FIGURES.values())


def test_a_wanted_figure_or_table_runs_alone_and_anything_else_needs_all():
    title = lambda wanted: [title for title, _ in figures("vmitosis", wanted)]  # noqa: E731
    assert title("table 4") == title("Table 4, section") == ["Table 4"]
    assert title("Figure 6") == ["Figure 6", "Figure 6, modelled"]
    assert "Figure 1" not in [name for name, _ in figures("mitosis", "Figure 10")]
    for wanted in ("", "section 4.2.2", "Graph500", "Figure 99", "4.2.2, misplaced"):
        assert title(wanted) == title("")


def test_a_paper_and_a_row_that_are_not_there_are_refused():
    with pytest.raises(UsageError, match=r"--paper x: choose from .*vmitosis"):
        validate(["x"])
    with pytest.raises(UsageError, match="no published figure is named 'x'"):
        published("vmitosis")["x"]


@pytest.mark.parametrize(("text", "why"), [
    ("paper = 1", "Expected `str`"),
    ("paper = ", "Invalid value"),
    ('paper = "P"\ntitle = "T"\ncitation = "C"\nmore = 1', "more: no such field"),
    ('paper = "P"\ntitle = "T"\ncitation = "C"\nfigure = [{name = "a"}]', r"figure\[0\].where: missing"),
])  # fmt: skip
def test_a_broken_file_of_figures_is_one_line_that_names_it(tmp_path, monkeypatch, text, why):
    with_file(tmp_path, monkeypatch, text)
    with pytest.raises(UsageError, match=r"published-p\.toml: .*" + why):
        files.published.__wrapped__("p")


def test_a_missing_file_and_a_name_given_twice_are_refused(tmp_path, monkeypatch):
    one = '{name = "a", where = "Figure 1", quantity = "q", unit = "x", value = 1.0}'
    with_file(tmp_path, monkeypatch, f'paper = "P"\ntitle = "T"\ncitation = "C"\nfigure = [{one}, {one}]')
    with pytest.raises(UsageError, match="figure 'a': named twice"):
        files.published.__wrapped__("p")
    with pytest.raises(UsageError, match=r"published-q\.toml: cannot be read"):
        files.published.__wrapped__("q")


def with_file(tmp_path, monkeypatch, text):
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "published-p.toml").write_text(text)
    monkeypatch.setattr(files, "bundled", lambda kind: tmp_path)


def test_figures_of_the_artifact_carry_their_paper():
    one = Paper(paper="P", title="T", citation="C").measured("n", "Figure 6", "q", "x", 2)
    assert (one.paper, one.read, one.value) == ("P", "artifact", 2)
