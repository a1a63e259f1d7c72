"""Captures of several processes, and answers for all of them."""

import shutil

import numpy as np
import pytest
from msgspec import structs

from captures import make_family, member, write_rounds
from ptanalyze import classify as classified_capture
from ptanalyze.analysis.advise import advise
from ptanalyze.analysis.classify import classify
from ptanalyze.analysis.verdict import TABLES
from ptanalyze.analysis.whatif import replay
from ptanalyze.capture.check import check_capture, exit_code
from ptanalyze.cli import run
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.machine import Latency
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.record import seal
from ptanalyze.formats.snapshot import write_snapshot
from replay_cases import COSTS
from strategies import FRAMES_PER_NODE, REGION, build_snapshot, small_machine


@pytest.fixture
def family(tmp_path):
    return make_family(tmp_path / "c")


@pytest.mark.twin
def test_a_capture_knows_the_processes_inside_it_and_nothing_else_that_lies_there(family):
    (family / "pid-x").mkdir()
    (family / "pid-10").symlink_to(family / "pid-9")
    (family / "pid-11").write_text("")
    assert [*open_capture(family).processes] == [8, 9] and [*open_capture(family).members] == [7, 8, 9]


@pytest.mark.twin
def test_every_process_is_checked_and_a_missing_or_damaged_one_is_named(family):
    assert [one.verdict for one in check_capture(open_capture(family)) if "process" in one.name] == ["ok"] * 3
    with open(family / "pid-8" / "gpt.entries", "r+b") as file:
        file.write(b"x")
    shutil.rmtree(family / "pid-9")
    findings = {one.name: one for one in check_capture(open_capture(family))}
    assert findings["processes: there"].reason == "not in it: pid-9"
    assert findings["process 8"].verdict == "failed" and "gpt.entries" in findings["process 8"].reason
    assert exit_code(findings.values()) == 1


@pytest.mark.twin
@pytest.mark.parametrize("also", [[], ["pid-8"]], ids=["one", "all"])
def test_what_counts_all_processes_refuses_a_capture_that_lost_one(family, also):
    for name in ["pid-9", *also]:
        shutil.rmtree(family / name)
    with pytest.raises(CaptureError, match=r"pid-\d.*missing"):
        classify(family, by="process")
    assert run(["info", str(family)]) == 1
    assert run(["redact", str(family), "-o", str(family.parent / "r")]) == 0, "it copies the first alone"


# A capture of several processes: counts of all of them where none has a trace, and who else there is.

POLICIES = ["mitosis", "interleave", "ideal"]


def test_without_a_trace_processes_add_up(family, tmp_path):
    (first := tmp_path / "first").mkdir()  # as a dump of the first process by itself would have made it
    write_snapshot(first, open_capture(family).snapshot)
    seal(first, "process", {"pid": 7})
    each = [replay(one, POLICIES).results for one in (first, family / "pid-8", family / "pid-9")]
    for of_all, *parts in zip(replay(family, POLICIES).results, *each, strict=True):
        assert of_all.walks == sum(part.walks for part in parts) > parts[0].walks
        for name in ("reads", "classes", "events"):
            assert np.array_equal(getattr(of_all, name), sum(getattr(part, name) for part in parts))
        for name, pages in of_all.pages.items():
            assert pages == sum(part.pages[name] for part in parts)
        assert np.array_equal(of_all.once_events, sum(part.once_events for part in parts))
        assert of_all.once_cycles == pytest.approx(sum(part.once_cycles for part in parts))
        assert of_all.walk_cycles == pytest.approx(sum(part.walk_cycles for part in parts))
        assert any("3 processes together" in note for note in of_all.notes)
        assert not any("processes together" in note for part in parts for note in part.notes)


def test_a_policy_that_copies_pages_is_refused_for_shared_ones(family):
    for place, pid in ((family, 7), (family / "pid-8", 8)):
        heap = [(REGION, 2 * REGION, "[heap]")]
        write_snapshot(place, build_snapshot([(REGION, 512)], vmas=heap, facts={"pid": pid}))
        seal(place, "process", {"pid": pid})
    assert replay(family / "pid-8", ["thp"]).results[1].data_copied
    with pytest.raises(UsageError, match=r"thp: of several processes.* ask about one of them alone"):
        replay(family, ["thp"])


def test_classify_counts_mapped_pages_of_all_of_them(family):
    whole, apart = classified_capture(family), classified_capture(family, by="process")
    assert whole.groupby("class")["count"].sum().equals(apart.groupby("class")["count"].sum())
    assert set(whole["group"]) == {"all"}


def test_processes_of_another_machine_are_refused(family):
    write_snapshot(family / "pid-9", build_snapshot([(REGION, 5)], nodes=3, facts={"pid": 9}))
    seal(family / "pid-9", "process", {"pid": 9})
    with pytest.raises(UsageError, match="different machines"):
        replay(family, ["mitosis"])


def test_a_line_to_type_counts_the_threads_of_all_processes(tmp_path):
    """Two processes keep two CPUs busy each: nothing tells that a node with two holds the threads of both."""
    place, pages = tmp_path / "c", [(REGION + 4096 * k, k) for k in range(512)]
    member(place, 7, pages, processes=[8])
    member(place / "pid-8", 8, [(va, FRAMES_PER_NODE + frame) for va, frame in pages])
    rounds = [{va: 1.0 + frame * (7 + k) % 100 for va, frame in pages} for k in range(12)]
    for one in (place, place / "pid-8"):
        write_rounds(one / "heat.bits", rounds, (1, 2, 5, 10, 20, 50, 100), cpus=2)
        seal(one, "process", open_capture(one).manifest.provenance)
    far = Latency(idle=((100.0, 20000.0), (20000.0, 100.0)))
    how = {"machine": structs.replace(small_machine(2), cpus_per_node=2, latency=far), "costs": COSTS}
    for capture, action in ((place / "pid-8", "bind"), (place, None)):
        for found in (
            replay(capture, ["mitosis"], judged=True, **how).verdict,
            advise(capture, policies=["mitosis"], **how).verdict,
        ):
            assert found.kind == TABLES and (found.action and found.action.code) == action
