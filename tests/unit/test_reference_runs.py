"""The published runs as reference: where they are from, what is used, and damaged files."""

import msgspec
import numpy as np
import pytest

from ptanalyze.core.errors import UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.cost import law as stored_prior
from ptanalyze.cost.law import exposed_share, placement, shared
from ptanalyze.validate.prior import (
    COLUMNS,
    FAMILIES,
    FILES,
    LOCAL_RUN,
    fitted,
    mean_run,
    observed,
    ports,
    reference,
    runs,
)


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
    from ptanalyze.validate import prior as module

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
    from ptanalyze.validate import prior as module

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


def test_the_prior_that_is_shipped_is_what_the_runs_give():
    """To nine digits: logarithms and sums end differently from CPU to CPU."""
    for family in FAMILIES:
        for name, value in msgspec.structs.asdict(fitted(family)).items():
            stored = getattr(shared(family), name)
            if isinstance(value, Interval | float):
                close = pytest.approx([*value] if isinstance(value, Interval) else value, rel=1e-9)
                assert ([*stored] if isinstance(stored, Interval) else stored) == close, (family, name)
            else:
                assert stored == value, (family, name)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read"),
        ("[thin-1D-4K]\nwalk_time = 1.0\n", "native-thin: expected its prior"),
        ("[native-thin]\nfamily = 1\n", r"native-thin\.family = 1|family = 1"),
        ("=", "not a TOML file"),
    ],
)
def test_a_damaged_prior_is_named(tmp_path, monkeypatch, content, why):
    (tmp_path / "reference").mkdir()
    if content is not None:
        (tmp_path / "reference" / "prior.toml").write_text(content)
    monkeypatch.setattr(stored_prior, "bundled", lambda kind: tmp_path)
    shared.cache_clear()
    try:
        with pytest.raises(UsageError, match=rf"prior\.toml: .*({why})"):
            shared("native-thin")
    finally:
        shared.cache_clear()
