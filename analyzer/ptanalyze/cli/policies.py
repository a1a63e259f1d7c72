"""`ptanalyze policies`: what can be replayed."""

import click

from .options import json_option


@click.command("policies")
@json_option
def command(as_json):
    """List the placement policies, what they do, and their parameters."""
    from ..policies import policies
    from ..policies.base import parameters
    from ..tables import print_json, print_rows

    known = list(policies().values())
    if as_json:
        print_json("policies", [{"name": p.name, "doc": p.doc, "parameters": parameters(p)} for p in known])
        return
    print_rows("Policies", [{"policy": policy.name, "what it does": policy.doc} for policy in known])
    rows = [
        {
            "policy": policy.name,
            "parameter": name,
            "default": str(default),
            "allowed": allowed,
            "meaning": doc,
        }
        for policy in known
        for name, default, allowed, doc in parameters(policy)
    ]
    print_rows("Parameters (--set [POLICY.]KEY=VALUE)", rows)
