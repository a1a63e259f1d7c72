"""Output of `perf stat`: text for people, `-x` separated values, or `-j` JSON lines, of one run in total.

Each form cuts a line into the same cells (perf-stat(1), CSV FORMAT and JSON FORMAT); numbers are those of any
locale, where that leaves no doubt. Lines without a counter are skipped; a line of a counter that is known,
with other cells than its form has, refuses the file. perf scales counters that were not running all the time
and says for which percentage of the time they were.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...core.errors import InputError
from ...core.safe_files import Undecodable, plain_json, read_given
from ...cost.law import MeasuredRun

Cells = dict[str, str | None]  # value, unit, event, running, cpus; {} of a line without a counter

MOST_BYTES = 1 << 24
ONE_RUN = "give the totals of one run (no -I, -A, --per-..., --metric-only, one cgroup)"
OTHER_CELLS = f"not as perf stat prints it in the C locale: record with LC_ALL=C; {ONE_RUN}"
CLOCKS = ("task-clock", "cpu-clock")
ELAPSED_EVENT = "duration_time"  # ns; the only elapsed time that -x and -j have
ELAPSED_TEXT = "seconds time elapsed"
UNSUPPORTED = "<not supported>"
ABSENT = {
    UNSUPPORTED: "this CPU or VM has no such counter",
    "<not counted>": "every counter was taken: count fewer events, or free the NMI watchdog's "
    "(sysctl kernel.nmi_watchdog=0)",
}
GAP = "[ .,'\u00a0\u2009\u202f\u2019\u066c\ufffd]"
MOST_DIGITS = 60
POINT = "[.,\u066b]"
DECIMAL = re.compile(rf"(?P<whole>[0-9]+)(?:{POINT}(?P<part>[0-9]+))?")
# perf groups the values of its text alone, and gives them two decimals or none; India has groups of two
GROUPED = re.compile(
    rf"(?P<whole>[0-9]{{1,3}}(?P<mark>{GAP})[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
    rf"|[0-9]{{1,2}}(?:,[0-9]{{2}})+,[0-9]{{3}}(?!,)|[0-9]+)(?:(?!(?P=mark)){POINT}(?P<part>[0-9]{{2}}))?"
)
LINE = re.compile(
    rf"\s*(?P<value>[0-9]+(?:(?:{GAP}|{POINT})[0-9]+)*|<not counted>|<not supported>)\s+(?:\+-\s*\S+\s+)?"
    rf"(?:(?P<unit>msec|ns)\s+)?(?P<event>{ELAPSED_TEXT}\b|(?!seconds\s)[A-Za-z][\w.:/=,%@-]*)"
    rf"(?:\s[^#]*#\s*(?P<cpus>\S+)\s+CPUs\b)?"
    rf"(?:\s.*\((?P<running>[0-9]{{1,3}}(?:{POINT}[0-9]+)?)\s?%\)\s*)?(?:\s.*)?"
)
SEPARATOR = re.compile(
    rf"\s*(?:[0-9]+(?:{POINT}[0-9]+)?|<not \w+>)([^\w\s.'<>()/%^\\-]|\t|\^)[A-Za-z/%]*\1[A-Za-z]"
)
OPEN_NUMBER = re.compile(r"(:\s*-?[0-9]+),([0-9]+)(?=\s*[,}])")  # of JSON where decimals follow a comma
NO_NUMBER = re.compile(r":\s*-?(?:nan|inf)\b")
OF_A_PART = {"interval", "cpu", "core", "die", "socket", "node", "thread", "cluster", "cache"}  # keys of -j
PRIVILEGES = re.compile(r"(?P<name>.+?)(?::(?P<modifiers>[A-Za-z]+))?")
OF_A_PMU = re.compile(
    r"(?P<pmu>cpu|cpu_\w+|armv\d\w*)/(?P<name>[\w.-]+)(?P<modifiers>:[A-Za-z]+/|/[A-Za-z]*)"
)


@dataclass(frozen=True)
class Counter:
    """One event: `value` None where it cannot be used, for `trouble`; `running`: percent of time counted.

    cores  the kind of cores that it counts on, of a CPU with several; cpus: CPUs busy, beside a clock
    """

    name: str
    modes: str
    value: float | None
    running: float
    line: int
    trouble: str = ""
    unit: str = ""
    cores: str = ""
    cpus: float | None = None


@dataclass(frozen=True)
class PerfStat:
    """counters by (name, modes: the letters of u k h G H that were given), seconds elapsed, CPUs utilized."""

    path: str
    counters: dict[tuple[str, str], Counter] = field(default_factory=dict)
    seconds: float | None = None
    cpus: float | None = None


def read_perf_stat(path: str | PathLike[str]) -> PerfStat:
    """PerfStat of a file in any of the three forms; InputError where it is not one."""
    path = Path(path)
    if path.is_dir():
        raise InputError(path, "file", "a directory", "give a file that `perf stat -o FILE` wrote")
    content = read_given(path, MOST_BYTES)
    if b"\0" in content:
        raise InputError(path, "contents", content[:30], "not the output of perf stat")
    lines = content.decode("utf-8", "replace").splitlines()
    kept = [(at, line) for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    is_json = bool(kept) and kept[0][1].lstrip().startswith("{")
    mark = next((match[1] for _, line in kept if (match := SEPARATOR.match(line))), None)
    pattern, number = (LINE, GROUPED) if mark is None else (_row(mark), DECIMAL)
    rows = []
    for at, line in kept:
        try:
            cells = _json(line) if is_json else _matched(pattern, line)
            if cells:
                rows.append(_counter(at, cells, DECIMAL if is_json else number))
        except ValueError as error:
            raise InputError(path, f"line {at}", repr(line.strip()[:40]), str(error)) from None
    if not any(row.value is not None or row.name in CYCLES for row in rows if row.name != ELAPSED_TEXT):
        start = repr(lines[0][:30] if lines else "")
        raise InputError(path, "contents", start, f"no counter of perf stat in it: {ONE_RUN}")
    return PerfStat(str(path), _by_name(_on_one_kind(rows)), *_seconds_and_cpus(rows))


def _row(mark: str) -> re.Pattern[str]:
    """A line of `-x`: value, unit, event[, cgroup][, variance %][, time, percentage[, metric, its unit]]."""
    m, cell, point = re.escape(mark), rf"[^{re.escape(mark)}]*", r"\." if mark == "," else POINT
    return re.compile(
        rf"\s*(?P<value>[0-9]+(?:{point}[0-9]+)?|<not \w+>){m}(?P<unit>[A-Za-z/%]*){m}"
        rf"(?P<event>[A-Za-z](?:[^/{m}]|/[^/]*/)*(?::[ukhGHpPSDWeIb]+)?)(?:{m}(?=[^{m}A-Za-z/]*[A-Za-z/]){cell})??"
        rf"(?:{m}{cell}%)?(?:{m}[0-9]+{m}(?P<running>[0-9]{{1,3}}(?:{point}[0-9]+)?)"
        rf"(?:{m}(?P<cpus>{cell}){m}CPUs{cell}|{m}{cell}{m}{cell})?)?\s*"
    )


def _matched(pattern: re.Pattern[str], line: str) -> Cells:
    if match := pattern.fullmatch(line):
        return match.groupdict()
    counted = pattern is not LINE and re.match(r"\s*(?:[0-9]|<not)", line)
    names, said = (CANONICAL, _canonical(line)) if counted else ((ELAPSED_TEXT, *CLOCKS), line)
    if any(name in said for name in names):
        raise ValueError(OTHER_CELLS)
    return {}


def _json(line: str) -> Cells:
    try:
        cells = plain_json(NO_NUMBER.sub(": null", OPEN_NUMBER.sub(r"\1.\2", line)).encode())
    except Undecodable:
        cells = None
    if not isinstance(cells, dict):
        raise ValueError("not a line of JSON")
    if parts := OF_A_PART & {*cells}:
        raise ValueError(f"{min(parts)}: {ONE_RUN}")
    names = {"value": "counter-value", "unit": "unit", "event": "event", "running": "pcnt-running"}
    if str(cells.get("metric-unit")).startswith("CPUs"):
        names["cpus"] = "metric-value"
    found: Cells = {ours: str(cells.get(theirs, "")).strip() for ours, theirs in names.items()}
    return found if cells.get("event") and "counter-value" in cells else {}


def _counter(at: int, cells: Cells, form: re.Pattern[str]) -> Counter:
    """Counter of a line; ValueError where a number of a counter that is known is none."""
    name, modes, cores = _name(cells["event"] or "")
    text, unit = cells["value"] or "", cells.get("unit") or ""
    value = _number(text, DECIMAL if name == ELAPSED_TEXT else form)
    running, cpus = _number(cells.get("running") or "100", DECIMAL), _number(cells.get("cpus") or "", DECIMAL)
    if running is None or running > 100 or (cells.get("cpus") and cpus is None):
        raise ValueError(f"its percentage of time counted, or of CPUs, is none: {OTHER_CELLS}")
    trouble = f"{text}: {ABSENT[text]}" if text in ABSENT else ""
    if value is None and not trouble:
        trouble = f"{text[:30]!r} is no count of events: {OTHER_CELLS}"
        if _canonical(name) in CANONICAL:
            raise ValueError(trouble)
    return Counter(name, modes, value, running, at, trouble, unit, cores, cpus)


def _number(text: str, form: re.Pattern[str]) -> float | None:
    match = form.fullmatch(text) if len(text) <= MOST_DIGITS else None
    return match and float(f"{re.sub('[^0-9]', '', match['whole'])}.{match['part'] or 0}")


def _canonical(name: str) -> str:
    """As the kernel's own guide and ocperf write it: with underscores."""
    return name.lower().replace(".", "_")


