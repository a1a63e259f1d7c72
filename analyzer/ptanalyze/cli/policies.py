"""`ptanalyze policies`: what can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError
from .options import complete_policies, json_option
from .plotting import plot_option, write_plot

if TYPE_CHECKING:
    from ..policies.base import Policy


@click.command("policies")
@click.argument("names", nargs=-1, shell_complete=complete_policies)
@plot_option()
@json_option
def command(names: tuple[str, ...], plot: str | None, as_json: bool) -> None:
    """List the placement policies: what they do, what they need, what they follow, and their parameters.

    With NAMES only those. Policies that act on different things go together: -p ptemagnet+hydra.
    """
    from ..policies import policies
    from ..show.terminal import print_json

    known = policies()
    for name in names:
        if name not in known:
            raise UsageError(f"policy {name}: no such policy; there are: {', '.join(known)}")
    chosen = [policy for name, policy in known.items() if not names or name in names]
    if as_json:
        print_json("policies", [record(policy) for policy in chosen])
    else:
        show(chosen)
    if plot:
        from ..analysis.catalogue import list_policies as table
        from ..show import plots

        every = table()
        write_plot(plot, plots.policies(every[every["policy"].isin([policy.name for policy in chosen])]))


def show(chosen: list[Policy]) -> None:
    from ..show.terminal import print_rows

    print_rows(
        "Policies",
        [
            {
                "policy": policy.name,
                "what it does": policy.doc,
                "acts on": ", ".join(sorted(policy.acts_on(policy.params()))),
                "needs": ", ".join(policy.needs) or "page tables",
                "after": policy.source,
            }
            for policy in chosen
        ],
    )
    rows = [
        {"policy": policy.name, **dict(zip(("parameter", "default", "allowed", "meaning"), row, strict=True))}
        for policy in chosen
        for row in parameter_rows(policy)
    ]
    if rows:
        print_rows("Parameters (--set [POLICY.]KEY=VALUE)", rows)


def parameter_rows(policy: Policy) -> list[tuple[str, str, str, str]]:
    from ..policies import parameters

    return [(name, str(default), allowed, doc) for name, default, allowed, doc in parameters(policy)]


def record(policy: Policy) -> dict[str, object]:
    from ..policies import parameters

    return {
        "name": policy.name,
        "doc": policy.doc,
        "source": policy.source,
        "needs": list(policy.needs),
        "acts_on": sorted(policy.acts_on(policy.params())),
        "reshapes": policy.reshape is not None,
        "parameters": parameters(policy),
    }
