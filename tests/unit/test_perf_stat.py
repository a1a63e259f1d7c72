"""Output of perf stat and of classify as measurements of runs."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptanalyze.analysis.walk import refill_times
from ptanalyze.core.errors import CaptureError, UsageError
from ptanalyze.cost.law import MeasuredRun, placement
from ptanalyze.formats.measured.perf_stat import (
    WALKS,
    one_walker,
    partial,
    read_class_shares,
    read_perf_stat,
    read_refills,
    read_run,
    refills,
    walk_events,
    what_is_missing,
    with_refills,
)
from strategies import build_snapshot

# Output of perf stat in its three forms and several locales, and what of it cannot be used.

COUNTS = {
    "cycles": 540968049174,
    "dtlb_load_misses.walk_pending": 406557544701,
    "dtlb_store_misses.walk_pending": 50282346815,
    "ept.walk_pending": 482582418316,
}
EXPECTED = (540968049174.0, 406557544701.0 + 50282346815.0, 482582418316.0)


def text(counts=COUNTS, mark=",", decimal=".", modes="u", **more):
    """What `perf stat` prints for people; `more` follows the event of that name (dots as __)."""
    lines = ["", " Performance counter stats for './gups 30':", ""]
    for name, count in counts.items():
        shown = count if isinstance(count, str) else f"{count:,}".replace(",", mark)
        rest = more.get(name.replace(".", "__"), "")
        lines.append(f"   {shown}      {name}{':' + modes if modes else ''}      {rest}")
    clock = f"        259{mark}900{decimal}12 msec task-clock:u    #    0{decimal}999 CPUs utilized"
    return "\n".join([*lines, clock, "", f"     260{decimal}012345678 seconds time elapsed", ""])


def values(run):
    return run.cycles, run.gpt, run.ept


LOCALES = {  # 1,234,567 cycles, walks of 200,000 and 34,567, 2.5 CPUs for 0.5 s, as perf prints them there
    "en_IN": ["12,34,567", "2,00,000", "34,567", "1,250.00", "2.500", "0.500000000"],
    "de_CH": ["1\u2019234\u2019567", "200\u2019000", "34\u2019567", "1\u2019250.00", "2.500", "0.500000000"],
    "de_DE": ["1.234.567", "200.000", "34.567", "1.250,00", "2,500", "0,500000000"],
    "de_DE whole msec": ["1.234.567", "200.000", "34.567", "1.250", "2,500", "0,500000000"],
    "fr_FR": ["1\u202f234\u202f567", "200\u202f000", "34\u202f567", "1\u202f250,00", "2,500", "0,500000000"],
    "fa_IR": [
        "1\u066c234\u066c567",
        "200\u066c000",
        "34\u066c567",
        "1\u066c250\u066b00",
        "2\u066b500",
        "0\u066b500",
    ],
    "no groups": ["1234567", "200000", "34567", "1250,00", "2,500", "0,500000000"],
}
IN_A_LOCALE = """
       {}      cycles:u      #    0,494 GHz     (99,93%)
       {}      dtlb_load_misses.walk_pending:u
       {}      dtlb_store_misses.walk_pending:u
       {} msec task-clock:u      #    {} CPUs utilized

   {} seconds time elapsed
"""


@pytest.mark.parametrize("locale", LOCALES)
def test_numbers_are_those_of_the_locale(file, locale):
    shown = IN_A_LOCALE.format(*LOCALES[locale])
    latin = shown.replace("\u202f", "\u00a0").encode("latin-1", "ignore")
    for content in (shown, *([latin] if locale == "fr_FR" else [])):
        run = read_run(file(content), True)
        assert (run.cycles, run.gpt, run.cpus, run.seconds) == (1234567, 234567, 2.5, 0.5)


def cells(mark, *more, point=".", group=(), modes=":u"):
    """Lines of `perf stat -x` with the event's cgroup and other lines."""
    lines = [[str(count), "", name + modes, *group, "1000", f"99{point}50"] for name, count in COUNTS.items()]
    lines.append(
        [
            f"2500{point}00",
            "msec",
            "task-clock",
            *group,
            "1000",
            f"100{point}00",
            f"2{point}500",
            "CPUs utilized",
        ]
    )
    return "\n".join([*(mark.join(line) for line in lines), *more])


