"""Settings of several policies, given together: KEY goes to all that have it, POLICY.KEY to that policy."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ..core.errors import UsageError
from .base import Policy, hint, parameters

Setting: TypeAlias = tuple[str, Any]  # KEY or POLICY.KEY, and its value as text or typed


def share_out(where: str, policies: Sequence[Policy], settings: Iterable[Setting]) -> list[dict[str, Any]]:
    """[{KEY: value}] for each policy. UsageError, which begins with `where`: a setting that none takes."""
    shares: list[dict[str, Any]] = [{} for _ in policies]
    for key, value in settings:
        takers = [k for k, policy in enumerate(policies) if speaks_to(key, policy)]
        if not takers:
            known = {policy.name: ", ".join(keys_of(policy)) or "none" for policy in policies}
            has = "; ".join(f"{name}: {names}" for name, names in known.items())
            other = "".join(dict.fromkeys(hint(policy, key) for policy in policies))
            raise UsageError(
                f"{where} {key}={value}: no policy asked for has this parameter; they have: {has}{other}"
            )
        refusing = [policies[k].name for k in takers if not allows(policies[k], plain(key), value)]
        if refusing and len(refusing) < len(takers):
            own = [f"{policies[k].name}.{key}={value}" for k in takers if policies[k].name not in refusing]
            raise UsageError(
                f"{where} {key}={value}: no such value for policy {', '.join(refusing)}; name the policy "
                f"that it is for: {', '.join(own)}"
            )
        for k in takers:
            shares[k][plain(key)] = value
    return shares


def speaks_to(key: str, policy: Policy) -> bool:
    """Whether KEY is a parameter of the policy's, or POLICY.KEY names the policy."""
    owner, dot, _ = key.rpartition(".")
    return policy.name == owner if dot else has(policy, key)


def allows(policy: Policy, key: str, value: Any) -> bool:
    """Whether the policy's parameter may have this value; False where it has no such parameter."""
    try:
        policy.configure({key: value})
    except UsageError:
        return False
    return True


def has_parameter(policy: Policy, key: str) -> bool:
    """Whether KEY or POLICY.KEY is a parameter of the policy's."""
    return speaks_to(key, policy) and has(policy, plain(key))


def plain(key: str) -> str:
    """KEY of POLICY.KEY."""
    return key.rpartition(".")[2]


def has(policy: Policy, key: str) -> bool:
    return key in keys_of(policy)


def keys_of(policy: Policy) -> list[str]:
    return [name for name, *_ in parameters(policy)]
