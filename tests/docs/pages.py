"""What is code in a page of the manual: fences, and the comments before them that say what to do with it."""

import re
from pathlib import Path
from typing import NamedTuple

import ptanalyze

DOCS = Path(ptanalyze.__file__).parents[1] / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
MARK = re.compile(r"% (file|not run): (.+)")
FENCE = re.compile(r"```(\w*)")
EXITS = re.compile(r"\s+# exits with (\d)$")


class Block(NamedTuple):
    """`language` sh, python ...; `file`: where to write it; `not_run`: why it is not run; "" neither."""

    language: str
    code: str
    file: str
    not_run: str


def blocks(page):
    """Code blocks of a page of DOCS in order; directives such as {toctree} are none."""
    lines = iter((DOCS / page).read_text("utf-8").splitlines())
    found, before = [], ""
    for line in lines:
        if line.startswith("```"):
            code = [*iter(lambda: next(lines), "```")]
            if opens := FENCE.fullmatch(line):
                said = dict([marked.groups()]) if (marked := MARK.fullmatch(before)) else {}
                text = "".join(f"{one}\n" for one in code)
                found.append(Block(opens[1], text, said.get("file", ""), said.get("not run", "")))
        before = line
    return found


def commands(code):
    """[(line, exit code)] of a shell block; a line may go on after a backslash."""
    lines = code.replace("\\\n", " ").splitlines()
    found = []
    for line in filter(str.strip, lines):
        exits = EXITS.search(line)
        found.append((EXITS.sub("", line), int(exits[1]) if exits else 0))
    return found