@pytest.mark.parametrize("group", [[], ["0.34%"], ["web.slice"], ["/", "0.34%"]])
@pytest.mark.parametrize(
    ("mark", "point"), [(",", "."), (";", ","), ("\t", ","), ("|", "."), (":", "."), ("#", ",")]
)
def test_separated_cells_stand_where_their_form_has_them(file, mark, point, group):
    other = ["7", "", f"cpu/event=0x08{mark}umask=0x01/u", *group, "1000", f"100{point}00"]
    absent = ["<not counted>", "", "branches", *group, "0", f"0{point}00", "", ""]
    path = file(
        cells(
            mark,
            mark.join(other),
            mark.join(absent),
            mark * 6 + f"1{point}5{mark}stalled",
            point=point,
            group=group,
        )
    )
    run = read_run(path)
    assert values(run) == EXPECTED and (run.cpus, run.seconds) == (2.5, 1.0)


@pytest.mark.parametrize(
    "lines",
    [
        cells(",", point=","),  # decimal commas between commas
        cells(",", "1,5,msec,cpu-clock,1000,100,00"),
        "\n".join(f"1.000123456,{line}" for line in cells(",").splitlines()),  # -I
        "\n".join(f"S0,8,{line}" for line in cells(",").splitlines()),
        "\n".join(f"     1.000123456 {line}" for line in text().splitlines()),
        "\n".join(f"CPU0 {line}" for line in text().splitlines()),
        text(mark="_"),
        text().replace("260.012345678", "4:20"),
        text().replace("0.999 CPUs", "0.9.99 CPUs"),
        text().replace("259,900.12", "25,99,00.12"),
        "   CPUs utilized    GHz\n     0.999    2.1\n\n  1.0 seconds time elapsed\n",  # --metric-only
        "GHz,insn per cycle,\n2.1,1.3,\n",
    ],
)
def test_other_cells_are_refused_not_guessed(file, lines):
    with pytest.raises(CaptureError, match=r"LC_ALL=C|totals of one run") as refused:
        read_run(file(lines))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("part", ["interval", "cpu", "socket", "thread"])
def test_json_of_a_part_of_a_run_is_refused(file, part):
    lines = "\n".join(json_line(f"{name}:u", count, **{part: "0"}) for name, count in COUNTS.items())
    with pytest.raises(CaptureError, match=f"line 1 = .*{part}: .*totals of one run"):
        read_run(file(lines))


def test_json_numbers_may_have_commas_and_be_none(file):
    line = '{{"counter-value" : "{},000000", "event" : "{}:u", "pcnt-running" : 100,00, "metric-value" : {}}}'
    metrics = ["3,174603", "-nan", "inf", "0,5"]
    lines = [line.format(count, name, m) for (name, count), m in zip(COUNTS.items(), metrics, strict=True)]
    clock = (
        '{"counter-value" : "5000,500000", "unit" : "msec", "event" : "task-clock", "metric-value" : 2,500, '
    )
    run = read_run(file("\n".join([*lines, clock + '"metric-unit" : "CPUs utilized"}'])))
    assert values(run) == EXPECTED and run.cpus == 2.5 and run.seconds == pytest.approx(2.0002)


