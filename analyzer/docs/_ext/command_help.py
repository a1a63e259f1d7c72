"""Every command's help as data, read from click: what the manual and the man pages are made of."""

from typing import NamedTuple

import click

from ptanalyze.cli import ptanalyze


class Page(NamedTuple):
    """One command. `text` are paragraphs; options and commands are (name, meaning)."""

    name: str
    usage: str
    text: list
    options: list
    commands: list
    epilog: str

    @property
    def summary(self):
        return self.text[0].split(". ")[0].rstrip(".")


def pages(command=ptanalyze, parent=None, name="ptanalyze"):
    """Yield a Page for `command` and all its subcommands, in the order of the help."""
    context = click.Context(command, parent=parent, info_name=name, **command.context_settings)
    children = [(child, command.get_command(context, child)) for child in subcommands(command, context)]
    yield Page(
        context.command_path,
        " ".join([context.command_path, *command.collect_usage_pieces(context)]),
        paragraphs(command.help),
        [
            record
            for one in command.get_params(context)
            if (record := one.get_help_record(context)) and record[1]
        ],
        [(child, one.get_short_help_str(200)) for child, one in children],
        command.epilog or "",
    )
    for child, one in children:
        yield from pages(one, context, child)


def subcommands(command, context):
    return command.list_commands(context) if isinstance(command, click.Group) else []


def paragraphs(text):
    """Paragraphs on a line each; one that begins with click's \\b keeps its lines."""
    found = []
    for paragraph in (text or "").strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        found.append("\n".join(lines[1:]) if lines[0] == "\b" else " ".join(lines))
    return found
