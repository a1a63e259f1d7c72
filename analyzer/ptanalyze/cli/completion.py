"""`ptanalyze completion`: shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a completion script: eval "$(ptanalyze completion bash)"."""
    complete = SHELLS[shell](context.find_root().command, {}, "ptanalyze", "_PTANALYZE_COMPLETE")
    click.echo(complete.source())