def hybrid(core, atom, walks=None, inside=False):
    """A run that was on either kind of cores for these percentages of the time."""
    lines = []
    for kind, cycles, ran in (("core", 2000, core), ("atom", 100, atom)):
        for name, count in (("cycles", cycles), (PENDING_LOADS, cycles // 5), (PENDING_STORES, cycles // 50)):
            share = walks if walks and name != "cycles" else ran
            event = f"cpu_{kind}/{name}:u/" if inside else f"cpu_{kind}/{name}/u"
            lines.append(f"{count if ran else '<not counted>'}   {event}   ({share:.2f}%)")
    return "\n".join(lines)


PENDING_LOADS, PENDING_STORES = list(COUNTS)[1:3]


@pytest.mark.parametrize("inside", [False, True])
def test_hybrid_counters_are_those_of_one_kind_of_cores(file, inside):
    assert values(read_run(file(hybrid(99.93, 0.22, inside=inside)), True)) == (2000, 440, 0)
    assert values(read_run(file(hybrid(0, 99.9, inside=inside)), True)) == (100, 22, 0)
    for shares in ((60.1, 39.9), (30, 70), (100, 100)):
        with pytest.raises(CaptureError, match=r"kinds of cores .*taskset"):
            read_run(file(hybrid(*shares, inside=inside)), True, allow_multiplexed=True)
    with pytest.raises(CaptureError, match=r"counted 45 %.*--allow-multiplexed"):  # of one kind: multiplexed
        read_run(file(hybrid(99.9, 0, walks=45, inside=inside)), True)


@pytest.mark.parametrize(("loads", "stores"), [*WALKS[:3], ("page_walks.d_side_cycles", None)])
def test_walks_may_be_named_with_underscores(file, loads, stores):
    counts = {"CPU_CLK_UNHALTED_THREAD": 100, loads: 30} | ({stores: 5} if stores else {})
    run = read_run(file(text({name.replace(".", "_"): count for name, count in counts.items()})), True)
    assert values(run) == (100, 35 if stores else 30, 0)
    once = partial(read_perf_stat(file(text(counts))))
    assert ["count once" in why for why in once] == [True] * ("active" in loads or stores is None)


def test_ways_out_are_those_of_the_cpu(file):
    arm = {"cycles": 100, "dtlb_walk": 3, "l2d_tlb_refill": 9}
    assert what_is_missing(read_perf_stat(file(text(arm)))).startswith("dtlb_walk counts walks; Arm ")
    for absent, way_out in (("<not counted>", "nmi_watchdog=0"), ("<not supported>", "no such counter")):
        with pytest.raises(CaptureError, match=way_out):
            read_run(file(text(dict.fromkeys(COUNTS, absent))))


def test_metrics_percentages_and_deviations_after_an_event_are_passed_over(file):
    rest = "#    2.081 GHz                      ( +-  0.12% )  (95.30%)"
    assert values(read_run(file(text(cycles=rest)))) == EXPECTED
    lines = text().replace("260.012345678 seconds", "260.0123 +- 0.0450 seconds")
    assert read_run(file(lines)).seconds == pytest.approx(260.0123)


def json_line(name, value, running=100.0, **more):
    cell = {
        "counter-value": f"{value:.6f}" if not isinstance(value, str) else value,
        "unit": "",
        "event": name,
    }
    return json.dumps(cell | {"event-runtime": 1000, "pcnt-running": running} | more)


def test_json_lines_are_read(file):
    lines = [json_line(f"{name}:u", count) for name, count in COUNTS.items()]
    lines.append(json_line("", "", **{"metric-value": "1.2", "metric-unit": "GHz"}))
    busy = {"unit": "msec", "metric-value": "2.5", "metric-unit": "CPUs utilized"}
    lines.append(json_line("task-clock", 5000.0, **busy))
    run = read_run(file("\n".join(lines)))
    assert values(run) == EXPECTED and run.cpus == 2.5 and run.seconds == 2.0


@pytest.mark.parametrize(
    "name",
    ["cpu-cycles", "CPU_CLK_UNHALTED.THREAD", "cpu/cycles/u", "cpu_core/cycles/u", "cycles:uG", "cycles"],
)
def test_cycles_have_several_names(file, name):
    others = {key: count for key, count in COUNTS.items() if key != "cycles"}
    modes = "Gu" if name.endswith("G") else "" if name == "cycles" or "-" in name or "." in name else "u"
    lines = [f"{COUNTS['cycles']} {name}"]
    lines += [f"{count} {key}{':' + modes if modes else ''}" for key, count in others.items()]
    assert values(read_run(file("\n".join(lines)))) == EXPECTED


def test_user_mode_is_preferred_where_both_were_counted(file):
    kernel = text({name: 7 for name in COUNTS}, modes="k")
    assert values(read_run(file(text() + kernel))) == EXPECTED


def test_native_runs_need_no_ept(file):
    counts = {name: count for name, count in COUNTS.items() if not name.startswith("ept")}
    assert values(read_run(file(text(counts)), native=True)) == (*EXPECTED[:2], 0.0)
    with pytest.raises(CaptureError, match=r"ept\.walk_pending:u: missing; .*--native"):
        read_run(file(text(counts)))


@pytest.mark.parametrize("missing", [name for name in COUNTS if "store" not in name])
def test_a_missing_counter_is_named(file, missing):
    counts = {name: count for name, count in COUNTS.items() if name != missing}
    with pytest.raises(CaptureError, match=f"event = {missing}.*missing") as refused:
        read_run(file(text(counts)))
    assert "given.txt" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("absent", ["<not counted>", "<not supported>"])
@pytest.mark.parametrize("name", list(COUNTS))
def test_a_counter_that_perf_could_not_count_is_named(file, name, absent):
    path = file(text(COUNTS | {name: absent}, **{name.replace(".", "__"): "(0.00%)"}))
    if (name, absent) == ("dtlb_store_misses.walk_pending", "<not supported>"):
        assert read_run(path).gpt == COUNTS["dtlb_load_misses.walk_pending"]
        return
    with pytest.raises(CaptureError, match=f"{name}.*{absent}"):
        read_run(path)


@pytest.mark.parametrize(
    ("running", "refused"), [("(89.99%)", True), ("(90.00%)", False), ("(31,09%)", True)]
)
def test_counters_scaled_from_below_90_percent_are_refused_unless_allowed(file, running, refused):
    path = file(text(ept__walk_pending=running))
    if refused:
        with pytest.raises(
            CaptureError, match=r"ept\.walk_pending:u = counted (89\.99|31\.09) % of the time"
        ):
            read_run(path)
    assert values(read_run(path, allow_multiplexed=True)) == EXPECTED


def test_multiplexing_is_seen_in_every_form(file):
    rows = [f"{count},,{name},1000,45.00,," for name, count in COUNTS.items()]
    cells = [json_line(name, count, running=45.0) for name, count in COUNTS.items()]
    for content in (rows, cells):
        with pytest.raises(CaptureError, match="cycles = counted 45 % of the time"):
            read_run(file("\n".join(content)))


@pytest.mark.parametrize("percentage", ["145.00", "many", "-3.0", "nan"])
def test_a_percentage_that_is_none_is_refused(file, percentage):
    rows = [f"{count},,{name},1000,{percentage},," for name, count in COUNTS.items()]
    with pytest.raises(CaptureError, match=r"line 1 = .*LC_ALL=C"):
        read_run(file("\n".join(rows)))


def test_two_runs_in_one_file_and_other_modes_than_those_of_cycles_are_refused(file):
    with pytest.raises(CaptureError, match=r"counted in lines 4 and .* totals of one run"):
        read_run(file(text() + text()))
    lines = text({"cycles": 5}) + text({n: c for n, c in COUNTS.items() if n != "cycles"}, modes="uk")
    with pytest.raises(CaptureError, match="counted for ku, cycles for u"):
        read_run(file(lines))


def test_nested_walks_that_are_not_told_apart_are_refused(file):
    counts = {"cycles": 100, "dtlb_load_misses.walk_duration": 30, "dtlb_store_misses.walk_duration": 5}
    path = file(text(counts))
    assert values(read_run(path, native=True)) == (100.0, 35.0, 0.0)
    assert one_walker(read_perf_stat(path)) and not one_walker(read_perf_stat(file(text(), "other")))
    with pytest.raises(CaptureError, match="does not tell nested walks apart"):
        read_run(path)


@pytest.mark.parametrize("kind", ["pending", "duration", "active"])
def test_walks_of_loads_alone_are_taken_for_what_they_are(file, kind):
    counts = {"cycles": 100, f"dtlb_load_misses.walk_{kind}": 30}
    path = file(text(counts))
    assert values(read_run(path, native=True)) == (100.0, 30.0, 0.0)
    assert partial(read_perf_stat(path))[-1] == (
        f"dtlb_store_misses.walk_{kind}: not counted: walk cycles are those of loads alone"
    )
    assert partial(read_perf_stat(file(text(), "whole"))) == ()
    stores = file(text({"cycles": 100, f"dtlb_store_misses.walk_{kind}": 30}), "stores")
    with pytest.raises(CaptureError, match=rf"dtlb_load_misses\.walk_{kind}:u: missing"):
        read_run(stores, native=True)


@pytest.mark.parametrize(("loads", "stores", "walk"), [(30, 5, 35), (80, 70, 100), (100, 100, 100)])
def test_cycles_with_any_walker_busy_are_within_the_run(file, loads, stores, walk):
    counts = {"dtlb_load_misses.walk_active": loads, "dtlb_store_misses.walk_active": stores}
    path = file(text({"cycles": 100} | counts))
    assert values(read_run(path, native=True)) == (100.0, walk, 0.0)
    assert "count once" in partial(read_perf_stat(path))[0] and not one_walker(read_perf_stat(path))
    with pytest.raises(CaptureError, match="does not tell nested walks apart"):
        read_run(path)
    both = file(text(COUNTS | counts), "both")
    assert values(read_run(both)) == EXPECTED and partial(read_perf_stat(both)) == ()
    assert {name.split(".")[1] for name in walk_events(read_perf_stat(both))} == {"walk_pending"}


def test_entries_that_memory_served_are_those_of_haswell_and_broadwell(file):
    """Names as in the kernel's pmu-events/arch/x86/broadwell/virtual-memory.json."""
    served = {
        f"PAGE_WALKER_LOADS.DTLB_{by}": n
        for by, n in zip(["L1", "L2", "L3", "MEMORY"], [10, 20, 30, 40], strict=True)
    }
    assert read_run(file(text(COUNTS | served))).from_memory == pytest.approx(0.4)
    assert read_run(file(text(COUNTS | dict.fromkeys(served, 0)), "none")).from_memory is None
    unusable = file(text(COUNTS | dict.fromkeys(served, "<not supported>")), "unusable")
    assert values(read_run(unusable)) == EXPECTED and read_run(unusable).from_memory is None
    served.popitem()
    assert read_run(file(text(COUNTS | served), "three")).from_memory is None


# `perf report -D` of IBS op samples: the example of the kernel's tools/perf/Documentation/perf-amd-ibs.txt,
# some fields left out, then samples by the bits of arch/x86/include/asm/amd/ibs.h.

IBS_EXAMPLE = """\
ibs_op_ctl:\t000002c30006186a MaxCnt    100000 L3MissOnly 0 En 1 Val 1 CntCtl 0=cycles CurCnt       707
IbsOpRip:\tffffffff8204aea7
ibs_op_data:\t0000010002550001 CompToRetCtr     1 TagToRetCtr   597 BrnRet 0  RipInvalid 0 BrnFuse 0
ibs_op_data3:\t0000000031960092 LdOp 0 StOp 1 DcL1TlbMiss 0 DcL2TlbMiss 0 DcMissLat     0 TlbRefillLat     0
IbsDCLinAd:\tff110008a5398920
0 118629299983995 0x17e310 [0x78]: PERF_RECORD_SAMPLE(IP, 0x4001): 0/0: 0xffffffff8204aea7 period: 9 addr: 0
"""


def ibs_of(latency, address, cpu=0, pid=7, **other):
    """With address, CPU and process."""
    who = f"{cpu} 118629299983995 0x17e310 [0xd8]: PERF_RECORD_SAMPLE(IP, 0x2): {pid}/9: 0x401000 period: 9"
    return f"{ibs(latency, **other)}IbsDCLinAd:\t{address:016x}\nIbsDCPhysAd:\t{4096:016x}\n{who}\n"


def ibs(latency, l2_miss=1, valid=1, rip=0x401000, control=1 << 19, printed=None):
    data3 = 1 | 1 << 2 | l2_miss << 3 | valid << 18 | latency << 48
    shown = latency if printed is None else printed
    return (
        f"ibs_op_ctl:\t{control:016x} MaxCnt    100000 En 1 Val 1 CntCtl 1=uOps CurCnt         0\n"
        f"IbsOpRip:\t{rip:016x}\n"
        f"ibs_op_data3:\t{data3:016x} LdOp 1 StOp 0 DcL1TlbMiss 1 DcL2TlbMiss {l2_miss}"
        f" DcPhyAddrValid {valid} DcMissLat     0 TlbRefillLat {shown:5}\n"
    )


def test_refills_are_those_of_ops_that_missed_both_tlbs(file):
    kept = [100 + k for k in range(200)]
    others = [
        ibs(9999, l2_miss=0),
        ibs(9999, valid=0),
        ibs(0),
        ibs(9999, rip=0xFFFFFFFF81000000),
        IBS_EXAMPLE,
    ]
    path = file("".join([*others, *map(ibs, kept), *others]), "ibs")
    found = read_refills(path)
    assert found.mean == pytest.approx(199.5) and found.samples == 200 and not found.by_ops
    assert found.error == pytest.approx(200 / 12**0.5 / 200**0.5, rel=0.01)  # of a uniform distribution
    assert read_refills(path, user=False).samples == 202
    assert read_refills(file("".join(map(ibs, kept)), "ops")).by_ops


def test_refills_by_the_node_of_cpu_and_leaf_table_are_the_means_of_their_samples(file):
    """Two leaf tables, each on a node: near refills take 100 and 200 cycles, far ones 300 and 500."""
    at = [1 << 30, (1 << 30) + (1 << 21)]
    snapshot = build_snapshot([(at[0], 1), (at[1], 2)], nodes=2, table_nodes=(1, 0))
    home = dict(zip(snapshot.guest.base.tolist(), snapshot.guest.node.tolist(), strict=True))
    cpus = [node.cpus[0] for node in snapshot.topology.nodes]
    text = [
        ibs_of(cycles, address + 4096 * k, cpus[cpu])
        for address in at
        for cpu in (0, 1)
        for k, cycles in enumerate((100, 200) if home[address] == cpu else (300, 500))
    ]
    away = ibs_of(9999, 1 << 40) + ibs(70) + ibs_of(9999, at[0], l2_miss=0) + IBS_EXAMPLE
    path = file("".join(text) * 20 + away, "ibs")
    found = refill_times(snapshot, refills(path))
    assert found.mean.tolist() == [[150, 400], [400, 150]] and (found.samples == 40).all()
    assert found.error == pytest.approx(np.array([[50, 100], [100, 50]]) / 39**0.5)
    assert (found.nodes, found.left_out) == ((0, 1), 2)
    others = refills(file("".join(text) * 20 + ibs_of(9999, at[0], pid=8), "two"))
    with pytest.raises(UsageError, match="samples of 2 processes, 7 to 8: name one with --pid"):
        refill_times(snapshot, others)
    assert (refill_times(snapshot, others, 7).mean == found.mean).all()
    with pytest.raises(UsageError, match="no CPU and address in any of 100"):
        refill_times(snapshot, refills(file(ibs(70) * 100, "plain")))
    with pytest.raises(UsageError, match="nested walks"):
        refill_times(build_snapshot([(at[0], 1)], []), others)


@pytest.mark.parametrize("event", ["l2_dtlb_misses", "ls_l1_d_tlb_miss.all_l2_miss"])
def test_amd_walk_cycles_are_misses_times_their_mean_latency(file, event):
    stat = read_perf_stat(file(text({"cycles": 100_000, event: 30})))
    samples = file(ibs(100) * 100 + ibs(300) * 100, "ibs")
    run, why = with_refills(read_run(stat.path, native=True), stat, samples, native=True)
    assert (run.gpt, run.ept, run.walks) == (6000, 0, 30) and "200 IBS samples by ops" in why
    with pytest.raises(CaptureError, match="native runs only"):
        with_refills(run, stat, samples, native=False)
    for other in (COUNTS, {"cycles": 100, "ls_l1_d_tlb_miss.all": 30}):  # .all: with hits of the L2 TLB
        stat = read_perf_stat(file(text(other)))
        with pytest.raises(CaptureError, match="go with a count of l2_dtlb_misses"):
            with_refills(run, stat, samples, native=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\0\xff" * 50, "= 0: samples that missed both TLBs: expected 100"),
        (IBS_EXAMPLE * 200, "= 0"),
        (ibs(70) * 99, "= 99"),
        (ibs(70)[:-2] * 200, "register say 70"),
        (ibs(70, printed=71) * 200, "TlbRefillLat 71: bits 48-63 of its register say 70"),
        (ibs(70, control=1 << 63) * 200, "record without l3missonly and ldlat"),
        ("ibs_op_data3:\t" + "f" * 17 + "\n", "= 0"),
    ],
)
def test_texts_without_refills_are_refused_in_one_line(file, content, why):
    with pytest.raises(CaptureError) as refused:
        read_refills(file(content, "ibs"))
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_amd_counts_walks_but_not_their_cycles(file):
    counts = {"cycles": 100, "ls_l1_d_tlb_miss.all_l2_miss": 30}
    assert read_run(file(text(counts))) == MeasuredRun(100.0, None, None, 260.012345678, 0.999)
    assert read_run(file(text(counts)), native=True).ept == 0.0


def test_instructions_and_the_sizes_of_pages_are_part_of_a_run(file):
    sizes = {"dtlb_load_misses.walk_completed_4k": 60, "dtlb_store_misses.walk_completed_2m_4m": 20}
    sizes |= {"dtlb_load_misses.walk_completed_1g": 20, "instructions": 77}
    run = read_run(file(text(COUNTS | sizes)))
    assert run.instructions == 77 and run.huge_walks == pytest.approx(0.4)
    plain = read_run(file(text(), "plain"))
    assert plain.instructions is None and plain.huge_walks is None


def test_walks_are_those_for_loads_and_for_stores_by_size_or_in_all(file):
    loads = {"dtlb_load_misses.walk_completed_4k": 60, "dtlb_load_misses.walk_completed_1g": 20}
    stores = {"dtlb_store_misses.walk_completed_4k": 7}
    assert read_run(file(text(COUNTS | loads | stores))).walks == 87
    whole = {"dtlb_load_misses.walk_completed": 90}
    assert read_run(file(text(COUNTS | loads | stores | whole), "whole")).walks == 97
    assert read_run(file(text(COUNTS | loads), "loads")).walks is None
    assert read_run(file(text(), "plain")).walks is None


def test_separated_values_have_an_elapsed_time_if_it_was_counted(file):
    rows = [f"{count},,{name}:u,1000,100.00,," for name, count in COUNTS.items()]
    assert read_run(file("\n".join(rows))).seconds is None
    clocked = [*rows, "260012345678,ns,duration_time,260012345678,100.00,,"]
    assert read_run(file("\n".join(clocked))).seconds == pytest.approx(260.012345678)
    cells = [json_line(name, count) for name, count in COUNTS.items()]
    cells.append(json_line("duration_time", 5_000_000_000))
    assert read_run(file("\n".join(cells))).seconds == 5


def test_an_elapsed_time_alone_is_a_run(file):
    lines = text({"page-faults": 12})
    assert read_run(file(lines)) == MeasuredRun(None, None, None, 260.012345678, 0.999)
    without_clock = lines.replace("seconds time elapsed", "").replace("msec task-clock", "of it")
    with pytest.raises(CaptureError, match=r"cycles.*missing"):
        read_run(file(without_clock))


def test_what_is_missing_is_named_with_the_way_out(file):
    def missing(counts):
        return what_is_missing(read_perf_stat(file(text(counts))))

    assert missing(COUNTS) == ""
    assert missing({"cycles": 1}).startswith("count dtlb_load_misses.walk_pending, dtlb_store_misses")
    assert missing({"instructions": 1}).startswith("count cycles, dtlb_load_misses.walk_pending")
    amd = missing({"cycles": 1, "ls_tablewalker.dside": 3})
    assert amd.startswith("ls_tablewalker.dside counts walks; AMD counts no cycles") and "--remote" in amd


def test_a_native_run_has_no_nested_walks(file):
    assert values(read_run(file(text(COUNTS | {"ept.walk_pending": 0})), native=True))[2] == 0
    assert values(read_run(file(text()), native=True)) == EXPECTED  # refused where it is calibrated


def test_what_the_program_printed_does_not_matter(file):
    noise = "3.14 ratio\n12 apples\n12 apples\nloading 5 %\n1,2,3\n"
    assert values(read_run(file(noise + text()))) == EXPECTED


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"\0\0",
        b"\xff\xfe",
        b"hello\n",
        b"{",
        b"[1]",
        b'{"event": 3}',
        b"1.0 2.0",
        b"A wheel has\n62.4 MiB of it.\n",
        b"<not counted>",
    ],
)
def test_files_without_counters_are_refused_in_one_line(file, content):
    with pytest.raises(CaptureError) as refused:
        read_run(file(content))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("count", ["54.09.680", "1,2,3", "12,3", "1.5"])
