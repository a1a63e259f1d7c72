"""What groups of a sample do not show: entries that share a line, and what windows have in common."""

from dataclasses import replace

import numpy as np
import pytest

from ptanalyze.analysis.asked_policies import policies_of
from ptanalyze.analysis.sampled import lines_shared, of_share, sample_notes
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.capture.synth.capture import synthesize
from ptanalyze.capture.synth.parameters import Parameters
from ptanalyze.core.interval import Interval
from ptanalyze.core.sample import sample_of, windows_sample
from ptanalyze.cost.result import Sampled
from ptanalyze.formats.capture import open_capture
from ptanalyze.kernels.replay import Counters

HOW = Setup.of(machine="vmitosis-cascade-lake", cache_share="0.25")


def asked_of(capture, trace, setup=HOW):
    """Result of mitosis, after that of the baseline."""
    return replay_snapshot(capture.snapshot, trace, policies_of(["mitosis"]), setup, refused={})[1]


@pytest.mark.parametrize("pattern", ["sequential", "zipf:1.1"])
def test_sets_of_a_whole_trace_are_right_and_those_recorded_say_what_neighbours_of_a_line_may_do(
    tmp_path, pattern
):
    asked = Parameters(
        size=256 << 20,
        accesses=600_000,
        threads=4,
        init="single",
        init_trace=False,
        scale=64,
        pattern=pattern,
    )
    synthesize(asked, tmp_path / "c")
    capture = open_capture(tmp_path / "c")
    exact = asked_of(capture, capture.trace)
    sets = asked_of(capture, capture.trace, replace(HOW, sample=sample_of("sets:1/4")))
    part = asked_of(capture, replace(capture.trace, facts={**capture.trace.facts, "sample": "sets:1/4"}))
    truth, found = exact.price.speedup, part.sampled.speedup
    assert truth.middle > 1.01
    assert sets.sampled.speedup.middle - 1 == pytest.approx(truth.middle - 1, rel=0.03)
    assert not sets.sampled.speedup.high > sets.sampled.speedup.middle + 0.1 * (truth.middle - 1)
    assert abs(found.middle - truth.middle) > 0.1 * (truth.middle - 1), "the sample alone is wrong"
    assert found.low <= truth.middle <= found.high
    assert part.price.speedup.low <= truth.low and truth.high <= part.price.speedup.high


def test_the_fewest_reads_from_dram_are_one_per_line_of_eight_entries():
    reads = np.zeros((2, 1, 1, 2), np.int64)
    reads[0, 0, 0] = 10, 800
    for asked, left in (("sets:1/2", 400), ("sets:1/8", 100), ("sets:1/16", 100)):
        counters = Counters(*(reads if name == "reads" else None for name in Counters._fields))
        assert lines_shared(counters, sample_of(asked)).reads[0, 0, 0].tolist() == [810 - left, left]


def test_a_share_is_open_by_what_caches_of_a_part_may_miss_more_of_one_node_alone():
    found = of_share(Interval(0.3, 0.4, 0.5))
    more = 0.4 * 1.01 / (0.4 * 1.01 + 0.6) - 0.4
    assert found.middle == 0.4 and found.high - 0.5 == pytest.approx(more, rel=0.01) == 0.3 - found.low
    assert of_share(Interval(0, 0, 0)) == Interval(0, 0, 0)


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (sample_of("sets:1/4"), "8 entries of each cache line"),
        (sample_of("sets:1/8"), ""),
        (sample_of("regions:1/4"), ""),
        (windows_sample(10**10, 10**9, 10), "not what all have in common"),
    ],
)
def test_what_the_groups_of_a_sample_do_not_show_is_said(sample, said):
    one = Interval.exactly(1.0)
    walks = Interval(1, 2, 3) if "8 entries" in said else one  # estimated where it was recorded
    _, *more = sample_notes(Sampled(str(sample), 8, walks, one, None))
    assert len(more) == bool(said) and said in "".join(more)
