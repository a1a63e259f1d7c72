"""`ptanalyze policies`: what can be replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..core.errors import program
from .options import Output, full_option, output_options
from .replay_options import offered_policies

if TYPE_CHECKING:
    from ..core.columns import Section
    from ..policies.contract import Policy


@click.command("policies")
@click.argument("names", nargs=-1, shell_complete=offered_policies)
@full_option
@output_options()
def command(names: tuple[str, ...], full: bool, output: Output) -> None:
    """List the placement policies: those of the Linux you have, and those of research kernels.

    With NAMES, or --full, also what they need, the design they model, and their parameters. Policies that act
    on different things combine: -p ptemagnet+hydra.

    \b
    Examples:
      ptanalyze policies
      ptanalyze policies hydra mitosis
    """
    from ..analysis.catalogue import list_policies
    from ..policies import find, policies

    chosen = [find(name) for name in dict.fromkeys(names)] if names else [*policies().values()]
    output.emit(
        "policies",
        lambda: list_policies(chosen),
        lambda: [record(policy) for policy in chosen],
        lambda: view(chosen) if full or names else short(chosen),
    )


def short(chosen: Sequence[Policy]) -> Iterator[Section]:
    """A line or two each, by what it takes to have it."""
    from ..core.columns import Section
    from ..policies import NOT_MAINLINE, RESEARCH

    groups: dict[str, list[Policy]] = {}
    for policy in chosen:
        how = policy.had_by({})
        title = "Mainline Linux" if how.line else "Research kernels" if how == RESEARCH else "Bounds"
        groups.setdefault(title, []).append(policy)
    for title, policies in groups.items():
        rows = [{"policy": one.name, "what it does": one.doc.partition(";")[0]} for one in policies]
        yield Section(title, rows, [""])
    needed = f"Research kernels: {NOT_MAINLINE}; such a kernel has to be built."
    yield Section(lines=[needed, f"Details: {program()} policies NAME (or --full)"])


def view(chosen: Sequence[Policy]) -> Iterator[Section]:
    from ..core.columns import Section
    from ..policies import NOT_MAINLINE, parameters

    yield Section(
        "Policies",
        [
            {
                "policy": policy.name,
                "what it does": policy.doc,
                "acts on": ", ".join(sorted(policy.acts_on(policy.params()))),
                "capture needs": ", ".join(policy.needed(policy.params())) or "page tables",
                "to have it": str(policy.had_by({})),
                "modelled on": policy.source,
            }
            for policy in chosen
        ],
        [f"research kernel: {NOT_MAINLINE}; such a kernel has to be built"],
    )
    columns = ("policy", "parameter", "default", "allowed", "meaning")
    rows = [
        dict(zip(columns, (policy.name, name, str(default), allowed, doc), strict=True))
        for policy in chosen
        for name, default, allowed, doc in parameters(policy)
    ]
    if rows:
        yield Section("Parameters (--set [POLICY.]KEY=VALUE)", rows)


def record(policy: Policy) -> dict[str, object]:
    from ..policies import parameters

    return {
        "name": policy.name,
        "doc": policy.doc,
        "source": policy.source,
        "availability": str(policy.had_by({})),
        "needs": list(policy.needed(policy.params())),
        "acts_on": sorted(policy.acts_on(policy.params())),
        "reshapes": policy.reshape is not None,
        "parameters": parameters(policy),
    }
