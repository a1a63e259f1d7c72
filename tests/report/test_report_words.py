"""The report's words: how sure it is, its glossary, its cells."""

import math
from dataclasses import replace

import msgspec
import pytest
from pandas import concat

import ptanalyze
from captures import make_family
from ptanalyze.core.errors import printable
from ptanalyze_report.cautions import cautions, rival
from ptanalyze_report.change import locality, panels
from ptanalyze_report.page import glossary, linked, policy_terms
from ptanalyze_report.picture import LEAST, Column, grid, memory, percent, ratio, word
from ptanalyze_report.study import studies
from ptanalyze_report.where import walkers

SMALL = {"accesses": 1500, "init_trace": False}


@pytest.fixture(scope="module")
def study(place):
    """Of a run as traced that is too short to earn back copies: they cost nothing here."""
    setup = ptanalyze.Setup.of(cold=True)
    copying = ("pte_copy_ns", "replica_fault_ns", "table_ns", "table_move_ns", "collapse_ns", "zero_ns")
    free = dict.fromkeys(copying, 0.0)
    setup = replace(setup, costs=msgspec.structs.replace(setup.costs, **free))
    (found,) = studies([ptanalyze.synth(place / "words", "16M", **SMALL)], setup)
    return found


def weights(study, part):
    return [one.weight for one in cautions(study) if part in one.text]


def test_few_walks_are_said_with_what_that_means(study):
    walks = study.results[0].walks
    assert 0 < walks < 10_000
    (said,) = [one for one in cautions(study) if "page walks were counted" in one.short]
    assert (
        f"Only {walks:,}" in said.text and f"{100 * 1.96 * math.sqrt(0.25 / walks):.1f} points" in said.text
    )
    many = replace(study, results=[replace(study.results[0], walks=10_000)])
    assert not weights(many, "page walks were counted")


def test_of_equally_fast_policies_the_figure_of_locality_shows_those_that_differ_from_the_baseline(study):
    local = study.ranked["policy"].isin(["mitosis", "hydra"])
    shares = study.ranked.assign(speedup=1.0001, leaf_LL_share=local.where(local, 0.25).astype(float))
    alike = replace(study, ranked=shares)
    others = {row["policy"] for row in alike.rows} - {"mitosis", "hydra"}
    assert set(panels(alike)[:2]) == {"mitosis", "hydra"} and set(panels(alike)[2:]) == others
    faster = shares.assign(speedup=[1.1 if name == "interleave" else 1.0 for name in shares["policy"]])
    assert panels(replace(study, ranked=faster))[0] == "interleave"
    slow = faster.assign(over=["memory" if name == "interleave" else "" for name in faster["policy"]])
    assert panels(replace(study, ranked=slow))[-1] == "interleave"
    assert f"Shown are {study.baseline} and the 3 fastest; of equally fast" in locality(alike).here


def test_the_memory_and_the_threads_that_walk_most_come_first_with_their_share(place):
    capture = ptanalyze.synth(place / "threads", "16M", threads=4, accesses=40000, init_trace=False)
    (study,) = studies([capture], ptanalyze.Setup.of(cold=True))
    tables = {table.key: table for table in walkers(study)}
    threads = tables["walkers-thread"]
    counts = [row[1].order for row in threads.rows]
    assert len(counts) > 1 and counts == sorted(counts, reverse=True)
    known = study.walkers["thread"]["count"].sum()
    assert (
        sum(counts) <= known and abs(sum(row[2].order for row in threads.rows) - sum(counts) / known) < 1e-9
    )
    assert all(0 <= row[3].order <= 1 for row in threads.rows)
    assert not list(walkers(replace(study, walkers={})))


def test_policies_whose_numbers_read_alike_are_as_fast_and_no_rivals(study):
    columns = {"speedup_low": 1.1, "speedup": 1.2, "speedup_high": 1.3}
    table = study.ranked[study.ranked["policy"] != study.baseline].assign(**columns)
    table["speedup"] += [0.0001 * k for k in range(len(table))]
    every = concat([table, study.ranked[study.ranked["policy"] == study.baseline]], ignore_index=True)
    said = [one.text for one in cautions(replace(study, ranked=every))]
    assert any(text.startswith("Equally fast: ") for text in said)
    assert not any("depends on the assumptions" in text for text in said)


