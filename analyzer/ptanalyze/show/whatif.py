"""What-if results for people: a sentence, one table with policies across and quantities down, then notes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.findings import HOST_MODEL, owned
from ..analysis.ranking import (
    best_first,
    best_of,
    candidate,
    careful,
    effect,
    filling,
    label_of,
    missing,
    peak_bytes,
    placement_alone,
    reshapes,
    share_sentence,
    verdict,
    walk_percent,
    without_trace,
)
from ..core import interval
from ..core.columns import CACHED, ELSEWHERE, MADVISE, Cell, Finding, Matrix, Quantity, Section
from ..core.errors import program, show_duration, size_in_words, this_program
from ..core.interval import FROM_DRAM, NOTICED, faster
from ..core.interval import interval as interval_interval
from ..core.trace import GUEST_BIT, threads_placed
from ..cost.price import NEVER
from ..cost.result import COLUMNS, EVERY_NODE, LOCALITY, MEMORY, READS, TIME, UPDATES, Result
from ..cost.throughput import WINDOW_COLUMNS
from ..kernels import KINDS
from ..policies import BOUND, NOT_MAINLINE, RESEARCH, availability, caveat, members
from .terminal import SCREEN, next_steps, number

if TYPE_CHECKING:
    from ..analysis.limits import Limits
    from ..analysis.size import SizeCurve


# The first screen of an answer about policies: worth it or not, one small table, what to type next.

TODAY = "today"
MOST = "at most"
HEAD = ("what", "speed-up", "memory", "break-even", "needs")
WITHOUT_RUN_TIME = ("what", "walk cycles", "memory", "needs")


def worth(results: Sequence[Result], over: Collection[int] = (), limits: Limits | None = None) -> list[str]:
    """Which share of the run page tables take, and, where `limits` do not tell it already, whether that is
    worth it; [] without run times.

    over  as of worth.verdict
    """
    told = verdict(results, over) if limits is None else None
    said = " ".join(filter(None, (share_sentence(results[0]), told)))
    return [said] if said else []


def beware(base: Result, *more: str) -> list[str]:
    """Lines before the answer: that it is about another machine than the captured one, and `more` of them."""
    other = base.finding(ELSEWHERE)
    said = [f"Note: {caution}." for caution in (other and other.text, *more) if caution]
    return [*said, ""] if said else []


def table(
    named: Mapping[str, Result], explained: bool = True, said: Collection[Finding] = ()
) -> Iterator[Section]:
    """A row per policy, the baseline first; below it the lines to type, for those that need no research.

    said       findings above it, which are not repeated
    explained  say what the baseline is, and of which time the memory is, too
    """
    base = next(iter(named.values()))
    head = WITHOUT_RUN_TIME if base.speedup is None else HEAD
    rows = [row_of(name, result, base) for name, result in named.items()]
    yield Section(lines=aligned([head, *rows]))
    lines = [f"at most: {FROM_DRAM}."] if any(MOST in cell for row in rows for cell in row) else []
    if explained:
        lines.append(f"{label_of(base)}, the baseline: {doc(base.policy)}. Memory is at its peak.")
    for name, result in named.items():
        if (
            result is base
            or not may_gain(result)
            or not (how := availability(result.policy, result.params, result.host_nodes)).line
        ):
            continue
        lines.append(f"{name} {how}")
        if first := caveat(result.policy):
            lines.append(f"  {first}.")
    beside = dict.fromkeys(finding for one in named.values() for finding in known(one, base))
    lines += [one.sentence for one in beside if one not in said]
    if any(
        availability(result.policy, result.params, result.host_nodes) == RESEARCH for result in named.values()
    ):
        lines.append(f"{RESEARCH}: {NOT_MAINLINE}.")
    yield Section(lines=[*[""] * explained, *lines] if lines else [])


def known(result: Result, base: Result) -> list[Finding]:
    """What stands beside a number on the first screen: advice about huge pages, and what to be careful about
    with a policy that may gain."""
    careful = result.careful if result is base or may_gain(result) else []
    return [one for one in result.findings if one.code == MADVISE or one in careful]


def doc(policy: str) -> str:
    """What a policy does, in a line."""
    return "; ".join(member.doc for member in members(policy))


def may_gain(result: Result) -> bool:
    speedup = result.speedup
    return speedup is None or faster(speedup.high)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of 80 characters at most; a name too long for its cells stands on a line of its own."""
    widths = [max(map(len, column)) for column in zip(*(row[1:] for row in rows), strict=True)]
    room = SCREEN - 1 - sum(2 + width for width in widths)
    left = max((len(row[0]) for row in rows if len(row[0]) <= room), default=0)
    lines = []
    for name, *rest in rows:
        if len(name) > left:
            lines.append(f" {name}")
            name = ""
        cells = [cell.ljust(width) for cell, width in zip(rest, widths, strict=True)]
        lines.append("  ".join([f" {name.ljust(left)}", *cells]).rstrip())
    return lines


