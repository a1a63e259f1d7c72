"""Notes of several results together, each once; one that only some policies have names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..cost.result import Result


def owned_notes(results: Sequence[Result], assumptions: bool = True) -> list[str]:
    """Notes, and assumptions, in the order of the results: "thp: ..." or "all but thp: ..." if not of all."""
    owners: dict[str, set[str]] = {}
    for result in results:
        for note in (*result.notes, *[result.price.assumptions] * assumptions):
            owners.setdefault(note, set()).add(result.policy)
    policies = list(dict.fromkeys(result.policy for result in results))
    return [named(note, whose, policies) for note, whose in owners.items()]


def named(note: str, whose: set[str], policies: Sequence[str]) -> str:
    """The note behind the names of its policies, unless all have it or it begins with a name itself."""
    if note.startswith(tuple(member for policy in whose for member in policy.split("+"))):
        return note
    others = [policy for policy in policies if policy not in whose]
    if not others:
        return note
    if len(others) < len(whose):
        return f"all but {', '.join(others)}: {note}"
    return f"{', '.join(policy for policy in policies if policy in whose)}: {note}"
