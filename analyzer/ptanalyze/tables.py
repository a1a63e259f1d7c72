"""What a person sees on a terminal: sections and tables that fit its width; JSON on request."""

import json
import sys

SCHEMA = 1


def console(stderr=False):
    """A rich Console: colour only on a terminal and not with NO_COLOR; wide when it is no terminal."""
    from rich.console import Console

    out = Console(stderr=stderr, highlight=False)
    if not out.is_terminal:
        out = Console(stderr=stderr, highlight=False, width=200)
    return out


def print_json(what, value):
    """One JSON object: {"schema": N, "what": ..., "result": value}; NumPy scalars become numbers."""
    json.dump({"schema": SCHEMA, "what": what, "result": value}, sys.stdout, indent=1, default=plain)
    sys.stdout.write("\n")


def plain(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_sections(sections):
    """Two-column listings under headings: {heading: {what: value}}."""
    from rich.table import Table

    out = console()
    for heading, rows in sections.items():
        table = Table(title=heading, title_justify="left", title_style="bold", box=None, show_header=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for what, value in rows.items():
            table.add_row(what, number(value) if not isinstance(value, str) else value)
        out.print(table)


def print_rows(title, rows, note=""):
    """One table from a list of dicts, "-" where one lacks a key; numbers to the right, words to the left."""
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", title_style="bold", caption=note or None, caption_justify="left"
    )
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for key in keys:
        words = all(isinstance(row.get(key, ""), str) for row in rows)
        table.add_column(key, justify="left" if words else "right", overflow="fold")
    for row in rows:
        values = [row.get(key) for key in keys]
        table.add_row(*(value if isinstance(value, str) else number(value) for value in values))
    console().print(table)


def number(value):
    """A number for people: thousands apart, a sensible count of digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}"