def row_of(name: str, result: Result, base: Result) -> tuple[str, ...]:
    speedup, how = result.speedup, availability(result.policy, result.params, result.host_nodes)
    needs = "nothing" if result is base else TODAY if how.line else str(how)
    if base.speedup is None:
        return name, walk_cycles(result, base), memory_cell(result, base), needs
    gain = "1" if result is base else "-" if speedup is None else interval_interval(speedup)
    back = "-" if result is base else earned(result.row())
    return name, gain, memory_cell(result, base), back, needs


def walk_cycles(result: Result, base: Result) -> str:
    """Beside the baseline's, "at most -40.3 %"; "about 0 %" where the caches hold what is placed; of the
    baseline, all."""
    before, after = base.walk_cycles, result.walk_cycles
    if result is base or not before:
        return cycles(after)
    change = f"{walk_percent(result, base) - 100:+z.1f} %"
    if base.finding(CACHED) and not reshapes(result.policy):
        return "about 0 %"
    return "0 %" if change == "+0.0 %" else f"{MOST} {change}"


def cycles(count: float) -> str:
    """To three digits: "54.9 million"."""
    for word, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if count >= size:
            return f"{count / size:,.3g} {word}"
    return f"{count:.0f}"


def memory_cell(result: Result, base: Result) -> str:
    """Bytes at their peak beyond the baseline's, "+62.4 MiB"; of the baseline, all."""
    size = peak_bytes(result) - (0 if result is base else peak_bytes(base))
    text = size_in_words(abs(size))
    sign = "" if result is base or not size else "+" if size > 0 else "-"
    return sign + text


def earned(row: Mapping[str, Any]) -> str:
    """After what time the one-time cost is recovered, of a row of whatif_frame: "57.9 ms", "at once", or
    "never" where no gain can be read; "-" where that is not known, or nothing has to be recovered."""
    when, seconds = row["pays_back"], row["pays_back_seconds"]
    if not isinstance(when, str):
        return "-"
    if not faster(row["speedup"]):
        return "-" if when == "at once" else "never"
    return show_duration(seconds) if when == "later" and seconds else when


def further(capture: str | None, base: Result, calibrated: bool, ranked: bool = False) -> Section:
    """What to type next; base: the baseline's Result; ranked: after advise."""
    named = f" {shlex.quote(capture)}" if capture else ""
    this = program()
    steps = {"every count and assumption": "the same with --full"}
    if not ranked:
        steps["all policies, ranked"] = f"{this} advise{named}"
    steps["a page with pictures"] = f"{this} report{named}"
    if base.finding(ELSEWHERE) is not None:
        steps["a model, made on that host"] = f"{this} {HOST_MODEL}"
        steps["the answer for that host"] = "the same with -m host.toml"
    if capture is None:
        steps["your own program"] = f"sudo {this_program()} record -o app -- ./app"
    elif base.speedup is not None and not calibrated:
        steps["narrower, by perf counters"] = f"{this} calibrate --help"
    return next_steps(steps)


