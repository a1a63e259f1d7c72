"""What a person sees on a terminal: sections and tables that fit its width; JSON on request."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from math import isinf
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..core.columns import Cell, Matrix, Quantity, Section
from ..core.errors import printable
from ..core.process import Progress as ProgressProgress
from ..formats.text_output import record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.progress import TaskID
    from rich.table import Table
    from rich.text import Text

    from ..capture.live.supervise import TraceSize


# A Matrix as lines that fit a terminal: numbers in full where there is room, else short, else in parts.

Cells: TypeAlias = Callable[[float | None, str], str]

INDENT = "  "  # of quantities under their heading
PIECE = re.compile(r"[^-+ ]*[-+ ]|[^-+ ]+$")  # of a column's name, which may be broken behind it
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Layout:
    """How a Matrix is drawn: the longest line of a quantity's name, blanks left of columns, its numbers."""

    matrix: Matrix
    longest: int
    gap: int
    cells: Cells

    @cached_property
    def quantities(self) -> list[Quantity]:
        return [one for group in self.matrix.groups.values() for one in group]

    @cached_property
    def label(self) -> int:
        lines = (line for one in self.quantities for line in wrap(one.name, self.longest))
        return len(INDENT) + max(map(len, lines), default=0)

    @cached_property
    def widths(self) -> list[int]:
        """Of the columns, without the blanks."""
        return [
            max([*(len(self.cells(one.values[k], one.form)) for one in self.quantities), *map(len, pieces)])
            for k, name in enumerate(self.matrix.columns)
            for pieces in [[piece.rstrip() for piece in PIECE.findall(name)]]
        ]

    def fits(self, width: int) -> bool:
        return self.label + sum(self.gap + one for one in self.widths) <= width


def drawn(matrix: Matrix, width: int) -> Iterator[Text]:
    """The lines of a Matrix, at most `width` wide unless one column alone is wider."""
    roomy, plain, tight = (
        Layout(matrix, 27, 2, full),
        Layout(matrix, 27, 2, short),
        Layout(matrix, 19, 1, short),
    )
    layout = next((one for one in (roomy, plain, tight) if one.fits(width)), plain)
    for part in parts(layout, width):
        yield from lines(layout, part)


def parts(layout: Layout, width: int) -> list[list[int]]:
    """Positions of columns in as few parts as fit, of about as many columns each."""
    widths, room = [layout.gap + one for one in layout.widths], width - layout.label
    even = -(-len(widths) // len(filled_matrix(widths, room, len(widths))))
    return filled_matrix(widths, room, even)


def filled_matrix(widths: Sequence[int], room: int, most: int) -> list[list[int]]:
    found: list[list[int]] = [[]]
    left = room
    for k, wide in enumerate(widths):
        if found[-1] and (left < wide or len(found[-1]) == most):
            found.append([])
            left = room
        found[-1].append(k)
        left -= wide
    return found


def lines(layout: Layout, part: Sequence[int]) -> Iterator[Text]:
    """Some columns of a Matrix: their names, then a heading per group with what these columns have of it."""
    from rich.text import Text

    if part[0]:
        yield Text()
    widths = layout.widths
    heads = [broken(layout.matrix.columns[k], widths[k]) for k in part]
    high = max(map(len, heads))
    for row in zip(*([""] * (high - len(head)) + head for head in heads), strict=True):
        yield Text(aligned(layout, "", row, part), "bold cyan")
    for heading, group in layout.matrix.groups.items():
        there = [one for one in group if any(one.values[k] is not None for k in part)]
        if there:
            yield Text(heading, "bold")
        for quantity in there:
            *above, last = wrap(quantity.name, layout.longest)
            yield from (Text(INDENT + line) for line in above)
            texts = [layout.cells(quantity.values[k], quantity.form) for k in part]
            yield Text(aligned(layout, INDENT + last, texts, part))


def aligned(layout: Layout, name: str, texts: Sequence[str], part: Sequence[int]) -> str:
    cells = (text.rjust(layout.gap + layout.widths[k]) for text, k in zip(texts, part, strict=True))
    return (name.ljust(layout.label) + "".join(cells)).rstrip()


def broken(name: str, width: int) -> list[str]:
    """A column's name in lines: broken behind hyphens, pluses and blanks."""
    found: list[str] = []
    for piece in PIECE.findall(name):
        if found and len(found[-1]) + len(piece.rstrip()) <= width:
            found[-1] += piece
        else:
            found.append(piece)
    return [line.rstrip() for line in found] or [""]


def full(value: float | None, form: str) -> str:
    if value is None or isinf(value):
        return "-" if value is None else "never"
    if form == "count":
        return f"{value:,.0f}"
    if form == "share":
        return f"{100 * value:.2f}"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"


def short(value: float | None, form: str) -> str:
    """The same in at most six characters."""
    if value is None or isinf(value):
        return "-" if value is None else "never"
    if form == "share":
        return f"{100 * value:.1f}"
    for size, unit in UNITS if abs(value) >= 9999.5 else ():
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g}{unit}" if abs(value) < 999.5 * size else f"{value / size:.0f}{unit}"
    if form == "count" or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


