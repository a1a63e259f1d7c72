"""Rival models of run time: closed forms, and the table that puts them beside the law."""

from pathlib import Path

import pytest
from analyzer.bench.rivals import (
    LAW,
    ONE,
    TWO,
    alam,
    basu,
    gandhi,
    line,
    lines,
    mosmodel,
    pooled,
    rivals,
)
from hypothesis import given
from hypothesis import strategies as st

import ptanalyze

ADR = Path(ptanalyze.__file__).parents[1] / "docs/adr/0010-the-run-time-law.md"

LOCAL, HUGE = (40.0, 100.0), (10.0, 60.0)
numbers = st.floats(0.1, 10.0)


@pytest.fixture(scope="module")
def table():
    return rivals()


def test_each_model_by_hand():
    assert basu(LOCAL)(70) == 130  # 60 outside walks
    assert alam(HUGE)(70) == 120  # 50 outside walks
    assert gandhi(LOCAL, HUGE)(80) == 150  # from 50 without walks, 50 more for each 40
    assert line(LOCAL, HUGE)(70) == 140  # 40 more for each 30
    for model in (basu(LOCAL), gandhi(LOCAL, HUGE), line(LOCAL, HUGE)):
        assert model(LOCAL[0]) == pytest.approx(LOCAL[1])


@given(numbers, numbers, numbers)
def test_polynomials_give_back_polynomials(a, b, c):
    points = [(x, a + b * x + c * x * x) for x in (1.0, 2.0, 3.0, 5.0, 8.0)]
    for degree in (2, 3):
        assert mosmodel(points, degree)(4.0) == pytest.approx(a + 4 * b + 16 * c, rel=1e-6)
    added = [(x, b * x + c * x * x) for x in (0.1, 0.5, 1.0, 2.0)]
    assert pooled(LOCAL, added, 2)(140.0) == pytest.approx(100 * (1 + b + c), rel=1e-6)


def test_all_models_are_asked_for_the_same_runs(table):
    same = table[(table.family == "thin-2D-4K") & (table.known == ONE)]
    asked = {
        model: set(zip(part.workload, part.config, strict=True)) for model, part in same.groupby("model")
    }
    assert len(asked) == 5 and len({frozenset(runs) for runs in asked.values()}) == 1
    assert {workload for workload, _ in asked[LAW]} == {"btree", "canneal", "graph500", "gups"}


def test_the_law_is_no_worse_than_the_others_from_the_same_runs(table):
    errors = table.error.abs().groupby([table.family, table.known, table.model]).mean()
    for family in ("thin-2D-4K", "thin-1D-4K", "native-thin", "ports-xeon"):
        others = errors[family, ONE].drop(LAW)
        assert errors[family, ONE, LAW] < others.min(), family


def test_where_nobody_shares_a_walker_two_runs_leave_a_line(table):
    errors = table.error.abs().groupby([table.family, table.known, table.model]).mean()
    for family in ("thin-2D-4K", "thin-1D-4K"):
        assert errors[family, TWO, LAW] == pytest.approx(errors[family, TWO, "line through both"])


def test_the_table_of_the_adr_is_that_of_the_script(table):
    assert "\n".join(lines(table)) in ADR.read_text("utf-8")
