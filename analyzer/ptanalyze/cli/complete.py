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


def captures_at(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """CAPTURE@POLICY, or a file of results."""
    if "@" in incomplete:
        from ..policies import names

        capture = incomplete.partition("@")[0]
        return items((f"{capture}@{name}" for name in names()), incomplete)
    return items((f"{name}@" for name in samples()), incomplete, "file")


def samples() -> list[str]:
    from ..core.errors import bundled

    place = bundled("samples")
    return sorted(path.name for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """KEY= of the policies that -p names, of all without; after it the values, where there are few."""
    from ..policies import members, names, parameters

    asked = [one.partition(":")[0] for one in context.params.get("names") or names()]
    known = [row for name in asked for policy in members(name) for row in parameters(policy)]
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return items(dict.fromkeys(f"{name}=" for name, *_ in known), incomplete)
    values = [value for name, _, allowed, _ in known if name == key for value in allowed.split(", ")]
    return items(dict.fromkeys(f"{key}={value}" for value in values if ".." not in value), incomplete)


def policies(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names; of A+B and A,B the last."""
    from ..policies import names

    kept = max(incomplete.rfind("+"), incomplete.rfind(",")) + 1
    return items((incomplete[:kept] + name for name in [*names(), "all"]), incomplete)


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
