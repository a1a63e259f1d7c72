"""Every question takes a sample, scales what it counts, and says how sure that is."""

import json

import pytest

from ptanalyze.analysis.answers import whatif_frame
from ptanalyze.analysis.classify import classify
from ptanalyze.analysis.degrees import degrees
from ptanalyze.analysis.sampled import remote_share
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.sweep import sweep
from ptanalyze.analysis.timeline import timeline
from ptanalyze.analysis.whatif import replay
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.parameters import Parameters
from ptanalyze.core.errors import UsageError
from ptanalyze.formats.capture import open_capture
from ptanalyze.show.whatif import view

MACHINE = "vmitosis-cascade-lake"
SAMPLE = {"machine": MACHINE, "sample": "regions:1/4"}


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    place = tmp_path_factory.mktemp("synth") / "uniform"
    synthesize(Parameters(size=128 << 20, accesses=60_000, threads=4, init_trace=False), place)
    return open_capture(place)


@pytest.fixture(scope="module")
def exact(capture):
    return replay(capture, ["mitosis"], machine=MACHINE).results


@pytest.mark.parametrize("sample", ["sets:1/4", "regions:1/4"])
def test_a_sampled_replay_says_its_rate_and_its_intervals(capture, exact, sample):
    for whole, result in zip(
        exact, replay(capture, ["mitosis"], machine=MACHINE, sample=sample).results, strict=True
    ):
        known, row = result.sampled, result.row()
        assert (known.of, row["sample"]) == (sample, sample) and known.groups in (8, 16)
        assert result.walks == whole.walks == known.walks.low == known.walks.high
        assert row["remote_share"] == pytest.approx(remote_share(whole.reads), abs=0.01)
        assert result.classes.sum() == pytest.approx(result.walks, abs=16)
        assert row["remote_share_low"] <= row["remote_share"] <= row["remote_share_high"]
        assert [result.count(kind) for kind in ("faults", "pte_fanout", "ipis")] == [
            whole.count(kind) for kind in ("faults", "pte_fanout", "ipis")
        ]
        assert result.table_pages_peak == whole.table_pages_peak
        assert any("stands for all" in note for note in result.notes)
        assert json.loads(json.dumps(result.to_json()))["sample"] == sample
        assert result.hits.tolist() == whole.hits.tolist()


def test_an_interval_is_never_narrower_than_that_of_the_assumptions(capture, exact):
    sampled = replay(capture, ["mitosis"], **SAMPLE).results
    for whole, result in zip(exact, sampled, strict=True):
        for a, b in ((whole.price.walk_share, result.price.walk_share),):
            assert b.high - b.low >= (a.high - a.low) * 0.9
    base = sampled[0].price.speedup
    assert (base.low, base.high) == (1, 1), "the baseline is as fast as itself in every sample"


def test_the_first_screen_and_the_table_of_results_say_so(capture):
    results = replay(capture, ["mitosis"], **SAMPLE).results
    text = "\n".join(line for part in view(results) for line in getattr(part, "lines", ()))
    assert "about" not in text and "A sample, regions:1/4" in text
    table = whatif_frame(results)
    assert {"sample", "walks_low", "remote_share_high"} <= set(table)
    assert any("stands for all" in note for note in table.attrs["notes"])


def test_classes_of_walks_have_intervals_that_hold_the_exact_shares(capture):
    whole = classify(capture, weight="walks", machine=MACHINE)
    table = classify(capture, weight="walks", machine=MACHINE, sample="sets:1/4")
    both = whole.merge(table, on=["group", "socket", "class"], suffixes=("", "_sampled"))
    held = (both.share_low <= both.share) & (both.share <= both.share_high)
    assert held.mean() >= 0.75 and (both.share - both.share_sampled).abs().max() < 0.02


def test_sweeps_timelines_and_degrees_take_the_same_sample(capture, exact):
    assert set(sweep(capture, ["hydra"], {"prefetch": [0]}, **SAMPLE)["sample"]) == {"regions:1/4"}
    over_time = timeline(capture, ["mitosis"], windows=2, **SAMPLE)
    exactly = timeline(capture, ["mitosis"], windows=2, machine=MACHINE)
    for share in ("data_remote_share", "guest_remote_share"):
        assert over_time[share].to_numpy() == pytest.approx(exactly[share].to_numpy(), abs=0.05)
    assert over_time.groupby("policy")["walks"].sum().iloc[0] == pytest.approx(exact[0].hits[2], rel=0.1)
    table = degrees(capture, **SAMPLE)
    assert (table.cycles_low <= table.cycles).all() and (table.cycles <= table.cycles_high).all()
    walks = table.groupby("tier").first()["walks"]
    assert walks.iloc[0] > 0 and any("stands for the whole" in note for note in table.attrs["notes"])


def test_pages_that_move_by_their_touches_are_not_sampled(capture):
    with pytest.raises(UsageError, match="NUMA balancing"):
        replay(capture, ["mitosis"], autonuma=True, **SAMPLE)


def test_what_has_no_trace_is_not_sampled(capture):
    setup = Setup.of(**SAMPLE)
    with pytest.raises(UsageError, match="has no trace to sample"):
        setup.world(capture.snapshot, None)