EARNED = ("pays_back_walks", "pays_back_seconds")
CALLS = {
    "calls": "calls",
    "entries": "entries changed",
    "copies": "entries fanned out",
    "ipis_local": "IPIs, local",
    "ipis_remote": "IPIs, remote",
    "saved_local": "IPIs saved, local",
    "saved_remote": "IPIs saved, remote",
}
SAID_WHY = 3  # policies that the capture refuses, each with its reason on the first screen


def view(
    results: Sequence[Result],
    further: Section | None = None,
    refused: Mapping[str, str] | None = None,
    whose: str = "",
    nodes: str = "",
    curve: SizeCurve | None = None,
    limits: Limits | None = None,
) -> Iterator[Section | Matrix]:
    """What limits the run, the best policy, whether it is worth it, a small table, and what to type next.

    further  what to type next; None: everything that was counted and assumed instead
    whose    a sentence before all else; "" none; nodes: another
    curve    of larger runs: what it says comes first where no policy gains at the captured size
    limits   of the run; None: not known
    """
    first = results[0]
    accesses = f" of {number(int(first.hits.sum()))} accesses" if first.hits.any() else ""
    threads = "" if first.placement == EVERY_NODE else f"; {threads_placed(first.placement)}"
    asked = "; ".join(filter(None, (f"Machine model {first.machine}{threads}", first.stands_for)))
    asked += f"; {walks(first)} walks{warm(first)}{accesses}"
    said = "" if limits and limits.cached else advice(results, limits)
    sized, best = by_size(curve), [first, *best_first(results)]
    gains = any(effect(one, first) > 0 for one in results[1:])
    worthwhile = worth(best, (), limits) if gains or not sized else filter(None, [share_sentence(first)])
    verdicts = [*limits.lines, ""] if limits else []
    yield Section(
        lines=[*beware(first, whose, nodes), *sized, *verdicts, *filter(None, [said]), *worthwhile, asked]
    )
    advised = next(iter(best_first(results)), None)
    careful = advised.careful if advised and effect(advised, results[0]) > 0 else []
    yield from table(dict(zip(labels(results), results, strict=True)), not further, careful)
    if further:
        yield Section(lines=left_out(refused or {}))
        yield Section(lines=[""])
        yield further
        return
    yield Section(lines=[""])
    yield Matrix(labels(results), {heading: rows for heading, rows in groups(results) if rows})
    parameters = [f"- {row['policy']}: {row['params']}" for row in rows_of(results) if row["params"]]
    yield Section(lines=["", *parameters, *(f"- {one.line}" for one in owned(results))])


def by_size(curve: SizeCurve | None) -> list[str]:
    """What a larger run gains, where placement gains nothing in the captured one; else []."""
    if curve is None or not curve.sentence or curve.of(curve.best)[0]["speedup"] >= NOTICED:
        return []
    return [curve.sentence, *([] if curve.turn is None else ["At the traced size:"])]


def left_out(refused: Mapping[str, str]) -> list[str]:
    """Why policies were refused; of many, as -p all names them, which."""
    if len(refused) <= SAID_WHY:
        return [f"policy {policy}: {why}" for policy, why in refused.items()]
    return [f"Not for this capture: {', '.join(refused)} (--full says why)."]


def warm(result: Result) -> str:
    """ " in steady state," where a further run is counted, else ""."""
    return " in steady state," if result.run == "warm" else ""


def walks(result: Result) -> str:
    readers = int(np.count_nonzero(result.reads.sum(axis=(0, 2, 3))))
    if result.placement != EVERY_NODE or readers < 2 or result.walks % readers:
        return number(result.walks)
    return f"{number(result.walks // readers)} from each of {readers} nodes, {number(result.walks)}"


