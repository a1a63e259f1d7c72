"""What answers are made of: columns of tables (what each is, its unit, where people see it); findings, the
facts that a reader must know, each one record made where the fact is known; sentences; sections of a view.

What shows answers decides by a finding's code, weight and numbers; sentences are lines of messages.toml, one
for each code. How a number is written stands beside its name in that file: {share:%}, {size:bytes},
{after:time}; an Interval is a speed-up, "1.22x (1.06-1.42)", with % a share, "24-30 %", or a range of time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import cache
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from .errors import plural, show_duration, size_in_words
from .interval import Interval, interval, share

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.text import Text


class Message(NamedTuple):
    """A code of a section of messages.toml and the numbers of its line, which str() makes."""

    section: str
    code: str
    numbers: Mapping[str, Any]

    def __str__(self) -> str:
        return WRITER.vformat(messages()[self.section][self.code], (), self.numbers)

    def __format__(self, spec: str) -> str:
        return str(self)


def message(section: str, code: str, **numbers: Any) -> Message:
    return Message(section, code, numbers)


def joined(parts: Iterable[Message], between: str = ", ") -> str:
    """Parts of a sentence, those that say something."""
    return between.join(filter(None, map(str, parts)))


@cache
def messages() -> dict[str, dict[str, str]]:
    """{section: {code: line}}"""
    return tomllib.loads(Path(__file__).with_name("messages.toml").read_text("utf-8"))


class Writer(Formatter):
    """Numbers as people read them, by what stands behind their name."""

    def format_field(self, value: Any, spec: str) -> Any:
        if isinstance(value, Interval):
            times = spec == "time" and show_duration(value.low, value.high)
            return times or (share(value) if spec == "%" else interval(value))
        if spec.endswith("%"):
            return f"{100 * value:{spec[:-1] or '.0'}f} %"
        if spec == "bytes":
            return size_in_words(int(value))
        if spec == "time":
            return show_duration(value)
        if spec.startswith("#"):  # {threads:#thread}: "1 thread", "5 threads"; {pages:#page is|pages are}
            return plural(int(value), *spec[1:].split("|"))
        return super().format_field(value, spec)


WRITER = Writer()

OK, NOTE, CAREFUL, PARTIAL, FAILED = "ok", "note", "careful", "partial", "failed"

# Codes that decide what is shown; others are where they are made.

ASSUMED = "assumed"  # the assumptions of a run time
MEASURED = "measured-here"  # the gain of huge pages, in place of a replayed one
AS_STARTED = "as-started"  # tables lie where another policy has them from the start: at no cost
COLD = "as-traced"  # caches were empty at first
BY_HEAT = "pages-by-heat"
CACHED = "caches-hold-leaf-entries"
DATA_NODES = "data-by-node"  # walks by the node of the page, where threads are not known
EACH_ONCE = "pages-each-once"
ELSEWHERE = "other-number-of-nodes"
GONE = "tables-gone"
UNWRITTEN, UNWRITTEN_BYTES = "unwritten", "unwritten_bytes"  # code of a Finding, name of a fact
UNFIT = "trial-unfit"  # a capture's own calibration
MADVISE = "madvise"  # what the program says about huge pages
NO_RATE = "footprint-unknown"  # accessed bits tell no reads from DRAM
SCALE = "scale"  # of the run that a smaller capture stands for
FILLS = "fills"  # memory, in the first part of a whole run
REFILLS = "refills"  # memory, in each run
SAMPLED = "sampled"
SEARCHES = "searches"  # in a larger run deeper
SHORT = "short-region"
SILENT = "silent-nodes"
TOGETHER = "processes-together"
UNREAD = "unread-copies"  # of page tables, on nodes where no walk reads them
UNTRACED = (EACH_ONCE, BY_HEAT)
UNSEEN = ("cut", GONE, SHORT, SAMPLED)  # what the capture cannot show
OF_CAPTURE = (*UNSEEN, *UNTRACED, ELSEWHERE)  # said once, not beside each policy


@dataclass(frozen=True)
class Finding:
    """
    code     what programs read
    text     a line for people, without a full stop
    weight   OK, NOTE, CAREFUL (stands beside any recommendation), PARTIAL (data are missing) or FAILED
    short    the same within a sentence, "" where it need not be said in short
    policy   whose it is, "" where it is of the capture or the run
    numbers  {name: number} of the text
    """

    code: str
    text: str
    weight: str = NOTE
    short: str = ""
    policy: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def line(self) -> str:
        """The text behind whose it is, and its weight where it stands beside recommendations."""
        whose = f"{self.policy}: " if self.policy else ""
        return f"{whose}careful: {self.text}" if self.weight == CAREFUL else f"{whose}{self.text}"

    @property
    def sentence(self) -> str:
        first, line = self.line[0], self.line
        return f"{line}." if self.policy else f"{first.upper()}{line[1:]}."


def noted(code: str, weight: str = NOTE, policy: str = "", line: str = "", **numbers: Any) -> Finding:
    """Finding whose text is a line of messages.toml, of its code or another; so is what is said in short."""
    in_short = messages()["short"]
    text = str(message("finding", line or code, **numbers))
    short = str(message("short", line or code, **numbers)) if (line or code) in in_short else ""
    return Finding(code, text, weight, short, policy, numbers)


def found(findings: Iterable[Finding], *codes: str) -> Finding | None:
    """The first of these codes, None where there is none."""
    return next((one for one in findings if one.code in codes), None)


def plain(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For JSON and the attrs of tables, each once."""
    return [asdict(one) for one in dict.fromkeys(findings)]


