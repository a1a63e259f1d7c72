"""What a person sees on a terminal: sections and tables that fit its width; JSON on request."""

from __future__ import annotations

import json
import locale
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import process
from ..core.columns import Cell, Section
from ..core.errors import printable, show_duration
from ..formats.text_output import record

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.progress import TaskID
    from rich.table import Table
    from rich.text import Text


WIDE = 200  # columns of tables where there is no terminal and COLUMNS says nothing
LONG = 24  # words are folded at this width where the table has no more room; numbers never
PIECE = re.compile(r"[^-+ ]*[-+ ]|[^-+ ]+$")  # of a column's name, which may be broken behind it
NUMBER = re.compile(r"[<>]?[-+]?[\d,]*\.?\d+(e[-+]?\d+)?( %)?|-|never|", re.IGNORECASE)


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


def print_json(what: str, value: object, refused: Mapping[str, str], **about: Any) -> None:
    """One JSON object, as text_output.record, with fields `about` the run; NaN and infinities become null."""
    json.dump(record(what, value, refused, **about), sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def print_view(sections: Iterable[Section]) -> None:
    """An answer for people, section by section; lines are whole in a pipe, for grep and logs."""
    out = console()
    piped = not out.is_terminal and not os.environ.get("COLUMNS")
    for section in sections:
        if isinstance(section.rows, Mapping):
            out.print(listing(section.rows, printable(section.title) or None))
        elif section.rows:
            print_rows(section.title, section.rows)
        elif section.title:
            out.print(printable(section.title), style="bold")
        for line in section.lines:
            whole = piped or (not isinstance(line, str) and bool(line.no_wrap))
            safe = printable(str(line))  # a Text that was not loses its styles
            out.print(line if str(line) == safe else safe, soft_wrap=whole)


def listing(rows: Mapping[str, Cell], title: str | None = None) -> Padding:
    from rich.padding import Padding
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in rows.items():
        table.add_row(printable(what), shown(value))
    return Padding(table, 0, expand=False)


# Tables that fit: rich folds words; columns that do not fit then are in tables of their own below.


class Column(NamedTuple):
    """A column of texts; `words`: it is to the left and may be folded, numbers are to the right and whole."""

    name: str
    texts: Sequence[str]
    words: bool


def print_rows(title: str, rows: Sequence[Mapping[str, Cell]]) -> None:
    """One table from a list of dicts, "-" where one lacks a key; numbers to the right, words to the left.

    What is too wide for the console is folded where it is words; then cut into tables below each other that
    repeat the columns which tell the rows apart.
    """
    out = console()
    columns = []
    for name in dict.fromkeys(key for row in rows for key in row):
        texts = [shown(row.get(name)) for row in rows]
        columns.append(Column(printable(name), texts, not all(map(NUMBER.fullmatch, texts))))
    keys = distinct([column.texts for column in columns])
    if keys > 1:
        above, *_ = columns  # a name that repeats the one above it is left out
        once = ["" if k and text == above.texts[k - 1] else text for k, text in enumerate(above.texts)]
        columns[0] = above._replace(texts=once)
    if title:
        out.print(printable(title), style="bold")
    whole = grid(columns, whole=True)
    fits = out.measure(whole, options=out.options.update_width(1 << 20)).minimum <= out.width
    for table in [whole] if fits else map(grid, parts(out, columns, keys)):
        out.print(table)


def parts(out: Console, columns: Sequence[Column], keys: int) -> list[list[Column]]:
    """Columns in as few tables as fit, each with the key columns first; a single one may be too wide."""
    tables, unbounded = [list(columns[:keys])], out.options.update_width(1 << 20)
    for column in columns[keys:]:
        least = out.measure(grid([*tables[-1], column]), options=unbounded).minimum
        if len(tables[-1]) > keys and least > out.width:
            tables.append(list(columns[:keys]))
        tables[-1].append(column)
    return tables


def grid(columns: Sequence[Column], whole: bool = False) -> Table:
    """A rich Table without lines; whole: names of columns are not broken."""
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=None)
    for column in columns:
        pieces = [column.name] if whole else [piece.rstrip() for piece in PIECE.findall(column.name)]
        widest = max(map(cell_len, [*column.texts, *pieces]), default=0)
        table.add_column(
            "\n".join(broken(column.name, widest)),
            header_style="bold cyan",
            justify="left" if column.words else "right",
            overflow="fold",
            no_wrap=not column.words,
            min_width=min(widest, LONG) if column.words else widest,
        )
    for texts in zip(*(column.texts for column in columns), strict=True):
        table.add_row(*texts)
    return table


def distinct(texts: Sequence[Sequence[str]]) -> int:
    """How many columns of texts, from the first on, tell all rows apart; 1 where even all do not."""
    for count in range(1, len(texts)):
        rows = list(zip(*texts[:count], strict=True))
        if len(set(rows)) == len(rows):
            return count
    return 1


def broken(name: str, width: int) -> list[str]:
    """A column's name in lines: broken behind hyphens, pluses and blanks."""
    lines: list[str] = []
    for piece in PIECE.findall(name):
        if lines and len(lines[-1]) + len(piece.rstrip()) <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    return [line.rstrip() for line in lines] or [""]


SCREEN = 80  # columns of a first screen


def typed(why: str, command: str, width: int = 26) -> list[Text]:
    """One line, or two where it is wider than a screen; a command is never broken, to be copied."""
    from rich.text import Text

    line = f"  {why:<{width}}  {command}"
    lines = [line] if len(line) <= SCREEN else [f"  {why}", *(f"    {part}" for part in command.split("\n"))]
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


def number(value: float | None) -> str:
    """A number for people: thousands apart, a sensible count of digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}"


FIRST, STILL = 5.0, 30.0  # seconds before the first line on how far long work is; most between two


@contextmanager
def progress_bar(every: float = STILL) -> Iterator[process.Progress]:
    """Yields progress(done, total, what): bars on a terminal, else `lines_of_progress`."""
    bars_fit = os.environ.get("TERM") not in ("dumb", "unknown") and "utf" in locale.getencoding().lower()
    if not (sys.stderr.isatty() and bars_fit):  # not FORCE_COLOR, which is about colour: logs want no bars
        with lines_of_progress(STILL / 6 if sys.stderr.isatty() else every) as progress:
            yield progress
        return
    from rich.progress import Progress as Bars

    with Bars(console=console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {"": bars.add_task("at work", total=None)}

        def progress(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield progress


@contextmanager
def lines_of_progress(every: float = STILL, first: float = FIRST) -> Iterator[Callable[..., None]]:
    """Yields progress(done, total, what), which a thread writes to stderr after `first` seconds, then when as
    much time has passed again, at most `every`: "replaying walks, 42 % done after 1 min"."""
    now, ended, began = ["at work for"], threading.Event(), time.monotonic()
    rounds: dict[str, tuple[int, int]] = {}  # by what is done: the round, and how far it has come

    def progress(done: int, total: int, what: str) -> None:
        count, before = rounds.get(what, (1, 0))
        rounds[what] = (count := count + (done < before)), done
        what += f" (round {count})" if count > 1 else ""
        more = done < total  # else what follows has not said anything yet
        now[0] = f"{what}, {percent(done / total)} done after" if more else f"after {what}, at work for"

    def write() -> None:
        wait = min(first, every)
        while not ended.wait(wait):
            wait = min(passed := time.monotonic() - began, every)
            with suppress(OSError, ValueError):  # stderr that is gone
                print(f"ptanalyze: {now[0]} {show_duration(round(passed))}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
