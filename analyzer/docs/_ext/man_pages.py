"""Man pages from the same help: python man_pages.py DIRECTORY writes ptanalyze.1, ptanalyze-whatif.1 ..."""

import re
import sys
from pathlib import Path

from command_help import pages

from ptanalyze import __version__

EXAMPLES = re.compile(r"Examples?(?: \([^)]*\))?:\n")


def man_page(page, parent):
    """roff text (man(7)) of a command_help.Page."""
    name = page.name.replace(" ", "-")
    lines = [
        f'.TH "{quoted(name.upper())}" "1" "" "ptanalyze {__version__}" "User Commands"',
        ".SH NAME",
        rf"{escaped(name)} \- {escaped(page.summary)}",
        ".SH SYNOPSIS",
        rf"\fB{escaped(page.name)}\fR {escaped(page.usage.removeprefix(page.name).strip())}",
        ".SH DESCRIPTION",
    ]
    described = [text for text in page.text if not EXAMPLES.match(text)]
    for k, text in enumerate(described):
        lines += [".PP", *listing(text)] if k else listing(text)
    for heading, rows in (("COMMANDS", page.commands), ("OPTIONS", page.options)):
        if rows:
            lines.append(f".SH {heading}")
        for what, meaning in rows:
            lines += [".TP", rf"\fB{escaped(what)}\fR", escaped(meaning) or r"\&"]
    for text in page.text:
        if found := EXAMPLES.match(text):
            lines += [".SH EXAMPLES", ".nf", *map(escaped, text[found.end() :].splitlines()), ".fi"]
    if page.epilog:
        head, _, codes = page.epilog.partition(": ")
        lines += [f".SH {escaped(head.upper())}", escaped(codes)]
    # the wheel brings the first page alone
    related = rf"\fB{escaped(parent)}\fR(1)" if parent else rf"\fB{escaped(name)} help\fR \fICOMMAND\fR"
    lines += [".SH SEE ALSO", related]
    return "\n".join(lines) + "\n"


def listing(text):
    """A paragraph; a paragraph of several lines keeps them."""
    lines = [escaped(line) for line in text.splitlines()]
    return lines if len(lines) == 1 else [".nf", *lines, ".fi"]


def escaped(text):
    """Text that roff prints unchanged: no escapes, no line that begins with a request."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("`", r"\(ga").replace("'", r"\(aq")
    return rf"\&{text}" if text.startswith((".", r"\(aq")) else text


def quoted(text):
    return escaped(text).replace('"', r"\(dq")


def write(directory):
    """Write all pages; returns their paths."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for page in pages():
        parent = page.name.rpartition(" ")[0].replace(" ", "-")
        path = directory / f"{page.name.replace(' ', '-')}.1"
        path.write_text(man_page(page, parent), "utf-8")
        written.append(path)
    return written


if __name__ == "__main__":
    print(f"{len(write(sys.argv[1]))} man pages in {sys.argv[1]}")
