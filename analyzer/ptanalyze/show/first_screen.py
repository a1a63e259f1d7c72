"""The first screen of an answer about policies: worth it or not, one small table, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..analysis.advise import label_of, peak_bytes, reshapes, share_sentence, verdict, walk_percent
from ..analysis.answer import Section
from ..analysis.run_notes import HOST_MODEL
from ..core.errors import show_duration, size_in_words
from ..core.interval import CAREFUL, FROM_DRAM, faster, interval
from ..policies import NOT_MAINLINE, RESEARCH, besides, members, names, takes
from ..world.huge_pages import ADVISED, FORBIDDEN, PRCTL
from .this_program import this_program

if TYPE_CHECKING:
    from rich.text import Text

    from ..cost.result import Result

WIDTH = 80  # columns of a screen
NARROW = 16  # names that are longer stand alone
TODAY = "today"
MOST = "at most"
HEAD = ("what", "speed-up", "memory", "pays back", "needs")
WITHOUT_RUN_TIME = ("what", "walk cycles", "memory", "needs")


def worth(results: Sequence[Result], over: Collection[int] = ()) -> list[str]:
    """Which share of the run page tables take, and whether that is worth it; [] without run times.

    over  as of worth.verdict
    """
    said = " ".join(filter(None, (share_sentence(results[0]), verdict(results, over))))
    return [said] if said else []


def beware(base: Result, *more: str) -> list[str]:
    """Lines before the answer: that it is about another machine than the captured one, and `more` of them."""
    said = [f"Note: {caution}." for caution in (base.elsewhere, *more) if caution]
    return [*said, ""] if said else []


def table(named: Mapping[str, Result], explained: bool = True, said: str = "") -> Iterator[Section]:
    """A row per policy, the baseline first; below it the lines to type, for those that need no research.

    said       text above it, whose cautions are not repeated
    explained  say what the baseline is, and of which time the memory is, too
    """
    base = next(iter(named.values()))
    head = WITHOUT_RUN_TIME if base.price.speedup is None else HEAD
    rows = [row_of(name, result, base) for name, result in named.items()]
    yield Section(lines=aligned([head, *rows]))
    lines = [f"at most: {FROM_DRAM}."] if any(MOST in cell for row in rows for cell in row) else []
    if explained:
        lines.append(f"{label_of(base)}, the baseline: {doc(base.policy)}. Memory is at its peak.")
    for name, result in named.items():
        if result is base or not may_gain(result) or not (how := takes(result.policy)).startswith(TODAY):
            continue
        lines.append(f"{name} {how}")
        if first := besides(result.policy):
            lines.append(f"  {first}.")
    notes = dict.fromkeys(note for one in named.values() for note in known(one, base))
    lines += [f"{note}." for note in notes if CAREFUL not in note or note.partition(CAREFUL)[2] not in said]
    if any(takes(result.policy) == RESEARCH for result in named.values()):
        lines.append(f"{RESEARCH}: {NOT_MAINLINE}.")
    yield Section(lines=["", *lines] if lines else [])


def known(result: Result, base: Result) -> Iterator[str]:
    """Notes that stand beside a number on the first screen: on advice about huge pages, and what to be
    careful about with a policy that may gain."""
    for note in result.notes:
        if any(word in note for word in (FORBIDDEN, ADVISED, PRCTL)):
            yield f"{note[0].upper()}{note[1:]}" if note.startswith(CAREFUL) else note
        elif CAREFUL in note and (result is base or may_gain(result)):
            yield note


def doc(policy: str) -> str:
    """What a policy does, in a line."""
    return "; ".join(member.doc for member in members(policy))


def may_gain(result: Result) -> bool:
    speedup = result.price.speedup
    return speedup is None or faster(speedup.high)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of 80 characters at most; a long name stands on a line of its own."""
    widths = [max(map(len, column)) for column in zip(*(row[1:] for row in rows), strict=True)]
    left = min(max(len(row[0]) for row in rows), NARROW)
    lines = []
    for name, *rest in rows:
        if len(name) > left:
            lines.append(f" {name}")
            name = ""
        cells = [cell.ljust(width) for cell, width in zip(rest, widths, strict=True)]
        lines.append("  ".join([f" {name.ljust(left)}", *cells]).rstrip())
    return lines


def row_of(name: str, result: Result, base: Result) -> tuple[str, ...]:
    speedup, how = result.price.speedup, takes(result.policy)
    needs = "nothing" if result is base else TODAY if how.startswith(TODAY) else how
    if base.price.speedup is None:
        return name, walk_cycles(result, base), memory_cell(result, base), needs
    gain = "1" if result is base else "-" if speedup is None else interval(speedup)
    back = "-" if result is base else earned(result.row())
    return name, gain, memory_cell(result, base), back, needs


def walk_cycles(result: Result, base: Result) -> str:
    """Beside the baseline's, "at most -40.3 %"; "about 0 %" where the caches hold what is placed; of the
    baseline, all."""
    before, after = base.price.walk_cycles, result.price.walk_cycles
    if result is base or not before:
        return cycles(after)
    change = f"{walk_percent(result, base) - 100:+z.1f} %"
    if base.cached and not reshapes(result.policy):
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
    """After what time the one-time cost is earned back, of a row of whatif_frame: "57.9 ms", "at once", or
    "never" where no gain can be read; "-" where that is not known, or nothing has to be earned back."""
    when, seconds = row["pays_back"], row["pays_back_seconds"]
    if not isinstance(when, str):
        return "-"
    if not faster(row["speedup"]):
        return "-" if when == "at once" else "never"
    return show_duration(seconds) if when == "later" and seconds else when


def further(
    capture: str | None,
    policies: Sequence[str],
    narrower: bool,
    other_host: bool = False,
    *,
    own: Sequence[str] = (),
    shared: Sequence[str] = (),
) -> Section:
    """What to type next; `policies` as after -p, none: of advise.

    narrower    whether a calibration would narrow what is shown; other_host: whether the captured machine
                needs a model of its own
    own, shared  words of the options that were given: all; those that whatif, advise and report share
    """
    named = f" {shlex.quote(capture)}" if capture else ""
    chosen = f" -p {'all' if set(policies) >= set(names()) else ','.join(policies)}"
    command = f"whatif{named}{chosen}" if policies else f"advise{named}"
    command += "".join(f" {shlex.quote(word)}" for word in own)
    options = "".join(f" {shlex.quote(word)}" for word in shared)
    steps = {"every count and assumption": f"ptanalyze {command} --full"}
    if policies:
        steps["all policies, ranked"] = f"ptanalyze advise{named}{options}"
    steps["a page with pictures"] = f"ptanalyze report{named}{options}"
    if other_host:
        steps["a model, made on that host"] = HOST_MODEL
        steps["the answer for it"] = f"ptanalyze {command} -m host.toml"
    if narrower:
        steps["narrower ranges"] = "ptanalyze calibrate --help"
    if capture is None:
        steps["your own program"] = f"sudo {this_program()} record -o app -- ./app"
    return Section("Next", [], [line for why, command in steps.items() for line in typed(why, command)])


def typed(why: str, command: str) -> list[Text]:
    """One line, or two where it is wider than a screen; a command is never broken, to be copied."""
    from rich.text import Text

    line = f"  {why:<26}  {command}"
    lines = [line] if len(line) <= WIDTH else [f"  {why}", f"    {command}"]
    return [Text(one, no_wrap=True) for one in lines]