def _name(event: str) -> tuple[str, str, str]:
    """(name in lower case, privilege letters, kind of cores) of an event as given to perf."""
    match = of_pmu = OF_A_PMU.fullmatch(event)
    match = match or PRIVILEGES.fullmatch(event)
    name, letters = (match["name"], match["modifiers"] or "") if match else (event, "")
    name = CANONICAL.get(_canonical(name), name.lower())
    cores = of_pmu["pmu"] if of_pmu and of_pmu["pmu"] != "cpu" else ""
    return name, "".join(sorted({*letters} & {*"ukhGH"})), cores


def _on_one_kind(rows: list[Counter]) -> list[Counter]:
    """Counters of the kind of cores that the program ran on; in trouble where that were several."""
    ran: dict[str, float] = {}
    for row in rows:
        if row.cores and row.value is not None:
            ran[row.cores] = max(ran.get(row.cores, 0), row.running)
    if len(ran) > 1 and sum(ran.values()) - max(ran.values()) > 100 - LEAST_RUNNING:
        kinds = ", ".join(sorted(ran))
        why = f"the time was shared by kinds of cores ({kinds}): keep the run on one (taskset -c)"
        return [replace(row, value=None, trouble=why) if row.cores else row for row in rows]
    kind = max(ran, key=ran.__getitem__, default="")
    return [row for row in rows if row.cores in ("", kind)]