def test_a_rival_is_what_some_assumption_could_make_faster():
    best = {"over": "", "walk_cycles": 10.0, "management_cycles": 5.0}
    best |= {"guest_walk_cycles": 4.0, "host_walk_cycles": 6.0, "speedup_low": 1.1, "speedup_high": 1.5}
    worse = {**best, "walk_cycles": 11.0, "management_cycles": 6.0, "speedup_high": 1.4}
    traded = {**worse, "management_cycles": 4.0}
    assert not rival(worse, best, False) and rival(traded, best, False)
    assert not rival({**traded, "over": "memory"}, best, False)
    assert not rival({**traded, "speedup_high": 1.05}, best, False)
    shifted = {**worse, "guest_walk_cycles": 3.0, "host_walk_cycles": 8.0}
    assert not rival(shifted, best, False) and rival(shifted, best, True)
    assert not rival(best, best, True)


def test_each_term_is_linked_once_and_text_is_escaped():
    text = linked("A walk & another walk <b> with hydra-2d and hydra, Local-Local, in sidewalks")
    assert text.count('href="#term-page-walk"') == 1 and "sidewalks" in text
    assert "&amp;" in text and "&lt;b&gt;" in text and "<b>" not in text
    assert '<a class="term" href="#term-policy-hydra-2d">hydra-2d</a>' in text
    assert '<a class="term" href="#term-policy-hydra">hydra</a>' in text
    assert '<a class="term" href="#term-classes">Local-Local</a>' in text


def test_every_policy_and_term_has_a_meaning():
    known = [*policy_terms(), *glossary().terms]
    assert len({term.key for term in known}) == len(known)
    assert all(term.meaning.strip().endswith(".") for term in known)
    assert {term.name for term in policy_terms()} == set(ptanalyze.list_policies()["policy"])
    texts = [term.meaning for term in known] + [paper.citation for paper in glossary().papers]
    assert [text for text in texts if printable(text) != text] == [], "a reader would see escapes"
    for term in known:
        assert "term-" in linked(f"a {term.name.split(',')[0].split(' ...')[0]} b"), term.name


def test_cells_have_a_text_and_what_to_sort_by():
    columns = {"a": Column("A", "", word), "b": Column("B", "", ratio), "c": Column("C", "", percent)}
    table = grid("t", "T", columns, [{"a": "x", "b": 1.234, "c": 0.5}, {"a": "y", "b": math.nan}])
    assert [cell.text for cell in table.rows[0]] == ["x", "1.23", "50.0 %"]
    assert [cell.order for cell in table.rows[0]] == [None, 1.234, 0.5]
    assert [cell.text for cell in table.rows[1]] == ["y", "–", "–"]
    assert table.rows[1][1].order == table.rows[1][2].order == LEAST
    assert memory(-393216).text == "-384 KiB" and memory(0.0).text == "0 KiB"
    assert percent(-0.00001).text == "0.0 %"


def test_of_several_processes_it_is_said_which_count(tmp_path):
    (whole,), (heap,) = (
        studies([ptanalyze.load(one)], ptanalyze.Setup.of())
        for one in (make_family(tmp_path / "c"), tmp_path / "c" / "pid-8")
    )
    assert any("3 processes together" in one.text for one in cautions(whole))
    assert not any("processes" in one.text for one in cautions(heap))
    assert any(
        "about the first" in one.text
        for one in cautions(replace(whole, results=[replace(whole.results[0], findings=())]))
    )


def test_commands_in_a_text_are_code_and_hold_no_links():
    said = linked("Each walk: `ptanalyze walk <b>` shows a walk`s reads")
    assert "<code>ptanalyze walk &lt;b&gt;</code> shows a walk`s reads" in said
    assert said.count('class="term"') == 1 and said.startswith("Each <a")
