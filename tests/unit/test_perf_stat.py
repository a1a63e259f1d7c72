"""The totals of a run as perf stat -x, and -j print them, and what of them cannot be used."""

import json

import pytest

from ptanalyze.core.errors import CaptureError
from ptanalyze.cost.law import MeasuredRun
from ptanalyze_law import perf_stat
from ptanalyze_law.perf_stat import WALKS, one_walker, partial, read_perf_stat, walk_run, what_is_missing

COUNTS = {
    "cycles": 540968049174,
    "dtlb_load_misses.walk_pending": 406557544701,
    "dtlb_store_misses.walk_pending": 50282346815,
    "ept.walk_pending": 482582418316,
}
EXPECTED = (540968049174.0, 406557544701.0 + 50282346815.0, 482582418316.0)
SECONDS = 260.0


def text(counts=COUNTS, mark=",", modes="u", running="100.00", **more):
    """What `perf stat -x` prints; `more` is the percentage of the event of that name (dots as __)."""
    lines = ["# started on Thu Jan  2 03:04:05 2025", ""]
    for name, count in counts.items():
        percent = more.get(name.replace(".", "__"), running)
        event = f"{name}:{modes}" if modes else name
        lines.append(mark.join([str(count), "", event, "1000", percent, "", ""]))
    clock = ["259900.12", "msec", "task-clock:u", "1000", "100.00", "0.999", "CPUs utilized"]
    elapsed = [f"{SECONDS * 1e9:.0f}", "ns", "duration_time", "1000", "100.00", "", ""]
    return "\n".join([*lines, mark.join(clock), mark.join(elapsed), ""])


def json_line(name, value, running=100.0, **more):
    value = value if isinstance(value, str) else f"{value:.6f}"
    cells = {"counter-value": value, "unit": "", "event": name, "event-runtime": 1000}
    return json.dumps(cells | {"pcnt-running": running} | more)


def read_run(path, **how):
    return walk_run(read_perf_stat(path), **how)


def values(run):
    return run.cycles, run.gpt, run.ept


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_separated_cells_are_read(file, mark):
    others = [
        ["7", "", f"cpu/event=0x08{mark}umask=0x01/u", "1000", "100.00", "", ""],
        ["<not counted>", "", "branches", "0", "0.00", "", ""],
        ["7", "", "instructions:u", "0.34%", "1000", "100.00", "1.5", "insn per cycle"],
        ["", "", "", "", "", "1.5", "stalled"],
    ]
    run = read_run(file(text(mark=mark) + "\n".join(map(mark.join, others))))
    assert values(run) == EXPECTED and (run.cpus, run.seconds) == (0.999, SECONDS)


def test_json_lines_are_read(file):
    lines = [json_line(f"{name}:u", count) for name, count in COUNTS.items()]
    lines.append(json_line("", "", **{"metric-value": "1.2", "metric-unit": "GHz"}))
    busy = {"unit": "msec", "metric-value": "2.5", "metric-unit": "CPUs utilized"}
    lines.append(json_line("task-clock", 5000.0, **busy))
    lines[0] = lines[0].replace("}", ', "metric-value": -nan}')
    run = read_run(file("\n".join(lines)))
    assert values(run) == EXPECTED and run.cpus == 2.5 and run.seconds == 2.0


@pytest.mark.parametrize(
    "lines",
    [
        text().replace("100.00", "99,50"),
        "\n".join(f"1.000123456,{line}" for line in text().splitlines()),  # -I
        "\n".join(f"S0,8,{line}" for line in text().splitlines()),  # --per-socket
        text().replace(":u,", ":u,web.slice,"),  # -G
        text(COUNTS | {"cycles": "54.09.680"}),
        text(COUNTS | {"cycles": "1,2,3"}),
        "GHz,insn per cycle,\n2.1,1.3,\n",  # --metric-only
        json_line("cycles:u", 7, cpu="0"),
        json_line("cycles:u", 7, interval="1.0"),
    ],
)
def test_other_cells_are_refused_not_guessed(file, lines):
    with pytest.raises(CaptureError, match=r"LC_ALL=C|totals of one run"):
        read_run(file(lines))


