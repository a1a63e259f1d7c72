"""Output of `perf stat`: text for people, `-x` separated values, or `-j` JSON lines, of one run in total.

Text may be grouped and marked as in any locale (1,234 1.234 1 234 1'234); lines without a counter are
skipped. perf scales counters that were not running all the time and says for which percentage of
the time they were. Fields as in perf-stat(1), CSV FORMAT and JSON FORMAT.
"""

import re
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from ..core.decode import Undecodable, plain_json
from ..core.errors import InputError
from ..core.regular import read_given

Lines = list[tuple[int, str]]  # line numbers from 1, and their text
Said = dict[str, float | None]  # beside the counters: seconds, cpus

MOST_BYTES = 1 << 24
ONE_RUN = "give the totals of one run (no -I, -A, --per-...)"
CLOCKS = ("task-clock", "cpu-clock")
ELAPSED_EVENT = "duration_time"  # ns; the only elapsed time that -x and -j have
ABSENT = ("<not counted>", "<not supported>")
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
    if not rows:
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
