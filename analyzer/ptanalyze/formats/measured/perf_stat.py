"""Output of `perf stat`: text for people, `-x` separated values, or `-j` JSON lines, of one run in total.

Text may be grouped and marked as in any locale (1,234 1.234 1 234 1'234); lines without a counter are
skipped. perf scales counters that were not running all the time and says for which percentage of
the time they were. Fields as in perf-stat(1), CSV FORMAT and JSON FORMAT.
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

Lines = list[tuple[int, str]]  # line numbers from 1, and their text
Said = dict[str, float | None]  # beside the counters: seconds, cpus

MOST_BYTES = 1 << 24
ONE_RUN = "give the totals of one run (no -I, -A, --per-...)"
CLOCKS = ("task-clock", "cpu-clock")
ELAPSED_EVENT = "duration_time"  # ns; the only elapsed time that -x and -j have
UNSUPPORTED = "<not supported>"
ABSENT = ("<not counted>", UNSUPPORTED)
GAP = "[ .,'\u00a0\u2009\u202f\u2019]"
NUMBER = rf"\d+(?:{GAP}\d+)*"
COUNT = rf"\d{{1,3}}(?:(?P<mark>{GAP})\d{{3}}(?:(?P=mark)\d{{3}})*)?|\d+"
EVENT = r"[A-Za-z][\w.:/=,%@-]*"
LINE = re.compile(
    rf"\s*(?P<value>{NUMBER}|<not counted>|<not supported>)\s+(?:(?P<unit>msec|ns)\s+)?(?P<event>{EVENT})"
    r"(?P<rest>\s.*)?"
)
ELAPSED = re.compile(rf"\s*(?P<value>{NUMBER})\s+(?:\+-\s*\S+\s+)?seconds time elapsed\b.*")
RUNNING = re.compile(r"\((\d{1,3}(?:[.,]\d+)?)\s?%\)\s*$")
UTILIZED = re.compile(r"#\s*(\d+[.,]\d+)\s+CPUs utilized")
PRIVILEGES = re.compile(r"(?P<name>.+?)(?::(?P<modifiers>[A-Za-z]+))?")
FIXED = re.compile(r"cpu(?:_core)?/(?P<name>[\w.-]+)/(?P<modifiers>[A-Za-z]*)")


@dataclass(frozen=True)
class Counter:
    """One event: `value` None where it cannot be used, for `trouble`; `running`: percent of time counted."""

    name: str
    modes: str
    value: float | None
    running: float
    line: int
    trouble: str = ""
    unit: str = ""


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
    if kept and kept[0][1].lstrip().startswith("{"):
        rows, extra = _json(path, kept)
    elif separator := _separator(kept):
        rows, extra = _separated(kept, separator)
    else:
        rows, extra = _text(kept)
    if not any(row.value is not None or row.name in CYCLES for row in rows):
        start = repr(lines[0][:30] if lines else "")
        raise InputError(path, "contents", start, f"no counter of perf stat in it: {ONE_RUN}")
    return PerfStat(str(path), _by_name(rows), *_extra(rows, extra))


def _by_name(rows: list[Counter]) -> dict[tuple[str, str], Counter]:
    counters: dict[tuple[str, str], Counter] = {}
    for row in rows:
        key = (row.name, row.modes)
        if key in counters:
            trouble = f"counted in lines {counters[key].line} and {row.line}: {ONE_RUN}"
            row = replace(row, value=None, trouble=trouble)
        counters[key] = row
    return counters


def _extra(rows: list[Counter], extra: Said) -> tuple[float | None, float | None]:
    """Seconds and CPUs, from the summary of text, from duration_time, or from a clock's own metric."""
    clocks = (row.value for row in rows if row.name in CLOCKS and row.unit == "msec")
    busy_ms = next(filter(None, clocks), None)
    cpus = extra.get("cpus")
    elapsed_ns = next((row.value for row in rows if row.name == ELAPSED_EVENT), None)
    seconds = extra.get("seconds") or (elapsed_ns / 1e9 if elapsed_ns else None)
    if seconds is None and busy_ms and cpus:
        seconds = busy_ms / 1000 / cpus
    if cpus is None and busy_ms and seconds:
        cpus = busy_ms / 1000 / seconds
    return seconds, cpus