@pytest.mark.parametrize(
    "content", [b"", b"\0\0", b"\xff\xfe", b"hello\n", b"{", b"[1]", b'{"event": 3}', b"7,,"]
)
def test_files_without_counters_are_refused_in_one_line(file, content):
    with pytest.raises(CaptureError):
        read_run(file(content))


@pytest.mark.parametrize("percentage", ["145.00", "many", "-3.0", "nan"])
def test_an_impossible_percentage_is_refused(file, percentage):
    for content in (text(ept__walk_pending=percentage), json_line("cycles:u", 7, percentage)):
        with pytest.raises(CaptureError, match="percentage of the time"):
            read_run(file(content))


@pytest.mark.parametrize(
    "name", ["cpu-cycles", "CPU_CLK_UNHALTED.THREAD", "cpu/cycles/u", "cycles:uG", "cycles"]
)
def test_cycles_have_several_names(file, name):
    others = {key: count for key, count in COUNTS.items() if key != "cycles"}
    modes = "Gu" if name.endswith("G") else "u" if name.endswith("u") else ""
    cycles = f"{COUNTS['cycles']},,{name},1000,100.00,,\n"
    assert values(read_run(file(cycles + text(others, modes=modes)))) == EXPECTED


@pytest.mark.parametrize("missing", [name for name in COUNTS if "store" not in name])
def test_a_missing_counter_is_named(file, missing):
    counts = {name: count for name, count in COUNTS.items() if name != missing}
    with pytest.raises(CaptureError, match=f"event = {missing}.*missing") as refused:
        read_run(file(text(counts)))
    assert "given.txt" in str(refused.value)


@pytest.mark.parametrize("absent", ["<not counted>", "<not supported>"])
@pytest.mark.parametrize("name", list(COUNTS))
def test_a_counter_that_perf_could_not_count_is_named(file, name, absent):
    path = file(text(COUNTS | {name: absent}, **{name.replace(".", "__"): "0.00"}))
    if (name, absent) == ("dtlb_store_misses.walk_pending", "<not supported>"):
        assert read_run(path).gpt == COUNTS["dtlb_load_misses.walk_pending"]
        return
    with pytest.raises(CaptureError, match=f"{name}.*{absent}"):
        read_run(path)


@pytest.mark.parametrize(("running", "refused"), [("89.99", True), ("90.00", False)])
def test_counters_scaled_from_below_90_percent_are_refused_unless_allowed(file, running, refused):
    path = file(text(ept__walk_pending=running))
    if refused:
        with pytest.raises(CaptureError, match=r"ept\.walk_pending:u = counted 89\.99 % of the time"):
            read_run(path)
    assert values(read_run(path, allow_multiplexed=True)) == EXPECTED


@pytest.mark.parametrize(("loads", "stores"), WALKS)
def test_walks_of_loads_alone_are_taken_for_what_they_are(file, loads, stores):
    path = file(text({"cycles": 100, loads: 30}))
    assert values(read_run(path, native=True)) == (100.0, 30.0, 0.0)
    assert partial(read_perf_stat(path)) == f"{stores}: not counted: walk cycles are those of loads alone"
    assert partial(read_perf_stat(file(text(), "whole"))) == ""
    with pytest.raises(CaptureError, match=f"{loads}:u: missing"):
        read_run(file(text({"cycles": 100, stores: 30}), "stores"), native=True)


def test_walk_durations_do_not_tell_nested_walks_apart(file):
    durations = dict(zip(WALKS[1], (30, 5), strict=True))
    path = file(text({"cycles": 100} | durations))
    assert values(read_run(path, native=True)) == (100.0, 35.0, 0.0) and one_walker(read_perf_stat(path))
    with pytest.raises(CaptureError, match="does not tell nested walks apart"):
        read_run(path)
    both = read_perf_stat(file(text(COUNTS | durations), "both"))
    assert perf_stat.walk_events(both) == WALKS[0] and not one_walker(both)