def _by_name(rows: list[Counter]) -> dict[tuple[str, str], Counter]:
    counters: dict[tuple[str, str], Counter] = {}
    for row in rows:
        key = (row.name, row.modes)
        if key in counters:
            trouble = row.trouble or f"counted in lines {counters[key].line} and {row.line}: {ONE_RUN}"
            row = replace(row, value=None, trouble=trouble)
        counters[key] = row
    return counters


def _seconds_and_cpus(rows: list[Counter]) -> tuple[float | None, float | None]:
    """Elapsed: the text's summary, duration_time, or what a clock's own metric says; CPUs likewise."""

    def first(*names: str, unit: str = "") -> float | None:
        return next((row.value for row in rows if row.name in names and row.value and unit in row.unit), None)

    busy_ms, elapsed_ns = first(*CLOCKS, unit="msec"), first(ELAPSED_EVENT)
    cpus = next((row.cpus for row in rows if row.cpus is not None), None)
    seconds = first(ELAPSED_TEXT) or (elapsed_ns / 1e9 if elapsed_ns else None)
    if seconds is None and busy_ms and cpus:
        seconds = busy_ms / 1000 / cpus
    if cpus is None and busy_ms and seconds:
        cpus = busy_ms / 1000 / seconds
    return seconds, cpus


