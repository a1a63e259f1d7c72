"""What shells offer for arguments and options: names of captures, policies, machines, parameters, words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


Offer: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]"


def words(*choices: str) -> Offer:
    """Completion of an option that takes other text besides these."""

    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(choices, incomplete)

    return offer


def words_or_files(*choices: str) -> Offer:
    def offer(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return items(choices, incomplete, "file")

    return offer


def items(names: Iterable[str], incomplete: str, others: str = "") -> list[CompletionItem]:
    """Names that begin so; `others`: "file" or "dir" are offered too."""
    from click.shell_completion import CompletionItem

    begun = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*begun, CompletionItem(incomplete, type=others)] if others else begun


def captures(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled samples and directories."""
    return items(samples(), incomplete, "dir")


def samples() -> list[str]:
    from ..core.errors import bundled

    place = bundled("samples")
    return sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def machines(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names, or files where none begins that way."""
    from ..core.machine import machine_names

    return items(machine_names(), incomplete) or items((), incomplete, "file")


# `ptanalyze completion`: shell completion scripts.

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command("completion")
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print a completion script: eval "$(ptanalyze completion bash)"."""
    complete = SHELLS[shell](context.find_root().command, {}, "ptanalyze", "_PTANALYZE_COMPLETE")
    click.echo(complete.source())
