"""The totals of one run as `perf stat -x,` or `perf stat -j` prints them, as a MeasuredRun of the law.

perf-stat(1), CSV FORMAT and JSON FORMAT, in the C locale. A line of a counter that is known, with other cells
than its form has, refuses the file. perf scales counters that were not running all the time and prints the
percentage of the time that they were.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import ptanalyze as pt

MOST_BYTES = 1 << 24
ONE_RUN = "give the totals of one run (no -I, -A, --per-..., --metric-only, -G)"
OTHER_CELLS = f"not a line of `LC_ALL=C perf stat -x,` or `-j`: count with one of them; {ONE_RUN}"
CLOCKS = ("task-clock", "cpu-clock")
ELAPSED = "duration_time"  # ns; the only elapsed time that -x and -j have
UNSUPPORTED = "<not supported>"
ABSENT = {
    UNSUPPORTED: "this CPU or VM has no such counter",
    "<not counted>": "every counter was taken: count fewer events, or free the NMI watchdog's "
    "(sysctl kernel.nmi_watchdog=0)",
}
NUMBER = re.compile(r"[0-9]{1,30}(?:\.[0-9]{1,30})?")
MARK = re.compile(r"\s*(?:[0-9]+(?:\.[0-9]+)?|<not \w+>)([,;|\t])")  # what separates the cells of -x
EVENT = re.compile(r"(?:cpu/)?(?P<name>[A-Za-z][\w.=,-]*)(?:[:/](?P<modifiers>[A-Za-z]*))?")
NO_NUMBER = re.compile(r":\s*-?(?:nan|inf)\b")
OF_A_PART = {
    "interval",
    "cpu",
    "core",
    "die",
    "socket",
    "node",
    "thread",
    "cluster",
    "cache",
    "cgroup",
}  # in -j

# Walk cycles (Intel SDM, volume 3, performance-monitoring events; the kernel's tools/perf/pmu-events):
#
# dtlb_{load,store}_misses.walk_pending   Skylake on: per cycle and busy walker; nested walks not included
# ept.walk_pending                        the same of nested walks
# dtlb_{load,store}_misses.walk_duration  before Skylake: cycles of the walker, nested walks not told apart
# page_walker_loads.dtlb_{l1,l2,l3,memory}  Haswell and Broadwell: entries read, by what served them
#                                         (pmu-events/arch/x86/{haswell,broadwell}/virtual-memory.json; errata
#                                         HSD25, BDM69, BDM98)
#
# AMD counts walks (ls_l1_d_tlb_miss.*_l2_miss, ls_tablewalker.*), Arm too (dtlb_walk), not their cycles: such
# a run has cycles only; a second run with remote tables gives the cost of walks.

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
WALKS = (PENDING, DURATION)  # (loads, stores); the first kind counted is taken
WALK_EVENTS = {name for kind in WALKS for name in kind}
EPT = "ept.walk_pending"
SERVED = tuple(f"page_walker_loads.dtlb_{by}" for by in ("l1", "l2", "l3", "memory"))
HUGE = ("walk_completed_2m_4m", "walk_completed_1g")  # of dtlb_load_misses and dtlb_store_misses
ACCESSES = ("mem_inst_retired.all_{}s", "mem_uops_retired.all_{}s", "l1-dcache-{}s")  # from Skylake on; older
COMPLETED = ("walk_completed_4k", *HUGE)
L2_MISSES = ("l2_dtlb_misses", "ls_l1_d_tlb_miss.all_l2_miss")  # AMD's event 0x45, umask 0xf0: any page size
BY_REMOTE = "add a run with remote tables (--remote)"
COUNT_WALKS = {  # beginnings of names: whose, and the way out
    ("ls_l1_d_tlb_miss", "ls_tablewalker", "bp_l1_tlb_miss_l2_tlb_miss", "l2_dtlb_misses"): "AMD counts no "
    f"cycles of walks: {BY_REMOTE}",
    ("dtlb_walk", "itlb_walk", "l1d_tlb", "l2d_tlb"): f"Arm counts no cycles of walks: {BY_REMOTE}",
}
SIZES = tuple(f"dtlb_{kind}_misses.{size}" for kind in ("load", "store") for size in COMPLETED)
KNOWN = {*CYCLES, *WALK_EVENTS, EPT, *SERVED, *SIZES, *L2_MISSES, *CLOCKS, ELAPSED}


@dataclass(frozen=True)
class Counter:
    """One event: `value` None where it cannot be used, for `trouble`; `running`: percent of the time counted.

    modes  the letters of u k h G H that were given; cpus: CPUs busy, beside a clock
    """

    name: str
    modes: str
    value: float | None
    running: float
    line: int
    trouble: str = ""
    unit: str = ""
    cpus: float | None = None


@dataclass(frozen=True)
class PerfStat:
    """counters by (name, modes), seconds elapsed, CPUs utilized."""

    path: str
    counters: dict[tuple[str, str], Counter] = field(default_factory=dict)
    seconds: float | None = None
    cpus: float | None = None


def read_perf_stat(path: str | PathLike[str]) -> PerfStat:
    """PerfStat of a file in either form; InputError where it is not one."""
    path = Path(path)
    if path.is_dir():
        raise pt.errors.InputError(
            path, "file", "a directory", "give a file that `perf stat -x, -o FILE` wrote"
        )
    lines = pt.safe_files.read_given(path, MOST_BYTES).decode("utf-8", "replace").splitlines()
    numbered = [(at, line) for at, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]
    mark = next((match[1] for _, line in numbered if (match := MARK.match(line))), ",")
    is_json = bool(numbered) and numbered[0][1].lstrip().startswith("{")
    counters: list[Counter] = []
    for at, line in numbered:
        try:
            cells = _json(line) if is_json else _cells(line, mark)
            if cells is not None:
                counters.append(_counter(at, *cells))
        except ValueError as error:
            raise pt.errors.InputError(path, f"line {at}", repr(line.strip()[:40]), str(error)) from None
    if not any(counter.value is not None or counter.name in CYCLES for counter in counters):
        why = f"no counter of `perf stat -x,` or `-j` in it: {ONE_RUN}"
        raise pt.errors.InputError(path, "contents", repr(lines[0][:30] if lines else ""), why)
    return PerfStat(str(path), _by_name(counters), *_seconds_and_cpus(counters))


Cells = tuple[str, str, str, str, str]  # value, unit, event, percentage of the time, CPUs busy


def _cells(line: str, mark: str) -> Cells | None:
    """Cells of a line of -x: value, unit, event[, variance %], time, percentage[, metric, its unit].

    None for a line without a counter; ValueError for other cells beside the name of a known one.
    """
    value, unit, event, *rest = (line.strip() + 2 * mark).split(mark)
    rest = rest[:-2]
    while event.count("/") % 2 and rest:  # cpu/event=0x08,umask=0x01/
        event = f"{event}{mark}{rest.pop(0)}"
    if rest and rest[0].endswith("%"):
        rest = rest[1:]
    is_counter = (NUMBER.fullmatch(value) or value in ABSENT) and re.fullmatch("[A-Za-z/%]*", unit)
    if not is_counter or not re.match("[A-Za-z]", event) or len(rest) not in (2, 4):
        if any(name in line.lower() for name in KNOWN):
            raise ValueError(OTHER_CELLS)
        return None
    cpus = rest[2] if len(rest) == 4 and rest[3].startswith("CPUs") else ""
    return value, unit, event, rest[1], cpus


def _json(line: str) -> Cells | None:
    """Cells of a line of -j; None for one without a counter."""
    try:
        record = pt.safe_files.plain_json(NO_NUMBER.sub(": null", line).encode())
    except pt.safe_files.Undecodable:
        record = None
    if not isinstance(record, dict):
        raise ValueError("not a line of JSON")
    if parts := OF_A_PART & {*record}:
        raise ValueError(f"{min(parts)}: {ONE_RUN}")
    if not record.get("event") or "counter-value" not in record:
        return None
    value, unit, event, running, cpus = (
        str(record.get(name, "")).strip()
        for name in ("counter-value", "unit", "event", "pcnt-running", "metric-value")
    )
    return value, unit, event, running or "100", cpus if "CPUs" in str(record.get("metric-unit")) else ""


def _counter(at: int, text: str, unit: str, event: str, percent: str, busy: str) -> Counter:
    """Counter of a line; ValueError where a cell of a known counter is not a number."""
    match = EVENT.match(event)
    name, letters = (match["name"].lower(), match["modifiers"] or "") if match else (event.lower(), "")
    modes = "".join(sorted({*letters} & {*"ukhGH"}))
    cells = text, percent, busy
    value, running, cpus = (float(cell) if NUMBER.fullmatch(cell) else None for cell in cells)
    if running is None or running > 100 or (busy and cpus is None):
        raise ValueError(f"its percentage of the time, or of CPUs, is not a number: {OTHER_CELLS}")
    trouble = f"{text}: {ABSENT[text]}" if text in ABSENT else ""
    if value is None and not trouble:
        trouble = f"{text[:30]!r} is not a count of events: {OTHER_CELLS}"
        if name in KNOWN:
            raise ValueError(trouble)
    return Counter(name, modes, value, running, at, trouble, unit, cpus)


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
    """Elapsed seconds by duration_time, or by what a clock's own metric says; CPUs likewise."""

    def first(*names: str, unit: str) -> float | None:
        return next((row.value for row in rows if row.name in names and row.value and unit in row.unit), None)

    busy_ms, elapsed_ns = first(*CLOCKS, unit="msec"), first(ELAPSED, unit="")
    cpus = next((row.cpus for row in rows if row.cpus is not None), None)
    seconds = elapsed_ns / 1e9 if elapsed_ns else None
    if seconds is None and busy_ms and cpus:
        seconds = busy_ms / 1000 / cpus
    if cpus is None and busy_ms and seconds:
        cpus = busy_ms / 1000 / seconds
    return seconds, cpus


