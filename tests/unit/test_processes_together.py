"""A capture of several processes: counts of all of them where none has a trace, and who else there is."""

import numpy as np
import pytest

from families import make_family
from ptanalyze import advise, classify, sweep
from ptanalyze.analysis.setup import Setup, asked_of_processes
from ptanalyze.analysis.whatif import replay
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import seal
from ptanalyze.formats.snapshot import write_snapshot
from strategies import REGION, build_snapshot

POLICIES = ["mitosis", "interleave", "ideal"]


@pytest.fixture
def family(tmp_path):
    return make_family(tmp_path / "c")


def first_alone(family, alone):
    """What a dump of the first process by itself would have made."""
    alone.mkdir()
    write_snapshot(alone, open_capture(family).snapshot)
    seal(alone, "process", {"pid": 7})
    return alone


def test_without_a_trace_processes_add_up(family, tmp_path):
    alone = [first_alone(family, tmp_path / "first"), family / "pid-8", family / "pid-9"]
    each = [replay(one, POLICIES).results for one in alone]
    for of_all, *parts in zip(replay(family, POLICIES).results, *each, strict=True):
        assert of_all.walks == sum(part.walks for part in parts) > parts[0].walks
        for name in ("reads", "classes", "calls"):
            assert np.array_equal(getattr(of_all, name), sum(getattr(part, name) for part in parts))
        for name in ("table_pages", "table_pages_peak", "single_copy"):
            assert getattr(of_all, name) == sum(getattr(part, name) for part in parts)
        assert np.array_equal(of_all.once.events, sum(part.once.events for part in parts))
        assert of_all.once.cycles == pytest.approx(sum(part.once.cycles for part in parts))
        assert of_all.price.walk_cycles == pytest.approx(sum(part.price.walk_cycles for part in parts))
        assert any("3 processes together" in note for note in of_all.notes)
        assert not any("processes together" in note for part in parts for note in part.notes)


def test_advise_and_sweep_count_all_of_them_too(family):
    whole = replay(family, ["mitosis"]).results[0]
    assert advise(family).report.base.walks == whole.walks
    assert set(sweep(family, ["mitosis"], {"nodes": [4]}).walks) == {whole.walks}


def test_a_policy_that_copies_pages_is_refused_for_shared_ones(family):
    for place, pid in ((family, 7), (family / "pid-8", 8)):
        heap = [(REGION, 2 * REGION, "[heap]")]
        write_snapshot(place, build_snapshot([(REGION, 512)], vmas=heap), {"pid": pid})
        seal(place, "process", {"pid": pid})
    assert replay(family / "pid-8", ["thp"]).results[1].once.data_copied
    with pytest.raises(UsageError, match=r"thp: of several processes.* ask about one of them alone"):
        replay(family, ["thp"])


def test_classify_counts_mapped_pages_of_all_of_them(family):
    whole, apart = classify(family), classify(family, by="process")
    assert whole.groupby("class")["count"].sum().equals(apart.groupby("class")["count"].sum())
    assert set(whole["group"]) == {"all"}


def test_what_an_answer_is_of_is_said(family):
    known, setup = open_capture(family), Setup.of()
    assert asked_of_processes(known, setup).startswith("3 processes together")
    assert asked_of_processes(open_capture(family / "pid-8"), setup) == ""
    assert asked_of_processes(known, Setup.of(weigh="walks")).startswith("PID 7 alone")
    assert "pid-8" in asked_of_processes(known, Setup.of(weigh="walks"))


def test_processes_of_another_machine_are_refused(family):
    write_snapshot(family / "pid-9", build_snapshot([(REGION, 5)], nodes=3), {"pid": 9})
    seal(family / "pid-9", "process", {"pid": 9})
    with pytest.raises(UsageError, match="different machines"):
        replay(family, ["mitosis"])
