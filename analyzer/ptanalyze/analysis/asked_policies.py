"""Policies as people write them: one or several, with settings or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ..policies import Policy
from .setup import Settings

if TYPE_CHECKING:
    from ..core.snapshot import Snapshot

PolicyLike: TypeAlias = "str | Policy | tuple[str | Policy, Settings]"
Policies: TypeAlias = "PolicyLike | Sequence[PolicyLike]"


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


def asked_or_usual(asked: Policies, snapshot: Snapshot) -> list[tuple[str | Policy, dict[str, Any]]]:
    """As policies_of; nothing asked for: mitosis and hydra, in a guest that sees no nodes what needs none.

    That is vMitosis' migration, and its replication by hypercalls (no-p; vMitosis, section 3.3.3).
    """
    if found := policies_of(asked):
        return found
    if snapshot.numa_oblivious:
        return [("vmitosis-migrate", {}), ("vmitosis-replicate", {"mode": "no-p"})]
    return [("mitosis", {}), ("hydra", {})]
