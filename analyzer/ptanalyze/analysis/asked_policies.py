"""Policies as people write them: one or several, with settings or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from ..policies import Policy
from .setup import Settings

PolicyLike: TypeAlias = "str | Policy | tuple[str | Policy, Settings]"
Policies: TypeAlias = "PolicyLike | Sequence[PolicyLike]"
Several: TypeAlias = "str | Policy | Sequence[str | Policy]"


def policies_of(asked: Policies) -> list[tuple[str | Policy, dict[str, Any]]]:
    """[(name or Policy, settings)] of a policy or several.

    asked  "hydra", "ptemagnet+hydra", ("hydra", {"prefetch": 3}), a policies.Policy of your own in
           place of a name, or a list of these
    """
    if isinstance(asked, (str, Policy)):
        return [(asked, {})]
    if len(asked) == 2 and isinstance(asked[0], (str, Policy)) and isinstance(asked[1], Mapping):
        return [(asked[0], dict(asked[1]))]
    return [pair for policy in asked for pair in policies_of(cast("PolicyLike", policy))]
