"""Walks and accesses per second, and what a short region leaves open."""

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import ptanalyze
from ptanalyze.analysis.setup import Setup
from ptanalyze.analysis.whatif import replay_snapshot
from ptanalyze.core.interval import Interval
from ptanalyze.core.machine import load_costs, load_machine
from ptanalyze.cost.counts import Series
from ptanalyze.cost.throughput import farther_cycles, rated, window_rows
from replay_cases import HEAP
from strategies import PAGE, build_snapshot, build_trace

# Walks and accesses per second of windows: closed forms, and the whole as the sum of its windows.

MACHINE = load_machine("vmitosis-cascade-lake").resized(2)
LOCAL, REMOTE = (80 * MACHINE.ghz, 161 * MACHINE.ghz)  # cycles
COSTS = replace(
    load_costs(MACHINE),
    exposed=Interval.exactly(0.5),
    cycles_per_instruction=Interval.exactly(2.0),
    data_exposed=Interval.exactly(0.25),
)


def series(**known):
    """One window of 1 s with 10 walks of 100 accesses and 300 instructions of a CPU."""
    columns = {
        "time_ns": np.array([1_000_000_000]), "walks": np.array([10]), "classes": np.zeros((1, 2, 4), int),
        "dram": np.zeros((1, 2, 2, 2), int), "tables_moved": np.zeros(1, int), "data_moved": np.zeros(1, int),
        "pages": 8, "data": np.array([[[10, 0], [0, 0]]]), "data_remote": np.zeros(1, int),
        "cycles": np.zeros((1, 3)), "accesses": np.array([100]), "instructions": np.array([300]),
        "cpus": np.array([1]), "scale": 1,
    }  # fmt: skip
    return Series(**{**columns, **known})


def per_second(**known):
    """A row of WINDOW_COLUMNS."""
    return window_rows(rated(series(**known), MACHINE, COSTS))[0]


def test_balancing_takes_its_share_of_native_time():
    busy = {"cycles": np.array([[0.0, 0.0, 1.05e8]])}
    assert per_second(**busy)["walks_per_s"] == pytest.approx(0.95 * per_second()["walks_per_s"])
    assert per_second(**busy, pace=0.1)["walks_per_s"] == pytest.approx(0.5 * per_second()["walks_per_s"])


def test_without_waits_a_cpu_does_as_much_as_its_cycles_per_instruction_allow():
    rate = per_second()
    assert rate["accesses_per_s"] == pytest.approx(100 * 2.1e9 / 600)
    assert rate["walks_per_s"] == pytest.approx(rate["accesses_per_s"] / 10)
    assert per_second(cpus=np.array([3]))["walks_per_s"] == pytest.approx(3 * rate["walks_per_s"])


def test_walks_and_remote_data_wait_for_the_exposed_share_and_calls_for_all_of_it():
    cycles = np.array([[1000.0, 70.0, 0.0]])
    busy = 600 + 0.5 * (1000 + 4 * (REMOTE - LOCAL)) + 70
    data = np.array([[[6, 4], [0, 0]]])
    assert per_second(cycles=cycles, data=data)["accesses_per_s"] == pytest.approx(100 * 2.1e9 / busy)
    assert farther_cycles(data, MACHINE).tolist() == pytest.approx([4 * (REMOTE - LOCAL)])


def test_a_quarter_of_a_local_dram_read_per_walk_is_waited_for():
    walked = np.zeros((1, 2, 4), int)
    walked[0, 0, 0] = 10
    found = per_second(classes=walked)["accesses_per_s"]
    assert found == pytest.approx(100 * 2.1e9 / (600 + 0.25 * 10 * LOCAL))


def test_balancing_takes_its_share_of_the_time_times_the_scale_and_lengthens_a_short_window():
    quarter = np.array([[0.0, 0.0, MACHINE.ghz * 1e9 / 4]])
    whole, left = (per_second(cycles=cycles)["walks_per_s"] for cycles in (np.zeros((1, 3)), quarter))
    assert left == pytest.approx(whole * 3 / 4)
    assert per_second(cycles=quarter, scale=3)["walks_per_s"] == pytest.approx(whole / 4)
    assert per_second(cycles=quarter, scale=5)["walks_per_s"] == pytest.approx(whole / (1 + whole / 10 / 4))


def test_each_page_that_moves_takes_a_fault_and_a_copy():
    pages = 100_000
    taken = pages * (COSTS.fault_ns + COSTS.table_move_ns) / 1e9
    assert 0.3 < taken < 0.4
    rate = per_second(data_moved=np.array([pages]))
    assert rate["walks_per_s"] == pytest.approx(per_second()["walks_per_s"] * (1 - taken))


def test_a_page_that_a_hypervisor_moves_brings_every_other_cpu_out_of_the_guest():
    """Three CPUs, 1,000 pages: two interrupts for each, sent, handled, and left the guest for."""
    pages = 1_000
    moved = pages * (COSTS.fault_ns + COSTS.table_move_ns)
    shot = pages * 2 * (COSTS.ipi_local_ns + COSTS.ipi_handler_ns + COSTS.vm_exit_ns)
    three = {"cpus": np.array([3]), "data_moved": np.array([pages])}
    still = per_second(cpus=np.array([3]))["walks_per_s"]
    by_guest, by_host = (per_second(**three, host_shoots=by)["walks_per_s"] for by in (False, True))
    assert by_guest == pytest.approx(still * (1 - moved / 3e9))
    assert by_host == pytest.approx(still * (1 - (moved + shot) / 3e9))


