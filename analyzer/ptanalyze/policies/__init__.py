"""The placement policies: an explicit list, and outside ones by entry point "ptanalyze.policies"."""

from importlib.metadata import entry_points

from ..errors import UsageError
from . import hydra, ideal, linux, mitosis, replaced, vmitosis
from .base import Policy

POLICIES = (
    linux.POLICY,
    replaced.FIRST_TOUCH,
    replaced.INTERLEAVE,
    replaced.BIND,
    ideal.POLICY,
    mitosis.POLICY,
    hydra.POLICY,
    vmitosis.POLICY,
)


def policies():
    """{name: Policy}: ours first; an entry point that loads to a Policy adds one, but replaces none."""
    known = {policy.name: policy for policy in POLICIES}
    for point in entry_points(group="ptanalyze.policies"):
        found = point.load()
        if not isinstance(found, Policy):
            raise UsageError(f"entry point {point.name} = {point.value}: not a ptanalyze.policies.Policy")
        known.setdefault(found.name, found)
    return known


def find(name):
    """The Policy of that name; UsageError lists the names there are."""
    known = policies()
    if name not in known:
        raise UsageError(f"policy {name}: no such policy; there are: {', '.join(known)}")
    return known[name]
