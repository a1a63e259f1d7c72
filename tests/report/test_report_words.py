"""The report's words: how sure it is, its glossary, its cells."""

import math
import os
from dataclasses import replace

import pytest

import ptanalyze
from captures import make_family
from ptanalyze.core.errors import printable
from ptanalyze.show import plots
from ptanalyze_report.figures import LEAST, Column, described, grid, memory, percent, ratio, walkers, word
from ptanalyze_report.page import by_processes, glossary, linked, policy_terms
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
    counts = [row[1].order for row in rows]
    assert len(counts) > 1 and counts == sorted(counts, reverse=True)
    assert sum(counts) == threads.walkers["thread"]["count"].sum()
    assert sum(row[2].order for row in rows) == pytest.approx(1)
    assert all(0 <= row[3].order <= 1 for row in rows)
    assert not list(walkers(replace(threads, walkers={})))


def test_each_term_is_linked_once_and_escaped():
    text = linked("A walk & another walk <b> with hydra-2d and hydra, Local-Local, in sidewalks")
    assert text.count('href="#term-page-walk"') == 1 and "sidewalks" in text
    assert "&amp;" in text and "&lt;b&gt;" in text and "<b>" not in text
    assert '<a class="term" href="#term-policy-hydra-2d">hydra-2d</a>' in text
    assert '<a class="term" href="#term-policy-hydra">hydra</a>' in text
    assert '<a class="term" href="#term-classes">Local-Local</a>' in text


def test_commands_in_a_text_are_code():
    text = linked("Each walk: `ptanalyze walk <b>` shows a walk`s reads")
    assert "<code>ptanalyze walk &lt;b&gt;</code> shows a walk`s reads" in text
    assert text.count('class="term"') == 1 and text.startswith("Each <a")


def test_every_policy_term_and_figure_has_a_meaning():
    known = [*policy_terms(), *glossary().terms]
    assert len({term.key for term in known}) == len(known)
    assert all(term.meaning.strip().endswith(".") for term in known)
    assert {term.name for term in policy_terms()} == set(ptanalyze.list_policies()["policy"])
    texts = [term.meaning for term in known] + [paper.citation for paper in glossary().papers]
    texts += [" ".join(about["how"].split()) for about in described().values()]
    assert [text for text in texts if printable(text) != text] == [], "a reader would see escapes"
    for term in known:
        assert "term-" in linked(f"a {term.name.split(',')[0].split(' ...')[0]} b"), term.name
    assert {about["draw"] for about in described().values()} <= set(plots.__all__)


def test_cells_have_a_text_and_an_order():
    columns = {"a": Column("A", "", word), "b": Column("B", "", ratio), "c": Column("C", "", percent)}
    table = grid("t", "T", columns, [{"a": "x", "b": 1.234, "c": 0.5}, {"a": "y", "b": math.nan}])
    assert [cell.text for cell in table.rows[0]] == ["x", "1.23", "50.0 %"]
    assert [cell.order for cell in table.rows[0]] == [None, 1.234, 0.5]
    assert [cell.text for cell in table.rows[1]] == ["y", "–", "–"]
    assert table.rows[1][1].order == table.rows[1][2].order == LEAST
    assert memory(-393216).text == "-384 KiB" and memory(0.0).text == "0 KiB"
    assert percent(-0.00001).text == "0.0 %"


def test_several_processes_are_said_to_count_together(tmp_path):
    whole, heap = (
        studies([ptanalyze.load(one)], ptanalyze.Setup.of())[0]
        for one in (make_family(tmp_path / "c"), tmp_path / "c" / "pid-8")
    )
    assert any("3 processes together" in one.text for one in cautions(whole))
    assert not any("processes" in one.text for one in cautions(heap))


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_figures_are_in_order_whoever_draws(processes):
    here = os.getpid()

    def dies():
        return "last" if os.getpid() == here else os._exit(1)

    assert by_processes([lambda: "a", lambda: b"b" * 100_000], processes) == ["a", b"b" * 100_000]
    assert by_processes([lambda: "first", dies], processes) == ["first", "last"]
    assert by_processes([], processes) == []
    with pytest.raises(ZeroDivisionError):
        by_processes([lambda: 1, lambda: 1 // 0], processes)
