"""Trials of page sizes: the record, and what it says of placements."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from captures import TRIAL
from naive.law import cycles_by_hiding, cycles_by_pages
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.verdict import PAGES, Workload, verdict
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.columns import MEASURED, UNFIT
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.core.trace import Event
from ptanalyze.cost.counts import DRAM
from ptanalyze.cost.price import Pages, Unknowns, price
from ptanalyze.formats.measured import read_measured, write_calibration
from ptanalyze.kernels.replay import counters
from ptanalyze_law.run_time import read_calibration
from replay_cases import HEAP, counts_of
from strategies import PAGE, build_snapshot, build_trace, small_machine


def kept(tmp_path, trial):
    path = tmp_path / "app.toml"
    write_calibration(path, trial)
    return path


def test_a_trial_of_page_sizes_is_kept_beside(tmp_path):
    path = kept(tmp_path, TRIAL)
    assert read_measured(path) == TRIAL
    with pytest.raises(CaptureError, match=r"kind = page size: .*whatif CAPTURE --calibration"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "page size"', 'kind = "x"', "kind = x: expected page size"),
        ("low = 1.49", "low = 1.53", "gain = 1.53, 1.52, 1.55: expected low, middle, high"),
        ("low = 1.08", "low = 0.0", "contiguous = 0, 1.11, 1.13"),
        ("high = 1.55", "high = inf", "gain = 1.49, 1.52, inf"),
        ("huge_share_huge = 0.97", "huge_share_huge = 97.0", "huge_share_huge = 97.0: must be at most 1"),
        ("pairs = 6", "pairs = 0", "pairs = 0: must be at least 1"),
        ("nodes = 2", "nodes = 0", "nodes = 0: must be at least 1"),
        ("EINVAL = 114", "EINVAL = -1", "refused"),
        ("blocks = 473\n", "", "blocks: missing"),
        ("blocks = 473", "blocks = 473\nwalkers = 2.0", "walkers: no such field"),
    ],
)
def test_a_damaged_trial_names_file_and_field(tmp_path, old, new, why):
    path = kept(tmp_path, TRIAL)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CaptureError, match=why) as refused:
        read_measured(path)
    assert str(path) in str(refused.value)


# A trial of page sizes: what it says of placements is the law of the program, whatever its numbers are.


COSTS = load_costs(load_machine("sapphire-rapids"))
MACHINE = msgspec.structs.replace(small_machine(2), walkers=2)  # 2 GHz, 100 ns local, 200 ns remote


def read(local, remote):
    count = counters(2)
    count.reads[8, 0, 0, DRAM], count.reads[8, 0, 1, DRAM] = local, remote
    count.classes[0, 0] = local + remote
    return count


def tried(base, huge, *others, here=True, machine=MACHINE, run=None, **trial):
    """[Result] of Counters by a trial, huge pages' own the second; run: what all Counts have in common."""
    asked = msgspec.structs.replace(TRIAL, **{"huge_share_huge": 1.0} | trial)
    counts = [counts_of(one, **run or {}) for one in (base, huge, *others)]
    return price(counts, machine, COSTS, Unknowns((False,), Pages(asked, counts[1], here)))


READS = st.tuples(*[st.integers(1000, 10**6)] * 2)  # 200 cycles of a local, 400 of a remote one


@pytest.mark.twin
@given(st.floats(0.15, 0.99), st.floats(0.05, 1), READS, READS, st.floats(0, 0.6))
def test_a_trial_gives_back_the_law_of_any_program(walking, exposed, small, there, left):
    """C = NW + e W, NW and e made up: C4 / C2 alone gives the run time of each placement."""
    few = [int(count * left) for count in small]
    walks = [200 * near + 400 * far for near, far in (small, few, there)]
    outside = exposed * walks[0] * (1 / walking - 1)
    four, two, took = (outside + exposed * walk for walk in walks)
    base, huge, found = tried(*(read(*one) for one in (small, few, there)), gain=Interval.exactly(four / two))
    assert [*base.speedup, *huge.speedup] == [1, 1, 1, *[four / two] * 3]
    assert took == pytest.approx(cycles_by_pages(four, two, *walks))
    assert found.speedup.middle == pytest.approx(four / took)
    assert found.speedup.low <= found.speedup.middle <= found.speedup.high


