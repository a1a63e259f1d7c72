"""The report's words: how sure it is, its glossary, its cells."""

import math
import tomllib
from dataclasses import replace

import pytest

import ptanalyze
from captures import make_family
from ptanalyze.core.errors import printable
from ptanalyze.show import plots
from ptanalyze_report.figures import Column, described, memory, percent, ratio, walkers
from ptanalyze_report.page import asset, coded
from ptanalyze_report.study import cautions, studies


@pytest.fixture(scope="module")
def threads(place):
    capture = ptanalyze.synth(place / "threads", "16M", threads=4, accesses=40000, init_trace=False)
    (study,) = studies([capture], ptanalyze.Setup.of())
    return study


def test_failed_checks_are_the_gravest_caution(threads):
    assert "None of" in next(one.text for one in cautions(threads) if one.code == "checks")
    failed = replace(threads.checks[-1], verdict="failed", wrong=3, examined=9)
    first, *_ = cautions(replace(threads, checks=[*threads.checks[:-1], failed]))
    assert first.weight == "failed" and "(3 of 9)" in first.text


def test_threads_that_walk_most_come_first(threads):
    tables = {table.key: table for table in walkers(threads)}
    rows = tables["walkers-thread"].rows
    counts = [row["count"] for row in rows]
    assert len(counts) > 1 and counts == sorted(counts, reverse=True)
    assert sum(counts) == threads.walkers["thread"]["count"].sum()
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert all(0 <= row["near"] <= 1 for row in rows)
    assert not list(walkers(replace(threads, walkers={})))


def test_commands_in_a_text_are_code():
    assert (
        coded("Type `ptanalyze walk <b>` & read") == "Type <code>ptanalyze walk &lt;b&gt;</code> &amp; read"
    )


def test_every_term_and_figure_has_a_meaning():
    terms, figures = tomllib.loads(asset("glossary.toml"))["terms"], described()
    assert terms and all(term["name"] and term["meaning"].strip().endswith(".") for term in terms)
    assert {about["draw"] for about in figures.values()} <= set(plots.__all__)
    texts = [" ".join(text.split()) for about in (*terms, *figures.values()) for text in about.values()]
    assert [text for text in texts if printable(text) != text] == [], "a reader would see escapes"


def test_cells_have_a_text_and_an_order():
    column = Column("B", "", ratio)
    assert column.cell(1.234) == ("1.23", 1.234) and Column("A").cell("x") == ("x", "x")
    assert column.cell(math.nan) == column.cell(None) and column.cell(None)[0] == "–"
    assert column.cell(None)[1] < -1e299
    assert memory(-393216) == "-384 KiB" and memory(0.0) == "0 KiB"
    assert percent(0.5) == "50.0 %" and percent(-0.00001) == "0.0 %"


def test_several_processes_are_said_to_count_together(tmp_path):
    whole, heap = (
        studies([ptanalyze.load(one)], ptanalyze.Setup.of())[0]
        for one in (make_family(tmp_path / "c"), tmp_path / "c" / "pid-8")
    )
    assert any("3 processes together" in one.text for one in cautions(whole))
    assert not any("processes" in one.text for one in cautions(heap))
