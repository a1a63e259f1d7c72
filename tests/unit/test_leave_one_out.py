"""The published runs as reference, what is fitted on them, and how well workloads left out are predicted."""

import numpy as np
import pandas as pd
import pytest

from ptanalyze.core.errors import UsageError
from ptanalyze.cost.closed_forms import Run, exposed_share
from ptanalyze.cost.held_out import DATA, LINUX, ONE_RUN, POLICIES, REPLICAS, TIMES, TWO_RUNS
from ptanalyze.cost.leave_one_out import (
    CONFIGURATION,
    CONSTANT,
    MENDED,
    NO_CHANGE,
    leave_one_out,
    summary,
)
from ptanalyze.cost.observed import observed, observed_data, observed_wide
from ptanalyze.cost.placement import placement
from ptanalyze.cost.reference import COLUMNS, FILES, LOCAL_RUN, mean_run, ports, reference, runs
from ptanalyze.cost.shared import overlap, shared
from ptanalyze.cost.spread import around, factor, t_95


@pytest.fixture(scope="module")
def table():
    return leave_one_out()


@pytest.fixture(scope="module")
def errors(table):
    return summary(table).set_index(["family", "method", "second"])


def test_reference_rows_say_where_they_are_from_and_why_they_are_not_used():
    rows = reference()
    assert tuple(rows.columns) == COLUMNS and len(FILES) == rows.paper.nunique() == 2
    assert set(rows.use) == {"fit", "check", "data", "no"}
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
            if workload in ("PageRank", "LibLinear"):
                continue  # many threads: they lose more than they walk
            shares = [
                exposed_share(configs[local], run)
                for name, run in configs.items()
                if not placement(name).all_local
            ]
            assert min(shares) > 0.4 and max(shares) < 1.01, (family, workload)
            assert max(shares) - min(shares) < 0.12, (family, workload)
    assert "graph500" in runs("thin-2D-4K") and "graph500" not in runs("thin-2D-4K", ("fit",))
    lost = {o.workload: o for o in observed("native-thin")}
    assert lost["PageRank"].many and lost["LibLinear"].many and not lost["GUPS"].many


def test_the_ports_ran_on_shared_walkers_and_lose_more_than_they_walk():
    assert {w: set(of) for w, of in ports().items()} == {
        "canneal": {"linux", "mitosis", "wasp", "hydra"},
        "btree": {"linux", "mitosis", "wasp", "hydra"},
    }
    for workload, least, most in (("btree", 1.45, 1.5), ("canneal", 1.6, 1.65)):
        run = {policy: mean_run(repeats) for policy, repeats in ports()[workload].items()}
        assert least < exposed_share(run["mitosis"], run["linux"]) < most
        assert all(len(repeats) == 5 for repeats in ports()[workload].values())


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


def test_a_damaged_file_of_the_ports_is_named(tmp_path, monkeypatch):
    from ptanalyze.cost import reference as module

    monkeypatch.setattr(module, "bundled", lambda kind: tmp_path)
    (tmp_path / "reference").mkdir()
    for content in (None, "", "a,b\n1,2\n"):
        ports.cache_clear()
        if content is not None:
            (tmp_path / "reference" / "ports-xeon-runs.csv").write_text(content)
        try:
            with pytest.raises(UsageError, match=r"ports-xeon-runs\.csv: cannot be read"):
                ports()
        finally:
            ports.cache_clear()


@pytest.mark.parametrize("family", list(LOCAL_RUN))
@pytest.mark.parametrize("workload", ["gups", "BTree", "CANNEAL"])
def test_what_is_shared_does_not_know_the_workload_that_is_left_out(family, workload):
    found = shared(family, workload)
    assert workload.casefold() not in [w.casefold() for w in found.workloads]
    assert len(found.workloads) == 2
    assert found.noise > 0 and found.many_share.low == 0 and found.many_share.high == 1
    assert found != shared(family)


