"""A line for whoever runs a command, on standard output or standard error."""

import click

from ..core.errors import printable


def echo(line: str, err: bool = False) -> None:
    """Print one line, what it names being printable."""
    click.echo(printable(line), err=err)