@pytest.mark.twin
@given(
    st.floats(1.0, 3e8),
    st.floats(0.0, 150),
    st.integers(0, 10**6),
    st.integers(0, 700_000),
    st.floats(0, 1),
    st.booleans(),
)
@example(1e7, 100.0, 0, 600_000, 0.5, False)
@example(1e6, 100.0, 10**6, 0, 0.0, True)
def test_a_core_that_hides_as_much_of_each_walk_is_inside(outside, hidden, far, few, longer, timed):
    """10^6 walks of 200 to 400 cycles, of 300 with small pages, so that half of these or more is waited for
    (COSTS); where the run was timed by each of two threads that share the only walker."""
    threads, remote = 1 + timed, round(few * longer)
    walk = 200 + 200 * remote / max(few, 1)
    took, there, huge = (
        cycles_by_hiding(outside, hidden, one, n, threads)
        for one, n in ((300, 10**6), (200 + far / 5000, 10**6), (walk, few))
    )
    saved = 300 * 10**6 - few * walk
    assume(1 - huge / took < 0.9999 * saved / (300 * 10**6))  # else it is refused
    assume(took > 1.051 * huge and saved > 0.31 * 300 * 10**6 and took - huge >= 0.5 * threads * saved)
    run = {"cpus": 3}
    if timed:
        run |= {"executed": 10**6, "timed": (took / 10**6, False)}
    counts = read(500_000, 500_000), read(few - remote, remote), read(10**6 - far, far)
    one = msgspec.structs.replace(MACHINE, cpus_per_node=4, walkers=1)
    *_, found = tried(*counts, gain=Interval.exactly(took / huge), machine=one, run=run)
    assert found.speedup.low * 0.999 <= took / there <= found.speedup.high * 1.001


def test_longer_walks_cost_more_by_a_trial_and_less_of_it_is_noise():
    gain = Interval(1.4, 1.5, 1.6)
    others = (read(1000 - far, far) for far in range(0, 1001, 100))
    found = tried(read(500, 500), read(50, 0), *others, gain=gain)
    for end in ("low", "middle", "high"):
        speedups = [getattr(one.speedup, end) for one in found[2:] if one is not found[7]]
        assert speedups == sorted(speedups, reverse=True)
    assert [*found[7].speedup] == [1, 1, 1] and [*found[1].speedup] == [1.4, 1.5, 1.6]
    assert found[-1].speedup.high == pytest.approx(1.03 / (1 + (1 - 1 / 1.4) * 100 / 290))


@given(st.floats(1.06, 3), st.floats(1.001, 1.5), st.integers(501, 1000))
def test_the_more_huge_pages_gain_the_more_remote_tables_cost(gain, more, far):
    """And never more than a cycle for each: e is 0.5 at least, so that C4 has as many cycles as it has walk
    cycles saved, halved, over their share of the run."""
    counts = read(500, 500), read(0, 0), read(1000 - far, far)
    found = [tried(*counts, gain=Interval.exactly(one))[-1].speedup for one in (gain, gain * more)]
    assume(gain * more < 5)
    for end in ("low", "middle", "high"):
        assert getattr(found[1], end) < getattr(found[0], end)
    least = 1 + (1 - 1 / gain) / 0.5 * (far - 500) / 1500
    assert found[0].low >= 1 / least / 1.03 - 1e-9 and found[0].high <= 1.03


def test_on_one_node_the_tables_of_the_trial_were_local():
    """C4 is of 1,000 local reads, of which huge pages save 900; the baseline's are remote."""
    base, huge, local = tried(read(0, 1000), read(0, 100), read(1000, 0), gain=Interval.exactly(1.5), nodes=1)
    assert local.speedup.middle == pytest.approx(1 + 1 / 3 * 1000 / 900)
    assert huge.speedup.middle == pytest.approx(local.speedup.middle / (1 - 1 / 3 * 800 / 900))
    assert [*base.speedup] == [1, 1, 1]


def test_the_gain_of_huge_pages_is_the_measured_one_where_it_was_measured():
    gain, remote, local = Interval(1.49, 1.52, 1.55), read(500, 500), read(1000, 0)
    for base, here, nodes, measured in (
        (remote, True, 2, True),
        (remote, True, 1, False),
        (local, True, 1, True),
        (local, False, 1, False),
    ):
        _, huge = tried(base, read(50, 0), here=here, nodes=nodes)
        assert (huge.speedup == gain) == measured
        assert (huge.finding(MEASURED) is not None) == here


