"""The published runs as reference, what is fitted on them, and how well workloads left out are predicted."""

import numpy as np
import pandas as pd
import pytest

from ptanalyze.core.errors import UsageError
from ptanalyze.cost.closed_forms import exposed_share, placement
from ptanalyze.cost.fit import shared
from ptanalyze.cost.leave_one_out import CONFIGURATION, CONSTANT, ONE_RUN, TWO_RUNS, leave_one_out, summary
from ptanalyze.cost.reference import COLUMNS, FILES, LOCAL_RUN, reference, runs


@pytest.fixture(scope="module")
def table():
    return leave_one_out()


@pytest.fixture(scope="module")
def errors(table):
    return summary(table).set_index(["family", "method", "second"])


def test_reference_rows_say_where_they_are_from_and_why_they_are_not_used():
    rows = reference()
    assert tuple(rows.columns) == COLUMNS and len(FILES) == rows.paper.nunique() == 2
    assert set(rows.use) == {"fit", "check", "no"}
    assert (rows[rows.use != "fit"].query("family != 'system-calls'").note != "").all()
    used = rows[rows.use != "no"]
    assert not used.duplicated(["paper", "family", "workload", "config", "quantity"]).any()
    assert np.isfinite(rows.value).all() and (rows.value >= 0).all()


def test_only_the_workloads_that_were_given_are_in_the_reference():
    assert {w.casefold() for w in reference().query("family != 'system-calls'").workload} == {
        "gups",
        "btree",
        "canneal",
        "graph500",
        "pagerank",
        "liblinear",
    }


def test_the_runs_of_the_law_have_a_local_one_and_obey_it():
    for family, local in LOCAL_RUN.items():
        for workload, configs in runs(family, ("fit",)).items():
            shares = [
                exposed_share(configs[local], run)
                for name, run in configs.items()
                if not placement(name).all_local
            ]
            assert min(shares) > 0.4 and max(shares) < 1.01, (family, workload)
            assert max(shares) - min(shares) < 0.12, (family, workload)
    assert "graph500" not in runs("thin-2D-4K")


def test_a_damaged_reference_file_is_named(tmp_path, monkeypatch):
    from ptanalyze.cost import reference as module

    monkeypatch.setattr(module, "bundled", lambda kind: tmp_path)
    reference.cache_clear()
    try:
        with pytest.raises(UsageError, match=r"vmitosis-runs\.csv"):
            reference()
        (tmp_path / "reference").mkdir()
        (tmp_path / "reference" / FILES[0]).write_text("a,b\n1,2\n")
        with pytest.raises(UsageError, match="columns = a, b"):
            reference()
    finally:
        reference.cache_clear()


@pytest.mark.parametrize("family", list(LOCAL_RUN))
@pytest.mark.parametrize("workload", ["gups", "BTree", "CANNEAL"])
def test_what_is_shared_does_not_know_the_workload_that_is_left_out(family, workload):
    found = shared(family, workload)
    assert workload.casefold() not in [w.casefold() for w in found.workloads]
    assert len(found.workloads) == 2
    assert found != shared(family)


def test_no_reference_value_of_a_workload_moves_its_own_prediction(monkeypatch):
    """Its remote runs are what is predicted: make them ten times as slow, and predictions stay."""
    from ptanalyze.cost import fit as law_fit
    from ptanalyze.cost import leave_one_out as loo

    def spoiled(family, use=("fit", "check")):
        found = runs(family, use)
        for workload, configs in found.items():
            if workload.casefold() == "gups":
                for name, run in list(configs.items()):
                    if name != LOCAL_RUN[family]:
                        configs[name] = type(run)(run.cycles * 10, run.gpt * 10, run.ept * 10, run.seconds)
        return found

    def predicted():
        table = loo.leave_one_out()
        mine = table[(table.workload.str.casefold() == "gups") & ~table.method.isin([TWO_RUNS])]
        return mine.predicted.tolist()

    before = predicted()
    shared.cache_clear()
    monkeypatch.setattr(loo, "runs", spoiled)
    monkeypatch.setattr(law_fit, "runs", spoiled)
    try:
        assert predicted() == before
    finally:
        shared.cache_clear()


def test_unseen_workloads_are_predicted_within_the_stated_errors(errors):
    one = errors.loc[("thin-2D-4K", ONE_RUN, "any")]
    assert one["mean"] <= 0.08 and one["max"] <= 0.25
    for second, worst in (("any", 0.08), ("RR", 0.06), ("RRI", 0.06)):
        two = errors.loc[("thin-2D-4K", TWO_RUNS, second)]
        assert two["mean"] <= 0.025 and two["max"] <= worst


def test_contention_grows_with_overlap_and_not_at_all_with_one_walker():
    two, one = shared("thin-2D-4K"), shared("native-thin")
    assert two.contention_at(None) == two.contention_at(two.walk_rate) == two.contention.middle
    grown = two.contention_at(two.walk_rate + 1) - two.contention.middle
    assert grown == pytest.approx(two.overlap) and two.overlap > 0
    assert one.contention_at(0.1) == one.contention_at(0.9) == one.contention.middle
    assert two.contention_at(-100.0) == 1.0


@pytest.mark.parametrize("family", list(LOCAL_RUN))
def test_the_law_beats_both_baselines_on_the_same_points(table, errors, family):
    law = errors.loc[(family, ONE_RUN, "any")]
    for method in (CONFIGURATION, CONSTANT):
        base = errors.loc[(family, method, "any")]
        assert base["points"] == law["points"]
        assert law["mean"] < base["mean"] and law["max"] < base["max"]
    points = {
        method: set(map(tuple, part[["workload", "config"]].to_numpy()))
        for method, part in table[table.family == family].groupby("method")
    }
    assert points[ONE_RUN] == points[CONFIGURATION] == points[CONSTANT]


def test_a_summary_is_the_plain_statistics_of_its_points():
    rows = [
        {"family": "f", "method": ONE_RUN, "second": "", "repaired": False, "error": e, "inside": e > 0}
        for e in (-0.1, 0.2, 0.3)
    ]
    rows.append(rows[0] | {"repaired": True, "error": 9.0})
    (only,) = summary(pd.DataFrame(rows)).to_dict("records")
    assert only["points"] == 3 and only["second"] == "any"
    assert (only["mean"], only["median"], only["max"]) == (pytest.approx(0.2), 0.2, 0.3)
    assert only["inside"] == pytest.approx(2 / 3)