def test_a_count_with_odd_groups_is_refused(file, count):
    with pytest.raises(CaptureError, match="no count of events"):
        read_run(file(text(COUNTS | {"cycles": count})))


# Shares of walks by class from the output of classify.


def rows(*counts, names=("Local-Local", "Local-Remote", "Remote-Local", "Remote-Remote")):
    return [
        {"group": "all", "socket": k // len(names), "class": names[k % len(names)], "count": count}
        for k, count in enumerate(counts)
    ]


@pytest.fixture
def classes(tmp_path):
    def write(*parts, what="classify"):
        path = tmp_path / "classes.json"
        path.write_text(json.dumps({"what": what, "result": parts}))
        return path

    return write


def test_sockets_count_by_their_walks(classes):
    leaf = {"weight": "leaf", "rows": rows(1, 0, 0, 0)}
    walks = {"weight": "walks", "rows": rows(10, 20, 30, 40, 0, 0, 0, 100)}
    assert read_class_shares(classes(leaf, walks)) == "LL:0.050000,LR:0.100000,RL:0.150000,RR:0.700000"
    assert read_class_shares(classes(leaf)) == "LL:1.000000,LR:0.000000,RL:0.000000,RR:0.000000"
    native = {"weight": "walks", "rows": rows(1, 3, names=("Local", "Remote"))}
    assert read_class_shares(classes(native)) == "L:0.250000,R:0.750000"


@given(st.lists(st.integers(0, 10**12), min_size=4, max_size=16).filter(any))
def test_any_counts_are_a_placement(tmp_path_factory, counts):
    path = tmp_path_factory.mktemp("c") / "c.json"
    path.write_text(json.dumps({"what": "classify", "result": [{"weight": "walks", "rows": rows(*counts)}]}))
    found = placement(read_class_shares(path))
    assert found.ept is not None and 0 <= found.gpt_share <= 1 and 0 <= found.ept_share <= 1


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "weight"),
        ([3, None], "weight"),
        ([{"weight": "thread"}], "weight = thread"),
        ([{"weight": "walks"}], "no leaf entry"),
        ([{"weight": "walks", "rows": rows(0, 0, 0, 0)}], "rows = 0"),
        ([{"weight": "walks", "rows": rows(-1, 0, 0, 0)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": rows(1.5)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": rows(True)}], "expected a class and a count"),
        ([{"weight": "walks", "rows": [{"class": "Elsewhere", "count": 1}]}], "Elsewhere"),
        ([{"weight": "walks", "rows": [7]}], "rows = 7"),
        ([{"weight": ["walks"]}], "weight = "),
        ([{"weight": "walks", "rows": [{"class": {}, "count": 1}]}], "expected a class and a count"),
    ],
)
def test_another_content_is_refused_by_field(classes, parts, why):
    with pytest.raises(CaptureError, match=why) as refused:
        read_class_shares(classes(*parts))
    assert "classes.json" in str(refused.value) and "\n" not in str(refused.value)


def test_another_answer_is_refused(classes):
    with pytest.raises(CaptureError, match="what = whatif: expected the output of ptanalyze classify"):
        read_class_shares(classes(what="whatif"))


@given(st.binary(max_size=60))
def test_no_other_bytes_are_read(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("c") / "c.json"
    path.write_bytes(content)
    with pytest.raises(CaptureError):
        read_class_shares(path)