def test_no_reference_value_of_a_workload_moves_its_own_prediction(monkeypatch):
    """Its remote runs are what is predicted: make them ten times as slow, and predictions stay."""
    from ptanalyze.cost import held_out, observed
    from ptanalyze.cost import leave_one_out as loo

    def spoiled(family, use=("fit", "check")):
        found = runs(family, use)
        for workload, configs in found.items():
            if workload.casefold() == "gups":
                for name, run in list(configs.items()):
                    if name != LOCAL_RUN[family]:
                        seconds = run.seconds and run.seconds * 10
                        configs[name] = type(run)(run.cycles * 10, run.gpt * 10, run.ept * 10, seconds)
        return found

    def predicted():
        table = loo.leave_one_out()
        mine = table[(table.workload.str.casefold() == "gups") & ~table.method.isin([TWO_RUNS, TIMES])]
        return mine.predicted.tolist()

    def forget():
        for cached in (shared, observed.observed, observed.observed_wide, observed.observed_data):
            cached.cache_clear()

    before = predicted()
    forget()
    for module in (loo, held_out, observed):
        monkeypatch.setattr(module, "runs", spoiled)
    try:
        assert predicted() == before
        assert shared("thin-2D-4K").dram_share != shared("thin-2D-4K", "gups").dram_share
    finally:
        forget()


def test_a_workload_with_less_counted_is_left_out_of_what_needs_it(monkeypatch):
    """Made up: run times of one placement in a VM, and a native workload without runs with remote data."""
    from ptanalyze.cost import held_out, observed
    from ptanalyze.cost import leave_one_out as loo

    def more(family, use=("fit", "check")):
        found = runs(family, use)
        if family == "thin-2D-4K":
            found["other"] = {"LL": Run(seconds=100.0), "RRI": Run(seconds=200.0)}
        if family == "native-thin":
            found["other"] = {"LP-LD": Run(1e12, 4e11, 0.0), "RPI-LD": Run(2e12, 1.3e12, 0.0)}
        return found

    def forget():
        for cached in (shared, observed.observed, observed.observed_wide, observed.observed_data):
            cached.cache_clear()

    before = shared("thin-2D-4K")
    forget()
    for module in (loo, held_out, observed):
        monkeypatch.setattr(module, "runs", more)
    try:
        table = loo.leave_one_out()
        assert shared("thin-2D-4K") == before
        mine = table[table.workload == "other"]
        assert set(mine[mine.family == "native-thin"].method) > {ONE_RUN}
        assert ONE_RUN not in set(mine[mine.family == "thin-2D-4K"].method)
    finally:
        forget()


@pytest.mark.parametrize(
    ("family", "method", "mean", "worst", "inside"),
    [
        ("thin-1D-4K", ONE_RUN, 0.06, 0.11, 0.9),
        ("native-thin", ONE_RUN, 0.07, 0.22, 0.9),
        ("thin-2D-4K", TWO_RUNS, 0.012, 0.051, 0.9),
        ("thin-1D-4K", TWO_RUNS, 0.01, 0.02, 0.9),
        ("native-thin", TWO_RUNS, 0.05, 0.15, 0.8),
        ("thin-2D-4K", TIMES, 0.02, 0.08, 0.9),
        ("native-thin", TIMES, 0.06, 0.14, 0.8),
        ("thin-2D-4K", ONE_RUN + MENDED, 0.01, 0.02, 0.9),
        ("native-thin", ONE_RUN + MENDED, 0.025, 0.07, 0.8),
        ("ports-xeon", LINUX, 0.01, 0.015, 0.9),
        ("ports-xeon", POLICIES, 0.01, 0.02, 0.9),
        ("wide-NV-4K", REPLICAS, 0.08, 0.15, 0.9),
        ("native-wide", REPLICAS, 0.06, 0.15, 0.9),
        ("native-thin", DATA, 0.16, 0.9, 0.9),
    ],
)
def test_unseen_workloads_are_predicted_within_the_stated_errors(errors, family, method, mean, worst, inside):
    line = errors.loc[(family, method, "any")]
    assert line["mean"] <= mean and line["max"] <= worst and line["inside"] >= inside


