"""Every command's help as data, read from click, for the manual and the man pages."""

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
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context)) and record[1]
        ],
        [(name, child.get_short_help_str(200)) for name, child in children],
        command.epilog or "",
    )
    for name, child in children:
        yield from pages(child, context, name)


def subcommands(command, context):
    return command.list_commands(context) if isinstance(command, click.Group) else []


def paragraphs(text):
    """Paragraphs on a line each; a paragraph that begins with click's \\b keeps its lines."""
    blocks = []
    for paragraph in (text or "").strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        blocks.append("\n".join(lines[1:]) if lines[0] == "\b" else " ".join(lines))
    return blocks