def rows_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    return [result.row() for result in results]


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each Result: its policy, with settings that are not the defaults or that differ."""
    return [label_of(result, results) for result in results]


def advice(results: Sequence[Result], limits: Limits | None = None) -> str:
    """What the capture lacks, what placing tables gains alone where the best policy does more and no Limits
    tell, the best, and of which part of the trace."""
    base, ranked = results[0], best_first(results)
    if all(one.policy == BOUND for one in ranked):
        return sentence(results)
    candidates = [candidate(one, base, name=label_of(one, results)) for one in ranked]
    timed = base.speedup is not None
    named = label_of(base, results)
    placed = (
        "" if base.finding(CACHED) or limits else placement_alone(ranked[0].policy, candidates, named, timed)
    )
    best = sentence(results, bool(limits and limits.nothing))
    return " ".join(filter(None, (missing(base), placed, best, filling(base))))


def sentence(results: Sequence[Result], nothing: bool = False) -> str:
    """Which policy is best, by how much, what it takes, and when that is recovered; or that none is.

    nothing  whether the verdict, told before, is that there is nothing to gain
    """
    base = results[0]
    ranked = best_first(results)
    if not ranked:
        return f"Only {label_of(base)}: name another policy to compare it with."
    best = ranked[0]
    name, speedup = label_of(best, results), best.speedup
    if speedup is None:
        return without_run_time(base, best, name)
    warm = "" if best.break_even is None else " in steady state"
    if effect(best, base) <= 0:
        same = not any(map(interval.differs, speedup))
        how = "" if same else f"; {name}: {interval_interval(speedup)}"
        return f"{interval.none_faster(label_of(base))}{how}."
    unsure = "" if interval.gains(speedup) else "; it may be no gain"
    word = best_of(nothing, "" if reshapes(best.policy) else " placement")
    word = "Bound of locality" if best.policy == BOUND else word
    faster = f"{word}: {name}, {interval_interval(speedup)} over {label_of(base)}{warm}"
    return f"{faster}, {takes(best, base)}{costs_once(best, base)}{unsure}.{careful(best)}"


def costs_once(best: Result, base: Result) -> str:
    """One-time cost beyond the baseline's, and when it is recovered; "" where that is not known."""
    seconds = best.break_even_seconds
    if seconds is None:
        return ""
    if not seconds.middle:
        return ", at no one-time cost"
    earned = (
        "never recovered" if isinf(seconds.middle) else f"recovered after {show_duration(seconds.middle)}"
    )
    return f"; its one-time cost, {cycles(best.once_cycles - base.once_cycles)} cycles, is {earned}"


def without_run_time(base: Result, best: Result, name: str) -> str:
    """What walk cycles are saved at most, where there is no trace and so no run time."""
    if effect(best, base) > 0:
        return without_trace(base, best, f"With {name}", f", {takes(best, base)}.{careful(best)}")
    held = base.finding(CACHED)
    return held.sentence if held else f"No policy takes fewer walk cycles than {label_of(base)}."


def takes(best: Result, base: Result) -> str:
    """Memory at its peak beside the baseline's: of page tables, or, where more is held unused, of both."""
    more, held = peak_bytes(best) - peak_bytes(base), best.held_bytes - base.held_bytes
    what = f"memory ({size_in_words(held)} held unused)" if held > 0 else "page tables"
    if more < 0:
        return f"saving {size_in_words(-more)} of page tables at peak"
    return f"for {size_in_words(more) if more else 'no'} more {what} at peak"


