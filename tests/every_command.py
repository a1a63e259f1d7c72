"""All commands of the program, by name."""

import click

from ptanalyze.cli import ptanalyze as program


def commands(command=program, name=""):
    """Yield (name, command) of all commands and groups but the program itself."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            under = command.get_command(context, child)
            path = f"{name} {child}".strip()
            yield path, under
            yield from commands(under, path)


EVERY = dict(commands())
LEAVES = {name: command for name, command in EVERY.items() if not isinstance(command, click.Group)}


def takes(command, option):
    return any(option in one.opts for one in command.params)