def walk_events(stat: PerfStat) -> tuple[str, ...]:
    """Names of the events that walk cycles are taken from, without the ePT's; () where there are none."""
    names = {name for name, _ in stat.counters}
    kind = next((kind for kind in WALKS if names & {*kind}), ())
    # in some mode: other events were not asked for, or the CPU has none
    there = {name for (name, _), of in stat.counters.items() if not of.trouble.startswith(UNSUPPORTED)}
    return tuple(name for name in kind if "store" not in name or name in there)


def partial(stat: PerfStat) -> str:
    """Why walk cycles of the file are at least what was counted; "" where they are all."""
    events = walk_events(stat)
    if len(events) != 1:
        return ""
    return f"{events[0].replace('load', 'store')}: not counted: walk cycles are those of loads alone"


def one_walker(stat: PerfStat) -> bool:
    """Whether the counters are those of CPUs with a single page walker (walk_duration; Broadwell has two)."""
    names = {name for name, _ in stat.counters}
    return bool(names & {*DURATION}) and not names & {*PENDING}


def walk_run(stat: PerfStat, native: bool = False, allow_multiplexed: bool = False) -> pt.law.MeasuredRun:
    """MeasuredRun from the counters of a PerfStat; `native`: no ePT counter is expected.

    InputError names the file, the counter and its value: missing, not counted, not supported, scaled below
    90 % (unless allowed), twice in the file, or nested walks not told apart. Stores may be missing, or not
    supported by the CPU: see `partial`.
    """
    modes = modes_of(stat)
    names = {name for name, letters in stat.counters if letters == modes}
    if stat.seconds and not {name for name, _ in stat.counters} & {*CYCLES, *WALK_EVENTS, EPT}:
        return pt.law.MeasuredRun(seconds=stat.seconds, cpus=stat.cpus)
    cycles = value_of(stat, first_of(stat, CYCLES, modes) or "cycles", modes, allow_multiplexed)
    gpt, ept = _walk_cycles(stat, names, modes, native, allow_multiplexed)
    counter = stat.counters.get(("instructions", modes))
    return pt.law.MeasuredRun(
        cycles,
        gpt,
        ept,
        stat.seconds,
        stat.cpus,
        None if counter is None else counter.value,
        _huge(stat, modes),
        _walks(stat, modes),
        _from_memory(stat, modes, allow_multiplexed),
        _accesses(stat, modes),
    )


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
        raise pt.errors.InputError(stat.path, "event", events[0], why)
    gpt = sum(value_of(stat, name, modes, allow_multiplexed) for name in events or PENDING)
    nested = not native or EPT in names  # counted natively: 0, else it was no native run
    return gpt, value_of(stat, EPT, modes, allow_multiplexed) if nested else 0.0