def groups(results: Sequence[Result]) -> Iterator[tuple[str, list[Quantity]]]:
    """(heading, its quantities), without those that are nothing under every policy."""
    rows = rows_of(results)
    nested, as_traced = any(row["host_reads_per_walk"] for row in rows), results[0].run == "as traced"
    steady = any(result.break_even is not None for result in results)
    over = f"{'Further run: t' if steady else 'T'}ime, compared with {results[0].baseline}"
    more = {LOCALITY: remote(rows), READS: reads(results, nested)}
    for group in (TIME, LOCALITY, READS, MEMORY, UPDATES):
        quantities = [*counted(rows, group, nested, as_traced), *more.get(group, ())]
        yield over if group == TIME else group, kept(quantities)
    when = "Before the first walk" if as_traced else "Once"
    yield "Once, before the further run" if steady else when, kept(once(results))
    for call in dict.fromkeys(one.call for result in results for one in result.system_calls):
        yield f"System call {call}", kept(system_call(call, results))
    yield "Other results of the policies", kept(facts(results))


def counted(
    rows: Sequence[Mapping[str, Any]], group: str, nested: bool, as_traced: bool = False
) -> Iterator[Quantity]:
    """The COLUMNS of a heading.

    nested     some policy's walks have two dimensions (shadow paging has one where others have two)
    as_traced  what happens once is within the run
    """
    for one in sorted(COLUMNS, key=lambda one: one.rank):
        title = one.titled(nested)
        if one.group != group or not title or (as_traced and one.key == "traced_speedup"):
            continue
        if as_traced and one.key == "once_cycles":
            title = "cycles before the first walk"
        if one.key in EARNED:
            yield Quantity(title, [after(row, one.key) for row in rows], one.form)
            continue
        values = [row[one.key] for row in rows]
        scaled = values if one.scale == 1 else [value * one.scale for value in values]
        yield Quantity(title, scaled, one.form)


def kept(quantities: Iterable[Quantity]) -> list[Quantity]:
    """Those that are shown as more than 0 somewhere."""
    least = {"count": 0.5, "share": 0.00005}
    return [one for one in quantities if any(abs(v or 0) >= least.get(one.form, 0.0005) for v in one.values)]


def after(row: Mapping[str, Any], key: str) -> float | None:
    """When a cost is recovered, None where the first screen has "-"."""
    words = earned(row)
    return None if words == "-" else NEVER if words == "never" else row[key]


def remote(rows: Sequence[Mapping[str, Any]]) -> Iterator[Quantity]:
    shares = [row["remote_dram_reads"] / max(row["dram_reads"], 1) for row in rows]
    yield Quantity("DRAM remote, %", shares, "share")


def reads(results: Sequence[Result], nested: bool) -> Iterator[Quantity]:
    """By level, and by the node that serves them."""
    walks = [max(int(result.classes.sum()), 1) for result in results]
    by_bit = [result.reads.sum(axis=(1, 2, 3)) for result in results]
    for name, host in (("gPT" if nested else "PT", False), ("ePT", True)):
        for level in range(5, 0, -1):
            bits = slice(level, None, GUEST_BIT) if host else slice(GUEST_BIT * level, GUEST_BIT * level + 1)
            counts = [int(of[bits].sum()) / n for of, n in zip(by_bit, walks, strict=True)]
            yield Quantity(f"{name} level {level}", counts, "mean")
    by_node = [result.reads.sum(axis=(0, 1, 3)) / n for result, n in zip(results, walks, strict=True)]
    for node in range(max(map(len, by_node))):
        served = [float(of[node]) if node < len(of) else None for of in by_node]
        yield Quantity(f"served by node {node}", served, "mean")


def once(results: Sequence[Result]) -> Iterator[Quantity]:
    """What happens once: to get to the policy's tables, and where memory is touched for the first time."""
    for k, kind in enumerate(KINDS):
        if kind.once:
            yield Quantity(kind.once, [result.once(k) for result in results])
            yield Quantity(f"ePT: {kind.once}", [result.once(k, host=True) for result in results])
    yield Quantity("data pages copied", [result.data_copied for result in results])


