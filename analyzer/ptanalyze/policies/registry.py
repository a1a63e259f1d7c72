"""Policies by name: ours, imported when their names are looked up, and outside ones by entry point."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from ..core.errors import UsageError, meant
from ..kernels.code_cache import say
from .contract import RESEARCH, Availability, Policy, Setting, parameters, share_out
from .plan import BrokenPolicyError, Plan, place, plan, said
from .table import POLICIES, outside_points


def policies() -> dict[str, Policy]:
    """{name: Policy}: ours first."""
    return {name: ours(name) for name in POLICIES} | outside()


def ours(name: str) -> Policy:
    """The Policy of a name in POLICIES."""
    file, _, policy = POLICIES[name].partition(".")
    found: Policy = getattr(import_module(f".{file}", __package__), policy)
    return found


@cache
def outside() -> dict[str, Policy]:
    """{name: Policy}: an entry point that loads a Policy adds it, but replaces none.

    A line on standard error names each that cannot be loaded.
    """
    known: dict[str, Policy] = {}
    for point in outside_points():
        try:
            policy = loaded(point)
        except BrokenPolicyError as error:
            say(f"{error}; left out")
            continue
        if policy.name not in POLICIES:
            known.setdefault(policy.name, policy)
    return known


def loaded(point: EntryPoint) -> Policy:
    """The Policy of an entry point; BrokenPolicyError where there is none."""
    name = f"{point.name} (package {point.dist.name} {point.dist.version})" if point.dist else point.name
    try:
        policy = point.load()
    except Exception as error:
        first = point.attr.partition(".")[0]
        command = f"python -c 'from {point.module} import {first}'"
        where = place(error)
        why = f"cannot be loaded: {said(error)}{f' ({where})' if where else ''}; {command} shows all"
        raise BrokenPolicyError(name, why) from error
    if not isinstance(policy, Policy):
        raise BrokenPolicyError(name, f"{point.value}: not a ptanalyze.policies.Policy")
    return policy


def find(name: str) -> Policy:
    """The Policy of that name; UsageError lists the known names.

    Of outside ones it loads the entry point of that name; all of them where that is not the policy's.
    """
    if name in POLICIES:
        return ours(name)
    for point in outside_points().select(name=name):
        policy = loaded(point)
        if policy.name == name:
            return policy
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
    rank = {name: k for k, name in enumerate(POLICIES)}
    return sorted(parts, key=lambda one: (one.reshape is None, rank.get(one.name, len(rank)), one.name))


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


# A policy with its settings, as one types it after -p: "mitosis:nodes=0,2".


def label(policy: str, params: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> str:
    """The name, the settings that are not the defaults, and those in which `others` of the policy differ."""
    usual = defaults(policy)
    said = [
        f"{key}={value}"
        for key, value in params.items()
        if str(value) != str(usual.get(key, value))
        or (value != "" and any(str(other.get(key)) != str(value) for other in others))
    ]
    return ":".join([policy, *said])


@cache
def defaults(policy: str) -> dict[str, Any]:
    """{key: default} of a policy, {policy.key: default} of several as A+B; {} of what is no policy here."""
    try:
        found = members(policy)
    except UsageError:
        return {}
    several = len(found) > 1
    return {
        f"{one.name}.{key}" if several else key: default
        for one in found
        for key, default, *_ in parameters(one)
    }


# How to get a policy today: a command, or a research kernel.

NOT_MAINLINE = "none of Mitosis, vMitosis, Hydra, WASP, PTEMagnet is mainline"


def caveat(name: str) -> str:
    """What to know before typing the line of `availability`, of a policy or of several as A+B; "" nothing."""
    return "; ".join(filter(None, (policy.caveat for policy in members(name))))


def availability(name: str, settings: Mapping[str, Any] | None = None) -> Availability:
    """How to get a policy with its settings, or several as A+B with {policy.key: value}."""
    found = members(name)
    parts = [
        one.had_by(
            {
                key.removeprefix(f"{one.name}."): value
                for key, value in (settings or {}).items()
                if len(found) == 1 or key.startswith(f"{one.name}.")
            }
        )
        for one in found
    ]
    others = [part for part in parts if not part.line]
    if others:
        return RESEARCH if RESEARCH in others else others[0]
    first, *_ = parts
    return first._replace(line="; ".join(dict.fromkeys(part.line for part in parts)))