@dataclass(frozen=True)
class Column:
    """A column of an answer, known in this one place: JSON, frames, the terminal and the manual follow.

    key      its name in JSON, CSV and frames; meaning: for the manual
    of       its value, of what the answer makes a row from; None where it is not known
    group    heading of the full table on the terminal, "" not shown there; title: its line there;
             native: where walks have one dimension, None: the same, "" not shown
    form     of its numbers: "count", "share" (0 to 1, as percent), "ratio", "mean", "ms", "millions"
    scale    they are shown times that
    rank     place below the heading, those of a rank as they come
    unit     "" as its name ends (unit_of), else a count
    optional  whether it can be unknown: NaN in frames
    """

    key: str
    meaning: str
    of: Callable[[Any], Any]
    group: str = ""
    title: str = ""
    native: str | None = None
    _: KW_ONLY
    form: str = "count"
    scale: float = 1
    rank: int = 9
    unit: str = ""
    optional: bool = False

    def titled(self, nested: bool) -> str:
        return self.title if nested or self.native is None else self.native


def table_of(rows: Any, columns: Sequence[str] | None = None) -> DataFrame:
    """pandas DataFrame of rows; pandas takes long to import, and a terminal's tables do without."""
    from pandas import DataFrame

    return DataFrame(rows, columns=columns)


def numbers(table: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The table with NaN for None in columns of numbers."""
    return table.astype({one.key: float for one in columns if one.optional and one.key in table})


ENDS = (
    ("_share", "share"),  # 0 to 1
    ("_ns", "ns"),
    ("_cycles", "cycles"),
    ("_bytes", "bytes"),
    ("_per_walk", "reads/walk"),
    ("_reads", "reads"),
)
COMMON = {  # unit: the columns of several tables that have it
    "share": "share",
    "walks": "walks",
    "ratio": "ratio slowdown low middle high",
    "ns/call": "ns stolen_ns",
    "address": "base start end",
    "bytes": "bytes",
    "level": "level",
    "node": "node from_node to_node reader server socket",
    "pages": "table_pages frames",
    "cache lines": "ept_lines",
    "GHz": "ghz",
    "cycles": "cycles",
    "s": "seconds",
}
UNITS = {column: unit for unit, columns in COMMON.items() for column in columns.split()}


def unit_of(column: str) -> str:
    """Unit of a column of numbers; "count" for counts, which have none."""
    if column in UNITS:
        return UNITS[column]
    return next((unit for end, unit in ENDS if column.endswith(end)), "count")


def units_of(table: DataFrame, columns: Sequence[Column] = ()) -> dict[str, str]:
    """{column of numbers: unit}."""
    own = {one.key: one.unit for one in columns if one.unit}
    names = [str(name) for name, of in table.dtypes.items() if of.kind in "iuf"]
    return {name: own.get(name) or unit_of(name) for name in names}


def described(
    table: DataFrame,
    findings: Iterable[Finding] = (),
    provenance: Mapping[str, str] | None = None,
    columns: Sequence[Column] = (),
    **more: Any,
) -> DataFrame:
    """The table with attrs: units {column of numbers: unit}, findings (as `plain`), provenance
    {what: text}, `more`. columns: those of its own.

    Plain values only, so that attrs can be copied, compared and written as JSON.
    """
    table.attrs = {
        "units": units_of(table, columns),
        "findings": plain(findings),
        "provenance": dict(provenance or {}),
        **more,
    }
    return table


Cell: TypeAlias = str | float | None
Rows: TypeAlias = Sequence[Mapping[str, Cell]]


@dataclass(frozen=True)
class Section:
    """Part of an answer for people: a title, a table of rows or a listing {what: value}, lines below it."""

    title: str = ""
    rows: Rows | Mapping[str, Cell] = ()
    lines: Sequence[str | Text] = ()
