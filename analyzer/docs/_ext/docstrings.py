"""The package's docstrings as reStructuredText: paragraphs, and lists of `name  meaning` as definitions."""

import re

FULL = 80  # characters
TERM = re.compile(r"(?P<term>\S.*?) {2,}(?P<meaning>\S.*)")


def convert(lines):
    """reStructuredText lines of a docstring's lines."""
    out = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        out += [*definitions(block.splitlines()), ""]
    return out


def definitions(lines):
    """A block: text up to its first `name  meaning` line, then a definition of each.

    A definition continues in deeper lines, and in the line after a full line.
    """
    out, inside, full = [], False, False
    for line in lines:
        match = None if line.startswith(" ") else TERM.fullmatch(line)
        if match:
            out += ["", f"``{match['term']}``", f"    {escaped(match['meaning'])}"]
            inside = True
        elif inside and not full and not line.startswith(" "):
            out += ["", escaped(line)]
            inside = False
        else:
            out.append(("    " if inside else "") + escaped(line.strip()))
        full = len(line) > FULL
    return out


def escaped(text):
    """`code` becomes ``code``; no other character is markup."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return re.sub(r"([\\*|_`])", r"\\\1", text)
    marked = [f"``{part}``" if k % 2 else re.sub(r"([\\*|_])", r"\\\1", part) for k, part in enumerate(parts)]
    return "".join(marked)


def process(app, what, name, thing, options, lines):
    lines[:] = convert(list(lines))


def skip(app, what, name, thing, skipped, options):
    """Drop fields of named tuples: the docstring of their class describes them."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def setup(app):
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True}