def test_a_window_that_takes_no_cycles_has_no_rate():
    """One of two windows of a trace with counted instructions has none."""
    one = vars(series())
    both = {name: np.repeat(value, 2, axis=0) for name, value in one.items() if isinstance(value, np.ndarray)}
    both |= {"time_ns": np.array([1, 2]) * 1_000_000_000, "instructions": np.array([0, 300])}
    first, second = window_rows(rated(series(**both), MACHINE, COSTS))
    assert first["walks_per_s"] is None
    assert second["walks_per_s"] == pytest.approx(per_second()["walks_per_s"])


def test_the_interval_holds_what_the_ends_of_the_assumptions_give():
    costs = load_costs(MACHINE)
    every = rated(series(cycles=np.array([[1000.0, 0.0, 0.0]])), MACHINE, costs).per_second[0]
    slow = 100 * 2.1e9 / (300 * costs.cycles_per_instruction.high + 1000 * costs.exposed.high)
    fast = 100 * 2.1e9 / (300 * costs.cycles_per_instruction.low + 1000 * costs.exposed.low)
    assert (every[0], every[2]) == pytest.approx((slow, fast)) and slow < every[1] < fast


def replayed(policies, windows, chunks=8, **how):
    """Two threads on two nodes take turns at 8 pages of node 0."""
    pages = [HEAP + k * PAGE for k in range(8)]
    snapshot = build_snapshot([(va, 1 + k) for k, va in enumerate(pages)])
    trace = build_trace([(k % 2, pages) for k in range(chunks)])
    trace.chunks["instructions"] = 24
    setup = Setup.of(machine=MACHINE, costs=COSTS, threads_on="0,1", windows=windows, cold=True, **how)
    return trace, replay_snapshot(snapshot, trace, policies, setup)


@pytest.mark.parametrize("windows", [1, 2, 3, 7])
def test_cycles_of_windows_add_up_to_those_that_the_run_is_priced_with(windows):
    trace, (linux, mitosis) = replayed([("linux", {}), ("mitosis", {})], windows)
    for result in (linux, mitosis):
        assert result.series.cycles.sum(axis=0)[0] == pytest.approx(result.walk_cycles)
        assert result.series.instructions.sum() == trace.chunks["instructions"].sum()
        assert result.series.accesses.sum() == trace.accesses
    assert linux.series.cycles[:, 1].sum() == pytest.approx(linux.management_cycles)


# What a short region leaves open: the interval of its speed-up has that of a long one in it.

BIG = 1 << 30  # its leaf entries fill 32,768 lines
SHORT, LONG = 8192, 80_000  # accesses; the short one has a chunk of each thread


@pytest.fixture(scope="module")
def machine():
    """Its caches have 8,192 lines for page tables."""
    known = load_machine("vmitosis-cascade-lake")
    small = {"share": 1.0, "shares": None}
    l2 = msgspec.structs.replace(known.l2, bytes=known.l2.ways << 9, **small)
    llc = msgspec.structs.replace(known.llc, bytes=1 << 19, ways=16, **small)
    return msgspec.structs.replace(known, l2=l2, llc=llc)


def speed_ups(tmp_path, machine, accesses, pattern="uniform", sharing="shared", **options):
    made = {"threads": 2, "init": "single", "init_trace": False, "accesses": accesses}
    place = tmp_path / f"{accesses} {pattern} {options}".replace(":", "-")
    capture = ptanalyze.synth(place, BIG, pattern=pattern, sharing=sharing, **made)
    return ptanalyze.replay(capture, "mitosis", machine=machine, **options).results


def test_the_interval_of_a_short_region_has_the_speed_up_of_a_long_one_in_it(tmp_path, machine):
    short, long = (speed_ups(tmp_path, machine, accesses)[1] for accesses in (SHORT, LONG))
    assert short.finding("short-region") and not long.finding("short-region")
    found, truth = short.speedup, long.speedup
    assert found.low <= 1.01 < truth.low, "the caches hold all that is read"
    assert found.high >= truth.middle


@pytest.mark.parametrize(
    ("pattern", "sharing", "off"),
    [
        ("uniform", "shared", 0.15),
        ("uniform", "private", 0.3),  # each thread walks half of the lines: nobody knows from a short region
        ("zipf:0.6", "shared", 0.1),
        ("zipf:1.0", "shared", 0.5),  # hot lines are read more than once, the others not as often as these
        ("btree", "shared", 0.31),
        ("anneal", "shared", 0.2),
        ("sequential", "shared", 0.4),
    ],
)
def test_the_middle_is_near_the_speed_up_of_a_long_one(tmp_path, machine, pattern, sharing, off):
    """`off`: of the effect. The end where all lines are cached is off by all of it."""
    short, long = (speed_ups(tmp_path, machine, accesses, pattern, sharing) for accesses in (SHORT, 5 * LONG))
    assert short[1].finding("short-region") and not long[1].finding("short-region")
    found, truth = short[1].speedup.middle, long[1].speedup.middle
    assert abs(found - truth) < off * (truth - 1)
    assert short[0].walk_share.middle == pytest.approx(long[0].walk_share.middle, abs=0.09)
    assert short[1].when_earned == long[1].when_earned == "later"
    assert short[1].walk_cycles < long[1].walk_cycles * SHORT / LONG, "counts are the region's own"


def test_the_far_end_is_the_speed_up_of_the_first_run_but_for_what_is_paid_once(tmp_path, machine):
    linux, copied = speed_ups(tmp_path, machine, SHORT, cold=True)
    _, short = speed_ups(tmp_path, machine, SHORT)
    assert short.speedup.high > copied.speedup.high, "which pays for its copies"
    assert short.speedup.high <= linux.walk_cycles / copied.walk_cycles
