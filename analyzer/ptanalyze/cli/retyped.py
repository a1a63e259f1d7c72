"""Options as they were given, to be typed again."""

from collections.abc import Collection
from decimal import Decimal

import click
from click.core import ParameterSource


def retyped(
    context: click.Context, only: Collection[str] | None = None, without: Collection[str] = ()
) -> list[str]:
    """Words of what was given on the command line, in the order of the help, and no more.

    only     names of the parameters that are wanted, default: all; without: names that are not
    """
    words: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not given or name in without or (only is not None and name not in only):
            continue
        value = context.params[name]
        values = value if isinstance(value, (tuple, list)) else [value]
        if isinstance(parameter, click.Option):
            flag = max(parameter.opts, key=len)
            words += [flag] if parameter.is_flag else [word for one in values for word in (flag, typed(one))]
        else:
            words += map(typed, values)
    return words


def typed(value: object) -> str:
    """A value as options take it: 0.00001 and not 1e-05."""
    return format(Decimal(str(value)), "f") if isinstance(value, float) else str(value)
