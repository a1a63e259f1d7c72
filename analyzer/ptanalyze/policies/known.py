"""Policies by name: ours, imported when their names are looked up, and outside ones by entry point."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..core.errors import UsageError
from ..core.near import meant
from .base import Policy
from .combine import Plan, plan
from .settings import Setting, share_out
from .table import POLICIES, outside_points


def policies() -> dict[str, Policy]:
    """{name: Policy}: ours first."""
    return {name: ours(name) for name in POLICIES} | outside()


def ours(name: str) -> Policy:
    """The Policy of a name in POLICIES."""
    file, _, policy = POLICIES[name].partition(".")
    found: Policy = getattr(import_module(f".{file}", __package__), policy)
    return found


def outside() -> dict[str, Policy]:
    """{name: Policy}: an entry point that loads a Policy adds it, but replaces none."""
    known: dict[str, Policy] = {}
    for point in outside_points():
        policy = point.load()
        if not isinstance(policy, Policy):
            raise UsageError(f"entry point {point.name} = {point.value}: not a ptanalyze.policies.Policy")
        if policy.name not in POLICIES:
            known.setdefault(policy.name, policy)
    return known


def find(name: str) -> Policy:
    """The Policy of that name; UsageError lists the known names."""
    if name in POLICIES:
        return ours(name)
    known = outside()
    if name not in known:
        every = [*POLICIES, *known]
        raise UsageError(f"policy {name}: no such policy; {meant(name, every)}there are: {', '.join(every)}")
    return known[name]


def members(name: str | Policy) -> list[Policy]:
    """[Policy] of "a" or "a+b", in a fixed order: those that reshape the world first.

    A Policy, known by name or not, is its own only member.
    """
    if isinstance(name, Policy):
        return [name]
    parts = [find(part.strip()) for part in name.split("+")]
    if len(parts) == 1:
        return parts
    rank = [*POLICIES, *outside()]
    return sorted(parts, key=lambda policy: (policy.reshape is None, rank.index(policy.name)))


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
