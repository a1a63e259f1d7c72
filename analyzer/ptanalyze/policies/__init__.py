"""The placement policies: an explicit list, and outside ones by entry point "ptanalyze.policies"."""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from ..core.errors import UsageError
from . import (
    domains,
    five_level,
    hydra,
    hydra_2d,
    ideal,
    linux,
    mitosis,
    ptemagnet,
    shadow,
    single_copy,
    steering,
    thp,
    vmitosis_migrate,
    vmitosis_replicate,
    wasp,
)
from .base import Policy, parameters
from .combine import Plan, plan
from .settings import Setting, has_parameter, share_out, speaks_to

__all__ = [
    "POLICIES",
    "Plan",
    "Policy",
    "find",
    "has_parameter",
    "members",
    "parameters",
    "plan_for",
    "policies",
    "share_settings",
    "speaks_to",
]

POLICIES = (
    linux.POLICY,
    single_copy.FIRST_TOUCH,
    single_copy.INTERLEAVE,
    single_copy.BIND,
    ideal.POLICY,
    mitosis.POLICY,
    hydra.POLICY,
    vmitosis_replicate.POLICY,
    vmitosis_migrate.POLICY,
    hydra_2d.POLICY,
    steering.POLICY,
    wasp.POLICY,
    # policies that reshape the world, in their order
    thp.POLICY,
    ptemagnet.POLICY,
    five_level.POLICY,
    shadow.POLICY,
    domains.POLICY,
)


def policies() -> dict[str, Policy]:
    """{name: Policy}: ours first; an entry point that loads a Policy adds it, but replaces none."""
    known = {policy.name: policy for policy in POLICIES}
    for point in entry_points(group="ptanalyze.policies"):
        outside = point.load()
        if not isinstance(outside, Policy):
            raise UsageError(f"entry point {point.name} = {point.value}: not a ptanalyze.policies.Policy")
        known.setdefault(outside.name, outside)
    return known


def find(name: str) -> Policy:
    """The Policy of that name; UsageError lists the known names."""
    known = policies()
    if name not in known:
        raise UsageError(f"policy {name}: no such policy; there are: {', '.join(known)}")
    return known[name]


def members(name: str | Policy) -> list[Policy]:
    """[Policy] of "a" or "a+b", in a fixed order: those that reshape the world first.

    A Policy, known by name or not, is its own only member.
    """
    if isinstance(name, Policy):
        return [name]
    rank = {known: k for k, known in enumerate(policies())}
    parts = [find(part.strip()) for part in name.split("+")]
    return sorted(parts, key=lambda policy: (policy.reshape is None, rank[policy.name]))


def share_settings(names: Sequence[str | Policy], settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """[{key: value}] for each name, as plan_for takes them: KEY goes to every policy that has it.

    UsageError for a setting that none takes.
    """
    asked = [(k, policy) for k, name in enumerate(names) for policy in members(name)]
    shared: list[dict[str, Any]] = [{} for _ in names]
    shares = share_out("--set", [policy for _, policy in asked], settings)
    for (k, policy), share in zip(asked, shares, strict=True):
        prefix = f"{policy.name}." if len(members(names[k])) > 1 else ""
        shared[k] |= {prefix + key: value for key, value in share.items()}
    return shared


def plan_for(policy: str | Policy, settings: Mapping[str, Any] | None = None) -> Plan:
    """Plan of a Policy, or of a name as "hydra" or "ptemagnet+hydra", with its parameters."""
    return plan(members(policy), dict(settings or {}))