# The counters of page walks in the output of `perf stat`, as a MeasuredRun of the law.
#
# Walk cycles (Intel SDM, volume 3, performance-monitoring events; the kernel's tools/perf/pmu-events):
#
# dtlb_{load,store}_misses.walk_pending   Skylake on: per cycle and busy walker; nested walks not included
# ept.walk_pending                        the same of nested walks
# dtlb_{load,store}_misses.walk_duration  before Skylake: cycles of the walker, nested walks not told apart
# dtlb_{load,store}_misses.walk_active    cycles with any walker busy: walks that overlap count once
# page_walker_loads.dtlb_{l1,l2,l3,memory}  Haswell and Broadwell: entries read, by what served them
#                                         (pmu-events/arch/x86/{haswell,broadwell}/virtual-memory.json; errata
#                                         HSD25, BDM69, BDM98)
# page_walks.d_side_cycles                Silvermont to Goldmont: cycles with a walk for data under way
#
# Arm counts walks (dtlb_walk), AMD too (ls_l1_d_tlb_miss.*_l2_miss, ls_tablewalker.*,
# bp_l1_tlb_miss_l2_tlb_miss.*), not their cycles: such a run has cycles only, and a second run with remote
# tables has to tell the cost of walks, or IBS its mean latency (below). With a file of elapsed time alone,
# only a second run does.

LEAST_RUNNING = 90.0  # percent of the time: below, perf's scaling is a guess
CYCLES = (
    "cycles",
    "cpu-cycles",
    "cpu_clk_unhalted.thread",
    "cpu_clk_unhalted.thread_p",
    "cpu_clk_unhalted.core",
)
PENDING = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")
DURATION = ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration")
ACTIVE = ("dtlb_load_misses.walk_active", "dtlb_store_misses.walk_active")
D_SIDE = "page_walks.d_side_cycles"
WALKS = (PENDING, DURATION, ACTIVE, (D_SIDE,))  # (loads, stores) or both; the first kind counted is taken
WALK_EVENTS = {name for kind in WALKS for name in kind}
COUNT_ONCE = {*ACTIVE, D_SIDE}  # walks that overlap
EPT = "ept.walk_pending"
SERVED = tuple(f"page_walker_loads.dtlb_{by}" for by in ("l1", "l2", "l3", "memory"))
HUGE = ("walk_completed_2m_4m", "walk_completed_1g")  # of dtlb_load_misses and dtlb_store_misses
COMPLETED = ("walk_completed_4k", *HUGE)
L2_MISSES = ("l2_dtlb_misses", "ls_l1_d_tlb_miss.all_l2_miss")  # AMD's event 0x45, umask 0xf0: any page size
BY_REMOTE = "add a run with remote tables (--remote)"
COUNT_WALKS = {  # beginnings of names: whose, and the way out
    ("ls_l1_d_tlb_miss", "ls_tablewalker", "bp_l1_tlb_miss_l2_tlb_miss", "l2_dtlb_misses"): "AMD counts no "
    f"cycles of walks: {BY_REMOTE}, or count l2_dtlb_misses and add samples of IBS (--ibs)",
    ("dtlb_walk", "itlb_walk", "l1d_tlb", "l2d_tlb"): f"Arm counts no cycles of walks: {BY_REMOTE}",
}
SIZES = tuple(f"dtlb_{kind}_misses.{size}" for kind in ("load", "store") for size in COMPLETED)
CANONICAL = {
    _canonical(name): name
    for name in (
        *CYCLES,
        *WALK_EVENTS,
        EPT,
        *SERVED,
        *SIZES,
        *L2_MISSES,
        *CLOCKS,
        ELAPSED_EVENT,
        ELAPSED_TEXT,
    )
}