def _huge(stat: PerfStat, modes: str) -> float | None:
    """Share of the walks that ended at pages above 4 KiB; None where they were not counted by size."""

    def walks(sizes: Iterable[str]) -> float:
        counters = (
            stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))
            for kind in ("load", "store")
            for size in sizes
        )
        return sum(counter.value or 0.0 for counter in counters if counter is not None)

    every = walks(COMPLETED)
    return walks(HUGE) / every if every else None


def _walks(stat: PerfStat, modes: str) -> float | None:
    """Completed walks for loads and stores, in all or by size; None unless both kinds were counted."""
    every = 0.0
    for kind in ("load", "store"):
        by_size = [
            counter.value
            for size in COMPLETED
            if (counter := stat.counters.get((f"dtlb_{kind}_misses.{size}", modes))) is not None
        ]
        total = stat.counters.get((f"dtlb_{kind}_misses.walk_completed", modes))
        values = by_size if total is None else [total.value]
        if not values or None in values:
            return None
        every += sum(value for value in values if value is not None)
    return every or None


def _accesses(stat: PerfStat, modes: str) -> float | None:
    """Loads and stores; None unless both were counted, for most of the time."""
    for kind in ACCESSES:
        counters = [stat.counters.get((kind.format(what), modes)) for what in ("load", "store")]
        counted = [c.value for c in counters if c is not None and c.value and c.running >= LEAST_RUNNING]
        if len(counted) == len(counters):
            return sum(counted)
    return None


