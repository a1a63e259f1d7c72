"""Defaults of options from the user's own file: ~/.config/ptanalyze/config.toml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..core.errors import UsageError, meant
from .echo import echo


def config_file() -> Path:
    """$XDG_CONFIG_HOME/ptanalyze/config.toml, by default in ~/.config; it need not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "ptanalyze", "config.toml")


def defaults_of(context: click.Context, program: click.Group, name: str) -> dict[str, Any]:
    """What the file says of a command, as click's default_map has it: {parameter: value}, groups nested.

    Keys are long options without their dashes. At the top they are of every command that has such an option,
    in a table of the command's name of that command: [whatif], [dump.vm]. UsageError names file and key for
    anything else.
    """
    path = config_file()
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:  # of another user, as under setpriv or sudo -u without a HOME of its own
        echo(f"ptanalyze: {path}: may not be read, so no defaults are taken from it", err=True)
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: no TOML: {error}") from None
    own = {key: value for key, value in table.items() if isinstance(value, dict)}
    commands = program.list_commands(context)
    for key in own.keys() - set(commands):
        raise UsageError(f"{path}: [{key}]: no such command; {meant(key, commands)}".rstrip("; "))
    shared = {key: value for key, value in table.items() if key not in own}
    command = program.get_command(context, name)
    assert command is not None
    if shared.keys() - options(command).keys():
        known = {key for one in commands for key in options(program.get_command(context, one))}
        for key in shared.keys() - known:
            raise UsageError(f"{path}: {key}: no command has this option; {meant(key, known)}".rstrip("; "))
    return of_command(command, shared, own.get(name, {}), f"{path}: [{name}")


def options(command: click.Command | None) -> dict[str, click.Option]:
    """{long name without dashes: Option} of a command, or of all below a group; not --json and its like."""
    if isinstance(command, click.Group):
        return {name: one for under in command.commands.values() for name, one in options(under).items()}
    return {
        long.removeprefix("--"): one
        for one in (command.params if command else ())
        for long in one.opts
        if isinstance(one, click.Option) and long.startswith("--") and one.is_flag == one.is_bool_flag
    }


def of_command(
    command: click.Command, shared: Mapping[str, Any], own: Mapping[str, Any], where: str
) -> dict[str, Any]:
    if isinstance(command, click.Group):
        for key, value in own.items():
            if key in command.commands and isinstance(value, dict):
                continue
            raise UsageError(f"{where}]: {key}: no such command; {meant(key, command.commands)}".rstrip("; "))
        return {
            name: of_command(under, shared, own.get(name, {}), f"{where}.{name}")
            for name, under in command.commands.items()
        }
    known = options(command)
    for key in own.keys() - known.keys():
        raise UsageError(f"{where}]: {key}: no such option; {meant(key, known)}".rstrip("; "))
    asked = {key: value for key, value in shared.items() if key in known} | dict(own)
    return {
        str(known[key].name): checked(known[key], value, f"{where}]: {key} = {value!r}")
        for key, value in asked.items()
    }


def checked(option: click.Option, value: Any, where: str) -> Any:
    """The value, if the option takes it."""
    if option.is_flag != isinstance(value, bool):
        raise UsageError(f"{where}: write {'true or false' if option.is_flag else 'a value'}")
    value = [value] if option.multiple and not isinstance(value, list) else value
    try:
        option.type_cast_value(click.Context(click.Command("")), value)
    except (click.BadParameter, TypeError) as error:
        raise UsageError(f"{where}: {error}") from None
    return value