def test_the_steep_end_is_one_cycle_for_each():
    """e is 0.5 to 0.9 (COSTS): a walk cycle costs twice what huge pages tell, at most."""
    *_, found = tried(read(500, 500), read(50, 0), read(0, 1000), gain=Interval.exactly(1.5))
    own = 1 / 3 * 100 / 290
    assert found.speedup.middle == pytest.approx(1 / (1 + own))
    assert found.speedup.low == pytest.approx(1 / (1 + own / COSTS.exposed.low) / 1.03)
    single = msgspec.structs.replace(MACHINE, walkers=1)  # no walk hides another: the best guess, too
    *_, found = tried(read(500, 500), read(50, 0), read(0, 1000), gain=Interval.exactly(1.5), machine=single)
    assert found.speedup.middle == pytest.approx(1 / (1 + own / COSTS.exposed.middle))
    _, huge, near = tried(read(500, 500), read(50, 0), read(1000, 0), gain=Interval.exactly(1.5), here=False)
    assert near.speedup.high == pytest.approx(1 / (1 - own / COSTS.exposed.low) * 1.03)
    assert [*huge.speedup] == pytest.approx([1.5 / 1.03, 1.5, 1.5 * 1.03])


def test_a_part_of_the_memory_saves_its_part_of_the_walk_cycles():
    counts, gain = (read(500, 500), read(0, 0), read(0, 1000)), Interval.exactly(1.5)
    *_, found = tried(*counts, gain=gain, huge_share_huge=0.8)
    assert found.speedup.middle == pytest.approx(1 / (1 + 1 / 3 / 0.8 / 3))
    *_, found = tried(*counts, gain=gain, huge_share_found=0.4)
    assert found.speedup.middle == pytest.approx(1 / (1 + 1 / 3 / 3))


@pytest.mark.parametrize(
    ("huge", "trial", "why"),
    [
        (0, {"gain": Interval(1.03, 1.04, 1.08)}, r"give 1\.04x \(1\.03-1\.08\), too little"),
        (0, {"gain": Interval(0.9, 1.2, 1.5)}, r"give 1\.20x \(0\.90-1\.50\): a gain or none"),
        (800, {}, "save only 20 % of the walk cycles in the trace"),
        (600, {"gain": Interval(1.9, 2.0, 2.1)}, "took 50 % off the run, in the trace they save 40 %"),
        (0, {"pairs": 2}, "2 of 3"),
        (0, {"huge_share_huge": 0.4}, "only 40 % of its memory became huge: memory is fragmented"),
        (0, {"huge_share_found": 0.6}, "60 % of its memory was in huge pages as found"),
    ],
)
def test_a_trial_that_tells_nothing_is_refused(huge, trial, why):
    with pytest.raises(UsageError, match=f"calibration .*{why}"):
        tried(read(1000, 0), read(huge, 0), **trial)[0]
        msgspec.structs.replace(TRIAL, **trial).must_fit(traced=True)


def test_a_trial_that_is_sure_in_turns_is_kept_and_what_asks_for_pages_as_found_refuses_it():
    noisy = {"gain": Interval(0.85, 1.36, 1.49), "huge_over_split": Interval(1.12, 1.17, 1.2)}
    trial = msgspec.structs.replace(TRIAL, huge_share_found=0.0, **noisy)
    trial.must_fit(True, gain=trial.answer)
    with pytest.raises(UsageError, match="a gain or none"):
        trial.must_fit(True)


# What-ifs of a capture: a trial of another size, or one that needs a trace.


def asked(trial, traced=True, policies=(("mitosis", {}),), host=None, own=None, **options):
    """[Result] of a program that reads each page of 2 MiB twice, on two nodes; its tables are on node 1."""
    vas = [HEAP + k * PAGE for k in range(512)]
    pages, vmas = [(va, k) for k, va in enumerate(vas)], [(HEAP, HEAP + 512 * PAGE, "")]
    snapshot = build_snapshot(pages, host, table_nodes=(1,), vmas=vmas, facts=FACTS)
    trace = build_trace([(0, vas * 2)], [(0, 0, Event.ROI_START, (), 0)])
    snapshot = replace(snapshot, trial=own)
    trace = replace(trace, facts={**trace.facts, "command": "/usr/bin/redis-server --port 1"})
    how = {"machine": small_machine(2), "costs": COSTS, "cold": True, "calibration": trial}
    return replay_snapshot(snapshot, trace if traced else None, policies, Setup.of(**how | options))