def _name(event: str) -> tuple[str, str]:
    """(name in lower case, privilege letters) of an event as given to perf."""
    fixed = FIXED.fullmatch(event)
    match = fixed or PRIVILEGES.fullmatch(event)
    if not match:
        return event.lower(), ""
    letters = match["modifiers"] or ""
    return match["name"].lower(), "".join(sorted(set(letters) & set("ukhGH")))


def _text(lines: Lines) -> tuple[list[Counter], Said]:
    rows: list[Counter] = []
    extra: Said = {}
    for at, line in lines:
        if elapsed := ELAPSED.fullmatch(line):
            extra["seconds"] = _decimal(elapsed["value"])
        elif (match := LINE.fullmatch(line)) and match["event"] != "seconds":
            rest = match["rest"] or ""
            share = RUNNING.search(rest)
            if busy := UTILIZED.search(rest):
                extra["cpus"] = _decimal(busy[1])
            text = match["value"]
            if match["unit"]:
                value: float | None = _decimal(text)
            else:  # whatever groups its digits by three
                value = float(re.sub(GAP, "", text)) if re.fullmatch(COUNT, text) else None
            running = _decimal(share[1]) if share else 100.0
            rows.append(_counter(at, match["event"], text, value, running, match["unit"] or ""))
    return rows, extra


def _counter(
    at: int, event: str, text: str, value: float | None, running: float | None, unit: str
) -> Counter:
    """Counter of a line; `value` None where `text` is no number."""
    name, modes = _name(event)
    trouble = ""
    if text in ABSENT:
        trouble = f"{text}: perf could not count it; give the run fewer events, or a CPU and VM that has it"
    elif value is None:
        trouble = f"{text[:30]!r} is no count of events"
    elif running is None:
        trouble = "its percentage of time counted is none"
    return Counter(name, modes, None if trouble else value, running or 0.0, at, trouble, unit)


def _decimal(text: str) -> float:
    """A number whose last mark, if it is a point or comma, is its decimal mark."""
    whole, mark, part = text.replace(",", ".").rpartition(".")
    whole, part = (re.sub(r"\D", "", whole), part) if mark else (part, "")
    return float(f"{re.sub(GAP, '', whole) or 0}.{re.sub(GAP, '', part) or 0}")


def _separator(lines: Lines) -> str | None:
    """The mark of -x: the character before a known event and after a count, where there is nothing else."""
    for _, line in lines:
        match = re.match(r"(?:\s*[\d.]+|\s*<not \w+>)([,;|:\t!@^])[^\d\s,;|:\t!@^]*\1[A-Za-z]", line)
        if match:
            return match[1]
    return None


def _separated(lines: Lines, mark: str) -> tuple[list[Counter], Said]:
    """value, unit, event, [variance %,] run time, percentage[, metric, its unit] of each line."""
    rows: list[Counter] = []
    extra: Said = {}
    for at, line in lines:
        cells = [cell.strip() for cell in line.split(mark)]
        if len(cells) < 3 or not re.match("[A-Za-z]", cells[2]):
            continue
        at_time = 4 if len(cells) > 3 and cells[3].endswith("%") else 3
        running = _percent(cells[at_time + 1] if len(cells) > at_time + 1 else "100")
        if "CPUs utilized" in cells:
            extra["cpus"] = _plain(cells[cells.index("CPUs utilized") - 1])
        rows.append(_counter(at, cells[2], cells[0], _plain(cells[0]), running, cells[1]))
    return rows, extra


def _json(path: Path, lines: Lines) -> tuple[list[Counter], Said]:
    """A JSON object per line, perf-stat(1), JSON FORMAT."""
    rows: list[Counter] = []
    extra: Said = {}
    for at, line in lines:
        try:
            cell = plain_json(line.encode())
        except Undecodable:
            raise InputError(path, f"line {at}", repr(line[:30]), "not a line of JSON") from None
        if not isinstance(cell, dict) or not cell.get("event") or "counter-value" not in cell:
            continue
        text = str(cell["counter-value"]).strip()
        if cell.get("metric-unit") == "CPUs utilized":
            extra["cpus"] = _plain(str(cell.get("metric-value")))
        running, unit = _percent(str(cell.get("pcnt-running", "100"))), str(cell.get("unit", ""))
        rows.append(_counter(at, str(cell["event"]), text, _plain(text), running, unit))
    return rows, extra