def test_graph500_is_in_the_statistics_and_is_their_worst(table):
    one = table[(table.family == "thin-2D-4K") & (table.method == ONE_RUN) & ~table.repaired]
    size = one.error.abs().groupby(one.workload).agg(["mean", "max"])
    assert set(size.index) == {"btree", "canneal", "graph500", "gups"}
    assert size["mean"].idxmax() == "graph500" and size.loc["graph500", "max"] > 0.5
    others = size.drop(index="graph500")
    assert others["mean"].max() < 0.09 and others["max"].max() < 0.15
    assert one.inside.all()


def test_a_published_run_of_many_threads_waits_between_nothing_and_all():
    shares = [o.share for o in (*observed_wide(), *observed("native-thin")) if o.many]
    assert len(shares) == 18 and 0 < min(shares) < 0.2 and 0.8 < max(shares) < 1
    data = [o.share for o in observed_data("native-thin")]
    assert len(data) == 5 and min(data) > 0 and max(data) < 1


def test_contention_grows_with_overlap_and_not_at_all_with_one_walker():
    two, one = shared("thin-2D-4K"), shared("native-thin")
    assert two.contention_at(None) == two.any_contention
    more = two.contention_at(1.0).middle - two.contention_at(0.5).middle
    assert more == pytest.approx(two.slope * (1 / 2 - 1 / 3)) and two.slope > 0
    assert overlap(1.0) == 0.5
    assert one.contention_at(0.1) == one.contention_at(0.9) == one.contention
    assert two.contention_at(0.0).low >= 1


def test_an_interval_from_few_values_is_students():
    """Two of a kind that differ by a factor: t with one degree of freedom, by hand."""
    apart = np.log(2) / np.sqrt(2)  # standard deviation of two values
    assert factor([[1.0, 2.0]]) == pytest.approx(np.exp(6.314 * apart * np.sqrt(1.5)))
    assert factor([[1.0, 2.0], [3.0, 6.0]]) == pytest.approx(np.exp(2.920 * apart * np.sqrt(1.5)))
    assert factor([[5.0]]) == 2 and t_95(1000) == 1.70
    found = around([1.0, 4.0], 3.0)
    assert (found.low, found.middle, found.high) == pytest.approx((2 / 3, 2, 6))


@pytest.mark.parametrize("family", list(LOCAL_RUN))
def test_the_law_beats_both_baselines_on_the_same_points(table, errors, family):
    law = errors.loc[(family, ONE_RUN, "any")]
    for method in (CONFIGURATION, CONSTANT, NO_CHANGE):
        base = errors.loc[(family, method, "any")]
        assert base["points"] == law["points"]
        assert law["mean"] < base["mean"]
        assert law["max"] < base["max"] or family == "thin-2D-4K"  # Graph500, see above
    points = {
        method: set(map(tuple, part[["workload", "config"]].to_numpy()))
        for method, part in table[table.family == family].groupby("method")
    }
    assert points[ONE_RUN] == points[CONFIGURATION] == points[CONSTANT]


def test_a_summary_is_the_plain_statistics_of_its_points():
    rows = [
        {"family": "f", "method": ONE_RUN, "second": "", "repaired": False, "error": e, "inside": e > 0}
        | {"workload": f"w{k}", "config": "RR", "width": 0.5, "noise": None}
        for k, e in enumerate((-0.1, 0.2, 0.3))
    ]
    rows.append(rows[0] | {"repaired": True, "error": 9.0})
    only, mended = summary(pd.DataFrame(rows)).to_dict("records")
    assert only["points"] == 3 and only["second"] == "any"
    assert (only["mean"], only["median"], only["max"]) == (pytest.approx(0.2), 0.2, 0.3)
    assert only["inside"] == pytest.approx(2 / 3) and only["width"] == 0.5
    assert only["worst"] == "w2 RR" and only["best"] == "w0 10.0%"
    assert mended["method"] == ONE_RUN + MENDED and mended["points"] == 1