def _from_memory(stat: PerfStat, modes: str, allow_multiplexed: bool) -> float | None:
    """Share of the entries read in walks for data that memory served; None unless all four were counted."""
    counters = [stat.counters.get((name, modes)) for name in SERVED]
    least = 0.0 if allow_multiplexed else LEAST_RUNNING
    served = [c.value for c in counters if c is not None and c.value is not None and c.running >= least]
    every = sum(served)
    return served[-1] / every if len(served) == len(SERVED) and every else None


def modes_of(stat: PerfStat) -> str:
    """Privilege letters that cycles were counted with: user mode where there is a choice."""
    for wanted in ("u", "Gu", ""):
        if first_of(stat, CYCLES, wanted):
            return wanted
    return next((letters for name, letters in stat.counters if name in CYCLES), "")


def first_of(stat: PerfStat, names: Iterable[str], modes: str) -> str | None:
    return next((name for name in names if (name, modes) in stat.counters), None)


def value_of(stat: PerfStat, name: str, modes: str, allow_multiplexed: bool) -> float:
    """Count of an event; InputError where it is missing, absent, or was counted for too short a time."""
    counter = stat.counters.get((name, modes))
    shown = f"{name}:{modes}" if modes else name
    if counter is None:
        other = [letters or "all modes" for known, letters in stat.counters if known == name]
        why = f"counted for {', '.join(other)}, cycles for {modes or 'all modes'}" if other else "missing"
        if name == EPT and not other:
            why += "; for a run without a virtual machine say --native"
        raise pt.errors.InputError(stat.path, "event", shown, f"{why}; count all of them in one run")
    if counter.value is None:
        raise pt.errors.InputError(stat.path, "event", shown, counter.trouble)
    if counter.running < LEAST_RUNNING and not allow_multiplexed:
        why = (
            f"below {LEAST_RUNNING:g} % perf's scaling is a guess: count fewer events, or --allow-multiplexed"
        )
        raise pt.errors.InputError(stat.path, shown, f"counted {counter.running:g} % of the time", why)
    return counter.value
