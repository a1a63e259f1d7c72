"""Arguments and options that several subcommands share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..formats.capture import Capture

capture_argument = click.argument("capture", required=False, type=click.Path())


def complete_policies(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names for the shell's completion; of A+B the last."""
    from ..policies import policies

    before, plus, begun = incomplete.rpartition("+")
    return [before + plus + name for name in policies() if name.startswith(begun)]


def complete_machines(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names for the shell's completion, or files where none begins that way."""
    from click.shell_completion import CompletionItem

    from ..core.machine import machine_names

    names = [CompletionItem(name) for name in machine_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def open_or_default(directory: str | None) -> Capture:
    """The named capture, or the newest one here, or a bundled sample; says on stderr which it took."""
    from ..formats.capture import default_capture, open_capture

    if directory is not None:
        return open_capture(directory)
    capture, which = default_capture()
    click.echo(f"ptanalyze: {which}", err=True)
    return capture