FACTS = {"cpu": "a CPU", "comm": "redis-server"}
ELSEWHERE = [
    msgspec.structs.replace(TRIAL, resident_bytes=2 << 20, **own) for own in ({"program": "x"}, {"cpu": "y"})
]
FITTING = msgspec.structs.replace(TRIAL, resident_bytes=2 << 20)


def test_a_what_if_by_a_trial_replays_huge_pages_unasked(capsys):
    linux, mitosis = asked(FITTING)
    assert (linux.policy, mitosis.policy) == ("linux", "mitosis")
    assert "redis-server was measured" in mitosis.assumptions
    linux, huge = asked(FITTING, policies=[("thp", {})])
    assert huge.speedup == TRIAL.gain and huge.finding(MEASURED)
    larger = msgspec.structs.replace(TRIAL, resident_bytes=8 << 20)
    whole = asked(larger, policies=[("thp", {})], stands_for=4, cold=False)
    assert whole[1].speedup == TRIAL.gain, "of that size"
    assert verdict([linux, huge], None).answers[0].message.code == "measured"
    _, huge = asked(msgspec.structs.replace(FITTING, program="valkey-server"), policies=[("thp", {})])
    assert not huge.finding(MEASURED) and "valkey-server" in capsys.readouterr().err
    assert FITTING.of("a CPU", "'/opt/my app/redis-server' x") and not FITTING.of("a CPU", "'redis-server")


def test_the_trial_of_a_capture_is_taken_unasked_and_another_in_its_place():
    linux, huge = asked(None, policies=[("thp", {})], own=FITTING)
    assert huge.speedup == TRIAL.gain and huge.finding(MEASURED) and not linux.finding(UNFIT)
    other = msgspec.structs.replace(FITTING, gain=Interval(1.2, 1.25, 1.3))
    assert asked(other, policies=[("thp", {})], own=FITTING)[1].speedup == other.gain


def test_without_a_trace_a_trial_tells_of_page_size_alone():
    """Whatever it gained, and of placements nothing: only accessed bits tell of these."""
    about = Workload(np.array([9, 0]), np.array([0, 9]), 2 << 20, allocator="glibc", started=False)
    for gain in (Interval(1.1, 1.2, 1.3), Interval(0.98, 1.0, 1.01)):
        trial = msgspec.structs.replace(FITTING, gain=gain)
        linux, mitosis = asked(trial, traced=False)
        found = verdict([linux, mitosis], replace(about, huge_pages="madvise"))
        [pages] = [part for part in found.parts if part.kind == PAGES]
        assert pages.measured == pages.gain == gain and mitosis.speedup is None
        assert (found.kind == PAGES) is (found.action is not None) is (gain.low > 1)
        assert bool(found.limit) is (gain.low > 1), "of where its tables are nothing is known"
        assert verdict(asked(None, traced=False, own=trial), about).parts == found.parts
        turns = msgspec.structs.replace(trial, huge_over_split=Interval(1.03, 1.08, 1.14))
        for share, told in ((0.0, turns.huge_over_split), (0.3, gain)):  # as trial --pages begins
            some = msgspec.structs.replace(turns, huge_share_found=share)
            [part] = verdict(asked(some, traced=False), about).parts
            assert some.answer == told == part.gain and part.found == (None if told == gain else gain)


@pytest.mark.parametrize("huge_share", [0.3, 0.9])
@pytest.mark.parametrize("traced", [True, False])
def test_a_capture_whose_trial_tells_nothing_is_answered_without_it(huge_share, traced):
    unfit = msgspec.structs.replace(TRIAL, huge_share_huge=huge_share)
    without, refused = asked(None, traced), asked(None, traced, own=unfit)
    said = [result.finding(UNFIT) for result in refused]
    assert all(said) and len({*said}) == 1 and "calibration" not in said[0].text
    assert [one.speedup for one in refused] == [one.speedup for one in without]
    assert said[0] in verdict(refused, None).cautions


@pytest.mark.parametrize(
    ("trial", "options", "why"),
    [
        (TRIAL, {}, r"1\.0 GiB were resident and the capture stands for 2\.0 MiB"),
        (TRIAL, {"traced": False}, r"1\.0 GiB were resident"),
        *((other, {"traced": False}, "without a trace") for other in ELSEWHERE),
    ],
)
def test_a_trial_of_something_else_is_refused(trial, options, why):
    with pytest.raises(UsageError, match=f"calibration .*{why}"):
        asked(trial, **options)
