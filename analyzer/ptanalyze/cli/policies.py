"""`ptanalyze policies`: what can be replayed."""

import click

from ..errors import UsageError
from .options import complete_policies, json_option


@click.command("policies")
@click.argument("names", nargs=-1, shell_complete=complete_policies)
@json_option
def command(names, as_json):
    """List the placement policies: what they do, what they need, what they follow, and their parameters.

    With NAMES only those. Policies that act on different things go together: -p ptemagnet+hydra.
    """
    from ..policies import policies
    from ..tables import print_json, print_rows

    known = policies()
    for name in names:
        if name not in known:
            raise UsageError(f"policy {name}: no such policy; there are: {', '.join(known)}")
    chosen = [policy for name, policy in known.items() if not names or name in names]
    if as_json:
        print_json("policies", [record(policy) for policy in chosen])
        return
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


def parameter_rows(policy):
    from ..policies import parameters

    return [(name, str(default), allowed, doc) for name, default, allowed, doc in parameters(policy)]


def record(policy):
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