def read_run(path: str | PathLike[str], native: bool = False, allow_multiplexed: bool = False) -> MeasuredRun:
    """MeasuredRun of a file of `perf stat` output; `native`: no ePT counter is expected.

    InputError names the file, the counter and its value: missing, not counted, not supported, scaled below
    90 % (unless allowed), twice in the file, or nested walks not told apart. Stores may be missing, or not
    supported by the CPU: see `partial`.
    """
    return walk_run(read_perf_stat(path), native, allow_multiplexed)


def walk_events(stat: PerfStat) -> tuple[str, ...]:
    """Names of the events that walk cycles are taken from, without the ePT's; () where there are none."""
    names = {name for name, _ in stat.counters}
    kind = next((kind for kind in WALKS if names & {*kind}), ())
    return tuple(name for name in kind if "store" not in name or not _without(stat, name))


def _without(stat: PerfStat, name: str) -> bool:
    """Whether no mode of an event was counted: it was not asked for, or the CPU has none."""
    known = [counter.trouble for (other, _), counter in stat.counters.items() if other == name]
    return all(trouble.startswith(UNSUPPORTED) for trouble in known)


def partial(stat: PerfStat) -> tuple[str, ...]:
    """Sentences: why walk cycles of the file are at least what was counted; () where they are all."""
    events, why = walk_events(stat), []
    if events and {*events} <= COUNT_ONCE:
        why.append(f"{events[0]} counts cycles with any walk under way: walks that overlap count once")
    if len(events) == 1 and "load" in events[0]:
        why.append(f"{events[0].replace('load', 'store')}: not counted: walk cycles are those of loads alone")
    return tuple(why)


def one_walker(stat: PerfStat) -> bool:
    """Whether the counters are those of CPUs with a single page walker (walk_duration; Broadwell has two)."""
    names = {name for name, _ in stat.counters}
    return bool(names & {*DURATION}) and not names & {*PENDING}


def walk_run(stat: PerfStat, native: bool = False, allow_multiplexed: bool = False) -> MeasuredRun:
    """MeasuredRun from the counters of a PerfStat; as read_run."""
    modes = _modes(stat)
    names = {name for name, letters in stat.counters if letters == modes}
    every = {name for name, _ in stat.counters}
    if stat.seconds and not every & {*CYCLES, *WALK_EVENTS, EPT}:
        return MeasuredRun(seconds=stat.seconds, cpus=stat.cpus)
    cycles = _value(stat, _first(stat, CYCLES, modes) or "cycles", modes, allow_multiplexed)
    gpt, ept = _walk_cycles(stat, names, modes, native, allow_multiplexed)
    counter = stat.counters.get(("instructions", modes))
    instructions = None if counter is None else counter.value
    if gpt is not None and {*walk_events(stat)} <= COUNT_ONCE and gpt <= 2 * cycles:
        gpt = min(gpt, cycles)  # loads' and stores' walks overlap too: together they are within the run
    huge, walks, memory = (
        _huge(stat, modes),
        _walks(stat, modes),
        _from_memory(stat, modes, allow_multiplexed),
    )
    return MeasuredRun(cycles, gpt, ept, stat.seconds, stat.cpus, instructions, huge, walks, memory)


def what_is_missing(stat: PerfStat) -> str:
    """What to count so that the run alone says how much of it is walks; "" where it does."""
    names = {name for name, _ in stat.counters}
    if names & WALK_EVENTS:
        return ""
    for begins, way_out in COUNT_WALKS.items():
        if counted := sorted(name for name in names if name.startswith(begins)):
            return f"{counted[0]} counts walks; {way_out}"
    add = [name for name in ("cycles", *PENDING, EPT) if name not in names]
    return f"count {', '.join(add)} too (natively without {EPT}), or {BY_REMOTE}"


