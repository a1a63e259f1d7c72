"""All commands of the program by name, and how one fails."""

import json
import re

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


def result_of(ran):
    """What a command with --json answered."""
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["result"]


# How a command fails: with one line and an exit code.
PROGRESS = re.compile(r" compiled$|^ptanalyze: .* (done after|at work for) \d")  # of a machine that is busy


def is_one_line(ran, code):
    """The command failed as a command should: this exit code, one line, nothing else, progress left out."""
    assert ran.code == code, ran
    (said,) = (line for line in ran.err.splitlines() if not PROGRESS.search(line))
    assert said.startswith("ptanalyze: "), ran.err
    return True