WIDE = 200  # columns where there is no terminal and COLUMNS says nothing
LONG = 24  # text is folded at this width, where most of a column is shorter at SHORT; numbers never
SHORT = 12
LONGEST_KEY = 32  # what tells rows apart is folded here, or where it would take half of the width
PROSE = 48  # words of which most in a column are longer are listed when their table does not fit
GAP = 2  # columns that each column of a table takes beside its text
NUMBER = re.compile(r"[<>]?[-+]?[\d,]*\.?\d+(e[-+]?\d+)?( %)?|-", re.IGNORECASE)


def console(stderr: bool = False) -> Console:
    """A rich Console: colour only on a terminal and not with NO_COLOR; no terminal is as wide as COLUMNS
    says, else WIDE. Text is text: "[heap]" is no markup."""
    from rich.console import Console

    plain_text = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    out = plain_text()
    if not out.is_terminal:
        columns = os.environ.get("COLUMNS", "")
        out = plain_text(width=int(columns) if columns.isdecimal() and int(columns) else WIDE)
    return out


def print_json(what: str, value: object, refused: Mapping[str, str], **about: str) -> None:
    """One JSON object, as text_output.record, with fields `about` the run; NumPy scalars become numbers, NaN
    and infinities null."""
    json.dump(record(what, value, refused, **about), sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def print_json_line(what: str, value: object, refused: Mapping[str, str]) -> None:
    """The same object in one line, and when it was made."""
    made = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    sys.stdout.write(json.dumps(made | record(what, value, refused), allow_nan=False) + "\n")
    sys.stdout.flush()


def listing(rows: Mapping[str, Cell], title: str | None = None, indent: int = 0) -> Padding:
    from rich.padding import Padding
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in rows.items():
        table.add_row(printable(what), shown(value))
    return Padding(table, (0, 0, 0, indent), expand=False)


class Column(NamedTuple):
    """One column: what it may be narrowed to, what it would take, and its texts; `long`: prose."""

    name: str
    least: int
    most: int
    words: bool
    long: bool
    texts: list[str]


def print_view(sections: Iterable[Section | Matrix]) -> None:
    """An answer for people, section by section."""
    out = console()
    for section in sections:
        if isinstance(section, Matrix):
            for text in drawn(section, out.width):
                out.print(one_line(text))
            continue
        if isinstance(section.rows, Mapping):
            out.print(listing(section.rows, printable(section.title) or None))
        elif section.rows:
            print_rows(section.title, section.rows)
        elif section.title:
            out.print(printable(section.title), style="bold")
        for line in section.lines:
            whole = not isinstance(line, str) and bool(line.no_wrap)
            out.print(one_line(line), soft_wrap=whole)


def print_rows(title: str, rows: Sequence[Mapping[str, Cell]]) -> None:
    """One table from a list of dicts, "-" where one lacks a key; numbers to the right, words to the left.

    What is too wide for the console is folded where it is words; then cut into tables below each other that
    repeat the columns which tell the rows apart; or, where there are long words, listed row by row.
    """
    out = console()
    names = list(dict.fromkeys(key for row in rows for key in row))
    texts = [[shown(row.get(name)) for row in rows] for name in names]
    keys = distinct(texts)
    fold = min(LONGEST_KEY, max(out.width // 2 // keys - GAP, SHORT))
    columns = [
        column(printable(name), text, fold if k < keys else 0)
        for k, (name, text) in enumerate(zip(names, texts, strict=True))
    ]
    title = printable(title)
    if room(columns, out.width) < 0 and any(one.long for one in columns[keys:]):
        print_records(out, title, columns, keys)
        return
    if title:
        out.print(title, style="bold")
    if keys > 1:
        columns[0] = columns[0]._replace(texts=once_each(columns[0].texts))
    for part in pieces(columns, keys, out.width):
        out.print(grid(part, out.width))


def once_each(texts: Sequence[str]) -> list[str]:
    """What stands above is not said again."""
    return ["" if k and text == texts[k - 1] else text for k, text in enumerate(texts)]


def column(name: str, texts: list[str], fold: int = 0) -> Column:
    """The Column of `texts`, folded at `fold`; 0: where its texts suggest, and never within their words."""
    from rich.cells import cell_len

    words = not all(NUMBER.fullmatch(text) for text in texts)
    sizes = sorted(map(cell_len, texts)) or [0]
    usual, widest = sizes[len(sizes) // 2], sizes[-1]
    word = max((cell_len(one) for text in texts for one in text.split()), default=0)
    header = max((cell_len(piece.rstrip()) for piece in PIECE.findall(name)), default=0)
    folded = max(fold or min(max(usual, SHORT), LONG), min(word, LONGEST_KEY if fold else LONG))
    least = max(min(widest, folded) if words else widest, header)
    return Column(name, least, max(widest, cell_len(name)), words, words and usual > PROSE, texts)


def distinct(texts: Sequence[Sequence[str]]) -> int:
    """How many columns of texts, from the first on, tell all rows apart; 1 where even all do not."""
    for count in range(1, len(texts)):
        rows = list(zip(*texts[:count], strict=True))
        if len(set(rows)) == len(rows):
            return count
    return 1


def room(columns: Sequence[Column], width: int) -> int:
    """What is left of `width` when each column is as narrow as it may be; negative: they do not fit."""
    return width - sum(one.least + GAP for one in columns)


def pieces(columns: list[Column], keys: int, width: int) -> list[list[Column]]:
    """Columns in as few tables as fit, none much narrower than the others, each with the key columns first.

    A single column may still be too wide; it is folded.
    """
    parts = filled(columns, keys, width)
    for narrower in range(width - 1, 0, -1):
        even = filled(columns, keys, narrower)
        if len(even) > len(parts):
            break
        parts = even
    return parts


def filled(columns: list[Column], keys: int, width: int) -> list[list[Column]]:
    parts = [columns[:keys]]
    for one in columns[keys:]:
        if len(parts[-1]) > keys and room([*parts[-1], one], width) < 0:
            parts.append(columns[:keys])
        parts[-1] = [*parts[-1], one]
    return parts


def grid(columns: Sequence[Column], width: int) -> Table:
    """A rich Table without lines; what is left of `width` goes to the columns in proportion to what they
    lack."""
    from rich.table import Table

    table = Table(box=None)
    spare = max(room(columns, width), 0)
    lacking = max(sum(one.most - one.least for one in columns), 1)
    for one in columns:
        want = one.most - one.least
        width = one.least + min(want, spare * want // lacking)
        table.add_column(
            "\n".join(broken(one.name, width)),
            header_style="bold cyan",
            justify="left" if one.words else "right",
            overflow="fold",
            width=width,
        )
    for texts in zip(*(one.texts for one in columns), strict=True):
        table.add_row(*texts)
    return table


def print_records(out: Console, title: str, columns: list[Column], keys: int) -> None:
    """Row by row: what tells it apart, then its other columns below each other."""
    out.print(title, style="bold")
    for texts in zip(*(one.texts for one in columns), strict=True):
        row = dict(zip((one.name for one in columns), texts, strict=True))
        out.print(" ".join(texts[:keys]))
        out.print(listing({one.name: row[one.name] for one in columns[keys:]}, indent=2))


SCREEN = 80  # columns of a first screen


def typed(why: str, command: str, width: int = 26) -> list[Text]:
    """One line, or two where it is wider than a screen; a command is never broken, to be copied."""
    from rich.text import Text

    line = f"  {why:<{width}}  {command}"
    lines = [line] if len(line) <= SCREEN else [f"  {why}", f"    {command}"]
    return [Text(one, no_wrap=True) for one in lines]


def next_steps(steps: Mapping[str, str]) -> Section:
    """What to type next, of {why: command}."""
    width = max(map(len, steps))
    return Section("Next", [], [line for step in steps.items() for line in typed(*step, width)])


def percent(share: float | None) -> str:
    """A share for a sentence or a table: "24 %", "1.3 %" below ten; never 0 or 100 % unless it is that."""
    if share is None:
        return "-"
    text = f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"
    if share and text == "0.0 %":
        return "<0.1 %"
    return ">99 %" if text == "100 %" and share < 1 else text.replace("0.0 %", "0 %")


def shown(value: Cell) -> str:
    return printable(value) if isinstance(value, str) else number(value)


def one_line(line: str | Text) -> str | Text:
    """The line, printable; a Text that was not loses its styles."""
    plain = line if isinstance(line, str) else line.plain
    return line if (safe := printable(plain)) == plain else safe


def number(value: float | None) -> str:
    """A number for people: thousands apart, a sensible count of digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}"


# Latencies from node to node for people.


def matrices(title: str, nodes: Sequence[int], by_state: Mapping[str, Any]) -> Iterator[Section]:
    """A table per state of {state: [reader's node][serving node]} that has a matrix."""
    for state, matrix in by_state.items():
        if matrix is not None:
            rows = [
                {"reader": f"node {a}"} | {f"node {b}": float(ns) for b, ns in zip(nodes, row, strict=True)}
                for a, row in zip(nodes, matrix, strict=True)
            ]
            yield Section(f"{title}, {state}", rows)


@contextmanager
def progress_bar() -> Iterator[ProgressProgress]:
    """Yields progress(done, total, what), or None where stderr is not a terminal."""
    out = console(stderr=True)
    if not sys.stderr.isatty():  # not FORCE_COLOR, which is about colour: a log has no use for bars
        yield None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=out, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, rate="")
            task = bars.tasks[tasks[what]]
            rate = f"{task.speed / 1e6:.1f} M/s" if task.speed else ""
            bars.update(tasks[what], completed=done, rate=rate)

        yield progress


# What a person sees while a program is recorded: how far its trace is, and whether the disk will do.

LOW = 2 << 30  # bytes free below which one line warns
EVERY = 60.0  # seconds between lines, after the first ones
FIRST = 2.0


class Progress:
    """Call it with each TraceSize. On a terminal: one line that is rewritten; where the program writes to the
    terminal too, lines of their own, at growing intervals, so that neither spoils the other. Elsewhere only
    the warning about the disk."""

    def __init__(self, write: Callable[[str], object] = sys.stderr.write, waiting_for: str = "") -> None:
        """waiting_for: what the region begins with, "work()"; "" where it begins with the program."""
        self.write, self.waiting_for = write, waiting_for
        self.terminal = sys.stderr.isatty()
        self.shared = sys.stdout.isatty()
        self.next, self.warned, self.shown = FIRST, False, False

    def __call__(self, grown: TraceSize) -> None:
        if grown.free < LOW and not self.warned:
            self.warned = True
            self.clear()
            self.write(
                f"ptanalyze: only {size(grown.free)} are left on the disk; Ctrl-C ends the program and keeps "
                "what is recorded\n"
            )
        if not self.terminal:
            return
        if not self.shared:
            self.write(f"\r\x1b[K{line(grown, self.waiting_for)}")
            self.shown = True
        elif grown.seconds >= self.next:
            self.write(f"ptanalyze: {line(grown, self.waiting_for)}\n")
            self.next = min(2 * self.next, self.next + EVERY)
        flush()

    def clear(self) -> None:
        """Remove the line that is rewritten."""
        if self.shown:
            self.write("\r\x1b[K")
            self.shown = False

    def sealing(self, grown: TraceSize) -> None:
        """The program has ended; what follows takes long for a large trace."""
        self.clear()
        if self.terminal:
            self.write(f"ptanalyze: checking and sealing {size(grown.bytes)} of trace\n")
            flush()


def flush() -> None:
    sys.stderr.flush()


def line(grown: TraceSize, waiting_for: str = "") -> str:
    """ "recording: 1:05, 474 M accesses, 366 MB, 41 MB/s"; "waiting for work(): 0:12" before any access."""
    minutes, seconds = divmod(int(grown.seconds), 60)
    if waiting_for and not grown.accesses:
        return f"waiting for {waiting_for}: {minutes}:{seconds:02}"
    rate = grown.bytes / max(grown.seconds, 1e-9)
    return (
        f"recording: {minutes}:{seconds:02}, {accesses(grown.accesses)}, {size(grown.bytes)}, {size(rate)}/s"
    )


def accesses(count: int) -> str:
    return f"{number(count / 1e6)} M accesses" if count >= 1e6 else f"{count:,} accesses"


def size(count: float) -> str:
    """Bytes for people, in powers of ten as disks are sold: 366 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"
