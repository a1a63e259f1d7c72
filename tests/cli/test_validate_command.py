"""`ptanalyze validate` as a user calls it; the quick table of two papers is made once."""

import csv
import io
import json

import pytest

from one_line import is_one_line
from ptanalyze.cli import run
from ptanalyze.validate.row import KINDS, NOT_REPRODUCIBLE, published

ASKED = {  # what the table has to say something of
    "vMitosis": [
        *(f"Figure {n}" for n in range(1, 7)),
        "Table 4",
        "Table 5",
        "Table 6",
        "section 1",
        "section 5.2",
    ],
    "Mitosis": ["Figure 6", "Figure 9", "Figure 10", "Table 5", "poster"],
}


@pytest.fixture(scope="module")
def table():
    """{paper: its part of the JSON}, the summary of all under None."""
    import contextlib

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(["validate", "--quick", "--json", "--paper", "vmitosis", "--paper", "mitosis"]) == 0
    found = json.loads(out.getvalue())["result"]
    return {one["paper"]: one for one in found["papers"]} | {None: found}


def rows_of(table):
    return [row for name in ASKED for row in table[name]["rows"]]


@pytest.mark.parametrize(
    ("paper", "place"), [(paper, place) for paper, places in ASKED.items() for place in places]
)
def test_every_figure_and_table_has_a_row(table, paper, place):
    assert any(
        row["where"] == place or row["where"].startswith((f"{place},", f"{place} "))
        for row in table[paper]["rows"]
    )


@pytest.mark.parametrize("name", ["vmitosis", "mitosis"])
def test_no_published_figure_is_left_out(table, name):
    paper = published(name)
    said = {row["name"] for row in table[paper.paper]["rows"]}
    assert {one.name for one in paper.figure} <= said


def test_every_row_has_a_kind_a_place_and_a_sentence_where_it_fails(table):
    for row in rows_of(table):
        assert row["kind"] in KINDS and row["where"] and row["quantity"]
        assert row["note"] or row["kind"] != NOT_REPRODUCIBLE
        if row["ours"] is not None:
            assert row["low"] <= row["ours"] * (1 + 1e-9) and row["ours"] <= row["high"] * (1 + 1e-9)
        if row["error"] is not None:
            assert row["error"] == pytest.approx((row["ours"] - row["published"]) / (row["published"] or 1))


def test_the_summary_counts_what_the_rows_say_and_judges_evidence_alone(table):
    for name in (*ASKED, None):
        rows = rows_of(table) if name is None else table[name]["rows"]
        summary = table[name]["summary"]
        assert summary["rows"] == len(rows)
        assert sum(summary[kind] for kind in KINDS) == len(rows)
        worst = {}
        for row in rows:
            if row["judged"]:
                one = row["paper"], row["unit"], row["low"], row["ours"], row["high"]
                worst[one] = max(worst.get(one, 0), abs(row["effect_error"]))
        assert summary["judged"] == len(worst)
        assert summary["mean_error"] == pytest.approx(sum(worst.values()) / len(worst))


def test_ours_beats_both_baselines_where_they_make_sense(table):
    found = {one["who"]: one["mean_error"] for one in table[None]["baselines"]}
    assert found["ours"] < found["configuration mean"] < found["constant speed-up"]


def test_modelled_workloads_have_the_published_locality(table):
    found = {row["name"]: row for row in table["vMitosis"]["rows"]}
    for name in ("local-local-expected", "remote-remote-expected", "plain-remote", "misplaced-remote"):
        assert abs(found[name]["error"]) < 0.02
    for name in ("canneal-socket", "canneal-others", "misplaced-gain", "one-remote-walks"):
        assert found[name]["holds"]


def test_one_row_as_csv_and_as_a_table(pt):
    ran = pt("validate", "--paper", "vmitosis", "--row", "table 4", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["name"], float(row["error"])) for row in rows] == [("groups", 0), ("grouped", 0)]
    ran = pt("validate", "--paper", "vmitosis", "--row", "Table 5, section")
    assert ran.code == 0 and "fitted" in ran.out and "Errors of the effect" in ran.out and "(1) " in ran.out


def test_unknown_papers_and_rows_are_refused_in_one_line(pt):
    assert is_one_line(pt("validate", "--paper", "none"), 2)
    assert is_one_line(pt("validate", "--paper", "mitosis", "--row", "no such row", "--quick"), 2)