def _walk_cycles(
    stat: PerfStat, names: set[str], modes: str, native: bool, allow_multiplexed: bool
) -> tuple[float | None, float | None]:
    """(walk cycles in the gPT, in the ePT), None where the CPU or the file has none."""
    if not {name for name, _ in stat.counters} & {*WALK_EVENTS, EPT}:
        return None, 0.0 if native else None
    events = walk_events(stat)
    if not native and not {*events} <= {*PENDING}:
        why = "it does not tell nested walks apart: use it for native runs only"
        raise InputError(stat.path, "event", events[0], why)
    gpt = sum(_value(stat, name, modes, allow_multiplexed) for name in events or PENDING)
    nested = not native or EPT in names  # counted natively: 0, else it was no native run
    return gpt, _value(stat, EPT, modes, allow_multiplexed) if nested else 0.0


def _huge(stat: PerfStat, modes: str) -> float | None:
    """Share of the walks that ended at pages above 4 KiB; None where they were not counted by size."""

    def walks(sizes: Iterable[str]) -> float:
        found = (
            stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))
            for kind in ("load", "store")
            for size in sizes
        )
        return sum(counter.value or 0.0 for counter in found if counter is not None)

    every = walks(COMPLETED)
    return walks(HUGE) / every if every else None


def _walks(stat: PerfStat, modes: str) -> float | None:
    """Completed walks for loads and stores, in all or by size; None unless both kinds were counted."""
    every = 0.0
    for kind in ("load", "store"):
        found = [
            counter.value
            for size in COMPLETED
            if (counter := stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))) is not None
        ]
        total = stat.counters.get((f"dtlb_{kind}_misses.walk_completed", modes))
        values = found if total is None else [total.value]
        if not values or None in values:
            return None
        every += sum(value for value in values if value is not None)
    return every or None


def _from_memory(stat: PerfStat, modes: str, allow_multiplexed: bool) -> float | None:
    """Share of the entries read in walks for data that memory served; None unless all four were counted."""
    found = [stat.counters.get((name, modes)) for name in SERVED]
    least = 0.0 if allow_multiplexed else LEAST_RUNNING
    served = [c.value for c in found if c is not None and c.value is not None and c.running >= least]
    every = sum(served)
    return served[-1] / every if len(served) == len(SERVED) and every else None


def _modes(stat: PerfStat) -> str:
    """Privilege letters that cycles were counted with: user mode where there is a choice."""
    for wanted in ("u", "Gu", ""):
        if _first(stat, CYCLES, wanted):
            return wanted
    return next((letters for name, letters in stat.counters if name in CYCLES), "")


def _first(stat: PerfStat, names: Iterable[str], modes: str) -> str | None:
    return next((name for name in names if (name, modes) in stat.counters), None)


def _value(stat: PerfStat, name: str, modes: str, allow_multiplexed: bool) -> float:
    counter = stat.counters.get((name, modes))
    shown = f"{name}:{modes}" if modes else name
    if counter is None:
        other = [letters or "all modes" for known, letters in stat.counters if known == name]
        why = f"counted for {', '.join(other)}, cycles for {modes or 'all modes'}" if other else "missing"
        if name == EPT and not other:
            why += "; for a run without a virtual machine say --native"
        raise InputError(stat.path, "event", shown, f"{why}; count all of them in one run")
    if counter.value is None:
        raise InputError(stat.path, "event", shown, counter.trouble)
    if counter.running < LEAST_RUNNING and not allow_multiplexed:
        why = (
            f"below {LEAST_RUNNING:g} % perf's scaling is a guess: count fewer events, or --allow-multiplexed"
        )
        raise InputError(stat.path, shown, f"counted {counter.running:g} % of the time", why)
    return counter.value


# AMD: walks times their mean latency by IBS, or latencies by the leaf table's node. `perf report -D` prints
# registers of each sample (the kernel's tools/perf/util/amd-sample-raw.c), then its CPU, time and process
# (perf_evlist__print_tstamp and dump_sample, tools/perf/util/session.c). Bits are those of
# arch/x86/include/asm/amd/ibs.h (once asm/amd-ibs.h). Without DcPhyAddrValid, the latency is bogus on Zen 4
# and newer (commit f04a8a7649f9), and so are the TLB bits on Zen 5.