def _plain(text: str) -> float | None:
    """A number of the C locale, or None."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) else None


def _percent(text: str) -> float | None:
    value = _plain(text.replace(",", "."))
    return value if value is not None and value <= 100 else None


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
#
# AMD counts walks (ls_l1_d_tlb_miss.*_l2_miss, ls_tablewalker.*, bp_l1_tlb_miss_l2_tlb_miss.*), not their
# cycles: such a run has cycles only, and a second run with remote tables has to tell the cost of walks, or
# IBS its mean latency (below). With a file of elapsed time alone, only a second run does.

LEAST_RUNNING = 90.0  # percent of the time: below, perf's scaling is a guess
CYCLES = ("cycles", "cpu-cycles", "cpu_clk_unhalted.thread")
PENDING = ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending")
DURATION = ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration")
ACTIVE = ("dtlb_load_misses.walk_active", "dtlb_store_misses.walk_active")
WALKS = (PENDING, DURATION, ACTIVE)  # (loads, stores); the first kind counted is taken
EPT = "ept.walk_pending"
SERVED = tuple(f"page_walker_loads.dtlb_{by}" for by in ("l1", "l2", "l3", "memory"))
HUGE = ("walk_completed_2m_4m", "walk_completed_1g")  # of dtlb_load_misses and dtlb_store_misses
COMPLETED = ("walk_completed_4k", *HUGE)
AMD = ("ls_l1_d_tlb_miss.", "ls_tablewalker.", "bp_l1_tlb_miss_l2_tlb_miss", "l2_dtlb_misses")


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
    absent = {store for _, store in WALKS if _without(stat, store)}
    return tuple(name for name in kind if name not in absent)


def _without(stat: PerfStat, name: str) -> bool:
    """Whether no mode of an event was counted: it was not asked for, or the CPU has none."""
    known = [counter.trouble for (other, _), counter in stat.counters.items() if other == name]
    return all(trouble.startswith(UNSUPPORTED) for trouble in known)


def partial(stat: PerfStat) -> tuple[str, ...]:
    """Sentences: why walk cycles of the file are at least what was counted; () where they are all."""
    events, why = walk_events(stat), []
    if events and {*events} <= {*ACTIVE}:
        why.append("walk_active counts cycles with any walk under way: walks that overlap count once")
    if len(events) == 1:
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
    if stat.seconds and not every & {*CYCLES, *PENDING, *DURATION, *ACTIVE, EPT}:
        return MeasuredRun(seconds=stat.seconds, cpus=stat.cpus)
    cycles = _value(stat, _first(stat, CYCLES, modes) or "cycles", modes, allow_multiplexed)
    gpt, ept = _walk_cycles(stat, names, modes, native, allow_multiplexed)
    counter = stat.counters.get(("instructions", modes))
    instructions = None if counter is None else counter.value
    if gpt is not None and {*walk_events(stat)} == {*ACTIVE} and gpt <= 2 * cycles:
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
    if names & {*PENDING, *DURATION, *ACTIVE}:
        return ""
    amd = sorted(name for name in names if name.startswith(AMD))
    if amd:
        return (
            f"{amd[0]} counts walks; AMD counts no cycles of walks: add a run with remote tables (--remote), "
            "or count l2_dtlb_misses and add samples of IBS (--ibs)"
        )
    add = [name for name in ("cycles", *PENDING, EPT) if name not in names]
    return f"count {', '.join(add)} too (natively without {EPT}), or add a run with remote tables (--remote)"


def _walk_cycles(
    stat: PerfStat, names: set[str], modes: str, native: bool, allow_multiplexed: bool
) -> tuple[float | None, float | None]:
    """(walk cycles in the gPT, in the ePT), None where the CPU or the file has none."""
    elsewhere = {name for name, _ in stat.counters} & {*PENDING, *DURATION, *ACTIVE, EPT}
    if not elsewhere:
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
L2_MISSES = ("l2_dtlb_misses", "ls_l1_d_tlb_miss.all_l2_miss")  # event 0x45, umask 0xf0: any page size
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
