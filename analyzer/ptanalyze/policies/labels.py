"""A policy with its settings, as one types it after -p: "mitosis:nodes=0,2"."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ..core.errors import UsageError
from .base import parameters
from .known import members


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