MOST_IBS_BYTES = 1 << 28
LEAST_REFILLS = 100  # samples: below, a mean of latencies that differ tenfold is a guess
REGISTER = re.compile(
    rb"^(ibs_op_ctl|IbsOpRip|ibs_op_data3|IbsDCLinAd):[ \t]+([0-9a-fA-F]{16})\b([^\n]*)"
    rb"|^(\d{1,5}) \d{1,20} 0x[0-9a-f]{1,16} \[0x[0-9a-f]{1,8}\]: "
    rb"PERF_RECORD_SAMPLE\([^)\n]{1,40}\): (\d{1,9})/",
    re.MULTILINE,
)
PRINTED = re.compile(rb"\bTlbRefillLat +(\d+)")
L3_MISS_ONLY, BY_OPS, LATENCY_FILTER = 1 << 16, 1 << 19, 1 << 63  # of ibs_op_ctl
L1_MISS, L2_MISS, PHYSICAL = 1 << 2, 1 << 3, 1 << 18  # of ibs_op_data3; the refill latency: bits 48-63


class Refill(NamedTuple):
    """An op that missed the L1 and the L2 DTLB: cycles of its refill, its data, who ran it; -1: not told."""

    cycles: int
    address: int
    cpu: int
    pid: int
    by_ops: bool  # whether ops were counted between all samples, not cycles


@dataclass(frozen=True)
class Refills:
    """Cycles of L1 DTLB refills for ops that missed the L2 DTLB too: mean and its standard error."""

    mean: float
    error: float
    samples: int
    by_ops: bool


def read_refills(path: str | PathLike[str], user: bool = True) -> Refills:
    """Refills of `perf report -D` of samples that `perf record -e ibs_op/cnt_ctl=1/ --raw-samples` took.

    user  leave out ops of the kernel, by their address
    Refills that show a latency of 0 were not timed and are left out. InputError for a text without such
    samples, with too few, with samples of slow ops alone, or with lines that contradict their register.
    """
    found = refills(path, user)
    kept = [one.cycles for one in found]
    mean = sum(kept) / len(kept)
    spread = sum((latency - mean) ** 2 for latency in kept) / (len(kept) - 1)
    return Refills(mean, (spread / len(kept)) ** 0.5, len(kept), all(one.by_ops for one in found))


def refills(path: str | PathLike[str], user: bool = True) -> list[Refill]:
    """Those of read_refills one by one; perf prints a sample's registers before its CPU and process."""
    found: list[Refill] = []
    rip, by_ops, open_ = 0, True, False
    for name, register, rest, cpu, pid in REGISTER.findall(read_given(Path(path), MOST_IBS_BYTES)):
        if not name:
            if open_:
                found[-1] = found[-1]._replace(cpu=int(cpu), pid=int(pid))
            open_ = False
            continue
        value = int(register, 16)
        if name == b"ibs_op_ctl":
            rip, by_ops, open_ = 0, by_ops and bool(value & BY_OPS), False
            if value & (L3_MISS_ONLY | LATENCY_FILTER):
                why = "samples of slow ops alone have no mean of all: record without l3missonly and ldlat"
                raise InputError(path, "ibs_op_ctl", register.decode(), why)
        elif name == b"IbsOpRip":
            rip = value
        elif name == b"IbsDCLinAd":
            if open_:
                found[-1] = found[-1]._replace(address=value)
        else:
            printed, latency = PRINTED.search(rest), value >> 48
            if printed and int(printed[1]) != latency:
                shown = f"TlbRefillLat {printed[1].decode()[:20]}"
                raise InputError(path, "ibs_op_data3", shown, f"bits 48-63 of its register say {latency}")
            missed = value & L1_MISS and value & L2_MISS and value & PHYSICAL
            open_ = bool(missed and latency and not (user and rip >> 63))
            if open_:
                found.append(Refill(latency, -1, -1, -1, by_ops))
    if len(found) < LEAST_REFILLS:
        why = (
            f"samples that missed both TLBs: expected {LEAST_REFILLS} or more of `perf report -D` after "
            "`perf record -e ibs_op/cnt_ctl=1/ --raw-samples`"
        )
        raise InputError(path, "ibs_op_data3", len(found), why)
    return [one._replace(by_ops=by_ops) for one in found]