def test_entries_that_memory_served_are_those_of_haswell_and_broadwell(file):
    """Names as in the kernel's pmu-events/arch/x86/broadwell/virtual-memory.json."""
    counts = {"L1": 10, "L2": 20, "L3": 30, "MEMORY": 40}
    served = {f"PAGE_WALKER_LOADS.DTLB_{by}": n for by, n in counts.items()}
    assert read_run(file(text(COUNTS | served))).from_memory == pytest.approx(0.4)
    assert read_run(file(text(COUNTS | dict.fromkeys(served, 0)), "none")).from_memory is None
    unusable = file(text(COUNTS | dict.fromkeys(served, "<not supported>")), "unusable")
    assert values(read_run(unusable)) == EXPECTED and read_run(unusable).from_memory is None
    served.popitem()
    assert read_run(file(text(COUNTS | served), "three")).from_memory is None


def test_amd_counts_walks_but_not_their_cycles(file):
    counts = {"cycles": 100, "ls_l1_d_tlb_miss.all_l2_miss": 30}
    assert read_run(file(text(counts))) == MeasuredRun(100.0, None, None, SECONDS, 0.999)
    assert read_run(file(text(counts)), native=True).ept == 0.0


def test_an_elapsed_time_alone_is_a_run(file):
    lines = text({"page-faults": 12})
    assert read_run(file(lines)) == MeasuredRun(None, None, None, SECONDS, 0.999)
    with pytest.raises(CaptureError, match=r"cycles.*missing"):
        read_run(file("\n".join(lines.splitlines()[:3])))


def test_what_is_missing_is_named_with_the_way_out(file):
    def missing(counts):
        return what_is_missing(read_perf_stat(file(text(counts))))

    assert missing(COUNTS) == ""
    assert missing({"cycles": 1}).startswith("count dtlb_load_misses.walk_pending, dtlb_store_misses")
    assert missing({"instructions": 1}).startswith("count cycles, dtlb_load_misses.walk_pending")
    amd = missing({"cycles": 1, "ls_tablewalker.dside": 3})
    assert amd.startswith("ls_tablewalker.dside counts walks; AMD counts no cycles") and "--remote" in amd
    assert missing({"cycles": 100, "dtlb_walk": 3}).startswith("dtlb_walk counts walks; Arm ")


def test_instructions_and_the_sizes_of_pages_are_part_of_a_run(file):
    sizes = {"dtlb_load_misses.walk_completed_4k": 60, "dtlb_store_misses.walk_completed_2m_4m": 20}
    sizes |= {"dtlb_load_misses.walk_completed_1g": 20, "instructions": 77}
    run = read_run(file(text(COUNTS | sizes)))
    assert run.instructions == 77 and run.huge_walks == pytest.approx(0.4)
    plain = read_run(file(text(), "plain"))
    assert plain.instructions is None and plain.huge_walks is None


@pytest.mark.parametrize("kind", ["mem_inst_retired.all_{}s", "mem_uops_retired.all_{}s", "L1-dcache-{}s"])
def test_accesses_are_loads_and_stores_if_both_were_counted_all_the_time(file, kind):
    loads, stores = (kind.format(what) for what in ("load", "store"))
    both = {loads: 60, stores: 7}
    assert read_run(file(text(COUNTS | both))).accesses == 67
    assert read_run(file(text(COUNTS | {loads: 60}), "loads")).accesses is None
    assert read_run(file(text(COUNTS | both | {stores: "<not counted>"}), "none")).accesses is None
    assert read_run(file(text(), "plain")).accesses is None


def test_walks_are_those_for_loads_and_for_stores_by_size_or_in_all(file):
    loads = {"dtlb_load_misses.walk_completed_4k": 60, "dtlb_load_misses.walk_completed_1g": 20}
    stores = {"dtlb_store_misses.walk_completed_4k": 7}
    assert read_run(file(text(COUNTS | loads | stores))).walks == 87
    whole = {"dtlb_load_misses.walk_completed": 90}
    assert read_run(file(text(COUNTS | loads | stores | whole), "whole")).walks == 97
    assert read_run(file(text(COUNTS | loads), "loads")).walks is None
    assert read_run(file(text(), "plain")).walks is None