def system_call(call: str, results: Sequence[Result]) -> Iterator[Quantity]:
    """What one kind of call changes, whom it interrupts, and how long that takes."""
    costs = [next((o for o in result.system_calls if o.call == call), None) for result in results]
    for field, name in CALLS.items():
        yield Quantity(name, [None if cost is None else getattr(cost, field) for cost in costs])
    yield Quantity("ns per call", [None if cost is None else cost.ns for cost in costs], "mean")
    stolen = [None if cost is None else cost.stolen_ns for cost in costs]
    yield Quantity("stolen ns per call", stolen, "mean")
    slower = [None if cost is None else cost.slowdown for cost in costs]
    if any(value not in (None, 1) for value in slower):
        yield Quantity("slow-down", slower, "ratio")


def facts(results: Sequence[Result]) -> Iterator[Quantity]:
    """Numbers that policies count by themselves; series are for programs."""
    for fact in dict.fromkeys(fact for result in results for fact in result.facts):
        values = [result.facts.get(fact) for result in results]
        if all(value is None or isinstance(value, int | float) for value in values):
            whole = all(value is None or float(value).is_integer() for value in values)
            yield Quantity(fact.replace("_", " "), values, "count" if whole else "mean")


# The points of a sweep for people.


def rows(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[dict[str, Cell]]:
    """One row per point and policy: its place on each axis, then locality and cost."""
    return [
        {"policy": result.policy, **place(axes, {**result.params, **point}), **quantities(result.row())}
        for point, result in points
    ]


def place(axes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Cell]:
    return {key: str(settings.get(key, settings.get(key.rpartition(".")[2], "-"))) for key in axes}


def quantities(row: Mapping[str, Any]) -> dict[str, Cell]:
    return {
        "LL": f"{100 * row['leaf_LL_share']:.2f} %",
        "DRAM reads": row["dram_reads"],
        "remote": row["remote_dram_reads"],
        "cycles/walk": row["cycles_per_walk"],
        "management cycles": row["management_cycles"],
        "extra KiB": (row["pt_bytes_extra"] + row["ept_bytes_extra"] + row["aside_bytes"]) >> 10,
        "IPIs": row["ipis"],
        "speed-up": row["speedup"],
    }


# Locality over time as a view for people, and as rows for JSON.

SPEED = (
    "- per second: with mid-range assumptions, all CPUs of the window busy; data on another node cost "
    "the difference in latency once per walk; their interval is in --json and --csv"
)
CLASSES = "- LL: share of walks that are Local-Local (gPT, then ePT); LR, RL and RR alike"


def timeline_rows(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per policy and window."""
    return [
        {"policy": name, **row}
        for name, result in zip(labels(results), results, strict=True)
        for row in (result.series.rows() if result.series else ())
    ]


def view_timeline(results: Sequence[Result]) -> Iterator[Section]:
    """A table per policy, then the notes."""
    for name, result in zip(labels(results), results, strict=True):
        windows = result.series.rows() if result.series else []
        title = f"{name} (machine model {result.machine}; {threads_placed(result.placement)})"
        yield Section(title, [shown(row, bool(result.host_pages)) for row in windows])
    notes = [one.line for one in owned(results, assumptions=False)]
    nested = any(result.host_pages for result in results)
    yield Section(lines=[*([CLASSES] if nested else []), SPEED, *(f"- {note}" for note in notes)])


def shown(row: dict[str, Any], nested: bool) -> dict[str, Any]:
    forms: dict[str, Callable[[Any], Cell]]
    forms = {"share": percent, "millions": millions, "ms": lambda ns: float(ns / 1e6)}
    titled = [(one, one.titled(nested)) for one in sorted(WINDOW_COLUMNS, key=lambda one: one.rank)]
    return {
        title: forms[one.form](row[one.key]) if one.form in forms else row[one.key]
        for one, title in titled
        if title
    }


def millions(per_second: float | None) -> str:
    return "-" if per_second is None else f"{per_second / 1e6:.4g}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
