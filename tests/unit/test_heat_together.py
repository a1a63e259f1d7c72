"""Processes whose accessed bits were sampled at the same time: their walks, in as long a time, add up."""

import numpy as np
import pytest

from families import member
from heat_bits import write_bits
from ptanalyze import classify
from ptanalyze.analysis.setup import Setup, asked_of_processes
from ptanalyze.analysis.whatif import replay
from ptanalyze.formats.capture import open_capture
from ptanalyze.formats.manifest import seal
from strategies import FRAMES_PER_NODE, REGION

FAST, SLOW = (REGION, 1), (REGION + 4096, 1)  # found used by half of the samples, by a tenth
NODES = 4  # of the default machine, from each of which every page is walked for
PAGES = [(REGION, 5), (REGION + 4096, 6)]


def heat_of(directory, samples):
    """So many samples of 100 ms."""
    found = [{FAST} if k % 2 == 0 else set() for k in range(samples)]
    for k in range(0, samples, 10):
        found[k] = found[k] | {SLOW}
    write_bits(directory / "heat.bits", [(100, pages) for pages in found])
    told = open_capture(directory).manifest.provenance
    seal(directory, "process", told)


@pytest.fixture
def family(tmp_path):
    """7 and 8 use their memory alike, 8 sampled for a quarter of the time of 7; 9 has no samples."""
    place = tmp_path / "c"
    member(place, 7, PAGES, processes=[8, 9])
    member(place / "pid-8", 8, [(va, FRAMES_PER_NODE + frame) for va, frame in PAGES])
    member(place / "pid-9", 9, PAGES)
    heat_of(place, 400)
    heat_of(place / "pid-8", 100)
    return place


def test_what_was_sampled_for_less_counts_as_much(family):
    own = open_capture(family).snapshot.heat.walks
    assert open_capture(family / "pid-8").snapshot.heat.walks.tolist() == pytest.approx(own / 4, abs=1)
    by = classify(family, weight="heat", by="process")
    walks = by[by.socket == 0].groupby("group")["count"].sum()
    assert walks["7 p7"] == own.sum() == pytest.approx(walks["8 p8"], abs=2) and len(walks) == 2


def test_all_is_the_sum_with_an_interval_of_its_own(family):
    by, whole = (classify(family, weight="heat", by=how) for how in ("process", "all"))
    assert by.groupby(["socket", "class"])["count"].sum().tolist() == (
        whole.groupby(["socket", "class"])["count"].sum().tolist()
    )
    bounds = whole[["share_low", "share", "share_high"]].to_numpy(float)
    assert (np.diff(bounds, axis=1) >= 0).all() and np.isfinite(bounds).all()
    assert set(whole["group"]) == {"all"}


def test_what_if_adds_up_their_walks_and_says_whose_they_are(family):
    own = open_capture(family).snapshot.heat.walks.sum()
    linux, mitosis = replay(family, ["mitosis"]).results
    assert linux.walks == mitosis.walks == pytest.approx(2 * NODES * own, abs=8)
    (precise,) = [note for note in linux.notes if "of walks read a remote leaf entry" in note]
    assert precise.startswith("linux: ")
    assert any("by the walks of the process that maps it" in note for note in linux.notes)
    assert any("from 500 samples of accessed bits, 50.1 s in all" in note for note in linux.notes)
    alone = replay(family / "pid-8", ["mitosis"]).results[0]
    assert alone.walks < linux.walks / 4


def test_who_has_no_samples_is_left_out_and_said(family):
    said = asked_of_processes(open_capture(family), Setup.of())
    assert said.startswith("2 processes together") and "1 without samples are left out" in said
    each = asked_of_processes(open_capture(family), Setup.of(weigh="leaf"))
    assert each.startswith("3 processes together") and "what a process maps counts" in each


def test_samples_of_the_first_alone_are_of_the_first_alone(tmp_path):
    place = tmp_path / "c"
    member(place, 7, PAGES, processes=[8])
    member(place / "pid-8", 8, PAGES)
    heat_of(place, 100)
    assert asked_of_processes(open_capture(place), Setup.of()).startswith("PID 7 alone")
    assert (
        replay(place, ["mitosis"]).results[0].walks == NODES * open_capture(place).snapshot.heat.walks.sum()
    )


def test_a_process_with_too_few_samples_leaves_the_share_open(family):
    heat_of(family / "pid-8", 4)
    lines = [
        note for note in replay(family, ["mitosis"]).results[0].notes if "of walks read a remote" in note
    ]
    assert lines == ["linux: 0.0 to 100.0 % of walks read a remote leaf entry (95 %, by the samples)"]
