"""What-if results for people: the first screen, everything that was counted, sweeps, locality over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.frames import on_axis
from ..analysis.ranking import as_sentence, effect, fewer_faults, label_of, reshapes, walk_percent
from ..analysis.replay import refusal_lines
from ..analysis.verdict import CAUTIONS, GAIN, Verdict, doubts, one_node
from ..analysis.verdict import verdict as verdict_of
from ..core.columns import CACHED, Cell, Section, message
from ..core.errors import show_duration, size_in_words
from ..core.interval import faster, interval
from ..core.trace import threads_placed
from ..cost.counts import AS_TRACED
from ..cost.result import COLUMNS, EVERY_NODE, HELD, LOCALITY, MEMORY, READS, TIME, UPDATES, Result, owned
from ..cost.throughput import WINDOW_COLUMNS, window_rows
from ..policies import RESEARCH, availability, members
from ..policies.contract import Availability
from .terminal import SCREEN, console

if TYPE_CHECKING:
    from ..analysis.size import SizeCurve


# The first screen: the answer, what limits the run, one small table, what to type next.

TODAY = "today"
HEAD = ("what", "speed-up", "memory", "break-even", "needs")
WITHOUT_RUN_TIME = ("what", "walk cycles", "memory", "needs")
SAYS_NOTHING = 0.9  # width of the share of a run that walks take
SAID_WHY = 2  # reasons to refuse policies that stand on the first screen


def view(
    results: Sequence[Result],
    further: Section | None = None,
    refused: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    curve: SizeCurve | None = None,
    verdict: Verdict | None = None,
) -> Iterator[Section]:
    """The answer to what was asked, what limits the run otherwise, a small table, and what to type next.

    further  what to type next; None: everything that was counted and assumed instead
    notes    what must be known beside the findings
    curve    of larger runs: what it says comes first where no policy gains at the captured size
    verdict  None: the answer alone
    """
    base, *others = results
    said = verdict or verdict_of(results, None)
    gains = [one.result for one in said.answers[:1] if one.kind == GAIN]
    why = fewer_faults(base, *gains) if gains else None  # spared page faults, which walks do not show
    answer = f"{said.answer}{as_sentence(why) if why else ''}"
    told = [answer, *by_size(curve), *said.limits, *to_type(said)]
    yield Section(lines=[*told, *beware(said, notes, further)])
    rows = table(results)
    yield Section(lines=[*([""] if rows else []), *rows])
    shown = [one for one in others if effect(one, base)] if one_node(base) else others
    if rows and RESEARCH in map(available, shown):
        yield Section(lines=[str(message("research", "needed"))])
    if rows and len(shown) < len(others):
        alike = [label_of(one, results) for one in others if not effect(one, base)]
        yield Section(lines=[str(message("about", "alike", policies=", ".join(alike)))])
    if further:
        yield Section(lines=[*left_out(refused or {}), about(base), ""])
        yield further
        return
    yield Section(lines=[baseline(base), about(base), ""])
    yield Section(rows=[*everything(results)])
    parameters = [f"- {result.policy}: {result.settings}" for result in results if result.settings]
    yield Section(lines=["", *parameters, *(f"- {one.line}" for one in owned(results))])


def to_type(verdict: Verdict) -> list[str]:
    """The line to type today; [] where none is known to gain."""
    typed = dict(zip(("line", "why"), verdict.today, strict=False))
    return [str(message("try", "line", **typed))] if typed else []


def beware(verdict: Verdict, notes: Sequence[str] = (), short: object = True) -> list[str]:
    """What to be careful about, the gravest first; of a `short` screen the first of it."""
    lines = [*(f"Note: {note}." for note in notes if note), *(one.sentence for one in verdict.cautions)]
    return lines[: CAUTIONS if short else None]


def by_size(curve: SizeCurve | None) -> list[str]:
    """What larger runs gain; [] where that is unknown, or nothing can be remote."""
    return [] if curve is None or one_node(curve.results[0][0]) or not curve.sentence else [curve.sentence]


def baseline(base: Result) -> str:
    what = "; ".join(member.doc for member in members(base.policy))
    return str(message("about", "baseline", base=label_of(base), what=what))


def about(base: Result) -> str:
    """The run that an answer is about."""
    readers = int(np.count_nonzero(base.reads.sum(axis=(0, 2, 3))))
    each = base.placement == EVERY_NODE and readers > 1 and not base.walks % readers
    share = base.walk_share
    run = message("about", "as-traced" if base.run == AS_TRACED else "warm", accesses=int(base.hits.sum()))
    memory = base.provenance.get("memory", "")
    parts = [
        message("about", "memory" if memory else "machine", machine=base.machine, memory=memory),
        "" if base.placement == EVERY_NODE else threads_placed(base.placement),
        base.stands_for,
        message("about", "each-walks", walks=base.walks // readers, nodes=readers)
        if each
        else message("about", "walks", walks=base.walks, run=run if base.hits.any() else ""),
        message("about", "share", share=share) if share and share.high - share.low < SAYS_NOTHING else "",
    ]
    return f"{'; '.join(filter(None, map(str, parts)))}."


def left_out(refused: Mapping[str, str]) -> list[str]:
    """Why policies were refused; of many, as -p all names them, which."""
    if len(lines := refusal_lines(refused)) <= SAID_WHY:
        return lines
    return [str(message("about", "refused", policies=", ".join(refused)))]


def table(results: Sequence[Result]) -> list[str]:
    """A row per policy, the baseline first; on one node those that change something, [] where none does."""
    base = results[0]
    if one_node(base) and len(results) > 1:
        results = [base, *(result for result in results[1:] if effect(result, base))]
        if len(results) == 1:
            return []
    head = WITHOUT_RUN_TIME if base.speedup is None else HEAD
    rows = [row_of(name, result, base) for name, result in zip(labels(results), results, strict=True)]
    return aligned([head, *rows])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of 80 characters at most, fewer columns on a narrower terminal; a long name apart."""
    width, longest = console().width, [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width < min(SCREEN, sum(longest) + 2 * len(longest) - 1) and len(longest) > 2:
        return aligned([(*row[:-2], row[-1]) if len(row) > 3 else row[:2] for row in rows])
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
    speedup, needs = result.speedup, "nothing"
    if result is not base:
        how = available(result)
        needs = f"{TODAY if how.line else how}{'*' * bool(doubts(result, base))}"
    if base.speedup is None:
        return name, walk_cycles(result, base), memory_cell(result, base), needs
    gain = "1" if result is base else "-" if speedup is None else interval(speedup)
    return name, gain, memory_cell(result, base), earned(result), needs


def available(result: Result) -> Availability:
    return availability(result.policy, result.params, result.host_nodes)


def walk_cycles(result: Result, base: Result) -> str:
    """Beside the baseline's, "at most -40.3 %"; "about 0 %" where the caches hold what is placed; of the
    baseline, all."""
    before, after = base.walk_cycles, result.walk_cycles
    if result is base or not before:
        return cycles(after)
    change = f"{walk_percent(result, base) - 100:+z.1f} %"
    if base.finding(CACHED) and not reshapes(result.policy):
        return "about 0 %"
    return "0 %" if change == "+0.0 %" else f"at most {change}"


def cycles(count: float) -> str:
    """To three digits: "54.9 million"."""
    for word, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if count >= 0.9995 * size:
            return f"{count / size:,.3g} {word}"
    return f"{count:.0f}"


def memory_cell(result: Result, base: Result) -> str:
    """Bytes at their peak beyond the baseline's, "+62.4 MiB"; of the baseline, all."""
    more = more_memory(result.peak_bytes - base.peak_bytes)
    return size_in_words(base.peak_bytes) if result is base else more


def more_memory(size: int) -> str:
    """ "+5.7 MiB", "-384 KiB", "0 KiB"."""
    return f"{'' if not size else '-' if size < 0 else '+'}{size_in_words(abs(size))}"


def earned(result: Result) -> str:
    """After what time the one-time cost is recovered, over the range of the gain: "24-58 ms", "24 ms-never",
    "at once", "never" where no gain can be read; "-" where that is unknown, or nothing is to be recovered."""
    after, speedup = result.break_even_seconds, result.speedup
    if after is None or speedup is None:
        return "-"
    if not faster(speedup.middle):
        return "never" if after.middle else "-"
    return show_duration(after.low, after.high)


# Everything that was counted, a column of `whatif` a line.

LEAST = {"count": 0.5, "share": 0.00005}  # shown as more than 0, by core.columns.Column.form


def everything(results: Sequence[Result]) -> Iterator[dict[str, Cell]]:
    """Columns down, under their headings, then what policies count by themselves; policies across."""
    rows, names = [result.row() for result in results], labels(results)
    nested = any(row["host_reads_per_walk"] for row in rows)
    blocks: dict[str, list[dict[str, Cell]]] = {
        title: [] for title in (TIME, LOCALITY, READS, MEMORY, UPDATES)
    }
    for one in sorted(COLUMNS, key=lambda one: one.rank):
        values = [None if row[one.key] is None else row[one.key] * one.scale for row in rows]
        least, title = LEAST.get(one.form, 0.0005), one.titled(nested)
        if one.group and title and any(abs(value or 0) >= least for value in values):
            texts = [quantity(value, one.form) for value in values]
            blocks[one.group].append({"": f"  {title}", **dict(zip(names, texts, strict=True))})
    as_counted = "Of the policies" + (", in the captured memory" if results[0].stands_for else "")
    for fact in dict.fromkeys(fact for result in results for fact in result.facts):
        held, values = fact.endswith(HELD), [result.facts.get(fact) for result in results]
        if not held and all(value is None or isinstance(value, int | float) for value in values):
            texts = [quantity(value) for value in values]
            own = blocks.setdefault(as_counted, [])
            own.append({"": f"  {fact.replace('_', ' ')}", **dict(zip(names, texts, strict=True))})
    for heading, lines in blocks.items():
        if lines:
            yield {"": heading, **dict.fromkeys(names, "")}
            yield from lines


def quantity(value: float | None, form: str = "count") -> str:
    """A number as its column has it, "-" for None. form: as of core.columns.Column."""
    if value is None:
        return "-"
    if form == "share":
        return f"{100 * value:.2f}"
    whole = abs(value) >= 100 or (form == "count" and float(value).is_integer())
    return f"{value:,.0f}" if whole else f"{value:,.3f}"


def labels(results: Sequence[Result]) -> list[str]:
    """A name for each Result: its policy, with settings that are not the defaults or that differ."""
    return [label_of(result, results) for result in results]


# The points of a sweep for people.


def rows(points: Sequence[tuple[Mapping[str, Any], Result]], axes: Sequence[str]) -> list[dict[str, Cell]]:
    """One row per point and policy: its place on each axis, then what differs of locality and cost."""
    table = []
    for point, result in points:
        at = {key: on_axis(key, point, result) for key in axes}
        place = {key: "-" if value is None else str(value) for key, value in at.items()}
        row = result.row()
        found = {
            "LL": f"{100 * row['leaf_LL_share']:.2f} %",
            "DRAM reads": row["dram_reads"],
            "remote DRAM reads": row["remote_dram_reads"],
            "cycles/walk": row["cycles_per_walk"],
            "management cycles": row["management_cycles"],
            "extra KiB": (row["pt_bytes_extra"] + row["ept_bytes_extra"] + row["aside_bytes"]) >> 10,
            "IPIs": row["ipis"],
            "one-time cycles": row["once_cycles"],
            "break-even": earned(result),
            "speed-up": interval(result.speedup) if result.speedup else "-",
        }
        alike = [one for where, one in points if where == point]
        table.append({"policy": label_of(result, alike), **place, **found})
    same = {key for key in found if len(table) > 1 and len({row[key] for row in table}) == 1}
    return [{key: value for key, value in row.items() if key not in same} for row in table]


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
        for row in window_rows(result.series)
    ]


def view_timeline(results: Sequence[Result]) -> Iterator[Section]:
    """A table per policy, then the notes."""
    for name, result in zip(labels(results), results, strict=True):
        title = f"{name} (machine model {result.machine}; {threads_placed(result.placement)})"
        yield Section(title, [shown(row, bool(result.pages["host"])) for row in window_rows(result.series)])
    notes = [one.line for one in owned(results, assumptions=False)]
    nested = any(result.pages["host"] for result in results)
    yield Section(lines=[*([CLASSES] if nested else []), SPEED, *(f"- {note}" for note in notes)])


WINDOW_FORMS: dict[str, Callable[[Any], Cell]] = {
    "share": lambda share: "-" if share is None else f"{100 * share:.1f} %",
    "millions": lambda rate: "-" if rate is None else f"{rate / 1e6:.4g}",
    "ms": lambda ns: float(ns / 1e6),
}


def shown(row: dict[str, Any], nested: bool) -> dict[str, Cell]:
    columns = sorted(WINDOW_COLUMNS, key=lambda column: column.rank)
    titled = [(title, column.form, row[column.key]) for column in columns if (title := column.titled(nested))]
    return {title: WINDOW_FORMS[form](of) if form in WINDOW_FORMS else of for title, form, of in titled}
