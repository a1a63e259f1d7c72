"""Directives whose Markdown is made from the package, as ptanalyze-commands: see MADE."""

import re
import tomllib

from command_help import pages
from sphinx.util.docutils import SphinxDirective

from ptanalyze.analysis.ranking import COLUMNS as ADVICE
from ptanalyze.core.columns import unit_of
from ptanalyze.core.errors import bundled
from ptanalyze.cost.result import COLUMNS
from ptanalyze.cost.throughput import WINDOW_COLUMNS
from ptanalyze.policies import parameters, policies
from ptanalyze_formats.diff import COLUMNS as CHANGES


class Generated(SphinxDirective):
    """A directive without arguments whose content is the Markdown that `make` returns."""

    def run(self):
        return self.parse_text_to_nodes(type(self).make(), allow_section_headings=True)


def commands():
    parts = []
    for page in pages():
        parts.append(f"({anchor(page.name)})=\n## {page.name}\n\n```text\n{page.usage}\n```\n")
        parts += [prose(text) for text in page.text]
        for heading, rows in (("Commands", page.commands), ("Options", page.options)):
            if rows:
                parts.append(f"**{heading}**\n")
                parts.append(
                    "\n".join(f"`{what}`\n: {escaped(meaning) or '...'}\n" for what, meaning in rows)
                )
        if page.epilog:
            parts.append(escaped(page.epilog) + "\n")
    return "\n".join(parts)


def policy_list():
    parts = []
    for policy in policies().values():
        acts = ", ".join(sorted(policy.acts_on(policy.params())))
        parts.append(f"(policy-{policy.name})=\n## {policy.name}\n\n{escaped(capital(policy.doc))}.\n")
        parts.append(
            f"Acts on\n: {acts}\n\nNeeds\n: {', '.join(policy.needed(policy.params())) or 'page tables'}\n"
        )
        parts.append(f"After\n: {escaped(policy.source)}\n")
        rows = [[f"`{name}`", f"`{default}`" if str(default) else "", allowed, doc]
                for name, default, allowed, doc in parameters(policy)]  # fmt: skip
        if rows:
            parts.append(table(["parameter", "default", "allowed", "meaning"], rows))
    return "\n".join(parts)


def files(kind):
    """Markdown of every TOML file of models/KIND: its numbers, then their sources."""
    parts = []
    for path in sorted((bundled("models") / kind).glob("*.toml")):
        record = tomllib.loads(path.read_text("utf-8"))
        sources = record.pop("sources")
        parts.append(f"({kind}-{path.stem})=\n## {path.stem}\n\n{escaped(record['description'])}.\n")
        rows = [
            [f"`{name}`", f"`{value}`"] for name, value in flat(record) if name not in ("name", "description")
        ]
        parts.append(table(["number", "value"], rows))
        parts.append("Sources:\n")
        parts.append(table(["of", "source"], [[f"`{name}`", text] for name, text in sources.items()]))
    return "\n".join(parts)


def flat(record, prefix=""):
    """(dotted name, value) of a nested table; rows of a matrix are separate."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], list):
            yield from ((f"{prefix}{name}[{k}]", row) for k, row in enumerate(value))
        else:
            yield f"{prefix}{name}", value


def columns():
    answers = (
        ("whatif, sweep, advise", COLUMNS),
        ("advise alone", ADVICE),
        ("timeline, beside `policy` and `params`", WINDOW_COLUMNS),
        ("diff, `tables`", CHANGES),
    )
    return "\n".join(
        f"### {title}\n\n"
        + table(
            ["column", "unit", "meaning"],
            [[f"`{one.key}`", one.unit or unit_of(one.key), one.meaning] for one in columns],
        )
        for title, columns in answers
    )


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text):
    text = str(text)
    return text if text.startswith("`") else escaped(text).replace("|", r"\|")


def escaped(text):
    """Text for Markdown; text between backticks stays code."""
    parts = text.split("`")
    return "`".join(
        part if k % 2 else re.sub(r"([\\*_\[\]<>#^~$|])", r"\\\1", part) for k, part in enumerate(parts)
    )


def prose(text):
    return escaped(text) + "\n" if "\n" not in text else f"```text\n{text}\n```\n"


def capital(text):
    return text[:1].upper() + text[1:]


def anchor(name):
    return "command-" + name.removeprefix("ptanalyze ").replace(" ", "-")


MADE = {
    "ptanalyze-commands": commands,
    "ptanalyze-policies": policy_list,
    "ptanalyze-columns": columns,
    "ptanalyze-machines": lambda: files("machines"),
    "ptanalyze-costs": lambda: files("costs"),
}


def setup(app):
    for name, make in MADE.items():
        app.add_directive(name, type("Made", (Generated,), {"make": staticmethod(make)}))
    return {"parallel_read_safe": True}
