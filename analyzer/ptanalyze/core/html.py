"""Small pieces of HTML for notebooks; what others wrote is text in them, never markup."""

from collections.abc import Iterable, Mapping
from html import escape

from .printable import printable


def text(value: object) -> str:
    return escape(printable(str(value)))


def listing(title: str, rows: Mapping[str, object]) -> str:
    """A title above {what: value}."""
    cells = "".join(f"<tr><th>{text(what)}</th><td>{text(value)}</td></tr>" for what, value in rows.items())
    return f"<div><strong>{text(title)}</strong><table>{cells}</table></div>"


def lines(several: Iterable[str]) -> str:
    return "".join(f"<p>{text(line)}</p>" for line in several)
