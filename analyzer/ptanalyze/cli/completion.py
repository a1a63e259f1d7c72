"""`ptanalyze completion`: shell completion scripts."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context, shell):
    """Print a completion script: eval "$(ptanalyze completion bash)"."""
    complete = get_completion_class(shell)
    root = context.find_root()
    click.echo(complete(root.command, {}, "ptanalyze", "_PTANALYZE_COMPLETE").source())