def with_refills(
    run: MeasuredRun, stat: PerfStat, path: str | PathLike[str], native: bool, allow_multiplexed: bool = False
) -> tuple[MeasuredRun, str]:
    """(a Run with walk cycles = L2 DTLB misses x mean refill latency, the sentence that says so).

    Nested walks are part of the latency: native runs only. InputError where L2 DTLB misses were not counted,
    or walk cycles were.
    """
    if not native:
        why = "a refill's latency does not tell nested walks apart: use it for native runs only (--native)"
        raise InputError(path, "ibs_op", "TlbRefillLat", why)
    modes = _modes(stat)
    event = _first(stat, L2_MISSES, modes)
    if walk_events(stat) or event is None:
        found = ", ".join(walk_events(stat)) or "none"
        raise InputError(
            stat.path, "walk counters", found, f"samples of IBS go with a count of {L2_MISSES[0]}"
        )
    refills, walks = read_refills(path, "u" in modes), _value(stat, event, modes, allow_multiplexed)
    drawn = "ops" if refills.by_ops else "cycles, which favours ops after a stall"
    why = (
        f"walk cycles are {event} x {refills.mean:.3g} cycles per refill, standard error {refills.error:.2g} "
        f"({refills.samples:,} IBS samples by {drawn}); the law was fitted on Intel's CPUs"
    )
    return msgspec.structs.replace(run, gpt=walks * refills.mean, ept=0.0, walks=walks), why


# Shares of walks by class, Local-Local to Remote-Remote, from what `ptanalyze classify --json` printed.

NAMES = {
    "Local": "L",
    "Remote": "R",
    "Local-Local": "LL",
    "Local-Remote": "LR",
    "Remote-Local": "RL",
    "Remote-Remote": "RR",
}
WEIGHTS = ("walks", "4k", "leaf")  # the best first


def read_class_shares(path: str | PathLike[str]) -> str:
    """Name of a placement (cost.law) with the shares of all sockets together, weighted by their walks.

    Where the file has no walks, leaf entries are taken. InputError names file, field and value.
    """
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    try:
        raw = plain_json(content[:MOST_BYTES], "classify")
    except Undecodable as error:
        raise error.of(path, InputError) from None
    if not isinstance(raw, dict) or raw.get("what") != "classify" or not isinstance(raw.get("result"), list):
        what = raw.get("what") if isinstance(raw, dict) else type(raw).__name__
        raise InputError(path, "what", what, "expected the output of ptanalyze classify --json")
    parts = {str(part.get("weight")): part for part in raw["result"] if isinstance(part, dict)}
    found = next((parts[weight] for weight in WEIGHTS if weight in parts), None)
    if found is None:
        raise InputError(path, "weight", ", ".join(parts), f"expected one of {', '.join(WEIGHTS)}")
    return _named(path, found.get("rows"))


def _named(path: str | PathLike[str], rows: Any) -> str:
    counts: dict[str, int] = {}
    for row in rows if isinstance(rows, list) else ():
        name, count = (row.get("class"), row.get("count")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or name not in NAMES or type(count) is not int or count < 0:
            raise InputError(path, "rows", str(row)[:60], "expected a class and a count")
        if row.get("group", "all") == "all":
            counts[NAMES[name]] = counts.get(NAMES[name], 0) + count
    total = sum(counts.values())
    if not total:
        raise InputError(path, "rows", total, "no leaf entry and no walk in it")
    return ",".join(f"{name}:{count / total:.6f}" for name, count in counts.items())
